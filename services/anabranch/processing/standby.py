"""Standby process of a stage: follows the stage's boundary log and heartbeats, copies the primary's
checkpoint, reports its own, and decides when to become the primary.

A replica that moves to another node is a standby there, too. It copies the replica's checkpoint
from the store (``protocol.stage.transfer``), unless both nodes have one state directory, and waits
until a checkpoint within its reach is recent enough to start from.

After a crash the newest timeline file names a complete copy, or an older one. Only the next process
of this standby, and trimming, read what it writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.pipeline.control_topics import stage_control_topics
from anabranch.ports import Reach
from anabranch.process.logging_setup import short
from anabranch.process.threads import OWN_THREADS
from anabranch.processing.disk_steps import on_disk
from anabranch.protocol.control.failure_detector import REPLICA_SERVICE, STANDBY_SERVICE
from anabranch.protocol.control.records import Heartbeat
from anabranch.protocol.errors import Unavailable
from anabranch.protocol.limits import PASSIVE_BEAT_MS
from anabranch.protocol.log.timeline import (
    Answer,
    DiskStep,
    FindPeerCommit,
    LowerClaim,
    Step,
    carry_out,
    epoch_of,
)
from anabranch.protocol.stage.owners_checkpoint import Announced, OwnersCheckpoint, Transfer
from anabranch.protocol.stage.recovery import CleanPoints
from anabranch.protocol.stage.rehearsal import Rehearsal
from anabranch.protocol.stage.standby import (
    LEADING,
    STANDING_BY,
    Held,
    StandbyProcess,
    StandbyWatch,
    copy_steps,
    is_cut_off,
)
from anabranch.streams.boundary_reader import BoundaryReader
from anabranch.streams.heartbeats import ControlReader, HeartbeatSender
from anabranch.streams.stream_life import life_of
from anabranch.streams.stream_logs import expected_stream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anabranch.pipeline.model import Pipeline
    from anabranch.ports import Checkpoints, Clock, EventLog, Thread, Threads
    from anabranch.protocol.identifiers import BatchId
    from anabranch.protocol.log.boundary_log import Outcome
    from anabranch.protocol.log.records import LogEntry

STANDBY_COPY_EVERY_MS: Final = 5_000
"""Interval between copies of the primary's checkpoint, in ms. It bounds how much a failover runs
again; each copy syncs the disk and scans the state.
"""

_POLL_MS: Final = 50
"""Timeout for polling the stage's log, in ms."""
_REACH_EVERY_MS: Final = 500
"""Interval, in ms, at which a moving replica checks which checkpoints are within its reach."""
MOVED_FETCH_EVERY_MS: Final = 1_000
"""Interval, in ms, at which a moving replica copies what is new in the store."""


class Standby:
    """Standby process of one stage, until it becomes the primary. Afterwards it only reports which
    bucket its checkpoint holds.
    """

    def __init__(
        self,
        log: EventLog,
        clock: Clock,
        pipeline: Pipeline,
        own: StandbyProcess,
        disk: Checkpoints,
        threads: Threads = OWN_THREADS,
    ) -> None:
        """Open the stage's boundary log and the control topic.

        Args:
            log: The cluster of the stage's topics.
            clock: The clock of this process.
            pipeline: The pipeline that has the stage.
            own: The identity of this process.
            disk: The checkpoints of this process.
            threads: The source of the thread that copies checkpoints.

        Raises:
            Unavailable: a topic is missing, or the broker does not answer.
        """
        stage, process = own.stage, own.process
        names = pipeline.topic_names
        writers = pipeline.stream_writers(stage)
        width_ms = pipeline.bucket_ms
        self._clock = clock
        self._stage = stage
        self._process = process
        self._disk = disk
        self._token = own.token
        self._threads = threads
        self._is_moved = own.node is not None
        self._copy_every_ms = MOVED_FETCH_EVERY_MS if self._is_moved else STANDBY_COPY_EVERY_MS
        self._writer = process if self._is_moved else writers[0]
        turns = [process] if self._is_moved else pipeline.stages[stage].process_ids()
        self._life = life_of(log, names.boundaries(stage))
        declared, places = pipeline.stages[stage], pipeline.places()
        self._rebuilds = declared.ha == "upstream_backup"
        self._owners_checkpoint = (
            OwnersCheckpoint(own.plan, lambda node: places.is_run_by(node, declared.participant))
            if self._is_moved and declared.transfer is Transfer.CHECKPOINT and disk.has_store
            else None
        )
        """State of the wait for the owner's checkpoint; None: the stage needs no checkpoint, or any
        will do.
        """
        self._announced: Announced | None = None
        self._watch = StandbyWatch(
            own, self._writer, turns, width_ms, begins_from_input=self._rebuilds
        )
        self.rehearsal = Rehearsal(is_wanted=False)
        """State of the rehearsal before the cutover."""
        self.boundary = BoundaryReader(
            log,
            names.boundaries(stage),
            writers,
            listener=self._on_entry,
            expected=expected_stream(pipeline, stage),
        )
        """Reader of the stage's log. It forgets closed buckets, and a new primary keeps using it.
        """
        peers = [writer for writer in writers if writer != self._writer]
        self.points = CleanPoints(peers, self._writer)
        """Clean points of the stage, collected from the part of its log that was read."""
        self._control = ControlReader(log, stage_control_topics(pipeline, stage))
        self._heartbeats = HeartbeatSender(
            log,
            names.control(REPLICA_SERVICE, f"{stage}.{process}"),
            clock,
            every_ms=PASSIVE_BEAT_MS,
        )
        self._log_was_read = False
        self._judged_epoch = -1
        """Epoch of the newest record by which the claim was judged (SB11); -1: of none."""
        self._next_copy_ms = self._next_reach_ms = 0
        self._reach = Reach(0)
        self._fetch_error = ""
        self._is_uncopied = False
        """Whether it is behind the primary, and has copied nothing for a long time (SB10)."""
        self.awaits_acknowledgement = False
        """Whether the last copy, or start, failed only because the broker did not acknowledge the
        lower claim.
        """
        self._copying: Thread | None = None
        self._copy_error: BaseException | None = None
        # A moving replica's directory belongs to the process that still runs: repair nothing.
        newest = None if self._is_moved else disk.newest()
        # The list before the sync: a replaced process that does not know it yet may still write
        # batches here, and those must not count as synced.
        batches = (
            []
            if newest is None
            else [b for b in disk.batches(newest.name) if b >= max(0, newest.lowest)]
        )
        if newest is not None:
            # A killed primary may have left it unsynced, and trimming relies on what is reported.
            disk.sync(newest.name)
        whole = None if newest is None else disk.whole(newest.name, batches)
        self._held: Held | None = None
        """Checkpoint of this process; None: it has none, or its replica was moved."""
        if newest is not None and whole is not None:
            self._held = Held(newest, whole, disk.bucket(newest.name, whole))
        self.bucket = 0 if self._held is None else self._held.bucket
        """Last bucket of input in the checkpoint from which this process would start; 0 without a
        checkpoint, or if the log has cut it off.
        """

    def must_wait(self) -> bool:
        """Read the stage's log to its end. Return whether another process may be running the
        replica.
        """
        self._read_logs()
        # Before a copy begins: the first heartbeat must not name an older epoch than the last one
        # of this process's predecessor.
        self._judge_claim()
        return self._watch.must_wait

    @property
    def waiting_for(self) -> str | None:
        """Condition, for people, under which a moving replica becomes the primary. None for a
        standby of a passive stage, which waits for its primary to fall silent; but if it has no
        checkpoint within reach, it waits for one.
        """
        if not self._is_moved and not self._is_uncopied:
            return None
        if self.rehearsal.is_running:
            return f"its first batches, which it rehearses before it takes {self._stage} over"
        what = f"a checkpoint of {self._stage}.{self._writer} that is up to date"
        if not self._disk.has_store:
            else_end = ", or the replica's end on the other node" if self._is_moved else ""
            return (
                f"{what}, in this node's state directory{else_end}; nodes without a directory in"
                " common need a store of checkpoints (--checkpoint-store)"
            )
        if self._fetch_error:
            return f"{what}, from the store of checkpoints: {self._fetch_error}"
        if self._reach.rest_bytes:
            return f"{what}: {self._reach.rest_bytes} bytes are to be read from the store"
        return f"{what}, from the store of checkpoints"

    @property
    def fetched(self) -> Mapping[str, int]:
        """Bytes that a moving replica has copied from the store, and has still to copy, by name,
        for the status; empty for other processes.
        """
        if not self._is_moved:
            return {}
        return {
            "fetched_bytes": self._reach.read_bytes,
            "linked_bytes": self._reach.linked_bytes,
            "rest_bytes": self._reach.rest_bytes,
        }

    @property
    def silent_ms(self) -> int:
        """Time since the last sign of life of the primary, in ms, by the watch's rules."""
        return self._watch.silent_ms

    def round(self) -> bool:
        """Read the logs, start a copy if one is due, and send a heartbeat. Return whether this
        process must become the primary now.

        Raises:
            OSError: this process's disk cannot be written.
        """
        if self._copy_error is not None:
            raise self._copy_error
        self._read_logs()
        self._judge_claim()
        self._update_announced()
        now_ms, closed = self._clock.monotonic_ms(), self.boundary.log_state.closed(self._writer)
        self._heartbeats.send(self._heartbeat(STANDING_BY, closed, self.bucket))
        self._is_uncopied = self._watch.is_uncopied(now_ms, self.bucket)
        self.begin_copy()
        if self._is_moved and now_ms >= self._next_reach_ms:
            self._next_reach_ms = now_ms + _REACH_EVERY_MS
            self._reach = self._disk.within_reach()
            self.bucket = self._reach.bucket
        return self._watch.due(
            now_ms,
            self.bucket,
            self._reach.rest_bytes,
            is_delayed=self.rehearsal.delays(now_ms),
        )

    def _judge_claim(self) -> None:
        """Claim nothing once the log has cut the checkpoint off (SB11, SB12). Does nothing while a
        copy is under way, which may replace the checkpoint at any moment: the claim remains one of
        an older epoch.
        """
        if self._is_moved or (self._copying is not None and self._copying.is_alive()):
            return
        log_state = self.boundary.log_state
        tip, accepted = log_state.tip(self._writer), log_state.chain(self._writer)
        if self._held is not None and is_cut_off(self._held, tip, accepted):
            self._held, self.bucket = None, 0
        self._judged_by(tip)

    def _judged_by(self, tip: BatchId | None) -> None:
        """Note the newest record of the replica by which the claim was judged."""
        if tip is not None:
            self._judged_epoch = max(self._judged_epoch, epoch_of(tip.timeline) or 0)

    def _update_announced(self) -> None:
        """Determine which checkpoint of the owner to read, or whether to begin from the input."""
        if self._owners_checkpoint is None:
            return
        log_state = self.boundary.log_state
        runs_on = log_state.node(self._writer)
        self._announced = self._owners_checkpoint.announced(
            runs_on, log_state.epoch(self._writer), self._watch.last_beat
        )
        self._watch.begins_from_input = self._owners_checkpoint.look(
            self._clock.monotonic_ms(),
            runs_on,
            self._reach.bucket,
            self._reach.read_bytes,
            self._fetch_error,
        )

    @property
    def why_from_input(self) -> str:
        """Reason for which a moving replica begins from its input although its owner's node runs
        it; empty if it does not.
        """
        return "" if self._owners_checkpoint is None else self._owners_checkpoint.failed

    def require_rehearsal(self) -> None:
        """Let the cutover of a move wait for a rehearsal, which the caller runs when
        ``begins_rehearsal`` returns True. Call it before the first round.
        """
        self.rehearsal = Rehearsal(is_wanted=self._is_moved and not self._rebuilds)

    def begins_rehearsal(self) -> bool:
        """Return True once: when the caller must begin the rehearsal."""
        is_near = self._watch.is_near(self.bucket, self._reach.rest_bytes)
        return self.rehearsal.begins(self._clock.monotonic_ms(), is_near=is_near)

    def begin_copy(self) -> None:
        """Begin a copy of the checkpoint on a thread of its own, if one is due and none is under
        way.
        """
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._next_copy_ms and (self._copying is None or not self._copying.is_alive()):
            self._next_copy_ms = now_ms + self._copy_every_ms
            self._copying = self._threads.begin("copy checkpoint", self._copy_in_thread)

    def _on_entry(self, _offset: int, entry: LogEntry, outcome: Outcome) -> None:
        """Collect the clean points of the entry at ``_offset``."""
        self.points.seen(self.boundary.log_state, entry, outcome)

    def _read_logs(self) -> None:
        """Read the stage's log, the first time to its end, and the control topics, and pass both to
        the watch.
        """
        if self._log_was_read:
            self.boundary.poll(_POLL_MS)
        else:
            self.boundary.read_to_end()
            self._log_was_read = True
        now_ms = self._clock.monotonic_ms()
        self.boundary.log_state.forget(self.boundary.log_state.upto)
        for entry in self._control.poll():
            if isinstance(entry, Heartbeat):
                self._watch.receive(entry, now_ms)
        log_state = self.boundary.log_state
        writer = self._writer
        self._watch.log_seen(
            log_state.epoch(writer), now_ms, log_state.node(writer), log_state.closed(writer)
        )

    def end_watch(self) -> None:
        """Copy the newest checkpoint within reach once more, and stop reading control topics: this
        process becomes the primary. ``lead`` follows.
        """
        if not self._is_moved:
            # One copy at a time: two would choose the same name for their directories. A moving
            # replica has what it needs: a store that is slow by now holds nothing up.
            if self._copying is not None:
                self._copying.join()
            self.copy(takes_over=True)
        self._control.close()

    def lead(self, bucket: int, checkpoint_bucket: int, tip: BatchId | None) -> None:
        """Report as primary up to which ``bucket`` the stage is closed and which checkpoint is
        durable, to the other processes and to trimming. Does nothing for a moving replica, which
        reports this itself. ``tip``: last record of the replica; None: there is none.
        """
        if not self._is_moved:
            self._judged_by(tip)
            self._heartbeats.send(self._heartbeat(LEADING, bucket, checkpoint_bucket))

    def _heartbeat(self, state: str, bucket: int, checkpoint_bucket: int) -> Heartbeat:
        """Return a heartbeat. The other processes read it, and this one reads it back: only then
        does it trust what it does not receive from the primary (SB3).
        """
        return Heartbeat(
            STANDBY_SERVICE,
            self._stage,
            self._process,
            self._judged_epoch,
            state,
            bucket,
            0,
            checkpoint_bucket=checkpoint_bucket,
            life=self._life,
            fetched_bytes=self._reach.read_bytes,
        )

    @property
    def claimed(self) -> int:
        """Last bucket of input in the checkpoint of this process, as it reports it to trimming; 0
        for a moving replica, of which the primary alone reports one.
        """
        return 0 if self._is_moved else self.bucket

    def lower_claim(self, bucket: int) -> bool:
        """Report ``bucket`` as the last one in the checkpoint, which held more so far. Return
        whether the broker has acknowledged it.
        """
        closed = self.boundary.log_state.closed(self._writer)
        is_lowered = self._heartbeats.send_now(self._heartbeat(STANDING_BY, closed, bucket))
        self.awaits_acknowledgement = not is_lowered
        if is_lowered:
            self.bucket = bucket
        return is_lowered

    def copy(self, *, takes_over: bool = False) -> bool:
        """Replace this process's checkpoint by a copy of a newer one within reach. Return whether
        it did. A moving replica fetches the replica's checkpoint from the store instead, where the
        nodes have no directory in common. ``takes_over``: whether this process becomes the primary
        next, or is it and has nothing to start from; no other thread may call this object then.

        Raises:
            Unavailable: the primary kept changing its directory; or the store does not answer.
        """
        if self._is_moved:
            before = self._reach.bucket
            if self._owners_checkpoint is None:
                self._disk.fetch()
            elif self._announced is not None:
                self._disk.fetch(self._announced)
            return self._disk.within_reach().bucket > before
        self.awaits_acknowledgement = False
        steps = copy_steps(self._token, self.bucket, takes_over=takes_over)
        copied = carry_out(steps, self._perform)
        if copied is None:
            return False
        self._held, self.bucket = copied, copied.bucket
        return True

    def _perform(self, step: Step) -> Answer:
        """Perform one ``step`` of ``copy_steps`` on the disk and return its result."""
        if isinstance(step, FindPeerCommit):
            return self._disk.peer_commit(step.replica, step.name)
        if isinstance(step, LowerClaim):
            return self.lower_claim(step.bucket)
        assert isinstance(step, DiskStep), f"{step} is no step of a copy"  # noqa: S101
        return on_disk(self._disk, step)

    def close(self) -> None:
        """Close the readers and the heartbeat sender. Idempotent."""
        for closable in (self.boundary, self._control, self._heartbeats):
            closable.close()

    def _copy_in_thread(self) -> None:
        """Copy the checkpoint on a thread of its own, since a copy waits for the disk. ``round``
        raises what it fails with.
        """
        try:
            self.copy()
            self._fetch_error = ""
        except Unavailable as error:
            # The primary changed its directory during the copy, or the store is away: the next copy
            # is due soon.
            self._fetch_error = short(str(error))
        except BaseException as error:  # noqa: BLE001 - handed to the main thread
            self._copy_error = error
