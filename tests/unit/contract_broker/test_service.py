"""The contract broker on a log in memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.adapters.key_files import VARIABLE, write_key
from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.log import FailingOperation, LocalEventLog
from anabranch.codec import federation_records
from anabranch.contract_broker.service import ContractBroker, build
from anabranch.pipeline.model import Federation
from anabranch.protocol.errors import ConfigurationError, Unavailable
from anabranch.protocol.federation.ledger import Ledger, Metered, Settled
from anabranch.protocol.federation.statements import Signature, Statement
from harness import outputs
from harness.federations import FederationWorld
from harness.markets import CONTRACT, answer, started
from harness.sources import everything

NAME = "north-south:1/north.a"
SECOND = 900 * 10 * 1_000
BEGIN_MS = 1_200_000
"""The beginning of a settlement period, number 20."""
RIPE_MS = BEGIN_MS + 120_000


class World(FederationWorld):
    """With a contract under which a movement of 10 units at 900 runs since ``BEGIN_MS``; its
    first second is measured.
    """

    def __init__(self, folder: Path) -> None:
        self.clock = VirtualClock(BEGIN_MS)
        self.local = LocalEventLog(self.clock)
        super().__init__(self.local)
        self.folder = folder
        self.say("north", CONTRACT)
        self.say("south", CONTRACT)
        begin = replace(started(answer()), signature=self.keys["south"].sign(answer()))
        self.say("north", begin)
        self.clock.advance(1_000)
        self.measured(0)

    def measured(self, second: int, units: int = 10, by: str = "south") -> None:
        slot = BEGIN_MS // 1_000 + second
        self.say(by, Metered("north-south", NAME, by, slot, units))

    def until(self, now_ms: int) -> None:
        self.clock.advance(now_ms - self.clock.now_ms())

    def broker(
        self, monkeypatch: pytest.MonkeyPatch, participant: str = "south", *, signs: bool = True
    ) -> ContractBroker:
        """Start a new process."""
        path = self.folder / f"{participant}.key"
        if not path.exists():
            write_key(self.keys[participant], path)
        monkeypatch.setenv(f"{VARIABLE}_FILE", str(path) if signs else "")
        federation = Federation(name="tolls", participant=participant, auditor="auditor")
        of = outputs.pipeline("p").model_copy(update={"federation": federation})
        made = outputs.context(
            self.log, of, self.clock, SeededEntropy(1), "contract_broker", participant
        )
        broker = build(made.settings, made)
        broker.start()
        return broker

    def settlements(self) -> list[Settled]:
        found = [
            federation_records.decode(value).statement
            for chunk in everything(self.local, self.topics.contract("north-south"))
            for value in chunk.values
        ]
        return [entry for entry in found if isinstance(entry, Settled)]

    def ledger(self) -> Ledger:
        reader = self.reader()
        reader.read_to_end()
        found = reader.contracts["north-south"].ledger
        assert found is not None
        return found


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def run(broker: ContractBroker, steps: int = 5) -> None:
    for _ in range(steps):
        broker.step()


@pytest.mark.parametrize("participant", ["north", "south", "auditor"])
def test_a_party_and_the_auditor_settle_a_period_once(
    world: World, monkeypatch: pytest.MonkeyPatch, participant: str
) -> None:
    broker = world.broker(monkeypatch, participant)
    world.until(RIPE_MS - 2_000)
    run(broker)
    assert world.settlements() == []
    world.until(RIPE_MS)
    run(broker)
    assert world.settlements() == [Settled("north-south", participant, 20, SECOND)]
    assert world.ledger().balances() == {"north": -SECOND, "south": SECOND}
    world.clock.advance(60_000)
    run(broker, 50)
    assert len(world.settlements()) == 1


def test_it_settles_what_others_do_not_pay_it_for_and_not_what_is_none_of_its_business(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.keys["east"] = world.keys["north"].generate("east", "1")
    world.publish(world.keys["east"])
    broker = world.broker(monkeypatch, "east")
    world.until(RIPE_MS)
    run(broker)
    assert world.settlements() == []
    assert broker.status.detail["contracts"] == {"north-south": "active"}


def test_it_settles_though_there_is_always_something_to_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = world.broker(monkeypatch)
    world.until(RIPE_MS)
    for _ in range(20):
        world.say("north", CONTRACT)
        broker.step()
        world.clock.advance(100)
    assert len(world.settlements()) == 1


def test_a_measurement_that_overtakes_a_settlement_makes_it_write_the_new_sum(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = world.broker(monkeypatch)
    world.until(RIPE_MS)
    send = federation_records.encode

    def overtaken(statement: Statement, signature: Signature) -> bytes:
        if isinstance(statement, Settled) and statement.due_nano == SECOND:
            world.measured(1)
        return send(statement, signature)

    monkeypatch.setattr(federation_records, "encode", overtaken)
    run(broker)
    monkeypatch.undo()
    assert [entry.due_nano for entry in world.settlements()] == [SECOND]
    assert world.ledger().settled == -1
    world.clock.advance(10_000)
    run(broker)
    assert [entry.due_nano for entry in world.settlements()] == [SECOND, 2 * SECOND]
    assert world.ledger().balances() == {"north": -2 * SECOND, "south": 2 * SECOND}


def test_a_broker_whose_clock_is_ahead_settles_when_it_is_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = world.broker(monkeypatch)
    log_clock = VirtualClock(RIPE_MS - 15_000)
    world.until(RIPE_MS)
    world.local.clock = log_clock
    run(broker)
    assert world.ledger().settled == -1
    assert broker.status.detail["ignored"] == {"too early": 1}
    log_clock.advance(30_000)
    world.clock.advance(10_000)
    run(broker)
    assert world.ledger().balances() == {"north": -SECOND, "south": SECOND}


def test_it_settles_all_that_came_while_it_was_away(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for second in (61, 130):
        world.until(BEGIN_MS + 1_000 * (second + 1))
        world.measured(second)
    world.until(RIPE_MS + 1_000_000)
    run(world.broker(monkeypatch), 10)
    assert [entry.period for entry in world.settlements()] == [20, 21, 22]
    assert world.ledger().balances() == {"north": -3 * SECOND, "south": 3 * SECOND}


def test_without_a_key_it_looks_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = world.broker(monkeypatch, signs=False)
    world.until(RIPE_MS)
    run(broker)
    assert world.settlements() == []
    assert broker.status.detail["signs_as"] is None
    assert broker.status.detail["contracts"] == {"north-south": "active"}


def test_what_is_forged_or_unreadable_is_counted_and_shown(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = world.broker(monkeypatch)
    entry = Settled("north-south", "north", 20, 0)
    world.until(RIPE_MS)
    world.forge(entry, world.keys["south"].sign(entry))
    world.write(world.topics.contract("north-south"), b"nonsense")
    run(broker)
    ignored = {"not signed by whom it must be": 1, "not a record of this log": 1}
    assert broker.status.detail["ignored"] == ignored
    counted = Counter(
        {
            sample.labels["reason"]: int(sample.value)
            for metric in broker._context.registry.collect()
            for sample in metric.samples
            if sample.name == "anabranch_ignored_contract_records_total"
        }
    )
    assert counted == ignored
    assert world.ledger().balances() == {"north": -SECOND, "south": SECOND}


def test_a_log_that_cannot_be_asked_for_new_contracts_is_asked_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = world.broker(monkeypatch)
    admin = type(world.local.admin())

    def silent(*_: object) -> list[str]:
        raise Unavailable("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(admin, "named", silent)
        broker.step()
        assert broker.status.waiting_for == "the broker: no answer"
    world.clock.advance(5_000)
    broker.step()
    assert broker.status.waiting_for is None


def test_keys_that_do_not_answer_for_a_moment_end_no_broker(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = world.broker(monkeypatch)
    broker._catalog = None  # it reads the keys, too
    world.until(RIPE_MS)
    world.measured(61)
    world.local.fail_next(
        FailingOperation.OFFSETS, error=Unavailable, topic=world.topics.keys("north")
    )
    broker.step()
    assert str(broker.status.waiting_for).startswith("the broker: ")
    run(broker)
    assert broker.status.waiting_for is None
    assert [entry.due_nano for entry in world.settlements()] == [SECOND]


def test_a_pipeline_without_a_federation_has_no_broker() -> None:
    clock = VirtualClock(0)
    of = outputs.pipeline("p")
    made = outputs.context(
        LocalEventLog(clock), of, clock, SeededEntropy(1), "contract_broker", "south"
    )
    assert ("contract_broker", "south") not in of.processes()
    with pytest.raises(ConfigurationError, match="there is no federation"):
        build(made.settings, made)


def test_a_key_of_somebody_else_is_rejected(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.keys["south"] = world.keys["north"]
    with pytest.raises(ConfigurationError, match=r"a key of north, and .* this is south"):
        world.broker(monkeypatch, "south")
