"""The decisions of one replica: the table of states row by row, policies, plans shared by
inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from anabranch.protocol.control.records import ReplicaState
from anabranch.protocol.errors import LocalProtocolError
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import HOP_MS
from anabranch.protocol.log.records import BoundaryKind, BoundaryRecord
from anabranch.protocol.log.timeline import timeline_name
from anabranch.protocol.stage.availability import STALL_MS, Policy, RoundKind
from anabranch.protocol.stage.planner import Plan, PlanTraits, QueryPosition
from anabranch.protocol.stage.recovery import Beginning
from anabranch.protocol.stage.replica import (
    INPUT_PARTS_MAX,
    SUCCESSOR_WITHOUT_ROWS_TIMES,
    Decision,
    JointPlan,
    Replica,
    StageRules,
)
from anabranch.protocol.stage.scheduling import (
    CORRECTION_STEP_MS,
    CORRECTION_STEPS_SERVED,
    QUIET_ROWS_MAX,
    BatchRules,
)
from harness.present import present
from harness.replica_bench import (
    STATEFUL,
    STATELESS,
    WAITS,
    WIDTH_MS,
    Bench,
    Settings,
    behind,
    part,
    stabilization,
    stable,
    up_failure,
)

FIRST, NEXT = WAITS.first_ms, WAITS.next_ms
ZERO, ONE, TWO = (timeline_name(7, number) for number in range(3))
STABLE, UP_FAILURE, STABILIZATION, FAILURE = ReplicaState


# -- the table: how to get into each state, an event, what follows
# -------------------------------------------------------------------------


def next_bucket_complete(bench: Bench) -> Decision:
    bench.close(bench.at(bench.stable_query) + 2, bench.at(bench.stable_query) + 1)
    bench.look()
    return bench.ask(bench.stable_query)


def long_wait_over(bench: Bench) -> Decision:
    bench.wait(FIRST)
    return bench.ask(bench.stable_query)


def branch_asks(bench: Bench) -> Decision:
    bench.close(30, 25, names="b")
    bench.wait(NEXT + 100)
    return bench.ask(bench.branch)


def paused(bench: Bench) -> Decision:
    bench.pause(2 * STALL_MS)
    return bench.ask(bench.stable_query)


def overdue(bench: Bench) -> Decision:
    """Let a batch take too long: the stable query does not ask."""
    bench.close(8, 8)
    bench.look()
    bench.wait(FIRST + HOP_MS)
    return Decision()


def all_is_complete(bench: Bench) -> Decision:
    bench.close(21, 21, names="ab")
    bench.now_ms += 100
    bench.look()
    bench.ask(bench.stable_query)
    return bench.ask(bench.stable_query)


def stable_to(bench: Bench, decision: Decision, query: str) -> None:
    assert decision.plan is not None
    assert decision.plan.kind is BoundaryKind.STABLE
    assert bench.ran[-1] == (query, decision.plan)


def nothing(bench: Bench, decision: Decision, query: str) -> None:
    assert (decision, bench.stable_query) == (Decision(), query)


def forks(bench: Bench, decision: Decision, query: str) -> None:
    assert decision.fork
    assert bench.ran[-1][0] == query
    assert bench.ran[-1][1].kind is BoundaryKind.TENTATIVE


def tentative_to(bench: Bench, decision: Decision, query: str) -> None:
    assert decision.plan is not None
    assert decision.plan.kind is BoundaryKind.TENTATIVE
    assert bench.ran[-1] == (query, decision.plan)


def drops(bench: Bench, decision: Decision, query: str) -> None:
    assert bench.dropped == [query]
    assert not decision.fork


Row = tuple[
    Callable[[], Bench],
    Callable[[Bench], Decision],
    Callable[[Bench, Decision, str], None],
    str,
    ReplicaState,
    str,
    str | None,
]
ROWS: list[Row] = [
    (behind, next_bucket_complete, stable_to, ZERO, STABLE, ZERO, None),
    (stable, paused, nothing, ZERO, FAILURE, ZERO, None),
    (stable, overdue, nothing, ZERO, FAILURE, ZERO, None),
    (stable, next_bucket_complete, stable_to, ZERO, STABLE, ZERO, None),
    (stable, long_wait_over, forks, ZERO, UP_FAILURE, ONE, ZERO),
    (up_failure, branch_asks, tentative_to, ZERO, UP_FAILURE, ONE, ZERO),
    (up_failure, next_bucket_complete, stable_to, ONE, STABILIZATION, ONE, ZERO),
    (stabilization, next_bucket_complete, stable_to, ONE, STABILIZATION, ONE, ZERO),
    (stabilization, all_is_complete, drops, ZERO, STABLE, ONE, None),
    (stabilization, long_wait_over, forks, ONE, UP_FAILURE, TWO, ONE),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0].__name__}-{row[1].__name__}")
def test_the_table_of_states(row: Row) -> None:
    arrange, event, expect, query, state, stable_query, branch = row
    bench = arrange()
    decision = event(bench)
    expect(bench, decision, query)
    assert (bench.state, bench.replica.stable_query, bench.replica.branch) == (
        state,
        stable_query,
        branch,
    )


def test_the_table_of_states_a_crash() -> None:
    """Whatever the state was: the next process has no branch, and its branches have higher
    numbers (RE3).
    """
    for bench in (stable(), up_failure(), stabilization()):
        after = Bench(settings=Settings(epoch=9))
        assert (after.state, after.replica.branch) == (FAILURE, None)
        assert after.replica.number > bench.replica.number


class TestPolicies:
    def test_suspend_never_goes_on_without_input(self) -> None:
        bench = stable(names="ab", policy=Policy.SUSPEND)
        bench.close(20, names="b")
        bench.wait(10 * FIRST)
        bench.settle()
        assert (bench.state, bench.looks, bench.replica.number) == (FAILURE, 0, (7, 0))
        bench.close(21)
        bench.look()
        bench.settle()
        assert bench.state is STABLE

    def test_delay_gives_each_bucket_the_long_wait(self) -> None:
        bench = stable(names="ab", policy=Policy.DELAY)
        bench.close(8, names="b")
        bench.look()
        bench.wait(FIRST)
        bench.settle()
        assert bench.at(bench.branch) == 9
        bench.close(12, names="b")
        bench.look()
        bench.wait(FIRST - 100)
        bench.settle()
        assert bench.at(bench.branch) == 9
        bench.wait(100)
        bench.settle()
        assert bench.at(bench.branch) == 13

    def test_process_gives_later_buckets_the_short_wait_and_takes_all_that_are_due_at_once(
        self,
    ) -> None:
        bench = up_failure()
        count = len(bench.tentative_plans())
        bench.close(25, 22, 24, names="b")
        bench.wait(NEXT - 100)
        bench.settle()
        assert bench.at(ZERO) == 21
        bench.wait(200)
        bench.settle()
        assert bench.at(ZERO) == 26
        assert len(bench.tentative_plans()) == count + 1

    def test_an_input_that_works_on_tentative_buckets_gets_one_hop_more(self) -> None:
        bench = up_failure()
        bench.upstream_works = True
        bench.close(25, 22, names="b")
        bench.wait(NEXT + HOP_MS - 200)
        bench.settle()
        assert bench.at(ZERO) == 21
        bench.wait(300)
        bench.settle()
        assert bench.at(ZERO) == 26


def test_tentative_buckets_of_upstream_are_taken_at_once_and_replaced_by_stable_ones() -> None:
    bench = up_failure()
    bench.close(30, names="b")
    bench.streams["a"].tentative(24, [part(23)], ("source",))
    bench.look()
    bench.settle()
    assert bench.at(ZERO) == 24
    taken = dict(bench.tentative_plans()[-1].inputs)["a"]
    assert (taken, bench.tentative_plans()[-1].missing) == (((23, "0", (part(23),)),), ("source",))
    bench.close(40, 26, names="ab")
    bench.streams["a"].end_branch()
    bench.now_ms += 100
    bench.look()
    bench.settle()
    assert (bench.state, bench.at(ONE)) == (STABLE, 40)


def test_the_branch_stays_while_an_input_is_still_being_corrected() -> None:
    bench = stabilization()
    bench.streams["a"].tentative(22, fork=True)
    assert all_is_complete(bench).drop is None
    for bucket in range(22, 40):
        bench.close(bucket, bucket, names="ab")
        bench.now_ms += 100
        bench.look()
        bench.settle()
    assert (bench.at(ONE), bench.dropped, bench.state) == (39, [], STABILIZATION)
    bench.streams["a"].end_branch()
    assert bench.ask(ONE).drop == ZERO
    assert bench.state is STABLE


def test_re5_a_branch_stays_while_the_next_bucket_is_about_to_be_overdue() -> None:
    bench = up_failure()
    bench.close(30, names="b")
    bench.look()
    bench.now_ms += FIRST - HOP_MS // 2
    bench.close(29, names="a")
    bench.settle()
    assert (bench.at(ONE), bench.dropped) == (
        29,
        [],
    ), "bucket 30 would be overdue in a moment, and a failure begin right after this one"
    bench.close(40, names="ab")
    bench.look()
    bench.settle()
    assert (bench.at(ONE), bench.dropped, bench.state) == (40, [ZERO], STABLE)


def test_rule_18_what_is_committed_while_the_stable_query_forks_is_not_durable() -> None:
    bench = stable()
    replica = bench.replica
    assert replica.synced_bucket == 0
    replica.synced(ONE, QueryPosition(3, 9))
    replica.synced(ZERO, None)
    assert replica.synced_bucket == 0, "of another query, or of none that has asked"
    replica.synced(ZERO, QueryPosition(3, 5))
    replica.synced(ZERO, QueryPosition(2, 4))
    assert replica.synced_bucket == 5
    assert replica.forks() == ONE
    replica.synced(ZERO, QueryPosition(4, 6))
    assert replica.synced_bucket == 5
    replica.forked(QueryPosition(4, 6), bench.now_ms)
    replica.synced(ONE, QueryPosition(4, 6))
    assert replica.synced_bucket == 6


class TestRoom:
    """RE8: an input that is not read on may have more than anybody here knows."""

    def no_room(self, bench: Bench, name: str, upto: int) -> None:
        looks = [
            bench.replica.look(name, upto, parts, bench.now_ms)
            for parts in (INPUT_PARTS_MAX, INPUT_PARTS_MAX + 1)
        ]
        assert looks == [RoundKind.READ_ON, RoundKind.NOTHING]

    def test_re10_who_had_no_room_is_stable_again_when_it_has_run_what_was_there(self) -> None:
        bench = stable()
        self.no_room(bench, "a", 9)
        assert bench.state is FAILURE
        bench.now_ms += 1
        bench.close(20, 20)
        bench.look()
        assert bench.state is FAILURE, "it has read what there is, and not run it"
        bench.settle()
        assert (bench.at(bench.stable_query), bench.state) == (20, STABLE)

    def test_re5_the_branch_stays_until_what_there_was_no_room_for_was_read(self) -> None:
        bench = up_failure()
        bench.close(21, 21, names="ab")
        bench.look()
        self.no_room(bench, "b", 21)
        bench.settle()
        assert (bench.at(ONE), bench.dropped) == (21, [])
        bench.now_ms += 1
        bench.look()
        bench.settle()
        assert (bench.dropped, bench.state) == ([ZERO], STABLE)


class TestBatchesThatReadNoRows:
    def test_they_come_a_while_after_the_batch_before(self) -> None:
        bench = stable(quiet_every_ms=300)
        bench.close(7)
        assert bench.decide(ZERO) == Decision()
        bench.now_ms += 299
        bench.settle()
        assert bench.at(ZERO) == 5
        bench.now_ms += 1
        bench.settle()
        assert bench.at(ZERO) == 7

    def test_rows_never_wait(self) -> None:
        bench = stable(quiet_every_ms=300)
        bench.close(7)
        bench.settle()
        bench.close(9, 9)
        bench.settle()
        assert bench.at(ZERO) == 9

    @pytest.mark.parametrize(
        "traits", [STATEFUL, PlanTraits(is_stateful=False, is_batch_safe=False)]
    )
    def test_where_they_let_results_out_or_others_wait_behind_them_they_run_at_once(
        self, traits: PlanTraits
    ) -> None:
        bench = stable(quiet_every_ms=300, traits=traits)
        bench.close(7)
        bench.settle()
        assert bench.at(ZERO) == 7

    def test_with_a_branch_they_run_at_once(self) -> None:
        bench = up_failure(quiet_every_ms=10 * FIRST)
        bench.close(9, names="a")
        bench.settle()
        assert bench.at(ONE) == 9


@pytest.mark.parametrize("has_timers", [True, False])
def test_bp5_where_a_batch_takes_one_bucket_none_waits_for_its_turn(has_timers: bool) -> None:
    """With batches farther apart than buckets it would fall behind for ever."""
    traits = PlanTraits(is_stateful=True, is_batch_safe=False, has_timers=has_timers)
    bench = stable(traits=traits, pace_ms=10**6)
    bench.close(9, 6, 7, 8, 9)
    bench.settle()
    assert bench.at(ZERO) == 9


class TestBatchesOfWindows:
    """Results come in every fourth bucket, as was seen; other batches only keep these small."""

    def windows(self, **options: object) -> Bench:
        bench = stable("a", traits=STATEFUL, **options)
        for bucket in (4, 8, 16):
            bench.replica.gave(BoundaryRecord("0", 7, BatchId(ZERO, 9), None, 16, (part(bucket),)))
        return bench

    def test_bp4_one_that_completes_none_comes_a_while_after_the_batch_before(self) -> None:
        bench = self.windows(quiet_every_ms=300)
        bench.close(7, 6, 7)
        bench.settle()
        assert bench.at(ZERO) == 5
        bench.now_ms += 300
        bench.settle()
        assert bench.at(ZERO) == 7

    def test_bp3_one_that_completes_such_a_bucket_runs_at_once(self) -> None:
        bench = self.windows(quiet_every_ms=300, pace_ms=200)
        bench.close(7, 6, 7)
        assert bench.decide(ZERO) == Decision()
        bench.close(8)
        bench.settle()
        assert bench.at(ZERO) == 8, "pace or not"
        bench.close(11, 9)
        assert bench.decide(ZERO) == Decision()
        bench.close(13, 13)
        bench.settle()
        assert bench.at(ZERO) == 13

    def test_a_backlog_is_not_waited_with(self) -> None:
        bench = self.windows(quiet_every_ms=300, rows_max=1)
        bench.close(7, 6, 7)
        bench.settle()
        assert bench.at(ZERO) == 6, "the rest of it is a small batch again"

    def test_nor_are_many_rows(self) -> None:
        bench = self.windows(quiet_every_ms=300, rows_max=10 * QUIET_ROWS_MAX)
        bench.streams["a"].record(6, [part(6, rows=QUIET_ROWS_MAX + 1)])
        bench.settle()
        assert bench.at(ZERO) == 6

    def test_with_a_branch_they_run_at_once(self) -> None:
        bench = up_failure(quiet_every_ms=300, traits=STATEFUL)
        bench.replica.gave(BoundaryRecord("0", 7, BatchId(ZERO, 9), None, 8, (part(4), part(8))))
        bench.close(7, names="a")
        bench.settle()
        assert bench.at(ONE) == 7

    def test_a_cap_counts_more_than_results(self) -> None:
        bench = self.windows(pace_ms=10, rows_per_s=2)
        bench.close(8, 6, 7, 8)
        bench.ask(ZERO)
        bench.wait(500)
        bench.ask(ZERO)
        assert bench.at(ZERO) == 7
        bench.wait(900)
        assert bench.ask(ZERO).plan is None


def test_it_is_behind_by_what_is_complete_and_not_run() -> None:
    assert Bench("a").replica.behind(40) == 0, "its first bucket may be any"
    bench = stable()
    at = present(bench.replica.position(bench.stable_query)).bucket
    assert at > 0
    assert [bench.replica.behind(at + more) for more in (-1, 0, 3)] == [0, 0, 3]


def test_what_every_query_has_read_may_be_forgotten() -> None:
    bench = up_failure()
    assert (bench.replica.position(ZERO), bench.replica.position("another")) == (
        bench.positions[ZERO],
        None,
    )
    assert bench.replica.passed() == 5, "the successor will read from here"
    bench = stabilization()
    bench.wait(FIRST)
    bench.settle()
    assert (bench.replica.position(ZERO), bench.dropped, bench.replica.passed()) == (
        None,
        [ZERO],
        9,
    ), "of a dropped query nothing is kept"
    bench.close(40, names="ab")
    bench.look()
    bench.settle()
    assert (bench.replica.position(ONE), bench.dropped, bench.replica.passed()) == (
        None,
        [ZERO, ONE],
        40,
    )
    new = Replica(
        7,
        ZERO,
        StageRules(
            PlanTraits(is_stateful=False, is_batch_safe=True),
            bench.availability,
            BatchRules(1_000),
        ),
        Beginning(),
    )
    assert (new.passed(), new.look_wanted("a", 10**9)) == (0, False)


# -- plans that inputs share
# --------------------------------------------------------------------------------------------------


def test_what_a_branch_shows_that_was_dropped_says_nothing_of_the_next_one() -> None:
    bench = up_failure()
    record = BoundaryRecord("0", 7, BatchId(ZERO, 9), None, 6, (part(6),))
    bench.replica.shown(TWO, record, bench.now_ms)
    assert not bench.replica.successor_due(bench.now_ms, 99)
    bench.replica.shown(ZERO, record, bench.now_ms)
    assert bench.replica.successor_due(bench.now_ms, 99)
    assert bench.replica.abandon(bench.now_ms) == ZERO
    bench.replica.shown(ZERO, record, bench.now_ms)
    assert not bench.replica.successor_due(bench.now_ms, 99)


def test_the_successor_is_due_when_rows_were_seen_for_a_while_or_something_can_be_corrected() -> (
    None
):
    bench = up_failure()
    replica = bench.replica
    now_ms = bench.now_ms
    after_ms = 1_000
    replica._rules = replace(replica._rules, successor_after_ms=after_ms)
    empty, full = (
        BoundaryRecord("0", 7, BatchId(ZERO, batch), None, 6, parts)
        for batch, parts in ((8, ()), (9, (part(6),)))
    )
    replica.shown(ZERO, empty, now_ms)
    assert not replica.successor_due(now_ms + after_ms - 1, 99)
    assert replica.successor_due(now_ms + after_ms, 99)
    last_ms = now_ms + after_ms * SUCCESSOR_WITHOUT_ROWS_TIMES
    assert not replica.successor_due(last_ms - 1, 5), "there is nothing to correct"
    assert replica.successor_due(last_ms, 5)
    replica.shown(ZERO, full, now_ms + 10)
    replica.shown(ZERO, full, now_ms + 500)
    assert not replica.successor_due(now_ms + 10 + after_ms - 1, 5)
    assert replica.successor_due(now_ms + 10 + after_ms, 5), "the first counts"


def test_rf1_a_replica_ends_where_its_phase_has_no_such_event() -> None:
    """Nobody forks again while the stable query corrects: it has to stand at a hole first (RF3)."""
    bench = stabilization()
    assert bench.state is STABILIZATION
    with pytest.raises(LocalProtocolError, match="phase CORRECTING"):
        bench.replica.forked(QueryPosition(9, 9), bench.now_ms)


class TestJointPlan:
    PLAN = Plan(QueryPosition(), QueryPosition(1, 4), (), 0)

    def test_the_source_that_is_asked_first_leads(self) -> None:
        joint = JointPlan()
        assert [joint.leads(name, 0) for name in "baba"] == [True, False, True, False]

    def test_of_two_sources_of_one_input_one_leads(self) -> None:
        joint = JointPlan()
        asked = [("a", 1), ("a", 0), ("b", 2)] * 2
        assert [joint.leads(*source) for source in asked] == [True, False, False] * 2

    def test_a_plan_is_known_at_its_position_only(self) -> None:
        joint = JointPlan()
        assert joint.known(QueryPosition()) is None
        joint.made(self.PLAN)
        assert joint.known(QueryPosition()) == self.PLAN
        assert joint.known(self.PLAN.after) is None


class TestBeginning:
    """Tests of the replica after what ``protocol.stage.recovery`` has decided."""

    def test_a_query_without_a_checkpoint_leaves_buckets_out(self) -> None:
        bench = Bench(settings=Settings(warm_up=True, after=4))
        bench.close(9, 3, 5)
        plan = bench.decide(bench.stable_query).plan
        assert plan is not None
        assert (plan.after, plan.rows) == (QueryPosition(1, 4), 0)
        bench.run(bench.stable_query, plan)
        bench.settle()
        assert bench.at(bench.stable_query) == 9
        assert [
            bucket for _, plan in bench.ran for _, taken in plan.inputs for bucket, _, _ in taken
        ] == [5]

    def test_a_query_with_one_does_not(self) -> None:
        bench = Bench(settings=Settings(warm_up=True, after=4))
        bench.positions[bench.stable_query] = QueryPosition(9, 2)
        bench.close(9, 3, 5)
        bench.settle()
        assert [
            bucket for _, plan in bench.ran for _, taken in plan.inputs for bucket, _, _ in taken
        ] == [3, 5]

    @pytest.mark.parametrize("traits", [STATELESS, STATEFUL])
    def test_a_batch_ends_where_the_output_is_given_up_to(self, traits: PlanTraits) -> None:
        bench = Bench(settings=Settings(traits=traits, given_up=6))
        bench.close(9, 3, 5, 7)
        bench.settle()
        assert bench.ran[0][1].after.bucket == 6

    @pytest.mark.parametrize(
        ("bucket", "has_rows", "given_up"),
        [(4, False, 6), (3, False, 5), (3, True, 0), (5, False, 6)],
    )
    def test_a_first_plan_that_is_run_again_says_what_is_left_out(
        self, bucket: int, has_rows: bool, given_up: int
    ) -> None:
        bench = Bench(settings=Settings(after=4, given_up=6))
        assert bench.replica.begins(bucket, has_rows=has_rows) == given_up
        assert bench.replica.begins(bucket, has_rows=has_rows) == given_up

    def test_where_nothing_is_given_up_it_says_nothing(self) -> None:
        bench = Bench(settings=Settings(after=4))
        assert bench.replica.begins(3, has_rows=False) == 0


def far_behind(lag: int = 100, **options: object) -> Bench:
    """All is complete up to far beyond where the stable query corrects; the branch is at the
    end of it.
    """
    bench = up_failure(rows_max=1, **options)
    bench.close(lag, *range(6, lag + 1), names="ab")
    bench.look()
    while bench.at(ZERO) < lag:
        bench.ask(ZERO)
    bench.ask(ONE)
    assert bench.state is STABILIZATION
    return bench


def without_getting_nearer(bench: Bench, steps: int) -> None:
    """Run a batch of the stable query and add a bucket, again and again."""
    for _ in range(steps * CORRECTION_STEP_MS // WIDTH_MS + 1):
        bench.wait(WIDTH_MS)
        bench.close(bench.streams["a"].closed + 1, bench.streams["a"].closed + 1)
        bench.look()
        bench.ask(ONE)


class TestPacing:
    """``protocol.stage.scheduling`` in a replica."""

    def test_a_branch_is_free_while_the_correction_comes_nearer(self) -> None:
        bench = far_behind()
        for _ in range(30):
            bench.wait(WIDTH_MS)
            bench.close(bench.streams["a"].closed + 1)
            bench.look()
            bench.ask(ONE)
            bench.ask(ONE)
            assert bench.ask(ZERO).plan is not None

    @pytest.mark.parametrize("traits", [STATELESS, STATEFUL])
    def test_paced_it_takes_all_that_came_in_half_of_the_long_wait(
        self, traits: PlanTraits
    ) -> None:
        bench = far_behind(traits=traits)
        bench.settle_branch()
        without_getting_nearer(bench, 1)
        bench.settle_branch()
        bench.close(bench.streams["a"].closed + 1)
        bench.look()
        at = bench.at(ZERO)
        bench.now_ms += FIRST // 2 - 100
        bench.settle_branch()
        assert bench.at(ZERO) == at
        bench.now_ms += 100
        bench.settle_branch()
        assert bench.at(ZERO) == bench.streams["a"].closed

    def test_a_correction_that_must_wait_for_its_turn_leaves_it_free(self) -> None:
        bench = far_behind()
        without_getting_nearer(bench, 1)
        bench.may_correct = False
        bench.close(bench.streams["a"].closed + 1)
        bench.look()
        assert bench.ask(ONE) == Decision()
        bench.settle_branch()
        assert bench.at(ZERO) == bench.streams["a"].closed

    def test_suspended_it_waits_until_the_correction_stands_or_has_caught_up(self) -> None:
        bench = far_behind()
        bench.peer_serves = True
        without_getting_nearer(bench, CORRECTION_STEPS_SERVED)
        at = bench.at(ZERO)
        bench.now_ms += 10 * FIRST
        bench.settle_branch()
        assert bench.at(ZERO) == at
        bench.close(bench.streams["a"].closed + 1)
        bench.look()
        bench.settle()
        assert bench.dropped == [ZERO]

    def test_at_a_hole_it_goes_on(self) -> None:
        bench = far_behind()
        bench.peer_serves = True
        without_getting_nearer(bench, CORRECTION_STEPS_SERVED)
        at, last = bench.at(ZERO), bench.streams["a"].closed
        bench.close(last + 20, last + 20, names="b")
        bench.look()
        bench.wait(FIRST - 200)
        bench.settle_branch()
        assert bench.at(ZERO) == at
        while bench.at(ONE) < last:
            bench.ask(ONE)
        bench.ask(ONE)
        bench.wait(NEXT + 200)
        bench.settle_branch()
        assert (bench.at(ZERO), bench.dropped) == (last + 21, [])


def test_re5_where_batches_are_longer_than_buckets_what_was_complete_as_one_began_counts() -> None:
    bench = up_failure()
    bench.close(40, 30, names="ab")
    bench.look()
    assert bench.decide(ONE).plan is not None
    stands = bench.replica.position(ONE)
    assert stands is not None
    assert stands.bucket == 5
    bench.positions[ONE] = QueryPosition(9, 40)
    bench.close(40 + FIRST // 100, 41, names="ab")
    bench.now_ms += FIRST
    bench.look()
    bench.settle_branch()
    assert bench.decide(ONE).drop == ZERO


def test_re5_but_not_after_a_batch_that_was_longer_than_the_bound() -> None:
    bench = up_failure()
    bench.close(40, 30, names="ab")
    bench.look()
    assert bench.decide(ONE).plan is not None
    bench.positions[ONE] = QueryPosition(9, 40)
    bench.close(60, 41, names="ab")
    bench.now_ms += FIRST + 1
    bench.look()
    bench.settle_branch()
    assert bench.decide(ONE).drop is None
