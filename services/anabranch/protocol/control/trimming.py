"""Up to which bucket may the blocks of a stream be deleted (rule 18)?

Theory of operation. A reader never again reads what its *synced* stable position covers: the
directory of its newest timeline file (a fork point, while a branch runs), or what stands in the
output for good. Each says so in its heartbeats (``checkpoint_bucket``). The trim point of a stream
is the least over its readers. A reader that was not heard for a day holds nothing back any more: it
re-enters by copying a peer. A reader that was never heard may exist all the same, so it holds
everything back until a day was observed. The day is counted by who trims, from when it heard the
reader (``protocol.control.failure_detector``); after its restart what stands in the topic counts as
heard then.

What is trimmed is trimmed whoever reads it later, so every doubt means to trim less.

Invariants:
    TM1 the trim point of a stream never falls, over restarts of the manager too.
    TM2 it is at most the position of every reader heard within ``TRIM_READER_MS`` of observed time,
        whatever the clocks of the readers say, and at most the stream's last stable bucket.
    TM3 a reader never heard holds it back, until ``TRIM_READER_MS`` of observed time.
    TM4 without a single reader that counts nothing is trimmed, except as TM6 says.
    TM5 the process of the highest epoch speaks for a reader; one that is starting, and names no
        checkpoint yet, has read nothing.
    TM6 of a stream that other pipelines read the newest buckets are kept, as many as its owner
        says, whatever those readers do: nobody but the owner decides what its log holds. Such a
        stream need not have a reader of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from anabranch.protocol.control.failure_detector import FailureDetector, Peer
from anabranch.protocol.control.records import Heartbeat, TrimPoint
from anabranch.protocol.limits import TRIM_EVERY_MS, TRIM_READER_MS


class Trimming:
    """The trim points of a pipeline's streams. ``now_ms`` is the wall clock of the process
    that trims.
    """

    def __init__(
        self,
        readers: Mapping[str, Collection[Peer]],
        kept_buckets: Mapping[str, int] | None = None,
    ) -> None:
        """``readers``: all that a stream may have, by stream. ``kept_buckets``: of streams that
        other pipelines read, as many as are kept for these.
        """
        self._kept_buckets = kept_buckets or {}
        self._readers = {stream: frozenset(those) for stream, those in readers.items()}
        self._detector = FailureDetector(frozenset().union(*self._readers.values()))
        self._points: dict[str, TrimPoint] = {}

    def heard(self, beat: Heartbeat, now_ms: int) -> None:
        """Take note of any heartbeat of the control topic, however old (TM5)."""
        self._detector.heard(beat, now_ms)

    def seen(self, point: TrimPoint) -> None:
        """Take note of a trim point in the control topic, one's own too (TM1)."""
        before = self._points.get(point.stream)
        if point.stream in self._readers and (before is None or point.bucket >= before.bucket):
            self._points[point.stream] = point

    def point(self, stream: str) -> int:
        """Buckets of ``stream`` up to this one are not needed; 0: all are."""
        found = self._points.get(stream)
        return 0 if found is None else found.bucket

    def due(self, now_ms: int, uptos: Mapping[str, int]) -> list[TrimPoint]:
        """The trim points to write now; ``uptos``: last stable bucket of each stream."""
        self._detector.look(now_ms)
        made = []
        for stream in self._readers:
            last = self._points.get(stream)
            if last is not None and 0 <= now_ms - last.written_ms < TRIM_EVERY_MS:
                continue
            upto = uptos.get(stream, 0)
            kept_after = upto - self._kept_buckets.get(stream, 0)
            bucket = min(self._position(stream, now_ms, upto), kept_after)
            if bucket > self.point(stream):
                made.append(TrimPoint(stream, bucket, now_ms))
        for point in made:
            self.seen(point)
        return made

    def _position(self, stream: str, now_ms: int, upto: int) -> int:
        """The least position of the readers that count (TM2-TM4, TM6)."""
        positions = []
        for reader in self._readers[stream]:
            if self._detector.silent_ms(reader, now_ms) > TRIM_READER_MS:
                continue
            beat = self._detector.last(reader)
            if beat is None:
                return 0
            positions.append(beat.checkpoint_bucket)
        return min(positions, default=upto if stream in self._kept_buckets else 0)
