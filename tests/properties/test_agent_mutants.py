"""Bugs planted in what agents do beyond the rules of the market: where a stage is to run, when a
ledger is told, what is measured, who is believed. Each is found by the judge that is meant for it,
which finds nothing without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from anabranch.adapters.memory.clock import VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.adapters.signing import SigningKey
from anabranch.codec import federation_records
from anabranch.protocol.federation.contracts import AuditClauses, LoadUnit
from anabranch.protocol.federation.holdings import Place
from anabranch.protocol.federation.movements import MovementState, Why
from anabranch.protocol.federation.offers import Offer, OfferedTask
from harness.sources import everything
from harness.trading_world import CALM, RUSH, TradingWorld
from simulation.planting import Mutant, planted

SILENCE_MS = 10_000
"""More than the silence of 5 s and a move take."""


class FoundError(Exception):
    """Something is wrong, and nobody wants to know what else is."""


class Judged:
    """A world, and what was wrong in it so far."""

    def __init__(self, folder: Path, *, stops: bool = False) -> None:
        """``stops``: at the first thing that is wrong."""
        self._stops = stops
        clock = VirtualClock(1_200_000_000)
        self.world = TradingWorld(LocalEventLog(clock), clock, folder, lambda: clock.advance(50))
        self.wrong: list[str] = []

    def begin(self, **terms: Any) -> None:
        self.world.agree(**terms)
        self.world.start("north", "south")
        self.rounds(20)
        self.world.rate = RUSH

    def rounds(self, count: int, until: Callable[[], bool] = lambda: False) -> bool:
        for _ in range(count):
            if until():
                return True
            self.world.round()
            self.look()
        return until()

    def look(self) -> None:
        """FZ2: whoever the ledger says runs the stage does, or has failed."""
        place, runs_on = self.world.place(), self.world.newest()
        if not self.world.nodes["south.0"].is_alive:
            return
        if place is Place.HERE and runs_on == "south.0":
            self.wrong.append("home by the ledger, and runs at its partner's")
        has_failed = self.world.nodes["south.0"].is_stuck
        if place is Place.AWAY and runs_on == "north.0" and not has_failed:
            self.wrong.append("away by the ledger, and runs at home")
        if self._stops and self.wrong:
            raise FoundError

    def payments(self) -> Iterator[str]:
        """FV2, FV4: nobody is paid for more than the rows that it made."""
        ledger = self.world.ledger()
        made = sum(
            self.world.sources["north"].rows.get(bucket, 0)
            for bucket in self.world.nodes["south.0"].closed
        )
        due = ledger.unsettled() + sum(
            posting.amount_nano for posting in ledger.postings if "period" in posting.reason
        )
        prices = [each.price for each in ledger.movements if each.price]
        rounding = 60 * 500
        if due > max(prices, default=0) * (made * 1_000 + rounding):
            yield f"{due} is due for {made} rows at {prices}"
        if not due:
            yield "nothing is due"


def rush(judged: Judged) -> Iterator[str]:
    """Sold, and home again."""
    world = judged.world
    judged.begin()
    if not judged.rounds(300, lambda: world.place() is Place.AWAY):
        yield "not sold"
    judged.rounds(100)
    world.rate = CALM
    if not judged.rounds(300, lambda: world.place() is Place.HERE):
        yield "not home"
    judged.rounds(100)
    yield from judged.payments()


def dead(judged: Judged) -> Iterator[str]:
    """The seller dies for good while it runs the stage."""
    world = judged.world
    judged.begin()
    judged.rounds(300, lambda: world.place() is Place.AWAY)
    judged.rounds(63)
    world.nodes["south.0"].is_alive = False
    world.kill("south")
    dead_ms = world.clock.now_ms()
    judged.rounds(300, lambda: world.newest() == "north.0")
    if world.clock.now_ms() - dead_ms > SILENCE_MS:
        yield "without a runner for too long"
    judged.rounds(200, lambda: world.place() is Place.HERE)
    movements = world.movements()
    silent = [each for each in world.ledger().postings if each.reason.startswith("silent")]
    if [each.why for each in movements] != [Why.SILENT] or len(silent) != 1:
        yield f"{movements}, {world.balances()}"
    topic = world.pipelines["north"].topic_names.placement()
    moves = sum(len(chunk.values) for chunk in everything(world.log, topic))
    if moves != 2:
        yield f"{moves} moves"
    yield from judged.payments()


def dead_in_long_slots(judged: Judged) -> Iterator[str]:
    """As above, and the ledger has proof of the silence only long after the stage is home."""
    world = judged.world
    judged.begin(audit=AuditClauses(10_000, 100_000, 10_000, 10_000), min_hold_ms=60_000)
    judged.rounds(300, lambda: world.place() is Place.AWAY)
    judged.rounds(15)
    world.nodes["south.0"].is_alive = False
    world.kill("south")
    dead_ms = world.clock.now_ms()
    judged.rounds(300, lambda: world.newest() == "north.0")
    if world.clock.now_ms() - dead_ms > SILENCE_MS:
        yield "without a runner for too long"
    judged.rounds(300, lambda: world.place() is Place.HERE)
    judged.rounds(60)
    yield from judged.payments()
    if world.balances()["south"] >= 0:
        yield f"{world.movements()}, {world.balances()}"
    topic = world.pipelines["north"].topic_names.placement()
    moves = sum(len(chunk.values) for chunk in everything(world.log, topic))
    if moves != 2:
        yield f"{moves} moves"


def stuck(judged: Judged) -> Iterator[str]:
    """The seller's node is heard and makes nothing; its agent is honest."""
    world = judged.world
    judged.begin()
    judged.rounds(300, lambda: world.place() is Place.AWAY)
    judged.rounds(63)
    world.nodes["south.0"].is_stuck = True
    stuck_ms = world.clock.now_ms()
    judged.rounds(300, lambda: world.newest() == "north.0")
    if world.clock.now_ms() - stuck_ms > SILENCE_MS:
        yield "without results for too long"
    judged.rounds(200, lambda: world.place() is Place.HERE)
    judged.rounds(40)
    booked = world.contract().booked
    if world.balances()["south"] >= 0 or booked is None or booked.suspended_by != ("north",):
        yield f"{world.balances()}, {booked}"
    yield from judged.payments()


def never_ready(judged: Judged) -> Iterator[str]:
    """The seller accepts, and its node never comes."""
    judged.world.nodes["south.0"].is_alive = False
    judged.begin()
    judged.rounds(400, lambda: judged.world.place() is Place.LEAVING)
    judged.rounds(150)
    if any(each.state is not MovementState.VOID for each in judged.world.movements()):
        yield f"begun: {judged.world.movements()}"


def forged(judged: Judged) -> Iterator[str]:
    """An offer with a signature of nobody's."""
    world = judged.world
    text = world.agree()
    world.start("north", "south")
    judged.rounds(5)
    stranger = SigningKey.generate("north", "1")
    offer = Offer(text.contract_id, 1, "north", 1, 5_000, (OfferedTask(world.task, 50, 40),))
    topic = world.book.topics.offers(text.contract_id)
    world.book.write(topic, federation_records.encode(offer, stranger.sign(offer)))
    judged.rounds(20)
    if world.place("south") is not None:
        yield "a forged offer is answered"


def unmeasured(judged: Judged) -> Iterator[str]:
    """A contract in a unit that nobody measures."""
    judged.world.agree(unit=LoadUnit("core", 10_000))
    judged.world.start("north", "south")
    judged.world.rate = RUSH
    judged.rounds(250)
    if judged.world.movements():
        yield "traded in a unit that is not measured"


SCENARIOS = {
    "rush": rush,
    "dead": dead,
    "dead in long slots": dead_in_long_slots,
    "stuck": stuck,
    "never ready": never_ready,
    "forged": forged,
    "unmeasured": unmeasured,
}
_F = "protocol.federation"
MUTANTS = [
    (
        "never ready",
        Mutant("told_too_early", f"{_F}.stage_moves:is_ready", "runs_on == partner", "True", "FZ2"),
    ),
    (
        "rush",
        Mutant(
            "ended_before_home",
            f"{_F}.stage_moves:is_ready",
            "place is Place.COMING and runs_on == home",
            "place is Place.COMING",
            "FZ2",
        ),
    ),
    (
        "rush",
        Mutant(
            "left_at_its_partner",
            f"{_F}.stage_moves:wanted_node",
            "place not in _AT_PARTNER or",
            "place is Place.HERE or",
            "FZ1",
        ),
    ),
    (
        "dead in long slots",
        Mutant(
            "silence_ignored",
            f"{_F}.stage_moves:wanted_node",
            "(place is Place.AWAY and has_failed)",
            "False",
            "FZ1",
        ),
    ),
    (
        "dead in long slots",
        Mutant(
            "fled_and_back",
            "agent.stages:TradedStages._failure",
            "if name not in self._fled and holding.place is Place.AWAY and is_own:",
            "if holding.place is Place.AWAY and (self._fled.pop(name, None) is None or True):",
            "FZ1",
        ),
    ),
    (
        "stuck",
        Mutant(
            "who_is_heard_is_believed",
            f"{_F}.stage_moves:failure",
            "or waits_ms > promised_ms(contract)",
            "or waits_ms < 0",
            "FZ1",
        ),
    ),
    (
        "stuck",
        Mutant(
            "what_was_made_waits_no_less",
            f"{_F}.workload:Workload._await",
            "self._waits.append((upto, at_ms))",
            "pass",
            "FV5",
        ),
    ),
    (
        "stuck",
        Mutant(
            "never_suspended",
            f"{_F}.contract_log:AgreementLog.reason_to_suspend",
            "len(breaches) > known_breaches",
            "len(breaches) < 0",
            "FR4",
        ),
    ),
    (
        "dead in long slots",
        Mutant(
            "paid_for_more_time_than_it_ran",
            f"{_F}.workload:Workload.units",
            "max(len(own) * self._bucket_ms, ran_ms)",
            "len(own) * self._bucket_ms",
            "FV4",
        ),
    ),
    (
        "dead",
        Mutant(
            "seller_is_never_silent",
            f"{_F}.silence:Silence.is_silent",
            "> patience_ms(contract)",
            "> 10**12",
            "FI1",
        ),
    ),
    (
        "forged",
        Mutant(
            "anybody_is_believed",
            "agent.conversations:Conversations._believed",
            "self._verify(signature, message, now_ms)",
            "True",
            "FO1",
        ),
    ),
    (
        "unmeasured",
        Mutant(
            "any_unit_will_do",
            f"{_F}.stage_moves:reason_against",
            "contract.unit != ROW_PER_SECOND",
            "False",
            "FZ3",
        ),
    ),
]


def judge(folder: Path, scenario: str) -> list[str]:
    judged = Judged(folder)
    try:
        return [*SCENARIOS[scenario](judged), *judged.wrong]
    finally:
        judged.world.close()


def is_found(folder: Path, scenario: str) -> bool:
    judged = Judged(folder, stops=True)
    try:
        return any(SCENARIOS[scenario](judged))
    except FoundError:
        return True
    finally:
        judged.world.close()


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_without_a_bug_nothing_is_found(tmp_path: Path, scenario: str) -> None:
    assert judge(tmp_path, scenario) == []


@pytest.mark.parametrize(
    ("scenario", "mutant"), MUTANTS, ids=[mutant.name for _, mutant in MUTANTS]
)
def test_a_planted_bug_is_found(tmp_path: Path, scenario: str, mutant: Mutant) -> None:
    with planted(mutant):
        assert is_found(tmp_path, scenario)
