"""Tests of which blocks after a position are missing."""

from __future__ import annotations

from contextlib import closing

import pyarrow as pa
import pytest

from anabranch.adapters.memory.clock import SeededEntropy
from anabranch.adapters.memory.log import FailingOperation, LocalEventLog
from anabranch.adapters.memory.partition import Record
from anabranch.codec.catalog import TopicSettings
from anabranch.ports import TopicPartition
from anabranch.protocol.errors import Unavailable
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log import lost_blocks
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.records import BoundaryRecord, EpochStarted, Part
from anabranch.streams.block_heads import BlockHeads
from anabranch.streams.block_writer import BlockWriter
from anabranch.streams.gone_blocks import GoneBlocks, gone_range, last_gone
from harness.regrowth import lose_and_grow

PLACES = [TopicPartition("s.0", p) for p in (0, 1)]


@pytest.fixture
def log() -> LocalEventLog:
    made = LocalEventLog()
    made.admin().create([TopicSettings("s.0", 2)])
    writer = made.writer()
    for n in range(10):
        writer.send(PLACES[n % 2], b"%d" % n)
    writer.flush()
    return made


def log_state(upto: int = 5) -> LogState:
    """Bucket n has a block in each partition, at offset n - 1."""
    made = LogState("0")
    made.apply(0, EpochStarted("0", "f", "t"))
    parts = tuple(Part(b, p, "t", 1, b - 1, b, 1, 0) for b in range(1, upto + 1) for p in (0, 1))
    made.apply(1, BoundaryRecord("0", 0, BatchId("a", 0), None, upto, parts))
    return made


def test_the_range_that_is_gone(log: LocalEventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(after: int, of: LogState) -> tuple[int, int] | None:
        return gone_range(log.reader(), lambda writer: f"s.{writer}", of, after)

    of = log_state()
    assert [gone(after, of) for after in (0, 3, 5, 9)] == [None] * 4
    assert gone(0, LogState("0")) is None
    log.admin().delete_before({PLACES[1]: 3})
    assert [gone(after, of) for after in (0, 1, 3, 9)] == [(1, 3), (2, 3), None, None]
    monkeypatch.setattr(lost_blocks, "ASK_BUCKETS_MAX", 2)
    assert gone(0, of) == (1, 2), "what is gone beyond it is asked for afterwards"
    of.forget(3)
    assert gone(0, of) is None, "the log describes it no more"


def test_what_was_lost_with_the_disk_of_a_broker_is_gone(log: LocalEventLog) -> None:
    """The partition is there again, and begins anew at 0."""
    reader, of = log.reader(), log_state()
    log.admin().delete_topics(["s.0"])
    log.admin().create([TopicSettings("s.0", 2)])
    assert gone_range(reader, lambda writer: f"s.{writer}", of, 0) == (1, 5)
    writer = log.writer()
    for n in range(4):
        writer.send(PLACES[n % 2], b"%d" % n)
    writer.flush()
    assert gone_range(reader, lambda writer: f"s.{writer}", of, 0) == (3, 5)
    assert last_gone(reader, lambda writer: f"s.{writer}", of) == 0, "nobody had passed it"


class TestGrownAgain:
    """A partition that lost its blocks has grown past their offsets."""

    PLACE = TopicPartition("s.0", 0)

    @pytest.fixture
    def written(self) -> tuple[LocalEventLog, LogState]:
        """Buckets 1 to 5, each with a block of an attempt of its own in one partition."""
        log = LocalEventLog()
        log.admin().create([TopicSettings("s.0", 2)])
        of = LogState("0")
        of.apply(0, EpochStarted("0", "f", "t"))
        blocks = BlockWriter(log, "s.0", "0", 0, SeededEntropy(1))
        for bucket in range(1, 6):
            table = pa.table({"n": [bucket], "event_time": [bucket]})
            parts = blocks.write([(p, bucket, table) for p in (0, 1)])
            prev = BatchId("a", bucket - 1) if bucket > 1 else None
            of.apply(bucket, BoundaryRecord("0", 0, BatchId("a", bucket), prev, bucket, parts))
        blocks.close()
        return log, of

    def gone(
        self, log: LocalEventLog, of: LogState, after: int, *, proves: bool = True
    ) -> tuple[int, int] | None:
        with closing(BlockHeads(log, log.clock)) as heads:
            return gone_range(
                log.reader(), lambda w: f"s.{w}", of, after, heads=heads if proves else None
            )

    def test_what_is_there_is_not_gone(self, written: tuple[LocalEventLog, LogState]) -> None:
        assert [self.gone(*written, after) for after in (0, 3)] == [None, None]

    @pytest.mark.parametrize("proves", [False, True])
    def test_all_is_gone(self, written: tuple[LocalEventLog, LogState], proves: bool) -> None:
        log, of = written
        lose_and_grow(log, self.PLACE)
        assert self.gone(log, of, 2, proves=proves) == ((3, 5) if proves else None)

    def test_what_was_lost_up_to_some_offset_is_gone(
        self, written: tuple[LocalEventLog, LogState]
    ) -> None:
        log, of = written
        kept = [log.partition(self.PLACE).at(offset) for offset in range(3)]
        lose_and_grow(log, self.PLACE)
        log.partition(self.PLACE)._records[:3] = kept
        assert self.gone(log, of, 0) == (4, 5)

    def test_what_is_no_block_at_all_is_not_the_one(
        self, written: tuple[LocalEventLog, LogState]
    ) -> None:
        log, of = written
        log.partition(self.PLACE)._records[3] = Record(b"other")
        assert self.gone(log, of, 0) == (4, 4)

    def test_a_damaged_record_cannot_be_read(self, written: tuple[LocalEventLog, LogState]) -> None:
        log, of = written
        log.damage(self.PLACE, 1)
        assert self.gone(log, of, 0) == (2, 2)

    def test_a_log_that_does_not_answer_is_no_loss(
        self, written: tuple[LocalEventLog, LogState]
    ) -> None:
        log, of = written
        log.fail_next(FailingOperation.FETCH, error=Unavailable, topic="s.0")
        with pytest.raises(Unavailable):
            self.gone(log, of, 0)

    @pytest.mark.parametrize("are_gone", [False, True])
    def test_what_a_process_may_not_read_counts_as_its_caller_says(
        self, written: tuple[LocalEventLog, LogState], are_gone: bool
    ) -> None:
        """It is not tried again, bucket after bucket."""
        log, of = written
        log.fail_next(FailingOperation.FETCH, error=Unavailable, topic="s.0")
        with closing(BlockHeads(log, log.clock)) as heads:
            blocks = GoneBlocks(log.reader(), lambda w: f"s.{w}", heads, unread_are_gone=are_gone)
            stable = of.stable(1, 5)
            assert [blocks.is_gone(w, parts) for _, w, parts in stable] == [are_gone] * 5
            assert blocks.gone(stable) == ([1, 2, 3, 4, 5] if are_gone else [])

    def test_several_parts_of_a_partition_are_each_proven(
        self, written: tuple[LocalEventLog, LogState]
    ) -> None:
        log, of = written
        parts = [part for _, _, those in of.stable(1, 5) for part in those]
        with closing(BlockHeads(log, log.clock)) as heads:
            assert heads.are_held("s.0", reversed(parts))
            log.partition(self.PLACE)._records[2] = Record(b"other")
            assert not heads.are_held("s.0", parts)
            heads.close()
            assert heads.are_held("s.0", parts[:2]), "it opens another client"


def test_blocks_that_were_written_since_the_last_question_are_not_gone(
    log: LocalEventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = log.reader()
    asked, offsets = list[TopicPartition](), reader.offsets

    def counted(at: TopicPartition, wait_ms: int | None = None) -> tuple[int, int]:
        asked.append(at)
        return offsets(at, wait_ms)

    monkeypatch.setattr(reader, "offsets", counted)
    blocks = GoneBlocks(reader, lambda writer: f"s.{writer}")
    parts = [Part(b, 0, "t", 1, b - 1, b, 1, 0) for b in range(1, 10)]
    assert [blocks.is_gone("0", [part]) for part in parts] == [False] * 5 + [True] * 4
    before = len(asked)
    assert [blocks.is_gone("0", [part]) for part in parts[5:]] == [True] * 4
    assert len(asked) == before, "they are not asked for again"
    writer = log.writer()
    for _ in range(5):
        writer.send(PLACES[0], b"more")
    writer.flush()
    assert not blocks.is_gone("0", [Part(10, 0, "t", 1, 9, 10, 1, 0)])


def test_the_last_bucket_that_is_gone(log: LocalEventLog) -> None:
    """A new reader leaves out what no replica has, in any partition, and what no log describes."""
    reader = log.reader()
    assert last_gone(reader, lambda writer: f"s.{writer}", log_state()) == 0
    assert last_gone(reader, lambda writer: f"s.{writer}", LogState("0")) == 0
    of = log_state()
    of.forget(2)
    assert last_gone(reader, lambda writer: f"s.{writer}", of) == 2
    log.admin().delete_before({PLACES[1]: 3})
    assert last_gone(reader, lambda writer: f"s.{writer}", log_state()) == 3


@pytest.mark.parametrize(("digest", "expected"), [(0, 0), (1, 3)])
def test_what_another_writer_has_too_is_not_gone(
    log: LocalEventLog, digest: int, expected: int
) -> None:
    log.admin().create([TopicSettings("s.1", 2)])
    blocks = log.writer()
    for n in range(10):
        blocks.send(TopicPartition("s.1", n % 2), b"%d" % n)
    blocks.flush()
    log.admin().delete_before({PLACES[1]: 3})
    both = LogState("01")
    for offset, writer in enumerate("01"):
        both.apply(offset, EpochStarted(writer, "f", "t"))
        parts = tuple(
            Part(b, p, "t", 1, b - 1, b, 1, digest * offset) for b in range(1, 6) for p in (0, 1)
        )
        both.apply(2 + offset, BoundaryRecord(writer, offset, BatchId(writer, 0), None, 5, parts))
    assert last_gone(log.reader(), lambda writer: f"s.{writer}", both) == 3
    assert last_gone(log.reader(), lambda writer: f"s.{writer}", both, by_any=True) == expected
