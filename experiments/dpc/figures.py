"""Figures of the published experiments, from a trace of boundary records. Pure: the same for real
processes and for virtual time.

Definitions, as published, for the output stream of a pipeline:

new result      a bucket that a boundary record, stable or tentative, closes before any other did.
                Corrections of it are not new.
delay           time of that record at a reader minus the time at which the bucket's input was due:
                its end, by the sources' schedule.
longest delay   of all new results from the failure's first bucket to those due a moment after the
                corrections: ``Procnew``.
normal delay    the same before the failure, in the same run: the failure-free latency. ``Procnew``
                minus its median: ``Delaynew``.
tentative rows  tuples in tentative buckets as they were closed: ``Ntentative``.
done            the time at which the stable output passed the last tentative bucket: what a
                REC_DONE says.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

AFTER_MS: Final = 1_500
"""Time after the corrections, in ms, within which results that are due still count to the
failure.
"""


@dataclass(frozen=True, slots=True)
class Event:
    """An accepted boundary record of a stream, as its reader saw it."""

    at_ms: float
    replica: str
    is_tentative: bool
    closed: int
    """The stream is closed up to here: stable, or tentatively by this writer."""
    rows: int
    """Tuples in the buckets that this record closed: anew if it is stable, by its writer if
    it is tentative.
    """
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NewResult:
    """A bucket, when it was first seen closed."""

    bucket: int
    at_ms: float
    delay_ms: float
    is_tentative: bool


@dataclass(frozen=True, slots=True)
class Cut:
    """A failure as it was made: ``bucket`` is the first one that the input lacked."""

    bucket: int
    at_ms: float
    heal_ms: float

    @property
    def seconds(self) -> float:
        """How long."""
        return (self.heal_ms - self.at_ms) / 1000


@dataclass(frozen=True, slots=True)
class FailureFigures:
    """Effects of one failure on the output."""

    seconds: float
    longest_ms: float
    """Procnew."""
    normal_ms: float
    """Median before the failure."""
    normal_max_ms: float
    first_ms: float | None
    """Delay of the first tentative result: the wait as it was used. None: there was none."""
    later_ms: float | None
    """Longest delay of the new results after the first second of tentative ones."""
    correcting_ms: float
    """Longest delay of new results from the end of the failure to the end of the corrections."""
    tentative_rows: int
    tentative_s: float
    """From the first to the last tentative bucket, in seconds of input."""
    done_ms: float | None
    """From the end of the failure to the end of the corrections. None: nothing to correct, or
    the corrections did not end (``is_corrected``).
    """
    speed: float | None = None
    """Seconds of input that one second of correcting brings: above 1 it catches up. None:
    nothing was corrected.
    """

    @property
    def delay_ms(self) -> float:
        """Delaynew: what the failure added."""
        return self.longest_ms - self.normal_ms

    @property
    def is_corrected(self) -> bool:
        """Whether what was tentative was corrected while the run lasted."""
        return self.done_ms is not None or not self.tentative_rows


@dataclass(slots=True)
class Trace:
    """Trace of one stream: its events in order, and when each bucket was due."""

    due_ms: dict[int, float] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)

    def new_results(self) -> list[NewResult]:
        """In order."""
        return new_results(self.events, self.due_ms)


def new_results(events: Iterable[Event], due_ms: Mapping[int, float]) -> list[NewResult]:
    """Every bucket that was due, when it was first closed."""
    found: list[NewResult] = []
    reached = 0
    for event in events:
        found += [
            NewResult(bucket, event.at_ms, event.at_ms - due_ms[bucket], event.is_tentative)
            for bucket in range(reached + 1, event.closed + 1)
            if bucket in due_ms
        ]
        reached = max(reached, event.closed)
    return found


def spread(values: Sequence[float]) -> tuple[float, float, float]:
    """(least, median, greatest); zeros of nothing."""
    return (min(values), median(values), max(values)) if values else (0.0, 0.0, 0.0)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that ``share`` of ``values`` do not exceed; 0 if there are none."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def failure_figures(trace: Trace, cut: Cut, *, normal_s: float = 4.0) -> FailureFigures:
    """Compute the effects of the failure ``cut``. The ``normal_s`` seconds before it give the
    normal delay.
    """
    results = trace.new_results()
    before = [
        r.delay_ms
        for r in results
        if r.bucket < cut.bucket and cut.at_ms - 1000 * normal_s <= r.at_ms < cut.at_ms
    ]
    tentative = [e for e in trace.events if e.is_tentative and e.at_ms >= cut.at_ms]
    last = max((e.closed for e in tentative), default=0)
    done_at = next(
        (
            e.at_ms
            for e in trace.events
            if not e.is_tentative and e.closed >= last and e.at_ms >= cut.heal_ms
        ),
        None,
    )
    end_ms = (
        cut.heal_ms if not tentative else float("inf") if done_at is None else done_at
    ) + AFTER_MS
    affected = [r for r in results if r.bucket >= cut.bucket and trace.due_ms[r.bucket] <= end_ms]
    made = [r for r in affected if r.is_tentative]
    later = [r.delay_ms for r in made if r.at_ms >= made[0].at_ms + 1000]
    corrections = [
        e
        for e in trace.events
        if not e.is_tentative and e.at_ms >= cut.heal_ms and e.closed in trace.due_ms
    ]
    corrections = [e for e in corrections if done_at is None or e.at_ms <= done_at]
    corrected_ms = (
        trace.due_ms[corrections[-1].closed] - trace.due_ms[cut.bucket]
        if corrections and tentative
        else 0.0
    )
    return FailureFigures(
        seconds=cut.seconds,
        longest_ms=max((r.delay_ms for r in affected), default=0.0),
        normal_ms=median(before) if before else 0.0,
        normal_max_ms=max(before, default=0.0),
        first_ms=made[0].delay_ms if made else None,
        later_ms=max(later, default=None),
        correcting_ms=max((r.delay_ms for r in affected if r.at_ms >= cut.heal_ms), default=0.0),
        tentative_rows=sum(e.rows for e in tentative if e.at_ms <= end_ms),
        tentative_s=(
            (trace.due_ms[made[-1].bucket] - trace.due_ms[made[0].bucket]) / 1000 if made else 0.0
        ),
        done_ms=done_at - cut.heal_ms if tentative and done_at is not None else None,
        speed=(
            corrected_ms / max(1.0, corrections[-1].at_ms - cut.heal_ms)
            if corrected_ms > 0
            else None
        ),
    )


@dataclass(frozen=True, slots=True)
class DeathFigures:
    """Effects of a replica's death on the stable results."""

    before_median_ms: float
    before_max_ms: float
    after_median_ms: float
    after_max_ms: float
    tentative_rows: int


def death_figures(trace: Trace, at_ms: float, *, window_ms: float = 5_000) -> DeathFigures:
    """Delays of the new results that came in the time before the death at ``at_ms``, and of
    those due until so long after it.
    """
    results = trace.new_results()
    before = [r.delay_ms for r in results if at_ms - window_ms <= r.at_ms < at_ms]
    after = [
        r.delay_ms
        for r in results
        if at_ms <= r.at_ms and trace.due_ms[r.bucket] < at_ms + window_ms
    ]
    rows = sum(
        e.rows for e in trace.events if e.is_tentative and at_ms <= e.at_ms < at_ms + window_ms
    )
    return DeathFigures(
        spread(before)[1], spread(before)[2], spread(after)[1], spread(after)[2], rows
    )


def in_words(figures: FailureFigures) -> str:
    """One line for people."""
    done = "nothing to correct" if not figures.tentative_rows else "corrections not finished"
    if figures.done_ms is not None:
        done = f"done {figures.done_ms / 1000:.2f} s after the heal"
    return (
        f"{figures.seconds:.0f} s failure: longest delay {figures.longest_ms:.0f} ms (normal"
        f" {figures.normal_ms:.0f}, max {figures.normal_max_ms:.0f}), first"
        f" {figures.first_ms or 0:.0f}, later {figures.later_ms or 0:.0f}, correcting"
        f" {figures.correcting_ms:.0f}; {figures.tentative_rows} tentative rows; {done}"
    )
