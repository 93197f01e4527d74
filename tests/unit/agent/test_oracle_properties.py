"""Agents and brokers of two participants with a movement contract, under faults drawn from a seed:
kills, dead and stuck nodes, other loads, lost writes, moves by an operator, cancellations.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from anabranch.adapters.memory.clock import VirtualClock
from anabranch.adapters.memory.log import FailingOperation, LocalEventLog
from anabranch.codec import boundary_records, control_records
from anabranch.protocol.control.records import Move
from anabranch.protocol.errors import OutcomeUnknown
from anabranch.protocol.federation.plan_switching import PlanWord, SwitchState, Word
from anabranch.protocol.log.records import EpochStarted
from harness.plan_world import BUSY, PLAN_ID, PlanWorld
from harness.sources import everything
from harness.trading_world import CALM, RUSH

FAULTS = 14


class Faults:
    """Faults of one run."""

    def __init__(self, world: PlanWorld, log: LocalEventLog, seed: int) -> None:
        self.world, self.log = world, log
        self.draw = random.Random(seed)

    def one(self) -> None:
        kinds: list[Callable[[], None]] = [
            self.rates,
            self.rates,
            self.kill,
            self.start,
            self.node,
            self.lose,
            self.move,
        ]
        self.draw.choice(kinds)()

    def rates(self) -> None:
        self.world.rate = self.draw.choice([CALM, RUSH])
        self.world.souths_rate = self.draw.choice([CALM, CALM, BUSY])

    def kill(self) -> None:
        self.world.kill(*self.draw.sample(list(self.world.agents), k=bool(self.world.agents)))

    def start(self) -> None:
        self.world.start(*({"north", "south"} - self.world.agents.keys()))

    def node(self) -> None:
        node = self.draw.choice(list(self.world.nodes.values()))
        node.is_alive = self.draw.random() < 0.6
        node.is_stuck = self.draw.random() < 0.3

    def lose(self) -> None:
        applied = self.draw.choice([0, None])
        self.log.fail_next(FailingOperation.FLUSH, applied=applied, error=OutcomeUnknown)

    def move(self) -> None:
        to = self.draw.choice(["north.0", "south.0"])
        move = Move("speeds", "0", to, self.world.clock.now_ms())
        topic = self.world.pipelines["north"].topic_names.placement()
        self.world.book.write(topic, control_records.encode(move))

    def over(self) -> None:
        self.start()
        for node in self.world.nodes.values():
            node.is_alive, node.is_stuck = True, False


@pytest.mark.parametrize("seed", range(4))
def test_any_history_ends_where_the_log_says_and_each_period_is_charged_once(
    tmp_path: Path, seed: int
) -> None:
    clock = VirtualClock(1_200_000_000)
    log = LocalEventLog(clock)
    world = PlanWorld(log, clock, tmp_path, lambda: clock.advance(50))
    faults = Faults(world, log, seed)
    world.agree_on_plans()
    world.start("north", "south")
    world.rate = RUSH
    world.lasts(8_000)
    for _ in range(FAULTS):
        faults.one()
        world.lasts(faults.draw.choice([500, 3_000, 9_000]))
    faults.over()
    if faults.draw.random() < 0.3:
        by = faults.draw.choice(["north", "south"])
        world.book.say(by, PlanWord(PLAN_ID, by, Word.CANCELLED, 0))
    world.lasts(30_000)
    try:
        check(world)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}; {world.seen()}") from error
    finally:
        world.close()


def check(world: PlanWorld) -> None:
    world.until(lambda: world.is_under(world._read().plan), "it runs where the plan has it", 800)
    ledger = world.plan_ledger()
    assert sum(ledger.balances().values()) == 0
    assert ledger.disputes == []
    assert len({each.reason for each in ledger.postings}) == len(ledger.postings)
    assert {each.payer for each in ledger.postings} <= {"north"}
    by_agreement = [each for each in ledger.switch.changes if each.why == "switched"]
    assert {each.by for each in by_agreement} <= {"north"}
    for change in by_agreement:
        assert node_at(world, change.at_ms) == ("south.0" if change.plan else "north.0")
    assert len(by_agreement) <= len({each.number for each in world.words(Word.AGREED)})
    if ledger.switch.state is SwitchState.CANCELLED:
        assert ledger.switch.plan == 0
    made = set().union(*(node.closed for node in world.nodes.values()))
    assert made >= set(range(min(made), world.sources["north"].upto - 40))


def node_at(world: PlanWorld, at_ms: int) -> str:
    """On which the query ran at this time, by its boundary log."""
    topic = world.pipelines["north"].topic_names.boundaries("speeds")
    began = [
        entry.node
        for chunk in everything(world.log, topic)
        for value, headers, time_ms in zip(
            chunk.values, chunk.headers, chunk.timestamps_ms, strict=True
        )
        if isinstance(entry := boundary_records.decode(value, headers), EpochStarted)
        and time_ms <= at_ms
    ]
    return began[-1]
