"""Tests of a task's input: the rows of its split."""

from __future__ import annotations

import datetime as dt
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.adapters.spark import reading as module
from anabranch.adapters.spark.reading import arrow_schema
from anabranch.adapters.spark.source import PlannedReader, TaskInput
from anabranch.adapters.spark.source_options import SourceOptions
from anabranch.codec.blocks import row_hashes, schema_text
from anabranch.codec.catalog import TopicSettings
from anabranch.protocol.errors import StageFunctionError
from anabranch.protocol.log.records import Part
from anabranch.protocol.stage.kept_rows import KEPT_ALL, is_kept
from anabranch.streams.block_reader import BlockReader
from anabranch.streams.block_writer import BlockWriter
from harness.spark_options import SALT, SCHEMA, options


def test_the_schema_is_the_streams() -> None:
    assert arrow_schema(options()).names == ["n", "text", "event_time"]
    assert all(field.nullable for field in arrow_schema(options()))


class Log:
    def __init__(self) -> None:
        self.log = LocalEventLog(VirtualClock())
        self.log.admin().create([TopicSettings("p.a.blocks.0", 2)])
        self.writer = BlockWriter(self.log, "p.a.blocks.0", "0", 1, SeededEntropy(1))

    def write(self, partition: int, bucket: int, *rows: tuple[int, str | None, int]) -> Part:
        numbers, texts, event_times = zip(*rows, strict=True)
        return self.put(
            partition,
            bucket,
            pa.table([pa.array(c) for c in (numbers, texts, event_times)], schema=SCHEMA),
        )

    def put(self, partition: int, bucket: int, table: pa.Table) -> Part:
        (part,) = self.writer.write([(partition, bucket, table)])
        return part


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    log = Log()
    reader = BlockReader(log.log, lambda replica: f"p.a.blocks.{replica}", log.log.clock)
    monkeypatch.setattr(module, "_reader", lambda *_: reader)
    yield log
    reader.close()


def rows(given: SourceOptions, split: TaskInput) -> list[dict[str, Any]]:
    batches = list(PlannedReader(given).read(split))
    assert all(batch.schema.equals(arrow_schema(options())) for batch in batches)
    return pa.Table.from_batches(batches, arrow_schema(options())).to_pylist()  # type: ignore[no-any-return]


def at(ms: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(ms / 1000, dt.UTC)


class TestRows:
    def test_the_rows_of_the_parts(self, log: Log) -> None:
        part = log.write(0, 2, (1, "x", 110), (2, None, 200))
        assert rows(options(), TaskInput([("a", "0", (part,))])) == [
            {"n": 1, "text": "x", "event_time": at(110)},
            {"n": 2, "text": None, "event_time": at(200)},
        ]

    def test_columns_that_the_query_does_not_use_are_null(self, log: Log) -> None:
        split = TaskInput([("a", "0", (log.write(0, 2, (1, "x", 110)),))])
        assert rows(options(columns=("n",)), split)[0] == {
            "n": 1,
            "text": None,
            "event_time": at(110),
        }

    def test_wide_rows_are_handed_to_java_a_few_at_a_time(self, log: Log) -> None:
        part = log.write(0, 2, *((n, "x" * 3_000_000, 110 + n) for n in range(5)))
        batches = list(PlannedReader(options()).read(TaskInput([("a", "0", (part,))])))
        assert [batch.num_rows for batch in batches] == [2, 2, 1]
        assert [n for batch in batches for n in batch.column("n").to_pylist()] == [*range(5)]

    @pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
    def test_there_is_one_zero(self, log: Log, kind: pa.DataType) -> None:
        schema = pa.schema([("n", pa.int64()), ("level", kind), ("event_time", pa.int64())])
        levels = pa.array([-0.0, 0.0, None, math.nan, -1.5], kind)
        part = log.put(0, 2, pa.table([pa.array([0] * 5), levels, pa.array([110] * 5)], schema))
        given = options(schema=schema_text(schema), columns=("n", "level"))
        (batch,) = PlannedReader(given).read(TaskInput([("a", "0", (part,))]))
        assert str(batch.column("level").to_pylist()) == "[0.0, 0.0, None, nan, -1.5]"

    def test_a_split_without_parts_has_no_rows(self, log: Log) -> None:
        del log
        assert rows(options(), TaskInput([])) == []

    def test_where_order_counts_rows_come_in_canonical_order(self, log: Log) -> None:
        parts = [log.write(1, 2, (3, "c", 120), (1, "a", 110)), log.write(0, 2, (2, "b", 110))]
        orders = []
        for given in (parts, parts[::-1]):
            split = TaskInput([("a", "0", tuple(given))])
            orders.append([row["n"] for row in rows(options(ordered=True), split)])
        assert orders[0] == orders[1]
        assert sorted(orders[0]) == [1, 2, 3]


class TestKept:
    """Rows that a plan leaves out never reach Spark."""

    def numbers(self, log: Log, kept: int, *parts: Part, **changes: Any) -> list[int]:
        del log
        split = TaskInput([("a", "0", parts)], kept)
        return [row["n"] for row in rows(options(**changes), split)]

    def test_each_row_counts_by_all_of_its_columns(self, log: Log) -> None:
        given = [(n, "x", 110) for n in range(200)]
        first, second = log.write(0, 2, *given[:150]), log.write(1, 2, *given[150:])
        found = self.numbers(log, 400, first, second)
        table = pa.table([pa.array(c) for c in zip(*given, strict=True)], schema=SCHEMA)
        hashes = row_hashes(table).tolist()
        assert found == [n for n in range(200) if is_kept(hashes[n], SALT, 400)]
        assert 40 < len(found) < 120
        other = log.write(0, 2, *given[::-1])  # another writer's, or recomputed
        assert sorted(self.numbers(log, 400, other)) == found
        assert self.numbers(log, KEPT_ALL, first, second) == [*range(200)]
        unused = {"columns": ("n",), "ordered": True}
        assert self.numbers(log, 400, first, second, **unused) == found

    def test_rows_of_a_key_are_kept_together(self, log: Log) -> None:
        part = log.write(0, 2, *((n, f"car {n % 20}", 110) for n in range(200)))
        found = self.numbers(log, 400, part, kept_by=("text",))
        assert 20 <= len(found) <= 160
        assert found == [n for n in range(200) if n % 20 in {each % 20 for each in found}]

    def test_rows_from_before_the_record_had_the_key_are_kept_as_rows_without_it(
        self, log: Log
    ) -> None:
        null = log.write(0, 2, (1, None, 110), (2, None, 110))
        without = log.put(0, 2, pa.table({"n": [3, 4], "event_time": [110, 110]}))
        given = {"kept_by": ("text",), "optional": ("text",)}
        kept = [self.numbers(log, share, null, without, **given) for share in range(0, 999, 50)]
        assert set(map(frozenset, kept)) == {frozenset(), frozenset({1, 2, 3, 4})}

    def matters(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> dict[str, str]:
        """Write a function that says how much rows matter; return the options that name it."""
        name = f"matters_{tmp_path.name.replace('-', '_')}"
        monkeypatch.setattr(sys, "path", [*sys.path])
        (tmp_path / f"{name}.py").write_text(f"def matters(rows):\n    return {body}\n")
        return {"kept_function": f"{name}:matters", "pipeline": str(tmp_path / "pipeline.yaml")}

    @pytest.mark.parametrize(
        "body",
        [
            "rows['n']",
            "rows['n'].combine_chunks()",
            "rows['n'].to_pylist()",
            "rows['n'].to_numpy()",
            "[n if n >= 60 else None if n % 2 else float('nan') for n in rows['n'].to_pylist()]",
        ],
    )
    def test_the_rows_that_matter_most_are_kept_of_each_bucket(
        self, log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str
    ) -> None:
        changes = self.matters(tmp_path, monkeypatch, body)
        parts = [
            log.write(
                n % 2, 2 + n // 50, *((m, "x", 110 + n // 50 * 100) for m in range(n, n + 25))
            )
            for n in (0, 25, 50, 75)
        ]
        found = self.numbers(log, 400, *parts, **changes)
        least = [m for m in sorted(found) if m < 50]
        assert sorted(found)[len(least) :] == [*range(80, 100)], "20 of 50 in the second bucket"
        assert len(least) == 20
        # Null counts least, and a truth value as 0 or 1.
        for expression in ("CASE WHEN n >= 60 THEN n END", "n >= 80"):
            by = self.numbers(log, 400, *parts, kept_expression=expression)
            assert [m for m in sorted(by) if m >= 50] == [*range(80, 100)]
            assert len(by) == 40
        assert "None" in body or least == [*range(30, 50)]
        assert self.numbers(log, 400, *parts[::-1], **changes) == found, "in whatever blocks"
        assert len(self.numbers(log, KEPT_ALL, *parts, **changes)) == 100

    def test_rows_from_before_the_record_had_a_column_matter_beside_newer_ones(
        self, log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The query itself need not use the column."""
        old = pa.schema([field for field in SCHEMA if field.name != "text"])
        body = "[len(text or '') for text in rows['text'].to_pylist()]"
        changes = self.matters(tmp_path, monkeypatch, body) | {
            "optional": ("text",),
            "kept_schema": schema_text(SCHEMA),
            "schema": schema_text(old),
            "columns": ("n",),
        }
        now = log.write(0, 2, (1, "long", 110), (2, None, 110))
        before = log.put(0, 2, pa.table({"n": [3, 4], "event_time": [110, 110]}, old))
        for parts in ((now, before), (before, now)):
            split = TaskInput([("a", "0", parts)], 250)
            (found,) = PlannedReader(options(**changes)).read(split)
            assert found.column("n").to_pylist() == [1], "one of the four rows of the bucket"

    @pytest.mark.parametrize(
        ("body", "words"),
        [
            ("1 / 0", "matters: raised ZeroDivisionError: division by zero"),
            ("[1.0]", "gave 1 numbers for 2 rows; it must say of each row how much it matters"),
            ("['a', 'b']", "matters: raised ArrowInvalid"),
            ("None", "matters: raised"),
        ],
    )
    def test_a_function_that_does_not_say_it_is_named(
        self,
        log: Log,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        body: str,
        words: str,
    ) -> None:
        changes = self.matters(tmp_path, monkeypatch, body)
        part = log.write(0, 2, (1, "x", 110), (2, "x", 110))
        with pytest.raises(StageFunctionError, match=words):
            self.numbers(log, 500, part, **changes)

    def test_an_input_that_is_read_whole_loses_nothing(self, log: Log) -> None:
        part = log.write(0, 2, *((n, "x", 110) for n in range(50)))
        assert self.numbers(log, 0, part, kept_by=None) == [*range(50)]

    def test_nothing_may_be_left(self, log: Log) -> None:
        assert self.numbers(log, 0, log.write(0, 2, (1, "x", 110))) == []
        missing = options(schema=schema_text(SCHEMA.append(pa.field("new", pa.int64()))))
        split = TaskInput([("a", "0", (log.write(0, 2, (1, "x", 110)),))], 0)
        assert list(PlannedReader(missing).read(split)) == []

    def test_batches_for_java_are_as_large_as_without(self, log: Log) -> None:
        part = log.write(0, 2, *((n, "x" * 300_000, 110) for n in range(100)))
        batches = list(PlannedReader(options()).read(TaskInput([("a", "0", (part,))], 500)))
        assert [batch.num_rows for batch in batches[:-1]] == [27] * (len(batches) - 1)


class TestOwnRows:
    """Rows of other shards never reach Spark."""

    GIVEN = tuple((n, f"car {n % 20}", 110 + n) for n in range(90))

    def numbers(self, bits: str, split: TaskInput, **changes: Any) -> list[int]:
        found = rows(options(**({"share_by": ("text",), "share_bits": bits} | changes)), split)
        return [row["n"] for row in found]

    def test_a_key_is_one_shards_whatever_block_it_is_in(self, log: Log) -> None:
        parts = log.write(0, 2, *self.GIVEN[:40]), log.write(1, 2, *self.GIVEN[40:])
        found = [self.numbers(bits, TaskInput([("a", "0", parts)])) for bits in ("00", "01", "1")]
        assert all(found)
        assert sorted(n for each in found for n in each) == [*range(90)]
        keys = [{n % 20 for n in each} for each in found]
        assert sum(map(len, keys)) == 20
        assert all(each == sorted(each) for each in found), "in the order of the blocks"

    def test_a_shard_without_a_key_of_the_input_takes_all_of_it(self, log: Log) -> None:
        split = TaskInput([("a", "0", (log.write(0, 2, *self.GIVEN),))])
        assert self.numbers("01", split, share_by=()) == [*range(90)]

    def test_they_are_in_canonical_order_where_it_counts(self, log: Log) -> None:
        split = TaskInput([("a", "0", (log.write(0, 2, *self.GIVEN[::-1]),))])
        found = self.numbers("1", split, ordered=True)
        assert found == sorted(self.numbers("1", split))

    def test_a_key_that_had_another_type_is_the_same_key(self, log: Log) -> None:
        """The stage that wrote it has another function since."""
        now = log.write(0, 2, *((n, str(n), 110) for n in range(20)))
        was = pa.table({"n": range(20), "text": range(20), "event_time": [110] * 20})
        before = log.put(0, 2, was)
        found = [self.numbers("0", TaskInput([("a", "0", (part,))])) for part in (now, before)]
        assert found[0] == found[1] != []

    def test_a_key_that_the_record_had_not_is_null(self, log: Log) -> None:
        null = log.write(0, 2, (1, None, 110))
        without = log.put(0, 2, pa.table({"n": [1], "event_time": [110]}))
        for part in (null, without):
            split = TaskInput([("a", "0", (part,))])
            assert [len(self.numbers(bits, split, optional=("text",))) for bits in ("0", "1")] == [
                1,
                0,
            ]

    def test_a_key_that_is_missing_ends_the_stage_with_words(self, log: Log) -> None:
        part = log.put(0, 2, pa.table({"n": [1], "event_time": [110]}))
        with pytest.raises(StageFunctionError, match="bucket 2 of a has no column text"):
            self.numbers("0", TaskInput([("a", "0", (part,))]))

    def test_of_its_own_rows_a_shard_keeps_those_that_matter_most(
        self, log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "own_matters.py").write_text("def matters(rows):\n    return rows['n']\n")
        monkeypatch.setattr(sys, "path", [*sys.path])
        changes = {"kept_function": "own_matters:matters", "pipeline": str(tmp_path / "p.yaml")}
        part = log.write(0, 2, *self.GIVEN)
        own = self.numbers("0", TaskInput([("a", "0", (part,))]))
        kept = self.numbers("0", TaskInput([("a", "0", (part,))], 500), **changes)
        assert sorted(kept) == own[len(own) // 2 :]


class TestShards:
    def test_their_rows_are_one_input_in_one_canonical_order(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """However many streams they came in: where order counts, nobody can tell."""
        log = LocalEventLog(VirtualClock())
        topics = [f"p.{stream}.blocks.0" for stream in ("a", "a.0", "a.1")]
        log.admin().create([TopicSettings(topic, 2) for topic in topics])
        monkeypatch.setattr(module, "_log", lambda *_: log)
        monkeypatch.setattr(module, "_readers", {})
        given = [(3, "c", 120), (1, "a", 110), (2, "b", 110), (4, "d", 90)]

        def written(topic: str, rows: list[tuple[int, str, int]]) -> tuple[Part, ...]:
            writer = BlockWriter(log, topic, "0", 1, SeededEntropy(1))
            table = pa.table([pa.array(c) for c in zip(*rows, strict=True)], schema=SCHEMA)
            return tuple(writer.write([(0, 2, table)]))

        def found(ordered: bool, *taken: tuple[str, str, tuple[Part, ...]]) -> list[int]:
            streams = {stream: f"p.{stream}.blocks" for stream, _, _ in taken}
            read = rows(options(blocks=streams, ordered=ordered), TaskInput(list(taken)))
            return [row["n"] for row in read]

        whole = [("a", "0", written(topics[0], given))]
        shards = [
            ("a.0", "0", written(topics[1], given[::2])),
            ("a.1", "0", written(topics[2], given[1::2])),
        ]
        assert found(True, *whole) == found(True, *shards) == found(True, *shards[::-1])
        assert sorted(found(False, *shards)) == [1, 2, 3, 4]


class TestChangedColumns:
    """The stage that writes the stream has another function since; the query that reads it
    was built with the columns of one of them.
    """

    OTHERS = pa.table({"more": [1.5], "n": pa.array([2], pa.int32()), "event_time": [210]})

    def test_columns_that_are_not_used_do_not_matter(self, log: Log) -> None:
        parts = (log.write(0, 2, (1, "x", 110)), log.put(0, 3, self.OTHERS))
        for given in (parts, parts[::-1]):
            found = rows(options(columns=("n",)), TaskInput([("a", "0", given)]))
            assert sorted((row["n"], row["text"], row["event_time"]) for row in found) == [
                (1, None, at(110)),
                (2, None, at(210)),
            ]

    def test_where_order_counts_they_come_by_time(self, log: Log) -> None:
        parts = (
            log.write(0, 3, (1, "x", 220), (0, "y", 210), (4, "z", 205)),
            log.put(0, 3, self.OTHERS),
        )
        for given in (parts, parts[::-1]):
            found = rows(options(columns=("n",), ordered=True), TaskInput([("a", "0", given)]))
            assert [row["n"] for row in found] in ([4, 0, 2, 1], [4, 2, 0, 1])
            assert [row["n"] for row in found] == [
                row["n"]
                for row in rows(
                    options(columns=("n",), ordered=True), TaskInput([("a", "0", parts)])
                )
            ]

    def test_a_column_that_is_used_and_gone_ends_the_stage_with_words(self, log: Log) -> None:
        parts = (log.write(0, 2, (1, "x", 110)), log.put(0, 3, self.OTHERS))
        words = (
            "bucket 3 of a has no column text of type string, which is used here; it has more"
            " double, n int32, event_time int64: the columns of a"
        )
        with pytest.raises(StageFunctionError, match=words):
            rows(options(), TaskInput([("a", "0", parts)]))

    def test_an_optional_one_is_null_where_the_record_had_none(self, log: Log) -> None:
        parts = (log.write(0, 2, (1, "x", 110)), log.put(0, 3, self.OTHERS))
        found = rows(options(optional=("text",)), TaskInput([("a", "0", parts)]))
        assert sorted((row["n"], row["text"]) for row in found) == [(1, "x"), (2, None)]
        part = log.put(0, 2, pa.table({"text": ["x"], "event_time": [110]}))
        with pytest.raises(StageFunctionError, match="has no column n of type int64"):
            rows(options(optional=("text",)), TaskInput([("a", "0", (part,))]))

    def test_so_does_one_of_another_type(self, log: Log) -> None:
        part = log.put(0, 2, pa.table({"n": ["many"], "text": ["x"], "event_time": [110]}))
        with pytest.raises(StageFunctionError, match="bucket 2 of a has no column n of type int64"):
            rows(options(), TaskInput([("a", "0", (part,))]))


class TestReaders:
    """Clients are kept from batch to batch, and given back."""

    @pytest.fixture(autouse=True)
    def _closed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.closed: list[BlockReader] = []
        monkeypatch.setattr(module, "_readers", {})

        def close(reader: BlockReader) -> None:
            self.closed.append(reader)

        monkeypatch.setattr(BlockReader, "close", close)

    def test_those_of_the_two_queries_that_were_used_last_are_kept(self) -> None:
        first, second = (module._reader(options(query=query), "a") for query in ("1", "2"))
        assert first is not second
        assert [module._reader(options(query=query), "a") for query in ("1", "2", "1")] == [
            first,
            second,
            first,
        ]
        module._reader(options(blocks={"a": "p.b.blocks"}, query="1"), "a")
        assert self.closed == []
        module._reader(options(query="3"), "a")
        assert self.closed == [second]
        assert module._reader(options(query="1"), "a") is first
