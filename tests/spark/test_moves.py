"""A replica moves from one node to another while it works, with real Spark and a real broker;
and either node is killed in the middle.
"""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Self

import pytest

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.system.clock import SystemClock
from anabranch.local import probe
from anabranch.operating.move import MoveCommand
from anabranch.pipeline.file import load
from anabranch.pipeline.model import Pipeline
from anabranch.protocol.errors import ConfigurationError
from harness.stage_processes import StageProcess
from harness.stages import WIDTH_MS, Feed, Output, create_topics, readings, rows_of, write_pipeline
from harness.waiting import wait_until

pytestmark = pytest.mark.integration

OLD = "north.0"
NEW = "north.1"
THIRD = "north.2"
MOVED = "windows.0"
FIRST: Final = 11
FUNCTIONS = """
from pyspark.sql import functions as F


def positive(a):
    return a.where("value > 0")


def counts(clean):
    windows = clean.groupBy(F.window("event_time", "200 milliseconds")).agg(F.count("*").alias("n"))
    return windows.select("n", F.col("window.end").alias("event_time"))
"""
STAGES = """
clean:
  participant: north
  reads: [a]
  transform: MODULE:positive
windows:
  participant: north
  reads: [clean]
  transform: MODULE:counts
"""


def expected(last: int) -> Counter[tuple[int, int]]:
    """Rows above 0 of each window that ends by bucket ``last``."""
    rows = [row for bucket in range(FIRST, last + 1) for row in rows_of(bucket)]
    kept = Counter(event_time // 200 * 200 + 200 for event_time, _, value in rows if value > 0)
    return Counter({(stop, n): 1 for stop, n in kept.items() if stop <= last * WIDTH_MS})


class Load(threading.Thread):
    """A bucket every ``every_s``, until told to stop; and when each bucket of the output was
    seen to be closed, and on which node.
    """

    def __init__(self, feed: Feed, output: Output, every_s: float = 0.25) -> None:
        super().__init__(daemon=True)
        self._feed = feed
        self._output = output
        output.reader.listen(self._seen)
        self._every_s = every_s
        self._ending = threading.Event()
        self.given = FIRST - 1
        self.closed: list[tuple[float, int, str]] = []
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            while not self._ending.is_set():
                self._feed.append(readings(rows_of(self.given + 1)), self.given + 1)
                self.given += 1
                until = time.monotonic() + self._every_s
                while time.monotonic() < until:
                    self.look(20)
        except Exception as error:  # noqa: BLE001 - looked at by the test
            self.error = error

    def look(self, wait_ms: int) -> int:
        self._output.reader.poll(wait_ms)
        return self._output.reader.log_state.upto

    def _seen(self, *_: object) -> None:
        """Check of each record that its node is that of its epoch, whatever follows it."""
        log_state = self._output.reader.log_state
        if not self.closed or log_state.upto > self.closed[-1][1]:
            self.closed.append((time.monotonic(), log_state.upto, log_state.node("0")))

    def end(self) -> None:
        """No more input; wait until all of it is closed."""
        self._ending.set()
        self.join(30)
        assert self.error is None
        wait_until(lambda: self.look(50) >= self.given, 300, "all is closed")

    def gap_s(self, since: float) -> float:
        """Return the longest time without a new bucket since then."""
        times = [at for at, _, _ in self.closed if at >= since]
        return max(b - a for a, b in itertools.pairwise(times))


class World:
    """A pipeline of two stages on one node, and two empty nodes beside it, of which one is
    never started.
    """

    def __init__(self, kafka: str, name: str, folder: Path) -> None:
        made = write_pipeline(folder, name, FUNCTIONS, stages=STAGES, apart=False)
        made.path.write_text(made.path.read_text() + f"nodes:\n  {NEW}: []\n  {THIRD}: []\n")
        self.pipeline: Pipeline = load(made.path)
        assert self.pipeline.nodes() == {NEW: [], THIRD: [], OLD: ["clean.0", MOVED]}
        create_topics(kafka, self.pipeline)
        self.kafka, self.state = kafka, folder / "state"
        self.store: Path | None = None
        self.more: dict[str, str] = {}
        self.feed, self.output = (
            Feed(kafka, self.pipeline, "a"),
            Output(kafka, self.pipeline, "windows"),
        )
        self.load = Load(self.feed, self.output)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.feed.close()
        self.output.close()

    def start(self, node: str, crash_point: str = "") -> StageProcess:
        return StageProcess(
            self.pipeline,
            node,
            self.kafka,
            self.state_of(node),
            crash_point=crash_point,
            more=self.more,
        )

    def state_of(self, node: str) -> Path:
        """Return the state directory of a node: one for all, or each has its own beside a store."""
        return self.state if self.store is None else self.state / node

    def move(self, node: str) -> MoveCommand:
        moving = MoveCommand(KafkaEventLog(self.kafka), self.pipeline, MOVED, node, SystemClock())
        moving.do()
        return moving

    def replicas(self, name: str, node: StageProcess) -> dict[str, dict[str, Any]]:
        """Return what the node reports of each of its replicas, as ``anabranch status``
        shows it.
        """
        port = probe.metrics_port(self.state_of(name), "processing", name, node.process.pid)
        answer = probe.status(port) if port is not None else None
        return (
            {}
            if answer is None
            else {f"{each['stage']}.{each['replica']}": each for each in answer["detail"]["stages"]}
        )

    def runs(self, name: str, node: StageProcess, *labels: str) -> None:
        def there() -> bool:
            node.check()
            found = self.replicas(name, node)
            return sorted(found) == sorted(labels) and all(
                each["state"] in ("running", "waiting") for each in found.values()
            )

        wait_until(there, 300, f"{name} runs {labels}", every_s=0.1)

    def closes(self, bucket: int, node: str) -> None:
        """Wait until ``node`` has closed a bucket after ``bucket``."""

        def closed() -> bool:
            assert self.load.error is None
            return any(upto > bucket and by == node for _, upto, by in self.load.closed[-1:])

        wait_until(closed, 200, lambda: f"{node} goes on; last were {self.load.closed[-3:]}")

    def rows(self) -> Counter[tuple[int, int]]:
        found = self.output.buckets(FIRST, self.load.given).values()
        return Counter((row["event_time"], row["n"]) for rows in found for row in rows)


@pytest.fixture
def world(kafka: str, topic_prefix: str, tmp_path: Path) -> Iterator[World]:
    with World(kafka, topic_prefix, tmp_path) as made:
        yield made


def test_a_replica_moves_under_load_and_stays_where_it_is_after_a_restart(world: World) -> None:
    started = time.monotonic()
    with world.start(OLD) as old, world.start(NEW) as new:
        world.load.start()
        world.runs(OLD, old, "clean.0", MOVED)
        cold_s = time.monotonic() - started
        world.closes(FIRST + 20, OLD)
        begun = time.monotonic()
        moving = world.move(NEW)
        with pytest.raises(ConfigurationError, match=f"{MOVED} is on node {NEW}"):
            world.move(NEW)
        wait_until(lambda: MOVED in world.replicas(NEW, new), 60, "it comes", every_s=0.05)
        with new.paused():  # it prepares
            world.closes(world.load.given + 8, OLD)
        assert moving.is_done(200_000)
        world.runs(OLD, old, "clean.0")
        world.runs(NEW, new, MOVED)
        with pytest.raises(ConfigurationError, match="there is no node north"):
            world.move("north.7")
        world.closes(world.load.given, NEW)
        print(
            f"longest time without a new bucket {world.load.gap_s(begun):.2f} s, a start"
            f" {cold_s:.2f} s"
        )
    with world.start(OLD) as old, world.start(NEW) as new:
        world.runs(OLD, old, "clean.0")
        world.runs(NEW, new, MOVED)
        world.load.end()
    assert world.rows() == expected(world.load.given)


@pytest.fixture
def apart(world: World, tmp_path: Path) -> World:
    """Return a world whose nodes share nothing but a store of checkpoints."""
    world.store = tmp_path / "store"
    world.store.mkdir()
    world.more = {"ANABRANCH_CHECKPOINT_STORE": f"file://{world.store}"}
    return world


def fetched(node: StageProcess) -> dict[str, int]:
    """Return what a node says that it had copied when it became the primary last, in bytes."""
    lines = [each for each in node.all_of_its_log().splitlines() if "becoming_primary" in each]
    line = lines[-1]
    return {
        name: int(match[1])
        for name in ("fetched_bytes", "linked_bytes", "rest_bytes")
        if (match := re.search(rf"{name}\W+(\d+)", line)) is not None
    }


def test_a_replica_moves_there_and_back_between_nodes_that_share_nothing(apart: World) -> None:
    """Its state goes by the store. Where it comes back, files that are still there are not read."""
    world = apart
    with world.start(OLD) as old, world.start(NEW) as new:
        world.load.start()
        world.runs(OLD, old, "clean.0", MOVED)
        world.closes(FIRST + 20, OLD)
        for node, process in ((NEW, new), (OLD, old)):
            begun = time.monotonic()
            assert world.move(node).is_done(200_000)
            world.closes(world.load.given, node)
            copied = fetched(process)
            print(f"to {node}: pause {world.load.gap_s(begun):.2f} s, {copied}")
            assert copied["rest_bytes"] == 0
            if node == NEW:
                assert copied["fetched_bytes"] > 0, "it had nothing"
            else:  # what it has is near enough, or it reads what changed since
                assert copied["linked_bytes"] > 0 or not copied["fetched_bytes"]
        world.runs(NEW, new)
        world.runs(OLD, old, "clean.0", MOVED)
        world.load.end()
    assert world.rows() == expected(world.load.given)


@pytest.mark.parametrize("point", ["checkpoint.fetched", "checkpoint.taking_fetched"])
@pytest.mark.nightly
def test_the_new_node_is_killed_while_it_copies(apart: World, point: str) -> None:
    world = apart
    with world.start(OLD) as old:
        with world.start(NEW, point) as new:
            world.load.start()
            world.runs(OLD, old, "clean.0", MOVED)
            world.move(NEW)
            assert new.wait(300) == -9, new.log()
        with world.start(NEW) as again:
            world.runs(NEW, again, MOVED)
            world.runs(OLD, old, "clean.0")
            world.load.end()
    assert world.rows() == expected(world.load.given)


@pytest.mark.parametrize(
    "point",
    [
        "processing.standby_due",
        "processing.checkpoint_copied",
        "processing.timeline_written",
    ],
)
@pytest.mark.nightly
def test_the_new_node_is_killed_in_the_middle(world: World, point: str) -> None:
    with world.start(OLD) as old:
        with world.start(NEW, point) as new:
            world.load.start()
            world.runs(OLD, old, "clean.0", MOVED)
            world.move(NEW)
            assert new.wait(300) == -9, new.log()
        if point == "processing.standby_due":  # nothing was written: the old one goes on
            upto = world.load.given
            wait_until(lambda: world.load.closed[-1][1] > upto, 60, "the old one goes on")
            with pytest.raises(ConfigurationError, match=f"anabranch move {MOVED} {OLD}"):
                world.move(THIRD)
        with world.start(NEW) as again:
            world.runs(NEW, again, MOVED)
            world.runs(OLD, old, "clean.0")
            world.load.end()
    assert world.rows() == expected(world.load.given)


@pytest.mark.nightly
def test_the_old_node_is_killed_in_the_middle(world: World) -> None:
    """It does not come back: who has its place becomes the primary, and when the old node is there
    again it leaves it alone.
    """
    with world.start(OLD) as old, world.start(NEW) as new:
        world.load.start()
        world.runs(OLD, old, "clean.0", MOVED)
        world.move(NEW)
        wait_until(lambda: MOVED in world.replicas(NEW, new), 60, "it comes", every_s=0.05)
        old.kill()
        world.runs(NEW, new, MOVED)
        with world.start(OLD) as again:
            world.runs(OLD, again, "clean.0")
            world.load.end()
            assert "replica_ended" not in again.log()
    assert world.rows() == expected(world.load.given)
