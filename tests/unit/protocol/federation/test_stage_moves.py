"""Stages as tasks: under which contracts they move, and where they belong."""

from __future__ import annotations

import pytest

from anabranch.protocol.federation.contracts import LoadUnit
from anabranch.protocol.federation.holdings import Place
from anabranch.protocol.federation.stage_moves import (
    is_ready,
    node_of,
    reason_against,
    stage_of,
    task_of,
    wanted_node,
)
from anabranch.protocol.federation.workload import ROW_PER_SECOND
from harness.markets import contract

TEXT = contract(unit=ROW_PER_SECOND, tasks=("north.a", "north.b"))


def test_names() -> None:
    assert task_of("north", "a") == "north.a"
    assert stage_of("north.a") == ("north", "a")
    assert node_of("south") == "south.0"


@pytest.mark.parametrize("place", list(Place))
@pytest.mark.parametrize("is_silent", [False, True])
def test_a_stage_is_at_its_partner_only_while_that_one_is_to_run_it(
    place: Place, is_silent: bool
) -> None:
    wanted = wanted_node(place, "north.0", "south.0", is_silent=is_silent)
    away = place is Place.LEAVING or (place is Place.AWAY and not is_silent)
    assert wanted == ("south.0" if away else "north.0")


@pytest.mark.parametrize("place", list(Place))
@pytest.mark.parametrize("runs_on", ["north.0", "south.0", "east.0", ""])
def test_the_ledger_is_told_when_the_other_side_runs_it(place: Place, runs_on: str) -> None:
    expected = (place, runs_on) in {(Place.LEAVING, "south.0"), (Place.COMING, "north.0")}
    assert is_ready(place, runs_on, "north.0", "south.0") is expected


def test_a_buyer_trades_what_its_partner_may_run() -> None:
    allowed = {"south": ["north.a", "north.b", "north.c"]}
    assert reason_against(TEXT, "north", allowed, ()) == ""
    assert "may not run north.b" in reason_against(TEXT, "north", {"south": ["north.a"]}, ())
    assert "may not run north.a, north.b" in reason_against(TEXT, "north", {}, TEXT.tasks)


def test_a_seller_trades_what_it_has_a_file_of() -> None:
    assert reason_against(TEXT, "south", {}, TEXT.tasks) == ""
    assert "no file here has north.b" in reason_against(TEXT, "south", {}, ["north.a"])


@pytest.mark.parametrize("unit", [LoadUnit("core", 1_000_000), LoadUnit("row/s", 10_000)])
def test_nobody_trades_in_a_unit_that_is_not_measured(unit: LoadUnit) -> None:
    text = contract(unit=unit, tasks=("north.a",))
    assert "row/s" in reason_against(text, "north", {"south": ["north.a"]}, ())
