"""Follows the boundary log of one stream and keeps what the figures need."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from anabranch.protocol.log.records import BoundaryKind, BoundaryRecord, LogEntry
from anabranch.streams.boundary_reader import BoundaryReader
from experiments.dpc.figures import Event, Trace

if TYPE_CHECKING:
    from anabranch.pipeline.model import Pipeline
    from anabranch.ports import EventLog
    from anabranch.protocol.log.boundary_log import Outcome

_POLL_MS: Final = 100


@dataclass(frozen=True, slots=True)
class Sum:
    """Content of a bucket."""

    rows: int
    digest: int


class Watch:
    """One stream. Not thread-safe."""

    def __init__(
        self, log: EventLog, pipeline: Pipeline, stream: str, now_ms: Callable[[], float]
    ) -> None:
        self.stream, self.trace = stream, Trace()
        self.sums: dict[int, Sum] = {}
        """Content of each stable bucket that is not empty."""
        self.upto, self.tentative_upto = 0, 0
        self._now_ms = now_ms
        self._writers: Sequence[str] = pipeline.stream_writers(stream)
        self._reader = BoundaryReader(
            log, pipeline.topic_names.boundaries(stream), self._writers, listener=self._take
        )
        self._tentative = dict.fromkeys(self._writers, (0, (-1, -1)))

    def poll(self, wait_ms: int = 0) -> None:
        """Take what is there."""
        self._reader.poll(wait_ms)

    def closed(self, writer: str) -> int:
        """How far one writer is."""
        return self._reader.log_state.closed(writer)

    def close(self) -> None:
        """Idempotent."""
        self._reader.close()

    def _take(self, _offset: int, entry: LogEntry, outcome: Outcome) -> None:
        at_ms = self._now_ms()
        if not isinstance(entry, BoundaryRecord) or not outcome.accepted:
            return
        log_state = self._reader.log_state
        if entry.kind is BoundaryKind.TENTATIVE:
            rows = self._tentative_rows(entry)
            self.tentative_upto = max(self.tentative_upto, entry.closed)
            self.trace.events.append(
                Event(at_ms, entry.replica, True, entry.closed, rows, entry.missing)
            )
            return
        found = (
            log_state.stable(self.upto + 1, log_state.upto) if log_state.upto > self.upto else []
        )
        for bucket, _, parts in found:
            self.sums[bucket] = Sum(
                sum(p.rows for p in parts), sum(p.digest for p in parts) % 2**64
            )
        rows = sum(self.sums[bucket].rows for bucket, _, _ in found)
        self.trace.events.append(Event(at_ms, entry.replica, False, log_state.upto, rows, ()))
        self.upto = log_state.upto
        log_state.forget(log_state.upto)

    def _tentative_rows(self, entry: BoundaryRecord) -> int:
        """Tuples in the buckets that ``entry`` closes and that its branch had not closed before."""
        log_state, number = self._reader.log_state, entry.branch or (-1, -1)
        closed, newest = self._tentative[entry.replica]
        before = closed if newest == number else (entry.base or 0)
        self._tentative[entry.replica] = (entry.closed, number)
        found = (
            log_state.tentative(entry.replica, b)
            for b in log_state.tentative_filled(entry.replica, before + 1, entry.closed)
        )
        return sum(part.rows for bucket in found if bucket is not None for part in bucket.parts)


class WatchThread(Watch):
    """A watch that follows its stream by itself, in real time."""

    def __init__(self, log: EventLog, pipeline: Pipeline, stream: str) -> None:
        super().__init__(log, pipeline, stream, lambda: time.monotonic() * 1000)
        self.error: BaseException | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch {stream}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Idempotent."""
        self._stopping.set()
        self._thread.join(10)
        super().close()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self.poll(_POLL_MS)
        except BaseException as error:  # noqa: BLE001 - raised by who looks after it
            self.error = error


Sums = Mapping[int, tuple[int, int]]
"""Bucket -> (rows, digest) of what a source wrote."""
Windows = Callable[[int, Sequence[tuple[int, int]]], Sum]
"""(bucket, [(bucket, rows)] of all sources) -> what the window that ends with the bucket must
hold.
"""


def check_answer(
    watch: Watch, sums: Sequence[Sums], windows: Windows | None = None
) -> tuple[int, int]:
    """(stable buckets compared, how many are wrong) of the last stage, against what the
    sources wrote. ``windows``: of a windowed stage.
    """
    wrong = 0
    for bucket in range(1, watch.upto + 1):
        found = watch.sums.get(bucket, Sum(0, 0))
        if windows is None:
            written = [s[bucket] for s in sums if bucket in s]
            expected = Sum(
                sum(rows for rows, _ in written), sum(digest for _, digest in written) % 2**64
            )
        elif bucket % 2:
            expected = Sum(0, 0)
        else:
            expected = windows(
                bucket, [(at, s[at][0]) for s in sums for at in (bucket - 1, bucket) if at in s]
            )
        wrong += found != expected
    return watch.upto, wrong
