"""A process of a stage that stands by: it listens, copies the primary's checkpoint, says what it has, and sees when its turn has come.

What holds after a crash: the newest lineage file names a whole copy, or an older one. Nothing that it writes is read by anybody but its next
process and trimming.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from anabranch.pipeline.speakers import speakers
from anabranch.processing.disk_steps import on_disk
from anabranch.protocol.control import Heartbeat
from anabranch.protocol.errors import Unavailable
from anabranch.protocol.limits import STANDBY_COPY_EVERY_MS
from anabranch.protocol.lineage import Answer, DiskStep, FindSiblingCommit, Step, carry_out
from anabranch.protocol.presence import REPLICA_SERVICE
from anabranch.protocol.standby import STANDBY_SERVICE, StandbyWatch, copy_steps
from anabranch.runtime.boundary_reader import BoundaryReader
from anabranch.runtime.heartbeats import ControlReader, HeartbeatSender

if TYPE_CHECKING:
    from anabranch.adapters.local.checkpoints import ReplicaDisk
    from anabranch.pipeline.model import Pipeline
    from anabranch.ports import Clock, EventLog


_POLL_MS: Final = 50


class Standby:
    """One process of a passive stage, as long as it is not primary; afterwards it only says what its checkpoint holds."""

    def __init__(self, log: EventLog, clock: Clock, pipeline: Pipeline, stage: str, process: str, disk: ReplicaDisk, token: str) -> None:
        """Open the stage's boundary log and the control topic. ``token``: this process's own, of 16 hexadecimal digits.

        Raises:
            Unavailable: one of them is missing, or there is no answer.
        """
        names = pipeline.topic_names
        self._clock, self._stage, self._process, self._disk, self._token = clock, stage, process, disk, token
        self._watch = StandbyWatch(stage, pipeline.stream_writers(stage)[0], process, pipeline.stages[stage].process_ids())
        self._boundary = BoundaryReader(log, names.boundaries(stage), pipeline.stream_writers(stage), bucket_ms=pipeline.bucket_ms)
        self._control = ControlReader(log, speakers(pipeline))
        self._beats = HeartbeatSender(log, names.control(REPLICA_SERVICE, f"{stage}.{process}"), clock)
        self._writer = pipeline.stream_writers(stage)[0]
        self._log_was_read = False
        self._next_copy_ms = 0
        self._copying: threading.Thread | None = None
        self._copy_error: BaseException | None = None
        own = disk.newest()
        whole = None if own is None else disk.whole(own.name, [b for b in disk.batches(own.name) if b >= max(0, own.lowest)])
        self.bucket = 0 if own is None or whole is None else disk.bucket(own.name, whole)
        """The own checkpoint holds the inputs up to here; 0: there is none."""

    def round(self) -> bool:
        """Listen, copy when it is time to, say what there is; whether to take over now.

        Raises:
            OSError: the own disk cannot be written.
        """
        if self._copy_error is not None:
            raise self._copy_error
        now_ms = self._clock.monotonic_ms()
        if self._log_was_read:
            self._boundary.poll(_POLL_MS)
        else:
            self._boundary.read_to_end()
            self._log_was_read = True
        self._boundary.fold.forget(self._boundary.fold.upto)
        for entry in self._control.poll():
            if isinstance(entry, Heartbeat):
                self._watch.heard(entry, now_ms)
        self._watch.epoch_seen(self._boundary.fold.epoch(self._writer), now_ms)
        if now_ms >= self._next_copy_ms and (self._copying is None or not self._copying.is_alive()):
            self._next_copy_ms = now_ms + STANDBY_COPY_EVERY_MS
            self._copying = threading.Thread(target=self._copy_beside, name="copy checkpoint", daemon=True)
            self._copying.start()
        self.say("standby", self._boundary.fold.closed(self._writer), self.bucket)
        return self._watch.due(now_ms, self.bucket)

    def end_watch(self) -> None:
        """Its turn has come: copy what is within reach once more, and stop to listen. ``say`` goes on."""
        if self._copying is not None:
            self._copying.join()
        self.copy()
        self._boundary.close()
        self._control.close()

    def say(self, state: str, bucket: int, checkpoint_bucket: int) -> None:
        """Tell others, and trimming, what this process's own checkpoint holds for good."""
        self._beats.send(Heartbeat(STANDBY_SERVICE, self._stage, self._process, -1, state, bucket, 0, checkpoint_bucket=checkpoint_bucket))

    def copy(self) -> bool:
        """Replace the own checkpoint by a copy of one that is further, if there is one within reach; whether it was replaced."""
        copied = carry_out(copy_steps(self._process, self._token), self._answer)
        if copied is None:
            return False
        self.bucket = self._disk.bucket(copied.name, copied.batch)
        return True

    def _answer(self, step: Step) -> Answer:
        """Carry out a step of ``copy_steps``."""
        if isinstance(step, FindSiblingCommit):
            return self._disk.sibling_commit(step.replica, step.name)
        assert isinstance(step, DiskStep), f"{step} is no step of a copy"  # noqa: S101
        return on_disk(self._disk, step)

    def close(self) -> None:
        """Idempotent."""
        for closable in (self._boundary, self._control, self._beats):
            closable.close()

    def _copy_beside(self) -> None:
        """On a thread of its own: a copy waits for the disk."""
        try:
            self.copy()
        except Unavailable:
            return  # the source kept changing: the next one is soon
        except BaseException as error:  # noqa: BLE001 - handed to the main thread
            self._copy_error = error
