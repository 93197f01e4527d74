"""Tests of what may be trimmed, with every doubt, and up to which offsets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from anabranch.protocol.control.failure_detector import OBSERVED_STEP_MS, Peer
from anabranch.protocol.control.records import Heartbeat, TrimPoint
from anabranch.protocol.control.trimming import (
    TRIM_HALF_MS,
    TRIM_SPANS_MAX,
    ReadingStage,
    Trimming,
    TrimOffsets,
    readers_of,
)
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import BUCKET_MAX, TRIM_EVERY_MS
from anabranch.protocol.log import writer
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

NOW = 1_700_000_000_000
LONG_MS = 60_000
"""In place of a day."""
STAGE = [Peer("processing", "tolls", r) for r in "01"]
OUTPUT = Peer("delivery", "out", "0")


def beat(
    reader: Peer,
    bucket: int,
    *,
    epoch: int = 1,
    written_ms: int = NOW,
    closed: int = 99,
    life: str = "",
) -> Heartbeat:
    return Heartbeat(
        *(reader.service, reader.name, reader.replica),
        epoch,
        "running",
        closed,
        written_ms,
        checkpoint_bucket=bucket,
        life=life,
    )


@pytest.fixture
def trimming(monkeypatch: pytest.MonkeyPatch) -> Trimming:
    monkeypatch.setattr("anabranch.protocol.control.trimming.TRIM_READER_MS", LONG_MS)
    return Trimming({"reports": STAGE, "tolls": [OUTPUT], "unread": []})


def test_tm7_whoever_may_read_a_stream_counts() -> None:
    stages = [
        ReadingStage("tolls", ["reports", "elsewhere"], "01"),
        ReadingStage("bills", ["tolls", "reports"], ["0"], standbys="01"),
    ]
    bills = [Peer("processing", "bills", "0"), *(Peer("standby", "bills", p) for p in "01")]
    assert readers_of(["reports", "tolls", "bills"], stages, {"out": "tolls", "also": "tolls"}) == {
        "reports": [*STAGE, *bills],
        "tolls": [*bills, OUTPUT, Peer("delivery", "also", "0")],
        "bills": [],
    }


def test_tm2_the_least_of_the_readers_and_of_what_is_stable(trimming: Trimming) -> None:
    for reader, bucket in ((STAGE[0], 7), (STAGE[1], 5), (OUTPUT, 20)):
        trimming.receive(beat(reader, bucket), NOW)
    found = trimming.due(NOW, {"reports": 9, "tolls": 12}, wall_ms=NOW)
    assert found == [TrimPoint("reports", 5, NOW), TrimPoint("tolls", 12, NOW)]
    assert (trimming.point("reports"), trimming.point("tolls"), trimming.point("unread")) == (
        5,
        12,
        0,
    )


def passes(trimming: Trimming, now_ms: int, duration_ms: int, *beats: Heartbeat) -> int:
    """Time is observed; ``beats`` are heard now and then. Returns what time it is."""
    for step in range(duration_ms // OBSERVED_STEP_MS):
        now_ms += OBSERVED_STEP_MS
        for beat in beats if step % 30 == 0 else ():
            trimming.receive(beat, now_ms)
        trimming.due(now_ms, {}, wall_ms=now_ms)
    return now_ms


def test_tm3_a_reader_never_heard_holds_it_back_for_a_day(trimming: Trimming) -> None:
    trimming.receive(beat(STAGE[0], 7), NOW)
    assert trimming.due(NOW, {"reports": 9}, wall_ms=NOW) == []
    late = NOW + LONG_MS
    trimming.receive(beat(STAGE[0], 8), late)
    assert trimming.due(late, {"reports": 9}, wall_ms=late) == [], (
        "a clock that jumped has not waited"
    )
    late = passes(trimming, late, LONG_MS, beat(STAGE[0], 8))
    assert trimming.due(late, {"reports": 9}, wall_ms=late) == [TrimPoint("reports", 8, late)]


def trimmed(*beats: Heartbeat) -> int:
    """Return the trim point of the stream that OUTPUT reads after ``beats``; 0: none."""
    trimming = Trimming({"tolls": [OUTPUT]})
    for number, each in enumerate(beats):
        trimming.receive(each, NOW + number)
    trimming.due(NOW + len(beats), {"tolls": 99}, wall_ms=NOW)
    return trimming.point("tolls")


def test_tm10_what_was_claimed_before_and_arrives_late_raises_no_lower_claim() -> None:
    before, lower = beat(OUTPUT, 9, closed=12), beat(OUTPUT, 5, closed=12)
    assert trimmed(before, lower) == 5
    assert trimmed(before, lower, before) == 5
    assert trimmed(before, lower, before, before) == 5, "nor does it the second time"
    assert trimmed(before, lower, beat(OUTPUT, 9, closed=11)) == 5


def test_tm10_a_second_late_one_that_claims_even_less_does_not_change_that() -> None:
    before, lower = beat(OUTPUT, 9, closed=12), beat(OUTPUT, 5, closed=12)
    late = beat(OUTPUT, 3, closed=10)
    assert trimmed(before, lower, late) == 3
    assert trimmed(before, lower, late, before) == 3
    assert trimmed(before, lower, late, beat(OUTPUT, 5, closed=13)) == 5


def test_tm10_a_later_bucket_raises_it_again() -> None:
    lowered = beat(OUTPUT, 9, closed=12), beat(OUTPUT, 5, closed=12)
    assert trimmed(*lowered, beat(OUTPUT, 6, closed=12)) == 5, "which of the two came late?"
    assert trimmed(*lowered, beat(OUTPUT, 6, closed=13)) == 6
    assert trimmed(*lowered, beat(OUTPUT, 6, closed=13), beat(OUTPUT, 7, closed=13)) == 7


def test_tm10_who_has_lowered_nothing_claims_more_of_the_same_bucket() -> None:
    """The results of a stream that has ended close nothing more."""
    assert trimmed(beat(OUTPUT, 5, closed=12), beat(OUTPUT, 9, closed=12)) == 9


@pytest.mark.parametrize("change", [{"epoch": 2}, {"life": "b"}])
def test_tm10_another_epoch_and_another_life_count_anew(change: dict[str, Any]) -> None:
    lowered = beat(OUTPUT, 9, closed=12), beat(OUTPUT, 5, closed=12)
    assert trimmed(*lowered, beat(OUTPUT, 8, closed=3, **change)) == 8
    anew = beat(OUTPUT, 8, closed=3, **change), beat(OUTPUT, 9, closed=3, **change)
    assert trimmed(*lowered, *anew) == 9


def test_tm10_one_of_an_older_epoch_lets_no_later_one_raise_the_claim() -> None:
    claim, lower = (beat(OUTPUT, bucket, epoch=2, closed=12) for bucket in (9, 5))
    assert trimmed(claim, lower, beat(OUTPUT, 9), claim) == 5


STANDBY = Peer("standby", "tolls", "1")


def claimed(primary: Heartbeat, *claims: Heartbeat) -> int:
    """Return the trim point of the stream that a stage reads, of which one process stands by."""
    trimming = Trimming({"reports": [STAGE[0], STANDBY]})
    for number, each in enumerate((primary, *claims)):
        trimming.receive(each, NOW + number)
    trimming.due(NOW + 9, {"reports": 99}, wall_ms=NOW)
    return trimming.point("reports")


def test_tm11_a_claim_from_before_a_later_primary_wrote_trims_nothing() -> None:
    """The process is away, and the later primary went on from an older checkpoint."""
    assert claimed(beat(STAGE[0], 9), beat(STANDBY, 7)) == 7
    assert claimed(beat(STAGE[0], 9, epoch=5), beat(STANDBY, 7)) == 0
    assert claimed(beat(STAGE[0], 9, epoch=5), beat(STANDBY, 7), beat(STANDBY, 6, epoch=5)) == 6
    assert claimed(beat(STAGE[0], 9, epoch=5), beat(STANDBY, 7, epoch=8)) == 7, "it heard first"
    assert claimed(beat(STAGE[0], 9, life="b"), beat(STANDBY, 7, life="a")) == 0


def test_tm11_where_no_primary_was_heard_nothing_is_trimmed() -> None:
    assert claimed(beat(STANDBY, 7)) == 0


def sold(monkeypatch: pytest.MonkeyPatch) -> Trimming:
    """Return the trimming of a stream that a stage and an output read, of which others may run the
    stage.
    """
    monkeypatch.setattr("anabranch.protocol.control.trimming.TRIM_READER_MS", LONG_MS)
    return Trimming({"reports": [STAGE[0], OUTPUT]}, others=STAGE[:1])


@pytest.mark.parametrize("epoch", [0, 1, 2**62])
@pytest.mark.parametrize("claimed", [0, BUCKET_MAX])
def test_tm9_what_a_partner_says_of_its_checkpoint_trims_nothing_and_keeps_nothing(
    monkeypatch: pytest.MonkeyPatch, claimed: int, epoch: int
) -> None:
    trimming = sold(monkeypatch)
    trimming.receive(beat(OUTPUT, 20), NOW)
    trimming.receive(beat(STAGE[0], claimed, epoch=epoch), NOW)
    assert trimming.due(NOW, {"reports": 9}, wall_ms=NOW) == [], "its log is not read"
    assert trimming.due(NOW, {"reports": 9}, wall_ms=NOW, unneeded={"tolls": 0}) == []
    found = trimming.due(NOW, {"reports": 9}, wall_ms=NOW, unneeded={"tolls": 4})
    assert [point.bucket for point in found] == [4]
    later = NOW + TRIM_EVERY_MS
    assert trimming.due(later, {"reports": 9}, wall_ms=later) == [], "its log cannot be read now"
    found = trimming.due(later, {"reports": 9}, wall_ms=later, unneeded={"tolls": BUCKET_MAX})
    assert [point.bucket for point in found] == [9]


def test_tm9_an_epoch_that_a_partner_makes_up_hides_no_sign_of_life(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the owner's node would count as gone after a day, and its input be deleted."""
    trimming = sold(monkeypatch)
    trimming.receive(beat(STAGE[0], BUCKET_MAX, epoch=2**62), NOW)
    late = passes(trimming, NOW, 2 * LONG_MS, beat(OUTPUT, 20), beat(STAGE[0], 1, epoch=5))
    assert trimming.due(late, {"reports": 9}, wall_ms=late, unneeded={"tolls": 0}) == []


def test_tm9_results_are_signs_of_life_too_and_who_shows_none_holds_nothing_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trimming, now_ms = sold(monkeypatch), NOW
    for step in range(3):
        now_ms = passes(trimming, now_ms, LONG_MS, beat(OUTPUT, 20))
        upto = step + 1
        found = trimming.due(now_ms, {"reports": 9}, wall_ms=now_ms, unneeded={"tolls": upto})
        assert [point.bucket for point in found] == [upto]
    for _ in range(2 * LONG_MS // OBSERVED_STEP_MS):
        now_ms += OBSERVED_STEP_MS
        trimming.receive(beat(OUTPUT, 20), now_ms)
        trimming.due(now_ms, {"reports": 9}, wall_ms=now_ms, unneeded={"tolls": 3})
    assert trimming.point("reports") == 9, "as any reader that is away for a day"


def test_tm9_a_half_at_a_partner_that_never_ran_holds_nothing_back() -> None:
    trimming = Trimming({"reports": STAGE}, halves={STAGE[1]: "s"}, others=[STAGE[1]])
    trimming.receive(beat(STAGE[0], 7), NOW)
    assert [p.bucket for p in trimming.due(NOW, {"reports": 9}, wall_ms=NOW)] == [7]


def test_tm3_a_half_that_never_ran_holds_nothing_back() -> None:
    trimming = Trimming({"reports": STAGE}, halves={STAGE[1]: "s"})
    trimming.receive(beat(STAGE[0], 7), NOW)
    assert [p.bucket for p in trimming.due(NOW, {"reports": 9}, wall_ms=NOW)] == [7]
    later = NOW + TRIM_EVERY_MS
    trimming.receive(beat(STAGE[0], 9), later)
    trimming.receive(beat(STAGE[1], 0), later)
    assert trimming.due(later, {"reports": 9}, wall_ms=later) == [], "it begins"


def test_tm3_a_half_counts_for_a_while_only_until_its_split_is_confirmed() -> None:
    """Otherwise the input of a split that was withdrawn would be kept for a day."""
    for is_confirmed in (False, True):
        confirmed = {"s"} if is_confirmed else set[str]()
        trimming = Trimming(
            {"reports": STAGE}, halves={STAGE[1]: "s"}, is_confirmed=confirmed.__contains__
        )
        trimming.receive(beat(STAGE[0], 7), NOW)
        trimming.receive(beat(STAGE[1], 5), NOW)
        assert [p.bucket for p in trimming.due(NOW, {"reports": 9}, wall_ms=NOW)] == [5]
        late = passes(trimming, NOW, TRIM_HALF_MS, beat(STAGE[0], 8))
        assert trimming.due(late, {"reports": 9}, wall_ms=late) == []
        late = passes(trimming, late, OBSERVED_STEP_MS, beat(STAGE[0], 8))
        found = [p.bucket for p in trimming.due(late, {"reports": 9}, wall_ms=late)]
        assert found == ([] if is_confirmed else [8])


def test_tm3_a_half_that_takes_over_and_was_never_heard_holds_everything_back() -> None:
    trimming = Trimming(
        {"reports": STAGE}, halves={STAGE[1]: "s"}, is_confirmed=lambda shard: shard == "s"
    )
    trimming.receive(beat(STAGE[0], 7), NOW)
    assert trimming.due(NOW, {"reports": 9}, wall_ms=NOW) == []


def test_tm2_a_reader_that_was_silent_for_a_day_holds_nothing_back(trimming: Trimming) -> None:
    trimming.receive(beat(STAGE[0], 7), NOW)
    trimming.receive(beat(STAGE[1], 5), NOW)
    late = passes(trimming, NOW, LONG_MS, beat(STAGE[0], 7))
    assert [p.bucket for p in trimming.due(late, {"reports": 9}, wall_ms=late)] == [5]
    late = passes(trimming, late, TRIM_EVERY_MS, beat(STAGE[0], 7))
    assert [p.bucket for p in trimming.due(late, {"reports": 9}, wall_ms=late)] == [7]


def test_tm8_a_delivery_that_is_away_is_named_until_it_is_heard(
    trimming: Trimming, monkeypatch: pytest.MonkeyPatch
) -> None:
    away_ms = 20 * OBSERVED_STEP_MS
    monkeypatch.setattr("anabranch.protocol.control.trimming.OUTPUT_AWAY_MS", away_ms)
    trimming.receive(beat(OUTPUT, 5), NOW)
    late = passes(trimming, NOW, away_ms - OBSERVED_STEP_MS)
    assert trimming.away(late) == []
    late = passes(trimming, late, OBSERVED_STEP_MS)
    (found,) = trimming.away(late)
    assert (found.output, found.stream) == ("out", "tolls")
    assert (found.silent_ms, found.left_ms) == (away_ms, LONG_MS - away_ms)
    late = passes(trimming, late, LONG_MS)
    assert trimming.away(late)[0].left_ms == 0
    trimming.receive(beat(OUTPUT, 5), late)
    assert trimming.away(late) == []


@pytest.mark.parametrize("skew_ms", [-LONG_MS - 1, LONG_MS + 1])
def test_tm2_the_clock_of_a_reader_decides_nothing(trimming: Trimming, skew_ms: int) -> None:
    """A delivery whose clock is a day behind lives, and reads, all the same."""
    trimming.receive(beat(STAGE[0], 1_000), NOW)
    trimming.receive(beat(STAGE[1], 10, written_ms=NOW + skew_ms), NOW)
    assert [p.bucket for p in trimming.due(NOW, {"reports": 1_000}, wall_ms=NOW)] == [10]


def test_tm4_without_readers_nothing_is_trimmed(trimming: Trimming) -> None:
    for reader in STAGE:
        trimming.receive(beat(reader, 7), NOW)
    late = passes(trimming, NOW, LONG_MS + OBSERVED_STEP_MS)
    assert trimming.due(late, {"reports": 9, "unread": 9}, wall_ms=late) == []


def test_tm4_a_history_for_others_does_not_stand_for_its_readers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("anabranch.protocol.control.trimming.TRIM_READER_MS", LONG_MS)
    trimming = Trimming({"tolls": [OUTPUT]}, {"tolls": 10})
    trimming.receive(beat(OUTPUT, 7), NOW)
    late = passes(trimming, NOW, LONG_MS + OBSERVED_STEP_MS)
    assert trimming.due(late, {"tolls": 90}, wall_ms=late) == []


def test_tm1_it_never_falls(trimming: Trimming) -> None:
    trimming.seen(TrimPoint("reports", 6, NOW), NOW - TRIM_EVERY_MS)
    trimming.seen(TrimPoint("reports", 4, NOW), NOW)
    trimming.seen(TrimPoint("unknown", 4, NOW), NOW)
    for reader in STAGE:
        trimming.receive(beat(reader, 5), NOW)
    assert trimming.due(NOW, {"reports": 9}, wall_ms=NOW) == []
    assert trimming.point("reports") == 6
    assert trimming.point("unknown") == 0


def test_tm5_the_newest_process_speaks(trimming: Trimming) -> None:
    trimming.receive(beat(STAGE[0], 7), NOW)
    trimming.receive(beat(STAGE[1], 3, epoch=2), NOW)
    trimming.receive(beat(STAGE[1], 8, epoch=1), NOW)
    trimming.receive(beat(Peer("processing", "tolls", "2"), 1), NOW)
    assert [p.bucket for p in trimming.due(NOW, {"reports": 9}, wall_ms=NOW)] == [3]


@pytest.mark.parametrize("jump_ms", [-3_600_000, 3_600_000])
def test_a_wall_clock_that_is_set_changes_nothing(trimming: Trimming, jump_ms: int) -> None:
    trimming.receive(beat(OUTPUT, 5), NOW)
    assert len(trimming.due(NOW, {"tolls": 9}, wall_ms=NOW)) == 1
    trimming.receive(beat(OUTPUT, 7), NOW)
    early, late = NOW + TRIM_EVERY_MS - 1, NOW + TRIM_EVERY_MS
    assert trimming.due(early, {"tolls": 9}, wall_ms=early + jump_ms) == []
    assert trimming.due(late, {"tolls": 9}, wall_ms=late + jump_ms) == [
        TrimPoint("tolls", 7, late + jump_ms)
    ]


def test_tm6_of_what_others_read_the_newest_buckets_are_kept() -> None:
    trimming = Trimming({"tolls": [OUTPUT], "speeds": []}, {"tolls": 10, "speeds": 10})
    trimming.receive(beat(OUTPUT, 20), NOW)
    assert trimming.due(NOW, {"tolls": 25, "speeds": 25}, wall_ms=NOW) == [
        TrimPoint("tolls", 15, NOW),
        TrimPoint("speeds", 15, NOW),
    ]
    later = NOW + TRIM_EVERY_MS
    assert trimming.due(later, {"tolls": 99, "speeds": 24}, wall_ms=later) == [
        TrimPoint("tolls", 20, later)
    ]


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


def test_to1_of_a_topic_that_begins_anew_nothing_is_deleted_that_is_needed() -> None:
    """A broker without copies has lost its disk: the partition begins at 0 again."""
    offsets = TrimOffsets()
    offsets.seen(record(part(3, 0, 9)), YES)
    assert offsets.below(3) == {("0", 0): 9}
    offsets.seen(record(part(5, 0, 6)), YES)
    assert offsets.below(4) == {}
    offsets.seen(record(part(6, 6, 12)), YES)
    assert offsets.below(5) == {("0", 0): 6}, "the end of an earlier life is no reason to delete"
    assert offsets.below(6) == {("0", 0): 12}


def cut_in_pieces(monkeypatch: pytest.MonkeyPatch) -> list[BoundaryRecord]:
    """Return a batch whose blocks of buckets 5 and 6 alternate, as two tasks wrote them."""
    monkeypatch.setattr("anabranch.protocol.log.writer.PARTS_PER_RECORD_MAX", 2)
    parts = (part(5, 10, 11), part(6, 11, 12), part(5, 12, 13), part(6, 13, 14))
    return list(writer.pieces(replace(record(*parts), closed=6)))


def test_to2_what_a_later_piece_of_a_record_names_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    first, last = cut_in_pieces(monkeypatch)
    offsets = TrimOffsets()
    offsets.seen(record(part(4, 0, 10)), YES)
    offsets.seen(first, YES)
    assert offsets.below(5) == {("0", 0): 10}, "the other piece names offset 11"
    offsets.seen(last, YES)
    assert offsets.below(5) == {("0", 0): 11}
    assert offsets.below(6) == {("0", 0): 14}


def test_to2_the_same_where_a_log_snapshot_stands_between_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, last = cut_in_pieces(monkeypatch)
    replica = ReplicaSnapshot("0", 0, "f", "s", 5, 0, (first.id,), (), (), first)
    ranges = (
        StableRange(5, 5, "0", first.parts),
        StableRange(4, 4, "0", (part(4, 0, 1),), recomputed=True),
    )
    offsets = TrimOffsets()
    offsets.seen(LogSnapshot(8, 3, (replica,), ranges, 9), YES)
    assert offsets.below(5) == {}
    offsets.seen(last, YES)
    assert offsets.below(5) == {("0", 0): 11}
    assert offsets.below(6) == {("0", 0): 14}


def test_pieces_of_a_batch_that_never_ends_are_passed_with_the_next_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, _ = cut_in_pieces(monkeypatch)
    offsets = TrimOffsets()
    offsets.seen(first, YES)
    offsets.seen(record(part(6, 20, 21, 1)), YES)  # after a restart
    assert offsets.below(6) == {("0", 0): 13, ("0", 1): 21}


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


def test_what_is_remembered_does_not_grow_while_a_reader_is_away() -> None:
    """Each bucket has two blocks, one of them named by a record long after the other. Nothing
    that is needed may be deleted, and all of it may be in the end.
    """
    offsets = TrimOffsets()
    buckets, late = 5 * TRIM_SPANS_MAX, 3
    for bucket in range(1, buckets + 1):
        parts = [part(bucket, 2 * bucket, 2 * bucket + 1)]
        if bucket > late:
            parts.append(part(bucket - late, 2 * bucket + 1, 2 * bucket + 2))
        offsets.seen(record(*parts), YES)
        assert len(offsets._spans["0", 0]) <= TRIM_SPANS_MAX
    assert offsets.below(0) == {}
    for trimmed in range(1, buckets, 997):
        below = offsets.below(trimmed).get(("0", 0), 0)
        assert below <= 2 * (trimmed + 1), "where the first bucket that is needed begins"
        assert below >= 2 * (trimmed - 40)
    assert offsets.below(buckets) == {("0", 0): 2 * buckets + 2}
