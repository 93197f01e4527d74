"""What a plan allows. That the allow-list is right is shown on real Spark by
tests/spark/test_batch_safety.py.
"""

from __future__ import annotations

import pytest

from anabranch.protocol.stage.plans import KnownNames, PlanFacts, PlanTraits
from anabranch.protocol.stage.plans import judge as judge_of

KNOWN = KnownNames(
    stateless=frozenset({"Project", "Filter", "MapInArrow"}),
    whole_batch=frozenset({"MapInArrow"}),
    stateful_safe=frozenset({"Aggregate", "Join", "Deduplicate", "TransformWithState"}),
    first_row_kept=frozenset({"DeduplicateWithinWatermark"}),
    safe_joins=frozenset({"Inner"}),
    joins_across_empty_buckets=frozenset({"Inner", "LeftOuter"}),
    order_free_aggregates=frozenset({"Sum", "Count", "CollectSet"}),
    tied_aggregates=frozenset({"MinBy"}),
    not_deterministic=frozenset({"Rand", "CurrentTime"}),
)


def judge(given: PlanFacts) -> PlanTraits:
    return judge_of(given, KNOWN)


def facts(*operators: str, **more: object) -> PlanFacts:
    return PlanFacts(
        operators=frozenset({"Project", "Filter", *operators}),
        expressions=frozenset(),
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


def test_a_batch_safe_processor_is_stateful_and_batch_safe() -> None:
    traits = judge(
        facts(
            "TransformWithState",
            stateful_processors=frozenset({"P"}),
            batch_safe_processors=frozenset({"P"}),
        )
    )
    assert (traits.is_stateful, traits.is_batch_safe) == (True, True)


def test_what_differs_between_replicas_cannot_run() -> None:
    names = frozenset({"Rand", "Add", "CurrentTime"})
    traits = judge(
        PlanFacts(
            frozenset({"Project"}), names, frozenset({"Rand", "my_udf"}), inputs_unused=("b",)
        )
    )
    assert traits.errors == (
        "CurrentTime gives another result at every replica and after every restart",
        "Rand gives another result at every replica and after every restart",
        "my_udf gives another result at every replica and after every restart",
        "input b is not used by the function: take it out of `reads`",
    )
