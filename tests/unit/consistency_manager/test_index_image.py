"""Image of the index."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from anabranch.consistency_manager import index_image
from anabranch.consistency_manager.index_image import (
    ENTRY_LIFETIME_MS,
    REWRITE_MS,
    IndexImage,
    IndexWrite,
)
from anabranch.protocol import limits
from anabranch.protocol.control.failure_detector import OBSERVED_STEP_MS
from anabranch.protocol.control.records import Heartbeat, TrimPoint
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.records import BoundaryKind, BoundaryRecord, EpochStarted, LogEntry

PROCESS = "anabranch:p:process:processing:stage:0"


@dataclass
class Log:
    """Boundary log of two writers with its log state, and the image made from it."""

    offset: int = -1
    tips: dict[str, BatchId] = field(default_factory=dict)
    image: IndexImage = field(default_factory=lambda: IndexImage("p"))

    def __post_init__(self) -> None:
        self.log_state = LogState("01")
        for writer in "01":
            self.take(EpochStarted(writer, "f", "t"))

    def take(self, entry: LogEntry) -> None:
        self.offset += 1
        assert self.log_state.apply(self.offset, entry).accepted
        if isinstance(entry, BoundaryRecord):
            self.image.boundary("s", self.offset, entry, self.log_state)

    def close(self, writer: str, upto: int, **other: object) -> None:
        """Return a record without rows; its epoch is that of the start."""
        before = self.tips.get(writer)
        ident = BatchId(f"l{writer}", before.batch + 1 if before else 1)
        epoch = self.log_state.epoch(writer)
        self.take(
            BoundaryRecord(writer, epoch, ident, before, upto, (), **other)  # type: ignore[arg-type]
        )
        self.tips[writer] = ident


@pytest.fixture
def log() -> Log:
    return Log()


def write_all(image: IndexImage, now_ms: int = 0) -> list[IndexWrite]:
    found = []
    while (write := image.next_write(now_ms)) is not None:
        assert image.next_write(now_ms) == write
        image.written(write, now_ms)
        found.append(write)
    return found


def beat(
    name: str = "stage", replica: str = "0", epoch: int = 1, state: str = "stable", at: int = 1_000
) -> Heartbeat:
    return Heartbeat("processing", name, replica, epoch, state, 9, at)


def test_a_begun_log_is_in_the_index_by_the_tips_of_its_chains(log: Log) -> None:
    log.close("0", 4)
    log_snapshot = log.log_state.snapshot(log.offset + 1)
    again, image = LogState("01"), IndexImage("p")
    again.adopt(log_snapshot)
    image.adopted("s", log_snapshot, again)
    written = {write.key: write.fields for write in write_all(image)}
    assert written["anabranch:p:stream:s"] == {"upto": "4"}
    tip = written["anabranch:p:boundary:s:0"]
    assert tip is not None
    assert (tip["offset"], tip["bucket"], tip["batch"]) == ("", "4", "1")
    assert "anabranch:p:boundary:s:1" not in written
    alone = LogState("1")
    alone.adopt(log_snapshot)
    image = IndexImage("p")
    image.adopted("s", log_snapshot, alone)
    assert [write.key for write in write_all(image)] == ["anabranch:p:stream:s"], (
        "0 is a writer no more"
    )


def test_cx2_the_image_holds_the_tip_and_is_written_whole_again(log: Log) -> None:
    log.close("0", 3, written_ms=77)
    log.close("0", 5)
    by_key = {w.key: w for w in write_all(log.image)}
    assert by_key["anabranch:p:boundary:s:0"].fields == {
        "offset": "3",
        "bucket": "5",
        "epoch": "0",
        "timeline": "l0",
        "batch": "2",
        "fingerprint": "f",
        "written_ms": "0",
    }
    assert by_key["anabranch:p:stream:s"].fields == {"upto": "5"}
    assert write_all(log.image) == []
    log.close("1", 6)
    assert set(by_key) > {w.key for w in write_all(log.image)} - {"anabranch:p:boundary:s:1"}
    everything = {*by_key, "anabranch:p:boundary:s:1"}
    log.image.heartbeat(beat(), 0)
    assert [w.key for w in write_all(log.image)] == [PROCESS]
    assert write_all(log.image, REWRITE_MS - 1) == []
    log.close("0", 7)
    fresh = {"anabranch:p:boundary:s:0", "anabranch:p:stream:s"}
    assert {w.key for w in write_all(log.image, REWRITE_MS - 1)} == fresh
    assert {w.key for w in write_all(log.image, REWRITE_MS)} == {*everything, PROCESS} - fresh
    assert {w.key for w in write_all(log.image, 2 * REWRITE_MS)} == {*everything, PROCESS}


def test_what_the_log_of_a_stream_said_is_not_written_again_when_it_is_forgotten(log: Log) -> None:
    log.image.heartbeat(beat(), 0)
    log.close("0", 3)
    write_all(log.image)
    log.close("1", 4)
    log.image.trim(TrimPoint("s", 2, 5))
    log.image.forget("s")
    assert [w.key for w in write_all(log.image)] == ["anabranch:p:trim:s"]
    assert log.image.is_written
    again = {w.key: w.expire_ms for w in write_all(log.image, REWRITE_MS)}
    assert again.keys() == {"anabranch:p:trim:s", PROCESS}
    assert again["anabranch:p:trim:s"] == ENTRY_LIFETIME_MS


def test_cx4_a_manager_that_hears_nobody_writes_what_changes_and_nothing_again(log: Log) -> None:
    log.image.heartbeat(beat(), 0)
    log.close("0", 3)
    write_all(log.image)
    now_ms = 0
    while log.image.states(now_ms):
        now_ms += OBSERVED_STEP_MS
    assert write_all(log.image, now_ms) == []
    log.close("0", 4)
    assert len(write_all(log.image, now_ms)) == 2
    log.image.heartbeat(beat(), now_ms)
    assert len(write_all(log.image, now_ms + REWRITE_MS)) == 3


def test_a_tentative_record_is_in_the_index_apart_from_the_stable_ones(log: Log) -> None:
    log.close("0", 3)
    before = {write.key: write.fields for write in write_all(log.image)}
    log.close("0", 5, kind=BoundaryKind.TENTATIVE, branch=(0, 1), base=3, missing=("a", "b"))
    (write,) = write_all(log.image)
    assert (write.key, write.fields) == (
        "anabranch:p:tentative:s:0",
        {"bucket": "5", "branch": "0.1", "missing": "a,b"},
    )
    assert before["anabranch:p:boundary:s:0"] is not None


def test_trim_points_are_in_the_index(log: Log) -> None:
    log.image.trim(TrimPoint("s", 40, 5))
    found = {write.key: write.fields for write in write_all(log.image)}
    assert found["anabranch:p:trim:s"] == {"bucket": "40"}


def test_a_heartbeat_is_in_the_index_with_all_that_it_says() -> None:
    image = IndexImage("p")
    image.heartbeat(
        replace(
            beat(),
            replica_state="up_failure",
            branch=2,
            checkpoint="l",
            checkpoint_bucket=6,
            corrects=True,
        ),
        1_000,
    )
    (write,) = write_all(image, 1_000)
    assert write.fields is not None
    assert {
        k: v
        for k, v in write.fields.items()
        if k not in ("service", "name", "replica", "epoch", "state", "bucket", "written_ms")
    } == {
        "replica_state": "up_failure",
        "branch": "2",
        "checkpoint": "l",
        "checkpoint_bucket": "6",
        "corrects": "1",
    }


def test_heartbeats_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    image = IndexImage("p")
    assert image.heartbeat(beat(), 1_000)
    (write,) = write_all(image, 1_000)
    assert (write.key, write.expire_ms) == (
        PROCESS,
        limits.HEARTBEAT_LIFETIME_MS,
    )
    assert image.heartbeat(beat(epoch=0, state="zombie"), 1_000)
    assert image.states(1_000) == {"processing:stage:0": "stable"}
    assert write_all(image, 1_000) == []
    late = 1_001 + limits.HEARTBEAT_LIFETIME_MS
    for now_ms in range(2_000, late, OBSERVED_STEP_MS):
        assert image.states(now_ms) == {"processing:stage:0": "stable"}
        ends = [now_ms + write.expire_ms for write in write_all(image, now_ms)]
        assert set(ends) <= {1_000 + limits.HEARTBEAT_LIFETIME_MS}
    assert write_all(image, late) == []
    assert image.states(late) == {}
    monkeypatch.setattr(index_image, "HEARTBEATS_MAX", 1)
    assert image.heartbeat(beat(), late)
    assert not image.heartbeat(beat(replica="1"), late)


@pytest.mark.parametrize("ahead_ms", [-3_600_000, 3_600_000])
def test_cx3_a_process_with_a_wrong_clock_is_there_as_long_as_it_is_heard(ahead_ms: int) -> None:
    image, now_ms = IndexImage("p"), 10_000_000
    for _ in range(30):
        now_ms += OBSERVED_STEP_MS
        assert image.heartbeat(beat(at=now_ms + ahead_ms), now_ms)
        assert [write.key for write in write_all(image, now_ms)]
        assert image.states(now_ms) == {"processing:stage:0": "stable"}
    for _ in range(limits.HEARTBEAT_LIFETIME_MS // OBSERVED_STEP_MS + 1):
        now_ms += OBSERVED_STEP_MS
        image.states(now_ms)
    assert image.states(now_ms) == {}


def test_cx3_a_manager_that_slept_hears_before_it_forgets() -> None:
    image = IndexImage("p")
    image.heartbeat(beat(), 1_000)
    assert image.states(3_600_000) == {"processing:stage:0": "stable"}
