"""The readers that Spark asks: plans from the stage's process, splits."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.serializers import (
    CloudPickleSerializer,
    SpecialLengths,
    UTF8Deserializer,
    read_int,
    write_int,
    write_with_length,
)
from pyspark.sql.streaming import python_streaming_source_runner

from anabranch.adapters.spark.plan_socket import PlanServer
from anabranch.adapters.spark.source import (
    FORMAT,
    AnabranchSource,
    PlannedReader,
    TaskInput,
)
from anabranch.adapters.spark.source_options import SourceOptions
from anabranch.adapters.system.scratch import Scratch
from anabranch.codec.plan_offsets import INITIAL, Offset, offset_of, position_fields
from anabranch.protocol.log.records import Part
from anabranch.protocol.stage.kept_rows import KEPT_ALL
from anabranch.protocol.stage.planner import Plan, QueryPosition
from harness.spark_options import options


def taken(partition: int, rows: int, bucket: int = 2) -> Part:
    return Part(bucket, partition, f"{bucket:016x}", 1, 0, 1, rows, 0)


def offset(*parts: Part, replica: str = "0", bucket: int = 5, sequence: int = 1) -> Offset:
    plan = Plan(
        QueryPosition(sequence - 1, 0),
        QueryPosition(sequence, bucket),
        (("a", ((2, replica, parts),) if parts else ()),),
        0,
    )
    return offset_of(plan, "a")


def splits(reader: PlannedReader, end: Offset) -> list[TaskInput]:
    found = list(reader.partitions(INITIAL, end))
    assert all(isinstance(split, TaskInput) for split in found)
    return found


def test_options_come_back_from_their_text() -> None:
    for given in (options(), options(kept_by=("n",)), options(kept_by=None)):
        assert SourceOptions.from_json(given.to_json()) == given


def test_the_source_as_spark_finds_it() -> None:
    source = AnabranchSource({"config": options().to_json()})
    assert (source.name(), source.schema().names) == (FORMAT, ["n", "text", "event_time"])
    assert isinstance(source.streamReader(source.schema()), PlannedReader)


def test_planning_imports_no_client_of_kafka() -> None:
    """One such process is started for every input of every query, also for a successor, whose
    start is waited for.
    """
    program = (
        "import sys, anabranch.adapters.spark.source; print([name for name in sys.modules if name"
        " in ('confluent_kafka', 'pydantic')])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        ).stdout
        == "[]\n"
    )


class TestOffsets:
    def test_a_question_names_the_query_and_the_input(self, tmp_path: Path) -> None:
        """A replica may run two queries."""
        questions: list[tuple[str, str, Offset]] = []
        answers: list[Offset | None] = [offset(taken(0, 1)), None]

        def answer(query: str, name: str, start: Offset, _: object) -> Offset | None:
            questions.append((query, name, start))
            return answers.pop(0)

        scratch = Scratch(tmp_path)
        server = PlanServer(answer, lambda _: lambda _: None, scratch.socket_path("plans"))
        try:
            reader = PlannedReader(options(socket=server.path))
            start = reader.initialOffset()
            assert start == INITIAL
            first = reader.latestOffset(start, None)
            assert first == offset(taken(0, 1))
            assert reader.latestOffset(first, None) == first, "nothing yet"
        finally:
            server.close()
            scratch.close()
        assert questions == [
            ("000000000007-000001", "a", position_fields(INITIAL)),
            ("000000000007-000001", "a", position_fields(first)),
        ]

    def test_each_query_starts_with_an_offset_of_its_own(self) -> None:
        reader = PlannedReader(options())
        reader.initialOffset()["bucket"] = 9
        assert reader.initialOffset() == INITIAL

    def test_an_offset_again_is_no_work(self) -> None:
        assert splits(PlannedReader(options()), dict(INITIAL)) == []


class TestSplits:
    def test_a_small_plan_is_one_task(self) -> None:
        (split,) = splits(PlannedReader(options()), offset(taken(0, 1), taken(1, 1)))
        assert split.taken == [("a", "0", (taken(0, 1), taken(1, 1)))]

    def test_an_empty_plan_is_one_task_without_anything(self) -> None:
        (split,) = splits(PlannedReader(options()), offset())
        assert split.taken == []

    def test_a_large_plan_is_split_by_partition(self) -> None:
        parts = [taken(partition, 50_000) for partition in range(5)]
        first, second = splits(PlannedReader(options()), offset(*parts))
        assert (first.taken, second.taken) == (
            [("a", "0", tuple(parts[0::2]))],
            [("a", "0", tuple(parts[1::2]))],
        )

    def test_a_shard_counts_the_rows_that_it_takes(self) -> None:
        """A task for few rows costs more than they do."""
        plan = offset(*[taken(partition, 15_000) for partition in range(4)])
        for changes, count in (
            ({}, 2),
            ({"share_by": ("n",), "share_bits": "1"}, 1),
            ({"share_by": (), "share_bits": "1"}, 2),
        ):
            assert len(splits(PlannedReader(options(**changes)), plan)) == count

    def test_tasks_share_the_rows_and_not_the_partitions(self) -> None:
        parts = [taken(partition, rows) for partition, rows in enumerate([90_000, 1, 90_000, 1])]
        found = splits(PlannedReader(options()), offset(*parts))
        rows = [sum(part.rows for _, _, each in split.taken for part in each) for split in found]
        assert rows == [90_001, 90_001]

    def test_a_partition_is_read_by_one_task(self) -> None:
        """Another would fetch, and throw away, what lies between its blocks."""
        parts = [taken(p, 30_000, bucket) for bucket in (2, 3) for p in (0, 1)]
        for split in splits(PlannedReader(options()), offset(*parts)):
            assert split.kept == KEPT_ALL
            assert len({part.partition for _, _, each in split.taken for part in each}) == 1

    def test_partitions_of_one_number_of_two_streams_are_two(self) -> None:
        plan = Plan(
            QueryPosition(0, 0),
            QueryPosition(1, 5),
            tuple((f"a.{i}", ((2, "0", (taken(0, 50_000),)),)) for i in range(2)),
            0,
        )
        first, second = splits(PlannedReader(options()), offset_of(plan, "a"))
        assert (first.taken, second.taken) == (
            [("a.0", "0", (taken(0, 50_000),))],
            [("a.1", "0", (taken(0, 50_000),))],
        )

    def test_each_task_keeps_the_share_of_rows_that_the_plan_names(self) -> None:
        parts = [taken(partition, 50_000) for partition in range(5)]
        found = splits(PlannedReader(options()), offset(*parts) | {"kept": 300})
        assert [split.kept for split in found] == [300, 300]
        by_function = PlannedReader(options(kept_function="stages:matters"))
        (alone,) = splits(by_function, offset(*parts) | {"kept": 300})
        assert (alone.kept, len(alone.taken[0][2])) == (300, 5), "it must see all rows of a bucket"
        assert len(splits(by_function, offset(*parts))) == 2

    def test_where_order_counts_there_is_one_task(self) -> None:
        assert (
            len(
                splits(
                    PlannedReader(options(ordered=True)),
                    offset(*[taken(p, 50_000) for p in range(5)]),
                )
            )
            == 1
        )


def test_a_commit_says_nothing() -> None:
    PlannedReader(options()).commit(dict(INITIAL))


class Runner:
    """The program that Spark starts for every input of every query, asked as Spark asks."""

    def __init__(self, folder: Path, config: SourceOptions) -> None:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.settimeout(60)
        listener.bind(str(folder / "spark"))
        listener.listen()
        self._process = subprocess.Popen(
            [sys.executable, "-m", python_streaming_source_runner.__name__],
            env=os.environ | {"PYTHON_WORKER_FACTORY_SOCK_PATH": str(folder / "spark")},
            stderr=subprocess.PIPE,
            text=True,
        )
        with listener:
            self._connection, _ = listener.accept()
        self._file = self._connection.makefile("rwb")
        assert read_int(self._file) == self._process.pid
        source = AnabranchSource({"config": config.to_json()})
        for text in (f"{sys.version_info.major}.{sys.version_info.minor}", str(folder)):
            write_with_length(text.encode(), self._file)
        write_int(0, self._file)  # no files to include
        write_with_length(CloudPickleSerializer().dumps(source), self._file)
        write_with_length(source.schema().json().encode(), self._file)
        write_int(1_000, self._file)  # rows in a batch
        self._file.flush()
        assert read_int(self._file) == 0

    def ask_for_latest_offset(self) -> None:
        write_int(
            python_streaming_source_runner.LATEST_OFFSET_ADMISSION_CONTROL_FUNC_ID, self._file
        )
        write_with_length(json.dumps(INITIAL).encode(), self._file)
        write_with_length(json.dumps({"_type": "ReadAllAvailable"}).encode(), self._file)
        self._file.flush()

    def error(self) -> str:
        assert read_int(self._file) == SpecialLengths.PYTHON_EXCEPTION_THROWN
        return str(UTF8Deserializer().loads(self._file))

    def last_words(self) -> str:
        self._file.close()
        self._connection.close()
        return self._process.communicate(timeout=60)[1]


class TestEnd:
    def test_spark_ends_a_query(self, tmp_path: Path) -> None:
        assert Runner(tmp_path, options()).last_words() == ""

    def test_spark_ends_a_query_that_is_asking(self, tmp_path: Path) -> None:
        server = PlanServer(lambda *_: None, lambda _: lambda _: None, str(tmp_path / "plans"))
        runner = Runner(tmp_path, options(socket=server.path))
        runner.ask_for_latest_offset()
        assert runner.last_words() == ""
        server.close()

    def test_an_error_of_a_reader_reaches_spark(self, tmp_path: Path) -> None:
        runner = Runner(tmp_path, options(socket=str(tmp_path / "nobody")))
        runner.ask_for_latest_offset()
        assert "FileNotFoundError" in runner.error()
        assert runner.last_words() == ""

    def test_an_error_that_cannot_reach_spark_is_reported_all_the_same(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
        PlannedReader(options()).stop()
        for error in (EOFError(), BrokenPipeError(), ValueError("own")):
            sys.excepthook(type(error), error, None)
        assert capsys.readouterr().err == "ValueError: own\n"
