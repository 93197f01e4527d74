"""A process of a stage that stands by: it listens, copies the primary's checkpoint, says what it
has, and sees when its turn has come.

A replica that is moved stands by in the same way. It copies nothing: what is within its horizon is
the replica's own directory, or those of peers, and its failover goes on from there.

What holds after a crash: the newest timeline file names a whole copy, or an older one. Nothing that
it writes is read by anybody but its next process and trimming.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.pipeline.speakers import stage_speakers
from anabranch.processing.disk_steps import on_disk
from anabranch.protocol.control.failure_detector import REPLICA_SERVICE, STANDBY_SERVICE
from anabranch.protocol.control.records import Heartbeat
from anabranch.protocol.errors import Unavailable
from anabranch.protocol.limits import PASSIVE_BEAT_MS
from anabranch.protocol.log.timeline import Answer, DiskStep, FindPeerCommit, Step, carry_out
from anabranch.protocol.stage.recovery import CleanPoints
from anabranch.protocol.stage.standby import (
    LEADING,
    STANDING_BY,
    StandbyProcess,
    StandbyWatch,
    copy_steps,
)
from anabranch.runtime.boundary_reader import BoundaryReader, ExpectedStream
from anabranch.runtime.heartbeats import ControlReader, HeartbeatSender
from anabranch.runtime.own_threads import OWN_THREADS
from anabranch.runtime.stream_life import life_of

if TYPE_CHECKING:
    from anabranch.pipeline.model import Pipeline
    from anabranch.ports import Checkpoints, Clock, EventLog, Thread, Threads
    from anabranch.protocol.log.boundary_log import Outcome
    from anabranch.protocol.log.records import LogEntry

STANDBY_COPY_EVERY_MS: Final = 5_000
"""Between two copies of the primary's checkpoint: bounds what is run again after a failover;
a copy syncs the disk and looks through the state.
"""

_POLL_MS: Final = 50
_REACH_EVERY_MS: Final = 500
"""Between two looks of one that is moved at what is within its horizon."""


class Standby:
    """One process of a passive stage, as long as it is not primary; afterwards it only says
    what its checkpoint holds.
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
            log: Where they are.
            clock: Of this process.
            pipeline: With the stage.
            own: Which process this one is.
            disk: Its own.
            threads: Of the process; one copies checkpoints.

        Raises:
            Unavailable: one of them is missing, or there is no answer.
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
        self._writer = process if self._is_moved else writers[0]
        turns = [process] if self._is_moved else pipeline.stages[stage].process_ids()
        self._life = life_of(log, names.boundaries(stage))
        self._watch = StandbyWatch(
            own,
            self._writer,
            turns,
            width_ms,
            reads_back=pipeline.stages[stage].ha == "upstream_backup",
        )
        self.boundary = BoundaryReader(
            log,
            names.boundaries(stage),
            writers,
            listener=self._seen,
            expected=ExpectedStream(bucket_ms=width_ms),
        )
        """The stage's log, of which what is closed is forgotten: a primary goes on with it."""
        peers = [writer for writer in writers if writer != self._writer]
        self.points = CleanPoints(peers, self._writer)
        """Of what was read of it."""
        self._control = ControlReader(log, stage_speakers(pipeline, stage))
        self._beats = HeartbeatSender(
            log,
            names.control(REPLICA_SERVICE, f"{stage}.{process}"),
            clock,
            every_ms=PASSIVE_BEAT_MS,
        )
        self._log_was_read = False
        self._next_copy_ms = 0
        self._copying: Thread | None = None
        self._copy_error: BaseException | None = None
        newest = (
            None if self._is_moved else disk.newest()
        )  # of one that is moved the running one's, in which nothing may be mended
        batches = (
            []
            if newest is None
            else [b for b in disk.batches(newest.name) if b >= max(0, newest.lowest)]
        )  # looked for before the sync: whoever was replaced and does not know it may go on there
        if newest is not None:
            disk.sync(newest.name)  # a primary that was killed had not; trimming counts on it
        whole = None if newest is None else disk.whole(newest.name, batches)
        self.bucket = 0 if newest is None or whole is None else disk.bucket(newest.name, whole)
        """The checkpoint from which it would go on holds the inputs up to here; 0: there is
        none.
        """

    @property
    def must_wait(self) -> bool:
        """Whether another process may run the replica. Reads the stage's log to its end."""
        self._listen()
        return self._watch.must_wait

    @property
    def waiting_for(self) -> str | None:
        """Of one that is moved, for people: after what it becomes the primary; None: the silence of
        a primary.
        """
        if not self._is_moved:
            return None
        return (
            f"a checkpoint of {self._stage}.{self._writer} within reach that is up to date, or its"
            " end on the other node: nodes that share a state directory have one"
        )

    @property
    def silent_ms(self) -> int:
        """How long the primary was not heard, by what counts as silence."""
        return self._watch.silent_ms

    def round(self) -> bool:
        """Listen, copy when it is time to, say what there is; whether to become the primary now.

        Raises:
            OSError: the own disk cannot be written.
        """
        if self._copy_error is not None:
            raise self._copy_error
        self._listen()
        now_ms, closed = self._clock.monotonic_ms(), self.boundary.log_state.closed(self._writer)
        self._say(STANDING_BY, closed, self.bucket)
        if self._is_moved:
            if now_ms >= self._next_copy_ms:
                self._next_copy_ms = now_ms + _REACH_EVERY_MS
                self.bucket = self._disk.within_reach()
            return self._watch.due(now_ms, self.bucket)
        if now_ms >= self._next_copy_ms and (self._copying is None or not self._copying.is_alive()):
            self._next_copy_ms = now_ms + STANDBY_COPY_EVERY_MS
            self._copying = self._threads.begin("copy checkpoint", self._copy_beside)
        return self._watch.due(now_ms, self.bucket)

    def _seen(self, _offset: int, entry: LogEntry, outcome: Outcome) -> None:
        self.points.seen(self.boundary.log_state, entry, outcome)

    def _listen(self) -> None:
        """Read the stage's log, to its end at first, and what others say."""
        if self._log_was_read:
            self.boundary.poll(_POLL_MS)
        else:
            self.boundary.read_to_end()
            self._log_was_read = True
        now_ms = self._clock.monotonic_ms()
        self.boundary.log_state.forget(self.boundary.log_state.upto)
        for entry in self._control.poll():
            if isinstance(entry, Heartbeat):
                self._watch.heard(entry, now_ms)
        log_state = self.boundary.log_state
        writer = self._writer
        self._watch.log_seen(
            log_state.epoch(writer), now_ms, log_state.node(writer), log_state.closed(writer)
        )

    def end_watch(self) -> None:
        """Its turn has come: copy what is within reach once more, and stop to listen. ``lead``
        goes on.
        """
        if self._copying is not None:
            self._copying.join()
        self.copy()
        self._control.close()

    def lead(self, bucket: int, checkpoint_bucket: int) -> None:
        """It is the primary: tell others, and trimming, what its own checkpoint holds for good.
        Of one that was moved the replica itself says it.
        """
        if not self._is_moved:
            self._say(LEADING, bucket, checkpoint_bucket)

    def _say(self, state: str, bucket: int, checkpoint_bucket: int) -> None:
        """Others hear what there is, and this process that what it says comes back (SB3)."""
        self._beats.send(
            Heartbeat(
                STANDBY_SERVICE,
                self._stage,
                self._process,
                -1,
                state,
                bucket,
                0,
                checkpoint_bucket=checkpoint_bucket,
                life=self._life,
            )
        )

    def copy(self) -> bool:
        """Replace the own checkpoint by a copy of one that is further, if there is one within
        reach; whether it was replaced.
        """
        if self._is_moved:
            return False
        copied = carry_out(copy_steps(self._process, self._token), self._answer)
        if copied is None:
            return False
        self.bucket = self._disk.bucket(copied.name, copied.batch)
        return True

    def _answer(self, step: Step) -> Answer:
        """Carry out a step of ``copy_steps``."""
        if isinstance(step, FindPeerCommit):
            return self._disk.peer_commit(step.replica, step.name)
        assert isinstance(step, DiskStep), f"{step} is no step of a copy"  # noqa: S101
        return on_disk(self._disk, step)

    def close(self) -> None:
        """Idempotent."""
        for closable in (self.boundary, self._control, self._beats):
            closable.close()

    def _copy_beside(self) -> None:
        """On a thread of its own: a copy waits for the disk."""
        try:
            self.copy()
        except Unavailable:
            return  # the source kept changing: the next one is soon
        except BaseException as error:  # noqa: BLE001 - handed to the main thread
            self._copy_error = error
