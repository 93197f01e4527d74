"""The contract broker as a process on a real broker: killed between any two steps, and at each of
its crash points, beside records that are forged, unsigned and replayed. What is due is settled
once.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.key_files import VARIABLE, write_key
from anabranch.adapters.signing import SigningKey
from anabranch.ports import TopicPartition
from anabranch.protocol.federation.contract_log import LoadLog
from anabranch.protocol.federation.contracts import AuditClauses
from anabranch.protocol.federation.ledger import Metered, Posting
from anabranch.protocol.federation.movements import Ended, EndReason, Movement
from harness.federations import FederationWorld
from harness.markets import DAY_MS, answer, contract, started
from harness.service_processes import ModuleProcess, service
from harness.sources import REPORT
from harness.waiting import wait_until

pytestmark = pytest.mark.integration

DEADLINE_S = 60
METER_MS, SETTLE_MS = 100, 500
NAME = "north-south:1/north.a"

FILE = """
pipeline: {name}
sources:
  reports:
    topics: [{name}.reports]
    record: report.avsc
    event_time: {{field: time, unit: ms}}
stages:
  totals: {{participant: north, reads: [reports], transform: "functions:same"}}
outputs:
  out: {{stage: totals, corrected: {{topic: {name}.out}}}}
federation: {{name: {name}, participant: auditor, auditor: auditor}}
"""


def _is_past(time_ms: int) -> bool:
    return time.time() * 1_000 > time_ms


class World(FederationWorld):
    """A contract that is settled every half second, and its broker, which is the auditor's."""

    def __init__(
        self, kafka: str, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        super().__init__(KafkaEventLog(kafka), name)
        (folder / "functions.py").write_text("def same(reports):\n    return reports\n")
        (folder / "report.avsc").write_text(json.dumps(REPORT.avro))
        self.path = folder / "pipeline.yaml"
        self.kafka = kafka
        self.folder = folder
        self.path.write_text(FILE.format(name=name))
        write_key(self.keys["auditor"], folder / "auditor.key")
        monkeypatch.setenv(f"{VARIABLE}_FILE", str(folder / "auditor.key"))
        self.text = contract(
            valid_to_ms=int(time.time() * 1_000) + DAY_MS,
            min_hold_ms=DAY_MS,
            audit=AuditClauses(METER_MS, 50_000, 10_000, SETTLE_MS),
        )

    def run(self, crash_point: str = "") -> ModuleProcess:
        return service(
            "contract_broker",
            "auditor",
            self.path,
            self.kafka,
            self.folder / "state",
            crash_point=crash_point,
        )

    def runs(self) -> None:
        """Run a broker until it has read everything, and kill it."""
        before = self.starts()
        with self.run() as process:
            wait_until(
                lambda: process.alive() and self.starts() > before,
                DEADLINE_S,
                lambda: f"the broker:\n{process.log()}",
            )

    def starts(self) -> int:
        log = self.folder / "state" / "contract_broker.log"
        return log.read_text().count('"book_read"') if log.exists() else 0

    def until(self, condition: Callable[[], bool]) -> None:
        with self.run() as process:
            wait_until(
                lambda: process.alive() and condition(),
                DEADLINE_S,
                lambda: f"the broker goes on:\n{process.log()}",
            )

    def agree(self) -> None:
        self.say("north", self.text)
        self.say("south", self.text)

    def begin(self) -> None:
        self.say("north", replace(started(answer()), signature=self.keys["south"].sign(answer())))

    def movement(self) -> Movement:
        ledger = self.found().ledger
        assert ledger is not None
        return ledger.movements[NAME]

    def measure(self, count: int = 3) -> None:
        """Write both sides' measurements of the movement's first whole slots, once they are
        over.
        """
        first = self.movement().started_ms // METER_MS + 1
        for slot in range(first, first + count):
            over_ms = (slot + 1) * METER_MS + 10  # the broker's clock and ours are one machine's
            wait_until(partial(_is_past, over_ms), 5, "the slot is over")
            for side in ("north", "south"):
                self.say(side, Metered("north-south", NAME, side, slot, 10))

    def found(self) -> LoadLog:
        reader = self.reader()
        reader.read_to_end()
        reader.close()
        return reader.contracts["north-south"]

    def postings(self) -> list[Posting]:
        ledger = self.found().ledger
        return [] if ledger is None else ledger.postings

    def paid(self) -> int:
        return sum(posting.amount_nano for posting in self.postings())

    def settlements_written(self) -> int:
        """Return the number of settlements, whether they count or not."""
        found = self.found()
        periods = [each for each in self.postings() if each.reason.startswith("period")]
        return len(periods) + found.ignored["settled already"]


@pytest.fixture
def world(kafka: str, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(kafka, topic_prefix, tmp_path, monkeypatch)


def test_it_is_killed_between_any_two_steps_and_what_is_due_is_settled_once(world: World) -> None:
    stranger = SigningKey.generate("south", "1")
    topic = world.topics.contract("north-south")

    def spoil() -> None:
        """Forged, unsigned, replayed, unreadable."""
        slot = world.movement().started_ms // METER_MS + 1
        for key, by in ((stranger, "south"), (world.keys["south"], "north")):
            entry = Metered("north-south", NAME, by, slot, 10**6)
            world.forge(entry, key.sign(entry))
        world.begin()
        world.say("north", world.text)
        world.write(topic, b"nonsense", None)

    def end() -> None:
        world.say("north", Ended("north-south", NAME, "north", 0, EndReason.RECALLED))

    for step in (world.agree, world.begin, spoil, world.measure, spoil, end):
        step()
        world.runs()
    due = 3 * METER_MS * 900 * 10
    penalty = 5_000_000 * 1_000
    world.until(lambda: world.paid() == due + penalty)
    for _ in range(2):
        world.runs()
    found = world.found()
    assert found.ledger is not None
    assert found.ledger.balances() == {"north": -due - penalty, "south": due + penalty}
    assert world.settlements_written() == len(world.postings()) - 1, "none a second time"
    assert found.ignored == {
        "not signed by whom it must be": 4,
        "the movement is running": 2,
        "known already": 2,
    }


@pytest.mark.parametrize("point", ["ledger.entry_due", "ledger.entry_written"])
def test_it_is_killed_at_a_crash_point_and_settles_once(world: World, point: str) -> None:
    world.agree()
    world.begin()
    world.measure(1)
    # Once it has written, a second process has nothing to settle, and no point to be killed at.
    for _ in range(2 if point == "ledger.entry_due" else 1):
        with world.run(point) as process:
            process.wait_killed()
    due = METER_MS * 900 * 10
    world.until(lambda: world.paid() == due)
    world.runs()
    assert world.settlements_written() == 1
    reader = world.log.reader()
    where = reader.offsets(TopicPartition(world.topics.contract("north-south"), 0))
    reader.close()
    assert where == (0, 6), "two signatures, a start, two measurements, one settlement"
