"""Planner of a stage's batches (SUnion): chooses the buckets that the query processes next, the
same on all its inputs, and derives from the query's plan how many a batch may hold.

Theory of operation. A stage advances over all its inputs together, bucket by bucket. Between two
batches the planner receives the position of the query (from Spark's own log) and the log states of
the input streams. It returns a plan, which is a range of buckets that is complete on every input,
and their parts; or None if there is nothing to do yet. A plan is written to Spark's log before it
runs, so a batch that is run again reads exactly the same rows.

A batch runs under its own boundary: by it windows end, state expires and timers fire, after the
rows of the batch. So a batch closes the buckets that it reads, and publishes all results that these
complete.

A query that became a *branch* is given tentative plans instead: over buckets whose wait is over,
each input's bucket taken from the best that there is: stable, else what the chosen upstream
replica's branch made of it, else named parts of the open bucket, else nothing. The plan says which
streams it was made without.

What a query allows is decided from its analysed plan. Replicas see the same buckets but not in the
same batches, and a drained backlog takes many at once. So a batch may hold several buckets only if
the result cannot depend on how buckets were grouped: the plan is *batch-safe*. That is decided by
an allow-list of operators and expressions, each of which has a test on real Spark that compares one
bucket per batch with all in one batch. Any other plan runs the rows of one bucket per batch, at
every replica.

The empty buckets before and after them go into the same batch, unless the plan *has timers*: what
later rows give then depends on whether time has passed in a batch before theirs. A timer fires, or
a key is forgotten, after the rows of its batch, and may set the next timer. So every bucket has its
batch then. Windows, joins and dropDuplicates have state that expires, too, but no row that comes
later can meet it: it is for times that have passed. A *stateful* plan makes results from rows of
earlier batches, too.

The shell reads names from the analysed plan (``PlanFacts``), and says what is known of them
(``KnownNames``); ``judge`` decides what follows (``PlanTraits``).

Invariants:
    PN1 a plan takes bucket n of every input or of none.
    PN2 a plan takes only stable buckets, in order, none left out, none twice.
    PN3 a query that is not batch-safe takes rows of one bucket per plan, with empty buckets around
        it; one that has timers takes one bucket per plan, empty or not, from the first bucket that
        has data on.
    PN4 a plan has more rows than ``rows_max``, each weighed by its bytes (``Part.weight``), only if
        it takes rows of one bucket only.
    PN5 a query that lacks rows of the buckets that come next, since the file does not name the
        streams that have them (HO6 of ``protocol.edge.handover``), gets no plan.

Of tentative plans:
    PT1 as PN1.
    PT2 as PN2, but of buckets up to ``due_upto``: in order, none left out, none twice, whether
        stable or not.
    PT3 as PN3.
    PT4 as PN4.
    PT6 a bucket of an input comes from one place: where it is stable no tentative version of it is
        taken, and where the chosen replica's branch covers it, no open parts are.
    PT7 ``missing`` is empty if and only if every bucket that was taken is stable on every input, or
        is tentative only because an overloaded stage left out rows of it.
    PT8 a tentative plan never becomes stable: its kind is TENTATIVE even if everything in it is
        stable (rule 12).
    PT9 only a tentative plan keeps less than all rows of its buckets, and it keeps the same per
        mille of every input (``protocol.stage.kept_rows``).
    PT10 ``shed`` is what the results lack: what the plan leaves out, multiplied with what the input
        lacks that was taken.

Of what a query allows:
    PL1 an operator, an aggregate, a generator or an expression of another library that is not known
        is not batch-safe. An expression without children that is not known is rejected: it may
        bring in what differs between replicas.
    PL2 an operator that is not known to be stateless is stateful.
    PL3 a stateful operator that is not known, a processor that is not known to sort its rows, or a
        join in which a row's time may end while it is being joined, has timers.
    PL4 a stateful operator that gives results by time is not behind a join that keeps rows: the
        engine's watermark there is behind that of the batch, so its results would belong into
        buckets that are closed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from anabranch.protocol.errors import ConfigurationError, LocalProtocolError, StageFunctionError
from anabranch.protocol.limits import BATCH_ROWS_MAX, MISSING_STREAMS_MAX
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.records import BoundaryKind, Part
from anabranch.protocol.stage.kept_rows import KEPT_ALL, check_kept, shed_by


@dataclass(frozen=True, slots=True)
class KnownNames:
    """Allow-list of an engine's operators, joins, aggregates and expressions, by the names that
    ``PlanFacts`` uses. Each entry has a test on the real engine.
    """

    stateless: frozenset[str]
    """Operators that work row by row: a row's results depend on that row alone. Functions over
    whole batches are included only for ``stateful``.
    """
    whole_batch: frozenset[str]
    """Stateless operators in which the user's function sees several rows together, grouped as the
    batch was cut: not batch-safe.
    """
    stateful_safe: frozenset[str]
    """Stateful operators that are batch-safe under the conditions that ``judge`` checks."""
    first_row_kept: frozenset[str]
    """Stateful operators that keep whichever row arrived first, for a time that starts with it."""
    safe_joins: frozenset[str]
    joins_across_empty_buckets: frozenset[str]
    """Joins whose results do not change if empty buckets after their rows are in the same batch."""
    order_free_aggregates: frozenset[str]
    """Aggregates whose result does not depend on the order of rows, given exact types."""
    tied_aggregates: frozenset[str]
    """Aggregates that choose one of several equally good rows."""
    generators: frozenset[str]
    """Expressions that make rows from one row, and from that row alone."""
    childless: frozenset[str]
    """Expressions without children whose value does not differ between replicas: columns,
    constants, settings, functions of the user (which are trusted).
    """
    not_deterministic: frozenset[str]
    """Expressions with children whose value differs between replicas, though the engine does not
    say so.
    """


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """Names that the shell read from an analysed plan, as the engine spells them. A class that is
    not the engine's own has its full name, with dots.
    """

    operators: frozenset[str]
    expressions: frozenset[str]
    childless: frozenset[str] = frozenset()
    """Expressions that have no children. Values that come neither from a row nor from the
    function's text enter a plan through these, through expressions that declare themselves
    non-deterministic, and through few others (``KnownNames.not_deterministic``).
    """
    generators: frozenset[str] = frozenset()
    not_deterministic: frozenset[str] = frozenset()
    """Expressions, and functions of the user, that declare themselves non-deterministic. Without
    aggregates: their dependencies are known.
    """
    aggregates: frozenset[str] = frozenset()
    inexact_sums: tuple[str, ...] = ()
    """Aggregates (sum, average) that add floating-point numbers, as text."""
    sets_shown: tuple[str, ...] = ()
    """Uses of collect_set other than directly within sort_array or size, as text."""
    ties_shown: tuple[str, ...] = ()
    """Uses of text with a collation that show one of several equal texts, as text."""
    zeros_shown: tuple[str, ...] = ()
    """Uses of floating-point numbers that show one of the two zeros, as text."""
    overflowing: tuple[str, ...] = ()
    """Aggregates that give null where a partial sum overflows, as text."""
    join_types: frozenset[str] = frozenset()
    deduplicated: tuple[str, ...] = ()
    """Columns of a dropDuplicates that is not over whole rows."""
    late_operators: tuple[tuple[str, int], ...] = ()
    """Operators behind a join that keeps rows, each with the delay of its results behind the
    watermark, in ms: the join keeps rows for as long.
    """
    inputs_unused: tuple[str, ...] = ()
    stateful_processors: frozenset[str] = frozenset()
    """Classes of transformWithState processors."""
    batch_safe_processors: frozenset[str] = frozenset()
    """Stateful processors that declare that they sort rows and fire due timers between them
    (``anabranch.stateful``).
    """


@dataclass(frozen=True, slots=True)
class PlanTraits:
    """Properties of a plan, for the planner and for people (``anabranch check``)."""

    is_stateful: bool
    is_batch_safe: bool
    reasons: tuple[str, ...] = ()
    """Reasons why the plan is not batch-safe."""
    errors: tuple[str, ...] = ()
    """Reasons why the plan cannot be run at all."""
    has_timers: bool = False
    """Whether empty buckets need batches of their own too: the plan is stateful, not batch-safe,
    and its results depend on time that passes without rows.
    """
    compares_rows: bool = False
    """Whether a batch compares its rows with one another, as joins do: its duration grows with the
    square of its rows of one key.
    """

    @property
    def batch(self) -> str:
        """Description for people of the buckets that one batch holds."""
        if self.is_batch_safe:
            return "several buckets per batch"
        return (
            "one bucket per batch, empty ones too"
            if self.has_timers
            else "rows of one bucket per batch"
        )


def judge(facts: PlanFacts, known: KnownNames) -> PlanTraits:
    """Return the properties of a plan that follow from the names that are known of the engine."""
    stateful = facts.operators - known.stateless
    reasons = _order_shows(facts, known)
    errors = _cannot_run(facts, known)
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
        compares_rows=bool(facts.join_types),
    )


def _order_shows(facts: PlanFacts, known: KnownNames) -> list[str]:
    """Return why the order of rows or the cut of batches may show in the results of a plan, so
    that it runs one bucket per batch; empty where it cannot.
    """
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
        f"generator {name} is not on the batch-safe list: it may remember the rows before"
        for name in sorted(facts.generators - known.generators)
    ]
    reasons += [
        f"expression {name} is of another library, of which nothing is known"
        for name in sorted(facts.expressions)
        if "." in name
    ]
    reasons += _aggregates_show(facts, known)
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
    return reasons


def _aggregates_show(facts: PlanFacts, known: KnownNames) -> list[str]:
    """Return which aggregates of a plan show the order of rows, and how."""
    reasons = [
        f"aggregate {name} depends on the order of rows"
        for name in sorted(facts.aggregates - known.order_free_aggregates - known.tied_aggregates)
    ]
    reasons += [
        f"aggregate {name} can tie, and then takes whichever row came first"
        for name in sorted(facts.aggregates & known.tied_aggregates)
    ]
    reasons += [
        f"{text} adds floating-point numbers, whose sum depends on their order: add decimals, and"
        " divide a sum of integers by their count"
        for text in facts.inexact_sums
    ]
    reasons += [
        f"{text} has no fixed order: take it within the same expression as sort_array({text}) or"
        f" size({text})"
        for text in facts.sets_shown
    ]
    reasons += [
        f"{text} keeps whichever came first of texts that its collation takes for equal: aggregate"
        " text without a collation"
        for text in facts.ties_shown
    ]
    reasons += [
        f"{text} keeps whichever came first of 0.0 and -0.0, which are equal: add 0.0 to what it is"
        " taken of, which makes both the same"
        for text in facts.zeros_shown
    ]
    reasons += [
        f"{text} gives null where a part of its sum overflows, which depends on the order of rows:"
        " cast to DECIMAL(28, s) or narrower, and take sum"
        for text in facts.overflowing
    ]
    return reasons


def _cannot_run(facts: PlanFacts, known: KnownNames) -> list[str]:
    """Return the mistakes for which a plan is rejected, in words for its author."""
    others = facts.childless - known.childless
    errors = [
        f"{name} gives another result at every replica and after every restart: take event_time for"
        " the clock, and xxhash64 of a row's columns for chance or an id"
        for name in sorted(
            others | facts.expressions & known.not_deterministic | facts.not_deterministic
        )
    ]
    errors += [
        f"{name} behind a join gives its results {late_ms} ms after their buckets are closed: by as"
        " much rows wait in the join. Make it a stage of its own, which reads one with the join"
        for name, late_ms in facts.late_operators
    ]
    errors += [
        f"input {name} is not used by the function: take it out of `reads`"
        for name in facts.inputs_unused
    ]
    return errors


BATCH_BUCKETS_MAX: Final = 4_096
"""Maximum number of non-empty buckets in one batch of a stage: bounds the plan that Spark writes to
its log.
"""

TakenBucket = tuple[int, str, tuple[Part, ...]]


@dataclass(frozen=True, slots=True)
class QueryPosition:
    """Position of a query after a batch. It is part of the offset of every input in Spark's log."""

    sequence: int = 0
    """Number of plans run: makes the offset differ even after a plan without buckets."""
    bucket: int = 0
    """Last bucket that every input has been read to, and the output closed."""
    has_rows: bool = False
    """Whether a bucket with data has been read: from then on the passing of time may fire timers
    (PN3).
    """


@dataclass(frozen=True, slots=True)
class Plan:
    """Buckets of one batch: every input's non-empty buckets after the position ``before`` and up to
    ``after.bucket``.
    """

    before: QueryPosition
    after: QueryPosition
    inputs: tuple[tuple[str, tuple[TakenBucket, ...]], ...]
    rows: int
    kind: BoundaryKind = BoundaryKind.STABLE
    missing: tuple[str, ...] = ()
    """Streams that are missing in the buckets of this plan; sorted, at most MISSING_STREAMS_MAX."""
    kept: int = KEPT_ALL
    """Per mille of the rows of each bucket that the batch keeps; the others are left out. ``rows``
    counts them all.
    """
    inputs_shed: int = 0
    """Largest per mille of the rows of a bucket that an input lacks already."""

    @property
    def shed(self) -> int:
        """Per mille of the rows of a bucket's input that its results lack (PT10)."""
        return shed_by(self.kept, (self.inputs_shed,))

    def __post_init__(self) -> None:
        """Check PT9.

        Raises:
            LocalProtocolError: a stable plan would leave out rows.
        """
        check_kept(self.kept)
        if self.shed and self.kind is not BoundaryKind.TENTATIVE:
            raise LocalProtocolError(f"a stable plan would lack {self.shed} per mille of its rows")


def next_plan(
    position: QueryPosition,
    log_states: Mapping[str, LogState],
    traits: PlanTraits,
    *,
    rows_max: int = BATCH_ROWS_MAX,
    buckets_max: int = BATCH_BUCKETS_MAX,
    warm_up: bool = False,
    last: int | None = None,
) -> Plan | None:
    """Return the next batch, or None if there is nothing to do.

    Args:
        position: Position of the query.
        log_states: Log state of each input by name. None may have forgotten buckets after
            ``position``.
        traits: Traits of the query's plan.
        rows_max: Number of rows above which no further bucket is added to a batch.
        buckets_max: Maximum number of buckets with rows in a batch.
        warm_up: Give an empty plan at once. The first batch of a process costs seconds whatever it
            reads, so where there is nothing to read yet it is run all the same, before the stage is
            called ready. It moves nothing.
        last: Last bucket that may be taken; None: any that is complete.

    Raises:
        ConfigurationError: PN5.
    """
    if warm_up:
        after = replace(position, sequence=position.sequence + 1)
        return Plan(
            before=position, after=after, inputs=tuple((name, ()) for name in log_states), rows=0
        )
    _check_whole(position, log_states)
    complete = min(log_state.upto for log_state in log_states.values())
    last = complete if last is None else min(last, complete)
    if last <= position.bucket:
        return None
    count_max = buckets_max + 1
    taken = {
        name: log_state.stable(position.bucket + 1, last, count_max)
        for name, log_state in log_states.items()
    }
    return _plan(position, taken, last, traits, rows_max, buckets_max)


def _check_whole(position: QueryPosition, log_states: Mapping[str, LogState]) -> None:
    """Raise if an input lacks rows that only unnamed former shards have (PN5)."""
    for name, log_state in log_states.items():
        if position.bucket < log_state.whole_after:
            raise ConfigurationError(
                f"input {name}: rows of buckets {position.bucket + 1}..{log_state.whole_after} are"
                " in streams that its source had with another number of shards, and the pipeline"
                " file does not name them: write that number in place of the last 0 of `shards`"
            )


class EmptyBatches:
    """Plans of a query that only warms up Java: the first batches of a process take seconds,
    whatever they read.
    """

    def __init__(self, inputs: Iterable[str], traits: PlanTraits, count: int) -> None:
        """Plan ``count`` empty batches over the streams ``inputs``."""
        self._log_states = {name: LogState(()) for name in inputs}
        self._traits = traits
        self._count = count
        self._run = 0

    @property
    def is_finished(self) -> bool:
        """Whether all planned batches have run."""
        return self._run >= self._count

    def again(self) -> None:
        """Add one batch, so that a process that is idle for long stays warm."""
        self._count += 1

    def plan(self, position: QueryPosition) -> Plan | None:
        """Return the next empty batch of the query at ``position``; None if all have been
        planned.
        """
        return (
            None
            if position.sequence >= self._count
            else next_plan(position, self._log_states, self._traits, warm_up=True)
        )

    def made(self, parts: Iterable[Part], closed: int) -> None:
        """Record that a batch has run."""
        del parts, closed
        self._run += 1


def begun_after(bucket: int, log_states: Mapping[str, LogState]) -> Plan:
    """Return the first plan of a query that leaves out the buckets up to ``bucket``: empty, it
    closes them (``protocol.stage.recovery``).
    """
    before = QueryPosition()
    after = QueryPosition(1, bucket)
    return Plan(before=before, after=after, inputs=tuple((name, ()) for name in log_states), rows=0)


def next_tentative_plan(
    position: QueryPosition,
    log_states: Mapping[str, LogState],
    chosen: Mapping[str, str | None],
    due_upto: int,
    traits: PlanTraits,
    *,
    rows_max: int = BATCH_ROWS_MAX,
    buckets_max: int = BATCH_BUCKETS_MAX,
    kept: int = KEPT_ALL,
) -> Plan | None:
    """Return the next batch of a branch, or None if there is nothing to do.

    Args:
        position: Position of the branch.
        log_states: Log state of each input by name. None may have forgotten buckets after
            ``position``.
        chosen: By input, the writer whose tentative buckets are taken; None, or left out: no
            writer's.
        due_upto: Buckets up to this one are run with what there is of them.
        traits: Traits of the query's plan. If it is batch-safe, one plan takes all buckets that are
            due (PT4 permitting).
        rows_max: Number of rows above which no further bucket is added to a batch.
        buckets_max: Maximum number of buckets with rows in a batch.
        kept: Per mille of the rows to keep (PT9).

    Raises:
        ConfigurationError: PN5.
    """
    if due_upto <= position.bucket:
        return None
    _check_whole(position, log_states)
    first, count_max = position.bucket + 1, buckets_max + 1
    taken = {
        name: _best(log_state, chosen.get(name), first, due_upto, count_max)
        for name, log_state in log_states.items()
    }
    plan = _plan(position, taken, due_upto, traits, rows_max, buckets_max)
    missing = set[str]()
    inputs_shed = 0
    for name, log_state in log_states.items():
        names, shed = _lacking(name, log_state, chosen.get(name), first, plan.after.bucket)
        missing |= names
        inputs_shed = max(inputs_shed, shed)
    return replace(
        plan,
        kind=BoundaryKind.TENTATIVE,
        missing=tuple(sorted(missing)[:MISSING_STREAMS_MAX]),
        kept=kept,
        inputs_shed=inputs_shed,
    )


def _best(
    log_state: LogState, replica: str | None, first: int, last: int, count_max: int
) -> list[TakenBucket]:
    """Return the first ``count_max`` buckets in ``first..last`` that have rows, each in the best
    available version (PT6).
    """
    taken = (
        log_state.stable(first, min(last, log_state.upto), count_max)
        if first <= log_state.upto
        else []
    )
    first = max(first, log_state.upto + 1)
    tentative = (
        [] if replica is None else log_state.tentative_filled(replica, first, last, count_max)
    )
    open_ones: list[int] = []
    for begin, end in _uncovered(log_state, replica, first, last):
        open_ones += log_state.open_buckets(begin, end, count_max - len(open_ones))
    for bucket in sorted([*tentative, *open_ones])[: count_max - len(taken)]:
        made = None if replica is None else log_state.tentative(replica, bucket)
        taken.append(
            (bucket, *log_state.open_parts(bucket))
            if made is None
            else (bucket, made.replica, made.parts)
        )
    return taken


def _uncovered(
    log_state: LogState, replica: str | None, first: int, last: int
) -> Iterator[tuple[int, int]]:
    """Yield the ranges of ``first..last`` that the replica's branches did not close."""
    for covered in [] if replica is None else log_state.tentative_ranges(replica, first, last):
        if covered.first > first:
            yield first, covered.first - 1
        first = covered.last + 1
    if first <= last:
        yield first, last


def _lacking(
    name: str, log_state: LogState, replica: str | None, first: int, last: int
) -> tuple[set[str], int]:
    """Return what ``first..last`` of this input lacks: the streams that its tentative buckets name,
    or the input itself (PT7), and the largest per mille of rows that were left out before.
    """
    first = max(first, log_state.upto + 1)
    missing = {name} if any(_uncovered(log_state, replica, first, last)) else set()
    shed = 0
    for covered in [] if replica is None else log_state.tentative_ranges(replica, first, last):
        missing.update(covered.missing or (() if covered.shed else (name,)))
        shed = max(shed, covered.shed)
    return missing, shed


def _plan(
    position: QueryPosition,
    taken: Mapping[str, list[TakenBucket]],
    last: int,
    traits: PlanTraits,
    rows_max: int,
    buckets_max: int,
) -> Plan:
    """Return the plan over ``taken``, the first buckets up to ``last``, cut to the limits (PN3,
    PN4).
    """
    end, has_rows = _end(position, taken, last, traits, rows_max, buckets_max)
    inputs = tuple(
        (name, tuple(b for b in buckets if b[0] <= end)) for name, buckets in taken.items()
    )
    after = QueryPosition(position.sequence + 1, end, has_rows)
    rows = sum(part.rows for _, buckets in inputs for _, _, parts in buckets for part in parts)
    return Plan(before=position, after=after, inputs=inputs, rows=rows)


def _end(
    position: QueryPosition,
    taken: Mapping[str, list[TakenBucket]],
    last: int,
    traits: PlanTraits,
    rows_max: int,
    buckets_max: int,
) -> tuple[int, bool]:
    """Return the plan's last bucket, and whether data has been read by then. Each input's buckets
    in ``taken`` may be cut after ``buckets_max + 1``.
    """
    weights: dict[int, int] = {}
    for buckets in taken.values():
        for bucket, _, parts in buckets:
            weights[bucket] = weights.get(bucket, 0) + sum(part.weight for part in parts)
    filled = sorted(weights)
    if traits.has_timers:
        if position.has_rows:
            return position.bucket + 1, True
        if not filled:
            return last, False
        return (
            (position.bucket + 1, True)
            if filled[0] == position.bucket + 1
            else (filled[0] - 1, False)
        )
    if not traits.is_batch_safe:
        buckets_max = 1
    weight = 0
    for count, bucket in enumerate(filled):
        weight += weights[bucket]
        if count and (weight > rows_max or count >= buckets_max):
            return bucket - 1, True
    return last, position.has_rows or bool(filled)


def check_joint(positions: Mapping[str, QueryPosition]) -> QueryPosition:
    """Return the position at which all inputs of a batch stand (PN1). Called before anything is
    appended.

    Raises:
        LocalProtocolError: the inputs are at different positions.
    """
    distinct = set(positions.values())
    if len(distinct) != 1:
        message = f"the inputs of one batch stand at different positions: {dict(positions)}"
        raise LocalProtocolError(message)
    return distinct.pop()


def check_open(function: str, bucket: int, closed: int, width_ms: int) -> None:
    """Raise unless a result belongs to a bucket that is still open: closed buckets never change
    (rules 4, 5).

    Args:
        function: Name of the stage's function, for the message.
        bucket: Earliest bucket of the batch's results.
        closed: Last bucket of the output that was closed before the batch.
        width_ms: Width of a bucket, in ms.

    Raises:
        StageFunctionError: ``bucket`` is closed. The text shows no row: it comes into logs and to
            the caller that shows the status.
    """
    if bucket <= closed:
        message = (
            f"{function}: gave a row of bucket {bucket} (event_time up to {bucket * width_ms}), but"
            f" buckets up to {closed} are closed; a row's event_time must not be older than the"
            " input that it is made from"
        )
        raise StageFunctionError(message)


def check_watermark(after: QueryPosition, watermark_ms: int, width_ms: int) -> None:
    """Check that a batch ran under the watermark of its own boundary: otherwise its results do not
    belong to its buckets.

    Raises:
        LocalProtocolError: the watermark is another one. No bucket may be closed then.
    """
    if watermark_ms != after.bucket * width_ms:
        message = (
            f"the watermark of the batch is {watermark_ms}, its boundary is"
            f" {after.bucket * width_ms}"
        )
        raise LocalProtocolError(message)
