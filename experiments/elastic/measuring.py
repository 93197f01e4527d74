"""Runs of the experiment: each is a deployment of its own, and ends with a judgement."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from experiments.elastic.world import World, Writes, percentile
from harness.scaling_manager import scaling_manager
from harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from harness.scaling_manager import ScalingManager

OLD: Final = "north.0"
NEW: Final = "north.1"
POOL: Final = (NEW, "north.2")
ROWS_PER_S: Final = 200
"""Load of the stage with large state, in rows per second."""
NOTE_BYTES: Final = 1_000
"""Least size of a note, in bytes."""
KEPT_KEYS_MAX: Final = 1_000_000
"""Largest number of notes, which a stage takes within minutes; larger state has larger notes."""
KEYS: Final = 1_000
"""Number of keys that windows count."""
BEFORE_S: Final = 30.0
"""Time before a move in which the usual delay is measured, in seconds."""
AFTER_S: Final = 10.0
"""Time after a move that counts as part of it, in seconds."""
_MOVED_S: Final = 600.0
_WINDOW_S: Final = 35.0
"""Time until windows of 30 seconds are full, in seconds."""
AGES_S: Final = (1, 12)
"""Ages of the stored checkpoint when its node is killed, in seconds; a checkpoint is stored every
30 seconds.
"""
MORE_AGES_S: Final = (5, 25)
"""Ages that are measured at one rate only, for the plot against the age."""


@dataclass(frozen=True, slots=True)
class Restart:
    """One start after a SIGKILL."""

    mode: str
    """``disk``, ``store``, or ``standby``."""
    state_mb: float
    """Size of the stored checkpoint, in MB."""
    fill_rows_per_s: float
    """Rows per second at which the state was made."""
    again_s: float
    """From the kill until a bucket is closed that was not due then, in seconds."""
    wrong: int
    judged: int


@dataclass(frozen=True, slots=True)
class Move:
    """One move under load."""

    state_mb: float
    before_p99_s: float
    """99th percentile of the delays before the move, in seconds."""
    during_p99_s: float
    """The same from the command until some seconds after the new node has begun."""
    longest_s: float
    """Longest delay in that time, in seconds."""
    prefetch_s: float
    """From the command until the new node has a first whole copy, in seconds."""
    moved_s: float
    """From the command until the new node closes buckets, in seconds."""
    prefetch_mb: float
    """Bytes of that first copy, in MB."""
    rest_mb: float
    """Bytes that the new node has read after it, in MB."""
    wrong: int
    judged: int


@dataclass(frozen=True, slots=True)
class Recovery:
    """One loss of a node whose replica goes on in the pool."""

    mode: str
    """``store`` or ``upstream_backup``."""
    rows_per_s: int
    age_s: float
    """Time since the newest checkpoint was stored, in seconds; 0: none is stored."""
    detect_s: float
    restore_s: float
    catch_up_s: float
    again_s: float
    """From the kill until a bucket is closed that was not due then, in seconds."""
    wrong: int
    judged: int


def _notes(size_mb: int) -> tuple[int, Writes]:
    """Return the number of keys whose notes are ``size_mb`` MB of state, at least a second's, and
    the load that writes them.
    """
    note_bytes = max(NOTE_BYTES, size_mb * 1_000_000 // KEPT_KEYS_MAX)
    keys = max(ROWS_PER_S, size_mb * 1_000_000 // note_bytes)
    return keys, Writes(keys, ROWS_PER_S, note_bytes=note_bytes)


def restarts(
    start_kafka: Callable[[], str], folder: Path, say: Callable[[str], None], size_mb: int
) -> list[Restart]:
    """Measure a start on the node's own disk, and one from the store."""
    keys, writes = _notes(size_mb)
    found = []
    with World(start_kafka(), folder, "kept.yaml", writes) as world:
        world.start(OLD)
        world.await_state(OLD, "running", "waiting")
        say(f"writing {keys} notes")
        fill_s = world.fill(OLD)
        world.begin_load()
        for mode in ("disk", "store"):
            world.await_steady()
            world.await_stored(time.time())
            state_mb = world.stored_bytes() / 1e6
            say(f"{state_mb:.0f} MB are stored; restarting from the {mode}")
            since_s = time.monotonic()
            world.kill(OLD, disk=mode == "store")
            world.start(OLD)
            again_s = world.await_after(since_s)
            found.append((mode, state_mb, keys / fill_s, again_s))
        wrong, judged = world.judge()
    return [Restart(*each, wrong, judged) for each in found]


def standby(
    start_kafka: Callable[[], str], folder: Path, say: Callable[[str], None], size_mb: int
) -> list[Restart]:
    """Measure a failover to a standby on another node."""
    keys, writes = _notes(size_mb)
    with World(start_kafka(), folder, "standby.yaml", writes) as world:
        world.start(OLD)
        world.await_state(OLD, "running", "waiting")
        say(f"writing {keys} notes")
        fill_s = world.fill(OLD)
        world.begin_load()
        world.start(NEW)
        world.await_state(NEW, "standby")
        say("copying the checkpoint")
        begun = world.load.given if world.load else 0
        wait_until(
            lambda: int(world.replica(NEW).get("checkpoint_bucket", 0)) >= begun,
            _MOVED_S,
            lambda: f"the standby has a copy: {world.replica(NEW)}",
            every_s=0.5,
        )
        world.await_steady()
        state_mb = world.stored_bytes() / 1e6
        say(f"{state_mb:.0f} MB are stored; killing the primary")
        since_s = time.monotonic()
        world.kill(OLD)
        again_s = world.await_after(since_s)
        wrong, judged = world.judge()
    return [Restart("standby", state_mb, keys / fill_s, again_s, wrong, judged)]


def moves(
    start_kafka: Callable[[], str], folder: Path, say: Callable[[str], None], size_mb: int
) -> list[Move]:
    """Measure the move of the stage to a node that has no disk in common with its own."""
    keys, writes = _notes(size_mb)
    with World(start_kafka(), folder, "kept.yaml", writes) as world:
        world.start(OLD)
        world.await_state(OLD, "running", "waiting")
        world.start(NEW)
        say(f"writing {keys} notes")
        world.fill(OLD)
        load = world.begin_load()
        world.await_stored(time.time())
        state_mb = world.stored_bytes() / 1e6
        time.sleep(BEFORE_S)
        begun_s = time.monotonic()
        before = [s for due_s, s in world.delays if begun_s - BEFORE_S <= due_s < begun_s - 1]
        say(f"{state_mb:.0f} MB are stored; moving")
        world.move(NEW)
        prefetched: list[tuple[float, int]] = []
        last_fetched = 0

        def is_moved() -> bool:
            nonlocal last_fetched
            world.check()
            seen = world.replica(NEW)
            last_fetched = max(last_fetched, int(seen.get("fetched_bytes", 0)))
            if seen.get("checkpoint_bucket", 0) and not prefetched:
                prefetched.append((time.monotonic(), int(seen["fetched_bytes"])))
            return any(node == NEW for _, _, node in load.closed[-1:])

        wait_until(is_moved, _MOVED_S, lambda: f"it moves: {world.replica(NEW)}", every_s=0.1)
        moved_s = time.monotonic()
        last_fetched = max(last_fetched, *_fetched(world.nodes[NEW].all_of_its_log()))
        time.sleep(AFTER_S)
        during = [s for due_s, s in world.delays if begun_s <= due_s < moved_s + AFTER_S]
        wrong, judged = world.judge()
    copied_s, copied = prefetched[0] if prefetched else (moved_s, last_fetched)
    return [
        Move(
            state_mb,
            percentile(before, 0.99),
            percentile(during, 0.99),
            max(during),
            copied_s - begun_s,
            moved_s - begun_s,
            copied / 1e6,
            (last_fetched - copied) / 1e6,
            wrong,
            judged,
        )
    ]


def _fetched(log: str) -> list[int]:
    """Return the bytes that a node says in its ``log`` it had read when it took over."""
    lines = [json.loads(line) for line in log.splitlines() if '"becoming_primary"' in line]
    return [int(each["fetched_bytes"]) for each in lines] or [0]


def recoveries(
    start_kafka: Callable[[], str],
    folder: Path,
    say: Callable[[str], None],
    mode: str,
    rows_per_s: int,
    ages_s: Sequence[int] = AGES_S,
) -> list[Recovery]:
    """Measure losses of a node, one after the other: the replica goes on in the pool. ``ages_s``:
    as ``AGES_S``, one for each node of the pool.
    """
    writes, kafka = Writes(KEYS, rows_per_s, note_bytes=0), start_kafka()

    def change(document: dict[str, Any]) -> None:
        if mode != "store":
            document["stages"]["windows"] |= {"ha": mode, "state_horizon": "30s"}

    found: list[tuple[float, dict[str, Any], float]] = []
    with (
        World(kafka, folder, "windows.yaml", writes, change) as world,
        scaling_manager(world.pipeline, kafka, world.state / "manager") as manager,
    ):
        for node in (OLD, *POOL):
            world.start(node)
        world.await_state(OLD, "running", "waiting")
        load = world.begin_load()
        await_heard(manager, 1 + len(POOL))
        for age_s in ages_s:
            at = load.closed[-1][2]
            if mode == "store":
                world.await_stored(time.time())
                time.sleep(age_s)
            else:
                time.sleep(_WINDOW_S)
            say(f"killing {at}")
            since_s = time.monotonic()
            world.kill(at)
            again_s = world.await_after(since_s)
            made = _await_caught_up(manager, world.label, load.closed[-1][2])
            found.append((float(age_s if mode == "store" else 0), made, again_s))
        wrong, judged = world.judge()
    return [
        Recovery(
            mode,
            rows_per_s,
            age_s,
            made["silent_ms"] / 1_000,
            made["restore_ms"] / 1_000,
            made["catch_up_ms"] / 1_000,
            again_s,
            wrong,
            judged,
        )
        for age_s, made, again_s in found
    ]


def await_heard(manager: ScalingManager, nodes: int) -> None:
    """Wait until the manager has heard that number of nodes."""

    def are_heard() -> bool:
        known = manager.scaling().get("nodes", {}).values()
        return [each["state"] for each in known].count("alive") == nodes

    wait_until(are_heard, _MOVED_S, lambda: f"all nodes report: {manager.scaling()}", every_s=0.5)


def _await_caught_up(manager: ScalingManager, label: str, node: str) -> dict[str, Any]:
    """Wait until the replica ``label`` has caught up on ``node``. Return the manager's decision to
    move it there.
    """

    def caught_up() -> dict[str, Any]:
        made = manager.decisions().get(label, {})
        has_caught_up = made.get("target") == node and made.get("catch_up_ms") is not None
        return made if has_caught_up else {}

    return wait_until(
        caught_up, _MOVED_S, lambda: f"it has caught up: {manager.scaling()}", every_s=0.2
    )
