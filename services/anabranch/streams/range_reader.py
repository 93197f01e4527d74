"""Reader of ranges of offsets. Fetches nothing between two reads, nor from other partitions.

The task workers of a stage share the partitions of a stream. A client that kept the partitions
assigned that it once read would fetch the whole stream in every worker. So a read assigns its
partitions at its start, and none at its end. Then no fetch is outstanding at the next read, which
would otherwise wait for that fetch before it can move to other offsets.

A client returns all that it has fetched, so a read goes beyond its end by the content of the
client's queue. Those records are kept, within bounds, for the next read, as a backlog is read in
small consecutive ranges.
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
"""Time without a record, in ms, after which a read on another owner's cluster checks whether the
cluster answers, and fails if not: the stage must be able to continue without it.
"""

_FETCH_RECORDS: Final = 4_000
_FETCH_MS: Final = 200
_LOOK_MS: Final = 30_000
"""Time without a record, in ms, after which a read checks whether its offsets exist."""
_LOOK_WAIT_MS: Final = 5_000
_SILENCE_MS_MAX: Final = 120_000
"""Time without a record, in ms, after which a read fails. A shorter absence of the broker only
delays it.
"""
_KEPT_BYTES_MAX: Final = 16 * MIB
"""Maximum size of records kept from beyond the end, in bytes. Above it, partitions that are read to
their end are unassigned, and the kept records are dropped.
"""

Take = Callable[[TopicPartition, int, bytes | None, Headers], None]
"""Callback for one record: partition, offset, value and headers."""


@dataclass(slots=True)
class _Kept:
    """Buffer of the records of a partition from offset ``first`` to the last one that was read."""

    first: int
    records: deque[tuple[int, bytes | None, Headers]] = field(default_factory=deque)


class RangeReader:
    """Reader of partitions of one topic. Not thread-safe."""

    def __init__(
        self, log: EventLog, clock: Clock, stream: str, *, is_elsewhere: bool = False
    ) -> None:
        """Open the reader of blocks of ``stream``. With ``is_elsewhere`` the topic is on another
        owner's cluster, and reads fail soon if that does not answer.
        """
        self._is_elsewhere = is_elsewhere
        self._reader = log.reader(committed=False, headers=True, timestamps=False, ranges_of=stream)
        self._clock = clock
        self._kept: dict[TopicPartition, _Kept] = {}
        self._kept_bytes = 0

    def read(
        self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], take: Take
    ) -> None:
        """Call ``take`` for every record of each partition from ``start`` up to, not including,
        ``end``.

        Raises:
            DataMissing: records were deleted, or do not exist after _LOOK_MS.
            Unavailable: no record arrived for _SILENCE_MS_MAX, or another owner's cluster does not
                answer.
        """
        begin = {at: self._from_kept(at, start[at], last, take) for at, last in end.items()}
        begin = {at: first for at, first in begin.items() if first < end[at]}
        if begin:
            self._read(begin, end, take)

    def close(self) -> None:
        """Close the reader. Idempotent."""
        self._reader.close()
        self._forget()

    def _from_kept(self, at: TopicPartition, first: int, last: int, take: Take) -> int:
        """Call ``take`` for the kept records of the range; return the offset to read from."""
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
            # Once only: on a slow machine more arrives all the time, up to the whole backlog.
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
        """Check that the records of ``at`` up to ``end`` may still arrive. Raises as ``read``."""
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
