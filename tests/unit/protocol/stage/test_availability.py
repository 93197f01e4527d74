"""Timers of buckets, the waits for them, and the lags of inputs that go through more stages."""

from __future__ import annotations

from itertools import pairwise

import pytest

from anabranch.protocol.edge.ingestion import ChunkFacts, SourceMachine, SourceProgress, SourceRules
from anabranch.protocol.limits import CLUSTER_AGAIN_MS, CLUSTER_ANSWER_MS, HOP_MS
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.buckets import bucket_of
from anabranch.protocol.stage.availability import (
    HOP_LONGEST_MS,
    LAG_SAMPLES,
    OWN,
    SLACK_MS,
    STALL_MS,
    TIMER_ERROR_PARTS,
    TIMER_STEPS_MAX,
    Ahead,
    Availability,
    BucketTimers,
    InputLags,
    Policy,
    Round,
    RoundKind,
    Waits,
    delay_bound_ms,
    policy_of,
    strictest,
    waits_of,
)
from harness.boundary_logs import part, record, started, state_after

SHALLOW_MS = 700


def test_il1_inputs_of_one_depth_have_no_lag() -> None:
    lags = InputLags({"a": 0, "b": 0}, SHALLOW_MS)
    lags.closed("a", 90_000)
    assert lags.beyond_expected_ms == 0


def test_the_median_of_what_was_measured_takes_the_place_of_the_constant() -> None:
    lags = InputLags({"raw": 0, "deep": 4}, SHALLOW_MS)
    assert lags.beyond_expected_ms == 0
    for took_ms in (1_500, 1_700, 5_000):
        lags.closed("deep", took_ms)
    assert lags.beyond_expected_ms == 1_000 - 4 * HOP_MS
    lags.closed("raw", 9_000)
    assert lags.beyond_expected_ms == 1_000 - 4 * HOP_MS


def test_a_short_failure_moves_nothing_and_slower_stages_do() -> None:
    lags = InputLags({"raw": 0, "deep": 1}, SHALLOW_MS)
    for _ in range(LAG_SAMPLES):
        lags.closed("deep", SHALLOW_MS + 100)
    for _ in range(LAG_SAMPLES // 2):
        lags.closed("deep", SHALLOW_MS + HOP_LONGEST_MS)
    assert lags.beyond_expected_ms == 100 - HOP_MS
    lags.closed("deep", SHALLOW_MS + HOP_LONGEST_MS)
    assert lags.beyond_expected_ms == HOP_LONGEST_MS - HOP_MS


def test_il2_il3_what_took_too_long_is_no_hop() -> None:
    lags = InputLags({"raw": 0, "deep": 1}, SHALLOW_MS)
    lags.closed("deep", SHALLOW_MS + HOP_LONGEST_MS + 1)
    assert lags.beyond_expected_ms == 0


@pytest.mark.parametrize("hop_ms", [200, 600, 1_000])
def test_a_raw_source_joined_with_a_stream_of_four_hops_fails_only_when_something_fails(
    hop_ms: int,
) -> None:
    """Buckets of 500 ms; the stream closes each four hops after the source did."""
    deep_ms, width_ms = 4 * hop_ms, 500
    expected = waits_of(3_000, SHALLOW_MS + 4 * HOP_MS, 4, 1)
    availability = Availability(
        ["raw", "deep"], expected, Policy.PROCESS, InputLags({"raw": 0, "deep": 4}, SHALLOW_MS)
    )
    over = []
    for now_ms in range(0, 100_000, 100):
        raw, deep = 1_000 + now_ms // width_ms, 1_000 + max(0, now_ms - deep_ms) // width_ms
        if now_ms >= 90_000:
            deep = 1_000 + (90_000 - deep_ms) // width_ms
        availability.observe(now_ms, raw, raw + 1)
        for name, upto in (("raw", raw), ("deep", deep)):
            availability.closed(name, upto, now_ms)
            availability.read_to_end(name, now_ms)
        if availability.first_over(deep + 1):
            over.append(now_ms)
    budget_ms = expected.first_ms - 4 * HOP_MS - SHALLOW_MS
    assert over
    begins_ms = (
        90_000 - deep_ms - width_ms
    )  # at the latest the timer of the first bucket that does not come
    assert begins_ms <= over[0] - deep_ms - SHALLOW_MS - budget_ms + 2 * width_ms <= 90_000
    assert over[0] > 90_000
    assert (
        availability.waits.first_ms - expected.first_ms
        == deep_ms + width_ms - SHALLOW_MS - 4 * HOP_MS
    )


FIRST, NEXT = 1_000, 300
WAITS = Waits(FIRST, NEXT)


def test_av6_a_stage_whose_tentative_results_nobody_sees_waits() -> None:
    assert [policy_of(policy, is_seen=True) for policy in Policy] == list(Policy)
    assert {policy_of(policy, is_seen=False) for policy in Policy} == {Policy.SUSPEND}


class TestWaits:
    def test_the_longest_wait_leaves_time_for_the_stages_after(self) -> None:
        assert waits_of(3_000, 250, 0, 1) == Waits(250 + 3_000 - SLACK_MS - HOP_MS, 250 + HOP_MS)
        assert waits_of(3_000, 250, 1, 1) == Waits(
            250 + 3_000 - SLACK_MS - HOP_MS, 250 + 2 * HOP_MS
        )
        assert waits_of(3_000, 250, 0, 2) == Waits(
            250 + 3_000 - SLACK_MS - 2 * HOP_MS, 250 + HOP_MS
        )

    @pytest.mark.parametrize("max_delay_ms", [0, 500, 2_200, 3_000, 3_400, 60_000])
    def test_a_chain_waits_once(self, max_delay_ms: int) -> None:
        """Stage i of k gives up one hop before stage i + 1, and never waits less than one hop
        for a bucket.
        """
        chain = [waits_of(max_delay_ms, 250, i, 4 - i) for i in range(4)]
        for before, after in pairwise(chain):
            assert 0 <= after.first_ms - before.first_ms <= HOP_MS
        if max_delay_ms >= delay_bound_ms(4):
            assert [w.first_ms for w in chain] == [
                250 + max_delay_ms - SLACK_MS - (4 - i) * HOP_MS for i in range(4)
            ]
            assert chain[-1].first_ms + HOP_MS + SLACK_MS <= 250 + max_delay_ms, (
                "the last one's result is there in time"
            )
        assert all(250 + HOP_MS <= w.next_ms <= w.first_ms for w in chain)

    def test_the_bound_is_the_least_that_leaves_the_first_stage_a_hop(self) -> None:
        least = delay_bound_ms(3)
        assert waits_of(least, 250, 0, 3).first_ms == 250 + HOP_MS
        assert least - SLACK_MS - 3 * HOP_MS == HOP_MS
        assert delay_bound_ms(1) == SLACK_MS + 2 * HOP_MS


class TestBucketTimers:
    def test_av1_no_timer_starts_before_a_sign(self) -> None:
        timers = BucketTimers()
        assert timers.started(1) is None
        timers.observe(10, 0)
        assert timers.started(1) is None, (
            "nothing was said yet: an input that never began is not a failure"
        )
        timers.observe(20, 4)
        assert [timers.started(bucket) for bucket in (1, 5, 6)] == [20, 20, None]

    def test_av1_a_timer_never_starts_again(self) -> None:
        timers = BucketTimers()
        timers.observe(20, 4)
        timers.observe(30, 3)
        timers.observe(40, 4)
        timers.observe(50, 6)
        assert [timers.started(bucket) for bucket in (4, 5, 6, 7, 8)] == [20, 20, 50, 50, None]

    def test_signs_of_one_moment_are_one_step(self) -> None:
        timers = BucketTimers()
        for past in range(1, 1_000):
            timers.observe(20, past)
        assert (timers.started(1), timers.started(1_000), len(timers._at)) == (20, 20, 1)

    def test_the_last_bucket_whose_timer_started_by_then(self) -> None:
        timers = BucketTimers()
        assert timers.started_before(10**9) == 0
        timers.observe(20, 4)
        timers.observe(30, 9)
        assert [timers.started_before(at) for at in (19, 20, 29, 30, 99)] == [0, 5, 5, 10, 10]

    def test_what_was_read_is_forgotten_but_not_that_it_started(self) -> None:
        timers = BucketTimers()
        timers.forget(7)
        for now, past in ((20, 4), (30, 9), (40, 14)):
            timers.observe(now, past)
        timers.forget(4)
        assert timers.started(5) == 20
        timers.forget(5)
        assert (timers.started(6), timers.started_before(29)) == (30, 0)
        timers.forget(99)
        timers.observe(50, 14)
        assert (timers.started(15), timers.started(16), len(timers._at)) == (40, None, 1)

    def test_av8_they_do_not_grow_while_an_input_is_away(self) -> None:
        """For a week in which each bucket of the others starts one: for a day each is observed."""
        timers, day_ms = BucketTimers(), 86_400_000
        sizes = set[int]()
        true_ms = dict[int, int]()
        for now in (*range(250, day_ms, 250), *range(day_ms, 7 * day_ms, 60_000)):
            timers.observe(now, now // 250)
            if now % 600_000 == 0:
                true_ms[now // 250 + 1] = now
                sizes.add(len(timers._at))
        now = 7 * day_ms
        assert max(sizes) <= TIMER_STEPS_MAX
        for bucket, started_ms in true_ms.items():
            shown_ms = timers.started(bucket)
            assert shown_ms is not None
            error_ms = shown_ms - started_ms
            assert 0 <= error_ms * TIMER_ERROR_PARTS <= now - started_ms
        order = [timers.started(bucket) or 0 for bucket in sorted(true_ms)]
        assert order == sorted(order)


def made(policy: Policy = Policy.PROCESS, inputs: str = "ab") -> Availability:
    return Availability(inputs, WAITS, policy)


def observe(availability: Availability, upto_ms: int, past: int, since_ms: int = 0) -> None:
    """Look again and again."""
    for now in range(since_ms, upto_ms + 1, 100):
        availability.observe(now, past)


def elsewhere(inputs: str = "ab", those: str = "b") -> Availability:
    return Availability(inputs, WAITS, Policy.PROCESS, elsewhere=those)


class TestWaitsBefore:
    """AV11. The stage before waits 200 ms less than this one."""

    def made(self) -> Availability:
        before_ms = {"a": FIRST - 200}
        return Availability("ab", WAITS, Policy.PROCESS, before_ms=before_ms)

    def test_av11_what_the_stage_before_has_waited_for_is_over_soon(self) -> None:
        availability = self.made()
        observe(availability, 500, 4)
        availability.has_waited("a", 7, 500)
        availability.has_waited("a", 7, 600)  # says nothing new
        for name in "ab":
            availability.read_to_end(name, 699)
        assert not availability.first_over(5)
        assert availability.look_wanted("a", 5, 700, branching=False)
        for name in "ab":
            availability.read_to_end(name, 700)
        assert availability.first_over(5)
        assert not availability.first_over(6), "its timer has not started"
        assert not availability.overdue(5, 700), "the branch has its own time"

    def test_av11_nor_is_a_later_bucket_or_one_of_another_input(self) -> None:
        availability = self.made()
        observe(availability, 500, 4)
        availability.has_waited("a", 4, 500)
        availability.has_waited("b", 9, 500)  # its stage's wait is not known
        for name in "ab":
            availability.read_to_end(name, FIRST - 1)
        assert not availability.first_over(5)

    def test_av11_a_pause_of_the_process_does_not_count(self) -> None:
        availability = self.made()
        observe(availability, 500, 4)
        availability.has_waited("a", 7, 500)
        availability.observe(2_500, 4)
        for name in "ab":
            availability.read_to_end(name, 2_600)
        assert not availability.first_over(5)
        for name in "ab":
            availability.read_to_end(name, 2_700)
        assert availability.first_over(5)


class TestOtherClusters:
    def test_av7_a_cluster_that_does_not_answer_is_not_waited_for(self) -> None:
        availability = elsewhere()
        observe(availability, 2_000, 4)
        availability.read_to_end("a", FIRST)
        assert not availability.first_over(5), "what is there of b nobody knows"
        assert availability.blind(2_000)
        availability.unanswered("b", 700, 1_200)
        assert availability.is_silent("b")
        assert not availability.blind(2_000)
        assert availability.first_over(5)
        assert availability.still()
        assert availability.due_upto(4, 4) == 5

    def test_av7_what_it_says_counts_again_when_it_was_read_to_an_end(self) -> None:
        availability = elsewhere()
        observe(availability, 2_000, 4)
        availability.read_to_end("a", 2_000)
        availability.unanswered("b", 700, 1_200)
        availability.read_to_end("b", 600)
        assert availability.is_silent("b"), "that end was asked for before"
        availability.read_to_end("b", 900)
        assert not availability.is_silent("b")
        assert not availability.first_over(5), "it was asked before the deadline"
        availability.read_to_end("b", FIRST)
        assert availability.first_over(5)

    def test_av7_the_own_cluster_must_answer_all_the_same(self) -> None:
        availability = elsewhere()
        observe(availability, 5_000, 4)
        availability.unanswered("b", 700, 1_200)
        assert not availability.first_over(5)
        assert availability.blind(5_000)
        assert not availability.own_wanted(), "a is on it"
        assert not availability.look_wanted(OWN, 5, 5_000, branching=False)

    def test_av7_where_no_input_is_on_it_the_own_cluster_is_asked_itself(self) -> None:
        availability = elsewhere("ab", "ab")
        observe(availability, 2_000, 4)
        for name in "ab":
            availability.unanswered(name, 700, 1_200)
        assert availability.own_wanted()
        assert availability.blind(2_000)
        assert not availability.first_over(5)
        availability.read_to_end(OWN, 100)
        assert not availability.own_wanted()
        assert not availability.blind(2_000)
        assert not availability.first_over(5), "it was asked before the deadline"
        assert not availability.look_wanted(OWN, 5, FIRST - 1, branching=False)
        assert availability.look_wanted(OWN, 5, FIRST, branching=False)
        availability.read_to_end(OWN, FIRST)
        assert availability.first_over(5)

    def test_av4_who_wakes_asks_again(self) -> None:
        availability = elsewhere()
        observe(availability, 2_000, 4)
        availability.read_to_end("a", 2_000)
        availability.unanswered("b", 700, 1_200)
        observe(availability, 9_000, 4, since_ms=2_000 + STALL_MS + 1)
        assert not availability.is_silent("b")
        assert availability.end_wanted("b")
        assert availability.blind(9_000)

    def test_av4_who_slept_has_not_waited_for_the_answer(self) -> None:
        availability = elsewhere()
        availability.unanswered("b", 700, 700 + CLUSTER_ANSWER_MS + STALL_MS + 1)
        assert not availability.is_silent("b")
        availability.unanswered("b", 700, 700 + CLUSTER_ANSWER_MS + STALL_MS)
        assert availability.is_silent("b")

    def test_it_is_asked_so_early_that_the_answer_is_there_in_time(self) -> None:
        availability = elsewhere()
        observe(availability, 1_000, 4)
        early = FIRST - CLUSTER_ANSWER_MS

        def wanted(name: str, now_ms: int) -> bool:
            return availability.look_wanted(name, 5, now_ms, branching=False)

        assert [wanted("b", at) for at in (early - 1, early)] == [False, True]
        assert [wanted("a", at) for at in (early, FIRST - 1, FIRST)] == [False, False, True]
        availability.read_to_end("b", early)
        assert [wanted("b", at) for at in (early + 1, FIRST - 1, FIRST)] == [False, False, True]
        availability.unanswered("b", early, early + 500)
        assert not wanted("b", FIRST), "what it does is known"

    def test_a_cluster_is_not_asked_all_the_time(self) -> None:
        availability = elsewhere()
        availability.read_to_end("b", 600)

        def asks(now_ms: int, *, wanted: bool = True) -> bool:
            look = availability.look("b", now_ms, wanted=wanted)
            assert look in {RoundKind.ASK_END, RoundKind.READ_ON}
            return look is RoundKind.ASK_END

        assert asks(700)
        assert not asks(700, wanted=False)
        availability.end_found("b", 690, 5)
        assert not asks(700), "the log is being read to that end"
        assert asks(690 + CLUSTER_AGAIN_MS)
        assert availability.reached("b", 5)
        assert asks(700)
        availability.unanswered("b", 700, 1_200)
        assert not asks(1_300)
        assert asks(700 + CLUSTER_AGAIN_MS, wanted=False), "to see when it is back"


class TestLooks:
    """AV3, AV4: what is there is known when the log was read to an end asked for."""

    def test_where_a_wait_may_be_over_a_log_is_read_to_its_end(self) -> None:
        assert made().look("a", 700, wanted=True) is RoundKind.READ_TO_END

    def test_who_has_begun_asks_where_the_log_ends_once_and_reads_up_to_there(self) -> None:
        availability = made()
        assert availability.look("a", 100, wanted=False) is RoundKind.ASK_END
        availability.end_found("a", 100, 5)
        assert availability.look("a", 150, wanted=False) is RoundKind.READ_ON
        assert not availability.reached("a", 4)
        assert availability.end_wanted("a")
        assert availability.reached("a", 5)
        assert not availability.end_wanted("a")
        assert not availability.reached("a", 9), "nothing was asked"
        assert availability.look("a", 200, wanted=False) is RoundKind.READ_ON

    def test_an_end_asked_for_before_a_pause_says_nothing_after_it(self) -> None:
        availability = made()
        availability.observe(100, 4)
        availability.end_found("a", 100, 5)
        availability.observe(60_000, 4)
        assert availability.look("a", 60_001, wanted=False) is RoundKind.ASK_END
        availability.end_found("a", 60_001, 9)
        assert not availability.reached("a", 5)
        assert availability.reached("a", 9)
        assert not availability.end_wanted("a")

    def test_the_first_question_that_still_says_enough_counts(self) -> None:
        availability = elsewhere()
        availability.end_found("b", 100, 5)
        availability.end_found("b", 700, 500)
        assert availability.reached("b", 5)

    def test_without_contact_to_the_own_cluster_nothing_is_judged(self) -> None:
        availability = made()
        availability.end_found("a", 100, 5)
        availability.unanswered("a", 200, 300)
        assert not availability.is_silent("a")
        assert availability.reached("a", 5)


class TestAvailability:
    def test_av3_a_wait_is_over_when_every_log_was_read_after_the_deadline(self) -> None:
        availability = made()
        observe(availability, 5_000, 4)
        assert not availability.first_over(5)
        availability.read_to_end("a", 5_000)
        assert not availability.first_over(5)
        availability.read_to_end("b", FIRST - 1)
        assert not availability.first_over(5)
        availability.read_to_end("b", FIRST)
        assert availability.first_over(5)
        availability.read_to_end("b", 0)
        assert availability.first_over(5), "an older look takes nothing back"
        assert not availability.first_over(6), "no sign of bucket 5 being over"

    def test_av5_a_bucket_of_which_there_is_nothing_is_not_waited_for(self) -> None:
        availability = made()
        for now in range(0, 5_001, 100):
            availability.observe(now, 4, 4)
        for name in "ab":
            availability.read_to_end(name, 5_000)
        assert not availability.first_over(5), "all inputs stand at 4"
        assert not availability.overdue(5, 5_000)
        assert not availability.look_wanted("a", 5, 6_000, branching=False)
        assert availability.due_upto(4, 4) == 4
        availability.observe(5_000, 4, 5)
        assert availability.first_over(5), (
            "something of it is there, and its timer has run since 4 was over"
        )
        assert availability.due_upto(4, 4) == 5

    def test_av4_who_began_or_woke_is_blind_until_all_logs_were_read(self) -> None:
        availability = made()
        assert (availability.blind(0), availability.end_wanted("a")) == (True, True)
        observe(availability, 500, 4)
        availability.read_to_end("a", 500)
        assert (
            availability.blind(500),
            availability.end_wanted("a"),
            availability.end_wanted("b"),
        ) == (True, False, True)
        availability.read_to_end("b", 400)
        assert not availability.blind(500 + STALL_MS)
        woke_ms = 501 + STALL_MS
        assert availability.blind(woke_ms), "before it has looked"
        availability.observe(woke_ms, 4)
        for name in "ab":
            availability.read_to_end(name, woke_ms - 1)
        assert (availability.blind(woke_ms), availability.end_wanted("a")) == (True, True), (
            "asked for before it slept"
        )
        for name in "ab":
            availability.read_to_end(name, woke_ms)
        assert (
            availability.blind(woke_ms),
            availability.end_wanted("a"),
            availability.woke_ms,
        ) == (False, False, woke_ms)

    def test_av4_who_left_an_input_unread_is_blind_until_it_was_read(self) -> None:
        availability = made()
        observe(availability, 500, 4)
        for name in "ab":
            availability.read_to_end(name, 500)
        availability.left_unread("b", 600)
        assert [availability.end_wanted(name) for name in "ab"] == [False, True]
        assert (availability.blind(600), availability.sighted_ms) == (True, 601)
        availability.read_to_end("b", 600)
        assert availability.blind(601), "asked for before"
        availability.read_to_end("b", 601)
        assert not availability.blind(601)

    def test_av4_a_process_that_slept_waits_on(self) -> None:
        availability = made()
        observe(availability, 500, 4)
        availability.observe(500 + STALL_MS, 4)
        assert availability._timers.started(5) == 0, "not longer than a look may take"
        availability.observe(500 + 2 * STALL_MS + 60_000, 4)
        started = availability._timers.started(5)
        assert started == STALL_MS + 60_000

    @pytest.mark.parametrize(("branching", "wait"), [(False, FIRST), (True, NEXT)])
    def test_a_look_is_wanted_once_per_deadline(self, branching: bool, wait: int) -> None:
        availability = made()

        def wanted(name: str, now: int, bucket: int = 5) -> bool:
            return availability.look_wanted(name, bucket, now, branching=branching)

        assert not wanted("a", 10**6), "no timer runs"
        availability.observe(0, 4)
        assert not wanted("a", wait - 1)
        assert wanted("a", wait)
        availability.read_to_end("a", wait)
        assert not wanted("a", wait + 50)
        assert wanted("b", wait + 50)
        availability.observe(100, 6)
        assert wanted("a", wait + 100) is branching, (
            "a branch may go on with bucket 7; the long wait is for bucket 5 alone"
        )
        assert not wanted("a", wait + 10_000, 8), "its timer did not start"

    def test_a_branch_looks_one_hop_later_where_an_input_is_held(self) -> None:
        availability = made()
        availability.observe(0, 4)
        wanted = [
            availability.look_wanted("a", 5, at, branching=True, extended=True)
            for at in (NEXT, NEXT + HOP_MS - 1, NEXT + HOP_MS)
        ]
        assert wanted == [False, False, True]

    def test_a_branch_looks_for_the_next_bucket_too_when_none_is_overdue(self) -> None:
        availability = made()
        availability.observe(0, 4)
        availability.observe(100, 6)
        availability.read_to_end("a", NEXT)
        assert not availability.look_wanted("a", 6, NEXT + 50, branching=True)
        assert availability.look_wanted("a", 6, NEXT + 100, branching=True)

    def test_what_is_there_is_due_at_once(self) -> None:
        assert made().due_upto(3, 8) == 8
        assert made(Policy.DELAY).due_upto(3, 8) == 3, (
            "with the policy delay, tentative input waits as long as missing input"
        )

    @pytest.mark.parametrize(
        ("policy", "extended", "wait"),
        [
            (Policy.PROCESS, False, NEXT),
            (Policy.PROCESS, True, NEXT + HOP_MS),
            (Policy.DELAY, False, FIRST),
            (Policy.DELAY, True, FIRST + HOP_MS),
        ],
    )
    def test_what_is_not_there_is_due_after_the_wait(
        self, policy: Policy, extended: bool, wait: int
    ) -> None:
        availability = made(policy)
        availability.observe(0, 4)
        availability.observe(100, 6)
        for name in "ab":
            availability.read_to_end(name, wait - 1)
        assert availability.due_upto(2, 2, extended=extended) == 2
        availability.read_to_end("a", wait + 100)
        assert availability.due_upto(2, 2, extended=extended) == 2, "the other log was not read"
        availability.read_to_end("b", wait + 99)
        assert availability.due_upto(2, 2, extended=extended) == 5
        availability.read_to_end("b", wait + 100)
        assert availability.due_upto(2, 2, extended=extended) == 7

    def test_memory_is_bounded_by_what_is_not_read(self) -> None:
        availability = made()
        for now in range(5_000):
            availability.observe(now, now)
            availability.forget(now - 3)
        assert len(availability._timers._at) <= 5


class TestSigns:
    """Rule 13 from the input partition to the timer: a source of two partitions in buckets of
    500 ms, which are closed 200 ms after their end.
    """

    BASE, WIDTH = 500_000, 500

    def run(
        self, silent_ms: int, ahead_ms: int, *, factor: int = 1
    ) -> tuple[list[tuple[int, int]], int]:
        """((when, bucket) of each bucket whose long wait is over though it is not complete, the
        last bucket that is closed) after 60 s.

        Partition 1 falls silent at ``silent_ms``. At 10 s a record comes that is ``ahead_ms`` in
        front. Event time goes ``factor`` times as fast as the clock.
        """
        width, out_of_orderness = self.WIDTH * factor, 200 * factor
        machine = SourceMachine(
            SourceRules(width, out_of_orderness, partition_idle_ms=None),
            {("t", 0): 0, ("t", 1): 0},
            SourceProgress(),
            0,
        )
        log_state, waits = LogState(["0"]), waits_of(3_000, self.WIDTH + 200, 0, 1)
        availability = Availability(["s"], waits, Policy.PROCESS)
        log_state.apply(0, started())
        over: list[tuple[int, int]] = []
        for step, now_ms in enumerate(range(0, 60_000, 100)):
            event_time = self.BASE + now_ms * factor
            newest = [event_time + (ahead_ms if now_ms == 10_000 else 0), event_time]
            speaking = [0] if now_ms >= silent_ms else [0, 1]
            machine.read([ChunkFacts(("t", i), step + 1, newest[i]) for i in speaking], now_ms)
            parts = tuple(part(bucket_of(newest[i], width), f"{step}") for i in speaking)
            log_state.apply(
                step + 1, record(0, step, machine.advance(now_ms), parts, past=machine.past)
            )
            availability.observe(now_ms, log_state.past_upto, log_state.seen_upto)
            availability.read_to_end("s", now_ms)
            after = over[-1][1] if over else log_state.upto
            over += [
                (now_ms, bucket)
                for bucket in range(after + 1, log_state.seen_upto + 1)
                if availability.first_over(bucket)
            ]
        return over, log_state.upto

    def test_one_record_in_front_of_the_clock_makes_no_failure(self) -> None:
        over, upto = self.run(10**9, 30_000)
        assert over == []
        assert upto == bucket_of(self.BASE + 59_900 - 200, self.WIDTH) - 1

    @pytest.mark.parametrize(("ahead_ms", "factor"), [(0, 1), (30_000, 1), (0, 20)])
    def test_a_silent_partition_of_the_only_source_starts_the_timers_of_later_buckets(
        self, ahead_ms: int, factor: int
    ) -> None:
        """Each at its time, also where data is replayed faster than the clock, and however
        far in front a record lies.
        """
        over, upto = self.run(20_000, ahead_ms, factor=factor)
        first_ms = waits_of(3_000, self.WIDTH + 200, 0, 1).first_ms
        width = self.WIDTH * factor
        assert [bucket for _, bucket in over] == list(range(upto + 1, over[-1][1] + 1))
        for at_ms, bucket in over:
            begins_ms = (
                (bucket - 1) * width - self.BASE
            ) // factor  # of the bucket: records of it come from here on
            assert begins_ms + first_ms - 100 <= at_ms <= begins_ms + first_ms + 300
        assert len(over) >= (60_000 - 20_000 - first_ms) // self.WIDTH - 1


@pytest.mark.parametrize(
    ("elsewhere", "look", "is_opening", "own_wanted", "clusters"),
    [
        ("", RoundKind.ASK_END, False, False, ["a"]),
        ("", RoundKind.READ_ON, False, True, []),
        ("a", RoundKind.ASK_END, False, False, ["a"]),
        ("a", RoundKind.ASK_END, False, True, [OWN, "a"]),
        ("a", RoundKind.READ_ON, False, True, [OWN]),
        ("a", RoundKind.ASK_END, True, True, []),
    ],
)
def test_av7_the_own_cluster_is_asked_before_another(
    elsewhere: str, look: RoundKind, is_opening: bool, own_wanted: bool, clusters: list[str]
) -> None:
    availability = Availability("ab", Waits(2_000, 600), Policy.PROCESS, elsewhere=elsewhere)
    assert (
        availability.clusters_to_ask("a", look, is_opening=is_opening, own_wanted=own_wanted)
        == clusters
    )


class Followed:
    """A stage of two inputs, of which a has closed three buckets; rounds of following a log."""

    def __init__(self, lags: InputLags | None = None) -> None:
        self.log_states = {
            "a": state_after(started("0"), record(0, 0, 3, (part(1), part(4)))),
            "b": state_after(started("0")),
        }
        self.availability = Availability("ab", Waits(2_000, 600), Policy.PROCESS, lags)

    def round(self, name: str, began_ms: int, *, has_read: bool, is_whole: bool) -> bool:
        done = Round(name, began_ms, 7, has_read=has_read, is_whole=is_whole)
        return self.availability.followed(done, self.log_states, began_ms + 100)


def test_a_round_starts_timers_and_says_whether_anything_came_of_it() -> None:
    stage = Followed()
    assert not stage.round("b", 0, has_read=False, is_whole=False)
    assert stage.round("a", 0, has_read=True, is_whole=False)
    assert stage.availability.blind(200)
    assert stage.round("a", 200, has_read=False, is_whole=True)
    assert stage.round("b", 200, has_read=False, is_whole=True)
    assert not stage.availability.blind(300), "both were read to an end"
    assert [stage.availability.overdue(4, at_ms) for at_ms in (2_099, 2_100)] == [False, True]


def test_a_round_that_comes_to_the_end_that_was_asked_for_is_news() -> None:
    stage = Followed()
    stage.availability.end_found("b", 0, end=8)
    assert not stage.round("b", 0, has_read=False, is_whole=False)
    stage.availability.end_found("b", 100, end=7)
    assert not stage.round("b", 100, has_read=False, is_whole=False), "the first one counts"
    stage.availability.reached("b", 8)
    stage.availability.end_found("a", 100, end=7)
    assert stage.round("a", 100, has_read=False, is_whole=False)


def test_a_round_measures_how_long_its_input_took_for_a_bucket() -> None:
    stage = Followed(InputLags({"a": 0, "b": 1}, 0))
    for closed, began_ms in ((1, 0), (3, 500)):
        stage.log_states["b"] = state_after(started("0"), record(0, 0, closed))
        stage.round("b", began_ms, has_read=True, is_whole=False)
    assert stage.availability.waits.first_ms == 2_000 + 500 - HOP_MS


def test_av10_the_strictest_output_leaves_the_least_time() -> None:
    near, far = Ahead(3_000, 1, "near"), Ahead(3_000, 3, "far")
    assert strictest([near, far]) == strictest([far, near]) == far
    patient = Ahead(10_000, 3, "patient")
    assert strictest([patient, near]) == near
    assert strictest([patient]) == patient
    assert strictest([]) is None
    assert near.from_before() == Ahead(3_000, 2, "near")
    a_hop_more = Ahead(3_000 + HOP_MS, 2, "later")
    assert strictest([near, a_hop_more]) == near, "the first of equal ones"
