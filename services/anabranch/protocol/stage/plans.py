"""What a stage's query plan allows: is it stateful, may several buckets run in one batch?

Theory of operation. Replicas see the same buckets but not in the same batches, and a drained
backlog takes many at once. So a batch may hold several buckets only if the result cannot depend on
how buckets were grouped: the plan is *batch-safe*. That is decided by an allow-list of operators
and expressions, each of which has a test on real Spark that compares one bucket per batch with all
in one batch. Everything else runs the rows of one bucket per batch, everywhere.

The empty buckets before and after them go into the same batch, unless the plan *has timers*: what
later rows give then depends on whether time has passed in a batch before theirs. A timer fires, or
a key is forgotten, after the rows of its batch, and may set the next timer. So every bucket has its
batch then. Windows, joins and dropDuplicates have state that expires, too, but no row that comes
later can meet it: it is for times that have passed.

A *stateful* plan makes results from rows of earlier batches, too.

The shell reads names from the analysed plan (``PlanFacts``), and says what is known of them
(``KnownNames``); what follows is decided here.

Invariants:
    PL1 an operator or expression that is not known is not batch-safe.
    PL2 an operator that is not known to be stateless is stateful.
    PL3 a stateful operator that is not known, a processor that is not known to sort its rows, or a
        join in which a row's time may end while it is being joined, has timers.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KnownNames:
    """What is known of an engine's operators, joins, aggregates and expressions, by the names that
    ``PlanFacts`` uses: an allow-list, each entry of which has a test on the real engine.
    """

    stateless: frozenset[str]
    """Operators that work row by row: a row's results depend on that row alone. Functions over
    whole batches are here for ``stateful`` only.
    """
    whole_batch: frozenset[str]
    """Stateless operators in which the user's function sees rows together whose cut depends on the
    batch: not batch-safe.
    """
    stateful_safe: frozenset[str]
    """Stateful operators that are batch-safe under the conditions that ``judge`` checks."""
    first_row_kept: frozenset[str]
    """Stateful operators that keep whichever row came first, for a time that starts with it."""
    safe_joins: frozenset[str]
    joins_across_empty_buckets: frozenset[str]
    """Joins that give the same where empty buckets after their rows are in the same batch."""
    order_free_aggregates: frozenset[str]
    """Aggregates whose result does not depend on the order of rows, given exact types."""
    tied_aggregates: frozenset[str]
    """Aggregates that take one of several rows that are equally good."""
    not_deterministic: frozenset[str]
    """Expressions that give another result at every replica, though the engine does not say so."""


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """What the shell read from an analysed plan: names, as the engine has them."""

    operators: frozenset[str]
    expressions: frozenset[str]
    not_deterministic: frozenset[str] = frozenset()
    """Expressions, and functions of the user, that say so of themselves. Not aggregates: what
    these depend on is known.
    """
    aggregates: frozenset[str] = frozenset()
    inexact_sums: tuple[str, ...] = ()
    """Aggregates (sum, average) that add floating-point numbers, as text."""
    sets_shown: tuple[str, ...] = ()
    """Uses of collect_set other than directly within sort_array or size, as text."""
    join_types: frozenset[str] = frozenset()
    deduplicated: tuple[str, ...] = ()
    """Columns of a dropDuplicates that is not over whole rows."""
    inputs_unused: tuple[str, ...] = ()
    stateful_processors: frozenset[str] = frozenset()
    """Classes of transformWithState processors."""
    batch_safe_processors: frozenset[str] = frozenset()
    """Those of them that say that they sort rows and fire due timers between them
    (``anabranch.stateful``).
    """


@dataclass(frozen=True, slots=True)
class PlanTraits:
    """What follows: for the planner, and for a person (``anabranch check``)."""

    is_stateful: bool
    is_batch_safe: bool
    reasons: tuple[str, ...] = ()
    """Why the plan is not batch-safe."""
    errors: tuple[str, ...] = ()
    """Why the plan cannot be run at all."""
    has_timers: bool = False
    """It is not batch-safe, and it is stateful, and an empty bucket needs a batch of its own,
    too.
    """

    @property
    def batch(self) -> str:
        """What one batch takes, for people."""
        if self.is_batch_safe:
            return "several buckets per batch"
        return (
            "one bucket per batch, empty ones too"
            if self.has_timers
            else "rows of one bucket per batch"
        )


def judge(facts: PlanFacts, known: KnownNames) -> PlanTraits:
    """Decide what a plan allows, of an engine of which so much is known."""
    stateful = facts.operators - known.stateless
    reasons: list[str] = [
        f"operator {name} is not on the batch-safe list"
        for name in sorted(stateful - known.stateful_safe - known.first_row_kept)
    ]
    reasons += [
        f"{name} sees whole batches, whose cut is not fixed"
        for name in sorted(facts.operators & known.whole_batch)
    ]
    reasons += [
        f"aggregate {name} depends on the order of rows"
        for name in sorted(facts.aggregates - known.order_free_aggregates - known.tied_aggregates)
    ]
    reasons += [
        f"aggregate {name} can tie, and then takes whichever row came first"
        for name in sorted(facts.aggregates & known.tied_aggregates)
    ]
    reasons += [
        f"{text} adds floating-point numbers, whose sum depends on their order"
        for text in facts.inexact_sums
    ]
    reasons += [
        f"{text} has no fixed order: take it within the same expression as sort_array({text}) or"
        f" size({text})"
        for text in facts.sets_shown
    ]
    reasons += [
        f"{kind} join: rows without a match come after a delay that is not on the list"
        for kind in sorted(facts.join_types - known.safe_joins)
    ]
    if facts.deduplicated:
        reasons.append(
            f"dropDuplicates over {', '.join(facts.deduplicated)} keeps whichever row came first;"
            " over whole rows it would be batch-safe"
        )
    if facts.operators & known.first_row_kept:
        reasons.append(
            "dropDuplicatesWithinWatermark keeps whichever row came first, for a time that starts"
            " with it"
        )
    reasons += [
        f"processor {name} is not known to sort its rows; derive it from"
        " anabranch.stateful.BatchSafeProcessor"
        for name in sorted(facts.stateful_processors - facts.batch_safe_processors)
    ]
    errors = [
        f"{name} gives another result at every replica and after every restart"
        for name in sorted(facts.expressions & known.not_deterministic | facts.not_deterministic)
    ]
    errors += [
        f"input {name} is not used by the function: take it out of `reads`"
        for name in facts.inputs_unused
    ]
    has_timers = bool(
        stateful - known.stateful_safe
        or facts.stateful_processors - facts.batch_safe_processors
        or facts.join_types - known.joins_across_empty_buckets
    )
    return PlanTraits(
        is_stateful=bool(stateful),
        is_batch_safe=not reasons,
        reasons=tuple(reasons),
        errors=tuple(errors),
        has_timers=has_timers,
    )
