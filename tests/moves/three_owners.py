"""Three owners with one stage, which north may sell to south and south to west: each with an agent
and a contract broker, and three nodes for the stage, on real Spark and a real broker.
"""

from __future__ import annotations

import shutil
import time
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.federation.tables import ledgers_of, movements_of, read_book
from anabranch.pipeline.file import load
from anabranch.protocol.errors import Unavailable
from anabranch.streams.boundary_reader import BoundaryReader
from demo.comparing import Comparison, Delivered, compare
from demo.consuming import delivered, read_whole
from harness.waiting import wait_until
from moves.deployment import BROKER, FILES, NORTH, SOUTH, Layout, Owners
from moves.traffic import WINDOW_MS, Traffic, answer

WEST: Final = "west"
_ROOT: Final = Path(__file__).parents[2]
CALM, RUSH = 1, 5
LOAD_OF_OWN: Final = 7
"""Records every 20 ms: 50, 250 and 350 in a second."""
CAPACITY: Final = {NORTH: 300, SOUTH: 450, WEST: 900}
"""North cannot bear the rush; south can, if it has little of its own."""
STEP_S: Final = 300


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
        changed = changed.replace("../../../examples", str(_ROOT / "examples"))
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


class ThreeOwners:
    """All of it, with the load of north and of south. ``close`` ends it."""

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
        """Return the node that runs the stage; empty while the broker does not answer."""
        try:
            self.boundaries.poll(100)
        except Unavailable:
            return ""
        return self.boundaries.log_state.node("0")

    def book(self) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Return the movements, and the ledgers with what each was paid."""
        assert self.pipeline.federation is not None
        with closing(read_book(self.log, self.pipeline.federation)) as book:
            return movements_of(book), ledgers_of(book)

    def running(self) -> dict[str, str]:
        """Return the node that is named by each contract with a movement that runs."""
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

    def judged(self) -> tuple[int, Comparison]:
        """Stop the load. Return the number of north's sightings, and how the results of all windows
        that have ended by now differ from the answer.
        """
        last_ms = time.time_ns() // 1_000_000 // WINDOW_MS * WINDOW_MS
        results = self._results(last_ms)
        sent = self.traffic.stop()
        self.own.stop()
        of = self.pipeline
        wanted = answer(sent, last_ms, of.bucket_ms, of.partitions)
        judged = (each for each in results if each.result.event_time_ms <= last_ms)
        return len(sent), compare(wanted, judged)

    def _results(self, last_ms: int) -> list[Delivered]:
        """Return what was delivered, once windows after the last judged one have come."""
        results: list[Delivered] = []

        def have_come() -> bool:
            results.clear()
            read_whole(self.owners.kafka, "speeds", lambda each: results.append(delivered(each)))
            return max((each.result.event_time_ms for each in results), default=0) > last_ms

        wait_until(have_come, STEP_S, "the last results", every_s=2.0)
        return results

    def close(self) -> None:
        """Stop the load and all processes."""
        for each in (self.traffic, self.own):
            if each.is_alive():
                each.stop()
        self.boundaries.close()
        self.owners.stop()
