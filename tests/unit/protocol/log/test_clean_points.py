"""At which batches a peer's checkpoint may be copied."""

from __future__ import annotations

from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import CHECKPOINT_BATCHES_RETAINED
from anabranch.protocol.log.boundary_log import LogState, Outcome
from anabranch.protocol.log.clean_points import CleanPoints
from anabranch.protocol.log.records import (
    BoundaryKind,
    BoundaryRecord,
    EpochStarted,
    LogEntry,
    Part,
)


class Log:
    """A stage of the replicas 0, 1, 2, and who listens to 0 and 1."""

    def __init__(self) -> None:
        self.log_state = LogState("012")
        self.points = CleanPoints("01", "2")
        self.offset = 0
        for replica in "012":
            self.add(EpochStarted(replica, "f", "token"))

    def add(self, entry: LogEntry) -> None:
        self.points.seen(self.log_state, entry, self.log_state.apply(self.offset, entry))
        self.offset += 1

    def batch(
        self,
        batch: int,
        closed: int,
        *buckets: int,
        prev: int | None,
        timeline: str = "a",
        replica: str = "0",
    ) -> None:
        parts = tuple(Part(bucket, 0, "t", 1, 0, 1, 1, 0) for bucket in buckets)
        before = None if prev is None else BatchId("a", prev)
        self.add(
            BoundaryRecord(
                replica, "012".index(replica), BatchId(timeline, batch), before, closed, parts
            )
        )

    def base(
        self,
        batch: int,
        *,
        timeline: str = "a",
        replica: str = "0",
        fingerprint: str = "f",
        upto: int = 10_000,
    ) -> int | None:
        return self.points.base(replica, BatchId(timeline, batch), fingerprint, upto)


def test_cp1_nothing_that_was_begun_is_the_copys() -> None:
    log = Log()
    log.batch(0, 4, 3, prev=None)
    log.batch(1, 6, 5, 9, 8, prev=0)
    log.batch(2, 8, prev=1)
    log.batch(3, 9, prev=2)
    assert [log.base(batch) for batch in range(5)] == [4, 9, 9, 9, None]
    assert [log.base(batch, upto=log.log_state.upto) for batch in range(5)] == [4, 9, 9, 9, None]
    assert [log.base(batch, upto=8) for batch in range(5)] == [4, None, None, None, None], (
        "it is not stable yet"
    )


def test_cp4_what_was_cut_off_is_no_point() -> None:
    log = Log()
    log.batch(0, 4, prev=None)
    log.batch(1, 6, prev=0)
    log.batch(2, 8, prev=1)
    log.batch(1, 7, prev=0, timeline="b")
    assert [log.base(batch) for batch in range(3)] == [4, None, None]
    assert log.base(1, timeline="b") == 8, (
        "what was closed stays closed: nothing up to it is the copy's"
    )
    log.batch(0, 9, prev=None, timeline="c")
    assert log.base(0) is None
    assert log.base(0, timeline="c") == 9


def test_cp2_a_point_is_of_the_same_plan() -> None:
    log = Log()
    log.batch(0, 4, prev=None)
    log.add(EpochStarted("0", "g", "token"))
    assert log.base(0) == 4
    assert log.base(0, fingerprint="g") is None
    record = BoundaryRecord("0", log.offset - 1, BatchId("b", 1), BatchId("a", 0), 5)
    log.add(record)
    assert log.base(1, timeline="b") is None
    assert log.base(1, timeline="b", fingerprint="g") == 5


def test_what_does_not_count_is_no_point() -> None:
    log = Log()
    log.add(EpochStarted("3", "f", "token"))
    assert log.points.base("3", BatchId("a", 0), "f", 9) is None, "nobody listens to it"
    log.batch(0, 4, prev=7)
    assert log.base(0) is None, "rejected"
    tentative = BoundaryRecord(
        "1", 1, BatchId("a", 0), None, 4, base=0, kind=BoundaryKind.TENTATIVE, branch=(1, 1)
    )
    log.add(tentative)
    assert log.base(0, replica="1") is None


def test_records_of_one_that_nobody_copies_from_are_no_points() -> None:
    log = Log()
    log.points = CleanPoints("0", "1")
    for replica in "20":
        log.batch(0, 4, prev=None, replica=replica)
    assert (log.base(0, replica="2"), log.base(0)) == (None, 4)


def test_cp3_old_points_are_forgotten() -> None:
    log = Log()
    for batch in range(3 * CHECKPOINT_BATCHES_RETAINED):
        log.batch(batch, batch + 1, prev=batch - 1 if batch else None)
    assert log.base(0) is None
    assert log.base(2 * CHECKPOINT_BATCHES_RETAINED) is not None


def test_cp4_the_own_records_that_were_cut_off_are_known() -> None:
    log = Log()
    for replica in "02":
        log.batch(0, 4, prev=None, replica=replica)
        log.batch(1, 6, 9, prev=0, replica=replica)
        log.batch(2, 8, prev=1, replica=replica)
        log.batch(1, 7, prev=0, timeline="b", replica=replica)
    found = [log.points.cut_off_base(BatchId("a", batch), "f", 9) for batch in range(4)]
    assert found == [None, 9, 9, None], "the first may be continued, and the last never was"
    assert log.points.cut_off_base(BatchId("a", 1), "f", 8) is None, "it is not stable yet"
    assert log.points.cut_off_base(BatchId("a", 1), "g", 9) is None
    assert log.base(1, replica="2") is None


def test_cp5_of_a_snapshot_the_tips_are_points() -> None:
    log = Log()
    log.batch(0, 4, prev=None)
    log.batch(1, 6, 9, prev=0)
    log.batch(3, 5, prev=None, replica="1")
    log.add(EpochStarted("1", "g", "token"))
    log_snapshot = log.log_state.snapshot(log.offset)
    again = Log()
    again.log_state = LogState("012")
    again.points = CleanPoints("01")
    again.offset = log.offset
    again.log_state.adopt(log_snapshot)
    again.points.seen(
        again.log_state, log_snapshot, Outcome(accepted=False, reason="log_snapshot", replica="")
    )
    assert again.base(1) is None
    again.points.seen(
        again.log_state, log_snapshot, Outcome(accepted=True, reason="adopted", replica="")
    )
    assert [again.base(batch) for batch in (0, 1)] == [None, 9]
    assert again.base(3, replica="1") == 5, "made by the plan before its newest epoch"
    assert again.points.base("1", BatchId("a", 3), "g", 9) is None
    again.batch(2, 9, prev=1)
    assert [again.base(batch) for batch in (1, 2)] == [9, 9]
