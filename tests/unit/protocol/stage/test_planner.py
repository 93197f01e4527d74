"""The planner: its invariants by example and over random streams, and what a query allows. That the
allow-list is right is shown on real Spark by tests/spark/test_batch_safety.py.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.protocol.errors import ConfigurationError, LocalProtocolError, StageFunctionError
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import ROW_BYTES_WEIGHED
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.records import BoundaryKind, BoundaryRecord, EpochStarted, Part
from anabranch.protocol.stage import planner
from anabranch.protocol.stage.planner import (
    EmptyBatches,
    KnownNames,
    Plan,
    PlanFacts,
    PlanTraits,
    QueryPosition,
    check_joint,
    check_open,
    check_watermark,
    next_plan,
    next_tentative_plan,
)
from anabranch.protocol.stage.planner import judge as judge_of
from harness.present import present

KNOWN = KnownNames(
    stateless=frozenset({"Project", "Filter", "MapInArrow"}),
    whole_batch=frozenset({"MapInArrow"}),
    stateful_safe=frozenset({"Aggregate", "Join", "Deduplicate", "TransformWithState"}),
    first_row_kept=frozenset({"DeduplicateWithinWatermark"}),
    safe_joins=frozenset({"Inner"}),
    joins_across_empty_buckets=frozenset({"Inner", "LeftOuter"}),
    order_free_aggregates=frozenset({"Sum", "Count", "CollectSet"}),
    tied_aggregates=frozenset({"MinBy"}),
    generators=frozenset({"Explode"}),
    childless=frozenset({"Literal"}),
    not_deterministic=frozenset({"Rand", "CurrentTime"}),
)


def judge(given: PlanFacts) -> PlanTraits:
    return judge_of(given, KNOWN)


def facts(*operators: str, expressions: frozenset[str] = frozenset(), **more: object) -> PlanFacts:
    return PlanFacts(
        operators=frozenset({"Project", "Filter", *operators}),
        expressions=expressions,
        **more,  # type: ignore[arg-type]
    )


def test_projections_and_filters_are_stateless_and_batch_safe() -> None:
    traits = judge(facts())
    assert (traits.is_stateful, traits.is_batch_safe, traits.reasons, traits.errors) == (
        False,
        True,
        (),
        (),
    )


def test_exact_aggregates_are_stateful_and_batch_safe() -> None:
    traits = judge(facts("Aggregate", aggregates=frozenset({"Sum", "Count", "CollectSet"})))
    assert (traits.is_stateful, traits.is_batch_safe) == (True, True)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (facts("SomethingNew"), "SomethingNew is not on the batch-safe list"),
        (facts("MapInArrow"), "sees whole batches"),
        (facts("Aggregate", ties_shown=("max(x)",)), "max(x) keeps whichever came first of"),
        (facts("Aggregate", zeros_shown=("max(x)",)), "max(x) keeps whichever came first of 0.0"),
        (
            facts("Generate", generators=frozenset({"Explode", "Own"})),
            "generator Own is not on the batch-safe list",
        ),
        (facts(expressions=frozenset({"Add", "org.other.Max"})), "org.other.Max is of another"),
        (facts("Aggregate", overflowing=("try_sum(x)",)), "try_sum(x) gives null where a part"),
        (facts("Aggregate", aggregates=frozenset({"First"})), "First depends on the order"),
        (facts("Aggregate", aggregates=frozenset({"MinBy"})), "MinBy can tie"),
        (facts("Aggregate", inexact_sums=("sum(x)",)), "sum(x) adds floating-point"),
        (
            facts(
                "Aggregate", aggregates=frozenset({"CollectSet"}), sets_shown=("collect_set(x)",)
            ),
            (
                "collect_set(x) has no fixed order: take it within the same expression as"
                " sort_array(collect_set(x)) or size(collect_set(x))"
            ),
        ),
        (facts("Join", join_types=frozenset({"LeftOuter"})), "LeftOuter join"),
        (facts("Deduplicate", deduplicated=("key",)), "dropDuplicates over key"),
        (facts("DeduplicateWithinWatermark"), "dropDuplicatesWithinWatermark"),
        (
            facts("TransformWithState", stateful_processors=frozenset({"P"})),
            "processor P is not known to sort",
        ),
    ],
)
def test_pl1_what_is_not_known_runs_one_bucket_per_batch(given: PlanFacts, says: str) -> None:
    traits = judge(given)
    assert not traits.is_batch_safe
    assert any(says in reason for reason in traits.reasons), traits.reasons
    assert traits.errors == ()


def test_pl1_an_expression_without_children_that_is_not_known_cannot_be_used() -> None:
    found = judge(facts(childless=frozenset({"Literal", "HostName"})))
    assert [error.partition(" gives")[0] for error in found.errors] == ["HostName"]


def test_pl3_where_time_that_passes_changes_what_later_rows_give_empty_buckets_count() -> None:
    processor = frozenset({"P"})
    timed = [
        facts("SomethingNew"),
        facts("DeduplicateWithinWatermark"),
        facts("TransformWithState", stateful_processors=processor),
    ]
    assert [judge(given).has_timers for given in timed] == [True, True, True]
    for kind in ("RightOuter", "FullOuter", "LeftSemi", "Another"):
        assert judge(facts("Join", join_types=frozenset({"Inner", kind}))).has_timers, kind
    assert judge(facts("Join", join_types=frozenset({"Inner"}))).compares_rows
    assert not judge(facts("Aggregate")).compares_rows
    untimed = [
        facts("MapInArrow"),
        facts("Aggregate", aggregates=frozenset({"First"})),
        facts("Join", join_types=frozenset({"LeftOuter"})),
        facts("Deduplicate", deduplicated=("key",)),
        facts("Aggregate", inexact_sums=("sum(x)",)),
        facts("TransformWithState", stateful_processors=processor, batch_safe_processors=processor),
    ]
    assert [judge(given).has_timers for given in untimed] == [False] * 6
    assert [judge(given).batch for given in (timed[0], untimed[0], untimed[5])] == [
        "one bucket per batch, empty ones too",
        "rows of one bucket per batch",
        "several buckets per batch",
    ]


DIFFERS = (
    " gives another result at every replica and after every restart: take event_time for the clock,"
    " and xxhash64 of a row's columns for chance or an id"
)


def test_what_differs_between_replicas_cannot_run() -> None:
    names = frozenset({"Rand", "Add", "CurrentTime"})
    traits = judge(
        PlanFacts(
            frozenset({"Project"}), names, frozenset({"Rand", "my_udf"}), inputs_unused=("b",)
        )
    )
    assert traits.errors == (
        f"CurrentTime{DIFFERS}",
        f"Rand{DIFFERS}",
        f"my_udf{DIFFERS}",
        "input b is not used by the function: take it out of `reads`",
    )


def test_pl4_what_gives_results_by_time_does_not_follow_a_join_that_keeps_rows() -> None:
    traits = judge(facts("Join", "Aggregate", late_operators=(("Aggregate", 10_001),)))
    (error,) = traits.errors
    assert error == (
        "Aggregate behind a join gives its results 10001 ms after their buckets are closed: by as"
        " much rows wait in the join. Make it a stage of its own, which reads one with the join"
    )


STATELESS, STATEFUL = (
    PlanTraits(is_stateful=False, is_batch_safe=True),
    PlanTraits(is_stateful=True, is_batch_safe=True),
)
ONE_BY_ONE, STATEFUL_ONE_BY_ONE = (
    PlanTraits(is_stateful=False, is_batch_safe=False),
    PlanTraits(is_stateful=True, is_batch_safe=False),
)
TIMERS = PlanTraits(is_stateful=True, is_batch_safe=False, has_timers=True)


class Stream:
    """One writer's log, built bucket by bucket."""

    def __init__(self) -> None:
        self.log_state, self._offset = LogState(["0"]), 0
        self.log_state.apply(0, EpochStarted("0", "", ""))
        self._branch_tip: BatchId | None = None
        self._stable_tip: BatchId | None = None

    def close(self, upto: int, rows: dict[int, int] | None = None, *, row_bytes: int = 0) -> Stream:
        self._offset += 1
        parts = tuple(
            Part(b, 0, "a", 1, 0, 1, n, 0, n * row_bytes) for b, n in (rows or {}).items()
        )
        ident, prev = BatchId("l", self._offset), self._stable_tip
        assert self.log_state.apply(
            self._offset, BoundaryRecord("0", 0, ident, prev, upto, parts)
        ).accepted
        self._stable_tip = ident
        return self

    def branch(
        self,
        upto: int,
        rows: dict[int, int] | None = None,
        *,
        base: int | None = None,
        missing: tuple[str, ...] = (),
        shed: int = 0,
    ) -> Stream:
        """Close up to ``upto`` by the writer's one branch; the first time with its ``base``."""
        self._offset += 1
        parts = tuple(Part(b, 0, "t", 1, 0, 1, n, 0) for b, n in (rows or {}).items())
        ident, prev = BatchId("b", self._offset), self._branch_tip
        record = BoundaryRecord(
            "0", 0, ident, prev, upto, parts, base, BoundaryKind.TENTATIVE, (0, 1), missing
        )
        record = replace(record, shed=shed)
        assert self.log_state.apply(self._offset, record).accepted
        self._branch_tip = ident
        return self


def buckets(plan: Plan | None) -> dict[str, list[int]]:
    assert plan is not None
    return {name: [b for b, _, _ in taken] for name, taken in plan.inputs}


def test_nothing_is_planned_before_every_input_is_complete() -> None:
    log_states = {"a": Stream().close(5, {3: 1}).log_state, "b": Stream().log_state}
    assert next_plan(QueryPosition(), log_states, STATELESS) is None


def test_pn5_nothing_is_planned_of_buckets_whose_rows_are_in_streams_that_nobody_names() -> None:
    log_state = Stream().close(9, {3: 1}).log_state
    log_state.rest_upto, log_state.rest_is_unread = 7, True
    message = r"buckets 7\.\.7 are in streams .* last 0"
    with pytest.raises(ConfigurationError, match=message):
        next_plan(QueryPosition(2, 6), {"a": log_state}, STATELESS)
    with pytest.raises(ConfigurationError, match=message):
        next_tentative_plan(QueryPosition(2, 6), {"a": log_state}, {}, 8, STATELESS)
    assert next_plan(QueryPosition(2, 7), {"a": log_state}, STATELESS) is not None


def test_a_plan_takes_what_is_complete_on_all_inputs() -> None:
    log_states = {
        "a": Stream().close(5, {2: 1, 5: 1}).log_state,
        "b": Stream().close(4, {3: 2}).log_state,
    }
    plan = present(next_plan(QueryPosition(), log_states, STATELESS))
    assert buckets(plan) == {"a": [2], "b": [3]}
    assert (plan.rows, plan.after) == (3, QueryPosition(1, 4, has_rows=True))


def ends(traits: PlanTraits, *streams: Stream) -> list[tuple[int, int]]:
    """(last bucket, rows) of each plan over these inputs."""
    log_states = {name: stream.log_state for name, stream in zip("ab", streams, strict=False)}
    position, found = QueryPosition(), []
    while (plan := next_plan(position, log_states, traits)) is not None:
        position = plan.after
        found.append((position.bucket, plan.rows))
    return found


def test_pn3_rows_of_one_bucket_per_plan_with_the_empty_ones_around_it() -> None:
    quiet = Stream().close(1_000_003, {1_000_001: 1, 1_000_003: 2})
    assert ends(ONE_BY_ONE, quiet) == [(1_000_002, 1), (1_000_003, 2)]
    assert ends(ONE_BY_ONE, quiet, Stream().close(1_000_003, {1_000_002: 4})) == [
        (1_000_001, 1),
        (1_000_002, 4),
        (1_000_003, 2),
    ]
    assert ends(STATEFUL_ONE_BY_ONE, quiet) == [(1_000_002, 1), (1_000_003, 2)]
    assert ends(STATEFUL_ONE_BY_ONE, Stream().close(7)) == [(7, 0)]


def test_pn3_where_timers_may_fire_every_bucket_has_a_plan_from_the_first_with_data_on() -> None:
    stream = Stream().close(1_000_004, {1_000_001: 1, 1_000_004: 1})
    assert ends(TIMERS, stream) == [
        (1_000_000, 0),
        (1_000_001, 1),
        (1_000_002, 0),
        (1_000_003, 0),
        (1_000_004, 1),
    ]
    assert ends(TIMERS, Stream().close(7)) == [(7, 0)]
    plan = present(
        next_plan(QueryPosition(1, 7), {"a": Stream().close(9, {8: 1}).log_state}, TIMERS)
    )
    assert plan.after.bucket == 8


def test_pn4_rows_bound_a_plan_but_never_below_one_bucket() -> None:
    log_states = {"a": Stream().close(9, {2: 100, 4: 100, 6: 100}).log_state}
    plan = present(next_plan(QueryPosition(), log_states, STATELESS, rows_max=50))
    assert buckets(plan) == {"a": [2]}
    assert plan.after.bucket == 3  # the empty ones before the next with rows
    assert buckets(next_plan(QueryPosition(), log_states, STATELESS, rows_max=200)) == {"a": [2, 4]}
    assert buckets(next_plan(QueryPosition(), log_states, STATELESS, buckets_max=2)) == {
        "a": [2, 4]
    }


def test_pn4_wide_rows_count_as_several() -> None:
    rows = dict.fromkeys((2, 4, 6, 8), 100)
    wide = {"a": Stream().close(9, rows, row_bytes=3 * ROW_BYTES_WEIGHED).log_state}
    assert buckets(next_plan(QueryPosition(), wide, STATELESS, rows_max=600)) == {"a": [2, 4]}
    assert buckets(next_plan(QueryPosition(), wide, STATELESS, rows_max=599)) == {"a": [2]}
    assert buckets(next_plan(QueryPosition(), wide, STATELESS, rows_max=1)) == {"a": [2]}
    narrow = {"a": Stream().close(9, rows, row_bytes=ROW_BYTES_WEIGHED // 3).log_state}
    plan = present(next_plan(QueryPosition(), narrow, STATELESS, rows_max=200))
    assert buckets(plan) == {"a": [2, 4]}
    assert plan.rows == 200


def test_a_warm_up_is_an_empty_plan_that_moves_nothing() -> None:
    log_states = {"a": Stream().close(9, {2: 100}).log_state}
    plan = present(next_plan(QueryPosition(), log_states, STATELESS, warm_up=True))
    assert (plan.rows, plan.after) == (0, QueryPosition(1, 0))
    plan = present(
        next_plan(QueryPosition(5, 4, has_rows=True), log_states, STATEFUL, warm_up=True)
    )
    assert (plan.inputs, plan.after) == ((("a", ()),), QueryPosition(6, 4, has_rows=True))


def test_empty_batches_run_so_often_and_move_nothing() -> None:
    task, position = EmptyBatches(["a", "b"], STATEFUL, 2), QueryPosition()
    for sequence in (1, 2):
        assert not task.is_finished
        plan = present(task.plan(position))
        assert (plan.before, plan.after, plan.rows) == (position, QueryPosition(sequence), 0)
        assert plan.inputs == (("a", ()), ("b", ()))
        assert task.plan(position) == plan, "asked again"
        task.made((), 0)
        position = plan.after
    assert task.is_finished
    assert task.plan(position) is None
    task.again()
    plan = present(task.plan(position))
    assert (plan.after, plan.rows) == (QueryPosition(3), 0)
    task.made((), 0)
    assert task.plan(plan.after) is None


def test_a_backlog_is_taken_in_the_same_plans_however_long_it_is() -> None:
    """Only the first buckets of a backlog are looked at: a plan costs what it takes."""
    log_state = Stream().close(300_000, dict.fromkeys(range(1, 300_000, 15), 1)).log_state
    position, plans = QueryPosition(), 0
    while (plan := next_plan(position, {"a": log_state}, STATELESS, buckets_max=4_096)) is not None:
        assert plan.rows <= 4_096
        position, plans = plan.after, plans + 1
    assert (position.bucket, plans) == (300_000, 5)


# -- tentative plans
# --------------------------------------------------------------------------------------------------

AT_5 = QueryPosition(sequence=9, bucket=5, has_rows=True)
FROM_0 = {"a": "0", "b": "0"}


def taken(plan: Plan | None) -> dict[str, list[tuple[int, str, str]]]:
    """(bucket, writer, attempt of its parts) by input."""
    assert plan is not None
    return {
        name: [(b, writer, parts[0].attempt) for b, writer, parts in buckets_]
        for name, buckets_ in plan.inputs
    }


def test_pt6_the_best_there_is_of_each_bucket() -> None:
    first = Stream().close(7, {6: 1, 9: 1, 11: 1, 12: 1}).branch(10, {9: 1, 10: 1}, base=7)
    second = Stream().close(20, {7: 1, 12: 1})
    log_states = {"a": first.log_state, "b": second.log_state}
    plan = present(next_tentative_plan(AT_5, log_states, FROM_0, 11, STATELESS))
    assert taken(plan) == {
        "a": [(6, "0", "a"), (9, "0", "t"), (10, "0", "t"), (11, "0", "a")],
        "b": [(7, "0", "a")],
    }
    assert (plan.kind, plan.missing, plan.rows) == (BoundaryKind.TENTATIVE, ("a",), 5)
    assert plan.after == QueryPosition(10, 11, has_rows=True)
    assert taken(next_tentative_plan(AT_5, log_states, {}, 11, STATELESS)) == {
        "a": [(6, "0", "a"), (9, "0", "a"), (11, "0", "a")],
        "b": [(7, "0", "a")],
    }


def test_pt6_open_parts_fill_the_gap_before_a_branch() -> None:
    log_states = {"a": Stream().close(5, {6: 1, 7: 1, 9: 1}).branch(8, {8: 1}, base=6).log_state}
    assert taken(next_tentative_plan(AT_5, log_states, FROM_0, 9, STATELESS)) == {
        "a": [(6, "0", "a"), (8, "0", "t"), (9, "0", "a")]
    }


def test_pt7_missing_names_what_upstream_was_without_or_the_stream() -> None:
    log_states = {
        "a": (
            Stream()
            .close(7)
            .branch(10, base=7, missing=("reports",))
            .branch(12, base=None)
            .log_state
        ),
        "b": Stream().close(20).log_state,
    }

    def missing(due: int, chosen: dict[str, str | None]) -> tuple[str, ...]:
        plan = present(next_tentative_plan(AT_5, log_states, chosen, due, STATELESS))
        return plan.missing

    assert missing(7, {"a": "0"}) == ()
    assert missing(10, {"a": "0", "b": None}) == ("reports",)
    assert missing(12, {"a": "0"}) == (
        "a",
        "reports",
    ), "its branch names nothing: the stream itself is what is not certain"
    assert missing(13, {"a": "0"}) == ("a", "reports")
    assert missing(10, {"a": None}) == ("a",)
    assert missing(21, {"a": "0"}) == ("a", "b", "reports")


def test_pt8_a_plan_of_stable_buckets_is_tentative_all_the_same() -> None:
    plan = present(
        next_tentative_plan(AT_5, {"a": Stream().close(9, {8: 1}).log_state}, {}, 9, STATELESS)
    )
    assert (plan.kind, plan.missing, plan.after.bucket) == (BoundaryKind.TENTATIVE, (), 9)


def test_pt9_only_a_tentative_plan_leaves_out_rows() -> None:
    log_states = {"a": Stream().close(9, {8: 10}).log_state}
    plan = present(next_tentative_plan(AT_5, log_states, {}, 9, STATELESS, kept=300))
    whole = present(next_tentative_plan(AT_5, log_states, {}, 9, STATELESS))
    assert (plan.kept, whole.kept) == (300, 1_000)
    assert replace(plan, kept=1_000) == whole, "its buckets and parts are the same"
    for changes in ({"kind": BoundaryKind.STABLE}, {"kept": 1_001}, {"kept": -1}):
        with pytest.raises(LocalProtocolError, match="per mille of its rows"):
            replace(plan, **changes)


def test_pt10_a_plan_says_what_its_results_lack_along_the_chain() -> None:
    a = Stream().close(7).branch(9, base=7, shed=500).branch(10, base=None, shed=800)
    b = Stream().close(20)
    log_states = {"a": a.log_state, "b": b.log_state}

    def lacks(due: int, kept: int = 1_000) -> tuple[int, tuple[str, ...]]:
        plan = present(next_tentative_plan(AT_5, log_states, {"a": "0"}, due, STATELESS, kept=kept))
        return plan.shed, plan.missing

    assert lacks(7) == (0, ())
    assert lacks(7, 300) == (700, ())
    assert lacks(9) == (500, ()), "it lacks rows of its input, and no stream is missing"
    assert lacks(9, 500) == (750, ())
    assert lacks(10) == (800, ())
    assert lacks(11) == (800, ("a",))


def test_pt3_one_bucket_per_plan_unless_batch_safe() -> None:
    log_states = {"a": Stream().close(5, {7: 3, 8: 1}).log_state}
    for traits, ends in ((TIMERS, [6, 7, 8]), (ONE_BY_ONE, [7, 8]), (STATELESS, [8])):
        position, found = AT_5, []
        while (plan := next_tentative_plan(position, log_states, {}, 8, traits)) is not None:
            position = plan.after
            found.append(position.bucket)
        assert found == ends


def test_pt4_limits_cut_a_tentative_plan_over_all_sources_of_its_buckets() -> None:
    rows = {6: 10, 7: 10, 8: 10, 9: 10, 10: 10}
    log_states = {"a": Stream().close(6, rows).branch(8, {7: 10, 8: 10}, base=6).log_state}
    position, ends = AT_5, []
    while (
        plan := next_tentative_plan(position, log_states, FROM_0, 12, STATELESS, rows_max=25)
    ) is not None:
        position = plan.after
        ends.append(position.bucket)
    assert ends == [7, 9, 12]
    assert buckets(next_tentative_plan(AT_5, log_states, FROM_0, 12, STATELESS, buckets_max=1)) == {
        "a": [6]
    }
    assert buckets(next_tentative_plan(AT_5, log_states, FROM_0, 12, STATELESS, buckets_max=3)) == {
        "a": [6, 7, 8]
    }


def test_a_hole_of_any_length_costs_nothing() -> None:
    log_states = {"a": Stream().branch(10**15, {10**14: 1}, base=0).log_state}
    plan = present(next_tentative_plan(QueryPosition(), log_states, FROM_0, 2 * 10**15, STATELESS))
    assert (plan.after.bucket, plan.rows, plan.missing) == (2 * 10**15, 1, ("a",))


def test_missing_streams_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "MISSING_STREAMS_MAX", 2)
    log_states = {"a": Stream().branch(9, base=0, missing=("z", "y", "x")).log_state}
    plan = present(next_tentative_plan(QueryPosition(), log_states, FROM_0, 9, STATELESS))
    assert plan.missing == ("x", "y")


def test_pn1_inputs_at_different_positions_are_rejected() -> None:
    position = QueryPosition(3, 7)
    assert check_joint({"a": position, "b": position}) == position
    with pytest.raises(LocalProtocolError, match="different positions"):
        check_joint({"a": position, "b": QueryPosition(3, 8)})


def test_the_watermark_must_be_the_batchs_own_boundary() -> None:
    check_watermark(QueryPosition(bucket=4), 1_000, 250)
    for wrong_ms in (750, 999, 1_250):
        with pytest.raises(LocalProtocolError, match="watermark"):
            check_watermark(QueryPosition(bucket=4), wrong_ms, 250)


def test_a_result_of_a_closed_bucket_is_the_functions_mistake() -> None:
    check_open("f", 5, 4, 250)
    with pytest.raises(
        StageFunctionError,
        match=(
            r"f: gave a row of bucket 4 \(event_time up to 1000\), but buckets up to 4 are closed"
        ),
    ):
        check_open("f", 4, 4, 250)
