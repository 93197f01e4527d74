"""Two stages on one node, with a load, and empty nodes beside it to which replicas can go; with
real Spark and a real broker.
"""

from __future__ import annotations

import itertools
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.system.clock import SystemClock
from anabranch.local.deployment import spark_settings
from anabranch.operating.move import MoveCommand
from anabranch.pipeline.file import load
from anabranch.pipeline.model import Pipeline
from anabranch.ports import TopicPartition
from anabranch.protocol.control.records import Move
from anabranch.streams.placement import append_decision
from harness.service_processes import detail_of
from harness.stage_processes import StageProcess
from harness.stages import WIDTH_MS, Feed, Output, create_topics, readings, rows_of, write_pipeline
from harness.waiting import wait_until

OLD = "north.0"
NEW = "north.1"
THIRD = "north.2"
PARTNERS = "south.0"
"""Node of a partner, where the file names one."""
MOVED = "windows.0"
FIRST: Final = 11
PLACED: Final = re.compile(r'^\{.*"event": "placed".*\}$', re.MULTILINE)
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

    def __init__(
        self,
        feed: Feed,
        output: Output,
        every_s: float = 0.25,
        *,
        rows: Callable[[int], pa.Table] = lambda bucket: readings(rows_of(bucket)),
        first: int = FIRST,
    ) -> None:
        """``rows``: those of a bucket. ``first``: first bucket."""
        super().__init__(daemon=True)
        self._rows = rows
        self.fed: dict[int, float] = {}
        """Time at which each bucket was due."""
        self._feed = feed
        self._output = output
        output.reader.listen(self._seen)
        self._every_s = every_s
        self._ending = threading.Event()
        self.given = first - 1
        self.closed: list[tuple[float, int, str]] = []
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            while not self._ending.is_set():
                rows = self._rows(self.given + 1)
                self.fed[self.given + 1] = time.monotonic()
                self._feed.append(rows, self.given + 1)
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

    def __init__(
        self,
        kafka: str,
        name: str,
        folder: Path,
        *,
        functions: str = FUNCTIONS,
        keys: str = "",
        more: str = "",
        every_s: float = 0.25,
    ) -> None:
        """``functions``: of the stages. ``keys``: further keys of the second one. ``more``: further
        sections. ``every_s``: time from one bucket to the next.
        """
        made = write_pipeline(folder, name, functions, stages=STAGES + keys, apart=False)
        made.path.write_text(made.path.read_text() + f"nodes:\n  {NEW}: []\n  {THIRD}: []\n{more}")
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
        self.load = Load(self.feed, self.output, every_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.feed.close()
        self.output.close()

    def start(self, node: str, crash_point: str = "") -> StageProcess:
        """Start a node. Its batches are as far apart as ``anabranch up`` lets them be: under a load
        that does not end, those without a pause cost a core and show no more.
        """
        return StageProcess(
            self.pipeline,
            node,
            self.kafka,
            self.state_of(node),
            crash_point=crash_point,
            more={**spark_settings(len(self.pipeline.nodes()[OLD])), **self.more},
        )

    def state_of(self, node: str) -> Path:
        """Return the state directory of a node: one for all, or each has its own beside a store."""
        return self.state if self.store is None else self.state / node

    def move(self, node: str) -> MoveCommand:
        moving = MoveCommand(KafkaEventLog(self.kafka), self.pipeline, MOVED, node, SystemClock())
        moving.do()
        return moving

    def sell(self, node: str) -> None:
        """Move the second stage to a partner's node, as the owner's agent does."""
        log, at = KafkaEventLog(self.kafka), self.pipeline.topic_names.placement()
        stage, _, replica = MOVED.partition(".")
        move = Move(stage, replica, node, SystemClock().now_ms())
        append_decision(log, TopicPartition(at, 0), move, "move")

    def replicas(self, name: str, node: StageProcess) -> dict[str, dict[str, Any]]:
        """Return what the node reports of each of its replicas, as ``anabranch status``
        shows it.
        """
        detail = detail_of(self.state_of(name), "processing", name, node.process.pid)
        stages = detail["stages"] if detail else []
        return {f"{each['stage']}.{each['replica']}": each for each in stages}

    def runs(self, name: str, node: StageProcess, *labels: str) -> None:
        def there() -> bool:
            node.check()
            found = self.replicas(name, node)
            return sorted(found) == sorted(labels) and all(
                each["state"] in ("running", "waiting") for each in found.values()
            )

        wait_until(there, 300, f"{name} runs {labels}", every_s=0.1)

    def places(self, node: StageProcess, *labels: str) -> None:
        """Wait until ``node``, which starts, has read the log of moves: it starts ``labels`` and
        nothing else. Spark has not started by then.
        """

        def placed() -> list[Any]:
            node.check()
            events = [*map(json.loads, PLACED.findall(node.all_of_its_log()))]
            return [each["replicas"] for each in events]

        assert wait_until(placed, 300, f"it starts {labels}", every_s=0.1) == [[*labels]]

    def closes(self, bucket: int, node: str) -> None:
        """Wait until ``node`` has closed a bucket after ``bucket``."""

        def closed() -> bool:
            assert self.load.error is None
            return any(upto > bucket and by == node for _, upto, by in self.load.closed[-1:])

        wait_until(closed, 200, lambda: f"{node} goes on; last were {self.load.closed[-3:]}")

    def rows(self) -> Counter[tuple[int, int]]:
        found = self.output.buckets(FIRST, self.load.given).values()
        return Counter((row["event_time"], row["n"]) for rows in found for row in rows)
