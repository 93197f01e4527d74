"""State of a boundary log: the parts and the writer of every bucket of a stream.

Theory of operation. All writers of a stream append to one single-partition topic, so every reader
reads the same sequence and derives the same state. The log state keeps, per writer, its epoch, its
accepted chain of records and the buckets that these close (``protocol.log.writer_state``). The
stream's stable bucket n is that of the writer that closed it first, as a whole.

In addition the log state keeps, per writer, the buckets that its branches closed and that are not
stable yet (``protocol.log.tentative``), and whether a branch is running: so a failure begins and
ends at a place in the log that is the same for all readers.

Buckets are numbered from the beginning of time, so almost all are empty: only buckets with parts
are stored, everything else is ranges. Applying a record never raises, whatever the record says, and
costs what it changes. A record that does not count yields a reason, which the reader counts
(``Outcome``).

Invariants:
    BL1 records of a writer count only while they carry the epoch of its newest ``EpochStarted``
        (rule 1), and its token: where the topic was deleted and created again, a process of the
        former life may have an epoch of the same number (rule 22).
    BL2 a record is accepted once: a known id is ignored (rule 4), whether it was stable or
        tentative.
    BL3 an accepted record continues the tip, or cuts the chain back to an earlier id on it; parts
        of what was cut off are dropped (rule 4).
    BL4 a bucket that a writer has closed never changes; later parts for it are ignored (rules 4,
        5).
    BL5 stable bucket n is taken from one writer: the first in the log that closed it. Its contents
        never change (rule 5).
    BL6 a base record excludes buckets up to ``base`` from this writer's own, and resets its pending
        parts (rule 6).
    BL7 ``upto`` never goes back, and every bucket up to it is stable.
    BL8 reading from a ``LogSnapshot`` on gives the same state as reading from the beginning, except
        for buckets that the log snapshot has forgotten.
    BL9 a tentative record changes nothing that is stable: neither ``upto``, nor the chain, nor what
        is pending on it (rules 11, 16).
    BL10 stable beats tentative: a bucket up to ``upto`` has no tentative version (rule 16).
    BL11 a tentative bucket of a writer is that of the newest of its branches that closed it; an
        older branch no longer counts (rule 16).
    BL12 ``past_upto`` and a writer's ``tentative_upto`` never go back (rule 13).
    BL13 memory is bounded by ``limits`` for what is not stable, and by ``forget`` for what is: at
        most PENDING_PARTS_MAX open parts of a writer, plus those of one record, since a record that
        rewinds replaces at least one other. Whether a record counts never depends on what was
        forgotten, so all readers agree. Only records are forgotten (CHAIN_RECORDS_MAX), never their
        parts: a record that is not remembered can no longer be cut off.
    BL14 a stable bucket is read from other parts only where a ``Recomputed`` of a writer's newest
        epoch names as many rows of the same digest.
    BL15 a stream's version never goes back. A version counts from the first record of one of its
        writers that has closed all stable buckets; from there on writers of lower versions begin no
        epoch, and none of their records counts. So an upgrade counts from a bucket that the log
        names, the same for all readers, and the previous version continues until then.
    BL16 all buckets of a stream have the width that its first epoch states, and are made from the
        share of its inputs that this epoch states. A process with another width or share begins no
        epoch, so it fences no writer.
    BL17 a bucket may be read from another writer than the log names only if that writer's own
        version has as many rows of the same digest.
    BL18 a branch runs from its first record until its end, the writer's next epoch, the moment when
        the writer's version no longer counts, or the end of the stream (BL20): its process cannot
        correct it there any more, the successors do.
    BL19 a branch is corrected once a writer that has no branch has closed all buckets that the
        branch had closed.
    BL20 a stream with an accepted record that names successors has ended: no other record of it
        counts. All its buckets are closed, with the parts that were named before; that later
        buckets are closed does not show that the stream has passed them (rule 13). The last bucket
        that counts is ``past`` of that record, or the last stable one if other writers had closed
        more by then: what was read from the stream stays so.
    BL21 the first epoch of a higher attempt to split a shard ends all epochs of its half: no writer
        continues a record from before it. A process of a lower attempt begins no epoch.
    BL22 of a stream that other owners write, no epoch of another width than the reader's counts,
        and no record that ends a stream of which the reader knows no successors: the stream is
        missing from there on, and its reader continues.

Damaged blocks are detected by the reader of the parts (rule 7, ``streams.block_reader``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Self

from anabranch.protocol.errors import LocalProtocolError, RemoteProtocolError
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.buckets import BucketMap
from anabranch.protocol.log.given_up import GivenUpBuckets
from anabranch.protocol.log.records import (
    BoundaryKind,
    BoundaryRecord,
    BranchEnded,
    BranchNumber,
    EpochStarted,
    LogEntry,
    LogSnapshot,
    Part,
    Provenance,
    Recomputed,
    StableRange,
    TentativeRange,
    origin_after,
)
from anabranch.protocol.log.writer_state import WriterState

OTHER_WIDTH: Final = "other_width"
UNKNOWN_SUCCESSORS: Final = "unknown_successors"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of applying one record to the log state. ``reason`` is a short code that readers
    count.
    """

    accepted: bool
    reason: str
    """Codes of accepted entries: epoch, accepted (a stable record), tentative, branch_ended,
    recomputed, adopted (a log snapshot replaced the log state). Codes of ignored ones:
    ``log_snapshot``, unknown_writer, fenced, known, off_chain, older_branch, ended_branch, no_base,
    malformed, superseded (BL15), other_width and other_share (BL16), ended (BL20), earlier_attempt
    (BL21), unknown_successors (BL22), pending (more than PENDING_PARTS_MAX parts would be open).
    """
    replica: str


@dataclass(frozen=True, slots=True)
class TentativeBucket:
    """One writer's tentative version of a bucket that is not stable."""

    bucket: int
    replica: str
    branch: BranchNumber
    parts: tuple[Part, ...]
    """Parts of the bucket; empty if it has no rows."""
    missing: tuple[str, ...]
    """Streams that were missing when the bucket was computed."""
    shed: int = 0
    """Per mille of its input's rows that overloaded stages left out."""


def contents(parts: Iterable[Part]) -> tuple[int, int]:
    """Return (rows, digest) of all rows of ``parts`` together."""
    rows, digest = 0, 0
    for part in parts:
        rows, digest = rows + part.rows, (digest + part.digest) % 2**64
    return rows, digest


class LogState:
    """The state of one stream's boundary log. Feed it every record in log order by ``apply``."""

    def __init__(self, writers: Iterable[str]) -> None:
        self._writers = {w: WriterState() for w in writers}
        self._upto = 0
        self._forgotten = 0
        self._stable: BucketMap[tuple[str, tuple[Part, ...]]] = BucketMap()
        self._recomputed: BucketMap[None] = BucketMap()
        self._past = 0
        self._version = self._version_after = 0
        self.given_up = GivenUpBuckets()
        """Buckets that lack given-up input. Never forgotten: results of any age are marked by it.
        """
        self.bucket_ms, self.share = 0, ""
        """Width of the stream's buckets, in ms; 0 until a writer has stated it (BL16). ``share`` is
        the share of the inputs that the stream is made from.
        """
        self.stable_parts = 0
        """Number of parts of stable buckets that are not forgotten."""
        self.bucket_ms_expected, self.may_end = 0, True
        """Width that the stream must have, in ms, and whether a record may end the stream (BL22). 0
        and True: the reader judges both by itself.
        """
        self._end: BoundaryRecord | None = None
        self.heirs_known = 0
        """Number of successor streams that the reader follows. It may read beyond the end of the
        stream only if that is the number that ended it.
        """
        self.rest_upto = 0
        """Last bucket of which some rows may be in other streams of the source (``EpochStarted``).
        """
        self.attempt = -1
        """Highest attempt to split a shard for which a writer, a half of it, has begun (BL21); -1:
        the stream is not that of a half, or none has.
        """
        self.rest_is_unread = False
        """Whether the reader follows none of those other streams."""

    @property
    def writers(self) -> tuple[str, ...]:
        """Names of the replicas that write the stream."""
        return tuple(self._writers)

    @property
    def upto(self) -> int:
        """Last bucket up to which every bucket is stable; 0 at the beginning. If the stream has
        ended and the reader does not follow its successors: the last bucket closed before the end
        (BL20).
        """
        if self._end is not None and self.heirs_known != self._end.heirs:
            return self._end.past
        return self._upto

    @property
    def closed_upto(self) -> int:
        """``upto`` for display: of an ended stream, the last bucket closed before its end."""
        return self._upto if self._end is None else self._end.past

    @property
    def heirs(self) -> int:
        """Number of successor streams in which the source continues after this stream has ended; 0
        while it has not ended (BL20).
        """
        return 0 if self._end is None else self._end.heirs

    @property
    def whole_after(self) -> int:
        """Last bucket of which the reader may miss rows, because they are in streams of the source
        that it does not follow.
        """
        return self.rest_upto if self.rest_is_unread else 0

    @property
    def filled_upto(self) -> int:
        """Last stable bucket with rows, of those that are not forgotten; 0: none has."""
        return self._stable.highest

    @property
    def past_upto(self) -> int:
        """Last bucket that the stream is known to have passed (rule 13), by a stable or tentative
        boundary, or by a source's statement.
        """
        return self._past

    @property
    def seen_upto(self) -> int:
        """Last bucket that the stream has passed, or the next one if a writer has named a part of
        it. Parts further ahead prove nothing.
        """
        following = self._past + 1
        return (
            following
            if any(
                writer.pending.between(following, following) for writer in self._writers.values()
            )
            else self._past
        )

    @property
    def forgotten(self) -> int:
        """Buckets up to this one are no longer described."""
        return self._forgotten

    def epoch(self, replica: str) -> int | None:
        """Return the offset of the writer's newest ``EpochStarted``; None if it never began."""
        epoch = self._writers[replica].epoch
        return None if epoch < 0 else epoch

    def ended_in(self, replica: str, epoch: int) -> bool:
        """Return whether the stream has ended while ``epoch`` is the newest one of the writer. If
        it is not, a newer process of the writer has replaced the one with ``epoch`` (BL1, BL20).
        """
        return self._end is not None and self.epoch(replica) == epoch

    def node(self, replica: str) -> str:
        """Return the node of the writer's newest epoch; empty if it names none, or never began."""
        return self._writers[replica].node

    def closed(self, replica: str) -> int:
        """Return the last bucket that this writer has closed, or that its base excludes from its
        own.
        """
        return self._writers[replica].closed

    def fingerprint(self, replica: str) -> str:
        """Return the plan fingerprint of the writer's newest epoch; empty before the first."""
        return self._writers[replica].fingerprint

    @property
    def version(self) -> tuple[int, int]:
        """(version that counts, last bucket before those for which only it counts); (0, 0) until a
        version has caught up (BL15).
        """
        return self._version, self._version_after

    def version_of(self, replica: str) -> int:
        """Return the stage version that the writer's newest epoch states."""
        return self._writers[replica].version

    def origin(self, replica: str) -> Provenance:
        """Return the provenance of the buckets that the writer has closed."""
        return self._writers[replica].origin

    def schema(self) -> str:
        """Return the columns of the stream, as the version that counts has them (BL15); where its
        writers have all begun a higher version since, those of the next one that will count; empty
        while none has begun.
        """
        stated = [
            (writer.version, number, writer.schema)
            for number, writer in enumerate(self._writers.values())
            if writer.schema and writer.version >= self._version
        ]
        return min(stated)[-1] if stated else ""

    def last(self, replica: str) -> BoundaryRecord | None:
        """Return the last record of the writer's accepted chain; None if the chain is empty."""
        return self._writers[replica].last

    def tip(self, replica: str) -> BatchId | None:
        """Return the id of the last record of the writer's accepted chain; None if it is empty."""
        path = self._writers[replica].path
        return path[-1] if path else None

    def accepted(self, replica: str, ident: BatchId) -> bool:
        """Return whether the record ``ident`` is on the writer's accepted chain, or is the last
        record of its newest branch.
        """
        writer = self._writers[replica]
        # Mostly it is the last one, and a search of the whole chain begins at its other end.
        return ident in (writer.branches.tip, self.tip(replica)) or ident in writer.path

    def chain(self, replica: str) -> frozenset[BatchId]:
        """Return the ids on the writer's accepted chain, as far as they are remembered: the records
        that another one may continue (rule 4).
        """
        return frozenset(self._writers[replica].path)

    def pending(self, replica: str) -> tuple[Part, ...]:
        """Return the named parts of buckets that the writer has not closed, ordered by bucket."""
        return tuple([part for _, part in self._writers[replica].pending.items()])

    def pending_count(self, replica: str) -> int:
        """Return the number of parts in ``pending``."""
        return len(self._writers[replica].pending)

    def apply(self, offset: int, entry: LogEntry) -> Outcome:
        """Apply the next record of the log.

        Args:
            offset: Its offset, which is the epoch that an ``EpochStarted`` begins.
            entry: The record.
        """
        if isinstance(entry, LogSnapshot):
            return Outcome(accepted=False, reason="log_snapshot", replica="")
        writer = self._writers.get(entry.replica)
        if writer is None:
            return Outcome(accepted=False, reason="unknown_writer", replica=entry.replica)
        if isinstance(entry, EpochStarted):
            return self._begin(offset, writer, entry)
        if not writer.is_of_epoch(entry):
            return Outcome(accepted=False, reason="fenced", replica=entry.replica)
        if isinstance(entry, Recomputed):
            self._replace_recomputed(entry)
            return Outcome(accepted=True, reason="recomputed", replica=entry.replica)
        if isinstance(entry, BranchEnded):
            reason = writer.branches.end(entry)
        else:
            reason = self._boundary(writer, entry)
        return Outcome(reason in ("accepted", "tentative", "branch_ended"), reason, entry.replica)

    def _boundary(self, writer: WriterState, entry: BoundaryRecord) -> str:
        """Take a boundary record of the writer's epoch. Returns what was done with it
        (``Outcome.reason``).
        """
        if writer.knows(entry.id):
            return "known"
        if self._end is not None:
            return "ended"
        if entry.heirs:
            if not self.may_end:
                return UNKNOWN_SUCCESSORS
            entry = replace(entry, past=max(entry.past, self._upto))
        if writer.version < self._version:
            return "superseded"
        is_tentative, closed = entry.kind is BoundaryKind.TENTATIVE, writer.closed
        reason = (
            writer.branches.rejection(entry) if is_tentative else writer.rewind(entry, self._upto)
        )
        if reason:
            return reason
        if is_tentative:
            writer.branches.take(entry, self._upto)
            self._past = max(self._past, writer.branches.upto)
        else:
            self._take(writer, entry)
            writer.origin = origin_after(
                writer.origin, entry, closed, writer.fingerprint, writer.node
            )
            if not writer.branches.runs(writer.epoch):
                for other in self._writers.values():
                    other.branches.correct(writer.closed)
        writer.know(entry.id)
        self._past = max(self._past, entry.past)
        return "tentative" if is_tentative else "accepted"

    def _begin(self, offset: int, writer: WriterState, entry: EpochStarted) -> Outcome:
        """Begin the writer's epoch at ``offset``, unless its width, share, version or attempt
        excludes it (BL1, BL15, BL16, BL21, BL22).
        """
        width_ms = self.bucket_ms or self.bucket_ms_expected
        if width_ms and entry.bucket_ms not in (0, width_ms):
            return Outcome(accepted=False, reason=OTHER_WIDTH, replica=entry.replica)
        if self.bucket_ms and entry.share != self.share:
            return Outcome(accepted=False, reason="other_share", replica=entry.replica)
        if entry.version < self._version:
            return Outcome(accepted=False, reason="superseded", replica=entry.replica)
        if entry.attempt < self.attempt:
            return Outcome(accepted=False, reason="earlier_attempt", replica=entry.replica)
        if entry.attempt > self.attempt:
            self.attempt = entry.attempt
            for each in self._writers.values():
                each.begin_anew()
        if entry.version != writer.version and writer.closed > self._upto:
            # Buckets that the writer closed beyond a gap are of its previous version: as its own
            # they would later become stable as results of this one.
            writer.base = writer.closed
        if not self.bucket_ms:
            self.bucket_ms, self.share = entry.bucket_ms, entry.share
            self.rest_upto = entry.rest_upto
        writer.begin(offset, entry)
        return Outcome(accepted=True, reason="epoch", replica=entry.replica)

    def _take(self, writer: WriterState, record: BoundaryRecord) -> None:
        """Make ``record`` the tip of the writer's chain and advance the stable buckets (rules 4,
        5).
        """
        self.given_up.add(record.given_up)
        self._end = record if record.heirs else None
        if not writer.take(record, self._forgotten):
            return
        if writer.version > self._version and writer.base <= self._upto <= writer.closed:
            self._version, self._version_after = writer.version, self._upto
        self._advance(record.replica)

    def _advance(self, replica: str) -> None:
        """Assign the buckets in (upto, closed] to writers, first to ``replica``, which has just
        closed some (rule 5). Works on ranges, not on single buckets.
        """
        order = [replica, *(r for r in self._writers if r != replica)]
        before, moved = self._upto, True
        while moved:
            moved = False
            for name in order:
                writer = self._writers[name]
                if writer.base <= self._upto < writer.closed and writer.version >= self._version:
                    for bucket in writer.closed_parts.between(self._upto + 1, writer.closed):
                        self._stable[bucket] = (name, writer.closed_parts[bucket])
                        self.stable_parts += len(writer.closed_parts[bucket])
                    self._upto = writer.closed
                    moved = True
        if self._upto > before:
            if self._end is None:
                self._past = max(self._past, self._upto)
            for writer in self._writers.values():
                writer.branches.prune(self._upto)

    def _replace_recomputed(self, entry: Recomputed) -> None:
        """Replace the parts of each stable bucket that ``entry`` repeats with equal contents
        (BL14).
        """
        by_bucket: dict[int, list[Part]] = {}
        for part in entry.parts:
            by_bucket.setdefault(part.bucket, []).append(part)
        for bucket, parts in by_bucket.items():
            found = self._stable.get(bucket)
            if found is not None and contents(found[1]) == contents(parts):
                self._stable[bucket] = (entry.replica, tuple(parts))
                self.stable_parts += len(parts) - len(found[1])
                self._recomputed[bucket] = None

    def recomputed_after(self, bucket: int) -> bool:
        """Return whether a remembered bucket after this one has replaced parts. A plan made before
        the replacement may name blocks that are gone.
        """
        return self._recomputed.highest > bucket

    def stable(
        self, first: int, last: int, count_max: int | None = None
    ) -> list[tuple[int, str, tuple[Part, ...]]]:
        """Return the non-empty stable buckets in ``first..last``, ascending, as (bucket, writer to
        read it from, its parts).

        ``count_max``: only the first so many of them.

        Raises:
            LocalProtocolError: the range reaches past ``upto``, or into what was forgotten.
        """
        if last > self._upto or first <= self._forgotten:
            message = (
                f"buckets {first}..{last} requested; stable up to {self._upto}, forgotten up to"
                f" {self._forgotten}"
            )
            raise LocalProtocolError(message)
        return [(b, *self._stable[b]) for b in self._stable.between(first, last, count_max)]

    def replica_bucket(self, replica: str, bucket: int) -> tuple[Part, ...] | None:
        """Return the writer's own parts of the closed ``bucket``; None if it has not closed it, if
        the bucket is not its own, or if it is forgotten.
        """
        writer = self._writers[replica]
        if bucket <= max(writer.base, self._forgotten) or bucket > writer.closed:
            return None
        return writer.closed_parts.get(bucket) or ()

    def replica_filled(self, replica: str, first: int, last: int) -> list[int]:
        """Return the remembered, non-empty buckets in ``first..last`` that the writer closed
        itself, ascending.
        """
        writer = self._writers[replica]
        return writer.closed_parts.between(max(first, writer.base + 1), last)

    def alike(
        self, bucket: int, writer: str, parts: tuple[Part, ...]
    ) -> list[tuple[str, tuple[Part, ...]]]:
        """Return the other writers whose version of ``bucket`` equals ``parts``, the version of
        ``writer``, each with its own parts (BL17).
        """
        versions = ((r, self.replica_bucket(r, bucket)) for r in self._writers if r != writer)
        return [(r, own) for r, own in versions if own and contents(own) == contents(parts)]

    def past(self, bucket: int) -> bool:
        """Return whether the stream is known to have passed ``bucket`` (rule 13)."""
        return self._past >= bucket

    # -- buckets that are not stable
    # ----------------------------------------------------------------------------------------------

    def branch(self, replica: str) -> BranchNumber | None:
        """Return the number of the writer's newest branch; None if it never had one."""
        return self._writers[replica].branches.number

    def has_branch(self, replica: str) -> bool:
        """Return whether a branch of the writer is running (BL18)."""
        writer = self._writers[replica]
        is_current = self._end is None and writer.version >= self._version
        return is_current and writer.branches.runs(writer.epoch)

    def awaits_correction(self, replica: str) -> bool:
        """Return whether a branch of the writer is running whose buckets no writer without a branch
        has closed (BL19).
        """
        return self.has_branch(replica) and not self._writers[replica].branches.is_corrected()

    def ended_branch(self, replica: str) -> BranchNumber | None:
        """Return the writer's newest branch that the log shows as ended; None if it shows none."""
        return self._writers[replica].branches.ended

    def first_tentative_upto(self, replica: str) -> int:
        """Return the last bucket that the first record of the writer's newest branch closed; 0 if
        it never had one.
        """
        return self._writers[replica].branches.first_upto

    def tentative_offers(self, after: int = 0) -> dict[str, int]:
        """Return, per writer, its last tentative bucket, for writers that have some beyond the
        stable ones and ``after``.
        """
        uptos = {name: self.tentative_upto(name) for name in self._writers}
        return {name: upto for name, upto in uptos.items() if upto > max(self._upto, after)}

    def tentative_upto(self, replica: str) -> int:
        """Return the highest bucket that any branch of this writer has closed, even if it is stable
        by now; 0 if none has.
        """
        return self._writers[replica].branches.upto

    def tentative(self, replica: str, bucket: int) -> TentativeBucket | None:
        """Return the tentative bucket of the writer's branches; None if they did not close it, or
        it is stable (BL10).
        """
        found = self._writers[replica].branches.bucket(bucket)
        if found is None:
            return None
        return TentativeBucket(
            bucket=bucket,
            replica=replica,
            branch=found.branch,
            parts=found.parts,
            missing=found.missing,
            shed=found.shed,
        )

    def tentative_filled(
        self, replica: str, first: int, last: int, count_max: int | None = None
    ) -> list[int]:
        """Return the non-empty buckets in ``first..last`` that the writer's branches closed; only
        the first ``count_max`` of them.
        """
        return self._writers[replica].branches.filled(first, last, count_max)

    def tentative_ranges(self, replica: str, first: int, last: int) -> list[TentativeRange]:
        """Return the ranges of ``first..last`` that the writer's branches closed, ascending, of one
        branch each, without parts.
        """
        return self._writers[replica].branches.ranges(first, last)

    def open_parts(self, bucket: int) -> tuple[str, tuple[Part, ...]]:
        """Return (writer, its stable parts) of a bucket that is not stable, for the writer that has
        named most rows of it; ("", ()) if none has.
        """
        if bucket <= self._upto:
            return "", ()
        named = (
            (name, w.closed_parts.get(bucket) or w.pending.of(bucket))
            for name, w in self._writers.items()
        )
        return max(
            ((n, p) for n, p in named if p),
            key=lambda x: (sum(part.rows for part in x[1]), x[0]),
            default=("", ()),
        )

    def open_buckets(self, first: int, last: int, count_max: int | None = None) -> list[int]:
        """Return the buckets in ``first..last`` that have named stable parts but are not stable,
        ascending; only the first ``count_max`` of them.
        """
        first = max(first, self._upto + 1)
        found: set[int] = set()
        for writer in self._writers.values():
            found.update(
                writer.closed_parts.between(first, last, count_max),
                writer.pending.between(first, last, count_max),
            )
        return sorted(found)[:count_max]

    # -- forgetting and log snapshots
    # ----------------------------------------------------------------------------------------------

    def forget(self, upto: int) -> None:
        """Drop the descriptions of buckets up to ``upto``, which the reader has passed; at most up
        to ``self.upto``. Bounds memory.
        """
        upto = min(upto, self._upto)
        if upto <= self._forgotten:
            return
        self.stable_parts -= sum(len(parts) for _, (_, parts) in self._stable.pop_upto(upto))
        self._recomputed.pop_upto(upto)
        for writer in self._writers.values():
            writer.closed_parts.pop_upto(upto)
        self._forgotten = upto

    def snapshot(self, as_of: int, forgotten: int = 0) -> LogSnapshot:
        """Return the state after all records below offset ``as_of``, without the buckets up to
        ``forgotten``.
        """
        after = max(self._forgotten, min(forgotten, self._upto))
        replicas = tuple(
            writer.snapshot(name, self._own(name, after)) for name, writer in self._writers.items()
        )
        ranges = [
            StableRange(
                bucket, bucket, *self._stable[bucket], recomputed=self._recomputed.has(bucket)
            )
            for bucket in self._stable.between(after + 1, self._upto)
        ]
        ranges.append(StableRange(self._upto, self._upto, "", ()))
        return LogSnapshot(
            as_of,
            after,
            replicas,
            tuple(ranges),
            self._past,
            self._version,
            self._version_after,
            self.bucket_ms,
            self.given_up.ranges(),
            self.share,
            self.rest_upto,
            self.attempt,
        )

    def _own(self, name: str, after: int) -> list[int]:
        """Return the buckets after ``after`` whose parts by this writer no stable range of the
        snapshot repeats: the bucket is not stable, or has other stable parts.
        """
        own = self._writers[name].closed_parts
        between = own.between(after + 1, own.highest)
        return [
            b
            for b in between
            if (found := self._stable.get(b)) is None or found[0] != name or self._recomputed.has(b)
        ]

    def adopt(self, log_snapshot: LogSnapshot) -> None:
        """Replace this empty log state with that of ``log_snapshot``; the next record to apply is
        the one at offset ``log_snapshot.as_of``. Only before the first ``apply``.

        A writer that the log snapshot does not list begins later. Stable buckets of a former writer
        are kept.

        Raises:
            RemoteProtocolError: no log state of this stream has this log snapshot. Nothing has
                changed.
        """
        known = {r.replica for r in log_snapshot.replicas}
        if not known & self._writers.keys():
            raise RemoteProtocolError(
                f"a log snapshot describes the writers {', '.join(sorted(known))[:200]}, none of"
                f" which is a writer of this stream: {', '.join(sorted(self._writers))}"
            )
        for entry in log_snapshot.ranges:
            if entry.replica and entry.replica not in known:
                raise RemoteProtocolError(
                    f"a log snapshot gives bucket {entry.first} to {entry.replica[:60]!r}, which is"
                    " not a writer in it"
                )
        if self.bucket_ms_expected and log_snapshot.bucket_ms not in (0, self.bucket_ms_expected):
            raise RemoteProtocolError(
                f"a log snapshot has buckets of {log_snapshot.bucket_ms} ms, not of"
                f" {self.bucket_ms_expected} ms"
            )
        end = next((r.last for r in log_snapshot.replicas if r.last and r.last.heirs), None)
        if end is not None and not self.may_end:
            raise RemoteProtocolError("a log snapshot describes a stream that has ended")
        self._forgotten, self._past = log_snapshot.forgotten, log_snapshot.past
        self._version = log_snapshot.version
        self._version_after = log_snapshot.version_after
        self.bucket_ms, self.share = log_snapshot.bucket_ms, log_snapshot.share
        self.rest_upto, self.attempt = log_snapshot.rest_upto, log_snapshot.attempt
        self._end = end
        self.given_up.add(log_snapshot.given_up)
        for r in log_snapshot.replicas:
            if r.replica in self._writers:
                self._writers[r.replica] = WriterState.from_snapshot(r)
        own = {r.replica: {part.bucket for part in r.closed_parts} for r in log_snapshot.replicas}
        for entry in log_snapshot.ranges:
            if not entry.replica:
                self._upto = entry.last
                continue
            self._stable[entry.first] = (entry.replica, entry.parts)
            self.stable_parts += len(entry.parts)
            if entry.recomputed:
                self._recomputed[entry.first] = None
            elif entry.replica in self._writers and entry.first not in own[entry.replica]:
                self._writers[entry.replica].closed_parts[entry.first] = entry.parts

    @classmethod
    def from_snapshot(cls, log_snapshot: LogSnapshot) -> Self:
        """Return the log state of ``log_snapshot``; the next record to apply is the one at offset
        ``log_snapshot.as_of``.

        Raises:
            RemoteProtocolError: no log state has this log snapshot.
        """
        log_state = cls(r.replica for r in log_snapshot.replicas)
        log_state.adopt(log_snapshot)
        return log_state
