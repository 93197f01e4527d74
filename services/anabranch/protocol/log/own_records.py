"""When does what a writer has appended count, and when is it sent again?

Theory of operation (rules 1 and 2). An acknowledgement proves nothing: a record counts when its
writer has read it back from the log, accepted. So an unknown outcome needs no case of its own: the
identical record is sent again, and the log state ignores a second one. A writer has one thing under
way at a time; what the log shows of it *settles* it, or ends the writer.

An epoch begins the same way. Its record carries a token that no other process has, and the epoch is
the offset at which the log shows it.

Invariants:
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

from typing import Final

from anabranch.protocol.errors import (
    ConfigurationError,
    Fenced,
    LocalProtocolError,
    TooManyParts,
    Unavailable,
)
from anabranch.protocol.limits import PENDING_PARTS_MAX
from anabranch.protocol.log.boundary_log import LogState, Outcome
from anabranch.protocol.log.records import (
    BoundaryRecord,
    BranchEnded,
    EpochStarted,
    LogEntry,
    Recomputed,
)

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
    """Of one writer of one stream. Tell it every record of the log right after the log state took
    it.
    """

    def __init__(self, stream: str, started: EpochStarted) -> None:
        """``stream``: in the words of messages. ``started``: with which an epoch begins."""
        self._stream, self._started = stream, started
        self._token_offset: int | None = None
        self._superseded = False
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
                has buckets of another width (BL16).
        """
        if self._token_offset is None:
            raise LocalProtocolError(f"{self._stream}: an epoch begins whose record is not there")
        if self._superseded:
            version, after = log_state.version
            raise ConfigurationError(
                f"{self._stream}: version {version} makes this stream after bucket {after}, and"
                f" this process has version {self._started.version}: give the stage `version:"
                f" {version}` and its function, or `version: {version + 1}` to go back on purpose"
            )
        self.epoch = self._token_offset
        self.check_epoch(log_state)
        return self.epoch

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
            self._token_offset, self._superseded = offset, not outcome.accepted
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
    """Of one record that the log does not show yet (OW4)."""

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
