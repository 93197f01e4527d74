"""Stages as tasks: under which contracts they move, and where they belong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.protocol.federation.audit import Fault, Finding, commitment
from anabranch.protocol.federation.contracts import LoadUnit, MoveClauses
from anabranch.protocol.federation.holdings import TaskPlace
from anabranch.protocol.federation.ledger import (
    DISPUTES_MAX,
    AuditCommitted,
    Audited,
    Ledger,
    LedgerEntry,
    Metered,
)
from anabranch.protocol.federation.movements import (
    NODES_MAX,
    EndReason,
    Movement,
    MovementState,
    Placed,
)
from anabranch.protocol.federation.stage_moves import (
    failure,
    is_ready,
    may_end,
    named_node,
    node_of,
    nodes_of,
    partners_nodes,
    placing,
    reason_against,
    stage_of,
    task_of,
    unexplained,
    wanted_node,
)
from anabranch.protocol.federation.workload import ROW_PER_SECOND
from anabranch.protocol.stage.owners_checkpoint import Transfer
from harness.markets import answer, contract, started, verify

REBUILD = MoveClauses(Transfer.REBUILD, 30_000)
TEXT = contract(unit=ROW_PER_SECOND, tasks=("north.a", "north.b"), moving=REBUILD)
NAME = "north-south:1/north.a"
PROMISED_MS = 3_000 + 2 * 1_000
"""Time that the seller has promised, and two slots, in ms."""


def test_names() -> None:
    assert task_of("north", "a") == "north.a"
    assert stage_of("north.a") == ("north", "a")
    assert node_of("south") == "south.0"


@pytest.mark.parametrize("place", list(TaskPlace))
@pytest.mark.parametrize("has_failed", [False, True])
def test_a_stage_is_at_its_partner_only_while_that_one_is_to_run_it(
    place: TaskPlace, has_failed: bool
) -> None:
    wanted = wanted_node(place, "north.0", "south.0", has_failed=has_failed)
    away = place is TaskPlace.LEAVING or (place is TaskPlace.AWAY and not has_failed)
    assert wanted == ("south.0" if away else "north.0")


@pytest.mark.parametrize("place", list(TaskPlace))
@pytest.mark.parametrize("runs_on", ["north.0", "south.0", "east.0", ""])
def test_the_ledger_gets_it_when_the_other_side_runs_it(place: TaskPlace, runs_on: str) -> None:
    expected = (place, runs_on) in {(TaskPlace.LEAVING, "south.0"), (TaskPlace.COMING, "north.0")}
    assert is_ready(place, runs_on, "north.0", "south.0") is expected


def moved(*nodes: str, state: MovementState = MovementState.RUNNING) -> Movement:
    """Its seller has named these, one after the other."""
    node, several = (nodes or ("",))[-1], tuple(dict.fromkeys(nodes))
    return Movement(NAME, state, "north.a", nodes=several, node=node, placed=len(nodes))


ALLOWED = partners_nodes({"south": ["a"], "west": ["a", "b"], "east": ["b"]}, "a")


def test_the_owners_file_says_whose_nodes_may_run_a_stage() -> None:
    assert sorted(ALLOWED) == ["south.0", "west.0"]


def test_fz1_a_task_runs_where_its_seller_says_if_the_file_lets_it() -> None:
    assert named_node(None, "south", ALLOWED) == "south.0"
    assert named_node(moved(), "south", ALLOWED) == "south.0"
    assert named_node(moved("west.0"), "south", ALLOWED) == "west.0"
    assert named_node(moved("west.0", "east.0"), "south", ALLOWED) == "south.0"
    assert named_node(moved("north.0"), "south", ALLOWED) == "south.0"


def test_fz4_nodes_of_partners_count_that_its_seller_has_named() -> None:
    assert nodes_of(moved(), "south", ALLOWED) == {"south.0"}
    named = moved("west.0", "east.0", "north.0", "south.0")
    assert nodes_of(named, "south", ALLOWED) == {"south.0", "west.0"}
    assert nodes_of(moved(), "south", ()) == {"south.0"}


def test_who_has_sold_on_what_came_says_where_it_runs() -> None:
    def word(movement: Movement, wanted: str) -> Placed | None:
        return placing(movement, "north-south", "south", wanted, 7)

    assert word(moved(), "south.0") is None
    assert word(moved(), "west.0") == Placed("north-south", NAME, "south", 7, 1, "west.0")
    assert word(moved("west.0"), "west.0") is None
    assert word(moved("west.0"), "south.0") == Placed("north-south", NAME, "south", 7, 2, "south.0")
    assert word(moved("west.0", state=MovementState.OVER), "south.0") is None
    full = moved(*(f"west.{number}" for number in range(NODES_MAX)))
    assert word(full, "south.0") is None, "it would not count"
    assert word(full, "west.1") is not None


def ledger(*entries: LedgerEntry, at_ms: int = 0) -> Ledger:
    """With a movement that began at 0."""
    made = Ledger(contract(), verify, "auditor")
    assert made.add(started(answer()), 0) == ""
    for entry in entries:
        assert made.add(entry, at_ms) == ""
    return made


def test_a_seller_has_failed_that_is_not_heard_or_makes_nothing_for_too_long() -> None:
    of = ledger()
    movement = of.movements[NAME]
    assert failure(of, movement, is_heard=True, waits_ms=PROMISED_MS) is None
    assert failure(of, movement, is_heard=False, waits_ms=0) is EndReason.SILENT
    assert failure(of, movement, is_heard=True, waits_ms=PROMISED_MS + 1) is EndReason.SILENT
    assert not may_end(of, movement, EndReason.SILENT, 7_000)
    assert may_end(of, movement, EndReason.SILENT, 7_001)


def test_a_seller_has_failed_whom_the_ledger_convicts() -> None:
    number, sample = bytes(16), replace(contract().audit, sample_ppm=1_000_000)
    fixed = AuditCommitted("north-south", NAME, "auditor", commitment(number), 100)
    found = Audited("north-south", NAME, "auditor", number, (Finding(3, Fault.WRONG_RESULT),))
    of = Ledger(contract(audit=sample), verify, "auditor")
    for entry, at_ms in ((started(answer()), 0), (fixed, 0), (found, 300)):
        assert of.add(entry, at_ms) == ""
    assert failure(of, of.movements[NAME], is_heard=True, waits_ms=0) is EndReason.WRONG
    assert may_end(of, of.movements[NAME], EndReason.WRONG, 0)
    claims = [
        Metered("north-south", NAME, by, slot, units)
        for slot in range(DISPUTES_MAX)
        for by, units in (("north", 10), ("south", 20))
    ]
    of = ledger(*claims[:-1], at_ms=100_000)
    assert failure(of, of.movements[NAME], is_heard=True, waits_ms=0) is None
    of = ledger(*claims, at_ms=100_000)
    assert failure(of, of.movements[NAME], is_heard=True, waits_ms=0) is EndReason.WRONG
    assert not may_end(of, of.movements[NAME], EndReason.WRONG, 0), (
        "it is one word against the other"
    )


def test_a_buyer_trades_what_its_partner_may_run() -> None:
    allowed = {"south": ["north.a", "north.b", "north.c"]}
    assert reason_against(TEXT, "north", allowed, ()) == ""
    assert "may not run north.b" in reason_against(TEXT, "north", {"south": ["north.a"]}, ())
    assert "may not run north.a, north.b" in reason_against(TEXT, "north", {}, TEXT.tasks)


def test_fz3_what_readers_would_ignore_is_not_sold() -> None:
    allowed = {"south": ["north.a", "north.b"]}
    found = reason_against(TEXT, "north", allowed, (), [("south", "north.b"), ("west", "north.a")])
    assert "ignore what south signs as north.b: run anabranch keys signers" in found
    assert reason_against(TEXT, "north", allowed, (), [("west", "north.a")]) == ""


def test_fz3_the_contract_says_as_the_file_how_state_travels() -> None:
    allowed, checkpoint = {"south": TEXT.tasks}, replace(TEXT.moving, transfer=Transfer.CHECKPOINT)
    by_checkpoint = replace(TEXT, moving=checkpoint)
    assert reason_against(by_checkpoint, "north", allowed, (), (), TEXT.tasks) == ""
    assert reason_against(by_checkpoint, "south", {}, ()).startswith("no file here has"), "first"
    assert reason_against(by_checkpoint, "south", {}, TEXT.tasks, (), ["north.a"]) == (
        "it says moving.transfer: checkpoint, and the pipeline file here says transfer: rebuild of"
        " north.b"
    )
    assert reason_against(TEXT, "north", allowed, (), (), ["north.b", "north.z"]) == (
        "it says moving.transfer: rebuild, and the pipeline file here says transfer: checkpoint of"
        " north.b"
    )


def test_fz5_a_task_stays_where_it_is_while_what_is_left_out_may_say_why() -> None:
    at_partners, named = ["north.b", "north.a", "north.c"], {"north.c", "north.d"}
    assert unexplained(at_partners, named, ["tolls.contract.x"]) == ["north.a", "north.b"]
    assert unexplained(at_partners, named, []) == []


def test_a_seller_trades_what_it_has_a_file_of() -> None:
    assert reason_against(TEXT, "south", {}, TEXT.tasks) == ""
    assert "no file here has north.b" in reason_against(TEXT, "south", {}, ["north.a"])


@pytest.mark.parametrize("unit", [LoadUnit("core", 1_000_000), LoadUnit("row/s", 10_000)])
def test_nobody_trades_in_a_unit_that_is_not_measured(unit: LoadUnit) -> None:
    text = contract(unit=unit, tasks=("north.a",))
    assert "row/s" in reason_against(text, "north", {"south": ["north.a"]}, ())
