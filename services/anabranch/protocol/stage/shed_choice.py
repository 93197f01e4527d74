"""Choice of the stages of one node that leave out rows while the node cannot process all of them.

Theory of operation. Stages that share a node are late together, whichever of them got more rows:
each takes cores from the others. A stage that only observes its own delay
(``protocol.stage.load_control``) then leaves out its own rows, however much they are worth. So the
node adds up what the rows of all its stages need (``StageDemand``), and where that is more than its
cores give, ``protocol.stage.utility.choose`` distributes the difference: the stages whose rows are
worth least for the processor time that they take leave out theirs. The result is a *limit* for each
stage, the per mille that its branch keeps at most. The others get the cores, and their own control
lets them keep more from batch to batch.

A limit is set only when a stage is late by its own measurement. Estimates of processor time alone
begin no branch: a node whose cores are full and whose results come in time needs no help. Once
limits are set, no stage is late any more, so they stay until everything would fit. No stage of the
node corrects while there are limits, since the corrections of one would cost new results of
another.

Afterwards stages correct one after the other, as many at once as there are cores. Side by side each
would take longer, and meanwhile all their branches would keep less. The stage with the smallest
backlog comes first, so that as many as possible are done soon. One whose input is missing has
nothing to correct, and is not waited for.

A limit falls at once and rises slowly, like the share that a stage keeps by itself. A limit that
was estimated too high does no harm: the stage that is still late leaves out more by itself.

Invariants:
    NL1 limits begin only while a stage is late, several stages may leave out rows, and all of them
        need more than the cores give.
    NL2 with the limits the stages need at most FILLED of the cores, or every stage keeps no more
        than a step of ``choose``, or KEPT_LEAST.
    NL3 limits end once everything has needed less than FILLED of the cores for HOLD_MS.
    NL4 a limit rises by at most KEPT_RISE per decision, and only by RISE_LEAST or more.
    NL5 without limits at most one stage for each core corrects, the one with the smallest backlog
        first, and continues until it is done, late, or at a hole.
    NL6 a node decides at most once in CHOOSE_EVERY_MS. What its other stages need is what they took
        since its previous decision; at the first one they need nothing.
    NL7 rows that other nodes left out count once: where the node's first stage on the way to an
        output reads what lacks them. What the node's own stages leave out is part of the choice, so
        the stages never take turns. What other nodes leave out behind them is not known.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from anabranch.protocol.stage.kept_rows import KEPT_ALL
from anabranch.protocol.stage.load_control import HOLD_MS, KEPT_LEAST, KEPT_RISE, LoadDemand
from anabranch.protocol.stage.utility import (
    STEP,
    Curve,
    SheddingStep,
    ShownLoss,
    StageLoad,
    choose,
)

CHOOSE_EVERY_MS: Final = 1_000
"""Interval between two decisions of a node, in ms: a few batches of each stage."""

FILLED: Final = 900
"""Use of a node's cores, in per mille, that the limits aim at. What is left is for the corrections
of stages that need no limit, and for errors of measurement.
"""
RISE_LEAST: Final = 2 * STEP
"""Minimum rise of a limit: one step is within the noise of measured costs."""


@dataclass(frozen=True, slots=True)
class StageDemand:
    """Need of one stage of a node for processor time, for the node's choice of the stages that
    leave out rows.
    """

    load: StageLoad
    is_late: bool
    """Whether its own delay makes its branch leave out rows."""
    backlog: int = 0
    """Number of rows that it has to correct, and can; 0 if it has no branch that left out rows."""


@dataclass(frozen=True, slots=True)
class StageWay:
    """Position of a stage in its pipeline, as far as its rows are worth something there."""

    before: Collection[str]
    """All stages whose results it reads, directly or through others."""
    outputs: Sequence[tuple[Curve, frozenset[str]]]
    """Each output that shows what is made from its results: utility by lost rows, and the other
    stages on the ways to it through this one.
    """


class NodeDemands:
    """Demands of the stages of one node, from one decision to the next. ``now_ms`` is monotonic."""

    def __init__(self) -> None:
        """Start before the first decision."""
        self._decided_ms: int | None = None
        self._before_ms: Mapping[str, float] = {}

    def is_due(self, now_ms: int) -> bool:
        """Return whether to decide now (NL6)."""
        return self._decided_ms is None or now_ms - self._decided_ms >= CHOOSE_EVERY_MS

    def read(
        self,
        now_ms: int,
        totals_ms: Mapping[str, float],
        needs: Mapping[str, LoadDemand],
        ways: Mapping[str, StageWay],
    ) -> tuple[list[StageDemand], int]:
        """Return the demands of the stages that may leave out rows, and the processor time that all
        others take, in us per second, since the previous call.

        Args:
            now_ms: Now.
            totals_ms: Processor time that each stage has taken so far, in ms.
            needs: Needs of the stages that may leave out rows, where they are known.
            ways: Position of each of these.
        """
        during_ms = 0 if self._decided_ms is None else now_ms - self._decided_ms
        others_ms = sum(
            total_ms - self._before_ms.get(stage, 0.0)
            for stage, total_ms in totals_ms.items()
            if stage not in needs
        )
        self._decided_ms, self._before_ms = now_ms, totals_ms
        demands = [
            StageDemand(
                StageLoad(stage, need.cpu_us, _shown(stage, needs, ways)),
                need.is_late,
                need.backlog,
            )
            for stage, need in needs.items()
        ]
        return demands, int(1_000_000 * others_ms / during_ms) if during_ms else 0


def _shown(
    stage: str, needs: Mapping[str, LoadDemand], ways: Mapping[str, StageWay]
) -> tuple[ShownLoss, ...]:
    """Return what the outputs behind ``stage`` show of its rows (NL7)."""
    own = needs.keys() & {stage, *ways[stage].before}
    first = [each for each in own if own.isdisjoint(ways[each].before)]
    shed = max(needs[each].inputs_shed for each in first)
    return tuple(
        ShownLoss(curve, shed, along & needs.keys()) for curve, along in ways[stage].outputs
    )


@dataclass(frozen=True, slots=True)
class Limits:
    """Decision of a node."""

    kept: Mapping[str, int]
    """Per mille that each stage keeps at most."""
    are_set: bool
    """Whether there are limits, though perhaps not for each stage."""
    waiting: frozenset[str]
    """Stages whose corrections wait for those of others (NL5)."""
    next_steps: Mapping[str, SheddingStep]
    """Next step of each stage: the utility that it would cost and the processor time that it would
    save. Shown to people.
    """

    def of(self, stage: str) -> int | None:
        """Return the limit of ``stage``; KEPT_ALL if it only must not correct, None if it may."""
        if self.are_set:
            return self.kept.get(stage, KEPT_ALL)
        return KEPT_ALL if stage in self.waiting else None


class ShedChoice:
    """Limits of the stages of one node. ``now_ms`` is monotonic."""

    def __init__(self, cores: int) -> None:
        """Start without limits. ``cores``: number of the node's cores."""
        self._cores_us = cores * 1_000_000
        self._kept: dict[str, int] = {}
        self.is_limiting = False
        """Whether stages have limits."""
        self._fits_ms: int | None = None
        """Time since which everything has fitted."""
        self._cores = cores
        self._correcting: frozenset[str] = frozenset()
        """Stages whose corrections run now (NL5)."""

    def decide(self, now_ms: int, demands: Sequence[StageDemand], others_us: int) -> Limits:
        """Return the limits of the stages.

        Args:
            now_ms: Now.
            demands: Stages that may leave out rows, and whose cost is known.
            others_us: Processor time that all other stages of the node take, in us per second.
        """
        loads = [demand.load for demand in demands]
        room_us = self._cores_us * FILLED // 1_000
        needed_us = sum(load.cpu_us for load in loads) + others_us - room_us
        self._follow(now_ms, demands, needed_us)
        chosen = choose(loads, needed_us if self.is_limiting else 0)
        wanted = chosen.kept
        self._kept = {
            load.stage: self._limit(self._kept.get(load.stage, KEPT_ALL), wanted[load.stage])
            for load in loads
        }
        steps = {step.stage: step for step in reversed(chosen.table) if not step.is_taken}
        return Limits(dict(self._kept), self.is_limiting, self._take_turns(demands), steps)

    def _follow(self, now_ms: int, demands: Sequence[StageDemand], needed_us: int) -> None:
        """Begin or end to limit stages (NL1, NL3)."""
        if needed_us > 0:
            self._fits_ms = None
            over_us = needed_us - self._cores_us * (1_000 - FILLED) // 1_000
            is_late = any(demand.is_late for demand in demands)
            self.is_limiting = self.is_limiting or (over_us > 0 and is_late and len(demands) > 1)
        elif self._fits_ms is None:
            self._fits_ms = now_ms
        elif now_ms - self._fits_ms >= HOLD_MS:
            self.is_limiting = False

    def _take_turns(self, demands: Sequence[StageDemand]) -> frozenset[str]:
        """Decide which stages correct, and return those that wait (NL5)."""
        if self.is_limiting:
            self._correcting = frozenset()
            return frozenset()
        before = self._correcting
        behind = [each for each in demands if each.backlog]
        ready = sorted(
            (each.load.stage not in before, each.backlog, each.load.stage)
            for each in behind
            if not each.is_late
        )
        self._correcting = frozenset(stage for _, _, stage in ready[: self._cores])
        return frozenset(each.load.stage for each in behind) - self._correcting

    def _limit(self, before: int, wanted: int) -> int:
        """Return the limit of a stage after ``before`` (NL4)."""
        if not self.is_limiting:
            return KEPT_ALL
        wanted = max(KEPT_LEAST, wanted)
        if wanted >= min(KEPT_ALL, before + RISE_LEAST):
            return min(wanted, before + KEPT_RISE)
        return min(before, wanted)
