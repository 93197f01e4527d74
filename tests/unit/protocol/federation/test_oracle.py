"""Tests of a side's statements about the plans of a query."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.federation.contracts import Side
from anabranch.protocol.federation.costs import CornerCost
from anabranch.protocol.federation.oracle import (
    Observed,
    SenderStage,
    SenderWatch,
    at_sender,
    load_here,
    profits,
    reason_against_plans,
    says,
    tasks_of,
)
from anabranch.protocol.federation.plan_switching import PlanSwitch, PlanWord, Word
from harness.markets import CONTRACT
from harness.plans import AGREED, PLANS, PROPOSED, SWITCHED, plans, switched, word

BACKOFF_MS = 30_000
FLAT = CornerCost(((0, 1), (100, 30)))
GAINS, LOSES = Observed((0, 100, 50)), Observed((0, -1, -1))


def spoken(
    by: str, of: PlanSwitch, seen: Observed = GAINS, at_ms: int = 0, *, may_switch: bool = True
) -> PlanWord | None:
    return says(by, of, seen, at_ms, may_switch=may_switch, backoff_ms=BACKOFF_MS)


def test_a_plan_is_worth_what_its_stream_is_paid_less_what_it_runs_here() -> None:
    """50 rows a second of the sender's stream, of which the first stage lets 20 through."""
    loads, rates = {"slow": 50, "tolls": 20}, [50, 20, 3]
    assert profits(PLANS, Side.BUYER, rates, loads, FLAT, 90) == [
        -500 - (10 + 60 * 30),
        -200 - (10 + 10 * 30),
        -400,
    ]
    assert profits(PLANS, Side.SELLER, rates, loads, FLAT, 0) == [500, 200 - 50, 400 - 70]
    assert profits(PLANS, Side.SELLER, [9_000, 20, 3], loads, FLAT, 0)[0] == 10 * 1_000, "the rate"


def test_who_gains_proposes_and_who_gains_too_agrees() -> None:
    made = PlanSwitch(PLANS, 0)
    assert spoken("billing", made) == word(Word.PROPOSED, "billing", 1, 1)
    assert spoken("billing", made, LOSES) is None
    switched(word(Word.PROPOSED, "billing"), of=made)
    assert spoken("billing", made) is None, "it waits"
    assert spoken("north", made) == word(Word.AGREED, "north")
    assert spoken("north", made, LOSES) == word(Word.DECLINED, "north")


def test_or1_who_has_not_measured_says_nothing() -> None:
    made, none = PlanSwitch(PLANS, 0), Observed(None)
    assert spoken("billing", made, none) is None
    switched(PROPOSED, of=made)
    assert spoken("billing", made, none) is None


def test_while_the_contract_is_not_in_force_nothing_is_proposed_or_answered() -> None:
    made = PlanSwitch(PLANS, 0)
    assert spoken("billing", made, may_switch=False) is None
    switched(PROPOSED, of=made)
    assert spoken("billing", made, may_switch=False) is None


def test_what_came_to_nothing_is_not_repeated_at_once_and_the_second_best_is_proposed() -> None:
    made = switched(word(Word.PROPOSED, "billing"), word(Word.DECLINED, "north"))
    second = word(Word.PROPOSED, "billing", 2, 2)
    assert spoken("billing", made, at_ms=BACKOFF_MS - 1) == second
    assert spoken("billing", made, at_ms=BACKOFF_MS) == replace(second, plan=1)
    only = Observed((0, 100, 0))
    assert spoken("billing", made, only, BACKOFF_MS - 1) is None


def test_a_proposal_that_nobody_answers_is_made_again_later() -> None:
    made = switched(word(Word.PROPOSED, "billing"))
    only = Observed((0, 100, 0))
    assert spoken("billing", made, only, 5_000) is None
    assert spoken("billing", made, only, 5_001) == word(Word.PROPOSED, "billing", 2, 1)


def test_a_plan_is_not_proposed_before_the_hold_is_over() -> None:
    made = PlanSwitch(plans(min_hold_ms=1_000), 500)
    assert spoken("north", made, at_ms=1_499) is None
    assert spoken("north", made, at_ms=1_500) == PROPOSED


def test_the_receiver_says_that_it_is_done_and_either_that_it_took_too_long() -> None:
    made = switched(PROPOSED, AGREED)
    done = replace(GAINS, has_moved=True)
    assert spoken("billing", made) is None
    assert spoken("billing", made, done, may_switch=False) == SWITCHED
    assert spoken("north", made, done) is None
    for by in ("north", "billing"):
        assert spoken(by, made, at_ms=20_000) is None
        assert spoken(by, made, at_ms=20_001) == word(Word.FAILED, by)


def test_the_receiver_falls_back_and_then_nothing_is_agreed_to_for_a_while() -> None:
    failed = replace(GAINS, has_failed=True)
    assert spoken("billing", PlanSwitch(PLANS, 0), failed) == word(Word.PROPOSED, "billing")
    made = switched(PROPOSED, AGREED, SWITCHED)
    assert spoken("north", made, Observed((0, 1, 0), has_failed=True)) is None
    fell_back = spoken("billing", made, failed)
    assert fell_back == word(Word.FELL_BACK, "billing", 1, 0)
    switched(fell_back, of=made)
    for by in ("north", "billing"):
        assert spoken(by, made) is None
    switched(word(Word.PROPOSED, "north", 2), of=made)
    assert spoken("billing", made) == word(Word.DECLINED, "billing", 2)


def test_of_a_cancelled_contract_nothing_is_said() -> None:
    made = switched(PROPOSED, AGREED, SWITCHED, word(Word.CANCELLED, "north", 0))
    failed = replace(GAINS, has_failed=True, has_moved=True)
    assert spoken("billing", made, failed, 99_000) is None


@given(st.sampled_from(["north", "billing"]), st.integers(-500, 500), st.integers(0, 40_000))
def test_what_an_oracle_says_counts(by: str, gain: int, at_ms: int) -> None:
    """Whatever the state: a word that is said is not rejected."""
    for made in (
        PlanSwitch(PLANS, 0),
        switched(PROPOSED),
        switched(PROPOSED, AGREED),
        switched(PROPOSED, AGREED, SWITCHED),
        switched(PROPOSED, word(Word.DECLINED)),
    ):
        found = spoken(by, made, Observed((0, gain, -gain), has_moved=True), at_ms)
        assert found is None or made.add(found, at_ms, may_switch=True) == ""


def test_or2_where_the_stages_are_to_run() -> None:
    made = PlanSwitch(PLANS, 0)
    seen = []
    for each in (PROPOSED, AGREED, SWITCHED, word(Word.PROPOSED, "north", 2, 2)):
        switched(each, of=made)
        seen.append(at_sender(made, may_switch=True))
    assert seen == [(), ("slow",), ("slow",), ("slow",)]
    assert at_sender(made, may_switch=False) == ()
    switched(word(Word.AGREED, "billing", 2, 2), of=made)
    assert at_sender(made, may_switch=True) == ("slow", "tolls")
    switched(word(Word.CANCELLED, "north", 0), of=made)
    assert at_sender(made, may_switch=True) == ()


THERE, AWAY = SenderStage(runs_there=True), SenderStage(runs_there=False)


@pytest.mark.parametrize(
    ("stage", "failed"),
    [
        (THERE, False),
        (replace(THERE, waits_ms=8_000), False),
        (replace(THERE, waits_ms=8_001), True),
        (replace(THERE, is_silent=True), True),
        (replace(AWAY, is_silent=True, waits_ms=8_001), False),
    ],
)
def test_or3_a_sender_has_failed_that_is_not_heard_or_is_late(
    stage: SenderStage, failed: bool
) -> None:
    """The plan allows a delay of 3 s, and whoever is silent for 5 s is not heard."""
    watch = SenderWatch()
    watch.look(switched(PROPOSED, AGREED, SWITCHED), [THERE, stage], 0)
    assert watch.has_failed is failed


def test_or3_a_stage_may_be_astray_for_as_long_as_a_switch_may_take() -> None:
    """It may be so for 20 s from the first time."""
    made, watch = switched(PROPOSED, AGREED, SWITCHED), SenderWatch()
    rounds = [(0, AWAY), (19_000, AWAY), (19_500, THERE), (20_500, AWAY), (40_500, AWAY)]
    for now_ms, stage in rounds:
        watch.look(made, [THERE, stage], now_ms)
        assert not watch.has_failed
    watch.look(made, [THERE, AWAY], 40_501)
    assert watch.has_failed


def test_or3_a_stage_whose_logs_cannot_be_read_says_nothing_against_the_sender() -> None:
    made, watch = switched(PROPOSED, AGREED, SWITCHED), SenderWatch()
    for now_ms, stage in ((0, AWAY), (19_000, None), (40_000, None), (40_001, AWAY)):
        watch.look(made, [THERE, stage], now_ms)
        assert not watch.has_failed
    watch.look(made, [replace(THERE, is_silent=True), None], 40_002)
    assert watch.has_failed, "by the stage that can be read"


def test_or3_who_has_failed_has_so_until_another_plan_is_active() -> None:
    made, watch = switched(PROPOSED, AGREED, SWITCHED), SenderWatch()
    seen: list[bool] = []
    again = [word(Word.PROPOSED, "north", 2), word(Word.AGREED, "billing", 2)]
    for words, stages in (
        ((), [replace(THERE, is_silent=True)]),
        ((), [THERE]),
        ((word(Word.FELL_BACK, "billing", 1, 0),), []),
        ((*again, word(Word.SWITCHED, "billing", 2)), [THERE]),
    ):
        watch.look(switched(*words, of=made), stages, len(seen))
        seen.append(watch.has_failed)
    assert seen == [True, True, False, False], "who is heard a moment later is at home"


def test_or4_what_runs_here_or_is_to_is_load_here() -> None:
    made, seen = PlanSwitch(PLANS, 0), []
    leaves = [
        word(Word.PROPOSED, "north", 2, 0),
        word(Word.AGREED, "billing", 2, 0),
        word(Word.SWITCHED, "billing", 2, 0),
    ]
    for each in (PROPOSED, AGREED, SWITCHED, *leaves):
        switched(each, of=made)
        seen.append(
            tuple(load_here(made, side, may_switch=True) for side in (Side.BUYER, Side.SELLER))
        )
    every = ("slow", "tolls")
    assert seen == [
        (every, ()),
        (every, ("slow",)),
        (("tolls",), ("slow",)),
        (("tolls",), ("slow",)),
        (every, ("slow",)),
        (every, ()),
    ]


def test_or4_what_is_on_its_way_home_is_load_of_both() -> None:
    made = switched(PROPOSED, AGREED, SWITCHED)
    assert load_here(made, Side.BUYER, may_switch=False) == ("slow", "tolls")
    assert load_here(made, Side.SELLER, may_switch=False) == ("slow",)


def test_the_tasks_of_a_contract_have_names_in_the_federation() -> None:
    assert tasks_of(PLANS) == ("billing.slow", "billing.tolls")
    assert tasks_of(CONTRACT) == CONTRACT.tasks


PARTNERS = {"north": ["slow", "tolls"]}
SPEEDS = [("north", "speeds")]


@pytest.mark.parametrize(
    ("partners", "streams", "pipeline", "why"),
    [
        (PARTNERS, SPEEDS, "billing", ""),
        (PARTNERS, SPEEDS, "", "no file here has pipeline billing"),
        (PARTNERS, SPEEDS, "other", "no file here has pipeline billing"),
        ({"north": ["slow"]}, SPEEDS, "billing", "north may not run tolls"),
        ({}, SPEEDS, "billing", "north may not run slow, tolls"),
        (PARTNERS, [], "billing", "does not read stream speeds of pipeline north"),
    ],
)
def test_why_a_contract_is_left_alone(
    partners: dict[str, list[str]], streams: list[tuple[str, str]], pipeline: str, why: str
) -> None:
    found = reason_against_plans(PLANS, partners, streams, pipeline)
    assert (why in found) if why else (found == "")


def test_a_stage_that_goes_by_checkpoint_is_not_run_by_plans() -> None:
    found = reason_against_plans(PLANS, PARTNERS, SPEEDS, "billing", ["slow", "other"])
    assert found.startswith("transfer: checkpoint, of slow, needs a contract that says so")
