"""The records of a boundary log, as values, and what follows from a single one of them.

Theory of operation. ``codec.boundary_records`` turns the values into bytes and back (Avro,
schemas/records/boundary_record, branch_ended, epoch_started, recomputed, ``log_snapshot``).

Some decisions of a start need more of the stage's own log than its end: whether a stage has ever
made anything, with what its newest chain begins, which function made the last results, and on which
nodes (``protocol.stage.recovery``). These facts are few, and each follows from the facts before a
record and that record (``origin_after``). So the log state carries them for each writer, and a log
snapshot says them: whoever begins to read there knows them too.

A participant reads a stream of another one under a name of its own. The records of that stream name
what they lack by the names of streams there, which nobody here knows, and which may be those of
other streams here. To a reader here one thing counts: that the stream which it reads was made
without some of its input. So that stream is what it names as missing, to its own readers and users
(``as_known_here``).

Invariants:
    OG1 the facts of an ``Origin`` depend on the accepted stable records of the writer alone, and on
        the plans of their epochs.
    FN1 a record lacks something under one name or the other, or under neither.
    FN2 nothing else of a record changes: buckets, parts, chain and epochs are those of its writer.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import ROW_BYTES_WEIGHED

REJECTED_ATTEMPT: Final = ".rejected"
"""End of the attempt id of a part that holds notices of rejected rows."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one attempt wrote of one bucket in one partition of the writer's block topic (rule 7).

    A reader seeks by the offset range and takes only the blocks whose headers have this bucket and
    attempt; their number, rows and digest must be these, else the data is *missing*, never less.
    """

    bucket: int
    partition: int
    attempt: str
    blocks: int
    offset_first: int
    offset_next: int
    rows: int
    digest: int
    """Sum modulo 2**64 of the 64-bit hashes of the rows."""
    size_bytes: int = 0
    """Of its rows, as columns in memory."""

    @property
    def is_rejected(self) -> bool:
        """Whether its rows are notices of rows that no reader can hold (``codec.rejected_rows``).
        They count in the bucket; readers of the stream leave them out.
        """
        return self.attempt.endswith(REJECTED_ATTEMPT)

    @property
    def weight(self) -> int:
        """What it takes in memory and work: its rows, or so many of ROW_BYTES_WEIGHED as it has."""
        return max(self.rows, self.size_bytes // ROW_BYTES_WEIGHED)


@dataclass(frozen=True, slots=True)
class InputPosition:
    """How far a source has read one partition of a user's topic (rule 17)."""

    topic: str
    partition: int
    offset_next: int
    event_time_max_ms: int
    """Largest event time read from this partition; 0: none yet."""
    found_after: int = 0
    """The last bucket that was closed when the source found the partition; 0: it always knew it."""
    idle: bool = False
    """The partition is left out for its silence."""
    topic_id: str = ""
    """Identity of the topic in which the offset counts; empty: not known."""


@dataclass(frozen=True, slots=True)
class GivenUp:
    """Buckets ``first..last`` of a stream may lack what ``source`` would have contributed: an
    operator gave it up (``protocol.log.given_up``).
    """

    source: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class EpochStarted:
    """A writer begins (rule 1). Its epoch is the offset of this record."""

    replica: str
    fingerprint: str
    """Of the writer's plan: function source, parameters, versions. Of digests of
    different fingerprints only those of one version are compared, and none is outvoted.
    """
    token: str
    """Random: by it the writer knows its own record in the log when the outcome of the append
    is unknown.
    """
    schema: str = ""
    """Columns of the stream as its writer makes them, as text (``codec.blocks.schema_text``):
    a reader of another owner has no code to ask.
    """
    version: int = 1
    """Of what the stage computes, as the pipeline file says: a higher one replaces the lower
    ones (invariant BL15 of ``boundary_log``).
    """
    bucket_ms: int = 0
    """Width of the writer's buckets; 0: not known. A stream keeps the first one (BL16)."""
    node: str = ""
    """On which the writer runs (``protocol.control.placement``); empty: on none, or it is not
    known.
    """
    share: str = ""
    """Of its inputs' rows those that the writer takes (``protocol.stage.shares``); empty: all. A
    stream keeps the first one (BL16).
    """
    rest_upto: int = 0
    """Of a source that had another number of shards (``protocol.edge.handover``): rows of buckets
    up to this one may be in the streams that it had then; 0: it had none. A stream keeps the first
    one.
    """


BranchNumber = tuple[int, int]
"""(epoch, counter) of a branch: grows over forks and restarts of a replica (rule 16)."""


class BoundaryKind(StrEnum):
    """Stable: made from complete input. Tentative: made without some of its input."""

    STABLE = "stable"
    TENTATIVE = "tentative"


@dataclass(frozen=True, slots=True)
class BoundaryRecord:
    """One batch of a writer: everything up to bucket ``closed`` is closed, and the parts this
    batch wrote (rules 3-6).
    """

    replica: str
    epoch: int
    id: BatchId
    prev: BatchId | None
    """Id of the record that this one continues; None: from the very beginning."""
    closed: int
    parts: tuple[Part, ...] = ()
    base: int | None = None
    """Stable: rule 6, this replica starts from a peer's checkpoint; buckets up to ``base`` are not
    its own. Tentative: this record begins its branch; up to ``base`` the output was closed, stable,
    where it forked.
    """
    kind: BoundaryKind = BoundaryKind.STABLE
    branch: BranchNumber | None = None
    """Of a tentative record, its branch: the highest of a replica wins (rule 16). ``prev`` of a
    branch's first record is the stable record at which it forked; its parts repeat the pending ones
    that the branch inherits.
    """
    missing: tuple[str, ...] = ()
    """Streams without which the buckets that this record closes were made, or left out."""
    positions: tuple[InputPosition, ...] = ()
    """Of a source: read to here (rule 17)."""
    made_from: tuple[tuple[str, int], ...] = ()
    """Of a stage: (input stream, last bucket read)."""
    written_ms: int = 0
    """Wall clock of the writer: for lag, and for how long a source was away."""
    given_up: tuple[GivenUp, ...] = ()
    """Stable: which of the buckets that this record closes lack what an operator gave up."""
    past: int = 0
    """Of a source: rule 13, it has got beyond this bucket, whether it is closed or not
    (``protocol.edge.sources``). Of the record that ends a stream: what it had closed before.
    """
    heirs: int = 0
    """Of a source: the stream ends with this record, which closes all buckets, and the source goes
    on in so many other streams (``protocol.edge.handover``); 0: it goes on.
    """


@dataclass(frozen=True, slots=True)
class BranchEnded:
    """A replica has dropped its branch (Borealis' REC_DONE): all that the log has of it stands
    until it is replaced, and nothing of it comes any more.
    """

    replica: str
    epoch: int
    counter: int
    """Branches of this epoch up to this one have ended."""

    @property
    def branch(self) -> BranchNumber:
        """The newest branch that has ended."""
        return self.epoch, self.counter


@dataclass(frozen=True, slots=True)
class TentativeRange:
    """Buckets ``first..last`` were closed by ``branch``, without the streams ``missing``."""

    first: int
    last: int
    branch: BranchNumber
    missing: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class BranchSnapshot:
    """The branches of one writer in a ``LogSnapshot``."""

    number: BranchNumber
    """Of the newest branch."""
    tip: BatchId
    """The newest branch's last record."""
    closed: int
    """Of the newest branch."""
    upto: int
    """The highest bucket that any branch has closed."""
    first_upto: int = 0
    """What the newest branch closed with its first record."""
    pending: tuple[tuple[BatchId, Part], ...] = ()
    """Of the newest branch."""
    ranges: tuple[TentativeRange, ...] = ()
    """Of all branches, each bucket by the newest one."""


@dataclass(frozen=True, slots=True)
class MadeOn:
    """What a writer closed after bucket ``after`` was made on ``node``, until it moved again."""

    node: str
    after: int


@dataclass(frozen=True, slots=True)
class Origin:
    """Where what a writer has closed comes from (``origin_after``)."""

    tip_by: str = ""
    """Fingerprint of the plan that made the chain's last record; empty: there is none."""
    made_by: str = ""
    """Of the plan that made the last buckets that were closed."""
    made_after: int = 0
    """The last bucket before these."""
    gap: int | None = None
    """What the chain begins with has given up results (``protocol.stage.recovery``),
    and closed buckets up to here; None: it has not.
    """
    open_upto: int = 0
    """The chain began when this bucket was the last one closed, and has closed no new one
    since; 0: it has.
    """
    late_upto: int = 0
    """Up to here the writer has left results out since the stage began late
    (``protocol.stage.recovery``).
    """
    has_results: bool = False
    """Whether it wrote anything else."""
    made_on: tuple[MadeOn, ...] = ()
    """The last changes of the node, ascending (NODE_CHANGES_MAX)."""

    def node_of(self, bucket: int) -> str:
        """On which a bucket that the writer has closed was made; empty: not known."""
        return next((each.node for each in reversed(self.made_on) if each.after < bucket), "")


@dataclass(frozen=True, slots=True)
class ReplicaSnapshot:
    """One writer in a ``LogSnapshot``."""

    replica: str
    epoch: int
    fingerprint: str
    schema: str
    closed: int
    base: int
    path: tuple[BatchId, ...]
    timelines: tuple[BatchId, ...]
    """Highest batch seen of each timeline of the current epoch, in the order in which they
    were first seen.
    """
    pending: tuple[tuple[BatchId, Part], ...]
    last: BoundaryRecord | None
    closed_parts: tuple[Part, ...] = ()
    """Of buckets that it has closed, except those whose stable range has the same parts: because an
    earlier one is not stable, because another writer was first, or because the stable one was
    recomputed.
    """
    branches: BranchSnapshot | None = None
    origin: Origin = Origin()
    history: str = ""
    """By which plans the chain was made (``protocol.control.consistency``); empty: not known."""
    version: int = 1
    """Of the newest epoch."""
    node: str = ""
    """Of the newest epoch."""
    ended: BranchNumber | None = None
    """Its branches up to this one have ended; None: the log has no end of one."""
    corrected: BranchNumber | None = None
    """Others have made all that its branches up to this one have shown; None: of none."""


@dataclass(frozen=True, slots=True)
class StableRange:
    """Buckets ``first..last`` are taken from ``replica``."""

    first: int
    last: int
    replica: str
    parts: tuple[Part, ...]
    recomputed: bool = False
    """They are not the parts that the bucket had at first."""


@dataclass(frozen=True, slots=True)
class LogSnapshot:
    """The whole state of a boundary log just before offset ``as_of``: a reader may start there
    instead of at the beginning.

    The stable bucket up to which all is stable stands as a last range, of no replica.
    """

    as_of: int
    forgotten: int
    """Buckets up to this one are closed and no longer described."""
    replicas: tuple[ReplicaSnapshot, ...] = field(default=())
    ranges: tuple[StableRange, ...] = ()
    past: int = 0
    """Rule 13: the stream is known to have got beyond this bucket."""
    version: int = 0
    """The version that counts; 0: none has caught up yet."""
    version_after: int = 0
    """It alone counts for the buckets after this one."""
    bucket_ms: int = 0
    """Width of the stream's buckets; 0: not known."""
    given_up: tuple[GivenUp, ...] = ()
    """All that the stream's records name of it."""
    share: str = ""
    """Of its inputs' rows those that the stream is made from (``EpochStarted``); empty: all."""
    rest_upto: int = 0
    """Rows of buckets up to this one may be in other streams of the source (``EpochStarted``)."""


@dataclass(frozen=True, slots=True)
class Recomputed:
    """A writer has written stable buckets once more, or still has its own version of them: blocks
    that readers need were gone.

    Each bucket is whole in ``parts``. A reader takes them in place of the parts that it knew if
    rows and digest are the same.
    """

    replica: str
    epoch: int
    parts: tuple[Part, ...]


LogEntry = EpochStarted | BoundaryRecord | BranchEnded | LogSnapshot | Recomputed


NODE_CHANGES_MAX: Final = 8
"""So many changes of a writer's node are remembered: of what is before nobody is known to have made
it.
"""


def says_late_start(record: BoundaryRecord) -> bool:
    """Whether a record leaves out the buckets up to its ``closed``, as the first of its chain."""
    return record.prev is None and record.base is None and bool(record.missing) and not record.parts


def origin_after(
    before: Origin, record: BoundaryRecord, closed: int, fingerprint: str, node: str = ""
) -> Origin:
    """The facts after a stable record.

    Args:
        before: Those before it.
        record: Was accepted.
        closed: The last bucket that the writer had closed before it.
        fingerprint: Of the plan of its epoch.
        node: On which its epoch began.
    """
    is_first = record.prev is None
    is_late = says_late_start(record)
    is_news = record.closed > closed
    is_other = is_news and before.made_by != fingerprint
    made_on = before.made_on
    if is_news and node != (made_on[-1].node if made_on else ""):
        made_on = (*made_on, MadeOn(node, closed))[-NODE_CHANGES_MAX:]
    gap, open_upto = before.gap, before.open_upto
    if is_first:
        gap, open_upto = record.closed if record.missing else None, closed
    return Origin(
        tip_by=fingerprint,
        made_by=fingerprint if is_news else before.made_by,
        made_after=closed if is_other else before.made_after,
        gap=gap,
        open_upto=0 if is_news else open_upto,
        late_upto=max(before.late_upto, record.closed) if is_late else before.late_upto,
        has_results=before.has_results or not is_late,
        made_on=made_on,
    )


def as_known_here(entry: LogEntry, name: str) -> LogEntry:
    """``entry`` of a stream that is called ``name`` here."""
    if isinstance(entry, BoundaryRecord):
        return _record(entry, name)
    if isinstance(entry, LogSnapshot):
        replicas = tuple(_replica(replica, name) for replica in entry.replicas)
        return replace(entry, replicas=replicas, given_up=_given_up(entry.given_up, name))
    return entry


def _record(record: BoundaryRecord, name: str) -> BoundaryRecord:
    if not record.missing and not record.given_up:
        return record
    return replace(
        record,
        missing=_missing(record.missing, name),
        given_up=_given_up(record.given_up, name),
    )


def _replica(replica: ReplicaSnapshot, name: str) -> ReplicaSnapshot:
    branches = replica.branches
    if branches is not None:
        ranges = tuple(
            replace(each, missing=_missing(each.missing, name)) for each in branches.ranges
        )
        branches = replace(branches, ranges=ranges)
    last = None if replica.last is None else _record(replica.last, name)
    return replace(replica, last=last, branches=branches)


def _missing(missing: tuple[str, ...], name: str) -> tuple[str, ...]:
    return (name,) if missing else ()


def _given_up(ranges: tuple[GivenUp, ...], name: str) -> tuple[GivenUp, ...]:
    return tuple(dict.fromkeys(replace(each, source=name) for each in ranges))
