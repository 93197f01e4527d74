"""Agents of two participants as processes on a real broker: a stage is sold in a rush and comes
home, whoever is killed, at each crash point. Ingestion and nodes are stand-ins, which follow the
log of moves as real ones do; so are the brokers of contracts, which are their own in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.key_files import VARIABLE
from anabranch.adapters.system.clock import SystemClock
from anabranch.protocol.federation.movements import Movement, MovementState, Why
from harness.service_processes import ModuleProcess, service
from harness.trading_world import CALM, RUSH, TradingWorld
from harness.waiting import wait_until

pytestmark = pytest.mark.integration

DEADLINE_S = 90


class World(TradingWorld):
    """Its agents and brokers are processes."""

    def process(
        self, participant: str, monkeypatch: pytest.MonkeyPatch, kafka: str, crash_point: str = ""
    ) -> ModuleProcess:
        monkeypatch.setenv(f"{VARIABLE}_FILE", str(self.folder / f"{participant}.key"))
        return service(
            "agent",
            participant,
            self.folder / f"{participant}.yaml",
            kafka,
            self.folder / participant,
            crash_point=crash_point,
        )

    def wait(self, holds: Callable[[], bool], what: str) -> None:
        def seen() -> bool:
            self.round()
            return holds()

        try:
            wait_until(seen, DEADLINE_S, what)
        except AssertionError as error:
            raise AssertionError(f"{error}; {self.state()}") from error

    def state(self) -> str:
        logs = [self.folder / name / "agent.log" for name in ("north", "south")]
        texts = [log.read_text()[-2_000:] for log in logs if log.exists()]
        ledger = self.ledger()
        seen = f"{ledger.unsettled()} unsettled, {ledger.postings}, {self.book_ignored()}"
        return "\n".join([f"runs on {self.runs_on()}, {self.movements()}", seen, *texts])

    def book_ignored(self) -> dict[str, int]:
        with closing(self.book.reader()) as reader:
            reader.read_to_end()
            return dict(reader.ignored)

    def running(self) -> list[Movement]:
        return [each for each in self.movements() if each.state is MovementState.RUNNING]


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
    made.agree()
    for name in ("north", "south"):
        made.start_broker(name)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("who", "point"),
    [
        pytest.param("", "", marks=pytest.mark.nightly),
        pytest.param("north", "agent.move_due", marks=pytest.mark.nightly),
        ("north", "agent.move_written"),
        pytest.param("north", "agent.entry_due", marks=pytest.mark.nightly),
        pytest.param("north", "agent.entry_written", marks=pytest.mark.nightly),
        ("south", "agent.entry_written"),
    ],
)
def test_a_rush_sells_the_stage_and_calm_brings_it_home_whoever_is_killed(
    world: World, kafka: str, monkeypatch: pytest.MonkeyPatch, who: str, point: str
) -> None:
    with ExitStack() as all_of_it:
        others = [name for name in ("north", "south") if name != who]
        for name in others:
            all_of_it.enter_context(world.process(name, monkeypatch, kafka))
        world.rate = RUSH
        if who:
            with world.process(who, monkeypatch, kafka, point) as killed:
                world.wait(lambda: killed.process.poll() is not None, "it is killed")
                killed.wait_killed()
            all_of_it.enter_context(world.process(who, monkeypatch, kafka))
        world.wait(lambda: bool(world.running()) and world.runs_on() == "south.0", "it is sold")
        world.wait(
            lambda: any(posting.amount_nano for posting in world.ledger().postings), "it is paid"
        )
        world.rate = CALM
        world.wait(lambda: not world.running() and world.runs_on() == "north.0", "it is home")
    over = [each for each in world.movements() if each.state is MovementState.OVER]
    assert {each.why for each in over} == {Why.RECALLED}
    assert all(15 <= each.price <= 40 for each in over)
    balances = world.balances()
    assert sum(balances.values()) == 0
    assert balances["south"] > 0
    assert world.ledger().disputes == []
