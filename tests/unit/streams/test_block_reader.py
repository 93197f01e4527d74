"""A part's blocks are found among any garbage; what does not match the part is missing data,
never less data.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.log import LocalEventLog, LocalLogReader
from anabranch.codec import blocks
from anabranch.codec.blocks import BlockHeaders, encode_block
from anabranch.codec.catalog import TopicSettings
from anabranch.codec.rejected_rows import are_notices
from anabranch.ports import TopicPartition
from anabranch.protocol.errors import DataMissing
from anabranch.protocol.limits import BLOCK_ROWS_MAX
from anabranch.protocol.log.records import Part
from anabranch.streams.block_reader import BlockReader
from anabranch.streams.block_writer import BlockWriter
from harness.sources import everything


def topic(replica: str) -> str:
    return f"p.s.blocks.{replica}"


def rows(first: int, count: int) -> pa.Table:
    return pa.table({"n": list(range(first, first + count)), "event_time": [7] * count})


class World:
    def __init__(self) -> None:
        self.log = LocalEventLog(VirtualClock())
        self.log.admin().create([TopicSettings(topic(replica), 3) for replica in "01"])
        self.writers = {
            r: BlockWriter(self.log, topic(r), r, 1, SeededEntropy(int(r))) for r in "01"
        }
        self.reader = BlockReader(self.log, topic, self.log.clock)

    def write(
        self, bucket: int, table: pa.Table, *, partition: int = 0, replica: str = "0"
    ) -> Part:
        (part,) = self.writers[replica].write([(partition, bucket, table)])
        return part

    def put(self, part: Part, value: bytes | None, **changes: Any) -> None:
        """Append a record to ``part``'s partition with a block header like its first block's,
        except ``changes``.
        """
        fields = {
            "bucket": part.bucket,
            "epoch": 1,
            "number": 0,
            "replica": "0",
            "attempt": part.attempt,
            **changes,
        }
        writer = self.log.writer()
        writer.send(
            TopicPartition(topic("0"), part.partition),
            value,
            headers=BlockHeaders(**fields).encode(),
        )
        writer.flush()


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.reader.close()
    world.reader.close()


def numbers(table: pa.Table | None) -> list[int]:
    return [] if table is None else table.column("n").to_pylist()


def test_parts_come_back_in_the_order_asked_for(world: World) -> None:
    parts = [
        world.write(4, rows(0, 3)),
        world.write(4, rows(3, 2), partition=1),
        world.write(5, rows(5, 1)),
    ]
    assert [numbers(t) for t in world.reader.read_parts("0", parts)] == [[0, 1, 2], [3, 4], [5]]
    assert numbers(world.reader.read("0", [parts[2], parts[0]])) == [5, 0, 1, 2]
    assert world.reader.read("0", []) is None


def test_several_blocks_are_put_together_by_number(world: World) -> None:
    part = world.write(4, rows(0, 2 * BLOCK_ROWS_MAX + 5))
    assert numbers(world.reader.read("0", [part])) == list(range(2 * BLOCK_ROWS_MAX + 5))


def test_a_row_that_is_larger_than_a_record_comes_back_from_its_segments(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "_SEGMENT_BYTES_MAX", 1_000)
    monkeypatch.setattr(blocks, "BLOCK_BYTES_MAX", 500)
    texts = ["a" * 40, "b" * 9_000, "c" * 400, "d" * 5_000]
    table = pa.table({"text": texts, "event_time": [7] * 4})
    parts = [world.write(4, table), world.write(5, table.slice(1, 1))]
    assert min(part.blocks for part in parts) > 9
    found = world.reader.read_parts("0", parts)
    assert [each.column("text").to_pylist() for each in found] == [texts, texts[1:2]]
    world.log.trim(TopicPartition(topic("0"), 0), parts[0].offset_next + 1)
    with pytest.raises(DataMissing):
        world.reader.read("0", [parts[1]])


def test_records_that_the_client_wrote_twice_count_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answers to some were lost, and it sent these again and said nothing (librdkafka 4953)."""
    monkeypatch.setattr(blocks, "_SEGMENT_BYTES_MAX", 300)
    monkeypatch.setattr(blocks, "BLOCK_BYTES_MAX", 200)
    texts = ["a" * 40, "b" * 700, "c" * 20]
    part = world.write(4, pa.table({"text": texts, "event_time": [7] * 3}))
    (chunk,) = everything(world.log, topic("0"))
    sent = list(zip(chunk.values, chunk.headers, strict=True))
    assert part.blocks == len(sent) > 5
    assert sum(BlockHeaders.decode(headers).is_continued for _, headers in sent) > 2
    at = TopicPartition(topic("0"), part.partition)
    writer = world.log.writer()
    for arrived in range(1, len(sent) + 1):
        for answered in range(1, arrived + 1):
            for value, headers in sent[:arrived] + sent[answered:]:
                writer.send(at, value, headers=headers)
            places = [place.offset for place in writer.flush()]
            again = replace(part, offset_first=places[0], offset_next=places[-1] + 1)
            found = world.reader.read("0", [again])
            assert found is not None
            assert found.column("text").to_pylist() == texts


def test_segments_that_do_not_make_a_block_are_missing_data(world: World) -> None:
    """Another participant's writer may write anything."""
    whole, part = encode_block(rows(0, 3)), world.write(4, rows(0, 3))
    for number, value in enumerate([whole[:50], None, whole[60:]]):
        world.put(part, value, number=number, attempt="e" * 16, is_continued=number < 2)
    torn = replace(part, attempt="e" * 16, blocks=3, offset_first=1, offset_next=4)
    with pytest.raises(DataMissing, match="found 2 blocks with 0 rows"):
        world.reader.read("0", [torn])


def test_reading_goes_on_jumps_ahead_and_back(world: World) -> None:
    parts = [world.write(bucket, rows(bucket, 1)) for bucket in range(600)]
    for bucket in (0, 1, 2, 250, 251, 599, 5, 4):
        assert numbers(world.reader.read("0", [parts[bucket]])) == [bucket]


def test_whole_buckets_of_several_writers(world: World) -> None:
    wanted = [
        (4, "0", [world.write(4, rows(0, 1)), world.write(4, rows(1, 1), partition=1)]),
        (5, "1", [world.write(5, rows(2, 2), replica="1")]),
        (6, "0", []),
        (7, "0", [world.write(7, rows(4, 1), partition=2)]),
    ]
    assert [(bucket, numbers(table)) for bucket, table in world.reader.read_buckets(wanted)] == [
        (4, [0, 1]),
        (5, [2, 3]),
        (7, [4]),
    ]
    assert world.reader.read_buckets([]) == []


class TestGarbage:
    """Blocks that no part names do not exist, wherever they stand."""

    def test_of_other_attempts_inside_the_range(self, world: World) -> None:
        """A task that Spark ran twice at once, and a process that does not know yet that it
        was replaced.
        """
        first = world.write(4, rows(0, 1))
        world.write(4, rows(100, 1))
        world.put(first, encode_block(rows(200, 1)), attempt="f" * 16, epoch=0)
        world.put(first, encode_block(rows(1, 2)), number=1)
        part = replace(
            first,
            blocks=2,
            rows=3,
            offset_next=first.offset_first + 4,
            digest=world.write(4, rows(0, 3)).digest,
        )
        assert numbers(world.reader.read("0", [part])) == [0, 1, 2]

    def test_of_the_same_attempt_for_another_bucket(self, world: World) -> None:
        """The blocks that a task writes for two buckets interleave."""
        first = world.write(4, rows(0, 1))
        world.put(first, encode_block(rows(50, 1)), bucket=5, number=1)
        world.put(first, encode_block(rows(1, 1)), number=2)
        part = replace(
            first, blocks=2, rows=2, offset_next=3, digest=world.write(4, rows(0, 2)).digest
        )
        assert numbers(world.reader.read("0", [part])) == [0, 1]

    def test_with_the_parts_headers_outside_its_range(self, world: World) -> None:
        world.write(3, rows(90, 1))
        part = world.write(4, rows(0, 1))
        world.put(part, encode_block(rows(100, 1)), number=1)
        later = world.write(5, rows(1, 1))
        assert [numbers(t) for t in world.reader.read_parts("0", [part, later])] == [[0], [1]]

    @pytest.mark.parametrize("value", [None, b"", b"no block"])
    def test_that_is_no_block_at_all(self, world: World, value: bytes | None) -> None:
        first = world.write(4, rows(0, 1))
        writer = world.log.writer()
        writer.send(TopicPartition(topic("0"), 0), value)
        writer.flush()
        world.put(first, encode_block(rows(1, 1)), number=1)
        part = replace(
            first, blocks=2, rows=2, offset_next=3, digest=world.write(4, rows(0, 2)).digest
        )
        assert numbers(world.reader.read("0", [part])) == [0, 1]


class TestMissing:
    def test_a_block_that_was_deleted(self, world: World) -> None:
        part = world.write(4, rows(0, 1))
        world.log.trim(TopicPartition(topic("0"), 0), 1)
        with pytest.raises(DataMissing):
            world.reader.read("0", [part])

    def test_blocks_that_never_come(self, world: World) -> None:
        part = world.write(4, rows(0, 1))
        with pytest.raises(DataMissing, match="nothing came up to offset 9"):
            world.reader.read("0", [replace(part, offset_next=9)])

    @pytest.mark.parametrize("value", [None, b"", b"\xff" * 30])
    def test_a_block_that_cannot_be_decoded(self, world: World, value: bytes | None) -> None:
        first = world.write(4, rows(0, 1))
        world.put(first, value, number=1)
        with pytest.raises(DataMissing, match="found 1 blocks"):
            world.reader.read("0", [replace(first, blocks=2, offset_next=2)])

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"blocks": 2}, "found 1 blocks"),
            ({"blocks": 0}, "found 1 blocks"),
            ({"rows": 2}, "with 3 rows"),
            ({"rows": 4}, "with 3 rows"),
            ({"digest": 7}, "digest"),
            ({"attempt": "f" * 16}, "found 0 blocks with 0 rows"),
            ({"bucket": 5}, "found 0 blocks"),
        ],
    )
    def test_a_part_that_does_not_match(
        self, world: World, changes: dict[str, Any], words: str
    ) -> None:
        part = world.write(4, rows(0, 3))
        with pytest.raises(DataMissing, match=words):
            world.reader.read("0", [replace(part, **changes)])
        assert numbers(world.reader.read("0", [part])) == [0, 1, 2], "the reader can be used on"

    def test_rows_of_another_bucket(self, world: World) -> None:
        """Its writer has signed them, and their digest is right."""
        good, bad = world.write(1, rows(0, 3)), world.write(4, rows(0, 3))
        with closing(BlockReader(world.log, topic, world.log.clock, width_ms=10)) as reader:
            assert numbers(reader.read("0", [good])) == [0, 1, 2]
            with pytest.raises(DataMissing, match="bucket 4 holds a row of another bucket"):
                reader.read("0", [good, bad])

    def test_parts_of_several_schemas(self, world: World) -> None:
        parts = [
            world.write(4, rows(0, 1)),
            world.write(4, pa.table({"other": ["x"], "event_time": [7]})),
        ]
        assert len(world.reader.read_parts("0", parts)) == 2
        with pytest.raises(DataMissing, match="differ in columns"):
            world.reader.read("0", parts)

    def test_blocks_of_several_schemas(self, world: World) -> None:
        first = world.write(4, rows(0, 1))
        world.put(first, encode_block(pa.table({"other": ["x"], "event_time": [7]})), number=1)
        with pytest.raises(DataMissing, match="columns"):
            world.reader.read("0", [replace(first, blocks=2, rows=2, offset_next=2)])


class TestOwn:
    """Blocks that processes of the same participant wrote: counted, not hashed."""

    @pytest.fixture
    def own(self, world: World) -> Iterator[BlockReader]:
        reader = BlockReader(world.log, topic, world.log.clock, width_ms=None)
        yield reader
        reader.close()

    def test_they_are_not_looked_through(
        self, world: World, own: BlockReader, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        part = world.write(4, rows(0, 3))
        for name in ("check_stream", "check_table"):
            monkeypatch.setattr(blocks, name, pytest.fail)
        assert numbers(own.read("0", [replace(part, digest=7)])) == [0, 1, 2]

    @pytest.mark.parametrize(
        "changes", [{"blocks": 2}, {"rows": 4}, {"attempt": "f" * 16}, {"bucket": 5}]
    )
    def test_what_is_missing_is_missing(
        self, world: World, own: BlockReader, changes: dict[str, Any]
    ) -> None:
        part = world.write(4, rows(0, 3))
        with pytest.raises(DataMissing):
            own.read("0", [replace(part, **changes)])

    @pytest.mark.parametrize("value", [None, b"", b"no block"])
    def test_what_is_no_block_is_missing(
        self, world: World, own: BlockReader, value: bytes | None
    ) -> None:
        first = world.write(4, rows(0, 1))
        world.put(first, value, number=1)
        with pytest.raises(DataMissing, match="found 1 blocks"):
            own.read("0", [replace(first, blocks=2, offset_next=2)])


def test_parts_of_several_schemas_are_still_parts(world: World) -> None:
    """A stage whose function has changed goes on in the same stream; its readers must say so,
    not stumble.
    """
    parts = [
        world.write(4, rows(0, 1)),
        world.write(5, pa.table({"other": ["x"], "event_time": [7]})),
    ]
    tables = world.reader.read_parts("0", parts)
    assert [table.column_names for table in tables] == [
        ["n", "event_time"],
        ["other", "event_time"],
    ]
    wanted = [(4, "0", parts[:1]), (5, "0", [parts[1], world.write(5, rows(1, 1))])]
    found = [(bucket, table.column_names) for bucket, table in world.reader.read_buckets(wanted)]
    assert found == [
        (4, ["n", "event_time"]),
        (5, ["n", "event_time"]),
        (5, ["other", "event_time"]),
    ]


def test_one_consumer_per_writer_whatever_partitions_are_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []
    reader = world.log.reader

    def counted(**options: Any) -> LocalLogReader:
        opened.append(1)
        return reader(**options)

    monkeypatch.setattr(world.log, "reader", counted)
    parts = [world.write(4, rows(partition, 1), partition=partition) for partition in range(3)]
    for chosen in ((0,), (1,), (0, 2), (2,), (0, 1, 2), (1,)):
        found = world.reader.read("0", [parts[n] for n in chosen])
        assert numbers(found) == list(chosen)
    world.reader.read("1", [world.write(4, rows(0, 1), replica="1")])
    assert len(opened) == 2


class TestNotices:
    """In place of rows that no reader can hold."""

    @pytest.fixture
    def parts(self, world: World, monkeypatch: pytest.MonkeyPatch) -> tuple[Part, ...]:
        monkeypatch.setattr(blocks, "ROW_BYTES_MAX", 3_000)
        monkeypatch.setattr(blocks, "BLOCK_BYTES_MAX", 500)
        table = pa.table({"text": ["a", "b" * 9_000, "c"], "event_time": [7] * 3})
        return world.writers["0"].write([(0, 4, table), (0, 5, table.slice(1, 1))])

    def test_readers_leave_them_out(self, world: World, parts: tuple[Part, ...]) -> None:
        found = world.reader.read_parts("0", parts)
        assert [table.column("text").to_pylist() for table in found] == [["a", "c"]]
        wanted = [(4, "0", parts[:2]), (5, "0", parts[2:])]
        assert [bucket for bucket, _ in world.reader.read_buckets(wanted)] == [4]
        assert world.reader.read("0", parts[1:]) is None

    def test_one_reader_wants_them(self, world: World, parts: tuple[Part, ...]) -> None:
        reader = BlockReader(world.log, topic, world.log.clock, with_notices=True)
        found = reader.read_buckets([(4, "0", parts[:2]), (5, "0", parts[2:])])
        assert sorted((b, are_notices(table.schema), table.num_rows) for b, table in found) == [
            (4, False, 2),
            (4, True, 1),
            (5, True, 1),
        ]
        world.log.trim(TopicPartition(topic("0"), 0), parts[1].offset_next)
        with pytest.raises(DataMissing):
            reader.read("0", parts[1:2])
        reader.close()
