"""A movement contract on a real broker: the agents of both sides are processes, and are killed at
their crash points. Ingestion and nodes are stand-ins, which follow the log of moves as real ones
do; so are the brokers of contracts, which are their own in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.key_files import VARIABLE
from anabranch.adapters.system.clock import SystemClock
from anabranch.protocol.federation.plan_switching import Word
from harness.plan_world import BUSY, PlanWorld
from harness.service_processes import ModuleProcess, service
from harness.trading_world import CALM, RUSH
from harness.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.nightly]

DEADLINE_S = 120


class World(PlanWorld):
    """Its agents are processes."""

    def process(
        self, participant: str, monkeypatch: pytest.MonkeyPatch, kafka: str, crash_point: str = ""
    ) -> ModuleProcess:
        monkeypatch.setenv(f"{VARIABLE}_FILE", str(self.folder / f"{participant}.key"))
        file = self.folder / f"{participant}.yaml"
        state = self.folder / participant
        return service("agent", participant, file, kafka, state, crash_point=crash_point)

    def wait(self, holds: Callable[[], bool], what: str) -> None:
        def is_seen() -> bool:
            self.round()
            return holds()

        try:
            wait_until(is_seen, DEADLINE_S, what)
        except AssertionError as error:
            logs = [self.folder / name / "agent.log" for name in ("north", "south")]
            texts = [log.read_text()[-2_000:] for log in logs if log.exists()]
            raise AssertionError("\n".join([str(error), self.seen(), *texts])) from error


@pytest.fixture
def world(kafka: str, topic_prefix: str, tmp_path: Path) -> Iterator[World]:
    clock = SystemClock()
    made = World(
        KafkaEventLog(kafka),
        clock,
        tmp_path,
        lambda: clock.sleep_ms(20),
        federation=topic_prefix,
        prefix=f"{topic_prefix}-",
    )
    made.agree_on_plans(deadline_ms=30_000)
    for name in ("north", "south"):
        made.start_broker(name)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("who", "point"),
    [
        ("", ""),
        ("north", "agent.entry_due"),
        ("north", "agent.entry_written"),
        ("north", "agent.move_due"),
        ("north", "agent.move_written"),
        ("south", "agent.entry_written"),
    ],
)
def test_a_rush_switches_the_plan_and_a_busy_sender_switches_it_back_whoever_is_killed(
    world: World, kafka: str, monkeypatch: pytest.MonkeyPatch, who: str, point: str
) -> None:
    with ExitStack() as all_of_it:
        for name in [name for name in ("north", "south") if name != who]:
            all_of_it.enter_context(world.process(name, monkeypatch, kafka))
        world.rate = RUSH
        if who:
            with world.process(who, monkeypatch, kafka, point) as killed:
                world.wait(lambda: killed.process.poll() is not None, "it is killed")
                killed.wait_killed()
            all_of_it.enter_context(world.process(who, monkeypatch, kafka))
        world.wait(lambda: world.is_under(1), "south runs the query")
        in_a_rush = len(world.plan_ledger().postings)
        world.wait(lambda: len(world.plan_ledger().postings) > in_a_rush + 3, "it is paid")
        world.rate, world.souths_rate = CALM, BUSY
        world.wait(lambda: world.is_under(0), "it is at home again")
    ledger = world.plan_ledger()
    assert [each.plan for each in ledger.switch.changes] == [0, 1, 0]
    assert {each.why for each in ledger.switch.changes[1:]} == {"switched"}
    assert sum(ledger.balances().values()) == 0
    assert ledger.balances()["south"] > 0
    assert ledger.disputes == []
    assert len({each.reason for each in ledger.postings}) == len(ledger.postings)
    assert world.words(Word.FELL_BACK, Word.FAILED) == []
