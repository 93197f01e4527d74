"""Sink of a query: writes the blocks of a batch's results, then the boundary record; then Spark
commits.

Small results come to the driver as Arrow and are written from there; large ones are written by the
tasks, which send back the parts. Both go through ``foreachBatch``, so the choice is made batch by
batch, from an estimate, which a window with many groups may exceed by any factor. So a task sends
the driver a bounded number of rows. If a task has more, the batch runs again, as Spark runs a
failed task again, and then the tasks write.

A crash between any two steps leaves at most unused blocks: Spark runs the same plan again, and the
boundary record names the one that it continues (rules 3, 4, 9).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark import TaskContext

from anabranch.adapters.disk.spark_offsets import LoggedBatch
from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.spark.machines import machine_named
from anabranch.adapters.system.entropy import SystemEntropy
from anabranch.codec.batch_slices import slices
from anabranch.codec.blocks import EVENT_TIME
from anabranch.codec.part_lists import parts_from_json, parts_to_json
from anabranch.codec.plan_offsets import INITIAL, least_kept, position_of
from anabranch.ports import BatchDone, QueryDriver
from anabranch.protocol.errors import AnabranchError, StageFunctionError
from anabranch.protocol.limits import ROW_BYTES_WEIGHED
from anabranch.protocol.log.records import BoundaryKind, Part
from anabranch.protocol.stage.kept_rows import KEPT_ALL
from anabranch.protocol.stage.planner import QueryPosition, check_joint, check_open
from anabranch.streams.block_writer import BlockWriter, UnwrittenBlocks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from anabranch.ports import Clock

DRIVER_ROWS_MAX: Final = 20_000
"""Maximum number of results, as expected of a batch, that the driver writes. Of larger batches the
tasks write the results, since the driver would be the bottleneck.
"""

_RESULTS_TOO_LARGE: Final = "spark.driver.maxResultSize"
"""Text in Spark's error when the tasks together send the driver more bytes than
``session.DRIVER_RESULT_BYTES``.
"""

_NUMBER: Final = "anabranch_number_in_task"
"""Name of a temporary column with the number of a row in its task."""
_NUMBER_MASK: Final = (1 << 33) - 1
"""Bits of ``monotonically_increasing_id`` that count the rows of a task."""

_ROWS_REMEMBERED: Final = 1_000_000
"""Approximate number of last input rows over which a stage's results per row are averaged."""

_TASK_ROWS_MAX: Final = 200_000
"""Number of rows at which a task writes what it has gathered, or earlier at _TASK_BYTES_MAX. Bounds
the task's memory.
"""
_TASK_BYTES_MAX: Final = _TASK_ROWS_MAX * ROW_BYTES_WEIGHED


@dataclass(frozen=True, slots=True)
class OutputStream:
    """Destination of a stage's results and the properties that they must have. Sent to the
    tasks.
    """

    kafka: str
    topic: str
    replica: str
    epoch: int
    partitions: int
    width_ms: int
    function: str
    """Name of the user's function, for messages."""
    only: frozenset[int] | None = None
    """Buckets whose results are written, for a query that starts long before the wanted range; None
    for all.
    """
    is_written: bool = True
    """Whether blocks are written. If not, the parts have only row counts and digests."""


def to_rows(table: pa.Table) -> pa.Table:
    """Return ``table`` with ``event_time`` last, as int64 ms, rounded up so that no row falls into
    the bucket before its own.
    """
    event_time = table.column(EVENT_TIME).cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    whole = pc.divide(pc.add(event_time, 999), 1000)
    return table.drop_columns([EVENT_TIME]).append_column(
        pa.field(EVENT_TIME, pa.int64()), whole.cast(pa.int64())
    )


def slices_of(
    table: pa.Table, output: OutputStream, closed: int, task: int = 0
) -> list[tuple[int, int, pa.Table]]:
    """Split a result table into the (partition, bucket, rows) that are written. ``task``: number of
    the writing task.

    Raises:
        StageFunctionError: a row has no event time, or one in a bucket that is already closed.
    """
    if table.column(EVENT_TIME).null_count:
        message = f"{output.function}: a row of the result has no event_time"
        raise StageFunctionError(message)
    found = slices(to_rows(table), output.width_ms, output.partitions, task)
    if found:
        check_open(output.function, found[0][1], closed, output.width_ms)
    return [each for each in found if output.only is None or each[1] in output.only]


@lru_cache(maxsize=4)
def _task_writer(kafka: str, topic: str, replica: str, epoch: int) -> BlockWriter:
    """Return the writer of a task worker, which keeps it from batch to batch."""
    log = KafkaEventLog(kafka)
    log.open_ahead(1)  # connects while the task computes its rows
    return BlockWriter(log, topic, replica, epoch, SystemEntropy())


@dataclass(frozen=True, slots=True)
class TaskWrite:
    """Function that runs in a task: writes its rows and yields the parts, as text."""

    output: OutputStream
    closed: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows of one task and yield its parts."""
        with machine_named():
            parts = self._write_rows(batches)
        yield pa.RecordBatch.from_arrays(
            [pa.array([json.dumps(parts_to_json(tuple(parts)))])], names=["parts"]
        )

    def _write_rows(self, batches: Iterator[pa.RecordBatch]) -> list[Part]:
        """Write the rows of one task, in several tables if there are many, and return the parts."""
        out, context = self.output, TaskContext.get()
        task = 0 if context is None else context.partitionId()
        writer = (
            _task_writer(out.kafka, out.topic, out.replica, out.epoch)
            if out.is_written
            else UnwrittenBlocks()
        )
        gathered: list[pa.RecordBatch] = []
        rows = size_bytes = 0
        parts: list[Part] = []
        for batch in batches:
            gathered.append(batch)
            rows += batch.num_rows
            size_bytes += batch.nbytes
            if rows >= _TASK_ROWS_MAX or size_bytes >= _TASK_BYTES_MAX:
                table = pa.Table.from_batches(gathered)
                parts += writer.write(slices_of(table, out, self.closed, task))
                gathered = []
                rows = size_bytes = 0
        if rows:
            table = pa.Table.from_batches(gathered)
            parts += writer.write(slices_of(table, out, self.closed, task))
        return parts


_STOPPED: Final = (
    "java.lang.InterruptedException",
    "java.io.InterruptedIOException",
    "java.nio.channels.ClosedByInterruptException",
    "SPARK_JOB_CANCELLED",
)
"""Texts in Spark's error for a batch whose query is stopped. Which one depends on where the batch
is.
"""


class _StoppedError(Exception):
    """Error with Spark's own text for the end of a batch whose query is stopped, as short as
    possible.

    When a query is stopped, Spark searches the text that comes back from Python by a regular
    expression that uses a stack frame per character: the Java stack traces in the original text
    make it overflow.
    """

    def __init__(self) -> None:
        super().__init__(
            "py4j.protocol.Py4JJavaError: An error occurred while calling foreachBatch:"
            f" {_STOPPED[0]}"
        )


class MoreThanExpectedError(Exception):
    """Raised to end a query whose batch gave more rows than the driver takes."""

    def __init__(self) -> None:
        super().__init__(f"a batch gave more than {DRIVER_ROWS_MAX} rows: its tasks write them")


class _ExpectedEndFilter(logging.Filter):
    """Filter of Py4J's log, which logs every end of a batch as an error. A stop of its query is no
    error, and the service itself logs errors of this project.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to write ``record``."""
        kind = record.exc_info[0] if record.exc_info else None
        return kind is None or not issubclass(
            kind, (_StoppedError, MoreThanExpectedError, AnabranchError)
        )


logging.getLogger("py4j.clientserver").addFilter(_ExpectedEndFilter())


class ResultsExpected:
    """Estimate of the number of a batch's results, from the stage's previous batches: windows give
    few results for what they read.

    One object serves all queries of a process, so a successor knows what the branch knows. Threads
    may lose each other's updates, which an estimate can afford.
    """

    def __init__(self) -> None:
        self._read = self._made = 0
        self.exceeded = False
        """Whether a batch gave more than the driver takes although little was expected. Tasks write
        all later ones of the stage in this process, since such a batch runs twice.
        """

    def of(self, rows: int) -> float:
        """Return the expected number of results for ``rows`` of input."""
        return rows if self._read == 0 else rows * self._made / self._read

    def remember(self, rows: int, made: int) -> None:
        """Add a batch that read ``rows`` and gave results with the weight ``made``
        (``Part.weight``).
        """
        read, made = self._read + rows, self._made + made
        if read > _ROWS_REMEMBERED:
            read, made = read // 2, made // 2
        self._read, self._made = read, made


def bounded(frame: DataFrame, task_rows_max: int) -> pa.Table | None:
    """Return the rows of ``frame``, or None if a task has more than ``task_rows_max`` of them, or
    all tasks together have more bytes than Spark's driver takes.

    A task computes all its rows in either case, and saves its state; it sends one row more than the
    maximum.
    """
    number = f"monotonically_increasing_id() & {_NUMBER_MASK} AS {_NUMBER}"
    first = frame.selectExpr("*", number).where(f"{_NUMBER} <= {task_rows_max}")
    try:
        table = first.toArrow()
    except Py4JJavaError as error:
        if _RESULTS_TOO_LARGE in str(error):
            return None
        raise
    last = pc.max(table.column(_NUMBER)).as_py()
    if last is not None and last >= task_rows_max:
        return None
    return table.drop_columns([_NUMBER])


@dataclass(frozen=True, slots=True)
class SinkQuery:
    """Query whose batches a sink writes."""

    name: str
    driver: QueryDriver
    checkpoint: Path
    """Checkpoint directory of the query."""
    done: Callable[[BatchDone], None]
    """Function that is called after each batch."""
    check_state: Callable[[Path], None] = lambda _: None
    """Function that is called with the directory when the first batch has saved its state, before
    its results count.
    """
    rows_read: Callable[[], int | None] = lambda: None
    """Function that returns how many rows the running batch has read, called after a batch whose
    plan keeps a part of the rows; see ``ports.QueryDriver.finish``.
    """


class StageSink:
    """``foreachBatch`` function of one query."""

    def __init__(
        self,
        output: OutputStream,
        query: SinkQuery,
        blocks: BlockWriter | UnwrittenBlocks,
        clock: Clock,
        *,
        expected: ResultsExpected,
        crash_point: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._output = output
        self._query = query
        self._blocks = blocks
        self._clock = clock
        self._expected, self._crash_point = expected, crash_point
        self._reached: tuple[int, QueryPosition] | None = None
        self.failure: BaseException | None = None
        self.running: tuple[int, int] | None = None
        """(first bucket, last bucket) of the batch that is being run, for messages."""
        self.is_busy = False
        """Whether a batch runs, or the last one failed."""
        self._gave_too_many = False

    def runs_again(self) -> bool:
        """Return whether the query ended with a batch that gave more rows than the driver takes,
        and reset that. The query must then be started again in the same place: its tasks write the
        batch.
        """
        gave, self._gave_too_many = self._gave_too_many, False
        return gave

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Write the results of Spark's batch ``batch``."""
        self.is_busy = True
        try:
            self._write(frame, batch)
            self.is_busy = False
        except BaseException as error:
            self.failure = error  # Spark passes on only its text
            if isinstance(error, Py4JJavaError) and any(word in str(error) for word in _STOPPED):
                raise _StoppedError from None
            raise

    def _write(self, frame: DataFrame, batch: int) -> None:
        """Run batch ``batch``: write its blocks, then its boundary record."""
        begun = self._clock.monotonic_ms()
        logged = LoggedBatch(self._query.checkpoint, batch)
        start = self._query.driver.begin(
            self._query.name, logged.offsets, logged.watermark_ms, self._before(batch)
        )
        self.running = (start.before.bucket + 1, start.after.bucket)
        self._crash_point("processing.batch_logged")
        closed = start.before.bucket
        if self._expected.exceeded or self._expected.of(start.rows) > DRIVER_ROWS_MAX:
            parts = self._by_tasks(frame, closed)
        else:
            table = bounded(frame, DRIVER_ROWS_MAX)
            if table is None:
                # Not run again within this query, whose stores have committed the batch. Spark
                # uploads snapshots of a store in a thread of its own, and then cuts the store's
                # lineage, although the store may have gone back and built that version anew, of
                # which there is no snapshot. The stores of a new query have a lineage of their own.
                self._expected.exceeded = self._gave_too_many = True
                raise MoreThanExpectedError
            parts = self._blocks.write(slices_of(table, self._output, closed))
        if self._reached is None:
            self._query.check_state(self._query.checkpoint)
        rejected = sum(part.rows for part in parts if part.is_rejected)
        made = sum(part.rows for part in parts) - rejected
        self._expected.remember(start.rows, sum(part.weight for part in parts))
        self._crash_point("processing.blocks_written")
        # The record after the blocks that it names, and before Spark's commit: a crash in between
        # runs the same plan again, and its record continues the same one.
        rows_read = self._query.rows_read() if least_kept(logged.offsets) < KEPT_ALL else None
        self._query.driver.finish(self._query.name, batch, parts, rows_read)
        self._crash_point(
            "processing.boundary_appended"
            if start.kind is BoundaryKind.STABLE
            else "processing.tentative_appended"
        )
        self._reached = (batch, start.after)
        seconds = (self._clock.monotonic_ms() - begun) / 1000
        self._query.done(BatchDone(batch, start, made, seconds, rejected))

    def _before(self, batch: int) -> QueryPosition:
        """Return the position after the previous batch: the remembered one, else from Spark's own
        log.
        """
        if batch == 0:
            return position_of(INITIAL)
        if self._reached is not None and self._reached[0] == batch - 1:
            return self._reached[1]
        return check_joint(
            {
                str(i): position_of(o)
                for i, o in enumerate(LoggedBatch(self._query.checkpoint, batch - 1).offsets)
            }
        )

    def _by_tasks(self, frame: DataFrame, closed: int) -> tuple[Part, ...]:
        """Let the tasks write the rows of ``frame``, and return their parts."""
        found = (
            frame.mapInArrow(TaskWrite(self._output, closed), "parts string")
            .toArrow()
            .column("parts")
            .to_pylist()
        )
        return tuple(part for text in found for part in parts_from_json(json.loads(text)))
