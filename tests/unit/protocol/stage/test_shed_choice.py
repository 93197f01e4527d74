"""Choice of the stages of a node that leave out rows."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.stage.kept_rows import KEPT_ALL
from anabranch.protocol.stage.load_control import HOLD_MS, KEPT_LEAST, KEPT_RISE, LoadDemand
from anabranch.protocol.stage.shed_choice import (
    CHOOSE_EVERY_MS,
    FILLED,
    NodeDemands,
    ShedChoice,
    StageDemand,
    StageWay,
)
from anabranch.protocol.stage.utility import STEP, Curve, ShownLoss, StageLoad

DEAR = Curve(((0, 1_000), (1_000, 0)), is_concave=True)
CHEAP = Curve(((0, 1_000), (1_000, 800)), is_concave=True)


def demands(cheap_us: int, dear_us: int, *, is_late: bool = True) -> list[StageDemand]:
    """Return the demands of two stages, of which the dear one may be late."""
    return [
        StageDemand(StageLoad("cheap", cheap_us, (ShownLoss(CHEAP),)), is_late=False),
        StageDemand(StageLoad("dear", dear_us, (ShownLoss(DEAR),)), is_late=is_late),
    ]


def test_nl2_the_cheaper_stage_makes_room_for_the_one_that_is_late() -> None:
    limits = ShedChoice(1).decide(0, demands(800_000, 700_000), 0)
    assert limits.are_set
    assert dict(limits.kept) == {"cheap": 250, "dear": KEPT_ALL}
    assert (limits.next_steps["cheap"].kept, limits.next_steps["dear"].kept) == (200, 950)


def test_what_other_stages_take_is_not_there() -> None:
    limits = ShedChoice(1).decide(0, demands(800_000, 400_000), 200_000)
    assert dict(limits.kept) == {"cheap": 350, "dear": KEPT_ALL}
    assert not ShedChoice(2).decide(0, demands(800_000, 400_000), 200_000).are_set


def test_nl1_no_limits_while_nobody_is_late_or_everything_fits_or_one_stage_is_alone() -> None:
    late = demands(800_000, 700_000)
    for found in (demands(800_000, 700_000, is_late=False), demands(500_000, 450_000), late[1:]):
        limits = ShedChoice(1).decide(0, found, 0)
        assert not limits.are_set
        assert set(limits.kept.values()) == {KEPT_ALL}


def test_nl3_limits_stay_until_everything_has_fitted_for_a_while() -> None:
    choice = ShedChoice(1)
    choice.decide(0, demands(800_000, 700_000), 0)
    assert choice.decide(1_000, demands(600_000, 350_000, is_late=False), 0).are_set
    fits = demands(400_000, 400_000, is_late=False)
    assert choice.decide(2_000, fits, 0).are_set
    assert choice.decide(1_999 + HOLD_MS, fits, 0).are_set
    assert choice.decide(2_500 + HOLD_MS, demands(600_000, 700_000), 0).are_set
    assert choice.decide(3_000 + HOLD_MS, fits, 0).are_set
    limits = choice.decide(3_000 + 2 * HOLD_MS, fits, 0)
    assert not limits.are_set
    assert dict(limits.kept) == {"cheap": KEPT_ALL, "dear": KEPT_ALL}


def test_nl4_a_limit_falls_at_once_and_rises_slowly() -> None:
    choice = ShedChoice(1)
    kept = [
        choice.decide(number * 100, demands(cheap_us, 700_000), 0).kept["cheap"]
        for number, cheap_us in enumerate((800_000, 2_000_000, 800_000, 800_000, 700_000, 200_000))
    ]
    assert kept == [250, 100, 200, 200, 200, 300]


def test_a_stage_is_never_kept_from_everything() -> None:
    limits = ShedChoice(1).decide(0, demands(5_000_000, 9_000_000), 0)
    assert set(limits.kept.values()) <= {KEPT_LEAST, STEP, 2 * STEP}


def test_nl5_stages_correct_one_after_the_other() -> None:
    def behind(cheap: int, dear: int, *, is_late: bool = False) -> list[StageDemand]:
        """Return the demands of stages with these backlogs."""
        both = demands(300_000, 300_000, is_late=is_late)
        return [replace(both[0], backlog=cheap), replace(both[1], backlog=dear)]

    choice = ShedChoice(1)

    def waiting(*backlogs: int, is_late: bool = False) -> list[str]:
        """Return the stages that wait."""
        limits = choice.decide(0, behind(*backlogs, is_late=is_late), 0)
        assert [limits.of(stage) for stage in limits.waiting] == [KEPT_ALL] * len(limits.waiting)
        return sorted(limits.waiting)

    assert waiting(0, 0) == []
    assert waiting(900, 800) == ["cheap"]
    assert waiting(700, 790) == ["cheap"], "who has begun goes on"
    assert waiting(700, 790, is_late=True) == ["dear"], "unless it is late"
    assert waiting(700, 0) == []
    assert ShedChoice(2).decide(0, behind(900, 800), 0).waiting == frozenset()
    limits = choice.decide(0, demands(800_000, 700_000), 0)
    assert (limits.waiting, limits.of("cheap"), limits.of("x")) == (frozenset(), 250, KEPT_ALL)


@given(st.lists(st.tuples(st.integers(1, 3_000_000), st.integers(1, 3_000_000)), max_size=20))
def test_nl2_what_is_left_fits(loads: list[tuple[int, int]]) -> None:
    choice, before = ShedChoice(1), {"cheap": KEPT_ALL, "dear": KEPT_ALL}
    for number, (cheap_us, dear_us) in enumerate(loads):
        limits = choice.decide(number * 1_000, demands(cheap_us, dear_us), 0)
        needed_us = (cheap_us * limits.kept["cheap"] + dear_us * limits.kept["dear"]) // 1_000
        floor_us = (cheap_us + dear_us) * KEPT_LEAST // 1_000
        assert not limits.are_set or needed_us <= FILLED * 1_000 + floor_us
        for stage, kept in limits.kept.items():
            assert not limits.are_set or kept <= before[stage] + KEPT_RISE
        before = dict(limits.kept)


# -- what a node decides by


def test_nl6_a_node_decides_once_in_an_interval() -> None:
    node = NodeDemands()
    assert node.is_due(5)
    node.read(5, {}, {}, {})
    assert not node.is_due(4 + CHOOSE_EVERY_MS)
    assert node.is_due(5 + CHOOSE_EVERY_MS)


def test_nl6_what_other_stages_took_since_the_previous_decision_is_what_they_need() -> None:
    node, needs = NodeDemands(), {"s": LoadDemand(7, is_late=True, backlog=3)}
    ways = {"s": StageWay((), ())}
    assert node.read(0, {"whole": 900.0, "s": 50.0}, needs, ways)[1] == 0
    demands, others_us = node.read(2_000, {"whole": 1_300.0, "new": 100.0, "s": 950.0}, needs, ways)
    assert others_us == 250_000
    assert demands == [StageDemand(StageLoad("s", 7, ()), is_late=True, backlog=3)]


def test_nl7_what_other_nodes_left_out_before_counts_where_it_comes_in() -> None:
    """``second`` reads ``first``; both read what other nodes have left out rows of."""
    ways = {
        "first": StageWay((), [(DEAR, frozenset({"second", "elsewhere"}))]),
        "second": StageWay({"first", "elsewhere"}, [(DEAR, frozenset({"first", "elsewhere"}))]),
        "third": StageWay({"elsewhere"}, [(CHEAP, frozenset({"elsewhere"}))]),
    }
    needs = {
        "first": LoadDemand(1, is_late=False, inputs_shed=100),
        "second": LoadDemand(1, is_late=False, inputs_shed=900),
        "third": LoadDemand(1, is_late=False, inputs_shed=300),
    }
    demands, _ = NodeDemands().read(0, {}, needs, ways)
    assert {each.load.stage: each.load.outputs for each in demands} == {
        "first": (ShownLoss(DEAR, 100, frozenset({"second"})),),
        "second": (ShownLoss(DEAR, 100, frozenset({"first"})),),
        "third": (ShownLoss(CHEAP, 300, frozenset()),),
    }
