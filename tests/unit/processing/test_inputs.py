"""Tests of a stage's inputs with a broker that answers slowly."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from anabranch.adapters.memory.clock import SeededEntropy
from anabranch.adapters.memory.log import LocalEventLog, LocalLogReader
from anabranch.adapters.system.clock import SystemClock
from anabranch.codec.catalog import TopicSettings
from anabranch.pipeline.topic_names import TopicNames
from anabranch.ports import TopicPartition
from anabranch.processing.follower import InputFollower
from anabranch.processing.inputs import StageInputs
from anabranch.protocol.errors import Unavailable
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.records import BoundaryRecord, EpochStarted, Part, Recomputed
from anabranch.streams.boundary_reader import BoundaryReader
from anabranch.streams.boundary_writer import BoundaryWriter
from anabranch.streams.distant_reader import DistantReader
from harness.silent_cluster import SilentCluster
from harness.waiting import wait_until

NAMES = TopicNames("p")


def part(bucket: int) -> Part:
    """One block, at the offset that is its bucket's number."""
    return Part(bucket, 0, f"{bucket:016x}", 1, bucket, bucket + 1, 1, 0)


class Inputs:
    """One input ``a`` in memory, of which buckets 1 to 9 are closed, and a follower."""

    def __init__(self) -> None:
        self.log = LocalEventLog(SystemClock())
        self.changed = threading.Condition()
        clock = SystemClock()
        self.log.admin().create(
            [TopicSettings(NAMES.boundaries("a"), 1), TopicSettings(NAMES.blocks("a", "0"), 1)]
        )
        self.writer = BoundaryWriter(
            self.log,
            NAMES.boundaries("a"),
            ["0"],
            EpochStarted("0", "f", SeededEntropy(1).token()),
            clock,
        )
        self.writer.start()
        self.blocks = self.log.writer()
        for _ in range(12):
            self.blocks.send(TopicPartition(NAMES.blocks("a", "0"), 0), b"block")
        self.blocks.flush()
        self.close_upto(9)
        reader = BoundaryReader(self.log, NAMES.boundaries("a"), ["0"], lock=self.changed)
        self.follower = InputFollower("a", reader, self.changed)
        self.pauses = 0
        self.made = StageInputs(self.log, NAMES, {"a": self.follower}, self.changed, self._pause)
        self.follower.start()

    def _pause(self) -> None:
        self.pauses += 1
        assert self.pauses < 10_000
        threading.Event().wait(0.001)

    def close_upto(self, bucket: int) -> None:
        tip = self.writer.tip()
        first = 1 if tip is None else self.writer.log_state.closed("0") + 1
        parts = tuple(part(each) for each in range(first, bucket + 1))
        self.writer.append(
            BoundaryRecord("0", self.writer.epoch, BatchId("l", bucket), tip, bucket, parts)
        )

    def delete_before(self, offset: int) -> None:
        self.log.admin().delete_before({TopicPartition(NAMES.blocks("a", "0"), 0): offset})

    def upto(self) -> int:
        return self.follower.reader.log_state.upto


@pytest.fixture
def inputs() -> Iterator[Inputs]:
    made = Inputs()
    yield made
    made.follower.close()
    made.follower.join(10)


def test_what_is_gone_is_reported_and_requested(inputs: Inputs) -> None:
    assert inputs.made.complete() == 9
    assert (inputs.made.missing(0), inputs.made.last_gone(), inputs.made.gone()) == ("", 0, {})
    inputs.delete_before(6)
    assert inputs.made.last_gone() == 5
    assert inputs.made.missing(3) == "the blocks of a from bucket 4 on are deleted"
    assert inputs.made.missing(5) == ""
    inputs.made.missing(1)
    assert inputs.made.gone() == {"a": (4, 5)}, "after the start that lacks least"
    assert inputs.made.gone() == {}


def test_after_a_read_that_failed_blocks_are_proven_to_be_there(inputs: Inputs) -> None:
    """Blocks are lost and others are at their offsets, since their partition has grown."""
    assert inputs.made.missing(3) == ""
    inputs.made.prove_blocks(SystemClock())
    assert inputs.made.missing(3) == "the blocks of a from bucket 4 on are deleted"
    assert inputs.made.gone() == {"a": (4, 9)}


def test_what_was_forgotten_on_purpose_cannot_be_needed(inputs: Inputs) -> None:
    inputs.made.complete()
    inputs.made.forget(4)
    assert inputs.made.missing(4) == ""
    with pytest.raises(Unavailable, match="older checkpoint"):
        inputs.made.missing(3)
    with pytest.raises(Unavailable, match="older checkpoint"):
        inputs.made.forget(3)


def test_what_the_log_describes_no_more_is_reported(inputs: Inputs) -> None:
    inputs.made.complete()
    with inputs.changed:
        inputs.follower.reader.log_state.forget(3)
    assert "buckets 2..3 of a are trimmed" in inputs.made.missing(1)
    assert inputs.made.gone() == {}


def test_blocks_that_stand_elsewhere(inputs: Inputs) -> None:
    assert not inputs.made.recomputed(0)
    again = Part(7, 0, "f" * 16, 1, 11, 12, 1, 0)
    inputs.writer.append_other(Recomputed("0", inputs.writer.epoch, (again,)))
    assert inputs.made.recomputed(6)
    assert not inputs.made.recomputed(7)


@pytest.mark.parametrize("question", ["missing", "last_gone"])
def test_while_the_broker_is_asked_the_followers_go_on(
    inputs: Inputs, question: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs.made.complete()
    requested = threading.Event()
    answered = threading.Event()
    real = LocalLogReader.offsets

    def slow(
        reader: LocalLogReader, at: TopicPartition, wait_ms: int | None = None
    ) -> tuple[int, int]:
        if at.topic == NAMES.blocks("a", "0"):
            requested.set()
            assert answered.wait(20)
        return real(reader, at, wait_ms)

    monkeypatch.setattr(LocalLogReader, "offsets", slow)
    asks = threading.Thread(
        target=lambda: inputs.made.missing(0) if question == "missing" else inputs.made.last_gone(),
        daemon=True,
    )
    asks.start()
    try:
        assert requested.wait(20)
        inputs.close_upto(11)
        wait_until(lambda: inputs.upto() == 11, 20, "the follower")
        assert inputs.changed.acquire(timeout=20)
        inputs.changed.release()
    finally:
        answered.set()
        asks.join(20)
    assert not asks.is_alive()


class Elsewhere(Inputs):
    """The same, and an input ``b`` on another cluster."""

    def __init__(self) -> None:
        super().__init__()
        self.there = SilentCluster()
        self.there.admin().create(
            [TopicSettings(NAMES.boundaries("b"), 1), TopicSettings(NAMES.blocks("b", "0"), 1)]
        )
        started = EpochStarted("0", "f", SeededEntropy(2).token())
        self.theirs = BoundaryWriter(
            self.there, NAMES.boundaries("b"), ["0"], started, SystemClock()
        )
        self.theirs.start()
        parts = tuple(map(part, range(1, 8)))
        self.theirs.append(BoundaryRecord("0", self.theirs.epoch, BatchId("l", 1), None, 7, parts))
        blocks = self.there.writer()
        for _ in range(9):
            blocks.send(TopicPartition(NAMES.blocks("b", "0"), 0), b"block")
        blocks.flush()

    def begin(self) -> None:
        """Follow it."""

        def opened() -> BoundaryReader:
            return BoundaryReader(self.there, NAMES.boundaries("b"), ["0"], lock=self.changed)

        reader = DistantReader(self.there, NAMES.boundaries("b"), ["0"], opened)
        self.other = InputFollower("b", reader, self.changed)
        self.other.start()
        self.made = StageInputs(
            self.log,
            NAMES,
            {"a": self.follower, "b": self.other},
            self.changed,
            self._pause,
            {"b": self.there},
        )

    def end(self) -> None:
        for follower in (self.follower, self.other):
            follower.close()
            follower.join(10)


@pytest.fixture
def elsewhere() -> Iterator[Elsewhere]:
    made = Elsewhere()
    yield made
    made.end()


def test_what_is_on_another_cluster_is_asked_for_there(elsewhere: Elsewhere) -> None:
    elsewhere.begin()
    assert elsewhere.made.complete() == 7
    assert not elsewhere.made.recomputed(0)
    at = TopicPartition(NAMES.blocks("b", "0"), 0)
    elsewhere.there.admin().delete_before({at: 4})
    assert elsewhere.made.missing(0) == "the blocks of b from bucket 1 on are deleted"
    assert (elsewhere.made.missing(3), elsewhere.made.last_gone()) == ("", 3)


@pytest.mark.parametrize("is_silent_before", [True, False])
def test_of_a_cluster_that_does_not_answer_nothing_is_known(
    elsewhere: Elsewhere, *, is_silent_before: bool
) -> None:
    elsewhere.there.is_silent = is_silent_before
    elsewhere.begin()
    if not is_silent_before:
        assert elsewhere.made.complete() == 7
    elsewhere.there.is_silent = True
    assert (elsewhere.made.missing(0), elsewhere.made.last_gone()) == ("", 0)
    assert elsewhere.made.recomputed(0), "what was to be read there is planned anew"
    with pytest.raises(Unavailable, match="the cluster of b does not answer"):
        elsewhere.made.complete()
    elsewhere.delete_before(6)
    assert elsewhere.made.missing(3) == "the blocks of a from bucket 4 on are deleted"


def test_a_cluster_that_falls_silent_within_the_question_is_not_waited_for(
    elsewhere: Elsewhere,
) -> None:
    elsewhere.begin()
    elsewhere.made.complete()
    elsewhere.there.is_closed_to_us = True
    elsewhere.theirs.close()
    writer = elsewhere.there.writer()
    writer.send(TopicPartition(NAMES.boundaries("b"), 0), b"one more")
    writer.flush()
    assert elsewhere.made.missing(0) == ""
    assert elsewhere.made.recomputed(0)
