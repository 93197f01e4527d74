"""Split of a shard: attempts, the beginning of the halves, the proof, the end, and reading."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.protocol.control.records import SplitStep, Step
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import BUCKET_MAX
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.records import LogEntry, Part
from anabranch.protocol.stage.splitting import (
    AFTER,
    HEIRS,
    PROVEN_BUCKETS,
    REACH_BUCKETS,
    SPLIT_MS_MAX,
    STALLED_MS,
    Attempt,
    Proof,
    ShardLogState,
    SplitDriver,
    SplitPhase,
    Splits,
    end,
    half_begins_after,
    half_begins_for,
    half_runs,
    halves_of,
    only_ends,
    rejected,
    void_upto,
)
from harness.boundary_logs import record, started, state_after, tentative
from harness.present import present

ENDING = BatchId("end", 0)


ATTEMPT = 4


def log(closed: int, rows: dict[int, int] | None = None, attempt: int = ATTEMPT) -> LogState:
    """Return a log that has closed buckets up to ``closed``; ``rows``: number by bucket;
    ``attempt``: for which a half has begun.
    """
    parts = tuple(Part(b, 0, "a", 1, 0, 1, n, 7 * n) for b, n in (rows or {}).items())
    return state_after(replace(started(), attempt=attempt), record(0, 0, closed, parts))


def ended(upto: int) -> LogState:
    """Return a log that has ended after bucket ``upto``."""
    log_state = log(upto)
    assert log_state.apply(2, end("0", 0, ENDING, log_state, 1)).accepted
    return log_state


def steps(*given: tuple[Step, int]) -> Splits:
    """Return the state after records about ``s``: step, attempt."""
    splits = Splits()
    for at_ms, (step, attempt) in enumerate(given):
        reason = "" if step is Step.WANTED else "why"
        splits.apply(SplitStep("s", step, at_ms, attempt, reason, 3))
    return splits


# -- attempts


@pytest.mark.parametrize("phase", SplitPhase)
@pytest.mark.parametrize("step", Step)
def test_the_table_names_every_record_that_has_an_effect(phase: SplitPhase, step: Step) -> None:
    before: dict[SplitPhase, list[tuple[Step, int]]] = {
        SplitPhase.NONE: [],
        SplitPhase.WANTED: [(Step.WANTED, -1)],
        SplitPhase.CONFIRMED: [(Step.WANTED, -1), (Step.CONFIRMED, 0)],
        SplitPhase.WITHDRAWN: [(Step.WANTED, -1), (Step.WITHDRAWN, 0)],
    }
    splits = steps(*before[phase])
    assert splits.of("s").phase is phase
    counts = splits.apply(SplitStep("s", step, 9, -1 if step is Step.WANTED else 0))
    assert counts == ((phase, step) in AFTER)
    assert splits.of("s").phase is AFTER.get((phase, step), phase)


def test_hv1_an_answer_counts_for_the_attempt_that_it_names() -> None:
    splits = steps((Step.WANTED, -1), (Step.WITHDRAWN, 0), (Step.WANTED, -1))
    assert splits.of("s") == Attempt(SplitPhase.WANTED, 2)
    assert not splits.apply(SplitStep("s", Step.CONFIRMED, 3, attempt=0))
    assert splits.apply(SplitStep("s", Step.WITHDRAWN, 4, 2, "too slow", 5))
    assert splits.of("s") == Attempt(SplitPhase.WITHDRAWN, 2, "too slow", 5)


@pytest.mark.parametrize(("known", "counts"), [(-1, False), (0, False), (2, True)])
def test_hv1_a_scaler_wants_a_split_only_after_the_newest_attempt(
    known: int, *, counts: bool
) -> None:
    splits = steps((Step.WANTED, -1), (Step.WITHDRAWN, 0))
    assert splits.apply(SplitStep("s", Step.WANTED, 2, 0, "it is slow"))
    assert splits.apply(SplitStep("s", Step.WITHDRAWN, 3, 2, "too slow"))
    assert splits.apply(SplitStep("s", Step.WANTED, 4, known, "it is slow")) == counts
    assert splits.of("s").number == (4 if counts else 2)


def test_hv10_an_answer_from_before_the_log_of_moves_was_made_anew_answers_nothing() -> None:
    """It is the first attempt in both logs."""
    before, now = Splits(), Splits()
    assert before.apply(SplitStep("s", Step.WANTED, 1_000))
    late = SplitStep("s", Step.CONFIRMED, 1_500, before.of("s").number)
    assert now.apply(SplitStep("s", Step.WANTED, 2_000))
    assert not now.apply(late)
    assert now.of("s").phase is SplitPhase.WANTED
    assert now.of("s").number > before.of("s").number, "halves of the former one are over (BL21)"


def test_hv10_numbers_rise_though_a_clock_is_behind() -> None:
    splits = Splits()
    numbers = []
    for at_ms in (1_000, 400, 1_001, 5_000):
        assert splits.apply(SplitStep("s", Step.WANTED, at_ms))
        numbers.append(splits.of("s").number)
        assert splits.apply(SplitStep("s", Step.WITHDRAWN, at_ms, numbers[-1], "why"))
    assert numbers == [1_000, 1_001, 1_002, 5_000]


def test_attempts_of_other_shards_do_not_matter() -> None:
    assert steps((Step.WANTED, -1)).of("t") == Attempt()


def test_halves_are_named_by_their_bits() -> None:
    assert halves_of("s") == ("s.0", "s.1")
    assert halves_of("s.1") == ("s.10", "s.11")


PARENTS = {"s": "", "s.0": "", "s.1": "", "s.00": "s.0", "s.01": "s.0", "s.000": "s.00"}
PARENTS |= {"s.001": "s.00"}


@pytest.mark.parametrize(
    ("shard", "confirmed", "why"),
    [
        ("s.0", [], ""),
        ("s.00", ["s.0"], ""),
        ("t", [], "there is no stage t; there are s, s.0, s.00, s.000, s.001, s.01, s.1"),
        ("s.1", [], "the pipeline file names no halves of s.1: raise `halvings` of its stage"),
        ("s.0", ["s.0"], "s.0 was split: split s.00 or s.01"),
        ("s.00", [], "s.00 does not run: it is a half of s.0, which is not split"),
    ],
)
def test_a_shard_that_cannot_be_split_is_rejected(
    shard: str, confirmed: list[str], why: str
) -> None:
    splits = Splits()
    for number, each in enumerate(confirmed):
        splits.apply(SplitStep(each, Step.WANTED, number))
        splits.apply(SplitStep(each, Step.CONFIRMED, number, number))
    found = rejected(shard, PARENTS, splits)
    assert found.startswith(why)
    assert bool(found) == bool(why)


@pytest.mark.parametrize(
    ("phase", "runs"),
    [
        (SplitPhase.NONE, False),
        (SplitPhase.WANTED, True),
        (SplitPhase.CONFIRMED, True),
        (SplitPhase.WITHDRAWN, False),
    ],
)
def test_hv3_halves_stop_when_their_attempt_is_withdrawn(phase: SplitPhase, *, runs: bool) -> None:
    assert half_runs(Attempt(phase)) == runs


# -- the beginning


def late(
    after: int, closed: int, rows: dict[int, int] | None = None, attempt: int = -1
) -> LogState:
    """Return the log of a half that began late after bucket ``after``, for ``attempt``."""
    first = replace(record(0, 0, after), missing=("a",))
    parts = tuple(Part(b, 0, "a", 1, 0, 1, n, 7 * n) for b, n in (rows or {}).items() if b > after)
    begun = replace(started(), attempt=attempt)
    return state_after(begun, first, record(0, 1, closed, parts))


def test_hv8_a_half_begins_one_horizon_and_the_proof_before_the_shard() -> None:
    assert half_begins_after(log(20), log(0), 5) == 20 - 5 - PROVEN_BUCKETS == 7
    assert half_begins_after(log(13), log(0), 5) == 0
    assert half_begins_after(ended(20), log(0), 5) == 7
    assert half_begins_after(log(20), log(9), 5) == 9, "what it made for an earlier attempt is void"
    assert half_begins_after(log(20), late(7, 9), 5) == 0, "its late start is recorded"


def test_hv8_a_half_begins_for_the_newest_attempt() -> None:
    def unread() -> LogState:
        raise AssertionError("the log of the half is not needed")

    assert half_begins_for(9, log(12), unread) == 9


def test_hv11_after_the_end_of_the_shard_a_half_continues_for_its_own_attempt() -> None:
    assert half_begins_for(9, ended(12), lambda: log(12, attempt=3)) == 3
    assert half_begins_for(9, ended(12), lambda: log(12, attempt=0)) == 0
    assert half_begins_for(9, ended(12), lambda: LogState(["0"])) == 9, "it has begun for none"


@pytest.mark.parametrize(("begun_later", "is_proven"), [(0, True), (1, False)])
def test_hv12_halves_of_a_shard_that_closes_no_more_are_proven(
    begun_later: int, *, is_proven: bool
) -> None:
    """Its node is lost; or the input of the first bucket that they need is deleted, too."""
    rows = dict.fromkeys(range(1, 21), 4)
    shard, horizon = log(20, rows), 5
    after = half_begins_after(shard, log(0, attempt=-1), horizon) + begun_later
    halves = [
        late(after, 20, {b: n for b in rows if b > after + horizon}, attempt=ATTEMPT)
        for n in (1, 3)
    ]
    driver = SplitDriver("s", ATTEMPT, 0, horizon=horizon, width_ms=100)
    answer = driver.answer(1, 1, shard, halves)
    assert (answer is not None and answer.step is Step.CONFIRMED) == is_proven
    assert driver.proof.compared == PROVEN_BUCKETS - begun_later


@pytest.mark.parametrize("phase", SplitPhase)
def test_hv13_a_process_that_begins_after_the_confirmation_only_ends(phase: SplitPhase) -> None:
    assert only_ends(Attempt(phase)) == (phase is SplitPhase.CONFIRMED)


def test_hv5_what_a_half_closes_before_it_can_be_complete_is_void() -> None:
    assert void_upto(late(7, 9), 5) == 12
    assert void_upto(late(7, 9), 0) == 7
    assert void_upto(log(9), 5) == 0


# -- the proof

EACH = dict.fromkeys(range(1, 40), 4)
LEFT = dict.fromkeys(range(1, 40), 1)
RIGHT = dict.fromkeys(range(1, 40), 3)


def halves(left: LogState, right: LogState) -> tuple[LogState, LogState]:
    return left, right


def half(rows: dict[int, int], closed: int, void: int) -> LogState:
    """Return the log of a half whose last void bucket is ``void``; 0: it has none."""
    return late(void - 2, closed, rows) if void else log(closed, rows)


def proof_of(closed: int, *, void: int = 0, right: dict[int, int] = RIGHT) -> Proof:
    proof = Proof(2)
    proof.compare(log(closed, EACH), halves(log(closed, LEFT), half(right, closed, void)))
    return proof


def test_hv4_equal_sums_in_enough_buckets_prove_it() -> None:
    assert not proof_of(PROVEN_BUCKETS - 1).is_enough
    proof = proof_of(PROVEN_BUCKETS)
    assert (proof.compared, proof.of_both, proof.is_enough) == (8, 8, True)
    nothing = Proof(2)
    nothing.compare(log(20, EACH), halves(log(20, LEFT), LogState(["0"])))
    assert (nothing.compared, nothing.upto) == (0, 0), "a half has not begun"
    assert proof_of(PROVEN_BUCKETS + 5, void=5).compared == PROVEN_BUCKETS


def test_hv4_buckets_without_rows_of_both_halves_prove_nothing() -> None:
    """Rows of one half alone are the same, however the function mixes keys."""
    shard, left, right = {19: 2, 20: 5}, {19: 2}, {20: 5}
    proof = Proof(2)
    proof.compare(log(20, shard), halves(log(20, left), log(20, right)))
    assert (proof.compared, proof.of_both, proof.is_enough) == (20, 0, False)
    shard[21], left[21], right[21] = 4, 1, 3
    proof.compare(log(21, shard), halves(log(21, left), log(21, right)))
    assert (proof.compared, proof.of_both, proof.is_enough) == (21, 1, True)


@pytest.mark.parametrize("right", [{**RIGHT, 6: 2}, {**RIGHT, 6: 0, 9: 0}])
def test_hv4_the_first_bucket_that_differs_is_named(right: dict[int, int]) -> None:
    proof = proof_of(20, right=right)
    assert (proof.differs, proof.is_enough) == (6, False)
    proof.compare(log(30, EACH), halves(log(30, LEFT), log(30, RIGHT)))
    assert proof.differs == 6


def test_hv4_digests_are_compared_too() -> None:
    other = state_after(started(), record(0, 0, 3, (Part(2, 0, "a", 1, 0, 1, 3, 99),)))
    proof = Proof(2)
    proof.compare(log(3, {2: 4}), halves(log(3, {2: 1}), other))
    assert proof.differs == 2


def test_hv4_a_half_that_begins_again_is_proven_again() -> None:
    proof = proof_of(20)
    proof.compare(log(24, EACH), halves(log(24, LEFT), half(RIGHT, 24, 22)))
    assert (proof.compared, proof.of_both, proof.is_enough) == (2, 2, False)


def test_each_bucket_is_compared_once_and_none_that_is_forgotten() -> None:
    proof = proof_of(10)
    proof.compare(log(10, EACH), halves(log(10, LEFT), log(10, RIGHT)))
    assert proof.compared == 10
    shard = log(15, EACH)
    shard.forget(13)
    proof.compare(shard, halves(log(15, LEFT), log(15, RIGHT)))
    assert proof.compared == 12


def upgraded(
    before: int, closed: int, rows: dict[int, int], of_version_2: dict[int, int]
) -> LogState:
    """Return a log whose version 2 begins after bucket ``before``; rows of each, by bucket."""

    def parts(given: dict[int, int], first: int, last: int) -> tuple[Part, ...]:
        return tuple(
            Part(b, 0, "a", 1, 0, 1, n, 7 * n) for b, n in given.items() if first <= b <= last
        )

    return state_after(
        started(),
        record(0, 0, before, parts(rows, 1, before)),
        started(token="u", version=2),
        record(2, 1, closed, parts(of_version_2, before + 1, closed)),
    )


def test_hv9_a_new_version_during_an_attempt_is_no_difference() -> None:
    """The shard is restarted with version 2 first, which makes 5 rows of each bucket."""
    other = dict.fromkeys(EACH, 5), dict.fromkeys(EACH, 2)
    proof = proof_of(10)
    shard = upgraded(12, 20, EACH, other[0])
    assert shard.version == (2, 12)
    proof.compare(shard, halves(log(20, LEFT), log(20, RIGHT)))
    assert (proof.differs, proof.compared) == (None, 10), "of other versions"
    left = upgraded(20, 30, LEFT, other[1])
    proof.compare(shard, halves(left, log(20, RIGHT)))
    assert (proof.differs, proof.compared) == (None, 10), "one half is left"
    right = upgraded(18, 30, RIGHT, RIGHT)
    shard = upgraded(12, 30, EACH, other[0])
    proof.compare(shard, halves(left, right))
    assert proof.differs is None
    assert (proof.upto, proof.compared) == (30, 8), "from a horizon after the last of them on"
    assert proof.is_enough


def test_hv9_one_version_too_long_is_the_reason() -> None:
    asked = driver()
    shard = upgraded(12, 20, EACH, EACH)
    both = halves(log(20, LEFT), log(20, RIGHT))
    assert asked.answer(1_000, 5, shard, both) is None
    answer = present(asked.answer(1_000 + SPLIT_MS_MAX + 2 * 60_000, 5, shard, both))
    assert answer.step is Step.WITHDRAWN
    assert answer.reason.startswith("s and its halves ran versions 1 and 2 of the stage for too")


# -- answers


def driver() -> SplitDriver:
    return SplitDriver("s", ATTEMPT, 1_000, horizon=2, width_ms=60_000)


def test_it_is_confirmed_when_it_is_proven_and_the_halves_are_there() -> None:
    shard, near = log(20, EACH), halves(log(18, LEFT), log(20, RIGHT))
    far = halves(log(20 - REACH_BUCKETS - 1, LEFT), log(20, RIGHT))
    asked = driver()
    assert asked.answer(2_000, 5, shard, far) is None
    assert asked.answer(2_000, 5, shard, near) == SplitStep("s", Step.CONFIRMED, 5, 4)
    assert driver().answer(2_000, 5, log(7, EACH), halves(log(7, LEFT), log(7, RIGHT))) is None


def test_a_difference_withdraws_it_and_names_the_bucket() -> None:
    answer = present(
        driver().answer(2_000, 5, log(20, EACH), halves(log(20, LEFT), log(20, {**RIGHT, 6: 2})))
    )
    assert (answer.step, answer.attempt, answer.bucket) == (Step.WITHDRAWN, 4, 6)
    assert "bucket 6 of the halves together is not that of s: the function" in answer.reason


def test_hv4_what_was_made_for_an_earlier_attempt_proves_nothing() -> None:
    asked, shard, last = driver(), log(9, EACH), PROVEN_BUCKETS + 1
    of_earlier = [log(last, rows, ATTEMPT - 1) for rows in (LEFT, RIGHT)]
    assert asked.answer(1_000, 5, shard, of_earlier) is None
    assert asked.proof.compared == 0
    assert asked.answer(1_000, 5, shard, [log(last, LEFT), of_earlier[1]]) is None
    asked = driver()
    assert asked.answer(1_000, 5, shard, of_earlier) is None
    answer = present(asked.answer(1_000 + STALLED_MS, 5, shard, of_earlier))
    assert answer.step is Step.WITHDRAWN, "they have not begun for it"


def test_hv4_a_half_that_has_begun_an_attempt_and_made_nothing_is_not_compared() -> None:
    asked, shard, last = driver(), log(9, EACH), PROVEN_BUCKETS + 1
    of_earlier = [log(last, rows, ATTEMPT - 1) for rows in (LEFT, {5: 1})]
    for each in of_earlier:
        assert each.apply(2, replace(started(token="u"), attempt=ATTEMPT)).accepted
    assert asked.answer(1_000, 5, shard, of_earlier) is None
    assert (asked.proof.compared, asked.proof.differs) == (0, None)


def test_how_far_the_halves_are_behind_counts_from_their_first_record() -> None:
    asked, shard = driver(), log(9, EACH)
    begun = log(3, LEFT, ATTEMPT - 1)
    assert begun.apply(2, replace(started(token="u"), attempt=ATTEMPT)).accepted
    assert asked.behind(shard, [log(7, LEFT), log(10, RIGHT)]) == [2, 0]
    assert asked.behind(shard, [begun, log(0, RIGHT, ATTEMPT - 1)]) == [None, None]


def test_hv7_without_progress_it_is_withdrawn() -> None:
    asked, shard = driver(), log(20, EACH)
    far = halves(log(3, LEFT), log(3, RIGHT))
    assert asked.answer(1_000 + STALLED_MS - 1, 5, shard, far) is None, "they have begun"
    far = halves(log(3, LEFT), log(4, RIGHT))
    assert asked.answer(1_000 + STALLED_MS, 5, shard, far) is None
    answer = present(asked.answer(1_000 + 2 * STALLED_MS, 5, shard, far))
    assert answer == SplitStep("s", Step.WITHDRAWN, 5, 4, answer.reason)
    assert "got no further for 5 minutes: check that the nodes of s.0 and s.1" in answer.reason


def test_hv7_halves_that_are_as_far_as_the_shard_wait_for_input_like_it() -> None:
    asked, shard = driver(), log(6, EACH)
    level = halves(log(6, LEFT), log(6, RIGHT))
    assert asked.answer(1_000, 5, shard, level) is None
    assert asked.answer(1_000 + 2 * STALLED_MS, 5, shard, level) is None
    behind = log(9, EACH)
    assert asked.answer(1_000 + 3 * STALLED_MS - 1, 5, behind, level) is None
    assert asked.answer(1_000 + 3 * STALLED_MS, 5, behind, level) is not None
    least_ms = 1_000 + SPLIT_MS_MAX + 2 * 60_000
    answer = present(driver().answer(least_ms, 5, shard, level))
    assert "within 62 minutes 6 buckets of the halves could be compared" in answer.reason


def test_hv7_an_attempt_has_an_hour_and_the_state_horizon() -> None:
    asked, shard = driver(), log(900, EACH)
    for number in range(60):
        far = halves(log(number + 1, LEFT), log(number + 1, RIGHT))
        assert asked.answer(1_000 + number * 60_000, 5, shard, far) is None
    least_ms = 1_000 + SPLIT_MS_MAX + 2 * 60_000
    near = halves(log(70), half({}, 70, 69))
    assert asked.answer(least_ms - 1, 5, shard, near) is None
    answer = present(asked.answer(least_ms, 5, shard, near))
    assert answer.reason == "the halves did not reach s within 62 minutes"


# -- the end and reading


def test_hv2_the_end_names_two_heirs_and_the_last_bucket_that_counts() -> None:
    log_state = log(5, {3: 1})
    last = end("0", 0, ENDING, log_state, 9)
    assert (last.heirs, last.past, last.prev) == (HEIRS, 5, log_state.tip("0"))
    assert log_state.apply(2, last).accepted
    assert log_state.upto == 5
    assert [bucket for bucket, _, _ in log_state.stable(1, 5)] == [3]


def test_the_end_takes_back_nothing_that_another_replica_closed_before_it() -> None:
    log_state = log(5, attempt=-1)
    last = end("0", 0, ENDING, log_state, 9)
    log_state.apply(2, replace(started("1"), token="u"))
    log_state.apply(3, record(2, 0, 8, replica="1"))
    assert log_state.apply(4, last).accepted
    assert log_state.upto == 8
    assert LogState.from_snapshot(log_state.snapshot(5)).upto == 8


def shards(**logs: list[LogEntry]) -> dict[str, ShardLogState]:
    """Return what a reader has of the shards ``s`` and its halves ``s0`` and ``s1``."""
    found = {"s": ShardLogState(["0"])}
    found |= {name: ShardLogState(["0"], found["s"]) for name in ("s0", "s1")}
    for name, entries in logs.items():
        for offset, entry in enumerate(entries):
            found[name].apply(offset, entry)
    return found


def entries(closed: int, rows: dict[int, int] | None = None) -> list[LogEntry]:
    parts = tuple(Part(b, 0, "a", 1, 0, 1, n, 7 * n) for b, n in (rows or {}).items())
    return [started(), record(0, 0, closed, parts)]


def finish(shard: ShardLogState) -> None:
    """End the shard's stream."""
    assert shard.apply(2, end("0", 0, ENDING, shard, 1)).accepted


def filled(state: LogState, first: int, last: int) -> list[int]:
    return [bucket for bucket, _, _ in state.stable(first, last)]


def test_hv6_a_bucket_is_read_from_the_shard_or_from_both_halves() -> None:
    logs = shards(s=entries(5, EACH), s0=entries(7, LEFT), s1=entries(4, RIGHT))
    assert [each.upto for each in logs.values()] == [5, BUCKET_MAX, BUCKET_MAX]
    assert [filled(each, 3, 5) for each in logs.values()] == [[3, 4, 5], [], []]
    finish(logs["s"])
    assert [each.upto for each in logs.values()] == [BUCKET_MAX, 7, 5]
    assert [filled(each, 3, 5) for each in logs.values()] == [[3, 4, 5], [], []]
    assert filled(logs["s"], 5, 9) == [5], "what it had named of later buckets is in the halves"
    assert filled(logs["s0"], 5, 7) == [6, 7]


def test_hv6_a_half_that_is_not_read_shows_nothing() -> None:
    parts = [Part(b, 0, "t", 1, 0, 1, 1, 1) for b in (8, 9)]
    branch = tentative(0, 0, 9, *parts, base=7)
    logs = shards(s=entries(5), s0=[*entries(7, {9: 1}), branch])
    half = logs["s0"]
    assert (half.past_upto, half.seen_upto) == (0, 0)
    assert not half.has_branch("0")
    assert (half.tentative_upto("0"), half.tentative_offers()) == (0, {})
    assert (half.open_parts(9), half.open_buckets(8, 20)) == (("", ()), [])
    finish(logs["s"])
    assert (half.past_upto, half.seen_upto) == (9, 9)
    assert half.has_branch("0")
    assert (half.tentative_upto("0"), half.tentative_offers()) == (9, {"0": 9})
    assert half.open_buckets(1, 20) == [9]
    assert half.open_parts(9)[0] == "0"


def test_hv6_a_half_may_be_split_in_turn() -> None:
    """A reader takes nothing of a shard before every shard above it has ended."""
    logs = shards(s=entries(5), s0=entries(7, EACH), s1=entries(9))
    quarter = ShardLogState(["0"], logs["s0"])
    for offset, entry in enumerate(entries(9, EACH)):
        quarter.apply(offset, entry)
    finish(logs["s0"])
    assert (quarter.is_read, quarter.upto) == (False, BUCKET_MAX)
    finish(logs["s"])
    assert (quarter.is_read, quarter.begins_after, quarter.upto) == (True, 7, 9)
    assert filled(logs["s0"], 1, 9) == [6, 7]
    assert filled(quarter, 1, 9) == [8, 9]
