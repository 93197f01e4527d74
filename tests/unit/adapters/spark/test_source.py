"""The readers that Spark asks: plans from the stage's process, splits, rows with a marker."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from anabranch.adapters.local.clock import SeededEntropy, VirtualClock
from anabranch.adapters.local.log import LocalEventLog
from anabranch.adapters.spark import source as module
from anabranch.adapters.spark.plan_socket import PlanServer
from anabranch.adapters.spark.source import FORMAT, MARKER, AnabranchSource, PlannedReader, SourceOptions, Split
from anabranch.codec.blocks import schema_text
from anabranch.codec.catalog import TopicSettings
from anabranch.codec.plan_offsets import INITIAL, Offset, offset_of, position_fields
from anabranch.protocol.records import Part
from anabranch.protocol.serialization import Plan, QueryPosition
from anabranch.runtime.block_reader import BlockReader
from anabranch.runtime.block_writer import BlockWriter

SCHEMA = pa.schema([pa.field("n", pa.int64(), nullable=False), pa.field("text", pa.string()), pa.field("stime", pa.int64())])


def options(**changes: Any) -> SourceOptions:
    fields: dict[str, Any] = {
        "pipeline": "p", "query": "000000000007-000001", "stream": "a", "kafka": "k", "socket": "/none", "schema": schema_text(SCHEMA),
        "columns": ("n", "text"), "width_ms": 100, "splits_max": 2, "ordered": False,
    }  # fmt: skip
    return SourceOptions(**(fields | changes))


def taken(partition: int, rows: int, bucket: int = 2) -> Part:
    return Part(bucket, partition, f"{bucket:016x}", 1, 0, 1, rows, 0)


def offset(*parts: Part, replica: str = "0", bucket: int = 5, sequence: int = 1) -> Offset:
    plan = Plan(
        QueryPosition(sequence - 1, 0, 0), QueryPosition(sequence, bucket, bucket), (("a", ((2, replica, parts),) if parts else ()),), 0
    )
    return offset_of(plan, "a")


def splits(reader: PlannedReader, end: Offset) -> list[Split]:
    found = list(reader.partitions(INITIAL, end))
    assert all(isinstance(split, Split) for split in found)
    return found


def test_options_come_back_from_their_text() -> None:
    assert SourceOptions.from_json(options().to_json()) == options()
    assert options().arrow_schema().names == ["n", "text", "stime", MARKER]
    assert all(field.nullable for field in options().arrow_schema()), "the marker row has nothing else"


def test_the_source_as_spark_finds_it() -> None:
    source = AnabranchSource({"config": options().to_json()})
    assert (source.name(), source.schema().names) == (FORMAT, ["n", "text", "stime", MARKER])
    assert isinstance(source.streamReader(source.schema()), PlannedReader)


class TestOffsets:
    def test_a_question_names_the_query_and_the_input(self) -> None:
        """A replica may run two queries."""
        asked: list[tuple[str, str, Offset]] = []
        answers: list[Offset | None] = [offset(taken(0, 1)), None]

        def answer(query: str, name: str, start: Offset) -> Offset | None:
            asked.append((query, name, start))
            return answers.pop(0)

        server = PlanServer(answer)
        try:
            reader = PlannedReader(options(socket=server.path))
            start = reader.initialOffset()
            assert start == INITIAL
            first = reader.latestOffset(start, None)
            assert first == offset(taken(0, 1))
            assert reader.latestOffset(first, None) == first, "nothing yet"
        finally:
            server.close()
        assert asked == [("000000000007-000001", "a", position_fields(INITIAL)), ("000000000007-000001", "a", position_fields(first))]

    def test_each_query_starts_with_an_offset_of_its_own(self) -> None:
        reader = PlannedReader(options())
        reader.initialOffset()["bucket"] = 9
        assert reader.initialOffset() == INITIAL

    def test_an_offset_again_is_no_work(self) -> None:
        assert splits(PlannedReader(options()), dict(INITIAL)) == []


class TestSplits:
    def test_a_small_plan_is_one_task_which_has_the_marker(self) -> None:
        (split,) = splits(PlannedReader(options()), offset(taken(0, 1), taken(1, 1)))
        assert (split.taken, split.marker_ms) == ([("0", (taken(0, 1), taken(1, 1)))], 500)

    def test_an_empty_plan_moves_the_watermark_all_the_same(self) -> None:
        (split,) = splits(PlannedReader(options()), offset())
        assert (split.taken, split.marker_ms) == ([], 500)

    def test_a_large_plan_is_split_by_partition_and_only_one_task_has_the_marker(self) -> None:
        parts = [taken(partition, 50_000) for partition in range(5)]
        first, second = splits(PlannedReader(options()), offset(*parts))
        assert (first.taken, second.taken) == ([("0", tuple(parts[0::2]))], [("0", tuple(parts[1::2]))])
        assert (first.marker_ms, second.marker_ms) == (500, None)

    def test_where_order_counts_there_is_one_task(self) -> None:
        assert len(splits(PlannedReader(options(ordered=True)), offset(*[taken(p, 50_000) for p in range(5)]))) == 1


class Log:
    def __init__(self) -> None:
        self.log = LocalEventLog(VirtualClock())
        self.log.admin().create([TopicSettings("p.a.blocks.0", 2)])
        self.writer = BlockWriter(self.log, "p.a.blocks.0", "0", 1, SeededEntropy(1))

    def write(self, partition: int, bucket: int, *rows: tuple[int, str | None, int]) -> Part:
        numbers, texts, stimes = zip(*rows, strict=True)
        (part,) = self.writer.write([(partition, bucket, pa.table([pa.array(c) for c in (numbers, texts, stimes)], schema=SCHEMA))])
        return part


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    log = Log()
    reader = BlockReader(log.log, lambda replica: f"p.a.blocks.{replica}", log.log.clock)
    monkeypatch.setattr(module, "_reader", lambda *_: reader)
    yield log
    reader.close()


def rows(reader: PlannedReader, split: Split) -> list[dict[str, Any]]:
    batches = list(reader.read(split))
    assert all(batch.schema.equals(options().arrow_schema()) for batch in batches)
    return pa.Table.from_batches(batches, options().arrow_schema()).to_pylist()  # type: ignore[no-any-return]


def at(ms: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(ms / 1000, dt.UTC)


class TestRows:
    def test_the_rows_of_the_parts_and_then_the_marker(self, log: Log) -> None:
        part = log.write(0, 2, (1, "x", 110), (2, None, 200))
        reader = PlannedReader(options())
        (split,) = splits(reader, offset(part))
        assert rows(reader, split) == [
            {"n": 1, "text": "x", "stime": at(110), MARKER: False},
            {"n": 2, "text": None, "stime": at(200), MARKER: False},
            {"n": None, "text": None, "stime": at(500), MARKER: True},
        ]

    def test_columns_that_the_query_does_not_use_are_null(self, log: Log) -> None:
        reader = PlannedReader(options(columns=("n",)))
        (split,) = splits(reader, offset(log.write(0, 2, (1, "x", 110))))
        assert rows(reader, split)[0] == {"n": 1, "text": None, "stime": at(110), MARKER: False}

    def test_a_split_without_marker_has_only_its_rows(self, log: Log) -> None:
        part = log.write(0, 2, (1, "x", 110))
        assert [row["n"] for row in rows(PlannedReader(options()), Split([("0", (part,))], None))] == [1]
        assert rows(PlannedReader(options()), Split([], None)) == []

    def test_where_order_counts_rows_come_in_canonical_order(self, log: Log) -> None:
        parts = [log.write(1, 2, (3, "c", 120), (1, "a", 110)), log.write(0, 2, (2, "b", 110))]
        orders = []
        for given in (parts, parts[::-1]):
            reader = PlannedReader(options(ordered=True))
            (split,) = splits(reader, offset(*given))
            orders.append([row["n"] for row in rows(reader, split)])
        assert orders[0] == orders[1]
        assert sorted(orders[0][:-1]) == [1, 2, 3]
        assert orders[0][-1] is None

    def test_a_commit_says_nothing(self) -> None:
        PlannedReader(options()).commit(dict(INITIAL))
