"""From a bucket that nobody needs to offsets that may be deleted."""

from __future__ import annotations

from anabranch.protocol.control.trim_offsets import TrimOffsets
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.boundary_log import Outcome
from anabranch.protocol.log.records import (
    BoundaryKind,
    BoundaryRecord,
    BranchSnapshot,
    EpochStarted,
    LogSnapshot,
    Part,
    Recomputed,
    ReplicaSnapshot,
    StableRange,
    TentativeRange,
)

YES = Outcome(accepted=True, reason="accepted", replica="0")
NO = Outcome(accepted=False, reason="fenced", replica="0")


def part(bucket: int, first: int, after: int, partition: int = 0) -> Part:
    return Part(bucket, partition, "t", 1, first, after, 1, 0)


def record(*parts: Part, kind: BoundaryKind = BoundaryKind.STABLE) -> BoundaryRecord:
    return BoundaryRecord("0", 0, BatchId("a", 0), None, 0, parts, kind=kind)


def test_below_the_blocks_of_trimmed_buckets() -> None:
    offsets = TrimOffsets()
    offsets.seen(record(part(1, 0, 5), part(1, 0, 3, 1), part(2, 5, 9)), YES)
    assert offsets.below(0) == {}
    assert offsets.below(1) == {("0", 0): 5, ("0", 1): 3}
    assert offsets.below(2) == {("0", 0): 9, ("0", 1): 3}


def test_to1_a_later_bucket_keeps_what_stands_behind_it() -> None:
    offsets = TrimOffsets()
    offsets.seen(record(part(9, 2, 3), part(1, 3, 5)), YES)
    offsets.seen(record(part(1, 5, 7), part(9, 7, 8)), YES)
    assert offsets.below(1) == {("0", 0): 2}
    assert offsets.below(9) == {("0", 0): 8}


def test_to1_tentative_blocks_are_kept_too() -> None:
    offsets = TrimOffsets()
    offsets.seen(record(part(4, 2, 3), kind=BoundaryKind.TENTATIVE), YES)
    offsets.seen(record(part(1, 3, 5)), YES)
    assert offsets.below(1) == {("0", 0): 2}


def test_to2_tentative_blocks_say_nothing_of_stable_ones_to_come() -> None:
    offsets = TrimOffsets()
    offsets.seen(record(part(1, 0, 2)), YES)
    offsets.seen(record(part(2, 10, 20), kind=BoundaryKind.TENTATIVE), YES)
    assert offsets.below(2) == {("0", 0): 2}
    offsets.seen(record(part(2, 5, 9)), YES)
    assert offsets.below(2) == {("0", 0): 9}, "a bucket that is trimmed, by a slower replica"


def test_what_was_rejected_does_not_count() -> None:
    offsets = TrimOffsets()
    offsets.seen(record(part(1, 0, 2)), NO)
    offsets.seen(EpochStarted("0", "f", "t"), YES)
    assert offsets.below(1) == {}


def test_to3_offsets_never_fall() -> None:
    offsets = TrimOffsets()
    offsets.seen(record(part(3, 0, 9)), YES)
    assert offsets.below(3) == {("0", 0): 9}
    offsets.seen(record(part(5, 4, 6)), YES)  # of a writer that breaks the rules
    assert offsets.below(2) == {("0", 0): 9}


def test_recomputed_blocks_are_kept_and_say_nothing_of_stable_ones_to_come() -> None:
    offsets = TrimOffsets()
    offsets.seen(record(part(1, 0, 2), part(3, 2, 4)), YES)
    offsets.seen(Recomputed("0", 0, (part(1, 10, 12), part(3, 12, 14))), YES)
    assert offsets.below(1) == {("0", 0): 2}
    offsets.seen(Recomputed("0", 0, (part(1, 14, 16),)), YES)
    assert offsets.below(3) == {("0", 0): 4}, (
        "TO2: a stable record may still name blocks before those that were recomputed"
    )
    offsets.seen(record(part(4, 20, 22)), YES)
    assert offsets.below(4) == {("0", 0): 22}


def test_a_snapshot_names_all_that_is_above_the_trim_point() -> None:
    def stable(
        bucket: int, first: int, after: int, *, recomputed: bool = False, replica: str = "0"
    ) -> StableRange:
        return StableRange(bucket, bucket, replica, (part(bucket, first, after),), recomputed)

    ident = BatchId("a", 0)
    branches = BranchSnapshot(
        (0, 1),
        ident,
        9,
        9,
        ((ident, part(12, 50, 51)),),
        (TentativeRange(8, 9, (0, 1), (), (part(9, 60, 61),)),),
    )
    replica = ReplicaSnapshot(
        "0",
        0,
        "f",
        "s",
        9,
        0,
        (),
        (),
        ((ident, part(10, 30, 31)),),
        None,
        closed_parts=(part(6, 70, 71), part(7, 20, 21)),
        branches=branches,
    )
    ranges = (
        stable(4, 0, 10),
        stable(5, 10, 20),
        stable(6, 80, 81, recomputed=True),
        stable(7, 5, 6, replica="1"),
    )
    log_snapshot = LogSnapshot(
        8, 3, (replica, ReplicaSnapshot("1", 0, "f", "s", 7, 0, (), (), (), None)), ranges, 9
    )
    offsets = TrimOffsets()
    offsets.seen(log_snapshot, Outcome(accepted=False, reason="log_snapshot", replica=""))
    assert offsets.below(7) == {}
    offsets = TrimOffsets()
    offsets.seen(log_snapshot, Outcome(accepted=True, reason="adopted", replica=""))
    assert offsets.below(3) == {}
    assert offsets.below(4) == {("0", 0): 10}
    assert offsets.below(5) == {("0", 0): 20}
    assert offsets.below(7) == {("0", 0): 30, ("1", 0): 6}, "what is open comes next"
    assert offsets.below(10) == {("0", 0): 50, ("1", 0): 6}, "what a branch made of an open bucket"
    assert offsets.below(12) == {("0", 0): 71, ("1", 0): 6}, "TO2: of what stable records named"
