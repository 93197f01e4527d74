"""Whether a changed function may go on from the state of the one before, and what it is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.log.stateful_plan import (
    NO_STATE,
    StageState,
    StatefulOperator,
    StatefulPlan,
    difference,
)

LESS = "aggregate, computes: max(s.celsius) -> nothing"


def aggregate(
    window: str = "window(s.at, 10 seconds)",
    computes: tuple[str, ...] = ("count(1)", "max(s.celsius)"),
    rows: tuple[str, ...] = ("s",),
) -> StatefulOperator:
    return StatefulOperator(
        "aggregate", (("per", (window, "s.sensor")), ("computes", computes), ("rows", rows))
    )


def plan(*operators: StatefulOperator) -> StatefulPlan:
    return StatefulPlan(operators, "source", "engine 1")


def test_the_same_operators_mean_the_same() -> None:
    assert difference(plan(aggregate()), plan(aggregate())) == ""
    assert difference(plan(), plan()) == ""
    assert difference(StatefulPlan((aggregate(),)), plan(aggregate())) == ""
    assert difference(replace(plan(aggregate()), source="another"), plan(aggregate())) == ""


def test_another_engine_may_plan_the_same_source_in_other_words() -> None:
    """Descriptions of different engines mean the same if both are of one known source (SQ3)."""
    old, minute = plan(aggregate()), aggregate("window(s.at, 1 minute)")
    assert difference(old, StatefulPlan((minute,), "source", "engine 2")) == ""
    assert difference(old, StatefulPlan((minute,), "another", "engine 2"))
    assert difference(old, StatefulPlan((minute,), "source", "engine 1"))
    assert difference(replace(old, source=""), StatefulPlan((minute,), "", "engine 2"))
    assert difference(old, StatefulPlan((aggregate(),), "another", "engine 2")) == ""


@pytest.mark.parametrize(
    ("new", "text"),
    [
        (
            (aggregate("window(s.at, 1 minute)"),),
            "aggregate, per: window(s.at, 10 seconds) -> window(s.at, 1 minute)",
        ),
        (
            (aggregate(computes=("count(1)", "min(s.celsius)")),),
            "aggregate, computes: max(s.celsius) -> min(s.celsius)",
        ),
        (
            (aggregate(computes=("max(s.celsius)", "count(1)")),),
            "aggregate, computes: count(1), max(s.celsius) -> max(s.celsius), count(1)",
        ),
        ((aggregate(rows=("s", "(s.a > 3)")),), "aggregate, rows: nothing -> (s.a > 3)"),
        ((aggregate(rows=()),), "aggregate, rows: s -> nothing"),
        ((), "operators with state: aggregate -> none"),
        (
            (replace(aggregate(), kind="deduplicate"), aggregate()),
            "operators with state: aggregate -> deduplicate, aggregate",
        ),
        (
            (aggregate("window(s.at, 1 hour)", ("count(1)",)),),
            f"aggregate, per: window(s.at, 10 seconds) -> window(s.at, 1 hour); {LESS}",
        ),
    ],
)
def test_what_differs_is_told_as_people_wrote_it(
    new: tuple[StatefulOperator, ...], text: str
) -> None:
    assert difference(plan(aggregate()), plan(*new)) == text


def test_an_aspect_that_only_one_of_them_has_differs() -> None:
    less = StatefulOperator("aggregate", aggregate().facts[:2])
    assert difference(plan(aggregate()), plan(less)) == "aggregate, rows: s -> nothing"
    assert difference(plan(less), plan(aggregate())) == "aggregate, rows: nothing -> s"


def test_a_function_that_computes_otherwise_does_not_go_on() -> None:
    state = StageState("t", plan(aggregate()))
    state.check(plan(aggregate()))
    NO_STATE.check(StatefulPlan())
    with pytest.raises(ConfigurationError) as raised:
        state.check(plan(aggregate("window(s.at, 1 minute)")))
    assert str(raised.value).startswith(
        "stage t: the state in its checkpoint was computed by another function: aggregate, per:"
        " window(s.at, 1 minute) -> window(s.at, 10 seconds)."
    )
