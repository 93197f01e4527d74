"""Split of a shard: attempts, the beginning of the halves, the proof, the end, and reading."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import SHARDS_MAX
from anabranch.protocol.log.boundary_log import LogState, Outcome
from anabranch.protocol.log.records import LogEntry, Part
from anabranch.protocol.stage.intervals import BITS_MAX, Interval, divided
from anabranch.protocol.stage.shares import Share
from anabranch.protocol.stage.splitting import (
    AFTER,
    HEIRS,
    PROVEN_BUCKETS,
    REACH_BUCKETS,
    SPLIT_MS_MAX,
    STALLED_MS,
    Attempt,
    Half,
    Phase,
    Proof,
    SplitDriver,
    Splits,
    SplitStep,
    Step,
    VoidBuckets,
    begins,
    complete_upto,
    end,
    half_runs,
    halves_of,
    parent_text,
    rejected,
    streams_after,
)
from harness.boundary_logs import record, started, state_after

ENDING = BatchId("end", 0)


def log(closed: int, rows: dict[int, int] | None = None) -> LogState:
    """Return a log that has closed buckets up to ``closed``; ``rows``: number by bucket."""
    parts = tuple(Part(b, 0, "a", 1, 0, 1, n, 7 * n) for b, n in (rows or {}).items())
    return state_after(started(), record(0, 0, closed, parts))


def ended(upto: int) -> LogState:
    """Return a log that has ended after bucket ``upto``."""
    log_state = log(upto)
    assert log_state.apply(2, end("0", 0, ENDING, log_state, 1)).accepted
    return log_state


def steps(*given: tuple[Step, int]) -> Splits:
    """Return the state after records about ``s``: step, attempt."""
    splits = Splits()
    for offset, (step, attempt) in enumerate(given):
        splits.apply(offset, SplitStep("s", step, 0, attempt, "why", 3))
    return splits


# -- attempts


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("step", Step)
def test_the_table_names_every_record_that_has_an_effect(phase: Phase, step: Step) -> None:
    before: dict[Phase, list[tuple[Step, int]]] = {
        Phase.NONE: [],
        Phase.WANTED: [(Step.WANTED, -1)],
        Phase.CONFIRMED: [(Step.WANTED, -1), (Step.CONFIRMED, 0)],
        Phase.WITHDRAWN: [(Step.WANTED, -1), (Step.WITHDRAWN, 0)],
    }
    splits = steps(*before[phase])
    assert splits.of("s").phase is phase
    counts = splits.apply(9, SplitStep("s", step, 0, -1 if step is Step.WANTED else 0))
    assert counts == ((phase, step) in AFTER)
    assert splits.of("s").phase is AFTER.get((phase, step), phase)


def test_hv1_an_answer_counts_for_the_attempt_that_it_names() -> None:
    splits = steps((Step.WANTED, -1), (Step.WITHDRAWN, 0), (Step.WANTED, -1))
    assert splits.of("s") == Attempt(Phase.WANTED, 2)
    assert not splits.apply(3, SplitStep("s", Step.CONFIRMED, 0, attempt=0))
    assert splits.apply(4, SplitStep("s", Step.WITHDRAWN, 0, 2, "too slow", 5))
    assert splits.of("s") == Attempt(Phase.WITHDRAWN, 2, "too slow", 5)


def test_attempts_of_other_shards_do_not_matter() -> None:
    assert steps((Step.WANTED, -1)).of("t") == Attempt()


def test_halves_are_named_by_their_bits() -> None:
    assert halves_of("s") == ("s.0", "s.1")
    assert halves_of("s.1") == ("s.10", "s.11")


def test_a_shard_that_cannot_be_split_is_rejected() -> None:
    assert rejected("s", ["s"]) == ""
    assert rejected("s.0", ["s.00", "s.1"]) == "there is no shard s.0 now; there are s.00, s.1"
    shards = [each.name("s") for each in divided(SHARDS_MAX)]
    assert rejected(shards[0], shards) == (
        "stage s has 16 shards, the most that its readers follow"
    )
    small = Interval("0" * BITS_MAX).name("s")
    assert rejected(small, [small]).startswith(f"shard {small} is as small")


@pytest.mark.parametrize(
    ("phase", "runs"),
    [
        (Phase.NONE, False),
        (Phase.WANTED, True),
        (Phase.CONFIRMED, True),
        (Phase.WITHDRAWN, False),
    ],
)
def test_hv3_halves_stop_when_their_attempt_is_withdrawn(phase: Phase, *, runs: bool) -> None:
    assert half_runs(Attempt(phase), log(5)) == runs
    assert half_runs(Attempt(phase), ended(5))


# -- the beginning


def test_hv8_the_share_of_the_parent_follows_from_that_of_the_half() -> None:
    by = {"cars": ("segment",)}
    assert parent_text(Share(Interval("01"), by)) == Share(Interval("0"), by).text()
    assert parent_text(Share(Interval("0"), by)) == ""


def test_hv5_a_half_begins_with_void_buckets() -> None:
    void, half = VoidBuckets(), LogState(["0"])
    first = begins("0", 0, BatchId("l", 0), 7, 1)
    entries: list[LogEntry] = [started(), first, record(0, 1, 9)]
    for offset, entry in enumerate(entries):
        void.seen(half, entry, half.apply(offset, entry))
    assert (void.upto, half.upto, half.stable(1, 7)) == (7, 9, [])
    again = begins("0", 0, BatchId("m", 0), 8, 1)
    void.seen(half, again, half.apply(3, again))
    assert void.upto == 8
    early = begins("0", 0, BatchId("n", 0), 2, 1)
    void.seen(half, early, half.apply(4, early))
    assert void.upto == 8
    void.seen(half, begins("0", 0, BatchId("o", 0), 12, 1), Outcome(False, "fenced", "0"))
    assert void.upto == 8


def test_hv5_of_a_log_that_is_read_from_a_snapshot_on_all_is_void() -> None:
    for closed, upto in ((6, 6), (0, None)):
        snapshot = log(closed).snapshot(2)
        void, half = VoidBuckets(), LogState.from_snapshot(snapshot)
        void.seen(half, snapshot, Outcome(True, "adopted", ""))
        assert void.upto == upto


# -- the proof

EACH = dict.fromkeys(range(1, 40), 4)
LEFT = dict.fromkeys(range(1, 40), 1)
RIGHT = dict.fromkeys(range(1, 40), 3)


def halves(left: LogState, right: LogState, void: int | None = 0) -> tuple[Half, Half]:
    return Half(left, 0 if void is None else void), Half(right, void)


def proof_of(closed: int, *, void: int | None = 0, right: dict[int, int] = RIGHT) -> Proof:
    proof = Proof()
    proof.compare(log(closed, EACH), halves(log(closed, LEFT), log(closed, right), void))
    return proof


def test_hv4_equal_sums_in_enough_buckets_prove_it() -> None:
    assert not proof_of(PROVEN_BUCKETS - 1).is_enough
    proof = proof_of(PROVEN_BUCKETS)
    assert (proof.compared, proof.with_rows, proof.is_enough) == (8, 8, True)
    assert not proof_of(PROVEN_BUCKETS, void=None).is_enough
    assert proof_of(PROVEN_BUCKETS + 5, void=5).compared == PROVEN_BUCKETS


def test_hv4_empty_buckets_alone_prove_nothing() -> None:
    proof = Proof()
    proof.compare(log(20), halves(log(20), log(20)))
    assert (proof.compared, proof.is_enough) == (20, False)
    later = {21: 4}, {21: 1}, {21: 3}
    each, left, right = (log(21, rows) for rows in later)
    proof.compare(each, halves(left, right))
    assert (proof.compared, proof.with_rows, proof.is_enough) == (21, 1, True)


@pytest.mark.parametrize("right", [{**RIGHT, 6: 2}, {**RIGHT, 6: 0, 9: 0}])
def test_hv4_the_first_bucket_that_differs_is_named(right: dict[int, int]) -> None:
    proof = proof_of(20, right=right)
    assert (proof.differs, proof.is_enough) == (6, False)
    proof.compare(log(30, EACH), halves(log(30, LEFT), log(30, RIGHT)))
    assert proof.differs == 6


def test_hv4_digests_are_compared_too() -> None:
    other = state_after(started(), record(0, 0, 3, (Part(2, 0, "a", 1, 0, 1, 3, 99),)))
    proof = Proof()
    proof.compare(log(3, {2: 4}), halves(log(3, {2: 1}), other))
    assert proof.differs == 2


def test_hv4_a_half_that_begins_again_is_proven_again() -> None:
    proof = proof_of(20)
    proof.compare(log(24, EACH), halves(log(24, LEFT), log(24, RIGHT), 22))
    assert (proof.compared, proof.with_rows, proof.is_enough) == (2, 2, False)


def test_each_bucket_is_compared_once_and_none_that_is_forgotten() -> None:
    proof = proof_of(10)
    proof.compare(log(10, EACH), halves(log(10, LEFT), log(10, RIGHT)))
    assert proof.compared == 10
    shard = log(15, EACH)
    shard.forget(13)
    proof.compare(shard, halves(log(15, LEFT), log(15, RIGHT)))
    assert proof.compared == 12


# -- answers


def driver() -> SplitDriver:
    return SplitDriver("s", 4, 1_000)


def test_it_is_confirmed_when_it_is_proven_and_the_halves_are_there() -> None:
    shard, near = log(20, EACH), halves(log(18, LEFT), log(20, RIGHT))
    far = halves(log(20 - REACH_BUCKETS - 1, LEFT), log(20, RIGHT))
    asked = driver()
    assert asked.answer(2_000, 5, shard, far) is None
    assert asked.answer(2_000, 5, shard, near) == SplitStep("s", Step.CONFIRMED, 5, 4)
    assert driver().answer(2_000, 5, log(7, EACH), halves(log(7, LEFT), log(7, RIGHT))) is None


def test_a_difference_withdraws_it_and_names_the_bucket() -> None:
    answer = driver().answer(
        2_000, 5, log(20, EACH), halves(log(20, LEFT), log(20, {**RIGHT, 6: 2}))
    )
    assert answer is not None
    assert (answer.step, answer.attempt, answer.bucket) == (Step.WITHDRAWN, 4, 6)
    assert "bucket 6 of the halves together is not that of s: the function" in answer.reason


def test_hv7_without_progress_it_is_withdrawn() -> None:
    asked, shard = driver(), log(20, EACH)
    far = halves(log(3, LEFT), log(3, RIGHT))
    assert asked.answer(1_000 + STALLED_MS - 1, 5, shard, far) is None, "they have begun"
    far = halves(log(3, LEFT), log(4, RIGHT))
    assert asked.answer(1_000 + STALLED_MS, 5, shard, far) is None
    answer = asked.answer(1_000 + 2 * STALLED_MS, 5, shard, far)
    assert answer is not None
    assert answer == SplitStep("s", Step.WITHDRAWN, 5, 4, answer.reason)
    assert "got no further for 5 minutes: check that the nodes of s.0 and s.1" in answer.reason


def test_hv7_an_attempt_has_an_hour() -> None:
    asked, shard = driver(), log(900, EACH)
    for number in range(60):
        far = halves(log(number + 1, LEFT), log(number + 1, RIGHT))
        assert asked.answer(1_000 + number * 60_000, 5, shard, far) is None
    answer = asked.answer(1_000 + SPLIT_MS_MAX, 5, shard, halves(log(70), log(70), 69))
    assert answer is not None
    assert answer.reason == "the halves did not reach s within 60 minutes"


# -- the end and reading


def test_hv2_the_end_names_two_heirs_and_the_last_bucket_that_counts() -> None:
    log_state = log(5, {3: 1})
    last = end("0", 0, ENDING, log_state, 9)
    assert (last.heirs, last.past, last.prev) == (HEIRS, 5, log_state.tip("0"))
    assert log_state.apply(2, last).accepted
    assert log_state.upto == 5
    assert [bucket for bucket, _, _ in log_state.stable(1, 5)] == [3]


def test_the_end_takes_back_nothing_that_another_replica_closed_before_it() -> None:
    log_state = log(5)
    last = end("0", 0, ENDING, log_state, 9)
    log_state.apply(2, replace(started("1"), token="u"))
    log_state.apply(3, record(2, 0, 8, replica="1"))
    assert log_state.apply(4, last).accepted
    assert log_state.upto == 8
    assert LogState.from_snapshot(log_state.snapshot(5)).upto == 8


def test_hv6_a_bucket_is_read_from_the_shard_or_from_both_halves() -> None:
    logs = {"s.0": ended(5), "s.1": log(9)}
    assert list(streams_after(["s.0", "s.1"], logs, 4)) == ["s.0", "s.1"]
    assert list(streams_after(["s.0", "s.1"], logs, 5)) == ["s.00", "s.01", "s.1"]
    assert complete_upto(["s.0", "s.1"], logs, 4) == 5
    assert complete_upto(["s.0", "s.1"], logs, 5) == 5, "the halves are not followed yet"
    logs |= {"s.00": log(7), "s.01": log(8)}
    assert complete_upto(["s.0", "s.1"], logs, 5) == 7


def test_hv6_a_half_may_be_split_in_turn() -> None:
    logs = {"s": ended(5), "s.0": log(9), "s.1": ended(7), "s.10": log(9), "s.11": log(8)}
    assert list(streams_after(["s"], logs, 6)) == ["s.0", "s.1"]
    assert complete_upto(["s"], logs, 6) == 7
    assert list(streams_after(["s"], logs, 7)) == ["s.0", "s.10", "s.11"]
    assert complete_upto(["s"], logs, 7) == 8
