"""A stage that saves its state nowhere else: where does its process begin after its disk was lost,
and what is lost with it?

Theory of operation. The *state horizon* of a stage is a promise of its author: a record changes
results at most so much later than itself (the length of a window, the bound of a join, 0 for a
function of single rows). So results after time t are made from input after t - horizon alone,
whatever the function is, and an empty query that begins there makes them whole.

``upstream_backup``: the input's blocks are the backup. A new process begins at its output's last
closed bucket less *twice* the horizon. What it makes of the first horizon may be partial, and is
closed already: nobody takes it (rule 4). What it makes of the second is whole, and closed already:
it must be what stands in the log, bucket by bucket, else the promise is wrong, and the process ends
before it writes anything new. What another participant's node made may be wrong for another reason,
and its owner cannot mend it: it stands, as the first record in the log does, and is told. Until it has closed something new the comparison is *open*, which the
log says, too: a process that begins then does not go on from the checkpoint that was made so far,
of which half was never compared, but begins as the one before did. Trimming keeps what this needs.
No results are lost, and by their ids none comes twice: precise.

``amnesia``: a new process begins at what is complete now. The buckets from its output's last closed
one to there are lost, and those within the horizon after there would be partial: all of them are
closed *empty*, and their records name every input as missing. So what is lost stands in the log,
and what comes after the gap is right.

Invariants:
    SH1 a query that begins at ``after`` makes every bucket above ``after`` + horizon whole.
    SH2 upstream backup: ``after`` + horizon is not above the last closed bucket: nothing is left
        out.
    SH3 upstream backup: no record that closes a new bucket is let through unless every bucket of
        the second horizon was the same as before, by whichever process: while that is open, each
        begins anew. A bucket that was made on a partner's node, by what the log says, may differ.
    SH4 amnesia: a bucket that is not given up is whole; one that is given up is empty, and its
        record has ``missing``.
    SH5 amnesia: a gap that a crash interrupted is gone on with: its end follows from the log.
    SH6 a stage whose stream has closed nothing yet begins at the beginning, or where
        ``protocol.stage.late_start`` says: it has nothing to lose.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from anabranch.protocol.control.records import Alarm
from anabranch.protocol.errors import StageFunctionError
from anabranch.protocol.log.boundary_log import LogState, Outcome, contents
from anabranch.protocol.log.records import (
    BoundaryKind,
    BoundaryRecord,
    LogEntry,
    LogSnapshot,
    Origin,
)

GAP: Final = "gap"
"""Kind of an alarm: results were given up."""


def buckets_of(state_horizon_ms: int, width_ms: int) -> int:
    """The horizon in whole buckets, rounded up."""
    return -(-state_horizon_ms // width_ms)


@dataclass(frozen=True, slots=True)
class PartnerWrong:
    """A bucket that a partner's node made is not what was made of the same input at home."""

    stage: str
    bucket: int
    node: str


class StateHorizon:
    """Of one process of a stage with ``upstream_backup`` or ``amnesia``, which is the only
    writer of its stream.
    """

    def __init__(
        self,
        stage: str,
        state_horizon_ms: int,
        width_ms: int,
        complete: Callable[[], int] | None = None,
        is_partners: Callable[[str], bool] = lambda _node: False,
    ) -> None:
        """``complete``: amnesia; the last bucket that is complete on all inputs, their logs
        read to the end. None: upstream backup. ``is_partners``: whether another participant
        runs a node.
        """
        self._stage = stage
        self._horizon_ms = state_horizon_ms
        self._buckets = buckets_of(state_horizon_ms, width_ms)
        self._is_partners = is_partners
        self._made_on = Origin()
        self._wrong: list[PartnerWrong] = []
        self._complete = complete
        self._after = 0
        self._expected: dict[int, tuple[int, int]] = {}
        self._compared = 0
        """Buckets up to this one were compared, or need not be."""
        self._compare_upto = 0
        self._made: dict[int, tuple[int, int]] = {}

    def is_open(self, origin: Origin) -> bool:
        """Whether a checkpoint there may be is not to be gone on from: it was not compared to
        its end (SH3). ``origin``: of the only writer.
        """
        return self._complete is None and origin.open_upto > 0

    def after(self, closed: int) -> int:
        """The bucket after which a process without a checkpoint begins to read. ``closed``:
        the last one that its stream has closed (SH2, SH6).
        """
        if closed == 0:
            self._after = 0
        elif self._complete is None:
            self._after = max(0, closed - 2 * self._buckets)
        else:
            self._after = self._complete()
        return self._after

    def begin(self, log_state: LogState, replica: str, *, is_fresh: bool) -> tuple[int, int]:
        """(after, given up to) for the process's first query.

        Args:
            log_state: The stage's own stream, of which ``replica`` is the only writer; its epoch
                has begun.
            replica: The process writes as this one.
            is_fresh: It begins without a checkpoint, at what ``after`` said last.
        """
        closed, origin = log_state.closed(replica), log_state.origin(replica)
        if not is_fresh:
            return 0, 0 if origin.gap is None else origin.gap + self._buckets
        if self._complete is not None:
            return self._after, 0 if closed == 0 else self._after + self._buckets
        # Of a function that was changed on the way only what it made from its own state is
        # compared.
        whole_from = max(
            begun + self._buckets if begun else 0 for begun in (self._after, origin.made_after)
        )
        if (
            origin.made_by in ("", log_state.fingerprint(replica))
            and whole_from < closed <= log_state.upto
        ):
            self._compared = whole_from
            self._compare_upto = closed
            self._made_on = origin
            self._expected = {
                bucket: contents(parts)
                for bucket, _, parts in log_state.stable(whole_from + 1, closed)
            }
        return self._after, 0

    def check(self, record: BoundaryRecord) -> None:
        """``record`` is about to be appended (SH3).

        Raises:
            StageFunctionError: a bucket was made again and is not the same: the horizon is too
                short, or the function not deterministic.
        """
        if self._compared >= self._compare_upto or record.kind is not BoundaryKind.STABLE:
            return
        for part in record.parts:
            rows, digest = self._made.get(part.bucket, (0, 0))
            self._made[part.bucket] = rows + part.rows, (digest + part.digest) % 2**64
        upto = min(record.closed, self._compare_upto)
        for bucket in sorted({*self._expected, *self._made}):
            if self._compared < bucket <= upto and self._made.get(
                bucket, (0, 0)
            ) != self._expected.get(bucket, (0, 0)):
                node = self._made_on.node_of(bucket)
                if self._is_partners(node):
                    self._wrong.append(PartnerWrong(self._stage, bucket, node))
                    continue
                message = (
                    f"stage {self._stage}: bucket {bucket}, made again from {2 * self._horizon_ms}"
                    " ms of input, is not what it was: give the stage a longer state_horizon, or"
                    " ha: passive; or its function does not give the same for the same input"
                )
                raise StageFunctionError(message)
        self._compared = max(self._compared, upto)
        if self._compared >= self._compare_upto:
            self._expected, self._made = {}, {}

    def partner_wrong(self) -> list[PartnerWrong]:
        """What was found since this was asked last."""
        found, self._wrong = self._wrong, []
        return found

    def unneeded_upto(self, closed: int, synced: int) -> int:
        """Up to which bucket the inputs are not needed any more (rule 18). ``synced``: the
        checkpoint holds them up to here for good.
        """
        return (
            synced
            if self._complete is not None
            else max(0, min(synced, closed - 2 * self._buckets))
        )


class GapBook:
    """The gaps of one stream, as its log says them: for alarms. Reading the log again gives
    the same, as far as it is still there.
    """

    def __init__(self, stream: str, horizon_buckets: int, width_ms: int) -> None:
        self._stream = stream
        self._horizon_buckets = horizon_buckets
        self._width_ms = width_ms
        self._closed = 0
        self.lost = 0
        """Buckets that were given up, as far as the log was read."""

    def seen(self, entry: LogEntry, outcome: Outcome, now_ms: int) -> Alarm | None:
        """Take note of a record right after the log state took it; the alarm, where a gap
        begins.
        """
        if outcome.accepted and isinstance(entry, LogSnapshot):
            self._closed = max(r.closed for r in entry.replicas)
            return None
        if (
            not outcome.accepted
            or not isinstance(entry, BoundaryRecord)
            or entry.kind is not BoundaryKind.STABLE
        ):
            return None
        before, self._closed = self._closed, max(self._closed, entry.closed)
        if not entry.missing or entry.positions:
            return None
        self.lost += self._closed - before
        if entry.prev is not None:
            return None
        first, last = before + 1, max(before, entry.closed) + self._horizon_buckets
        text = (
            f"{self._stream} lost its state: the results of buckets {first}..{last} (times"
            f" {before * self._width_ms} to {last * self._width_ms} ms) are given up, as ha:"
            " amnesia wants it; those after are right"
        )
        return Alarm(GAP, self._stream, first, text, now_ms)
