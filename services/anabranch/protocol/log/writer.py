"""One writer of a boundary log: which records it appends, how it cuts one that is too large, when
each counts, and when it is sent again.

Theory of operation. *The chain.* Each record of a query continues the one before. A query that
begins in a timeline's directory continues the record of the last batch committed there
(``protocol.log.timeline``). From a fork on the query that runs is the branch: its records are
tentative, and its first one begins from what was closed at the fork, with the parts that were open
then. What was missing once a branch names from then on: state lacks it, and rows made of it may
belong to later buckets, of which a batch that lacks them shows nothing.

*Pieces.* How many buckets a batch of a stage gives results in is up to its function and its state:
windows over a backlog end in far more buckets than were read. The plan stands in Spark's log before
anybody can know, and is run again as it is (rule 9). So the record must be sayable however many
parts it has. ``pieces`` cuts its parts by bucket. Each piece is an ordinary record that continues
the one before and closes what is whole by then, so every reader takes it as any other, and the
number of open parts does not grow with the batch. The last piece has the batch's own id, which is
what whoever goes on from the checkpoint continues. The ids of those before are of one timeline of
their own, named after the batch's: readers remember TIMELINES_MAX of them, and must not lose the
batch's own over its pieces.

*What counts* (rules 1 and 2). An acknowledgement proves nothing: a record counts when its writer
has read it back from the log, accepted. So an unknown outcome needs no case of its own: the
identical record is sent again, and the log state ignores a second one. A writer has one thing under
way at a time; what the log shows of it *settles* it, or ends the writer. An epoch begins the same
way. Its record carries a token that no other process has, and the epoch is the offset at which the
log shows it.

Invariants:
    RX1 a record names the one before it of its query (rules 3, 9), and counts as the one before
        only once it was seen accepted.
    RX2 a stable record is of a query in the stable timeline that never forked (rules 11, 12); a
        tentative one of a query that did.
    RX3 the first record of a branch names all parts that were open at the fork.
    RX4 up to where the output is given up, buckets are closed empty, by branches too, and their
        stable records name every input as missing (``protocol.stage.recovery``).
    RX5 a timeline that goes on in a copy of another's state begins with a base record: it closes
        what the copy holds, and says that this is not the replica's own (rule 6).
    RP1 no piece names more than PARTS_PER_RECORD_MAX parts, and a record that needs no cut is its
        only piece.
    RP2 a bucket is closed with the piece that names its last part, or a later one: the pieces
        together say what the record says.
    RP3 after a crash between two pieces the batch's re-run continues the record before the batch,
        which cuts off the pieces that were appended (rule 4). The buckets that they closed stay,
        and are the same, as those of any batch that is run again.
    RP4 ids of pieces are distinct, and rise within their timeline from piece to piece and from
        batch to batch, however many there are.
    RP5 a batch has at most PIECES_MAX pieces, so that the record before it is still remembered when
        the last one is appended (RP3).
    OW1 the epoch is the offset of the own token in the log, and whoever finds a newer epoch of its
        replica there writes nothing more (rule 1).
    OW2 a boundary record counts once the log state has accepted it, by whichever of several
        identical sendings (rule 2); the next one is sent after that.
    OW3 a record that the log shows as rejected is not waited for: its writer is not the writer any
        more, or has too much open.
    OW4 what was acknowledged is in the log, so it is given the time that a slow reader takes. What
        may be lost is sent again soon, since nothing goes on without it; but not the record of an
        epoch, of which a second one would begin another epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
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
"""Open parts that a branch can inherit: its first record repeats them, while live results
wait for it. A stage with more waits for its input.
"""


def base_record(replica: str, epoch: int, timeline: Timeline, written_ms: int) -> BoundaryRecord:
    """The base record of ``timeline`` (RX5).

    Raises:
        LocalProtocolError: the timeline goes on in no copy.
    """
    if timeline.base is None or timeline.start_tip is None:
        message = f"timeline {timeline.name} has no base"
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
    """The boundary records of one query of one process."""

    def __init__(self, replica: str, epoch: int, timeline: Timeline, *, given_up: int = 0) -> None:
        """``given_up``: buckets up to this one are closed empty, and named as missing
        (``protocol.stage.recovery``).
        """
        self.given_up = given_up
        self._replica = replica
        self._epoch = epoch
        self._timeline = timeline.name
        self.tip: BatchId | None = timeline.start_tip
        self._fork: tuple[int, int, tuple[Part, ...]] | None = None
        self._branch_begun = False
        self.has_shown = False
        """The query is a branch, and has closed something tentatively."""
        self._missing: tuple[str, ...] = ()

    @staticmethod
    def can_inherit(pending: tuple[Part, ...]) -> bool:
        """Whether a branch can begin with these open parts: its first record names them all."""
        return len(pending) <= BRANCH_PENDING_PARTS_MAX

    def became_branch(self, counter: int, closed: int, pending: tuple[Part, ...]) -> None:
        """From here on the query's records are tentative: branch ``counter``, from ``closed``
        on, with the parts still open at the fork.
        """
        self._fork = (counter, closed, pending)

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
    ) -> BoundaryRecord:
        """The record of Spark's batch ``batch``.

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
        tentative = replace(record, kind=kind, branch=(self._epoch, counter), missing=missing)
        if self._branch_begun:
            return tentative
        return replace(tentative, base=base, parts=(*pending, *record.parts))

    def appended(self, record: BoundaryRecord) -> None:
        """``record`` was seen accepted in the log."""
        self.tip = record.id
        if record.kind is BoundaryKind.TENTATIVE and self._fork is not None:
            self._branch_begun = True
            self.has_shown = record.closed > self._fork[1]


PIECES_MAX: Final = 1_000
"""Records in which one batch of a stage is written: far more parts than the memory of a stage
holds. Well below CHAIN_RECORDS_MAX: a batch that is run again continues the record before its first
piece.
"""


_PIECES: Final = ".pieces"
"""End of the timeline in the ids of pieces: no other timeline has a dot."""


def is_piece(ident: BatchId) -> bool:
    """Return whether the record of this id is a piece of a batch whose other pieces follow it."""
    return ident.timeline.endswith(_PIECES)


def pieces(record: BoundaryRecord) -> Iterator[BoundaryRecord]:
    """The records to append for ``record`` of a stage, in order; the last one has its id.

    Raises:
        TooManyParts: before the first piece (RP5).
    """
    if len(record.parts) > PIECES_MAX * PARTS_PER_RECORD_MAX:
        message = (
            f"batch {record.id} gives results in {len(record.parts)} parts, more than {PIECES_MAX}"
            " records name"
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


SENDINGS_MAX: Final = 10
"""More of one record are no trouble that passes."""
SEEN_WAIT_MS: Final = 10_000
"""What was acknowledged is in the log: that it is not seen is the reader's trouble."""
UNKNOWN_WAIT_MS: Final = 1_000
"""A record that may be lost is sent again soon: nothing goes on without it, and a second one
does no harm.
"""

Record = BoundaryRecord | BranchEnded | Recomputed
"""What an epoch writes."""

OwnEntry = EpochStarted | Record


class OwnRecords:
    """What the log shows of the records of one writer of one stream. Tell it every record of the
    log right after the log state took it.
    """

    def __init__(self, stream: str, started: EpochStarted) -> None:
        """``stream``: in the words of messages. ``started``: with which an epoch begins."""
        self._stream, self._started = stream, started
        self._token_offset: int | None = None
        self._not_begun = ""
        """Why the epoch does not count; empty: it does."""
        self._under_way: Record | None = None
        self._rejection = ""
        """Why the log rejected what is under way."""
        self._seen = False
        """The log shows the recomputed blocks that are under way."""
        self.epoch = -1

    @property
    def under_way(self) -> Record | None:
        """What is not settled yet."""
        return self._under_way

    @property
    def has_token(self) -> bool:
        """The log shows the record of the epoch that begins."""
        return self._token_offset is not None

    def begins(self) -> None:
        """The record of an epoch is about to be sent."""
        self._token_offset = None

    def begun(self, log_state: LogState) -> int:
        """The epoch, whose record the log shows, and was read through.

        Raises:
            Fenced: another process of this replica began after this one.
            ConfigurationError: a higher version of the stage makes the stream by now (BL15), or it
                has buckets of another width, or is made from another share of its inputs (BL16).
        """
        if self._token_offset is None:
            raise LocalProtocolError(f"{self._stream}: an epoch begins whose record is not there")
        self.check_share(log_state)
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
            ConfigurationError: it is made from another one.
        """
        if log_state.bucket_ms and log_state.share != self._started.share:
            raise ConfigurationError(
                f"{self._stream}: this stream is made from {log_state.share or 'all rows'}, and the"
                f" pipeline file says {self._started.share or 'all rows'}: a stage keeps its"
                " `shards` and `shard_by`. Put them back, or give the stage a new name"
            )

    def check_epoch(self, log_state: LogState) -> None:
        """Raises Fenced when the log has a newer epoch of this replica (OW1)."""
        current = log_state.epoch(self._started.replica)
        if current != self.epoch:
            raise Fenced(
                f"{self._stream}: epoch {self.epoch} of replica {self._started.replica} was ended"
                f" by epoch {current}"
            )

    def put(self, entry: Record) -> None:
        """``entry`` is about to be sent (OW2).

        Raises:
            LocalProtocolError: it is of another epoch, or an earlier one is still under way.
        """
        if self._under_way is not None:
            raise LocalProtocolError(
                f"{_named(entry)} given to a writer that waits for {_named(self._under_way)}"
            )
        if entry.epoch != self.epoch:
            raise LocalProtocolError(
                f"{_named(entry)} of epoch {entry.epoch} given to the writer of epoch {self.epoch}"
            )
        self._under_way = entry
        self._rejection, self._seen = "", False

    def seen(self, offset: int, entry: LogEntry, outcome: Outcome) -> None:
        """Take note of a record of the log."""
        if entry == self._started:
            self._token_offset = offset
            self._not_begun = "" if outcome.accepted else outcome.reason
        own = self._under_way
        if outcome.accepted and isinstance(entry, Recomputed) and entry == own:
            self._seen = True
        if (
            isinstance(own, BoundaryRecord)
            and isinstance(entry, BoundaryRecord)
            and (entry.replica, entry.id) == (own.replica, own.id)
            and not outcome.accepted
            and outcome.reason != "known"
        ):
            self._rejection = outcome.reason

    def is_settled(self, log_state: LogState) -> bool:
        """Whether what is under way counts by now (OW2).

        Raises:
            Fenced: a newer epoch began, or the record was rejected (OW3).
            TooManyParts: it was rejected since too much is open.
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
        """What was under way is settled, or given up."""
        self._under_way = None


class Sendings:
    """When one record that the log does not show yet is sent again (OW4)."""

    def __init__(self, stream: str, entry: OwnEntry) -> None:
        """``stream``: in the words of messages."""
        self._stream, self._entry = stream, entry
        self._count = 0
        self._until_ms = 0

    def sent(self, now_ms: int, *, is_acknowledged: bool) -> None:
        """It was sent, and is looked for from ``now_ms`` on."""
        is_certain = is_acknowledged or isinstance(self._entry, EpochStarted)
        self._count += 1
        self._until_ms = now_ms + (SEEN_WAIT_MS if is_certain else UNKNOWN_WAIT_MS)

    def is_due_again(self, now_ms: int) -> bool:
        """Whether it is to be sent again.

        Raises:
            Unavailable: it was often enough.
        """
        if now_ms <= self._until_ms:
            return False
        if self._count > SENDINGS_MAX:
            raise Unavailable(
                f"{self._stream}: {_named(self._entry)} is not in the log after {self._count} tries"
            )
        return True


def _named(entry: OwnEntry) -> str:
    if isinstance(entry, EpochStarted):
        return "the epoch record"
    if isinstance(entry, BranchEnded):
        return f"the end of branch {entry.branch}"
    return f"record {entry.id}" if isinstance(entry, BoundaryRecord) else "recomputed blocks"
