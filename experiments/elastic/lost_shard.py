"""Run in which the node of a shard is lost whose rows are dear: its replica is restored on one node
of the pool, or its two halves compute its state from the input on two more (``parallel: 2``).

The stage and its nodes are those of ``experiments.elastic.splitting``.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from experiments.elastic.measuring import OLD, await_heard
from experiments.elastic.splitting import READER, STAGE, change, writes_of
from experiments.elastic.world import IN_TIME_S, World
from harness.scaling_manager import scaling_manager
from harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from harness.scaling_manager import ScalingManager

POOL: Final = ("north.1", "north.2", "north.3")
"""Nodes of the pool: one for the shard and one for each half."""
SHARE: Final = 0.7
"""Load of the shard, as a share of what its node can do: alone it works off a backlog slowly."""
AGES_S: Final = (1, 25)
"""Ages of the stored checkpoint when the node is killed, in seconds."""
_SETTLED: Final = 8
_RECOVERED_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class LostShard:
    """One loss of the node of a shard."""

    nodes: int
    """Number of nodes that compute its state: 1 or 2."""
    rows_per_s: float
    age_s: float
    """Time since the newest checkpoint was stored, in seconds."""
    detect_s: float
    proven_s: float
    """From the manager's decision until the halves were proven, in seconds; 0: no split."""
    again_s: float
    """From the kill until a bucket is closed that was not due then, in seconds."""
    level_s: float
    """From the kill until a later bucket is closed as soon as is usual, in seconds."""
    wrong: int
    judged: int


def change_for_loss(nodes: int, document: dict[str, Any]) -> None:
    """Give the pipeline file's ``document`` a pool that only a loss uses, and ``nodes`` on which
    the state of a lost shard is computed.
    """
    change(1 + len(POOL), 99, document)
    document["scaling"] |= {"for": "10m", "parallel": nodes}


def lost_shards(
    start_kafka: Callable[[], str], folder: Path, say: Callable[[str], None], nodes: int, age_s: int
) -> list[LostShard]:
    """Measure the loss of the shard's node, whose state ``nodes`` compute. ``age_s``: age of the
    stored checkpoint.
    """
    kafka, writes = start_kafka(), writes_of(SHARE)
    with (
        World(kafka, folder, "dear.yaml", writes, partial(change_for_loss, nodes)) as world,
        scaling_manager(world.pipeline, kafka, world.state / "manager") as manager,
    ):
        for node in (OLD, *POOL, READER):
            world.start(node)
        world.await_state(OLD, "running", "waiting")
        world.begin_load(_SETTLED)
        await_heard(manager, 2 + len(POOL))
        world.await_stored(time.time())
        time.sleep(age_s)
        say(f"killing {OLD}")
        since_s = time.monotonic()
        world.kill(OLD)
        again_s = world.await_after(since_s)
        level_s = _await_level(world, since_s)
        moved, split = _await_decided(manager, is_split=nodes > 1)
        wrong, judged = world.judge()
    return [
        LostShard(
            nodes,
            writes.rows_per_s,
            float(age_s),
            moved["silent_ms"] / 1_000,
            split.get("catch_up_ms", 0) / 1_000,
            again_s,
            level_s,
            wrong,
            judged,
        )
    ]


def _await_level(world: World, since_s: float) -> float:
    """Wait until a bucket that was due after ``since_s`` is closed as soon as is usual. Return the
    seconds from then until it is closed.
    """

    def level() -> float:
        world.check()
        return next(
            (
                due_s + delay_s - since_s
                for due_s, delay_s in world.delays
                if due_s >= since_s and delay_s < IN_TIME_S
            ),
            0.0,
        )

    return wait_until(level, _RECOVERED_S, "results are in time again", every_s=0.1)


def _await_decided(
    manager: ScalingManager, *, is_split: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the manager's move of the shard, and its split, once the split is confirmed; of a
    shard that is not split the move alone.
    """

    def decided() -> bool:
        found = manager.decisions()
        ended = found.get(STAGE, {}).get("catch_up_ms") is not None
        return f"{STAGE}.0" in found and (ended or not is_split)

    wait_until(decided, _RECOVERED_S, lambda: f"a decision: {manager.scaling()}", every_s=0.2)
    found = manager.decisions()
    return found[f"{STAGE}.0"], found.get(STAGE, {})
