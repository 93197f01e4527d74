"""Load of one node: measures what the batches of its stages take of the cores, and limits those
whose rows are worth least while the node cannot process all (``protocol.stage.shed_choice``).
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from typing import Final, Protocol

from anabranch.pipeline.model import Pipeline
from anabranch.pipeline.waits import Losses, losses, may_shed, stages_before
from anabranch.ports import Clock
from anabranch.protocol.stage.load_control import LoadDemand
from anabranch.protocol.stage.shared_cores import SharedCores
from anabranch.protocol.stage.shed_choice import Limits, ShedChoice, StageDemand
from anabranch.protocol.stage.utility import ShownLoss, StageLoad

CHOOSE_EVERY_MS: Final = 1_000
"""Interval between two decisions, in ms: a few batches of each stage."""


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
        self._choice = ShedChoice(cores)
        self._before_ms: Mapping[str, float] = {}
        self._decided_ms: int | None = None
        self._ways: dict[str, tuple[Collection[str], Losses]] = {}
        """Stages before each stage, and the utility curves of the outputs behind it, by the stage's
        name.
        """
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
        """Limit ``stages``, the replicas on this node by stage, if CHOOSE_EVERY_MS have passed."""
        now_ms = self._clock.monotonic_ms()
        if self._decided_ms is not None and now_ms - self._decided_ms < CHOOSE_EVERY_MS:
            return
        during_ms = 0 if self._decided_ms is None else now_ms - self._decided_ms
        self._decided_ms = now_ms
        with self._lock:
            totals_ms = self._cores.totals_ms(now_ms)
        used_us = {
            stage: int(1_000_000 * (total_ms - self._before_ms.get(stage, 0.0)) / during_ms)
            for stage, total_ms in totals_ms.items()
            if during_ms
        }
        self._before_ms = totals_ms
        needs = {
            name: demand
            for name, stage in stages.items()
            if may_shed(self._pipeline, name) and (demand := stage.demand()) is not None
        }
        demands = [
            StageDemand(
                StageLoad(name, demand.cpu_us, self._outputs(name, needs)),
                demand.is_late,
                demand.backlog,
            )
            for name, demand in needs.items()
        ]
        known = {demand.load.stage for demand in demands}
        others_us = sum(us for stage, us in used_us.items() if stage not in known)
        limits = self._choice.decide(now_ms, demands, others_us)
        for name, stage in stages.items():
            stage.limit(limits.of(name))
        self.table = _table(demands, limits)

    def _outputs(self, stage: str, needs: Mapping[str, LoadDemand]) -> tuple[ShownLoss, ...]:
        """Return what the outputs behind ``stage`` show of its rows. ``needs``: of the stages whose
        rows the node may leave out.

        What other nodes left out before is what the input of the first of these stages on the way
        lacks. What other nodes leave out after ``stage`` is not known here.
        """
        before, losses_behind = self._way(stage)
        own = needs.keys() & {stage, *before}
        first = [each for each in own if own.isdisjoint(self._way(each)[0])]
        shed = max(needs[each].inputs_shed for each in first)
        return tuple(ShownLoss(curve, shed, along & needs.keys()) for curve, along in losses_behind)

    def _way(self, stage: str) -> tuple[Collection[str], Losses]:
        """Return the stages before ``stage`` and the outputs behind it. Computed once for each
        stage: it takes long in a large pipeline.
        """
        if stage not in self._ways:
            before = stages_before(self._pipeline, stage)
            self._ways[stage] = before, losses(self._pipeline, stage)
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
