"""Makes stable buckets of a stage again, whose blocks are gone: what to run, and whether the result
may be used.

Theory of operation. A query of its own runs the stage's function over the same stable input: a
stateless one begins right before the first bucket that is wanted, a stateful one in a copy of a
checkpoint from before it, or at the very beginning. A stateless function may give its rows a later
time than they came with, so that rows of what is wanted come from what was skipped: then other rows
are made, and it is run once more as a stateful one. The stable timeline is not touched: the query
appends no boundary record, its batches have no ids. Of what it writes only parts of wanted buckets
are kept. When it has closed the last of them, rows and digest of each are compared with those that
the boundary log has: all must be the same, or nothing is used.

Invariants:
    RC1 input buckets are taken as every plan takes them (PN1-PN4), up to the last bucket that is
        wanted and not beyond.
    RC2 a stateless query skips what comes before the first bucket that is wanted; a stateful one
        skips nothing, nor does the second one of a stateless function, after a first one that made
        other rows.
    RC3 nothing may be used before every wanted bucket is closed by the query.
    RC4 a bucket whose rows or digest differ makes the whole result void.
    RC5 a ``Recomputed`` holds whole buckets, and no more than PARTS_PER_RECORD_MAX parts.
    RC6 a query that skips nothing begins in a checkpoint at a batch all of whose buckets are before
        the range and stable (``protocol.log.clean_points``), the newest that is whole; else at the
        beginning. Of its input nothing may be gone from there to the end of the range.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import replace

from anabranch.protocol.errors import LocalProtocolError
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import BATCH_ROWS_MAX, PARTS_PER_RECORD_MAX
from anabranch.protocol.log.boundary_log import LogState, contents
from anabranch.protocol.log.records import Part, Recomputed
from anabranch.protocol.log.timeline import (
    Answer,
    Copy,
    Create,
    CutBack,
    FindBatches,
    FindMissing,
    FindNewest,
    FindWhole,
    Step,
    Timeline,
    batches_of,
)
from anabranch.protocol.stage.planner import Plan, PlanTraits, QueryPosition, TakenBucket, next_plan


class Recomputation:
    """One query that makes buckets again."""

    def __init__(
        self,
        wanted: Iterable[TakenBucket],
        log_states: Mapping[str, LogState],
        traits: PlanTraits,
        *,
        rows_max: int = BATCH_ROWS_MAX,
    ) -> None:
        """``wanted``: stable buckets as the boundary log has them, ascending, at least one.
        ``log_states``: the inputs, nothing forgotten.
        """
        self._wanted = {bucket: parts for bucket, _, parts in wanted}
        self._log_states = log_states
        self._traits = traits
        self._rows_max = rows_max
        self._made: dict[int, list[Part]] = {}
        self.first, self.last = min(self._wanted), max(self._wanted)
        self._closed = 0

    @property
    def begins_after(self) -> int:
        """A query without a checkpoint begins after this bucket (RC2)."""
        return 0 if self._traits.is_stateful else self.first - 1

    @property
    def is_finished(self) -> bool:
        """Whether every wanted bucket is closed (RC3)."""
        return self._closed >= self.last

    @property
    def wanted(self) -> frozenset[int]:
        """The buckets whose rows are kept."""
        return frozenset(self._wanted)

    def beginning(
        self, name: str, base_of: Callable[[BatchId], int | None]
    ) -> Generator[Step, Answer, str]:
        """Make the directory ``name``, in which the query begins (RC6). Returns why it cannot, in
        words; empty: it can.

        ``base_of``: as for a peer's checkpoint, of the replica's own.
        """
        newest = (yield FindNewest()) if self._traits.is_stateful else None
        if isinstance(newest, Timeline):
            yield Copy(newest.name, name)
            for batch in batches_of((yield FindBatches(name))):
                tip = newest.tip(batch) if batch >= max(0, newest.lowest) else None
                base = None if tip is None else base_of(tip)
                if base is None or base >= self.first or (yield FindWhole(name, (batch,))) is None:
                    continue
                missing = yield FindMissing(name, batch)
                if not missing:
                    yield CutBack(name, batch, keep_plan=False)
                return str(missing)
        missing = yield FindMissing(name, -1)
        if not missing:
            yield Create(name)
        return str(missing)

    def lacks(self, after: int, gone: Callable[[str, Iterable[TakenBucket]], int | None]) -> str:
        """What is not there, in words, of the input after bucket ``after`` up to the end of the
        range; empty: all is.

        ``gone``: (input, buckets of it) -> the first of which blocks are deleted, if any is.
        """
        for stream, log_state in self._log_states.items():
            if log_state.upto < self.last:
                return f"{stream} is not known up to bucket {self.last}"
            if after < log_state.forgotten:
                return (
                    f"no checkpoint is older than the range, and the log of {stream} describes its"
                    f" buckets up to {log_state.forgotten} no more"
                )
            bucket = gone(stream, log_state.stable(after + 1, self.last))
            if bucket is not None:
                return (
                    f"no checkpoint is older than the range, and the blocks of {stream} from bucket"
                    f" {bucket} on are deleted"
                )
        return ""

    def plan(self, position: QueryPosition) -> Plan | None:
        """What the query that stands at ``position`` runs next; None: nothing (any more)."""
        if position.bucket >= self.last:
            return None
        begin = replace(position, bucket=max(position.bucket, self.begins_after))
        plan = next_plan(
            begin, self._log_states, self._traits, rows_max=self._rows_max, last=self.last
        )
        return None if plan is None else replace(plan, before=position)

    def made(self, parts: Iterable[Part], closed: int) -> None:
        """A batch of the query has written ``parts`` and closed everything up to ``closed``."""
        for part in parts:
            if part.bucket in self._wanted:
                self._made.setdefault(part.bucket, []).append(part)
        self._closed = max(self._closed, closed)

    def different(self) -> int | None:
        """The first bucket that is not as it was (RC4); None: all are.

        Raises:
            LocalProtocolError: the query has not closed all of them yet (RC3).
        """
        if not self.is_finished:
            message = (
                f"the query has closed its buckets up to {self._closed}, and {self.last} is wanted"
            )
            raise LocalProtocolError(message)
        return next(
            (
                bucket
                for bucket, was in self._wanted.items()
                if contents(self._made.get(bucket, ())) != contents(was)
            ),
            None,
        )

    def without_skipping(self) -> Recomputation | None:
        """What is to be run in place of this, which made other rows (RC2); None: nothing."""
        if not self._traits.is_stateful and self.different() is not None:
            return Recomputation(
                ((bucket, "", parts) for bucket, parts in self._wanted.items()),
                self._log_states,
                replace(self._traits, is_stateful=True),
                rows_max=self._rows_max,
            )
        return None

    def parts(self) -> tuple[Part, ...]:
        """The parts of all buckets.

        Raises:
            LocalProtocolError: they may not be used (RC3, RC4).
        """
        if self.different() is not None:
            message = f"bucket {self.different()} was made again with other rows"
            raise LocalProtocolError(message)
        return tuple(part for bucket in self._wanted for part in self._made[bucket])


def recomputed_records(replica: str, epoch: int, parts: Iterable[Part]) -> Iterator[Recomputed]:
    """``parts``, which are of whole buckets, as records (RC5)."""
    by_bucket: dict[int, list[Part]] = {}
    for part in parts:
        by_bucket.setdefault(part.bucket, []).append(part)
    chunk: list[Part] = []
    for _, of_bucket in sorted(by_bucket.items()):
        if chunk and len(chunk) + len(of_bucket) > PARTS_PER_RECORD_MAX:
            yield Recomputed(replica, epoch, tuple(chunk))
            chunk = []
        chunk += of_bucket
    if chunk:
        yield Recomputed(replica, epoch, tuple(chunk))
