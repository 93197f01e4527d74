"""Sold tasks as their buyer watches over them: who has failed, and when a movement ends."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from anabranch.protocol.federation.contract_log import LoadLog
from anabranch.protocol.federation.holdings import Holding, TaskPlace, Term
from anabranch.protocol.federation.ledger import Ledger
from anabranch.protocol.federation.load_average import LoadAverage
from anabranch.protocol.federation.movements import EndReason, Movement, MovementState, Placed
from anabranch.protocol.federation.sales import (
    Sale,
    Sales,
    SeenTask,
    Settled,
    is_wanted_here,
    running_movement,
)
from harness.markets import answer, booked, contract, started, verify

TASK, NAME, HOME, PARTNER = "north.a", "north-south:1/north.a", "north.0", "south.0"
HOLD_MS, DEADLINE_MS = 10_000, contract().moving.deadline_ms
SILENT_MS: Final = 7_001
"""Time without a measurement of the seller's that proves its silence, in ms."""
WENT = Term(NAME, "north-south", 900, HOLD_MS)
THERE = SeenTask(PARTNER)
DEAD = SeenTask(PARTNER, is_silent=True)
AT_HOME = SeenTask(HOME)


def ledger() -> Ledger:
    """Return a ledger with a movement that began at 0."""
    made = Ledger(contract(), verify, "auditor")
    assert made.add(started(answer()), 0) == ""
    return made


def log(of: Ledger | None, now_ms: int = 0) -> LoadLog:
    """Stand in for a contract's log that both parties have signed."""
    return cast("LoadLog", SimpleNamespace(ledger=of, booked=booked(contract()), now_ms=now_ms))


def holding(place: TaskPlace = TaskPlace.AWAY, **changes: Any) -> Holding:
    load = LoadAverage.of(10)
    return Holding(TASK, load, place, went=WENT, hold_until_ms=HOLD_MS, **changes)


def settle(
    sales: Sales,
    seen: SeenTask | None,
    now_ms: int = 0,
    *,
    of: Ledger | None = None,
    place: TaskPlace = TaskPlace.AWAY,
    is_wanted: bool = True,
) -> Settled | None:
    sale = Sale.of(WENT, log(of or ledger(), now_ms), ())
    return sales.settle(holding(place), HOME, sale, seen, now_ms, is_wanted=is_wanted)


def test_a_sale_names_the_node_that_its_seller_may_use() -> None:
    of = ledger()

    def named(*allowed: str) -> tuple[str, list[str], str]:
        sale = Sale.of(WENT, log(of), allowed)
        return sale.partner, sorted(sale.nodes), sale.refused_node

    assert named() == (PARTNER, [PARTNER], "")
    assert of.add(Placed("north-south", NAME, "south", 1, 1, "west.0"), 1) == ""
    assert named("west.0") == ("west.0", [PARTNER, "west.0"], "")
    assert named() == (PARTNER, [PARTNER], "west.0")
    unknown = Sale.of(replace(WENT, movement_id="other"), log(of), ["west.0"])
    assert (unknown.movement, unknown.partner, unknown.refused_node) == (None, PARTNER, "")
    assert unknown.nodes == frozenset({PARTNER})


def test_so1_nothing_is_decided_while_it_is_not_known_where_a_task_runs() -> None:
    sales = Sales()
    assert settle(sales, None, 10**9) is None
    assert settle(sales, THERE) == Settled(PARTNER)


def test_a_task_that_is_not_sold_runs_at_home() -> None:
    here = Holding(TASK, LoadAverage.of(10), TaskPlace.HERE)
    found = Sales().settle(here, HOME, None, AT_HOME, 0, is_wanted=True)
    assert found == Settled(HOME)


@pytest.mark.parametrize(
    ("place", "seen"),
    [(TaskPlace.LEAVING, THERE), (TaskPlace.COMING, AT_HOME), (TaskPlace.COMING, THERE)],
)
def test_the_ledger_gets_a_movement_that_is_done(place: TaskPlace, seen: SeenTask) -> None:
    found = settle(Sales(), seen, place=place)
    node = PARTNER if place is TaskPlace.LEAVING else HOME
    assert found == Settled(node, is_ready=(place, seen) != (TaskPlace.COMING, THERE))


@pytest.mark.parametrize("is_wanted", [True, False])
def test_so2_a_seller_whose_node_runs_the_task_fails_by_its_heartbeats(is_wanted: bool) -> None:
    found = settle(Sales(), DEAD, is_wanted=is_wanted)
    assert found == Settled(HOME, EndReason.SILENT, is_news=True)
    waits = replace(THERE, waits_ms=5_001)
    assert settle(Sales(), waits, is_wanted=is_wanted) == found
    assert settle(Sales(), replace(waits, waits_ms=5_000), is_wanted=is_wanted) == Settled(PARTNER)


def test_so2_a_seller_whose_node_does_not_run_the_task_fails_by_the_ledger() -> None:
    """Another node is silent, or late, and that is not held against it."""
    elsewhere = SeenTask(HOME, is_silent=True, waits_ms=10**6)
    assert settle(Sales(), elsewhere, SILENT_MS - 1) == Settled(PARTNER)
    found = settle(Sales(), elsewhere, SILENT_MS)
    assert found == Settled(HOME, EndReason.SILENT, is_news=True, is_ended=True)


def test_so2_a_seller_does_not_fail_because_another_party_has_taken_the_task() -> None:
    assert settle(Sales(), AT_HOME, SILENT_MS, is_wanted=False) == Settled(PARTNER)


def test_so2_a_seller_to_which_a_task_goes_or_that_gives_it_back_does_not_fail() -> None:
    for place in (TaskPlace.LEAVING, TaskPlace.COMING):
        found = settle(Sales(), DEAD, SILENT_MS, place=place)
        assert found is not None
        assert found.failed is None


def test_so3_a_failure_stays_until_the_movement_is_over_or_the_task_leaves_anew() -> None:
    sales, failed = Sales(), Settled(HOME, EndReason.SILENT)
    assert settle(sales, DEAD) == replace(failed, is_news=True)
    assert settle(sales, THERE) == failed
    sales.keep([NAME])
    assert settle(sales, AT_HOME, place=TaskPlace.COMING) == failed
    sales.keep([])
    assert settle(sales, THERE) == Settled(PARTNER)
    settle(sales, DEAD)
    assert settle(sales, DEAD, place=TaskPlace.LEAVING) == Settled(PARTNER, is_ready=True)
    assert settle(sales, THERE) == Settled(PARTNER)


def test_so4_a_movement_ends_when_the_task_is_home_and_the_failure_proved() -> None:
    sales = Sales()
    settle(sales, DEAD)
    ended = {
        (seen.runs_on, at_ms): found.is_ended
        for seen in (DEAD, AT_HOME)
        for at_ms in (0, SILENT_MS - 1, SILENT_MS)
        if (found := settle(sales, seen, at_ms)) is not None
    }
    assert [place for place, is_ended in ended.items() if is_ended] == [(HOME, SILENT_MS)]


@pytest.mark.parametrize("hold_until_ms", [HOLD_MS, 2 * DEADLINE_MS])
def test_so4_without_a_proof_it_ends_after_the_deadline_and_the_minimum_hold(
    hold_until_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log's time stands still, and the seller's silence is not proved."""
    of, sales, ends_ms = ledger(), Sales(), max(hold_until_ms, DEADLINE_MS)
    monkeypatch.setattr(of, "is_silent", lambda _movement, _at_ms: False)
    sale = Sale.of(WENT, log(of), ())
    away = holding()
    away.hold_until_ms = hold_until_ms
    sales.settle(away, HOME, sale, DEAD, 0, is_wanted=True)
    found = [
        settled.is_ended
        for at_ms in (ends_ms - 1, ends_ms)
        if (settled := sales.settle(away, HOME, sale, AT_HOME, at_ms, is_wanted=True)) is not None
    ]
    assert found == [False, True]


def test_a_task_is_wanted_here_by_the_party_from_which_it_came() -> None:
    of, came = ledger(), replace(WENT)
    contracts = {"north-south": log(of)}
    assert is_wanted_here(None, {}, "south"), "its own"
    assert is_wanted_here(came, contracts, "south")
    assert not is_wanted_here(replace(came, movement_id="other"), contracts, "south")
    assert not is_wanted_here(came, {"north-south": log(None)}, "south")
    assert of.add(Placed("north-south", NAME, "south", 1, 1, "west.0"), 1) == ""
    assert not is_wanted_here(came, contracts, "south")
    assert is_wanted_here(came, contracts, "west")


def test_a_movement_that_is_over_does_not_run() -> None:
    of = ledger()
    assert running_movement(WENT, {"north-south": log(of)}) is not None
    over = Movement(NAME, MovementState.OVER, TASK)
    ended = SimpleNamespace(movements=SimpleNamespace(find=lambda _name: over))
    assert running_movement(WENT, {"north-south": log(cast("Ledger", ended))}) is None
