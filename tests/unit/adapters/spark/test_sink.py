"""Tests of the sink around a batch: blocks, then the record, then Spark may commit. Frames are
stand-ins for Spark's.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark import TaskContext

from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.adapters.spark import sink as module
from anabranch.adapters.spark.sink import (
    DRIVER_ROWS_MAX,
    MoreThanExpectedError,
    OutputStream,
    ResultsExpected,
    SinkQuery,
    StageSink,
    TaskWrite,
    slices_of,
    to_rows,
)
from anabranch.adapters.spark.source import PlannedReader, TaskInput
from anabranch.codec.catalog import TopicSettings
from anabranch.codec.part_lists import parts_from_json
from anabranch.codec.plan_offsets import INITIAL, Offset, offset_of, position_of
from anabranch.ports import BatchDone
from anabranch.protocol.errors import ConfigurationError, Fenced, StageFunctionError
from anabranch.protocol.log.records import BoundaryKind, Part
from anabranch.protocol.stage.planned_batch import PlannedBatch
from anabranch.protocol.stage.planner import Plan, QueryPosition
from anabranch.streams.block_reader import BlockReader
from anabranch.streams.block_writer import BlockWriter
from harness.spark_options import options

W = 100
OUT = OutputStream(
    kafka="k", topic="p.s.blocks.0", replica="0", epoch=3, partitions=2, width_ms=W, function="m:f"
)


def result(*event_times_us: int | None) -> pa.Table:
    """Rows as Spark gives them: event time is a timestamp, wherever the column stands."""
    return pa.table(
        {
            "event_time": pa.array(event_times_us, pa.timestamp("us", tz="UTC")),
            "n": pa.array(range(len(event_times_us)), pa.int64()),
        }
    )


@dataclass
class Frame:
    """Spark's result, in so many tasks."""

    tasks: list[pa.Table]
    driver_rows_max: int = 1 << 40
    """Number of rows above which Spark's driver rejects the result."""

    def selectExpr(self, everything: str, number: str) -> Frame:  # noqa: N802 - Spark's name
        assert everything == "*"
        name = number.rpartition(" AS ")[2]
        tasks = [t.append_column(name, pa.array(range(t.num_rows), pa.int64())) for t in self.tasks]
        return replace(self, tasks=tasks)

    def where(self, condition: str) -> Frame:
        name, last = condition.split(" <= ")
        assert all(task.column_names[-1] == name for task in self.tasks)
        return replace(self, tasks=[task.slice(0, int(last) + 1) for task in self.tasks])

    def toArrow(self) -> pa.Table:  # noqa: N802 - Spark's name
        found = pa.concat_tables(self.tasks)
        if found.num_rows > self.driver_rows_max:
            raise TooMuchForTheDriverError
        return found

    def mapInArrow(  # noqa: N802
        self, function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: str
    ) -> Frame:
        assert schema == "parts string"
        return Frame(
            [pa.Table.from_batches(list(function(iter(task.to_batches())))) for task in self.tasks]
        )


class TooMuchForTheDriverError(Py4JJavaError):  # type: ignore[misc]  # without types
    """Stand-in for PySpark's error in that case, without Java."""

    def __init__(self) -> None:
        Exception.__init__(self)

    def __str__(self) -> str:
        return (
            "org.apache.spark.SparkException: Job aborted due to stage failure: Total size of"
            " serialized results of 1 tasks (7.8 MiB) is bigger than spark.driver.maxResultSize"
            " (1024.0 KiB)"
        )


@dataclass
class _Context:
    """Stand-in for the context of a Spark task."""

    number: int

    def partitionId(self) -> int:  # noqa: N802 - Spark's name
        return self.number


class Driver:
    """Notes what it is told; ``rows`` is what batches are said to read."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.rows = 5
        self.kind = BoundaryKind.STABLE
        self.parts: tuple[Part, ...] = ()
        self.befores: list[QueryPosition] = []
        self.watermarks: list[int] = []
        self.error: Exception | None = None

    def advance(self, query: str, name: str, start: Offset, source: int = 0) -> Offset | None:
        raise AssertionError("a sink asks for no plan")

    def begin(
        self, query: str, offsets: list[Offset], watermark_ms: int, before: QueryPosition
    ) -> PlannedBatch:
        self.calls.append(f"begin {query}")
        self.befores.append(before)
        self.watermarks.append(watermark_ms)
        return PlannedBatch(self.kind, before, position_of(offsets[0]), self.rows, ())

    def finish(
        self, query: str, batch: int, parts: tuple[Part, ...], rows_read: int | None = None
    ) -> bool:
        self.calls.append(f"finish {query} {batch}")
        if self.error is not None:
            raise self.error
        self.parts, self.read = parts, rows_read
        return True


class Bench:
    def __init__(self, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.checkpoint = checkpoint
        self.driver = Driver()
        self.done = list[BatchDone]()
        (checkpoint / "offsets").mkdir()
        self.clock = VirtualClock()
        self.log = LocalEventLog(self.clock)
        self.log.admin().create([TopicSettings(OUT.topic, OUT.partitions)])
        self.blocks = BlockWriter(self.log, OUT.topic, "0", 3, SeededEntropy(1))
        self.expected = ResultsExpected()
        self.by_tasks = 0
        self.is_shared = True

        def task_writer(kafka: str, topic: str, replica: str, epoch: int) -> BlockWriter:
            assert (kafka, topic, replica, epoch) == (OUT.kafka, OUT.topic, OUT.replica, OUT.epoch)
            self.by_tasks += 1
            return BlockWriter(self.log, topic, replica, epoch, SeededEntropy(100 + self.by_tasks))

        monkeypatch.setattr(module, "_task_writer", task_writer)
        self.sink = self.make()

    def make(self) -> StageSink:
        return StageSink(
            OUT,
            SinkQuery(
                "timeline",
                self.driver,
                self.checkpoint,
                self.done.append,
                self.check_state,
                lambda: 7,
            ),
            self.blocks,
            self.clock,
            expected=self.expected,
            crash_point=self.driver.calls.append,
        )

    def check_state(self, checkpoint: Path) -> None:
        assert checkpoint == self.checkpoint
        self.driver.calls.append("check state")
        if not self.is_shared:
            raise ConfigurationError("state is elsewhere")

    def logged(self, batch: int, bucket: int, watermark_ms: int = 0, **more: int) -> None:
        offset = json.dumps(INITIAL | {"sequence": batch + 1, "bucket": bucket} | more)
        lines = ["v1", json.dumps({"batchWatermarkMs": watermark_ms}), offset, offset]
        (self.checkpoint / "offsets" / str(batch)).write_text("\n".join(lines))

    def run(self, batch: int, *tasks: pa.Table, driver_rows_max: int = 1 << 40) -> None:
        """Run the batch, in a query that is started anew where the sink asks for that."""
        frame: Any = Frame(list(tasks), driver_rows_max)
        try:
            self.sink(frame, batch)
        except MoreThanExpectedError:
            finished = f"finish timeline {batch}"
            assert finished not in self.driver.calls
            assert self.sink.runs_again()
            self.sink(frame, batch)
        assert not self.sink.runs_again()

    def rows(self) -> dict[int, int]:
        """Return the rows of the last batch's parts, by bucket."""
        reader = BlockReader(self.log, lambda _: OUT.topic, self.clock)
        tables = reader.read_parts("0", self.driver.parts)
        found: dict[int, int] = {}
        for part, table in zip(self.driver.parts, tables, strict=True):
            assert {
                -(-event_time // W) for event_time in table.column("event_time").to_pylist()
            } == {part.bucket}
            found[part.bucket] = found.get(part.bucket, 0) + table.num_rows
        reader.close()
        return found


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


class TestBatch:
    def test_blocks_first_then_the_record(self, bench: Bench) -> None:
        bench.logged(0, 5)
        bench.run(0, result(150_000, 160_000, 450_000))
        assert bench.driver.calls == [
            "begin timeline",
            "processing.batch_logged",
            "check state",
            "processing.blocks_written",
            "finish timeline 0",
            "processing.boundary_appended",
        ]
        assert bench.rows() == {2: 2, 5: 1}
        (done,) = bench.done
        assert (done.batch, done.rows_out, done.start.after.bucket) == (0, 3, 5)
        assert bench.sink.running == (1, 5)

    def test_nothing_counts_whose_state_is_elsewhere(self, bench: Bench) -> None:
        bench.is_shared = False
        bench.logged(0, 5)
        with pytest.raises(ConfigurationError):
            bench.run(0, result(150_000))
        assert not any("finish" in call for call in bench.driver.calls)
        bench.is_shared = True
        for batch in (0, 1, 2):
            bench.logged(batch, 5 + batch)
            bench.run(batch, result())
        assert bench.driver.calls.count("check state") == 2, "until it was well"

    def test_a_tentative_batch_has_a_point_of_its_own(self, bench: Bench) -> None:
        bench.driver.kind = BoundaryKind.TENTATIVE
        bench.logged(0, 5)
        bench.run(0, result(150_000))
        assert bench.driver.calls[-1] == "processing.tentative_appended"

    def test_what_a_batch_has_read_is_asked_where_its_plan_keeps_a_part(self, bench: Bench) -> None:
        bench.logged(0, 5)
        bench.run(0, result())
        assert bench.driver.read is None
        bench.logged(1, 6, kept=400)
        bench.run(1, result())
        assert bench.driver.read == 7

    def test_the_watermark_is_the_logged_one(self, bench: Bench) -> None:
        bench.logged(0, 5, 700)
        bench.run(0, result())
        assert bench.driver.watermarks == [700]
        assert bench.driver.parts == ()

    def test_the_position_before_is_remembered_or_read_from_sparks_log(self, bench: Bench) -> None:
        """The very first has none; after a restart the file of the batch before says it."""
        for batch, bucket in enumerate((5, 9)):
            bench.logged(batch, bucket)
            bench.run(batch, result())
        bench.sink = bench.make()
        bench.logged(2, 12)
        bench.run(2, result())
        bench.run(2, result())
        assert [position.bucket for position in bench.driver.befores] == [0, 5, 9, 9], (
            "run again, it begins where it began"
        )

    def test_large_results_are_written_by_the_tasks(self, bench: Bench) -> None:
        bench.logged(0, 5)
        bench.driver.rows = DRIVER_ROWS_MAX + 1
        bench.run(0, result(150_000, 450_000), result(160_000), result())
        assert bench.by_tasks == 3
        assert bench.rows() == {2: 2, 5: 1}

    def test_results_that_were_few_for_their_rows_are_expected_to_stay_few(
        self, bench: Bench
    ) -> None:
        """Windows give 10 results for 1 000 rows, so 20 000 for 2 million."""
        by_tasks = []
        for batch, rows in enumerate((1_000, 0, 100 * DRIVER_ROWS_MAX, 101 * DRIVER_ROWS_MAX)):
            bench.driver.rows = rows
            bench.logged(batch, 5 + batch)
            bench.run(
                batch,
                pa.concat_tables([result(850_000 + batch * 100_000)] * (rows // 100))
                if rows
                else result(),
            )
            by_tasks.append(bench.by_tasks)
        assert by_tasks == [0, 0, 0, 1]

    def test_a_task_sends_the_driver_no_more_than_its_bound(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Little is read when a window ends, and little was expected; it has many groups."""
        monkeypatch.setattr(module, "DRIVER_ROWS_MAX", 10)
        by_tasks, bench.driver.rows = [], 1
        for batch, rows in enumerate((10, 11, 10, 0)):
            bench.logged(batch, 5 + batch)
            bench.run(batch, result(*[850_000 + batch * 100_000] * rows), result())
            by_tasks.append(bench.by_tasks)
            assert sum(bench.rows().values()) == rows, "all of them, once"
        assert by_tasks == [0, 2, 4, 6], "and it may be as many again"
        bench.sink = bench.make()
        bench.logged(4, 12)
        bench.run(4, result(1_250_000), result())
        assert bench.by_tasks == 8, "a successor knows that, too"

    def test_tasks_write_what_has_more_bytes_than_the_driver_takes(self, bench: Bench) -> None:
        bench.logged(0, 5)
        bench.run(0, result(450_000, 460_000), driver_rows_max=1)
        assert bench.rows() == {5: 2}
        assert bench.by_tasks == 1

    def test_a_successor_knows_what_to_expect_from_the_query_before(self, bench: Bench) -> None:
        bench.driver.rows = 1_000
        bench.logged(0, 5)
        bench.run(0, result(450_000))
        bench.sink = bench.make()
        bench.driver.rows = DRIVER_ROWS_MAX + 1
        bench.run(0, result(450_000))
        assert bench.by_tasks == 0

    def test_tasks_write_wide_results_however_few(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "DRIVER_ROWS_MAX", 1_000)
        wide = result(150_000).append_column("text", pa.array(["x" * 10_000_000]))
        for batch in range(2):
            bench.logged(batch, 5 + batch)
            bench.run(batch, wide if batch == 0 else result(650_000))
        assert bench.by_tasks == 1, "not the first, of which nothing was known"

    def test_what_a_stage_gives_now_counts_more_than_what_it_gave_long_ago(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A filter that let nothing pass for a long time and then everything is noticed
        within few batches.
        """
        monkeypatch.setattr(module, "DRIVER_ROWS_MAX", 100)
        monkeypatch.setattr(module, "_ROWS_REMEMBERED", 1_000)
        bench.driver.rows = 400
        for batch in range(32):
            bench.logged(batch, 5 + batch)
            bench.run(
                batch,
                pa.concat_tables([result(850_000 + batch * 100_000)] * 400)
                if batch >= 30
                else result(),
            )
        assert bench.by_tasks == 3, "the first, of which nothing was known, and both that gave much"

    @pytest.mark.parametrize(("bound", "value"), [("_TASK_ROWS_MAX", 2), ("_TASK_BYTES_MAX", 20)])
    def test_a_task_with_much_to_write_writes_in_several_attempts(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch, bound: str, value: int
    ) -> None:
        monkeypatch.setattr(module, bound, value)
        frame: Any = Frame([pa.concat_tables([result(150_000), result(150_000), result(450_000)])])
        written = (
            frame.mapInArrow(TaskWrite(OUT, 0), "parts string")
            .toArrow()
            .column("parts")
            .to_pylist()
        )
        parts = parts_from_json(json.loads(written[0]))
        assert len({part.attempt for part in parts}) == 2
        assert [(part.bucket, part.rows) for part in parts] == [(2, 2), (5, 1)]

    def test_only_what_is_wanted_is_written_by_driver_and_tasks_alike(self, bench: Bench) -> None:
        """A query that makes buckets again begins long before them."""
        del bench  # its log is what the task writes to
        only = replace(OUT, only=frozenset({3}))
        assert [
            bucket for _, bucket, _ in slices_of(result(150_000, 250_000, 460_000), only, 1)
        ] == [3]
        frame: Any = Frame([result(150_000, 250_000, 460_000)])
        written = (
            frame.mapInArrow(TaskWrite(only, 0), "parts string")
            .toArrow()
            .column("parts")
            .to_pylist()
        )
        assert [bucket for bucket, *_ in json.loads(written[0])[1:]] == [3]

    @pytest.mark.parametrize("event_time", [100_000, 99_999, None])
    def test_what_ends_a_batch_is_kept(self, bench: Bench, event_time: int | None) -> None:
        """Spark passes on the text only."""
        bench.logged(0, 1)
        bench.run(0, result())
        bench.logged(1, 5)
        with pytest.raises(StageFunctionError, match="m:f"):
            bench.run(1, result(event_time))
        assert isinstance(bench.sink.failure, StageFunctionError)
        assert bench.driver.calls[-1] == "processing.batch_logged", "nothing was said in the log"

    def test_a_rejected_record_ends_the_batch(self, bench: Bench) -> None:
        bench.driver.error = Fenced("a newer process")
        bench.logged(0, 5)
        with pytest.raises(Fenced):
            bench.run(0, result(150_000))
        assert bench.sink.failure is bench.driver.error
        assert bench.done == []

    @pytest.mark.parametrize(
        ("error", "is_logged"), [(Fenced("a newer process"), False), (KeyError("x"), True)]
    )
    def test_py4j_does_not_tell_what_the_service_tells_itself(
        self, error: Exception, is_logged: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        try:
            raise error
        except (Fenced, KeyError):
            logging.getLogger("py4j.clientserver").exception("as Py4J does it")
        assert [record.exc_info and record.exc_info[1] for record in caplog.records] == (
            [error] if is_logged else []
        )


class TestRows:
    def test_event_time_is_rounded_up_so_that_no_row_falls_into_a_bucket_before_its_own(
        self,
    ) -> None:
        table = to_rows(result(100_000, 100_001, 100_999, 101_000))
        assert table.column_names == ["n", "event_time"]
        assert table.column("event_time").to_pylist() == [100, 101, 101, 101]

    def test_slices_are_spread_over_the_partitions_by_bucket(self) -> None:
        slices = slices_of(result(150_000, 250_000, 260_000), OUT, 1)
        assert [(partition, bucket, rows.num_rows) for partition, bucket, rows in slices] == [
            (0, 2, 1),
            (1, 3, 2),
        ]

    def test_a_large_bucket_is_spread_so_that_the_next_stage_reads_it_in_parallel(self) -> None:
        """All windows of a time are one bucket."""
        slices = slices_of(result(*[150_000] * 100_000), OUT, 1)
        parts = [Part(n, p, "0" * 16, 1, 0, 1, t.num_rows, 0) for p, n, t in slices]
        plan = Plan(
            QueryPosition(0, 1), QueryPosition(1, 2), (("a", ((2, "0", tuple(parts)),)),), 0
        )
        splits = PlannedReader(options()).partitions(INITIAL, offset_of(plan, "a"))
        rows = [
            sum(part.rows for _, _, each in split.taken for part in each)
            for split in splits
            if isinstance(split, TaskInput)
        ]
        assert rows == [50_000, 50_000]

    def test_tasks_begin_at_different_partitions(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The little that each has of a bucket would be in one partition."""
        del bench  # its log is what the tasks write to
        partitions = []
        for task in range(3):
            monkeypatch.setattr(TaskContext, "get", lambda task=task: _Context(task))
            frame: Any = Frame([result(150_000)])
            written = frame.mapInArrow(TaskWrite(OUT, 0), "parts string").toArrow()
            (part,) = parts_from_json(json.loads(written.column("parts")[0].as_py()))
            partitions.append(part.partition)
        assert partitions == [0, 1, 0]

    def test_an_old_row_is_rejected_by_its_bucket_and_its_values_stay_private(self) -> None:
        with pytest.raises(
            StageFunctionError,
            match=r"bucket 1 \(event_time up to 100\), but buckets up to 1 are closed",
        ) as rejected:
            slices_of(result(100_000), OUT, 1)
        assert "'n'" not in str(rejected.value)

    def test_a_row_without_event_time_is_rejected(self) -> None:
        with pytest.raises(StageFunctionError, match="no event_time"):
            slices_of(result(250_000, None), OUT, 1)
