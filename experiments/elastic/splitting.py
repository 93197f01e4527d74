"""Runs in which a stage is split over several nodes, by the scaler alone or by command, each a
deployment of its own.

Each row costs the stage a fixed time, which it sleeps, and each node runs one task at a time. So a
node's capacity is known before, and four nodes have four times as much, although the machine has
two cores. Nodes that are held to a third of a core by a cgroup would not: the fixed cost of a batch
of Spark, a tenth of a second of a core and more, would take three times as long and fill most of
the time, and the broker, the manager and the last stage would get what the nodes leave of both
cores.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.system.clock import SystemClock
from anabranch.operating.move import MoveCommand
from anabranch.operating.split import SplitCommand
from anabranch.protocol.stage.splitting import halves_of
from experiments.elastic.measuring import AFTER_S, BEFORE_S, NEW, OLD, await_heard
from experiments.elastic.ramp import (
    Point,
    Ramp,
    course,
    held_rate,
    is_scaling,
    moves,
    nodes_used,
    rising_rate,
    splits,
)
from experiments.elastic.world import World, Writes, percentile
from harness.scaling_manager import scaling_manager

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from harness.scaling_manager import ScalingManager

STAGE: Final = "dear"
READER: Final = "north.9"
"""Node of the stage that reads all shards."""
NODES_MAX: Final = 4
ONE_NODE_ROWS_PER_S: Final = 100
"""Rows per second that one node could process if its batches cost nothing else; the stage sleeps 10
ms for a row.
"""
KEYS: Final = 10_000
"""Number of keys: so many that both halves of a shard have about the same number of rows."""
WIDTH_MS: Final = 1_000
ABOVE: Final = 70
"""Threshold of the runs that measure throughput, in percent."""
_FIRST_SHARE: Final = 0.4
"""First rate of the ramp, as a share of what one node can do."""
_RAMP_S: Final = 240.0
"""Longest time of a ramp, in seconds. What ends it before is a lag that grows for good."""
_RISES: Final = (0.4, 1.0)
"""First and last rate of the runs that compare thresholds, as shares of what one node can do. With
the fixed cost of its batches the last is more than one node can do, and fills about 70 % of the
time of two.
"""
_RISES_S: Final = 100.0
"""Time of these runs, in seconds; the rate rises in the first 31 of it."""
_SETTLED: Final = 8
_EVERY_S: Final = 0.5
_LOOK_MS: Final = 500
_SPLIT_S: Final = 300.0
"""Timeout of a split, in seconds."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """One ramp."""

    nodes: int
    """Number of nodes that could run the stage."""
    used: int
    """Number of those that had shards of it in the end."""
    rows_per_s: float
    """Highest rate that was held."""
    splits: int
    moves: int
    has_ended: bool
    """Whether the lag grew for good; else the time was over, and more may be possible."""
    course: list[tuple[float, float, float, float]]
    """Rates and delay of each five seconds, as ``ramp.course`` returns them."""
    wrong: int
    judged: int


@dataclass(frozen=True, slots=True)
class Threshold:
    """One run with a threshold."""

    above: int
    """The threshold, in percent."""
    used: int
    """Number of nodes that had shards of the stage in the end."""
    splits: int
    p50_s: float
    """Median of the delays, in seconds."""
    p99_s: float
    wrong: int
    judged: int


@dataclass(frozen=True, slots=True)
class Split:
    """One split under load, by command."""

    nodes: int
    """Number of nodes of the shard and its halves: two, if a half is beside the shard, or three."""
    rows_per_s: int
    before_p99_s: float
    """99th percentile of the delays before the split, in seconds."""
    during_p99_s: float
    """The same from the command until some seconds after the halves have taken over."""
    longest_s: float
    """Longest delay in that time, in seconds."""
    proven_s: float
    """From the command until the halves were proven, in seconds."""
    wrong: int
    judged: int


def change_for_split(nodes: int, document: dict[str, Any]) -> None:
    """Give the pipeline file's ``document`` that many nodes, and nobody who splits by himself."""
    document["resources"] = {node: {"cores": 1} for node in (OLD, *_pool(nodes))}
    document["nodes"] |= {node: [] for node in _pool(nodes)}
    del document["scaling"]


def pause(
    start_kafka: Callable[[], str],
    folder: Path,
    say: Callable[[str], None],
    rows_per_s: int,
    nodes: int,
) -> list[Split]:
    """Measure what a split adds to the delays of a steady load. With two ``nodes`` one half begins
    beside the shard, with three each half has a node of its own.
    """
    kafka, writes = start_kafka(), writes_of(rows_per_s / ONE_NODE_ROWS_PER_S)
    with World(kafka, folder, "dear.yaml", writes, partial(change_for_split, nodes)) as world:
        say(f"starting {nodes} nodes, and one that reads their results")
        for node in (OLD, *_pool(nodes), READER):
            world.start(node)
        world.await_state(OLD, "running", "waiting")
        world.begin_load(_SETTLED)
        time.sleep(BEFORE_S)
        begun_s = time.monotonic()
        before = [s for due_s, s in world.delays if begun_s - BEFORE_S <= due_s < begun_s - 1]
        say("splitting")
        log, clock, (lower, _) = KafkaEventLog(kafka), SystemClock(), halves_of(STAGE)
        for other in _pool(nodes)[1:]:
            MoveCommand(log, world.pipeline, f"{lower}.0", other, clock).do()
        command = SplitCommand(log, world.pipeline, STAGE, NEW, clock)
        command.do()
        while not command.is_done(_LOOK_MS):
            world.check()
            if time.monotonic() - begun_s > _SPLIT_S:
                raise RuntimeError(f"the halves are not proven after {_SPLIT_S:.0f} s")
        proven_s = time.monotonic()
        time.sleep(AFTER_S)
        during = [s for due_s, s in world.delays if begun_s <= due_s < proven_s + AFTER_S]
        wrong, judged = world.judge()
    return [
        Split(
            nodes,
            rows_per_s,
            percentile(before, 0.99),
            percentile(during, 0.99),
            max(during),
            proven_s - begun_s,
            wrong,
            judged,
        )
    ]


def change(nodes: int, above: int, document: dict[str, Any]) -> None:
    """Give the pipeline file's ``document`` a pool with which ``nodes`` can run the stage, and the
    threshold ``above``, in percent.
    """
    pool = _pool(nodes)
    document["resources"] = {node: {"cores": 1} for node in (OLD, *pool)}
    if pool:
        document["scaling"] |= {"nodes": pool, "above": f"{above}%"}
    else:
        del document["scaling"]


def _pool(nodes: int) -> list[str]:
    return [f"north.{number}" for number in range(1, nodes)]


class _Run:
    """One deployment with its load."""

    def __init__(
        self, world: World, manager: ScalingManager, nodes: int, say: Callable[[str], None]
    ) -> None:
        self.world, self.manager, self._say = world, manager, say
        for node in (OLD, *_pool(nodes), READER):
            world.start(node)
        world.await_state(OLD, "running", "waiting")
        self.load = world.begin_load(_SETTLED)
        if nodes > 1:
            await_heard(manager, nodes + 1)
        self.begun_s = time.monotonic()
        self.seen: dict[str, Any] = {}
        """Newest report of the manager."""
        self._told = 0

    def each(self, limit_s: float) -> Iterator[float]:
        """Yield the seconds since the begin, twice a second, until ``limit_s``."""
        while (passed_s := time.monotonic() - self.begun_s) < limit_s:
            self.world.check()
            self.seen = self.manager.scaling() or self.seen
            decisions = self.seen.get("events", [])
            for each in decisions[self._told :]:
                self._say(
                    f"{each['cause']} of {each['label']} to {each['target']}: {each['because']}"
                )
            self._told = len(decisions)
            yield passed_s
            time.sleep(_EVERY_S)

    def end(self) -> tuple[int, int, list[Point]]:
        """End the load. Return how many results are wrong, how many there must be, and the buckets
        since the begin.
        """
        wrong, judged = self.world.judge()
        fed, sizes = self.load.fed, self.world.writes.sizes
        rows = {due_s: sizes[bucket] for bucket, due_s in fed.items()}
        found = [Point(due_s, rows[due_s], delay_s) for due_s, delay_s in self.world.delays]
        return wrong, judged, [each for each in found if each.due_s >= self.begun_s]


def writes_of(share: float) -> Writes:
    """Return a load that is ``share`` of what one node can do."""
    return Writes(
        KEYS,
        share * ONE_NODE_ROWS_PER_S,
        note_bytes=0,
        width_ms=WIDTH_MS,
        windows_ms=(WIDTH_MS, WIDTH_MS),
    )


def throughput(
    start_kafka: Callable[[], str], folder: Path, say: Callable[[str], None], nodes: int
) -> list[Throughput]:
    """Measure the highest rate that ``nodes`` hold, from a ramp that overloads one."""
    kafka, writes = start_kafka(), writes_of(_FIRST_SHARE)
    with (
        World(kafka, folder, "dear.yaml", writes, partial(change, nodes, ABOVE)) as world,
        scaling_manager(world.pipeline, kafka, world.state / "manager") as manager,
    ):
        say(f"starting {nodes} nodes, and one that reads their results")
        run = _Run(world, manager, nodes, say)
        say("the rate rises")
        ramp = Ramp(writes.rows_per_s, run.begun_s)
        told = 0
        for passed_s in run.each(_RAMP_S):
            ramp.step(run.begun_s + passed_s, world.lag_s, is_scaling=is_scaling(run.seen))
            writes.rows_per_s = ramp.rows_per_s
            if passed_s >= told:
                told += 10
                say(f"{passed_s:.0f} s: {_state(run, world, ramp.rows_per_s)}")
            if ramp.has_ended:
                break
        seen = run.seen
        wrong, judged, points = run.end()
    return [
        Throughput(
            nodes,
            nodes_used(seen, STAGE) if nodes > 1 else 1,
            held_rate(points),
            len(splits(seen)),
            moves(seen),
            ramp.has_ended,
            course(points),
            wrong,
            judged,
        )
    ]


def _state(run: _Run, world: World, rows_per_s: float) -> str:
    return (
        f"{rows_per_s:.0f} rows/s, lag {world.lag_s:.1f} s, {len(splits(run.seen))} splits"
        f"{', one is under way' if is_scaling(run.seen) else ''}"
    )


def thresholds(
    start_kafka: Callable[[], str], folder: Path, say: Callable[[str], None], above: int
) -> list[Threshold]:
    """Measure the nodes used, and the delays, of a load that rises to more than one node can do,
    with the threshold ``above``, in percent.
    """
    first, last = (share * ONE_NODE_ROWS_PER_S for share in _RISES)
    kafka, writes = start_kafka(), writes_of(_RISES[0])
    with (
        World(kafka, folder, "dear.yaml", writes, partial(change, NODES_MAX, above)) as world,
        scaling_manager(world.pipeline, kafka, world.state / "manager") as manager,
    ):
        say(f"starting {NODES_MAX} nodes, and one that reads their results")
        run = _Run(world, manager, NODES_MAX, say)
        told = 0
        for passed_s in run.each(_RISES_S):
            writes.rows_per_s = rising_rate(first, last, passed_s)
            if passed_s >= told:
                told += 10
                say(f"{passed_s:.0f} s: {_state(run, world, writes.rows_per_s)}")
        seen = run.seen
        wrong, judged, points = run.end()
    delays = [each.delay_s for each in points]
    return [
        Threshold(
            above,
            nodes_used(seen, STAGE),
            len(splits(seen)),
            percentile(delays, 0.5),
            percentile(delays, 0.99),
            wrong,
            judged,
        )
    ]
