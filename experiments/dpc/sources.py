"""Sources that write their streams themselves, bucket by bucket on a schedule, and can be withheld
and healed.

As in the published experiments only the *boundaries* of a source are withheld by default while its
tuples keep coming, so that the number of tentative results does not depend on how much input a
failure swallows; ``Withhold.DATA`` holds everything back, as a cut network does.
"""

from __future__ import annotations

import threading
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.system.clock import SystemClock
from anabranch.adapters.system.entropy import SystemEntropy
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.records import BoundaryRecord, EpochStarted
from anabranch.streams.block_writer import BlockWriter
from anabranch.streams.boundary_writer import BoundaryWriter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anabranch.pipeline.model import Pipeline

KEYS: Final = 20
_DIGEST_MASK: Final = 2**64 - 1
_BUCKETS_PER_APPEND: Final = 50


class Withhold(StrEnum):
    """Input that a failure withholds."""

    BOUNDARY = "boundary"
    DATA = "data"


class Schedule:
    """When each bucket is due: its end. Bucket numbers begin with 1."""

    def __init__(self, width_ms: int, begin_s: float, first: int = 1) -> None:
        """``begin_s``: when the bucket ``first`` begins, by ``time.monotonic``."""
        self._width_ms = width_ms
        self._begin_ms = begin_s * 1000
        self._first = first

    def due_ms(self, bucket: int) -> float:
        """Return when ``bucket`` is due, by ``time.monotonic``."""
        return self._begin_ms + (bucket - self._first + 1) * self._width_ms

    def reached(self, now_ms: float) -> int:
        """Return the last bucket that is due."""
        return self._first - 1 + max(0, int((now_ms - self._begin_ms) // self._width_ms))


class Source:
    """One source's stream. One thread may use it at a time."""

    def __init__(self, kafka: str, pipeline: Pipeline, name: str) -> None:
        log, names = KafkaEventLog(kafka), pipeline.topic_names
        self.name = name
        self._width = pipeline.bucket_ms
        self._partitions = pipeline.partitions
        self._boundary = BoundaryWriter(
            log,
            names.boundaries(name),
            ["0"],
            EpochStarted("0", "benchmark", SystemEntropy().token()),
            SystemClock(),
        )
        self._epoch = self._boundary.start()
        self._blocks = BlockWriter(log, names.blocks(name, "0"), "0", self._epoch, SystemEntropy())
        self._batch = 0
        self.sums: dict[int, tuple[int, int]] = {}
        """Bucket -> (rows, digest) of what was written of it."""

    def append(self, first: int, last: int, rows: int, closed: int) -> None:
        """Write ``rows`` tuples of each bucket of ``first..last``; everything up to
        ``closed`` is closed.
        """
        slices: list[tuple[int, int, pa.Table]] = []
        ends = [(p + 1) * rows // self._partitions for p in range(self._partitions)]
        for bucket in range(first, last + 1):
            table, begin = tuples(bucket, rows, self._width), 0
            for partition, end in enumerate(ends):
                slices.append((partition, bucket, table.slice(begin, end - begin)))
                begin = end
        self._batch += 1
        ident = BatchId(f"{self._epoch:012d}-000000", self._batch)
        parts = self._blocks.write(slices) if slices else ()
        for part in parts:
            count, digest = self.sums.get(part.bucket, (0, 0))
            self.sums[part.bucket] = (count + part.rows, (digest + part.digest) & _DIGEST_MASK)
        self._boundary.append(
            BoundaryRecord("0", self._epoch, ident, self._boundary.tip(), closed, parts)
        )
        self._boundary.log_state.forget(self._boundary.log_state.upto)

    def close(self) -> None:
        """Idempotent."""
        self._blocks.close()
        self._boundary.close()


def tuples(bucket: int, rows: int, width_ms: int) -> pa.Table:
    """Return the tuples of a bucket: times spread over it except its upper bound, which would be in
    the next window; keys in turn.
    """
    number = np.arange(rows, dtype=np.int64)
    event_time = (bucket - 1) * width_ms + 1 + number * (width_ms - 1) // max(rows, 1)
    return pa.table(
        {
            "key": number % KEYS,
            "value": number + bucket,
            "time": event_time,
            "event_time": event_time,
        }
    )


def window_of(bucket: int, counts: Sequence[tuple[int, int]], width_ms: int) -> pa.Table:
    """Return what ``windowed`` must compute for the window that ends with ``bucket``. ``counts``:
    (bucket, number of tuples) that sources wrote in it.
    """
    total, number = np.zeros(KEYS, np.int64), np.zeros(KEYS, np.int64)
    for at, rows in counts:
        written = tuples(at, rows, width_ms)
        keys = written.column("key").to_numpy()
        total += np.bincount(keys, written.column("value").to_numpy(), minlength=KEYS).astype(
            np.int64
        )
        number += np.bincount(keys, minlength=KEYS)
    key = np.flatnonzero(number)
    return pa.table(
        {
            "key": key,
            "value": total[key],
            "time": number[key],
            "event_time": np.full(len(key), bucket * width_ms, np.int64),
        }
    )


class LiveSource:
    """Writes one bucket of a source whenever one is due, from ``first`` on."""

    def __init__(
        self, source: Source, schedule: Schedule, rows: int, first: int, withhold: Withhold
    ) -> None:
        self._source = source
        self._schedule = schedule
        self._rows = rows
        self._withhold = withhold
        self.first = first
        self._changed = threading.Condition()
        self._stopping, self._is_cut = False, False
        self._written = self.closed = first - 1
        self.lag_ms = 0.0
        """The longest time from a bucket's due time to its record."""
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"source {source.name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def cut(self) -> int:
        """Withhold from now on. Returns the first bucket that is not closed."""
        with self._changed:
            self._is_cut = True
            return self.closed + 1

    def heal(self) -> None:
        """Send at once what was withheld."""
        with self._changed:
            self._is_cut = False
            self._changed.notify_all()

    def stop(self) -> None:
        """Idempotent; the source is closed."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join(30)
        self._source.close()

    def _run(self) -> None:
        try:
            while self._wait():
                self._write()
        except BaseException as error:  # noqa: BLE001 - raised by who looks after it
            self.error = error

    def _wait(self) -> bool:
        """Until a bucket is due, or the failure is over; False: stop."""
        with self._changed:
            healed = self._is_cut
            while not self._stopping:
                now_ms = time.monotonic() * 1000
                if self._schedule.reached(now_ms) > self._written or (healed and not self._is_cut):
                    return True
                self._changed.wait(
                    max(0.001, (self._schedule.due_ms(self._written + 1) - now_ms) / 1000)
                )
            return False

    def _write(self) -> None:
        with self._changed:
            is_cut = self._is_cut
            due = self._schedule.reached(time.monotonic() * 1000)
            if is_cut and self._withhold is Withhold.DATA:
                self._changed.wait(0.01)
                return
            last = min(due, self._written + _BUCKETS_PER_APPEND)
            first, closed = self._written + 1, self.closed if is_cut else last
            # Taken under the lock, so that ``cut`` returns what this append leaves open.
            self._written, self.closed = last, closed
        self._source.append(first, last, self._rows, closed)
        if not is_cut and last - first < 1:
            self.lag_ms = max(self.lag_ms, time.monotonic() * 1000 - self._schedule.due_ms(first))
