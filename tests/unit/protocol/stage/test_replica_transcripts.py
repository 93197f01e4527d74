"""Failures from their beginning to their end, as one replica sees them."""

from __future__ import annotations

import pytest

from anabranch.protocol.control.records import ReplicaState
from anabranch.protocol.errors import DataMissing, StageFunctionError, Unavailable
from anabranch.protocol.limits import HOP_MS
from anabranch.protocol.log.records import BoundaryKind
from anabranch.protocol.log.timeline import timeline_name
from anabranch.protocol.stage.planner import PlanTraits, QueryPosition
from anabranch.protocol.stage.replica import (
    BRANCH_RETRY_MAX_MS,
    BRANCH_RETRY_MS,
    CORRECTION_ROWS_MAX,
    Decision,
)
from harness.replica_bench import WAITS, Bench, Settings, part, stabilization, stable, up_failure

FIRST, NEXT = WAITS.first_ms, WAITS.next_ms
ZERO, ONE, TWO = (timeline_name(7, number) for number in range(3))
STABLE, UP_FAILURE, STABILIZATION, FAILURE = ReplicaState


def test_a_failure_from_its_beginning_to_its_end() -> None:
    bench = up_failure()
    first = bench.tentative_plans()[0]
    assert (first.before.bucket, first.after.bucket) == (5, 21)
    assert first.missing == (
        "a",
        "b",
    ), "of bucket 21, whose wait is over too, there is nothing at all"
    assert dict(first.inputs)["b"] == ((8, "0", (part(8),)), (20, "0", (part(20),)))
    assert not bench.replica.wants_to_correct
    bench.close(12, 7, names="a")  # half of it comes back
    bench.look()
    bench.ask(ONE)
    assert (bench.at(ONE), bench.state, bench.replica.wants_to_correct) == (12, STABILIZATION, True)
    bench.settle()
    assert (bench.state, bench.replica.wants_to_correct) == (
        UP_FAILURE,
        False,
    ), "it stands at the next hole"
    bench.close(30, 15, names="ab")  # all of it does
    bench.now_ms += 100
    bench.look()
    bench.settle()
    assert (bench.state, bench.dropped, list(bench.positions)) == (STABLE, [ZERO], [ONE])
    assert not bench.replica.wants_to_correct
    assert [(p.before.bucket, p.after.bucket) for p in bench.stable_plans()] == [
        (0, 5),
        (5, 12),
        (12, 30),
    ]
    assert bench.replica.decide(ZERO, QueryPosition(), bench.situation()) == Decision(), (
        "a dropped query gets nothing"
    )


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
    assert (bench.at(ZERO), bench.replica.number, bench.state) == (59, (7, 0), STABLE)


@pytest.mark.parametrize("unreachable", ["a", "b", "ab"])
def test_without_contact_to_a_log_nothing_is_branched(unreachable: str) -> None:
    """AV3: boundaries may be there which this process does not see."""
    bench = stable(names="ab")
    bench.unreachable = set(unreachable)
    bench.close(9, names="b")
    bench.wait(10 * FIRST)
    bench.settle()
    assert (bench.state, bench.replica.branch) == (FAILURE, None)
    bench.unreachable = set()
    bench.wait(100)
    bench.settle()
    assert bench.state is UP_FAILURE


def test_a_process_that_was_paused_first_looks_then_judges() -> None:
    """AV4: its own sleep is not a failure of its inputs."""
    bench = stable(names="ab")
    bench.close(9, names="b")
    bench.look()
    bench.wait(500)
    bench.pause(60_000)
    bench.settle()
    assert (bench.state, bench.replica.branch) == (FAILURE, None)
    bench.wait(300)
    bench.settle()
    assert bench.state is STABLE
    bench.wait(400)
    bench.settle()
    assert bench.state is UP_FAILURE


def test_a_process_paused_while_correcting_does_not_take_its_sleep_for_a_second_failure() -> None:
    bench = stabilization()
    bench.wait(FIRST - 300)
    bench.pause(60_000)
    bench.settle()
    bench.look()
    bench.settle()
    assert bench.replica.stable_query == ONE
    bench.wait(200)
    bench.settle()
    assert bench.replica.stable_query == ONE
    bench.wait(200)
    bench.settle()
    assert (bench.replica.stable_query, bench.state) == (TWO, UP_FAILURE)


def test_rule_14_while_upstream_corrects_bucket_by_bucket_there_is_no_second_failure() -> None:
    bench = up_failure()
    for bucket in range(6, 20):
        bench.wait(FIRST - 100)
        bench.settle()
        bench.close(bucket, bucket, names="a")
        bench.look()
        bench.settle()
        assert (bench.replica.stable_query, bench.at(ONE), bench.dropped) == (ONE, bucket, [])


def test_rule_14_without_progress_past_the_fork_there_is_no_second_failure() -> None:
    """It is the same hole."""
    bench = up_failure()
    bench.wait(20 * FIRST)
    bench.settle()
    assert (bench.replica.stable_query, bench.state, bench.replica.number) == (
        ONE,
        UP_FAILURE,
        (7, 1),
    )


def test_rule_14_without_contact_there_is_no_second_failure() -> None:
    bench = stabilization()
    bench.unreachable = {"a"}
    bench.wait(10 * FIRST)
    bench.settle()
    assert bench.replica.stable_query == ONE
    bench.unreachable = set()
    bench.wait(100)
    bench.settle()
    assert bench.replica.stable_query == TWO


def test_a_second_failure_while_correcting_and_its_end() -> None:
    bench = stabilization()
    bench.wait(FIRST)
    bench.settle()
    assert (bench.dropped, bench.branch, bench.numbers) == ([ZERO], ONE, [(7, 1), (7, 2)])
    assert bench.tentative_plans()[-1].before.bucket == 9, (
        "what the first half of the correction gave is in the second branch"
    )
    assert bench.at(ONE) == 21
    bench.close(25, 10, names="ab")
    bench.now_ms += 100
    bench.look()
    bench.settle()
    assert (bench.state, bench.dropped, list(bench.positions)) == (STABLE, [ZERO, ONE], [TWO])
    ends = [(p.before.bucket, p.after.bucket) for p in bench.stable_plans()]
    assert [before for before, _ in ends] == [0, *(after for _, after in ends[:-1])]
    assert ends[-1][1] == 25


def test_rule_15_the_branch_is_not_dropped_at_a_hole() -> None:
    """Right after the fork, the stable query is as far as the branch."""
    bench = stable(names="ab")
    bench.close(6, names="b")
    bench.wait(FIRST)
    bench.settle()
    assert (bench.at(ZERO), bench.at(ONE)) == (7, 5)
    for _ in range(10):
        bench.wait(100)
        bench.settle()
        assert (bench.state, bench.dropped, bench.replica.number) == (UP_FAILURE, [], (7, 1))


@pytest.mark.parametrize("upto", [6, 7, 19])
def test_rule_15_the_branch_is_not_dropped_just_before_a_hole(upto: int) -> None:
    """The stable query is nearly as far as what is complete, but the next one is missing
    since long: it would fork again at once.
    """
    bench = up_failure()
    bench.close(upto, 6, names="a")
    bench.look()
    bench.settle()
    assert (bench.at(ONE), bench.state, bench.dropped) == (
        upto,
        UP_FAILURE,
        [],
    ), "it waits at the next hole"


def test_the_branch_is_dropped_when_the_stable_query_is_as_far_though_newer_are_awaited() -> None:
    bench = up_failure()
    bench.close(21, 6, names="ab")
    bench.wait(200)  # bucket 22 has just begun
    bench.settle()
    assert (bench.state, bench.dropped, bench.at(ONE)) == (STABLE, [ZERO], 21)


@pytest.mark.parametrize("width_ms", [10, 100, 1_000, 60_000])
def test_the_stable_query_has_caught_up_about_a_second_behind_what_is_complete(
    width_ms: int,
) -> None:
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
    """All of a long backlog comes at once, and the stable query is where the branch is: what
    the branch would make, the stable query makes stable.
    """
    bench = stable()
    bench.wait(FIRST)
    bench.settle()
    assert (bench.at(ZERO), bench.at(ONE)) == (6, 5)
    bench.close(500, *range(6, 500))
    bench.look()
    bench.ask(ONE)
    assert (bench.dropped, bench.state, bench.at(ONE)) == ([ZERO], STABLE, 500)


def test_a_correction_that_must_wait_for_its_turn() -> None:
    """It says that it wants to; new results go on meanwhile."""
    bench = up_failure()
    bench.may_correct = False
    bench.close(9, 7, names="a")
    bench.close(30, 25, names="b")
    bench.wait(FIRST)
    bench.settle()
    assert (bench.at(ONE), bench.at(ZERO)) == (5, 31)
    assert (bench.state, bench.replica.wants_to_correct) == (STABILIZATION, True)
    bench.may_correct = True
    bench.settle()
    assert bench.at(ONE) == 9


def test_without_a_branch_no_turn_is_waited_for() -> None:
    bench = stable()
    bench.may_correct = False
    bench.close(9, 7)
    bench.look()
    bench.settle()
    assert bench.at(ZERO) == 9


@pytest.mark.parametrize(
    ("rows", "buckets"),
    [
        (CORRECTION_ROWS_MAX // 50, 50),
        (CORRECTION_ROWS_MAX // 2, FIRST // 100),  # what comes within the long wait
        (CORRECTION_ROWS_MAX, 5),  # what a batch may have at all
    ],
)
def test_how_much_a_batch_of_a_correction_takes(rows: int, buckets: int) -> None:
    """They share the cores with the branch."""
    for branching in (False, True):
        bench = Bench("a", Settings(rows_max=5 * CORRECTION_ROWS_MAX, width_ms=100))
        bench.look()
        bench.close(1, 1)
        bench.look()
        bench.settle()
        if branching:
            bench.wait(FIRST)
            bench.settle()
        bench.streams["a"].record(300, [part(bucket, rows) for bucket in range(2, 301)])
        bench.look()
        plan = bench.ask(bench.stable_query).plan
        assert plan is not None
        assert plan.after.bucket - plan.before.bucket == (
            buckets if branching else 5 * CORRECTION_ROWS_MAX // rows
        )


def test_a_batch_of_a_correction_ends_where_output_is_given_up() -> None:
    bench = Bench("a", Settings(rows_max=5 * CORRECTION_ROWS_MAX, width_ms=100, given_up=6))
    bench.look()
    bench.close(1, 1)
    bench.look()
    bench.settle()
    bench.wait(FIRST)
    bench.settle()
    bench.streams["a"].record(
        300, [part(bucket, CORRECTION_ROWS_MAX // 2) for bucket in range(2, 301)]
    )
    bench.look()
    bench.ask(bench.stable_query)
    assert bench.at(bench.stable_query) == 6
    bench.ask(bench.stable_query)
    assert bench.at(bench.stable_query) == 16


def test_the_successor_warms_up_at_the_hole() -> None:
    bench = Bench("a", Settings(warm_up=True))
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
    assert (
        bench.ran[-1][1].before.bucket,
        bench.ran[-1][1].after.bucket,
        bench.ran[-1][1].rows,
    ) == (5, 5, 0)
    assert bench.state is UP_FAILURE, "a warm-up is no correction"
    count = len(bench.ran)
    bench.settle()
    assert len(bench.ran) == count, "once"


def test_what_there_is_to_run_warms_up_as_well_as_nothing() -> None:
    """A process that comes back to a backlog has results a batch earlier."""
    bench = Bench("a", Settings(warm_up=True))
    bench.close(5, 5)
    bench.settle()
    assert [(p.rows, p.before.bucket, p.after.bucket) for p in bench.stable_plans()] == [(1, 0, 5)]


def test_a_successor_that_may_not_correct_yet_warms_up() -> None:
    bench = Bench("a", Settings(warm_up=True))
    bench.look()
    bench.close(5, 5)
    bench.look()
    bench.settle()
    bench.wait(FIRST)
    bench.ask(bench.stable_query)
    assert bench.state is UP_FAILURE
    bench.may_correct = False
    bench.close(9, 7)
    bench.settle()
    assert [(p.rows, p.after.bucket) for p in bench.stable_plans()] == [(1, 5), (0, 5)]
    assert bench.state is STABILIZATION
    bench.may_correct = True
    bench.settle()
    assert [(p.rows, p.after.bucket) for p in bench.stable_plans()] == [(1, 5), (0, 5), (1, 9)]


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
    assert bench.state is UP_FAILURE, "the branch goes on at once"
    bench.close(12, 11, names="a")
    bench.look()
    bench.ask(ONE)
    assert bench.at(ONE) == 12, "its pace is its own"


def test_bp6_after_a_late_input_the_next_one_does_not_wait_for_a_whole_pace() -> None:
    bench = stable(pace_ms=500, reads_stages=True)
    bench.wait(1_000)
    for bucket, apart_ms in ((6, 500), (7, 800), (8, 200), (9, 500)):
        bench.wait(apart_ms)
        bench.close(bucket, bucket)
        bench.look()
        bench.ask(ZERO)
        assert bench.at(ZERO) == bucket


def test_re7_a_branch_that_failed_is_not_tried_again_at_the_same_hole() -> None:
    bench = up_failure()
    branch = bench.branch
    assert bench.replica.abandon(bench.now_ms) == branch
    del bench.positions[branch]
    assert bench.replica.branch is None
    bench.wait(10_000)
    assert bench.state is FAILURE, "it gives nothing, though all that is complete was run"
    bench.settle()
    assert bench.numbers == [(7, 1)], "the hole is the same"
    bench.close(8, 8, names="a")
    bench.look()
    bench.settle()
    bench.wait(10_000)
    bench.settle()
    assert bench.numbers == [
        (7, 1),
        (7, 2),
    ], "the stable query got further, and there is a new hole"


def branch_dies(bench: Bench, cause: Exception) -> int:
    """Let the branch fail with ``cause``. Return the time until there is another one, up to two
    minutes.
    """
    branch = bench.branch
    begun_ms = bench.now_ms
    number = bench.replica.number
    assert bench.replica.abandon(bench.now_ms, cause) == branch
    del bench.positions[branch]
    while bench.replica.number == number and bench.now_ms - begun_ms < 120_000:
        bench.wait(100)
        bench.ask(bench.stable_query)
    return bench.now_ms - begun_ms


@pytest.mark.parametrize("cause", [DataMissing("blocks"), Unavailable("the broker")])
def test_re7_a_branch_that_died_of_what_may_pass_is_tried_again_and_again_with_longer_pauses(
    cause: Exception,
) -> None:
    bench = up_failure()
    pauses = [branch_dies(bench, cause) for _ in range(7)]
    assert pauses == [BRANCH_RETRY_MS * 2**n for n in range(5)] + [BRANCH_RETRY_MAX_MS] * 2
    bench.close(8, 8, names="a")
    bench.look()
    bench.ask(bench.stable_query)
    bench.wait(2_000)
    bench.settle()
    assert branch_dies(bench, cause) == BRANCH_RETRY_MS, "another hole"


@pytest.mark.parametrize("cause", [StageFunctionError("a bug"), ValueError()])
def test_re7_any_other_cause_is_not_tried_again(cause: Exception) -> None:
    bench = up_failure()
    assert branch_dies(bench, DataMissing("blocks")) == BRANCH_RETRY_MS
    assert branch_dies(bench, cause) == 120_000


def test_re7_abandoned_before_the_successor_ever_asked() -> None:
    bench = stable(names="ab")
    bench.close(20, 8, 20, names="b")
    bench.look()
    bench.wait(2_000)
    stable_query = bench.stable_query
    while not bench.numbers:
        bench.ask(stable_query)
    assert bench.replica.abandon(bench.now_ms) == stable_query
    assert bench.replica.abandon(bench.now_ms) is None


class TestAdvertisedState:
    """RE10."""

    def test_a_replica_that_begins_far_behind_says_failure_until_it_has_caught_up(self) -> None:
        bench = Bench(settings=Settings(traits=PlanTraits(is_stateful=True, is_batch_safe=False)))
        bench.close(50, *range(1, 51))
        bench.look()
        for bucket in range(50):
            assert (bench.at(ZERO), bench.state) == (bucket, FAILURE)
            bench.ask(ZERO)
        bench.ask(ZERO)
        assert (bench.at(ZERO), bench.state) == (50, STABLE)

    def test_it_does_not_know_where_its_input_ends_before_the_logs_are_read(self) -> None:
        bench = Bench("ab")
        bench.unreachable = {"b"}
        bench.wait(500)
        bench.settle()
        assert bench.state is FAILURE
        bench.unreachable = set()
        bench.look()
        assert bench.state is FAILURE, "what the stable query must reach is known when it asks"
        bench.settle()
        assert bench.state is STABLE

    def test_after_a_pause_all_that_came_meanwhile_is_caught_up_with_first(self) -> None:
        bench = stable()
        bench.pause(60_000)
        assert bench.state is FAILURE, "it says so before it has looked"
        bench.close(90, *range(6, 91))
        bench.look()
        assert bench.state is FAILURE
        while bench.at(ZERO) < 90:
            bench.ask(ZERO)
            bench.wait(100)
            assert bench.state is FAILURE
        bench.ask(ZERO)
        assert bench.state is STABLE

    def test_it_falls_behind_and_catches_up(self) -> None:
        bench = stable()
        bench.close(9, 9)
        bench.wait(FIRST + HOP_MS - 100)
        assert bench.state is STABLE
        bench.wait(100)
        assert bench.state is FAILURE
        bench.close(10, 10)
        bench.look()
        bench.settle()
        assert bench.state is STABLE

    def test_a_pipeline_that_begins_with_all_behind_waits_for_nobody(self) -> None:
        """Nobody has a branch."""
        bench = Bench("ab")
        bench.close(1_000, *range(1, 1_001, 50))
        bench.wait(300)
        bench.settle()
        assert (bench.state, bench.at(ZERO), bench.numbers) == (STABLE, 1_000, [])
