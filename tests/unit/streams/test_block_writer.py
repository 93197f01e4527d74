"""Tests that the parts of a block writer name what is in the log."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.log import FailingOperation, LocalEventLog
from anabranch.codec import blocks
from anabranch.codec.blocks import BlockHeaders, decode_block, digest, encode_block
from anabranch.codec.catalog import TopicSettings
from anabranch.codec.rejected_rows import separated
from anabranch.ports import LogWriter, TopicPartition
from anabranch.protocol.errors import (
    LocalProtocolError,
    OutcomeUnknown,
    Unavailable,
)
from anabranch.protocol.limits import BLOCK_ROWS_MAX, WRITE_TRIES_MAX
from anabranch.protocol.log.records import Part
from anabranch.streams import block_writer as module
from anabranch.streams.block_writer import BlockWriter, UnwrittenBlocks

TOPIC = "p.s.blocks.0"


def rows(first: int, count: int) -> pa.Table:
    return pa.table({"n": list(range(first, first + count)), "event_time": [7] * count})


@pytest.fixture
def log() -> LocalEventLog:
    log = LocalEventLog(VirtualClock())
    log.admin().create([TopicSettings(TOPIC, 2)])
    return log


@pytest.fixture
def writer(log: LocalEventLog) -> Iterator[BlockWriter]:
    writer = BlockWriter(log, TOPIC, "0", 12, SeededEntropy(1))
    yield writer
    writer.close()
    writer.close()


def stored(log: LocalEventLog, partition: int) -> list[tuple[int, BlockHeaders, pa.Table]]:
    reader = log.reader(committed=False)
    reader.assign({TopicPartition(TOPIC, partition): 0})
    return [
        (o, BlockHeaders.decode(h), decode_block(v))
        for c in reader.fetch(1_000, 0)
        for o, v, h in zip(c.offsets, c.values, c.headers, strict=True)
    ]


def check(log: LocalEventLog, part: Part, expected: pa.Table) -> None:
    mine = [
        (offset, table)
        for offset, head, table in stored(log, part.partition)
        if (head.attempt, head.bucket, head.epoch, head.replica)
        == (part.attempt, part.bucket, 12, "0")
    ]
    assert [offset for offset, _ in mine] == list(range(part.offset_first, part.offset_next))
    assert pa.concat_tables([table for _, table in mine]).equals(expected)
    assert (part.blocks, part.rows, part.digest) == (len(mine), expected.num_rows, digest(expected))
    assert part.size_bytes == expected.nbytes


def test_a_part_per_partition_and_bucket_of_one_attempt(
    log: LocalEventLog, writer: BlockWriter
) -> None:
    parts = writer.write(
        [(0, 4, rows(0, 3)), (1, 4, rows(3, 1)), (0, 5, rows(4, 2)), (1, 6, rows(0, 0))]
    )
    assert [(p.partition, p.bucket, p.rows) for p in parts] == [(0, 4, 3), (1, 4, 1), (0, 5, 2)]
    assert len({p.attempt for p in parts}) == 1
    for part, table in zip(parts, (rows(0, 3), rows(3, 1), rows(4, 2)), strict=True):
        check(log, part, table)


def test_slices_of_one_bucket_and_partition_are_one_part(
    log: LocalEventLog, writer: BlockWriter
) -> None:
    """A part is named by attempt, partition and bucket: two of one name could not be told apart."""
    (part,) = writer.write([(0, 4, rows(0, 3)), (0, 4, rows(3, 2))])
    check(log, part, rows(0, 5))


def test_blocks_that_are_not_written_are_reported_as_if_they_were(
    log: LocalEventLog, writer: BlockWriter
) -> None:
    slices = [(0, 3, rows(1, 5)), (1, 3, rows(7, 2)), (0, 3, rows(9, 4)), (0, 4, rows(1, 0))]
    unwritten = UnwrittenBlocks().write(slices)
    assert stored(log, 0) == []

    def facts(parts: tuple[Part, ...]) -> list[tuple[int, int, int, int]]:
        return [(part.partition, part.bucket, part.rows, part.digest) for part in parts]

    assert facts(unwritten) == facts(writer.write(slices)) != []


def test_nothing_is_nothing(log: LocalEventLog, writer: BlockWriter) -> None:
    assert writer.write([]) == writer.write([(0, 4, rows(0, 0))]) == ()
    assert stored(log, 0) == []


def test_large_tables_are_several_blocks(log: LocalEventLog, writer: BlockWriter) -> None:
    big = rows(0, 2 * BLOCK_ROWS_MAX + 1)
    first, second = writer.write([(0, 4, big), (0, 5, rows(0, 1))])
    assert (first.blocks, second.blocks) == (3, 1)
    check(log, first, big)
    check(log, second, rows(0, 1))
    assert [head.number for _, head, _ in stored(log, 0)] == [0, 1, 2, 3]


@pytest.fixture
def _small_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "ROW_BYTES_MAX", 3_000)
    monkeypatch.setattr(blocks, "BLOCK_BYTES_MAX", 500)


def wide(*sizes: int) -> pa.Table:
    return pa.table({"n": ["x" * size for size in sizes], "event_time": [7] * len(sizes)})


@pytest.mark.usefixtures("_small_rows")
def test_a_notice_of_a_row_that_no_reader_takes_is_a_part_of_its_own(
    log: LocalEventLog, writer: BlockWriter
) -> None:
    some, none = wide(3, 9_000, 5), wide(9_000)
    with_row, notice, alone, other = writer.write([(0, 4, some), (0, 5, none), (1, 4, rows(0, 3))])
    assert [part.is_rejected for part in (with_row, notice, alone, other)] == [0, 1, 1, 0]
    assert (with_row.bucket, notice.bucket, alone.bucket) == (4, 4, 5)
    check(log, with_row, pa.concat_tables([some.slice(0, 1), some.slice(2, 1)]))
    for part, table in ((notice, some), (alone, none)):
        notices = separated(table)[1]
        assert notices is not None
        check(log, part, notices)
    unwritten = UnwrittenBlocks().write([(0, 4, some), (0, 5, none), (1, 4, rows(0, 3))])
    assert [(p.bucket, p.rows, p.digest, p.is_rejected) for p in unwritten] == [
        (p.bucket, p.rows, p.digest, p.is_rejected) for p in (with_row, notice, alone, other)
    ]


def test_what_is_begun_is_waited_for_later(log: LocalEventLog, writer: BlockWriter) -> None:
    assert writer.finish() == (), "nothing was begun"
    writer.begin([(0, 4, rows(0, 3)), (1, 5, rows(3, 1))])
    with pytest.raises(LocalProtocolError, match="not finished"):
        writer.begin([(0, 6, rows(4, 1))])
    first, second = writer.finish()
    check(log, first, rows(0, 3))
    check(log, second, rows(3, 1))
    assert writer.finish() == (), "it is finished"
    writer.begin([(0, 6, rows(4, 1))])
    (third,) = writer.finish()
    check(log, third, rows(4, 1))


@pytest.mark.parametrize("applied", [0, None])
def test_what_was_begun_is_held_until_it_is_in_the_log(
    log: LocalEventLog, writer: BlockWriter, applied: int | None
) -> None:
    writer.begin([(0, 4, rows(0, 3))])
    log.fail_next(FailingOperation.FLUSH, applied=applied, topic=TOPIC)
    (part,) = writer.finish()
    check(log, part, rows(0, 3))


def test_a_client_that_is_broken_at_the_beginning_is_replaced(
    log: LocalEventLog, writer: BlockWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = log.writer

    def broken() -> LogWriter:
        monkeypatch.setattr(log, "writer", opened)
        raise OutcomeUnknown("an earlier call said so")

    monkeypatch.setattr(log, "writer", broken)
    writer.begin([(0, 4, rows(0, 3))])
    (part,) = writer.finish()
    check(log, part, rows(0, 3))


@pytest.mark.parametrize("applied", [0, 1, -1, None])
def test_after_an_unknown_outcome_all_is_written_again_as_another_attempt(
    log: LocalEventLog, writer: BlockWriter, applied: int | None
) -> None:
    (before,) = writer.write([(0, 3, rows(9, 1))])
    log.fail_next(FailingOperation.FLUSH, applied=applied, topic=TOPIC)
    parts = writer.write([(0, 4, rows(0, 3)), (0, 5, rows(3, 1))])
    check(log, parts[0], rows(0, 3))
    check(log, parts[1], rows(3, 1))
    check(log, before, rows(9, 1))
    garbage = [
        head.attempt
        for _, head, _ in stored(log, 0)
        if head.attempt not in {before.attempt, parts[0].attempt}
    ]
    assert len(garbage) == (2 if applied is None else abs(applied))


def test_what_the_log_rejects_is_an_error_and_the_writer_can_be_used_again(
    log: LocalEventLog, writer: BlockWriter
) -> None:
    with pytest.raises(Unavailable):
        writer.write([(7, 4, rows(0, 1))])
    (part,) = writer.write([(0, 4, rows(0, 2))])
    check(log, part, rows(0, 2))


def test_blocks_of_an_attempt_that_failed_are_not_taken_for_the_next_ones(
    log: LocalEventLog, writer: BlockWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are such that they cannot be written; those of the next batch can."""
    (before,) = writer.write([(0, 3, rows(9, 1))])
    monkeypatch.setattr(
        module,
        "encode_block",
        lambda table: encode_block(table) if table.num_rows < 3 else spoilt(),
    )
    with pytest.raises(pa.ArrowInvalid):
        writer.write([(0, 4, rows(0, 2)), (0, 5, rows(2, 3))])
    parts = writer.write([(0, 6, rows(5, 1)), (1, 7, rows(6, 2))])
    check(log, before, rows(9, 1))
    check(log, parts[0], rows(5, 1))
    check(log, parts[1], rows(6, 2))


def spoilt() -> bytes:
    raise pa.ArrowInvalid("it cannot be encoded")


def test_a_log_that_never_says_what_became_of_it_is_given_up(
    log: LocalEventLog, writer: BlockWriter
) -> None:
    for _ in range(WRITE_TRIES_MAX - 1):
        log.fail_next(FailingOperation.FLUSH, applied=0, topic=TOPIC)
    (part,) = writer.write([(0, 4, rows(0, 2))])
    check(log, part, rows(0, 2))
    for _ in range(WRITE_TRIES_MAX):
        log.fail_next(FailingOperation.FLUSH, applied=0, topic=TOPIC)
    with pytest.raises(Unavailable, match="attempts to write"):
        writer.write([(0, 4, rows(0, 2))])
