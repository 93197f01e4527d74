"""A stage is sold from hand to hand and comes home the same way, on real Spark and a real broker:
three owners, each with an agent and a contract broker, and three nodes for the stage.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.federation.tables import ledgers_of, movements_of, read_book
from anabranch.pipeline.file import load
from anabranch.protocol.errors import Unavailable
from anabranch.streams.boundary_reader import BoundaryReader
from demo.comparing import Delivered, compare
from demo.consuming import delivered, read_whole
from harness.waiting import wait_until
from moves import judgement
from moves.deployment import BROKER, FILES, NORTH, SOUTH, Layout, Owners
from moves.traffic import WINDOW_MS, Traffic, answer

pytestmark = [pytest.mark.integration, pytest.mark.nightly]

WEST: Final = "west"
ROOT: Final = Path(__file__).parents[2]
CALM, RUSH = 1, 5
LOAD_OF_OWN: Final = 7
"""Records every 20 ms: 50, 250 and 350 in a second."""
CAPACITY: Final = {NORTH: 300, SOUTH: 450, WEST: 900}
"""North cannot bear the rush; south can, if it has little of its own."""
STEP_S: Final = 300
PRICES: Final = (6, 20)
TASK: Final = "north.speeds"


def layout(folder: Path) -> Layout:
    """Three owners: north's file lets south and west run its stage, of which each has a file."""
    folder.mkdir()
    for name in ("stages.py", "terms.yaml"):
        shutil.copy(FILES / name, folder / name)
    texts = {name: (FILES / f"{name}.yaml").read_text() for name in (NORTH, SOUTH)}
    texts[WEST] = texts[SOUTH].replace("south", WEST)
    texts[NORTH] = texts[NORTH].replace("{south: [speeds]}", "{south: [speeds], west: [speeds]}")
    for name, text in texts.items():
        before = "450" if name == NORTH else "1500"
        changed = text.replace(f"capacity: {before}", f"capacity: {CAPACITY[name]}")
        changed = changed.replace("../../../examples", str(ROOT / "examples"))
        (folder / f"{name}.yaml").write_text(changed)
    services = ("ingestion", "processing/north.0", "delivery", "agent", "contract_broker")
    runs = {
        BROKER: (NORTH, "", ("consistency_manager",)),
        NORTH: (NORTH, NORTH, services),
        SOUTH: (SOUTH, SOUTH, ("ingestion", "agent", "contract_broker")),
        WEST: (WEST, WEST, ("agent", "contract_broker")),
        "south-for-north": (NORTH, SOUTH, ("processing/south.0",)),
        "west-for-north": (NORTH, WEST, ("processing/west.0",)),
    }
    return Layout(folder, runs, ((NORTH, SOUTH), (SOUTH, WEST)))


class World:
    """All of it, with the load of north and of south."""

    def __init__(self, folder: Path) -> None:
        made = layout(folder / "files")
        self.pipeline = load(made.files / "north.yaml")
        self.owners = Owners(folder, made)
        self.owners.start()
        kafka = self.owners.kafka
        self.log = KafkaEventLog(kafka)
        self.traffic = Traffic(kafka, 7, self.pipeline.partitions)
        self.own = Traffic(kafka, 8, 1, "south.sightings")
        self.traffic.start()
        self.own.start()
        names = self.pipeline.topic_names
        self.boundaries = BoundaryReader(self.log, names.boundaries("speeds"), ["0"])
        self.begun_s = time.monotonic()

    def runs_on(self) -> str:
        try:
            self.boundaries.poll(100)
        except Unavailable:
            return ""
        return self.boundaries.log_state.node("0")

    def book(self) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        assert self.pipeline.federation is not None
        with closing(read_book(self.log, self.pipeline.federation)) as book:
            return movements_of(book), ledgers_of(book)

    def running(self) -> dict[str, str]:
        """Contract -> the node that is named, of movements that run."""
        return {row["contract"]: row["node"] for row in self.book()[0] if row["to"] is None}

    def until(self, node: str, running: dict[str, str], what: str) -> None:
        """Wait until the stage runs on ``node``, and the ledgers say so."""

        def there() -> bool:
            return self.runs_on() == node and self.running() == running

        try:
            wait_until(there, STEP_S, what, every_s=0.3)
        except AssertionError as error:
            raise AssertionError(f"{error}: runs on {self.runs_on()}; {self.book()}") from error
        print(f"{time.monotonic() - self.begun_s:6.1f} s  {what}: {node}, {running}")

    def close(self) -> None:
        for each in (self.traffic, self.own):
            if each.is_alive():
                each.stop()
        self.boundaries.close()
        self.owners.stop()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def test_a_stage_is_sold_on_and_comes_home(world: World) -> None:
    world.until("north.0", {}, "north runs its stage")
    world.owners.sign()
    world.traffic.at_once = RUSH
    world.until("south.0", {"north-south": "south.0"}, "north sells it")
    world.own.at_once = LOAD_OF_OWN
    both = {"north-south": "west.0", "south-west": "west.0"}
    world.until("west.0", both, "south sells it on")
    paid(world, lambda balances: balances.get(WEST, 0) > 0, "west is paid")
    world.own.at_once = CALM
    world.until("south.0", {"north-south": "south.0"}, "south has it back")
    world.traffic.at_once = CALM
    world.until("north.0", {}, "north has it back")
    last_ms = time.time_ns() // 1_000_000 // WINDOW_MS * WINDOW_MS
    results = world_results(world, last_ms)
    sent = world.traffic.stop()
    world.own.stop()
    of = world.pipeline
    wanted = answer(sent, last_ms, of.bucket_ms, of.partitions)
    found = compare(wanted, (each for each in results if each.result.event_time_ms <= last_ms))
    assert judgement.wrong_results(found) == []
    movements, ledger = world.book()
    assert {row["why"] for row in movements} == {"recalled"}
    assert {(row["task"], row["contract"]) for row in movements} == {
        (TASK, "north-south"),
        (TASK, "south-west"),
    }
    assert all(PRICES[0] <= row["price_micro"] <= PRICES[1] for row in movements)
    balances = ledger["balances_nano"]
    assert ledger["sum_nano"] == sum(balances.values()) == 0
    assert balances[NORTH] < 0 < balances[WEST]
    assert [row["disputes"] for row in ledger["contracts"]] == [0, 0]
    print(f"{len(sent)} sightings, {found}; balances {balances}; {movements}")


def paid(world: World, holds: Callable[[dict[str, int]], bool], what: str) -> None:
    wait_until(lambda: holds(world.book()[1]["balances_nano"]), STEP_S, what, every_s=1.0)


def world_results(world: World, last_ms: int) -> list[Delivered]:
    """Return what was delivered, once windows after the last judged one have come."""
    results: list[Delivered] = []

    def have_come() -> bool:
        results.clear()
        read_whole(world.owners.kafka, "speeds", lambda each: results.append(delivered(each)))
        return max((each.result.event_time_ms for each in results), default=0) > last_ms

    wait_until(have_come, STEP_S, "the last results", every_s=2.0)
    return results
