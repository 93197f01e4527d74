"""Reads ranges of offsets, mostly forward, without seeking back for what was read too far.

A consumer hands out whatever it has fetched, so reading up to an offset reads beyond it in other partitions, or in this one. To seek back for
that costs a round trip to the broker and the wait for the empty answer before it, about 100 ms, which a small read cannot afford. So records
beyond the range are kept, within bounds, for the next one.

What is read differs from time to time: other partitions, another place in one of them. Every partition that was read once stays assigned and has a
place of its own, so that one consumer serves all of them, and only what jumps is sought.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from anabranch.ports import Clock, EventLog, Headers, TopicPartition
from anabranch.protocol.errors import DataMissing, Unavailable
from anabranch.protocol.limits import MIB

_FETCH_RECORDS: Final = 4_000
_FETCH_MS: Final = 200
_LOOK_MS: Final = 30_000
"""After so long without a record the log is asked whether what is wanted is there at all."""
_LOOK_WAIT_MS: Final = 5_000
_SILENCE_MS_MAX: Final = 120_000
"""A broker that is away for longer ends what is read for; a shorter absence only holds it up."""
_SKIP_MAX: Final = 256
"""Records that are read and thrown away rather than sought over: a seek empties the client's buffers."""
_KEPT_BYTES_MAX: Final = 64 * MIB
"""Of records that were read too far: beyond it they are dropped, and sought again."""

Take = Callable[[TopicPartition, int, bytes | None, Headers], None]
"""Given the place, offset, value and headers of a record."""


class RangeReader:
    """Reads partitions of one topic. Not thread-safe."""

    def __init__(self, log: EventLog, clock: Clock) -> None:
        self._reader = log.reader(committed=False, headers=True, timestamps=False)
        self._clock = clock
        self._passed: dict[TopicPartition, int] = {}
        """Of every partition that is assigned: records below were given out or skipped; those from there to the consumer's position are kept."""
        self._kept: dict[TopicPartition, deque[tuple[int, bytes | None, Headers]]] = {}
        self._kept_bytes = 0
        self._went_on = False
        """The read that runs, or ran last, began with something that one before had left."""

    def read(self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], take: Take) -> None:
        """Give ``take`` every record from ``start`` up to, not including, ``end`` of each partition.

        Where reading has to begin anew on the way, ``take`` gets some records a second time.

        Raises:
            DataMissing: records are gone, or are not there yet after a long time.
            Unavailable: nothing came for a longer one, though it is there, or nobody says that it is not.
        """
        try:
            try:
                self._read(start, end, take)
            except DataMissing:
                if not self._went_on:
                    raise
                self._begin_anew()  # where it stood was trimmed, since nobody needs that any more; what is wanted may be there
                self._read(start, end, take)
        except BaseException:
            self._begin_anew()  # it stands anywhere: the next read must not go on from there
            raise
        if self._kept_bytes > _KEPT_BYTES_MAX:
            self._begin_anew()

    def close(self) -> None:
        """Idempotent."""
        self._reader.close()
        self._begin_anew()

    def _read(self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], take: Take) -> None:
        reader = self._reader
        self._seek({at: first for at, first in start.items() if not self._goes_on(at, first)})
        for at, last in end.items():
            kept = self._kept[at]
            while kept and kept[0][0] < last:
                offset, value, headers = kept.popleft()
                self._kept_bytes -= len(value or b"")
                if offset >= start[at]:
                    take(at, offset, value, headers)
        waiting = {at for at in end if reader.position(at) < end[at]}
        heard_ms = looked_ms = self._clock.monotonic_ms()
        while waiting:
            for chunk in reader.fetch(_FETCH_RECORDS, _FETCH_MS):
                at = chunk.at
                if at in waiting:
                    heard_ms = looked_ms = self._clock.monotonic_ms()
                first, last = start.get(at, 0), end.get(at, 0)
                for offset, value, headers in zip(chunk.offsets, chunk.values, chunk.headers, strict=True):
                    if offset >= last:
                        self._kept[at].append((offset, value, headers))
                        self._kept_bytes += len(value or b"")
                    elif offset >= first:
                        take(at, offset, value, headers)
            waiting = {at for at in waiting if reader.position(at) < end[at]}
            if waiting and self._clock.monotonic_ms() - looked_ms > _LOOK_MS:
                at = min(waiting)
                self._look(at, end[at], silent_ms=self._clock.monotonic_ms() - heard_ms)
                looked_ms = self._clock.monotonic_ms()
        self._passed |= end

    def _look(self, at: TopicPartition, end: int, silent_ms: int) -> None:
        """Whether to go on waiting for the records of ``at`` up to ``end``. Raises as ``read``."""
        text = f"{at.topic}[{at.partition}]: nothing came up to offset {end} within {silent_ms} ms"
        with contextlib.suppress(Unavailable):
            first, stop = self._reader.offsets(at, _LOOK_WAIT_MS)
            if first > self._reader.position(at) or stop < end:
                raise DataMissing(f"{text}; it has {first} to {stop}")
        if silent_ms > _SILENCE_MS_MAX:
            raise Unavailable(text)

    def _goes_on(self, at: TopicPartition, first: int) -> bool:
        """Whether ``first`` is at or a little ahead of where this stands in ``at``."""
        return at in self._passed and self._passed[at] <= first <= self._reader.position(at) + _SKIP_MAX

    def _seek(self, moved: Mapping[TopicPartition, int]) -> None:
        """Go on from there in ``moved``, and from where it stands elsewhere."""
        self._went_on = moved.keys() != self._passed.keys() | moved.keys()
        if not moved:
            return
        self._reader.assign({at: self._reader.position(at) for at in self._passed if at not in moved} | dict(moved))
        for at, first in moved.items():
            self._kept_bytes -= sum(len(value or b"") for _, value, _ in self._kept.get(at, ()))
            self._kept[at], self._passed[at] = deque(), first

    def _begin_anew(self) -> None:
        self._passed, self._kept, self._kept_bytes = {}, {}, 0
