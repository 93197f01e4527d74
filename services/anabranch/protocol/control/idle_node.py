"""Idle nodes: which stages a node without replicas runs on empty batches, and when.

Theory of operation. A node of the pool waits for the moment at which another one is lost or has
too much to do. The first query of an engine that has just started takes seconds longer than later
ones: Java loads and compiles what any query needs, and no Python worker runs yet. So an idle node
runs the stages that may come to it, on batches without rows. It reads and writes no data.

When a whole deployment starts, nodes that have replicas need the processors first; so does a
replica that comes while the node rehearses. A stage's columns are those of its function's result,
and are in its log, which only a replica reads; those of sources are in the pipeline file. So a
stage that reads another one cannot be rehearsed.

Invariants:
    RI1 a stage is rehearsed only where a replica of it may run (PC3), if its code is known there
        and all its inputs, at least one, are described by the pipeline file.
    RI2 of stages with one code, such as the shards of a stage, the first one is rehearsed.
    RI3 a rehearsal begins when the node has had an engine and no replica for IDLE_FOR_MS without a
        break, and at most one at a time.
    RI4 while the node has a replica a rehearsal ends, and none begins.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

IDLE_FOR_MS: Final = 10_000
"""Time without a replica, in ms, after which a node rehearses: the first batches of the others'
replicas come within it.
"""


@dataclass(frozen=True, slots=True)
class Rehearsable:
    """Stage as far as its rehearsal depends on it."""

    name: str
    code: tuple[str, ...]
    """Functions and statements that compute it; empty: they are not known here."""
    inputs: Collection[str]


def rehearsed(stages: Iterable[Rehearsable], may_come: Collection[str]) -> list[str]:
    """Return which of all ``stages`` of a pipeline a node rehearses to which those of ``may_come``
    may come (RI1, RI2).
    """
    all_stages = list(stages)
    made = {stage.name for stage in all_stages}
    found: dict[tuple[str, ...], str] = {}
    for stage in all_stages:
        is_described = stage.inputs and made.isdisjoint(stage.inputs)
        if stage.name in may_come and stage.code and is_described:
            found.setdefault(stage.code, stage.name)
    return list(found.values())


class IdleStep(Enum):
    """Step of an idle node."""

    NOTHING = auto()
    BEGIN = auto()
    """Begin to rehearse."""
    END = auto()
    """End the rehearsal that is under way."""


class Idleness:
    """Times for which a node is idle. ``now_ms`` is monotonic."""

    def __init__(self, stages: Collection[str]) -> None:
        """Start before the engine. ``stages``: as ``rehearsed`` returns them."""
        self._stages = stages
        self._since_ms: int | None = None
        """Time since which the node is idle; None: it has a replica, or no engine."""

    def next_step(
        self, now_ms: int, *, has_engine: bool, has_replica: bool, rehearses: bool
    ) -> IdleStep:
        """Return what to do now (RI3, RI4).

        Args:
            now_ms: Now.
            has_engine: Whether the engine has started, and the node is not to stop.
            has_replica: Whether the node runs a replica, or starts one.
            rehearses: Whether a rehearsal has begun and not ended.
        """
        if has_replica or not has_engine:
            self._since_ms = None
            return IdleStep.END if rehearses else IdleStep.NOTHING
        if self._since_ms is None:
            self._since_ms = now_ms
        is_due = now_ms - self._since_ms >= IDLE_FOR_MS
        return IdleStep.BEGIN if is_due and self._stages and not rehearses else IdleStep.NOTHING
