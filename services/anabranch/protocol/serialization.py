"""SUnion: which buckets does a stage's query take next, the same on all its inputs?

Theory of operation. A stage advances over all its inputs together, bucket by bucket. The planner is asked between two batches, with the
position that the query stands at (it is in Spark's own log) and the folds of the input streams. It answers with a plan: a range of buckets
that is complete on every input, and the parts that they are made of; or that there is nothing to do yet. A plan is written to Spark's log
before it runs, so a batch that is run again reads exactly the same tuples.

A *stateful* query gives the results of boundary b one batch after b. So a plan says up to which bucket its batch closes the output: the end
of the batch before, for a stateful query. When no next bucket is at hand, one empty *follow-up* plan lets the results out (rule 10 b).

Invariants:
    U1  a plan takes bucket n of every input or of none.
    U2  a plan takes only stable buckets, in order, none left out, none twice.
    U3  a query that is not batch-safe takes one bucket per plan, from the first bucket that has data on.
    U4  a plan has more rows than ``rows_max`` only if it takes rows of one bucket only.
    U5  ``closes`` never goes back, and is never beyond what the query's results are complete for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anabranch.protocol.boundary_log import StreamFold
from anabranch.protocol.errors import LocalProtocolError
from anabranch.protocol.limits import BATCH_BUCKETS_MAX, BATCH_ROWS_MAX
from anabranch.protocol.plans import PlanTraits
from anabranch.protocol.records import Part

TakenBucket = tuple[int, str, tuple[Part, ...]]


@dataclass(frozen=True, slots=True)
class QueryPosition:
    """Where a query stands after a batch. It is part of the offset of every input in Spark's log."""

    sequence: int = 0
    """Number of plans run: makes the offset differ after a follow-up plan, too."""
    bucket: int = 0
    """Every input has been read up to this bucket."""
    closed: int = 0
    """The output has been closed up to this bucket."""
    has_rows: bool = False
    """A bucket with data has been read: from here on U3 holds."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One batch: every input's non-empty buckets in (position before, ``after.bucket``]."""

    before: QueryPosition
    after: QueryPosition
    inputs: tuple[tuple[str, tuple[TakenBucket, ...]], ...]
    rows: int

    @property
    def closes(self) -> int:
        """The output is closed up to here when this batch has run."""
        return self.after.closed


def next_plan(
    position: QueryPosition, folds: Mapping[str, StreamFold], traits: PlanTraits,
    *, rows_max: int = BATCH_ROWS_MAX, buckets_max: int = BATCH_BUCKETS_MAX, warm_up: bool = False,
) -> Plan | None:  # fmt: skip
    """The next batch, or None when there is nothing to do.

    Args:
        position: Where the query stands.
        folds: The input streams by name; none may have forgotten buckets after ``position``.
        traits: What the query allows.
        rows_max: Above it no further bucket is added to a batch.
        buckets_max: The same, in buckets that have rows.
        warm_up: Give an empty plan at once. The first batch of a process costs seconds whatever it reads, so it is run before the
            stage is called ready. It is a follow-up plan: it moves nothing.
    """
    last = min(fold.upto for fold in folds.values())
    if last > position.bucket and not warm_up:
        taken = {name: fold.stable(position.bucket + 1, last) for name, fold in folds.items()}
        end, has_rows = _end(position, taken, last, traits, rows_max, buckets_max)
        inputs = tuple((name, tuple(b for b in buckets if b[0] <= end)) for name, buckets in taken.items())
        closed = position.bucket if traits.is_stateful else end
        after = QueryPosition(position.sequence + 1, end, max(position.closed, closed), has_rows)
    elif warm_up or (traits.is_stateful and position.closed < position.bucket):
        inputs = tuple((name, ()) for name in folds)
        after = QueryPosition(position.sequence + 1, position.bucket, position.bucket, position.has_rows)
    else:
        return None
    rows = sum(part.rows for _, buckets in inputs for _, _, parts in buckets for part in parts)
    return Plan(before=position, after=after, inputs=inputs, rows=rows)


def _end(
    position: QueryPosition, taken: Mapping[str, list[TakenBucket]], last: int, traits: PlanTraits, rows_max: int, buckets_max: int
) -> tuple[int, bool]:
    """(the last bucket of the plan, whether data has been read by then)."""
    sizes: dict[int, int] = {}
    for buckets in taken.values():
        for bucket, _, parts in buckets:
            sizes[bucket] = sizes.get(bucket, 0) + sum(part.rows for part in parts)
    filled = sorted(sizes)
    if not traits.is_batch_safe:
        if position.has_rows:
            return position.bucket + 1, True
        if not filled:
            return last, False
        return (position.bucket + 1, True) if filled[0] == position.bucket + 1 else (filled[0] - 1, False)
    rows = 0
    for count, bucket in enumerate(filled):
        rows += sizes[bucket]
        if count and (rows > rows_max or count >= buckets_max):
            return bucket - 1, True
    return last, position.has_rows or bool(filled)


def check_joint(positions: Mapping[str, QueryPosition]) -> QueryPosition:
    """U1, checked before anything is appended: all inputs of a batch stand at the same position, which is returned.

    Raises:
        LocalProtocolError: they do not.
    """
    distinct = set(positions.values())
    if len(distinct) != 1:
        message = f"the inputs of one batch stand at different positions: {dict(positions)}"
        raise LocalProtocolError(message)
    return distinct.pop()


def check_watermark(is_stateful: bool, before: QueryPosition, watermark_ms: int, width_ms: int) -> None:
    """A stateful batch must run under the boundary of the batch before, else its results are not those of its buckets.

    Raises:
        LocalProtocolError: it does not; nothing may be closed.
    """
    if is_stateful and watermark_ms != before.bucket * width_ms:
        message = f"the watermark of the batch is {watermark_ms}, the boundary of the batch before was {before.bucket * width_ms}"
        raise LocalProtocolError(message)
