"""Figures of one side: which slots it measures, when, and what it says of each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.protocol.federation.movements import Movement, MovementState
from anabranch.protocol.federation.silence import MEASURED_AFTER_MS
from anabranch.protocol.federation.slot_figures import (
    SlotFigure,
    SlotStep,
    first_slot,
    slot_figure,
)
from anabranch.protocol.federation.workload import Workload
from harness.markets import CONTRACT

WIDTH_MS, METER_MS = 250, CONTRACT.audit.meter_ms
SLOT = 10
FIRST, LAST = 40, 43
"""Buckets of the slot: they end at 10 000, 10 250, 10 500 and 10 750 ms."""
DUE_MS = (SLOT + 1) * METER_MS + MEASURED_AFTER_MS
RUNS = Movement("m", MovementState.RUNNING, "north.a", 10, 900, 1, started_ms=500)
OVER = replace(RUNS, state=MovementState.OVER, ended_ms=10_400)


def workload(node: str = "south.0", since: int = 38, upto: int = LAST) -> Workload:
    """Return the workload of a stage that ``node`` runs, with 5 rows in each bucket."""
    made = Workload(("a",), WIDTH_MS)
    made.arrived("a", since, {})
    made.made(node, since)
    made.arrived("a", upto, dict.fromkeys(range(since + 1, upto + 1), 5))
    made.made(node, upto)
    return made


def figure(
    load: Workload,
    movement: Movement = RUNS,
    *,
    slot: int = SLOT,
    now_ms: int = DUE_MS,
    is_seller: bool = True,
    allowed: tuple[str, ...] = (),
) -> SlotFigure:
    return slot_figure(slot, movement, CONTRACT, load, allowed, now_ms, is_seller=is_seller)


@pytest.mark.parametrize(("followed_ms", "slot"), [(0, 5), (5_999, 5), (6_000, 6), (8_500, 8)])
def test_sm1_it_begins_where_the_movement_does_or_this_side(followed_ms: int, slot: int) -> None:
    assert first_slot(replace(RUNS, started_ms=5_700), METER_MS, followed_ms) == slot


def test_sm1_the_slot_in_which_it_ended_is_the_last_one() -> None:
    assert figure(workload(), OVER) == (SlotStep.STATE, 20)
    assert figure(workload(upto=99), OVER, slot=SLOT + 1, now_ms=DUE_MS * 2).step is SlotStep.DONE
    at_end = replace(OVER, ended_ms=SLOT * METER_MS)
    assert figure(workload(), at_end).step is SlotStep.DONE
    running = replace(RUNS, ended_ms=SLOT * METER_MS)
    assert figure(workload(), running).step is SlotStep.STATE, "it has not ended"


def test_sm2_a_slot_waits_for_its_end_and_its_last_bucket() -> None:
    assert figure(workload(), now_ms=DUE_MS - 1).step is SlotStep.WAIT
    assert figure(workload(upto=LAST - 1)).step is SlotStep.WAIT
    assert figure(workload()) == (SlotStep.STATE, 20)


def test_sm3_a_slot_that_was_not_followed_whole_has_no_figure() -> None:
    assert figure(workload(since=FIRST), is_seller=False).step is SlotStep.SKIP


def test_sm3_a_slot_in_which_it_did_not_run_has_no_figure() -> None:
    later = replace(RUNS, started_ms=(SLOT + 1) * METER_MS)
    assert figure(workload(), later).step is SlotStep.SKIP


def test_sm3_of_the_slot_in_which_it_ended_only_the_time_before_counts() -> None:
    load = workload(upto=41)
    load.arrived("a", LAST, dict.fromkeys((42, LAST), 5))
    load.made("north.0", LAST)
    assert figure(load, OVER) == (SlotStep.STATE, 20), "10 rows in its two buckets"
    assert figure(load) == (SlotStep.STATE, 10), "it has run for all of the slot"


def test_sm4_a_seller_that_made_nothing_says_nothing_and_its_buyer_zero() -> None:
    idle = workload("north.0")
    assert figure(idle).step is SlotStep.SKIP
    assert figure(idle, is_seller=False) == (SlotStep.STATE, 0)


def test_fz4_a_node_that_the_seller_named_counts_if_the_owner_allows_it() -> None:
    resold, named = workload("east.0"), replace(RUNS, nodes=("east.0",), node="east.0")
    assert figure(resold, named).step is SlotStep.SKIP
    assert figure(resold, named, allowed=("east.0",)) == (SlotStep.STATE, 20)
    assert figure(resold, allowed=("east.0",)).step is SlotStep.SKIP
