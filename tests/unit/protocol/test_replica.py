"""The decisions of one replica: the table of states row by row, transcripts of failures, plans shared by inputs, chains of records."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from anabranch.protocol.availability import Policy
from anabranch.protocol.errors import Fenced, LocalProtocolError
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import CORRECTION_ROWS_MAX, HOP_MS
from anabranch.protocol.lineage import Lineage, lineage_name
from anabranch.protocol.plans import PlanTraits
from anabranch.protocol.records import BoundaryKind, BoundaryRecord, Part
from anabranch.protocol.replica import Decision, JointPlan, RecordChain, Replica
from anabranch.protocol.replica_states import ReplicaState
from anabranch.protocol.serialization import Plan, QueryPosition
from harness.replica_bench import STATEFUL, WAITS, Bench, part

FIRST, NEXT = WAITS.first_ms, WAITS.next_ms
ZERO, ONE, TWO = (lineage_name(7, number) for number in range(3))
STABLE, UP_FAILURE, STABILIZATION = ReplicaState.STABLE, ReplicaState.UP_FAILURE, ReplicaState.STABILIZATION


# -- the table: how to get into each state, an event, what follows -------------------------------------------------------------------------


def stable(**options: object) -> Bench:
    """Main stands at 5, everything is complete up to 5; ``b`` is past 9 where there is one."""
    bench = Bench(**options)  # type: ignore[arg-type]
    bench.look()
    bench.close(5, 5)
    bench.look()
    bench.settle()
    assert (bench.at(ZERO), bench.replica.state) == (5, STABLE)
    return bench


def up_failure(**options: object) -> Bench:
    """``a`` is silent after 5, ``b`` goes on; the branch has run up to 20."""
    bench = stable(names="ab", **options)
    bench.close(20, 8, 20, names="b")
    bench.look()
    bench.wait(FIRST)
    bench.settle()
    assert (bench.at(ONE), bench.at(ZERO), bench.replica.state) == (5, 21, UP_FAILURE)
    return bench


def stabilization() -> Bench:
    """``a`` is back, but only up to 9: the successor has run 6..9 and stands at the next hole."""
    bench = up_failure()
    bench.close(9, 7, names="a")
    bench.look()
    assert bench.ask(ONE).plan is not None
    assert (bench.at(ONE), bench.replica.state) == (9, STABILIZATION)
    return bench


def next_bucket_complete(bench: Bench) -> Decision:
    bench.close(bench.at(bench.main) + 2, bench.at(bench.main) + 1)
    bench.look()
    return bench.ask(bench.main)


def long_wait_over(bench: Bench) -> Decision:
    bench.wait(FIRST)
    return bench.ask(bench.main)


def branch_asks(bench: Bench) -> Decision:
    bench.close(30, 25, names="b")
    bench.wait(NEXT + 100)
    return bench.ask(bench.branch)


def all_is_complete(bench: Bench) -> Decision:
    bench.close(21, 21, names="ab")
    bench.now_ms += 100
    bench.look()
    bench.ask(bench.main)
    return bench.ask(bench.main)


def stable_to(bench: Bench, decision: Decision, query: str) -> None:
    assert decision.plan is not None
    assert decision.plan.kind is BoundaryKind.STABLE
    assert bench.ran[-1] == (query, decision.plan)


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


Row = tuple[Callable[[], Bench], Callable[[Bench], Decision], Callable[[Bench, Decision, str], None], str, ReplicaState, str, str | None]
ROWS: list[Row] = [
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
    arrange, event, expect, query, state, main, branch = row
    bench = arrange()
    decision = event(bench)
    expect(bench, decision, query)
    assert (bench.replica.state, bench.replica.main, bench.replica.branch) == (state, main, branch)


def test_the_table_of_states_a_crash() -> None:
    """Whatever the state was: the next process has no branch, and its branches have higher numbers (R3)."""
    for bench in (stable(), up_failure(), stabilization()):
        after = Bench(epoch=9)
        assert (after.replica.state, after.replica.branch) == (STABLE, None)
        assert after.replica.number > bench.replica.number


# -- transcripts ---------------------------------------------------------------------------------------------------------------------------


def test_a_failure_from_its_beginning_to_its_end() -> None:
    bench = up_failure()
    first = bench.tentative_plans()[0]
    assert (first.before.bucket, first.after.bucket) == (5, 21)
    assert first.missing == ("a", "b"), "of bucket 21, whose wait is over too, there is nothing at all"
    assert dict(first.inputs)["b"] == ((8, "0", (part(8),)), (20, "0", (part(20),)))
    assert not bench.replica.wants_to_correct
    bench.close(12, 7, names="a")  # half of it comes back
    bench.look()
    bench.ask(ONE)
    assert (bench.at(ONE), bench.replica.state, bench.replica.wants_to_correct) == (12, STABILIZATION, True)
    bench.settle()
    assert (bench.replica.state, bench.replica.wants_to_correct) == (UP_FAILURE, False), "it stands at the next hole"
    bench.close(30, 15, names="ab")  # all of it does
    bench.now_ms += 100
    bench.look()
    bench.settle()
    assert (bench.replica.state, bench.dropped, list(bench.positions)) == (STABLE, [ZERO], [ONE])
    assert not bench.replica.wants_to_correct
    assert [(p.before.bucket, p.after.bucket) for p in bench.stable_plans()] == [(0, 5), (5, 12), (12, 30)]
    assert bench.replica.decide(ZERO, QueryPosition(), bench.situation()) == Decision(), "a dropped query gets nothing"


def test_a_failure_shorter_than_the_wait_leaves_no_trace() -> None:
    bench = stable(names="ab")
    for bucket in range(6, 60):
        bench.close(bucket, bucket, names="b")
        bench.look()
        bench.wait(300)
        bench.settle()
        bench.close(bucket, bucket, names="a")
        bench.look()
        bench.wait(300)
        bench.settle()
    assert bench.tentative_plans() == []
    assert (bench.at(ZERO), bench.replica.number, bench.replica.state) == (59, (7, 0), STABLE)


def test_inputs_that_never_said_anything_are_no_failure() -> None:
    bench = Bench("ab", warm_up=True)
    bench.wait(10 * FIRST)
    bench.settle()
    assert (bench.replica.state, bench.tentative_plans()) == (STABLE, [])


@pytest.mark.parametrize("unreachable", ["a", "b", "ab"])
def test_without_contact_to_a_log_nothing_is_branched(unreachable: str) -> None:
    """A3: boundaries may be there which this process does not see."""
    bench = stable(names="ab")
    bench.unreachable = set(unreachable)
    bench.close(9, names="b")
    bench.wait(10 * FIRST)
    bench.settle()
    assert bench.replica.state is STABLE
    bench.unreachable = set()
    bench.wait(100)
    bench.settle()
    assert bench.replica.state is UP_FAILURE


def test_a_process_that_was_paused_first_looks_then_judges() -> None:
    """A4: its own sleep is not a failure of its inputs."""
    bench = stable(names="ab")
    bench.close(9, names="b")
    bench.look()
    bench.wait(500)
    bench.pause(60_000)
    bench.settle()
    assert bench.replica.state is STABLE
    bench.wait(300)
    bench.settle()
    assert bench.replica.state is STABLE
    bench.wait(400)
    bench.settle()
    assert bench.replica.state is UP_FAILURE


def test_a_process_that_was_paused_while_correcting_does_not_take_its_sleep_for_a_second_failure() -> None:
    bench = stabilization()
    bench.wait(FIRST - 300)
    bench.pause(60_000)
    bench.settle()
    bench.look()
    bench.settle()
    assert bench.replica.main == ONE
    bench.wait(200)
    bench.settle()
    assert bench.replica.main == ONE
    bench.wait(200)
    bench.settle()
    assert (bench.replica.main, bench.replica.state) == (TWO, UP_FAILURE)


def test_rule_14_while_upstream_corrects_bucket_by_bucket_there_is_no_second_failure() -> None:
    bench = up_failure()
    for bucket in range(6, 20):
        bench.wait(FIRST - 100)
        bench.settle()
        bench.close(bucket, bucket, names="a")
        bench.look()
        bench.settle()
        assert (bench.replica.main, bench.at(ONE), bench.dropped) == (ONE, bucket, [])


def test_rule_14_without_progress_past_the_fork_there_is_no_second_failure() -> None:
    """It is the same hole."""
    bench = up_failure()
    bench.wait(20 * FIRST)
    bench.settle()
    assert (bench.replica.main, bench.replica.state, bench.replica.number) == (ONE, UP_FAILURE, (7, 1))


def test_rule_14_without_contact_there_is_no_second_failure() -> None:
    bench = stabilization()
    bench.unreachable = {"a"}
    bench.wait(10 * FIRST)
    bench.settle()
    assert bench.replica.main == ONE
    bench.unreachable = set()
    bench.wait(100)
    bench.settle()
    assert bench.replica.main == TWO


def test_a_second_failure_while_correcting_and_its_end() -> None:
    bench = stabilization()
    bench.wait(FIRST)
    bench.settle()
    assert (bench.dropped, bench.branch, bench.numbers) == ([ZERO], ONE, [(7, 1), (7, 2)])
    assert bench.tentative_plans()[-1].before.bucket == 9, "what the first half of the correction gave is in the second branch"
    assert bench.at(ONE) == 21
    bench.close(25, 10, names="ab")
    bench.now_ms += 100
    bench.look()
    bench.settle()
    assert (bench.replica.state, bench.dropped, list(bench.positions)) == (STABLE, [ZERO, ONE], [TWO])
    ends = [(p.before.bucket, p.after.bucket) for p in bench.stable_plans()]
    assert [before for before, _ in ends] == [0, *(after for _, after in ends[:-1])]
    assert ends[-1][1] == 25


def test_rule_15_the_branch_is_not_dropped_at_a_hole() -> None:
    """Right after the fork, main is as far as the branch."""
    bench = stable(names="ab")
    bench.close(6, names="b")
    bench.wait(FIRST)
    bench.settle()
    assert (bench.at(ZERO), bench.at(ONE)) == (7, 5)
    for _ in range(10):
        bench.wait(100)
        bench.settle()
        assert (bench.replica.state, bench.dropped, bench.replica.number) == (UP_FAILURE, [], (7, 1))


@pytest.mark.parametrize("upto", [6, 7, 19])
def test_rule_15_the_branch_is_not_dropped_just_before_a_hole(upto: int) -> None:
    """Main is nearly as far as what is complete, but the next one is missing since long: it would fork again at once."""
    bench = up_failure()
    bench.close(upto, 6, names="a")
    bench.look()
    bench.settle()
    assert (bench.at(ONE), bench.replica.state, bench.dropped) == (upto, UP_FAILURE, []), "it waits at the next hole"


def test_the_branch_is_dropped_when_main_is_as_far_although_newer_buckets_are_waited_for() -> None:
    bench = up_failure()
    bench.close(21, 6, names="ab")
    bench.wait(200)  # bucket 22 has just begun
    bench.settle()
    assert (bench.replica.state, bench.dropped, bench.at(ONE)) == (STABLE, [ZERO], 21)


@pytest.mark.parametrize("width_ms", [10, 100, 1_000, 60_000])
def test_main_has_caught_up_about_a_second_behind_what_is_complete(width_ms: int) -> None:
    bench = up_failure(width_ms=width_ms, rows_max=1)
    bench.close(300, names="b")
    bench.look()
    bench.wait(NEXT)
    bench.settle()
    assert bench.at(ZERO) == 301
    bench.close(300, *range(6, 301), names="a")
    bench.look()
    left = 0
    while not bench.dropped:
        left = 300 - bench.at(ONE)
        bench.ask(ONE)
    assert left == min(294, max(1, 1_000 // width_ms))


def test_a_branch_without_a_lead_is_dropped_at_once() -> None:
    """All of a long backlog comes at once, and main is where the branch is: what the branch would make, main makes stable."""
    bench = stable()
    bench.wait(FIRST)
    bench.settle()
    assert (bench.at(ZERO), bench.at(ONE)) == (6, 5)
    bench.close(500, *range(6, 500))
    bench.look()
    bench.ask(ONE)
    assert (bench.dropped, bench.replica.state, bench.at(ONE)) == ([ZERO], STABLE, 500)


def test_a_correction_that_must_wait_for_a_grant() -> None:
    """It says that it wants to; new results go on meanwhile."""
    bench = up_failure()
    bench.may_correct = False
    bench.close(9, 7, names="a")
    bench.close(30, 25, names="b")
    bench.wait(FIRST)
    bench.settle()
    assert (bench.at(ONE), bench.at(ZERO)) == (5, 31)
    assert (bench.replica.state, bench.replica.wants_to_correct) == (STABILIZATION, True)
    bench.may_correct = True
    bench.settle()
    assert bench.at(ONE) == 9


def test_without_a_branch_no_grant_is_needed() -> None:
    bench = stable()
    bench.may_correct = False
    bench.close(9, 7)
    bench.look()
    bench.settle()
    assert bench.at(ZERO) == 9


def test_what_is_closed_late_needs_no_grant() -> None:
    """The results of what was read already: a follow-up batch."""
    bench = stable(traits=STATEFUL)
    assert (bench.at(ZERO), bench.positions[ZERO].closed) == (5, 5)
    bench.wait(FIRST)
    bench.settle()
    bench.close(15, 6, 7)
    bench.look()
    plan = bench.ask(ONE).plan
    assert plan is not None
    bench.may_correct = False
    assert bench.positions[ONE].closed < bench.at(ONE)
    bench.ask(ONE)
    assert bench.positions[ONE].closed == bench.at(ONE) == 15


def test_batches_of_a_correction_are_smaller() -> None:
    """They share the cores with the branch."""
    for branching in (False, True):
        bench = Bench("a", rows_max=10 * CORRECTION_ROWS_MAX)
        bench.look()
        bench.close(1, 1)
        bench.look()
        bench.settle()
        if branching:
            bench.wait(FIRST)
            bench.settle()
        bench.streams["a"].record(30, [part(bucket, CORRECTION_ROWS_MAX // 2) for bucket in range(10, 30)])
        bench.look()
        plan = bench.ask(bench.main).plan
        assert plan is not None
        assert plan.rows == CORRECTION_ROWS_MAX * (1 if branching else 10)


def test_the_successor_warms_up_at_the_hole() -> None:
    bench = Bench("a", warm_up=True)
    bench.look()
    bench.settle()
    assert [(p.rows, p.before.bucket, p.after.bucket) for p in bench.stable_plans()] == [(0, 0, 0)]
    bench.close(5, 5)
    bench.look()
    bench.settle()
    bench.wait(FIRST)
    bench.settle()
    assert bench.ran[-1][0] == ONE
    assert bench.ran[-1][1].kind is BoundaryKind.STABLE
    assert (bench.ran[-1][1].before.bucket, bench.ran[-1][1].after.bucket, bench.ran[-1][1].rows) == (5, 5, 0)
    assert bench.replica.state is UP_FAILURE, "a warm-up is no correction"
    count = len(bench.ran)
    bench.settle()
    assert len(bench.ran) == count, "once"


def test_batches_of_one_query_are_paced() -> None:
    """Fewer and larger ones: what came meanwhile is in the next."""
    bench = stable(names="ab", pace_ms=500)
    bench.close(7, 6)
    bench.look()
    bench.ask(ZERO)
    assert bench.at(ZERO) == 5
    bench.wait(400)
    bench.close(9, 8)
    bench.wait(100)
    bench.ask(ZERO)
    assert [(p.before.bucket, p.after.bucket) for p in bench.stable_plans()] == [(0, 5), (5, 9)]
    bench.close(20, names="b")
    bench.ask(ZERO)
    bench.wait(FIRST + 100)
    bench.ask(ZERO)
    assert bench.replica.state is UP_FAILURE, "the branch goes on at once"
    bench.close(12, 11, names="a")
    bench.look()
    bench.ask(ONE)
    assert bench.at(ONE) == 12, "its pace is its own"


class TestPolicies:
    def test_suspend_never_goes_on_without_input(self) -> None:
        bench = stable(names="ab", policy=Policy.SUSPEND)
        bench.close(20, names="b")
        bench.wait(10 * FIRST)
        bench.settle()
        assert (bench.replica.state, bench.looks, bench.replica.number) == (STABLE, 0, (7, 0))

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

    def test_process_gives_later_buckets_the_short_wait_and_takes_all_that_are_due_at_once(self) -> None:
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
        bench.held = True
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
    bench.now_ms += 100
    bench.look()
    bench.settle()
    assert (bench.replica.state, bench.at(ONE)) == (STABLE, 40)


def test_a_stateful_branch_closes_what_it_read_too() -> None:
    bench = stable(names="ab", traits=STATEFUL)
    bench.close(9, 8, names="b")
    bench.wait(FIRST)
    bench.settle()
    plans = bench.tentative_plans()
    assert [(p.before.closed, p.after.closed) for p in plans] == [(5, 5), (5, 10)]
    assert bench.positions[ONE].closed == bench.at(ONE) == 5, "R2: all that was read was closed at the fork"


def test_r2_a_fork_with_something_open_is_a_bug() -> None:
    bench = stable()
    with pytest.raises(LocalProtocolError, match="fork at bucket 6 with the output closed up to 5"):
        bench.replica.forked(QueryPosition(3, 6, 5), 0)


def test_r2_what_was_read_is_closed_before_a_fork() -> None:
    bench = stable(traits=STATEFUL)
    bench.positions[ZERO] = QueryPosition(9, 5, 4, has_rows=True)
    bench.wait(FIRST)
    decision = bench.ask(ZERO)
    assert decision.plan is not None
    assert (decision.fork, decision.plan.after.closed) == (False, 5)
    assert bench.ask(ZERO).fork


def test_what_every_query_has_read_may_be_forgotten() -> None:
    bench = up_failure()
    assert (bench.replica.position(ZERO), bench.replica.position("another")) == (bench.positions[ZERO], None)
    assert bench.replica.passed() == 5, "the successor will read from here"
    new = Replica(7, ZERO, bench.availability, PlanTraits(is_stateful=False, is_batch_safe=True), 1_000)
    assert (new.passed(), new.look_wanted("a", 10**9)) == (0, False)


# -- plans that inputs share ---------------------------------------------------------------------------------------------------------------


class TestJointPlan:
    PLAN = Plan(QueryPosition(), QueryPosition(1, 4, 4), (), 0)

    def test_the_input_that_is_asked_first_leads(self) -> None:
        joint = JointPlan()
        assert [joint.leads(name) for name in "baba"] == [True, False, True, False]

    def test_a_plan_is_known_at_its_position_only(self) -> None:
        joint = JointPlan()
        assert joint.known(QueryPosition()) is None
        joint.made(self.PLAN)
        assert joint.known(QueryPosition()) == self.PLAN
        assert joint.known(self.PLAN.after) is None


# -- chains of records ---------------------------------------------------------------------------------------------------------------------


TENTATIVE = BoundaryKind.TENTATIVE


def chain(lineage: Lineage | None = None, *, is_stateful: bool = False) -> RecordChain:
    return RecordChain("0", 7, lineage if lineage is not None else Lineage(ZERO, 3, BatchId("old", 3)), is_stateful=is_stateful)


def make(
    of: RecordChain, batch: int, *parts: Part, kind: BoundaryKind = BoundaryKind.STABLE, is_main: bool = True, closed: int = 5,
    missing: tuple[str, ...] = (),
) -> BoundaryRecord:  # fmt: skip
    return of.record(kind, batch, closed, parts, is_main=is_main, missing=missing, made_from=(("a", 6),), written_ms=99)


def record(
    of: RecordChain, batch: int, *parts: Part, kind: BoundaryKind = BoundaryKind.STABLE, is_main: bool = True, closed: int = 5,
    missing: tuple[str, ...] = (),
) -> BoundaryRecord:  # fmt: skip
    made = make(of, batch, *parts, kind=kind, is_main=is_main, closed=closed, missing=missing)
    of.appended(made)
    return made


class TestRecordChain:
    def test_each_record_continues_the_one_before(self) -> None:
        """Rules 3, 9: the first one that of the last batch committed in the directory."""
        of = chain()
        first, second = record(of, 4, part(6)), record(of, 5)
        assert (first.prev, first.id, second.prev, of.tip) == (BatchId("old", 3), BatchId(ZERO, 4), first.id, second.id)
        assert (first.replica, first.epoch, first.closed, first.parts) == ("0", 7, 5, (part(6),))
        assert (first.base, first.kind, first.branch, first.made_from, first.written_ms) == (
            None,
            BoundaryKind.STABLE,
            None,
            (("a", 6),),
            99,
        )
        assert record(chain(Lineage.fresh(7)), 0).prev is None

    def test_a_record_that_was_not_appended_is_made_again(self) -> None:
        of = chain()
        assert make(of, 4, part(6)) == make(of, 4, part(6))

    def test_the_first_record_of_a_branch_says_where_it_begins_and_what_it_inherits(self) -> None:
        of = chain()
        fork = record(of, 4, part(6), part(7))
        of.became_branch(1, 5, (part(6), part(7)))
        first = record(of, 5, part(8), kind=TENTATIVE, closed=7, missing=("a",))
        second = record(of, 6, part(9), kind=TENTATIVE, closed=8)
        assert (first.prev, first.base, first.parts) == (fork.id, 5, (part(6), part(7), part(8)))
        assert (second.prev, second.base, second.parts) == (first.id, None, (part(9),))
        assert (first.kind, first.branch, second.branch) == (TENTATIVE, (7, 1), (7, 1))
        assert (first.missing, second.missing) == (("a",), ())

    def test_a_first_record_that_was_not_appended_still_begins_the_branch(self) -> None:
        of = chain()
        of.became_branch(1, 5, (part(6),))
        again = [make(of, 4, kind=TENTATIVE) for _ in range(2)]
        assert [(entry.base, entry.parts) for entry in again] == [(5, (part(6),))] * 2

    def test_what_a_stateful_branch_missed_once_it_misses_in_all_that_follows(self) -> None:
        """The state lacks it; and a record closes buckets that a plan before took."""
        of = chain(is_stateful=True)
        of.became_branch(1, 5, ())
        found = [record(of, 5 + i, kind=TENTATIVE, missing=m).missing for i, m in enumerate([(), ("b",), (), ("a", "b"), ()])]
        assert found == [(), ("b",), ("b",), ("a", "b"), ("a", "b")]

    def test_r1_only_the_stable_lineage_gives_stable_records(self) -> None:
        """Rule 12."""
        of = chain()
        with pytest.raises(Fenced, match="not the stable one"):
            record(of, 4, is_main=False)
        of.became_branch(1, 5, ())
        with pytest.raises(Fenced, match="not the stable one"):
            record(of, 4, is_main=True)

    def test_r1_only_a_branch_gives_tentative_ones(self) -> None:
        with pytest.raises(LocalProtocolError, match="never forked"):
            record(chain(), 4, kind=TENTATIVE)
