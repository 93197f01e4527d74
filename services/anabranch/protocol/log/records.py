"""Records of a boundary log, as values, and the facts that follow from a single one of them.

Theory of operation. ``codec.boundary_records`` turns the values into bytes and back (Avro,
schemas/records/boundary_record, branch_ended, epoch_started, recomputed, ``log_snapshot``).

Some decisions of a start need more of the stage's own log than its end: whether a stage has ever
written results, the record that its newest chain begins with, which function computed the last
results, and on which nodes (``protocol.stage.recovery``). These facts are few, and each follows
from the facts before a record and that record (``origin_after``). So the log state carries them for
each writer, and log snapshots contain them: a reader that starts there knows them too.

A participant reads a stream of another one under a name of its own. The records of that stream name
their missing input by the other participant's stream names, which are unknown here, or belong to
other streams here. A reader here needs only one fact: that the stream which it reads was computed
without some of its input. So it names that stream itself as missing, to its own readers and users
(``as_known_here``).

Invariants:
    OG1 the facts of a ``Provenance`` depend on the accepted stable records of the writer alone, and
        on the plans of their epochs.
    FN1 a record has missing or given-up input after the renaming if and only if it had before.
    FN2 nothing else of a record changes: buckets, parts, chain and epochs are those of its writer.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import ROW_BYTES_WEIGHED

REJECTED_ATTEMPT: Final = ".rejected"
"""Suffix of the attempt id of a part that holds notices of rejected rows."""


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of one bucket that one attempt wrote to one partition of the writer's block topic (rule
    7).

    A reader seeks by the offset range and takes only the blocks whose headers have this bucket and
    attempt. If their number, rows or digest differ from these, the data counts as *missing*: it is
    never read in part.
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
    """Size of the rows, as columns in memory, in bytes."""

    @property
    def is_rejected(self) -> bool:
        """Whether the rows are notices of rows that no reader can hold (``codec.rejected_rows``).
        They count in the bucket; readers of the stream leave them out.
        """
        return self.attempt.endswith(REJECTED_ATTEMPT)

    @property
    def weight(self) -> int:
        """Cost in memory and work, in rows: the number of rows, or the size in units of
        ROW_BYTES_WEIGHED if that is more.
        """
        return max(self.rows, self.size_bytes // ROW_BYTES_WEIGHED)


@dataclass(frozen=True, slots=True)
class InputPosition:
    """Read position of a source in one partition of a user's topic (rule 17)."""

    topic: str
    partition: int
    offset_next: int
    event_time_max_ms: int
    """Largest event time read from this partition; 0: none yet."""
    found_after: int = 0
    """Last bucket that was closed when the source found the partition; 0 if it knew the partition
    from the start.
    """
    idle: bool = False
    """Whether the source does not wait for the partition, because it is idle."""
    topic_id: str = ""
    """Identity of the topic in which the offset counts; empty: not known."""


@dataclass(frozen=True, slots=True)
class GivenUp:
    """Range of buckets ``first..last`` of a stream that may lack rows of ``source``, because an
    operator gave them up (``protocol.log.given_up``).
    """

    source: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class EpochStarted:
    """Start of a writer's epoch (rule 1). The epoch is the offset of this record."""

    replica: str
    fingerprint: str
    """Fingerprint of the writer's plan: function source, parameters, versions. Digests of different
    fingerprints are compared only within one version, and none is outvoted.
    """
    token: str
    """Random value by which the writer finds its own record in the log when the outcome of the
    append is unknown.
    """
    schema: str = ""
    """Columns of the stream, as text (``codec.blocks.schema_text``): a reader of another owner has
    no code to ask.
    """
    version: int = 1
    """Version of the stage's function, from the pipeline file: a higher one replaces the lower ones
    (invariant BL15 of ``boundary_log``).
    """
    bucket_ms: int = 0
    """Width of the writer's buckets, in ms; 0 if it is not known. A stream keeps the first one
    (BL16).
    """
    node: str = ""
    """Node that the writer runs on (``protocol.control.placement``); empty if it has none, or it is
    not known.
    """
    share: str = ""
    """Share of the inputs' rows that the writer takes (``protocol.stage.shares``); empty for all. A
    stream keeps the first one (BL16).
    """
    rest_upto: int = 0
    """Last bucket of which rows may be in the streams that the source had before its number of
    shards changed (``protocol.edge.handover``); 0 if it never changed. A stream keeps the first
    one.
    """
    attempt: int = -1
    """Number of the attempt to split a shard for which the writer, a half of it, runs
    (``protocol.stage.splitting``); -1 for any other writer. With a higher number all writers of the
    stream begin anew (BL21).
    """


BranchNumber = tuple[int, int]
"""(epoch, counter) of a branch. Grows over forks and restarts of a replica (rule 16)."""


class BoundaryKind(StrEnum):
    """Kind of a boundary. Stable: computed from complete input. Tentative: computed without some of
    its input.
    """

    STABLE = "stable"
    TENTATIVE = "tentative"


@dataclass(frozen=True, slots=True)
class BoundaryRecord:
    """Boundary of one batch of a writer: closes every bucket up to ``closed`` and names the parts
    that the batch wrote (rules 3-6).
    """

    replica: str
    epoch: int
    id: BatchId
    prev: BatchId | None
    """Id of the record that this one continues; None for the first record of a chain."""
    closed: int
    parts: tuple[Part, ...] = ()
    base: int | None = None
    """Last bucket that a record builds on. In a stable record (rule 6) it is not the replica's own,
    because the replica starts from a peer's checkpoint; in a tentative one its stable output was
    closed at the fork, and only the first record of a branch has it.
    """
    kind: BoundaryKind = BoundaryKind.STABLE
    branch: BranchNumber | None = None
    """Branch of a tentative record: the highest of a replica wins (rule 16). ``prev`` of a branch's
    first record is the stable record at which it forked; its parts repeat the open ones that the
    branch inherits.
    """
    missing: tuple[str, ...] = ()
    """Streams that were missing when the buckets that this record closes were computed, or left
    out.
    """
    positions: tuple[InputPosition, ...] = ()
    """Read positions in the source's topics (rule 17); only of a source."""
    made_from: tuple[tuple[str, int], ...] = ()
    """(input stream, last bucket read) pairs; only of a stage."""
    written_ms: int = 0
    """Wall clock of the writer, in ms: measures lag, and how long a source was away."""
    given_up: tuple[GivenUp, ...] = ()
    """Closed buckets that lack given-up input; only of a stable record."""
    past: int = 0
    """Last bucket that a source has passed, whether it is closed or not (rule 13,
    ``protocol.edge.sources``). Of the record that ends a stream: the last bucket closed before.
    """
    heirs: int = 0
    """Number of streams in which the source continues after this record, which ends the stream and
    closes all its buckets (``protocol.edge.handover``); 0 while the stream has not ended.
    """
    shed: int = 0
    """Largest per mille of the rows of a bucket's input that overloaded stages left out
    (``protocol.stage.kept_rows``), for the buckets that this record closes; only of a tentative
    record.
    """
    token: str = ""
    """Token of the writer's ``EpochStarted`` (``protocol.log.writer``, OW5); empty: not stated."""


@dataclass(frozen=True, slots=True)
class BranchEnded:
    """End of a replica's branch (Borealis' REC_DONE): its tentative buckets stay until they are
    replaced, and it writes no more of them.
    """

    replica: str
    epoch: int
    counter: int
    """Counter of the newest branch of this epoch that has ended, with all earlier ones."""
    token: str = ""
    """Token of the writer's epoch, as in a ``BoundaryRecord``."""

    @property
    def branch(self) -> BranchNumber:
        """Number of the newest branch that has ended."""
        return self.epoch, self.counter


@dataclass(frozen=True, slots=True)
class TentativeRange:
    """Range of buckets ``first..last`` that ``branch`` closed without the streams ``missing``, and
    without ``shed`` per mille of its input's rows.
    """

    first: int
    last: int
    branch: BranchNumber
    missing: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    shed: int = 0


@dataclass(frozen=True, slots=True)
class BranchSnapshot:
    """Branches of one writer in a ``LogSnapshot``."""

    number: BranchNumber
    """Number of the newest branch."""
    tip: BatchId
    """Last record of the newest branch."""
    closed: int
    """Last bucket that the newest branch closed."""
    upto: int
    """Highest bucket that any branch has closed."""
    first_upto: int = 0
    """Last bucket that the first record of the newest branch closed."""
    pending: tuple[tuple[BatchId, Part], ...] = ()
    """Open parts of the newest branch, each with the record that named it."""
    ranges: tuple[TentativeRange, ...] = ()
    """Tentative buckets of all branches; each bucket is of the newest branch that closed it."""


@dataclass(frozen=True, slots=True)
class MadeOn:
    """Node on which a writer computed the buckets after ``after``, until it next moved."""

    node: str
    after: int


@dataclass(frozen=True, slots=True)
class Provenance:
    """Provenance of the buckets that a writer has closed (``origin_after``)."""

    tip_by: str = ""
    """Fingerprint of the plan that made the chain's last record; empty: there is none."""
    made_by: str = ""
    """Fingerprint of the plan that computed the last closed buckets."""
    made_after: int = 0
    """Last bucket before those that ``made_by`` computed."""
    gap: int | None = None
    """Last bucket that the chain's first record closed without results, which it gave up
    (``protocol.stage.recovery``); None if it gave up none.
    """
    open_upto: int = 0
    """Last bucket that was closed when the chain began, while the chain has closed no new one; else
    0.
    """
    late_upto: int = 0
    """Last bucket whose results the writer left out, because the stage began late
    (``protocol.stage.recovery``).
    """
    has_results: bool = False
    """Whether the writer has written any record besides a late start."""
    made_on: tuple[MadeOn, ...] = ()
    """Last changes of the node, ascending; at most NODE_CHANGES_MAX."""

    def node_of(self, bucket: int) -> str:
        """Return the node on which the writer computed a bucket that it has closed; empty if it is
        not known.
        """
        return next((each.node for each in reversed(self.made_on) if each.after < bucket), "")

    def made_on_after(self, bucket: int) -> int | None:
        """Return the last bucket before those that the node of ``bucket`` computed; None if it is
        not known.
        """
        return next((each.after for each in reversed(self.made_on) if each.after < bucket), None)


@dataclass(frozen=True, slots=True)
class ReplicaSnapshot:
    """State of one writer in a ``LogSnapshot``."""

    replica: str
    epoch: int
    fingerprint: str
    schema: str
    closed: int
    base: int
    path: tuple[BatchId, ...]
    timelines: tuple[BatchId, ...]
    """Highest batch seen of each timeline of the current epoch, in the order of first appearance.
    """
    pending: tuple[tuple[BatchId, Part], ...]
    last: BoundaryRecord | None
    closed_parts: tuple[Part, ...] = ()
    """Parts of closed buckets that no stable range repeats: an earlier bucket is not stable,
    another writer closed the bucket first, or the stable parts were recomputed.
    """
    branches: BranchSnapshot | None = None
    origin: Provenance = Provenance()
    history: str = ""
    """Plans that computed the chain (``protocol.control.consistency``); empty if they are not
    known.
    """
    version: int = 1
    """Stage version of the newest epoch."""
    node: str = ""
    """Node of the newest epoch."""
    ended: BranchNumber | None = None
    """Newest branch that has ended, with all earlier ones; None if the log shows no end."""
    corrected: BranchNumber | None = None
    """Newest branch whose tentative buckets other writers have closed; None if there is none."""
    token: str = ""
    """Token of the ``EpochStarted`` of the newest epoch."""


@dataclass(frozen=True, slots=True)
class StableRange:
    """Range of stable buckets ``first..last`` that readers take from ``replica``."""

    first: int
    last: int
    replica: str
    parts: tuple[Part, ...]
    recomputed: bool = False
    """Whether the parts replaced the bucket's first ones."""


@dataclass(frozen=True, slots=True)
class LogSnapshot:
    """State of a boundary log just before offset ``as_of``: a reader may start there instead of at
    the beginning.

    The last entry of ``ranges`` has no replica: it names the bucket up to which all are stable.
    """

    as_of: int
    forgotten: int
    """Last bucket of those that are closed and no longer described."""
    replicas: tuple[ReplicaSnapshot, ...] = field(default=())
    ranges: tuple[StableRange, ...] = ()
    past: int = 0
    """Last bucket that the stream is known to have passed (rule 13)."""
    version: int = 0
    """Version that counts; 0 until one has caught up."""
    version_after: int = 0
    """Last bucket before those for which only ``version`` counts."""
    bucket_ms: int = 0
    """Width of the stream's buckets, in ms; 0 if it is not known."""
    given_up: tuple[GivenUp, ...] = ()
    """Given-up input that the stream's records name."""
    share: str = ""
    """Share of the inputs' rows that the stream is made from (``EpochStarted``); empty for all."""
    rest_upto: int = 0
    """Last bucket of which rows may be in other streams of the source (``EpochStarted``)."""
    attempt: int = -1
    """Highest attempt to split a shard that an epoch names (``EpochStarted``); -1: none does."""


@dataclass(frozen=True, slots=True)
class Recomputed:
    """Second copy of stable buckets that a writer has written, or still has, because blocks that
    readers need were gone.

    ``parts`` has each of these buckets completely. A reader uses them in place of the parts that it
    knew if rows and digest are the same.
    """

    replica: str
    epoch: int
    parts: tuple[Part, ...]
    token: str = ""
    """Token of the writer's epoch, as in a ``BoundaryRecord``."""


LogEntry = EpochStarted | BoundaryRecord | BranchEnded | LogSnapshot | Recomputed


NODE_CHANGES_MAX: Final = 8
"""Maximum number of remembered changes of a writer's node. The node of earlier buckets is unknown.
"""


def says_late_start(record: BoundaryRecord) -> bool:
    """Return whether a record is the first of its chain and leaves out the buckets up to its
    ``closed``.
    """
    return record.prev is None and record.base is None and bool(record.missing) and not record.parts


def origin_after(
    before: Provenance, record: BoundaryRecord, closed: int, fingerprint: str, node: str = ""
) -> Provenance:
    """Return the provenance after a stable record.

    Args:
        before: Provenance before the record.
        record: The accepted stable record.
        closed: The last bucket that the writer had closed before it.
        fingerprint: Fingerprint of the plan of its epoch.
        node: Node of its epoch; empty if it has none.
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
    return Provenance(
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
    """Return ``entry`` of another owner's stream, with ``name``, by which this pipeline knows the
    stream, in place of every missing stream.
    """
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
