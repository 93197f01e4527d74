"""Load of one node: measures what the batches of its stages take of the cores, and limits those
whose rows are worth least while the node cannot process all (``protocol.stage.shed_choice``).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Protocol

from anabranch.pipeline.model import Pipeline
from anabranch.pipeline.waits import losses, may_shed, stages_before
from anabranch.ports import Clock
from anabranch.protocol.stage.load_control import LoadDemand
from anabranch.protocol.stage.shared_cores import SharedCores
from anabranch.protocol.stage.shed_choice import (
    Limits,
    NodeDemands,
    ShedChoice,
    StageDemand,
    StageWay,
)


class ShedStage(Protocol):
    """Replica of a stage, as far as its node decides about its load."""

    def demand(self) -> LoadDemand | None:
        """Return what it needs; None while that is unknown."""
        ...

    def limit(self, kept: int | None) -> None:
        """Let it keep ``kept`` per mille of its rows at most; None: there are no limits."""
        ...


class NodeLoad:
    """Cores of a node, and the limits of its stages. ``began`` and ``ended`` are called on the
    threads of queries, all else on that of the node.
    """

    def __init__(self, pipeline: Pipeline, clock: Clock, cores: int) -> None:
        self._pipeline, self._clock = pipeline, clock
        self._lock = threading.Lock()
        self._cores = SharedCores(cores)
        self._demands, self._choice = NodeDemands(), ShedChoice(cores)
        self._ways: dict[str, StageWay] = {}
        """Position of each stage that was asked for."""
        self.table: list[dict[str, object]] = []
        """Entry of each stage that may leave out rows, cheapest first, for the status."""

    def began(self, stage: str, query: str) -> None:
        """Record that a batch of ``query`` begins."""
        with self._lock:
            self._cores.began(stage, query, self._clock.monotonic_ms())

    def ended(self, stage: str, query: str) -> float:
        """Record that the batch has ended, or was dropped. Return its processor time, in ms."""
        with self._lock:
            return self._cores.ended(stage, query, self._clock.monotonic_ms())

    def dropped(self, stage: str) -> None:
        """Forget the batches of ``stage``, whose replica has ended."""
        with self._lock:
            self._cores.dropped(stage)

    def decide(self, stages: Mapping[str, ShedStage]) -> None:
        """Limit ``stages``, the replicas on this node by stage, if that is due."""
        now_ms = self._clock.monotonic_ms()
        if not self._demands.is_due(now_ms):
            return
        with self._lock:
            totals_ms = self._cores.totals_ms(now_ms)
        needs = {
            name: demand
            for name, stage in stages.items()
            if may_shed(self._pipeline, name) and (demand := stage.demand()) is not None
        }
        ways = {name: self._way(name) for name in needs}
        demands, others_us = self._demands.read(now_ms, totals_ms, needs, ways)
        limits = self._choice.decide(now_ms, demands, others_us)
        for name, stage in stages.items():
            stage.limit(limits.of(name))
        self.table = _table(demands, limits)

    def _way(self, stage: str) -> StageWay:
        """Return the position of ``stage``. Computed once: it takes long in a large pipeline."""
        if stage not in self._ways:
            pipeline = self._pipeline
            self._ways[stage] = StageWay(stages_before(pipeline, stage), losses(pipeline, stage))
        return self._ways[stage]


def _table(demands: list[StageDemand], limits: Limits) -> list[dict[str, object]]:
    """Return the table by which the node decides, for people: the stages by the price of their next
    step, those without one last.
    """
    found: list[dict[str, object]] = []
    steps = limits.next_steps
    by_price = sorted(
        (each.load for each in demands),
        key=lambda load: (
            load.stage not in steps,
            steps[load.stage].price if load.stage in steps else 0,
            load.stage,
        ),
    )
    for load in by_price:
        step = steps.get(load.stage)
        found.append(
            {
                "stage": load.stage,
                "limit_permille": limits.kept[load.stage],
                "processor_us_per_s": load.cpu_us,
                "step_utility_lost_permille": 0 if step is None else step.lost,
                "step_processor_saved_us_per_s": 0 if step is None else step.saved_us,
            }
        )
    return found
