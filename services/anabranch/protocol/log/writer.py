"""Writer of a boundary log: which records it appends, how it splits one that is too large, when
each counts, and when it is sent again.

Theory of operation. *The chain.* Each record of a query continues the one before. A query that
begins in a timeline's directory continues the record of the last batch committed there
(``protocol.log.timeline``). After a fork the running query is the branch: its records are
tentative, and its first one begins after the last bucket closed at the fork, with the parts that
were open then. A stream that was missing once is named by every later record of the branch: the
state lacks its rows, and results computed from them may belong to later buckets. Likewise the
largest share of rows that was left out, for as long as the state horizon, if that is declared.

*Pieces.* The number of buckets with results in one batch of a stage depends on its function and its
state: windows over a backlog end in far more buckets than were read. The plan is in Spark's log
before this number is known, and is run again unchanged (rule 9). So any number of parts must fit.
``pieces`` splits the record's parts by bucket. Each piece is an ordinary record that continues the
one before and closes the buckets that are complete by then, so readers need no special case, and
the number of open parts does not grow with the batch. The last piece has the batch's own id, which
the next record after the checkpoint continues. The other pieces have ids of one timeline of their
own, named after the batch's: readers remember TIMELINES_MAX timelines, and must not lose the
batch's own because of its pieces.

*What counts* (rules 1 and 2). An acknowledgement proves nothing: a record counts when its writer
has read it back from the log, accepted. So an unknown outcome needs no case of its own: the
identical record is sent again, and the log state ignores a second one. A writer has one record in
flight at a time; the log either shows it accepted, which *settles* it, or shows that the writer was
replaced, which ends the writer. An epoch begins the same way. Its record carries a token that no
other process has, and the epoch is the offset at which the log shows it.

Invariants:
    RX1 a record names the one before it of its query (rules 3, 9), and counts as the one before
        only once it was seen accepted.
    RX2 a stable record is of a query in the stable timeline that never forked (rules 11, 12); a
        tentative one of a query that did.
    RX3 the first record of a branch names all parts that were open at the fork.
    RX4 buckets whose output is given up are closed empty, by branches too, and their stable records
        name every input as missing (``protocol.stage.recovery``).
    RX5 a timeline that continues in a copy of another's state begins with a base record: it closes
        the buckets that the copy holds, and excludes them from the replica's own (rule 6).
    RX6 a tentative record claims at least the share that any input lacked of which its buckets'
        results can be made; once the input behind them is whole again for the state horizon of the
        stage, it claims nothing.
    RP1 no piece names more than PARTS_PER_RECORD_MAX parts, and a record that need not be split is
        its only piece.
    RP2 a bucket is closed with the piece that names its last part, or a later one: the pieces
        together are equivalent to the record.
    RP3 after a crash between two pieces the batch's re-run continues the record before the batch,
        which cuts off the pieces that were appended (rule 4). The buckets that they closed remain,
        and the re-run yields the same, as for any batch that is run again.
    RP4 ids of pieces are distinct, and rise within their timeline from piece to piece and from
        batch to batch, however many there are.
    RP5 a batch has at most PIECES_MAX pieces, so that the record before it is still remembered when
        the last one is appended (RP3).
    OW1 the epoch is the offset of the writer's own token in the log. A process that finds a newer
        epoch of its replica there writes nothing more (rule 1).
    OW2 a boundary record counts once the log state has accepted it, from whichever of several
        identical attempts (rule 2); the next record is sent after that.
    OW3 a writer does not wait for a record that the log shows as rejected: it was fenced, or has
        too many open parts.
    OW4 an acknowledged record is in the log, so the timeout is that of a slow reader. A record that
        may be lost is sent again soon, since the writer waits for it; but not the record of an
        epoch, because a second one would begin another epoch.
    OW5 every record has the token of its epoch: offsets, and so epochs and the ids of records that
        follow from them, are the same again in a topic that was deleted and created again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from anabranch.protocol.errors import (
    ConfigurationError,
    Fenced,
    LocalProtocolError,
    TooManyParts,
    Unavailable,
)
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import MISSING_STREAMS_MAX, PARTS_PER_RECORD_MAX, PENDING_PARTS_MAX
from anabranch.protocol.log.boundary_log import LogState, Outcome
from anabranch.protocol.log.records import (
    BoundaryKind,
    BoundaryRecord,
    BranchEnded,
    EpochStarted,
    LogEntry,
    Part,
    Recomputed,
)
from anabranch.protocol.log.timeline import Timeline

BRANCH_PENDING_PARTS_MAX: Final = 10_000
"""Maximum number of open parts that a branch can inherit: its first record repeats them, while live
results wait for it. A stage with more of them waits for its input.
"""


def base_record(replica: str, epoch: int, timeline: Timeline, written_ms: int) -> BoundaryRecord:
    """Return the base record of ``timeline`` (RX5).

    Raises:
        LocalProtocolError: the timeline is not a copy of another's state.
    """
    if timeline.base is None or timeline.start_tip is None:
        message = (
            f"timeline {timeline.name} has no base record: it is no copy of another's checkpoint"
        )
        raise LocalProtocolError(message)
    return BoundaryRecord(
        replica=replica,
        epoch=epoch,
        id=timeline.start_tip,
        prev=None,
        closed=timeline.base,
        base=timeline.base,
        written_ms=written_ms,
    )


class RecordChain:
    """Chain of boundary records of one query of one process."""

    def __init__(
        self,
        replica: str,
        epoch: int,
        timeline: Timeline,
        *,
        given_up: int = 0,
        is_stateful: bool = True,
        horizon_buckets: int | None = None,
    ) -> None:
        """Begin the chain after the timeline's tip.

        Args:
            replica: The writer.
            epoch: Its epoch.
            timeline: Timeline of the query.
            given_up: Buckets up to this one are closed empty, with every input named as missing
                (``protocol.stage.recovery``).
            is_stateful: Whether rows that a batch lacks may show in the results of later ones.
            horizon_buckets: State horizon of the stage, in buckets: how many buckets after its own
                a row can still change results. None: it is not known.
        """
        self._shed = _LackedShare(is_stateful=is_stateful, horizon_buckets=horizon_buckets)
        self.given_up = given_up
        self._replica = replica
        self._epoch = epoch
        self._timeline = timeline.name
        self.tip: BatchId | None = timeline.start_tip
        self._fork: tuple[int, int, tuple[Part, ...]] | None = None
        self._branch_begun = False
        self.has_shown = False
        """Whether the query is a branch that has closed buckets tentatively."""
        self._missing: tuple[str, ...] = ()

    @staticmethod
    def can_inherit(pending: tuple[Part, ...]) -> bool:
        """Return whether a branch can begin with these open parts: its first record names
        them all.
        """
        return len(pending) <= BRANCH_PENDING_PARTS_MAX

    def became_branch(self, counter: int, closed: int, pending: tuple[Part, ...]) -> None:
        """Switch to tentative records: those of branch ``counter``, which begins after bucket
        ``closed`` with the parts ``pending`` that were open at the fork.
        """
        self._fork = (counter, closed, pending)
        self._shed.gave(closed, pending)

    def record(
        self,
        kind: BoundaryKind,
        batch: int,
        closed: int,
        parts: tuple[Part, ...],
        *,
        is_stable_query: bool,
        missing: tuple[str, ...],
        made_from: tuple[tuple[str, int], ...],
        written_ms: int,
        shed: int = 0,
    ) -> BoundaryRecord:
        """Return the record of Spark's batch ``batch``.

        Raises:
            Fenced: a stable batch of a query that is not in the stable timeline (rule 12, RE1).
            LocalProtocolError: a tentative batch of a query that never forked.
        """
        record = BoundaryRecord(
            replica=self._replica,
            epoch=self._epoch,
            id=BatchId(self._timeline, batch),
            prev=self.tip,
            closed=closed,
            parts=tuple(part for part in parts if part.bucket > self.given_up),
            made_from=made_from,
            written_ms=written_ms,
        )
        self._shed.gave(closed, record.parts)
        if kind is BoundaryKind.STABLE:
            if not is_stable_query or self._fork is not None:
                message = (
                    f"stable batch {batch} of timeline {self._timeline}, which is not the"
                    " stable one"
                )
                raise Fenced(message)
            if closed > self.given_up or not self.given_up:
                return record
            every = tuple(name for name, _ in made_from)[:MISSING_STREAMS_MAX]
            return replace(record, missing=every)
        if self._fork is None:
            message = f"tentative batch {batch} of timeline {self._timeline}, which never forked"
            raise LocalProtocolError(message)
        counter, base, pending = self._fork
        missing = tuple(sorted({*self._missing, *missing})[:MISSING_STREAMS_MAX])
        self._missing = missing
        tentative = replace(
            record,
            kind=kind,
            branch=(self._epoch, counter),
            missing=missing,
            shed=self._shed.claimed(closed, shed),
        )
        if self._branch_begun:
            return tentative
        return replace(tentative, base=base, parts=(*pending, *record.parts))

    def appended(self, record: BoundaryRecord) -> None:
        """Continue the chain after ``record``, which the log has accepted."""
        self.tip = record.id
        if record.kind is BoundaryKind.TENTATIVE and self._fork is not None:
            self._branch_begun = True
            self.has_shown = record.closed > self._fork[1]


class _LackedShare:
    """Share of its input that the results of a branch lack (RX6).

    A batch knows what its own buckets lack. Results may also be made from rows of earlier buckets:
    windows hold them in state, and a function may give a row a later time. How far back that goes
    is the state horizon. Where the pipeline file does not declare it, everything since the fork
    counts, unless the function has no state and gave no row a later bucket so far. Batches before
    the fork count for that, too: the only row that a later bucket would get may be left out.
    """

    def __init__(self, *, is_stateful: bool, horizon_buckets: int | None) -> None:
        self._declared = horizon_buckets
        self._horizon = horizon_buckets if is_stateful or horizon_buckets is not None else 0
        """Number of buckets before its own that a result is made from; None: all."""
        self._lacked: list[tuple[int, int]] = []
        """Last bucket and share of batches whose input lacked rows, within the horizon. Shares
        decrease: a batch before one that lacked as much says nothing more, and an overload may last
        for days.
        """

    def gave(self, closed: int, parts: Iterable[Part]) -> None:
        """Record that a query which has closed the buckets up to ``closed`` gave ``parts``."""
        if any(part.bucket > closed for part in parts):
            self._horizon = self._declared

    def claimed(self, closed: int, shed: int) -> int:
        """Return what the record of the batch that closes up to ``closed`` claims to lack, in per
        mille. ``shed``: per mille that the input of its own buckets lacks.
        """
        self._lacked = [each for each in self._lacked if each[1] > shed]
        self._lacked.append((closed, shed))
        claimed = self._lacked[0][1]
        if self._horizon is None:
            self._lacked = [(closed, claimed)]
        else:
            since = closed + 1 - self._horizon
            self._lacked = [each for each in self._lacked if each[0] >= since]
        return claimed


PIECES_MAX: Final = 1_000
"""Maximum number of records for one batch of a stage: far more parts than the memory of a stage
holds. Well below CHAIN_RECORDS_MAX: a batch that is run again continues the record before its first
piece.
"""


_PIECES: Final = ".pieces"
"""Suffix of the timeline in the ids of pieces: no other timeline has a dot."""


def is_piece(ident: BatchId) -> bool:
    """Return whether the record of this id is a piece of a batch whose other pieces follow it."""
    return ident.timeline.endswith(_PIECES)


def pieces(record: BoundaryRecord) -> Iterator[BoundaryRecord]:
    """Yield the records to append for ``record`` of a stage, in order; the last one has its
    id.

    Raises:
        TooManyParts: before the first piece (RP5).
    """
    if len(record.parts) > PIECES_MAX * PARTS_PER_RECORD_MAX:
        message = (
            f"batch {record.id} gives results in {len(record.parts)} parts, more than {PIECES_MAX}"
            f" records of {PARTS_PER_RECORD_MAX} parts can name"
        )
        raise TooManyParts(message)
    if len(record.parts) <= PARTS_PER_RECORD_MAX:
        yield record
        return
    parts = sorted(record.parts, key=lambda part: part.bucket)
    base = record.base
    prev = record.prev
    number = 0
    while len(parts) > PARTS_PER_RECORD_MAX:
        number += 1
        named, parts = tuple(parts[:PARTS_PER_RECORD_MAX]), parts[PARTS_PER_RECORD_MAX:]
        ident = BatchId(f"{record.id.timeline}{_PIECES}", record.id.batch * PIECES_MAX + number)
        yield replace(
            record,
            id=ident,
            prev=prev,
            base=base,
            closed=min(record.closed, parts[0].bucket - 1),
            parts=named,
        )
        base, prev = None, ident
    yield replace(record, prev=prev, base=base, parts=tuple(parts))


SEND_ATTEMPTS_MAX: Final = 10
"""Maximum number of attempts to send one record. More failures are not transient."""
SEEN_WAIT_MS: Final = 10_000
"""Timeout for reading an acknowledged record back, in ms. It is in the log, so only the reader is
slow.
"""
UNKNOWN_WAIT_MS: Final = 1_000
"""Delay before a record with an unknown outcome is sent again, in ms. Short, because the writer
waits for it and a duplicate does no harm.
"""

Record = BoundaryRecord | BranchEnded | Recomputed
"""Record that a writer appends within its epoch."""

OwnEntry = EpochStarted | Record


class OwnRecords:
    """State of one writer's own records, as one stream's log shows them. Needs every record of the
    log, right after the log state applied it (``seen``).
    """

    def __init__(self, stream: str, started: EpochStarted) -> None:
        """Track the epoch that begins with ``started``. ``stream`` names the stream in messages."""
        self._stream, self._started = stream, started
        self._token_offset: int | None = None
        self._not_begun = ""
        """Reason why the epoch does not count; empty if it does."""
        self._under_way: Record | None = None
        self._rejection = ""
        """Reason why the log rejected the record in flight; empty if it did not."""
        self._seen = False
        """Whether the log shows the recomputed blocks in flight."""
        self.epoch = -1

    @property
    def under_way(self) -> Record | None:
        """Record that was sent and is not settled; None if there is none."""
        return self._under_way

    @property
    def has_token(self) -> bool:
        """Whether the log shows the epoch's first record."""
        return self._token_offset is not None

    def begins(self) -> None:
        """Prepare for sending the record of an epoch."""
        self._token_offset = None

    def begun(self, log_state: LogState) -> int:
        """Return the epoch, once its record was read back from the log and applied.

        Raises:
            Fenced: another process of this replica began after this one.
            ConfigurationError: a higher version of the stage makes the stream by now (BL15), or it
                has buckets of another width, or is made from another share of its inputs (BL16).
            Unavailable: the stream is that of a half whose shard is split by a later attempt
                (BL21).
        """
        if self._token_offset is None:
            raise LocalProtocolError(
                f"{self._stream}: an epoch begins whose record the log does not show"
            )
        self.check_share(log_state)
        self._check_attempt(log_state)
        if self._not_begun:
            version, after = log_state.version
            raise ConfigurationError(
                f"{self._stream}: version {version} makes this stream after bucket {after}, and"
                f" this process has version {self._started.version}: give the stage `version:"
                f" {version}` and its function, or `version: {version + 1}` to go back on purpose"
            )
        self.epoch = self._token_offset
        self.check_epoch(log_state)
        return self.epoch

    def check_share(self, log_state: LogState) -> None:
        """Check that the stream is made from the share of the inputs that the process takes (BL16).

        Raises:
            ConfigurationError: the stream is made from another share.
        """
        if log_state.bucket_ms and log_state.share != self._started.share:
            before, now = (each or "all rows" for each in (log_state.share, self._started.share))
            raise ConfigurationError(
                f"{self._stream}: this stream is made from {before}, and this process would make it"
                f" from {now}: a stage keeps its `shards`, its `shard_by` and the hash of its keys."
                " Put the settings back, or run the version of anabranch that began the stream, or"
                " give the stage a new name"
            )

    def _check_attempt(self, log_state: LogState) -> None:
        """Check that the shard of this half is not split by a later attempt than its own (BL21).
        Raise Unavailable if it is: no other process has replaced this one, and it begins again.
        """
        if log_state.attempt > self._started.attempt:
            raise Unavailable(
                f"{self._stream}: its shard is split by attempt {log_state.attempt}, and this"
                f" process has begun for attempt {self._started.attempt}: it begins again"
            )

    def check_epoch(self, log_state: LogState) -> None:
        """Check that the log has no newer epoch of this replica (OW1).

        Raises:
            Fenced: the log has a newer epoch.
            Unavailable: the newer epoch is that of a half whose shard is split by a later attempt.
        """
        self._check_attempt(log_state)
        current = log_state.epoch(self._started.replica)
        if current != self.epoch:
            raise Fenced(
                f"{self._stream}: epoch {self.epoch} of replica {self._started.replica} was ended"
                f" by epoch {current}"
            )

    def put(self, entry: Record) -> Record:
        """Make ``entry`` the record in flight, right before it is sent (OW2). Return it with the
        token of the epoch (OW5).

        Raises:
            LocalProtocolError: ``entry`` is of another epoch, or an earlier record is in flight.
        """
        if self._under_way is not None:
            raise LocalProtocolError(
                f"{_named(entry)} sent while {_named(self._under_way)} is not settled"
            )
        if entry.epoch != self.epoch:
            raise LocalProtocolError(
                f"{_named(entry)} of epoch {entry.epoch} sent by the writer of epoch {self.epoch}"
            )
        self._under_way = replace(entry, token=self._started.token)
        self._rejection, self._seen = "", False
        return self._under_way

    def seen(self, offset: int, entry: LogEntry, outcome: Outcome) -> None:
        """Record an entry of the log and what the log state did with it."""
        if entry == self._started:
            self._token_offset = offset
            self._not_begun = "" if outcome.accepted else outcome.reason
        own = self._under_way
        if outcome.accepted and isinstance(entry, Recomputed) and entry == own:
            self._seen = True
        if (
            isinstance(own, BoundaryRecord)
            and isinstance(entry, BoundaryRecord)
            and (entry.replica, entry.id, entry.token) == (own.replica, own.id, own.token)
            and not outcome.accepted
            and outcome.reason != "known"
        ):
            self._rejection = outcome.reason

    def is_settled(self, log_state: LogState) -> bool:
        """Return whether the record in flight counts by now (OW2).

        Raises:
            Fenced: a newer epoch began, or the record was rejected (OW3).
            TooManyParts: the record was rejected since too much is open.
        """
        own = self._under_way
        self.check_epoch(log_state)
        if self._rejection == "pending":
            raise TooManyParts(
                f"{self._stream}: more than {PENDING_PARTS_MAX} parts would be open, the most that"
                " readers hold"
            )
        if self._rejection and own is not None:
            raise Fenced(f"{self._stream}: own {_named(own)} was rejected: {self._rejection}")
        if isinstance(own, BoundaryRecord):
            return log_state.accepted(own.replica, own.id)
        if isinstance(own, BranchEnded):
            ended = log_state.ended_branch(own.replica)
            return ended is not None and ended >= own.branch
        return self._seen

    def forget(self) -> None:
        """Clear the record in flight: it is settled or abandoned."""
        self._under_way = None


class SendRetries:
    """Retry schedule of one record that the log does not show yet (OW4)."""

    def __init__(self, stream: str, entry: OwnEntry) -> None:
        """Start the schedule of ``entry``. ``stream`` names the stream in messages."""
        self._stream, self._entry = stream, entry
        self._count = 0
        self._until_ms = 0

    def sent(self, now_ms: int, *, is_acknowledged: bool) -> None:
        """Record an attempt: from ``now_ms`` on the record is awaited in the log."""
        is_certain = is_acknowledged or isinstance(self._entry, EpochStarted)
        self._count += 1
        self._until_ms = now_ms + (SEEN_WAIT_MS if is_certain else UNKNOWN_WAIT_MS)

    def is_due_again(self, now_ms: int) -> bool:
        """Return whether the record must be sent again.

        Raises:
            Unavailable: the record was sent as often as it may be.
        """
        if now_ms <= self._until_ms:
            return False
        if self._count > SEND_ATTEMPTS_MAX:
            raise Unavailable(
                f"{self._stream}: {_named(self._entry)} is not in the log after {self._count}"
                " attempts: check that the broker accepts writes to it"
            )
        return True


def _named(entry: OwnEntry) -> str:
    if isinstance(entry, EpochStarted):
        return "the epoch record"
    if isinstance(entry, BranchEnded):
        return f"the end of branch {entry.branch}"
    return f"record {entry.id}" if isinstance(entry, BoundaryRecord) else "recomputed blocks"
