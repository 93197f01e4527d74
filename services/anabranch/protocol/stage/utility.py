"""Utility of results by their delay and by the rows that they lack, and the choice of the stage
that leaves out rows.

Theory of operation. An output has quality-of-service functions, as in Aurora (Abadi et al.,
*Aurora: a new model and architecture for data stream management*, VLDB Journal 12(2), 2003): its
utility, from 0 to 1, by the delay of its results and by the share of rows that they lack. Each is a
line through points that the pipeline file names (``Curve``), in per mille, so that every replica
computes the same number. The utility of a result is the product of both.

*Choice.* Where stages share a node that cannot process all rows, ``choose`` decides which stage
leaves out rows, and how many. It takes steps of STEP per mille, each from the stage where it costs
least utility per second of processor time that it saves, until enough is saved. A curve over lost
rows is concave: each further row that is lost costs at least as much as the one before. So the
cheapest next step is never hidden behind a dearer one, and steps in order of their price are the
best choice, up to the size of a step.

*Chains.* Results lack what each stage on the way to their output leaves out, so of stages one after
the other the shares that they keep are multiplied; those of stages side by side too, since a result
may be made from rows of both. A step of one changes the price of the next step of all others on
that way, so ``choose`` computes all prices anew for each step. It begins with all rows kept, not
with what was kept before: otherwise the stages of a chain would take turns, since each is cheap
while another leaves out rows. What stages on other nodes leave out is not its choice, and enters as
it was measured.

Invariants:
    UT1 the utility of a curve is within 0..1000, and does not rise with delay or loss.
    UT2 a curve over lost rows is concave, up to the loss of all rows.
    UT3 each step that is taken costs at most as much utility per processor time as any other step
        that could have been taken instead.
    UT4 no step is taken beyond what is needed; less is saved than needed only if no row is left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Final

from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.stage.kept_rows import KEPT_ALL, shed_by

FULL: Final = 1_000
"""Utility of a result that is in time and lacks no row, in per mille."""

STEP: Final = 50
"""Size of a step of ``choose``, in per mille of a stage's rows. The measured costs that it decides
by are no better known.
"""

Point = tuple[int, int]
"""Point of a curve: delay in ms, or lost rows in per mille; and the utility there, in per mille."""


def wrong_point(points: Sequence[Point], *, is_concave: bool) -> tuple[int, str] | None:
    """Return the first point that no curve may have (UT1, UT2), by its index, and why; None if all
    are right.
    """
    for index, (at, utility) in enumerate(points):
        if not 0 <= utility <= FULL:
            return index, "a utility is from 0 to 1"
        if index == 0:
            if at != 0:
                return 0, "the first point must be at 0"
            continue
        before_at, before = points[index - 1]
        if at <= before_at:
            return index, "points must ascend"
        if utility > before:
            return index, "more delay or loss must not be worth more"
        if is_concave and index > 1:
            first_at, first = points[index - 2]
            if (first - before) * (at - before_at) > (before - utility) * (before_at - first_at):
                return index, (
                    "the line must not get flatter: each further row that is lost must cost as much"
                    " as the one before, or more"
                )
    if is_concave and points and points[-1][0] != KEPT_ALL:
        return len(points) - 1, "the last point must be at 100%"
    return None


@dataclass(frozen=True, slots=True)
class Curve:
    """Utility by delay or by loss: straight between its points, constant after the last.

    Raises:
        ConfigurationError: the curve has no points, or an invalid one.
    """

    points: tuple[Point, ...]
    is_concave: bool = False
    """Whether UT2 is required: of a curve over lost rows."""

    def __post_init__(self) -> None:
        wrong = wrong_point(self.points, is_concave=self.is_concave)
        if wrong is not None or not self.points:
            raise ConfigurationError(f"no curve of utility: {self.points}: {wrong}")

    def value(self, at: int) -> int:
        """Return the utility at ``at``, in per mille, rounded down."""
        for (first_at, first), (last_at, last) in pairwise(self.points):
            if at < last_at:
                return first - -(-(first - last) * (at - first_at) // (last_at - first_at))
        return self.points[-1][1]

    @property
    def knee(self) -> int:
        """Last place up to which the utility is that at 0."""
        highest = self.points[0][1]
        return max(at for at, utility in self.points if utility == highest)


IN_PROPORTION: Final = Curve(((0, FULL), (KEPT_ALL, 0)), is_concave=True)
"""Utility by lost rows where nothing is stated."""


@dataclass(frozen=True, slots=True)
class Qos:
    """Quality-of-service functions of an output."""

    latency: Curve
    """Utility by the delay of results, in ms from the end of their bucket."""
    loss: Curve
    """Utility by the share of rows that results lack, in per mille."""

    @classmethod
    def usual(cls, bound_ms: int) -> Qos:
        """Return the functions of an output for which the file states none: full utility up to
        ``bound_ms``, the delay that is promised, none from twice that delay; and in proportion to
        the rows.
        """
        return cls(Curve(((0, FULL), (bound_ms, FULL), (2 * bound_ms, 0))), IN_PROPORTION)

    def utility(self, delay_ms: int, shed: int) -> int:
        """Return the utility of results, in per mille.

        Args:
            delay_ms: Delay of the results; a negative one, by a clock that differs, counts as 0.
            shed: Per mille of the rows that they lack.
        """
        return self.latency.value(max(0, delay_ms)) * self.loss.value(shed) // FULL


@dataclass(frozen=True, slots=True)
class ShownLoss:
    """Loss that an output shows of the rows of a stage."""

    curve: Curve
    """Utility of the output by the rows that its results lack."""
    shed: int = 0
    """Per mille of the rows that stages of other nodes on the way leave out."""
    along: frozenset[str] = frozenset()
    """Other stages of the node on the way, before the stage or after it."""


@dataclass(frozen=True, slots=True)
class StageLoad:
    """Stage of a node that is to save processor time."""

    stage: str
    cpu_us: int
    """Processor time that all of its rows take on the node, in us per second."""
    outputs: tuple[ShownLoss, ...]
    """Each output that shows its results."""

    def utility(self, kept: int, others: Mapping[str, int]) -> int:
        """Return the utility of all its outputs together if it keeps ``kept`` per mille, and each
        of the ``others`` what is stated there. One that is not stated keeps all.
        """
        total = 0
        for output in self.outputs:
            lacked = shed_by(kept, (output.shed,))
            for name in sorted(output.along):  # each product is rounded
                lacked = shed_by(others.get(name, KEPT_ALL), (lacked,))
            total += output.curve.value(lacked)
        return total


@dataclass(frozen=True, slots=True)
class SheddingStep:
    """Row of the decision table: what the next step of a stage costs and saves."""

    stage: str
    kept: int
    """Per mille of its rows that the stage keeps after the step."""
    lost: int
    """Utility that the step costs, over all outputs, in per mille."""
    saved_us: int
    """Processor time that the step saves, in us per second."""
    is_taken: bool = False

    @property
    def price(self) -> Fraction:
        """Utility lost per processor time saved."""
        return Fraction(self.lost, self.saved_us)


@dataclass(frozen=True, slots=True)
class Choice:
    """Share of its rows that each stage keeps, and the table by which it was chosen."""

    kept: Mapping[str, int]
    saved_us: int
    table: tuple[SheddingStep, ...]
    """The steps that were taken, in order; then the next ones of each stage, cheapest first."""


def choose(loads: Sequence[StageLoad], needed_us: int) -> Choice:
    """Return which stages leave out how many rows, so that the node saves ``needed_us`` of
    processor time per second (UT3, UT4). Of equal steps the first by name is taken.
    """
    by_name = {load.stage: load for load in loads}
    kept = dict.fromkeys(by_name, KEPT_ALL)
    taken: list[SheddingStep] = []
    saved_us = 0
    while True:
        found = (_step(load, kept) for load in by_name.values())
        steps = sorted(
            (step for step in found if step is not None), key=lambda each: (each.price, each.stage)
        )
        if saved_us >= needed_us or not steps:
            return Choice(kept, saved_us, (*taken, *steps))
        step = steps[0]
        taken.append(SheddingStep(step.stage, step.kept, step.lost, step.saved_us, is_taken=True))
        kept[step.stage] = step.kept
        saved_us += step.saved_us


def _step(load: StageLoad, kept: Mapping[str, int]) -> SheddingStep | None:
    """Return the next step of a stage, where stages keep ``kept`` per mille; None: it saves
    nothing.
    """
    own = kept[load.stage]
    next_kept = max(0, own - STEP)
    saved_us = load.cpu_us * (own - next_kept) // KEPT_ALL
    if saved_us == 0:
        return None
    lost = load.utility(own, kept) - load.utility(next_kept, kept)
    return SheddingStep(load.stage, next_kept, lost, saved_us)
