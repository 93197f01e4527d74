"""Start of a stage's process: in a copy of which checkpoint, or empty after which bucket it begins,
which output it gives up, and whether recomputed results equal those in the log.

Theory of operation. A process continues from a checkpoint, its own or a peer's
(``protocol.log.timeline``). Where there is none it begins with an empty query after some bucket.

*In a copy of a checkpoint* (rule 6). A replica without a disk continues in a copy of a peer's
checkpoint, under a base record: "buckets up to ``base`` are not mine". If the peer had already
named parts of a bucket, the copy computes only the rest of it, so ``base`` must not be below that
bucket; and the buckets up to ``base`` should be stable already, or they would depend on the peer
for ever. So a batch is a *clean point* if all buckets that it had closed or begun are stable by
now. It must also still count: be on the peer's accepted chain. The stage's own log shows all this
(``CleanPoints``). If results are never ahead of the input, and no row is late, every batch is a
clean point; otherwise one that is a little older. The same holds for a replica's own checkpoint
whose records were cut off the chain: another process of the replica continued from an older one,
and its disk was lost. No record may continue such a record; under a base record its state is as
good as a peer's.

*Empty.* The bucket after which an empty query begins follows from the stage's own log, from the
remaining input, and from the stage's settings: the *state horizon*, how much later than its own
time a record can still change results (the length of a window, the bound of a join, 0 for a
function of single rows), and ``ha``. Results after time t depend only on input after t - horizon,
whatever the function is, so an empty query computes completely all results that are at least one
horizon after its beginning. Earlier results would be partial. They are given up if no reader has
them yet: closed *empty*, in records that name every input as missing.

A stage may be added to a pipeline whose blocks were deleted in part: trimming deletes blocks that
all existing readers have passed (rule 18), and they cannot be recomputed if the inputs of the
previous stage are gone as well. So a stage without any results begins *late*, after the last bucket
with deleted blocks, and its first record says so. Until a result follows, further blocks may be
deleted: trimming does not know the stage yet, or the replica was away for longer than trimming
waits. No reader has a result by then, and perhaps no peer a checkpoint to wait for. So a process
that begins then, with a checkpoint or without, begins after those blocks, and says so again. From
the first result on the last late start is the beginning of the stage for all its processes. If the
horizon is not known, the first results are computed from the remaining input.

``active``, ``passive``: a process without a checkpoint begins at the beginning of the stage, or
waits for blocks or a checkpoint.

``upstream_backup``: the input's blocks are the backup. A process without a checkpoint begins at its
output's last closed bucket less *twice* the horizon. Its results of the first horizon may be
partial, but those buckets are closed already: readers ignore them (rule 4). Its results of the
second one are complete and closed already, so they must equal the log, bucket by bucket
(``Comparison``). Otherwise the configured state horizon is wrong, and the process ends before it
writes anything new. Results of another participant's node may be wrong for another reason, and the
owner cannot repair them: they remain, as the first record in the log counts, and are reported.
Until the process has closed a new bucket the comparison is *open*, and the log shows that: a
process that begins then does not continue from a checkpoint that was compared only in part, but
begins like the previous one. Trimming keeps the input that this needs, and no more: a node that was
away while another one ran the stage does not use its older checkpoint. No results are lost, and
their ids prevent duplicates: precise.

``amnesia``: the process begins after the last bucket that is complete now. The buckets from its
output's last closed one to there are lost, and those within the horizon after it are given up, too.
So the log shows the loss, and everything after the gap is right.

A process that continues from a checkpoint also continues giving up the output that the log shows as
given up: the process before, or the peer whose checkpoint it is, may have ended before it was done.

Invariants:
    CP1 the base of a point is the highest bucket that the peer had closed, or named a part of, by
        then; up to it everything is stable.
    CP2 a clean point was made under the plan of the replica that uses it: another plan's state
        means something else.
    CP3 memory is bounded by what Spark retains: older batches cannot be restored.
    CP4 a clean point is the record of a batch on the peer's accepted chain; for the replica's own
        checkpoint, one that was once on its chain.
    CP5 if a log is read from a log snapshot on, the tip of each chain is known, and every record
        after it.
    LA1 a stage begins late only while every stable record of its stream is a late start: no bucket
        is ever left out between results, unless an operator lets the stage begin anew with another
        function (``protocol.stage.restating``), or no process has read the results: those of a half
        that were made for an earlier attempt to split its shard (BL21).
    LA2 once one replica has recorded a late start, all that begin without a checkpoint begin there;
        or later, if no replica has a result yet and further blocks are deleted. None of them runs
        the plan again that an earlier process has logged for its first batch: that may name deleted
        blocks.
    LA3 a process that continues from a checkpoint of a stage that began late gives up the same
        output.
    SH1 a query that begins at ``after`` computes every bucket above ``after`` + horizon completely.
    SH2 upstream backup: ``after`` + horizon is not above the last closed bucket, or ``after`` is
        the beginning of the stage: nothing more is left out.
    SH3 amnesia: a bucket that is not given up is complete; one that is given up is empty, and its
        record has ``missing``.
    SH4 a gap that a crash interrupted is continued: its end follows from the log, or, if nothing
        was committed, from the plan that is run again.
    SH5 a stage whose stream has closed nothing yet begins at the beginning, or late: it has nothing
        to lose.
    SH6 upstream backup: no process uses a checkpoint, or runs a plan again, from before the bucket
        after which a process without a checkpoint begins. Trimming keeps no input for it, and it
        would have more to recompute.
    CM1 no record that closes a new bucket is appended unless every bucket that must be complete
        equals the log, by whichever process: while that is open, each process begins anew. A bucket
        that the log shows as computed on a partner's node may differ.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from anabranch.protocol.errors import StageFunctionError
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import CHECKPOINT_BATCHES_RETAINED
from anabranch.protocol.log.boundary_log import LogState, Outcome, contents
from anabranch.protocol.log.records import (
    BoundaryKind,
    BoundaryRecord,
    LogEntry,
    LogSnapshot,
    Provenance,
)


@dataclass(frozen=True, slots=True)
class _Mark:
    """One record on a peer's chain, as a possible clean point."""

    ident: BatchId
    base: int
    fingerprint: str


class CleanPoints:
    """Clean points of some replicas. Needs every record of the stage's log, right after the log
    state applied it (``seen``).
    """

    def __init__(self, replicas: Iterable[str], own: str = "") -> None:
        """Start without points. ``own``: the replica that uses them."""
        self._own = own
        self._chains: dict[str, deque[_Mark]] = {
            r: deque(maxlen=2 * CHECKPOINT_BATCHES_RETAINED) for r in (*replicas, own)
        }
        self._cut_off: deque[_Mark] = deque(maxlen=2 * CHECKPOINT_BATCHES_RETAINED)
        """Records that were cut off the own chain."""
        self._attempt = -1
        """Attempt to split a shard of which the points are (BL21)."""

    def seen(self, log_state: LogState, entry: LogEntry, outcome: Outcome) -> None:
        """Apply a record of the log."""
        if log_state.attempt > self._attempt:
            # No process continues what was made for an earlier one.
            self._attempt = log_state.attempt
            for marks in (*self._chains.values(), self._cut_off):
                marks.clear()
        if outcome.accepted and isinstance(entry, LogSnapshot):
            for replica in self._chains:
                if replica in log_state.writers and (tip := log_state.tip(replica)) is not None:
                    self._mark(log_state, replica, tip)
            return
        if (
            not outcome.accepted
            or not isinstance(entry, BoundaryRecord)
            or entry.kind is not BoundaryKind.STABLE
        ):
            return
        chain = self._chains.get(entry.replica)
        if chain is None:
            return
        while chain and chain[-1].ident != entry.prev:
            mark = chain.pop()  # cut off (rule 4)
            if entry.replica == self._own:
                self._cut_off.append(mark)
        self._mark(log_state, entry.replica, entry.id)

    def _mark(self, log_state: LogState, replica: str, tip: BatchId) -> None:
        pending = log_state.pending(replica)
        base = max(log_state.closed(replica), pending[-1].bucket if pending else 0)
        self._chains[replica].append(_Mark(tip, base, log_state.origin(replica).tip_by))

    def base(self, replica: str, ident: BatchId, fingerprint: str, stable_upto: int) -> int | None:
        """Return the base of the record ``ident`` of ``replica``; None if the record is not a clean
        point for ``fingerprint`` now (CP1, CP2, CP4).
        """
        return self._base(self._chains.get(replica, ()), ident, fingerprint, stable_upto)

    def cut_off_base(self, ident: BatchId, fingerprint: str, stable_upto: int) -> int | None:
        """Return the base of the own record ``ident`` that was cut off its chain; None as for
        ``base``.
        """
        return self._base(self._cut_off, ident, fingerprint, stable_upto)

    @staticmethod
    def _base(
        marks: Iterable[_Mark], ident: BatchId, fingerprint: str, stable_upto: int
    ) -> int | None:
        for mark in marks:
            if mark.ident == ident and mark.fingerprint == fingerprint and mark.base <= stable_upto:
                return mark.base
        return None


HaMode = Literal["active", "passive", "upstream_backup", "amnesia"]
"""Protection against the loss of a process or its disk (docs/concepts.md)."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """Start of one process of a stage."""

    after: int = 0
    """Last bucket that a process without a checkpoint leaves out."""
    given_up: int = 0
    """Last bucket up to which output that is not closed yet is given up; 0 if none is."""

    def planned(self, bucket: int, *, has_rows: bool) -> Beginning:
        """Return the start that follows from the first batch, which has read up to ``bucket``. If
        an earlier process has logged its plan, that is run again (rule 9) and decides what is left
        out: nothing, if it has rows (SH4).
        """
        if bucket >= self.after or not self.given_up:
            return self
        return Beginning() if has_rows else Beginning(bucket, bucket + self.given_up - self.after)


def beginning(
    log_state: LogState,
    replica: str,
    horizon: int,
    ha: HaMode,
    *,
    gone: Callable[[], int],
    complete: Callable[[], int],
    restated_after: int | None = None,
) -> Beginning:
    """Return the start of a process without a checkpoint.

    Args:
        log_state: The stage's own stream.
        replica: Replica as which the process writes.
        horizon: The stage's state horizon, in buckets; 0 if it has none, or it is not known.
        ha: The stage's ``ha`` setting.
        gone: Returns the last bucket of which an input's blocks are deleted, with the inputs' logs
            read to their end; 0 if there is none.
        complete: The last bucket that is complete on all inputs, their logs read to the end.
        restated_after: Bucket after which an operator lets the process begin anew with another
            function; None: none does.
    """
    origins = [log_state.origin(writer) for writer in log_state.writers]
    closed = log_state.closed(replica)
    left_out = max(origin.late_upto for origin in origins)
    if not any(origin.has_results for origin in origins):
        left_out = max(left_out, gone())
    elif restated_after is not None:
        # RS4: what its version has closed is compared, and must begin at one place.
        counts = log_state.version[0] >= log_state.version_of(replica)
        left_out = max(left_out, restated_after, 0 if counts else gone())
        return Beginning(left_out, left_out + horizon if left_out else 0)
    elif ha == "amnesia":
        left_out = complete() if closed else 0
    after = max(left_out, closed - 2 * horizon) if ha == "upstream_backup" else left_out
    return Beginning(after, after + horizon if after == left_out > 0 else 0)


def continued(log_state: LogState, horizon: int, ha: HaMode) -> Beginning:
    """Return the start of a process that continues from a checkpoint. The arguments are those of
    ``beginning``.
    """
    origins = [log_state.origin(writer) for writer in log_state.writers]
    left_out = max(origin.gap or 0 if ha == "amnesia" else origin.late_upto for origin in origins)
    return Beginning(given_up=left_out + horizon if left_out and horizon else 0)


def begins_anew(origin: Provenance, ha: HaMode) -> bool:
    """Return whether an existing checkpoint must not be used, because its results were not compared
    to the end (CM1). ``origin``: provenance of the process's own writer.
    """
    return ha == "upstream_backup" and origin.open_upto > 0


def is_behind(bucket: int, fresh: Callable[[], Beginning], ha: HaMode) -> bool:
    """Return whether a process that has its inputs up to ``bucket``, from its checkpoint or from a
    plan that an earlier process has logged, must begin like one without them (SH6).

    Args:
        bucket: Last bucket of the inputs; 0: nothing is committed.
        fresh: Function that returns where a process without a checkpoint begins. Called only if
            that matters.
        ha: Recovery mode of the stage.
    """
    if ha != "upstream_backup":
        return False
    begins = fresh()
    return not begins.given_up and bucket < begins.after


def plans_anew(log_state: LogState, fresh: Beginning, ha: HaMode) -> bool:
    """Return whether a process that has committed nothing ignores the plan that an earlier process
    has logged for its first batch (LA2). With ``amnesia`` that plan decides what is given up once
    there are results (SH4).

    Args:
        log_state: The stage's own stream.
        fresh: Where a process without a checkpoint begins.
        ha: Recovery mode of the stage.
    """
    origins = [log_state.origin(writer) for writer in log_state.writers]
    has_results = any(origin.has_results for origin in origins)
    return fresh.after > 0 and not (ha == "amnesia" and has_results)


def unneeded_upto(closed: int, synced: int, horizon: int, ha: HaMode) -> int:
    """Return the last bucket of the inputs that is no longer needed (rule 18).

    Args:
        closed: Last bucket that the process's stream has closed.
        synced: Last bucket of the inputs in the synced checkpoint; BUCKET_MAX: not known, which
            only with ``upstream_backup`` changes nothing (SH6).
        horizon: State horizon in buckets, as for ``beginning``.
        ha: Recovery mode of the stage.
    """
    return max(0, min(synced, closed - 2 * horizon)) if ha == "upstream_backup" else synced


@dataclass(frozen=True, slots=True)
class PartnerWrong:
    """Bucket that a partner's node computed differently than this process from the same input."""

    stage: str
    bucket: int
    node: str


class Comparison:
    """Comparison of the results that one process recomputes with those in the log. The process is
    the only writer of its stream.
    """

    def __init__(
        self,
        stage: str,
        horizon: int,
        width_ms: int,
        is_partners: Callable[[str], bool] = lambda _node: False,
    ) -> None:
        """Prepare the comparison. ``horizon``: the stage's state horizon, in buckets.
        ``is_partners``: whether another participant runs a node.
        """
        self._stage = stage
        self._horizon = horizon
        self._width_ms = width_ms
        self._is_partners = is_partners
        self._made_on = Provenance()
        self._expected: dict[int, tuple[int, int]] = {}
        self._made: dict[int, tuple[int, int]] = {}
        self._compared = self.upto = 0
        """Last bucket that was compared, or need not be. ``upto`` is the last one to compare."""

    def begin(self, log_state: LogState, replica: str, after: int) -> None:
        """Begin the comparison for a process without a checkpoint. If the function was changed
        meanwhile, only buckets that it computed from its own state are compared.

        Args:
            log_state: The stage's own stream; the process's epoch has begun.
            replica: The process writes as this one.
            after: The bucket after which it begins.
        """
        closed, origin = log_state.closed(replica), log_state.origin(replica)
        whole_from = max(
            begun + self._horizon if begun else 0 for begun in (after, origin.made_after)
        )
        if (
            origin.made_by in ("", log_state.fingerprint(replica))
            and whole_from < closed <= log_state.upto
        ):
            self._compared, self.upto = whole_from, closed
            self._made_on = origin
            self._expected = {
                bucket: contents(parts)
                for bucket, _, parts in log_state.stable(whole_from + 1, closed)
            }

    def check(self, record: BoundaryRecord) -> list[PartnerWrong]:
        """Compare the parts of ``record``, which is about to be appended. Return the differing
        buckets of partners' nodes.

        Raises:
            StageFunctionError: a bucket was made again and is not the same: the horizon is too
                short, or the function not deterministic.
        """
        found = list[PartnerWrong]()
        if self._compared >= self.upto or record.kind is not BoundaryKind.STABLE:
            return found
        for part in record.parts:
            rows, digest = self._made.get(part.bucket, (0, 0))
            self._made[part.bucket] = rows + part.rows, (digest + part.digest) % 2**64
        upto = min(record.closed, self.upto)
        for bucket in sorted({*self._expected, *self._made}):
            if self._compared < bucket <= upto and self._made.get(
                bucket, (0, 0)
            ) != self._expected.get(bucket, (0, 0)):
                node = self._made_on.node_of(bucket)
                if self._is_partners(node):
                    found.append(PartnerWrong(self._stage, bucket, node))
                    continue
                message = (
                    f"stage {self._stage}: bucket {bucket}, recomputed from"
                    f" {2 * self._horizon * self._width_ms} ms of input, differs from the log: give"
                    " the stage a longer state_horizon, or ha: passive; or its function does not"
                    " give the same for the same input"
                )
                raise StageFunctionError(message)
        self._compared = max(self._compared, upto)
        if self._compared >= self.upto:
            self._expected, self._made = {}, {}
        return found
