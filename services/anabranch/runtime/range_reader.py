"""Reads ranges of offsets, and nothing else: between two reads, and of partitions that are not
read, nothing is fetched.

A stage's task workers, and whoever else reads blocks, take turns at the partitions of a stream: a
client that kept those assigned which it once read would fetch the whole stream in each of them. So
a read assigns the partitions that it is for, from where it begins, and none when it ends. No answer
of the broker is outstanding by the next one, so that it need not be waited for before the client
can be sent elsewhere.

A client hands out whatever it has fetched, so a read goes beyond its end by what the client's queue
holds then. That is kept, within bounds, for the read that goes on there, as where a backlog is read
in small steps.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from anabranch.ports import Chunk, Clock, EventLog, Headers, TopicPartition
from anabranch.protocol.errors import DataMissing, Unavailable
from anabranch.protocol.limits import CLUSTER_REQUEST_MS, MIB

CLUSTER_PATIENCE_MS: Final = 1_500
"""A read of blocks on another owner's cluster to which nothing comes for so long asks whether
anybody is there, and is given up if not: the stage must be able to go on without them.
"""

_FETCH_RECORDS: Final = 4_000
_FETCH_MS: Final = 200
_LOOK_MS: Final = 30_000
"""After so long without a record a look at the log shows whether what is wanted is there at all."""
_LOOK_WAIT_MS: Final = 5_000
_SILENCE_MS_MAX: Final = 120_000
"""A broker that is away for longer ends what is read for; a shorter absence only holds it up."""
_KEPT_BYTES_MAX: Final = 16 * MIB
"""Of records that were read too far: beyond it nothing more is read of partitions that are
read to their end, and what is kept is dropped.
"""

Take = Callable[[TopicPartition, int, bytes | None, Headers], None]
"""Given the place, offset, value and headers of a record."""


@dataclass(slots=True)
class _Kept:
    """All that stands in a partition from ``first`` to its last record here."""

    first: int
    records: deque[tuple[int, bytes | None, Headers]] = field(default_factory=deque)


class RangeReader:
    """Reads partitions of one topic. Not thread-safe."""

    def __init__(self, log: EventLog, clock: Clock, *, is_elsewhere: bool = False) -> None:
        """``is_elsewhere``: on another owner's cluster, which is not waited for where it does not
        answer: the stage goes on without it.
        """
        self._is_elsewhere = is_elsewhere
        self._reader = log.reader(committed=False, headers=True, timestamps=False, ranges=True)
        self._clock = clock
        self._kept: dict[TopicPartition, _Kept] = {}
        self._kept_bytes = 0

    def read(
        self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], take: Take
    ) -> None:
        """Give ``take`` every record from ``start`` up to, not including, ``end`` of each
        partition.

        Raises:
            DataMissing: records are gone, or are not there yet after a long time.
            Unavailable: nothing came for a longer one, though it is there, or nobody says that it
                is not.
        """
        begin = {at: self._from_kept(at, start[at], last, take) for at, last in end.items()}
        begin = {at: first for at, first in begin.items() if first < end[at]}
        if begin:
            self._read(begin, end, take)

    def close(self) -> None:
        """Idempotent."""
        self._reader.close()
        self._forget()

    def _from_kept(self, at: TopicPartition, first: int, last: int, take: Take) -> int:
        """Give what is kept of the range; where to read on."""
        kept = self._kept.pop(at, None)
        if kept is None or not kept.records:
            return first
        following = kept.records[-1][0] + 1
        if not kept.first <= first <= following:
            self._kept_bytes -= sum(len(value or b"") for _, value, _ in kept.records)
            return first
        while kept.records and kept.records[0][0] < last:
            offset, value, headers = kept.records.popleft()
            self._kept_bytes -= len(value or b"")
            if offset >= first:
                take(at, offset, value, headers)
        if kept.records:
            kept.first = last
            self._kept[at] = kept
        return following

    def _read(
        self, begin: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], take: Take
    ) -> None:
        reader = self._reader
        reader.assign(begin)
        waiting = set(begin)
        heard_ms = looked_ms = self._clock.monotonic_ms()
        while waiting:
            for chunk in reader.fetch(_FETCH_RECORDS, _FETCH_MS):
                if chunk.at in waiting:
                    heard_ms = looked_ms = self._clock.monotonic_ms()
                self._hand_out(chunk, end, take)
            left = {at for at in waiting if reader.position(at) < end[at]}
            if left != waiting and left and self._kept_bytes > _KEPT_BYTES_MAX:
                reader.assign({at: reader.position(at) for at in left})
            waiting = left
            look_ms = CLUSTER_PATIENCE_MS if self._is_elsewhere else _LOOK_MS
            if waiting and self._clock.monotonic_ms() - looked_ms > look_ms:
                at = min(waiting)
                self._look(at, end[at], silent_ms=self._clock.monotonic_ms() - heard_ms)
                looked_ms = self._clock.monotonic_ms()
        with contextlib.suppress(DataMissing, Unavailable):  # what was wanted is there
            # Once: on a slow machine there is always more, and the rest of the backlog came here.
            for chunk in reader.fetch(_FETCH_RECORDS, 0):
                self._hand_out(chunk, end, take)
        if self._kept_bytes > _KEPT_BYTES_MAX:
            self._forget()
        reader.assign({})

    def _hand_out(self, chunk: Chunk, end: Mapping[TopicPartition, int], take: Take) -> None:
        at, last = chunk.at, end[chunk.at]
        for offset, value, headers in zip(chunk.offsets, chunk.values, chunk.headers, strict=True):
            if offset < last:
                take(at, offset, value, headers)
            else:
                self._kept.setdefault(at, _Kept(last)).records.append((offset, value, headers))
                self._kept_bytes += len(value or b"")

    def _look(self, at: TopicPartition, end: int, silent_ms: int) -> None:
        """Whether to go on waiting for the records of ``at`` up to ``end``. Raises as ``read``."""
        text = f"{at.topic}[{at.partition}]: nothing came up to offset {end} within {silent_ms} ms"
        try:
            wait_ms = CLUSTER_REQUEST_MS if self._is_elsewhere else _LOOK_WAIT_MS
            first, stop = self._reader.offsets(at, wait_ms)
        except Unavailable:
            if self._is_elsewhere:
                raise
        else:
            is_old = silent_ms > _LOOK_MS
            if first > self._reader.position(at) or (stop < end and is_old):
                raise DataMissing(f"{text}; it has {first} to {stop}")
        if silent_ms > _SILENCE_MS_MAX:
            raise Unavailable(f"{text}: check that its broker runs and is reached from here")

    def _forget(self) -> None:
        self._kept, self._kept_bytes = {}, 0
