"""Execution of the steps by which a replica's process starts and forks: on its disk, in its
boundary log, and through ``processing.replica_environment.Recovery``.

``protocol.log.timeline`` states what holds after a crash between two steps.
"""

from __future__ import annotations

import logging
from functools import partial

from anabranch.ports import Checkpoints
from anabranch.processing.disk_steps import on_disk
from anabranch.processing.replica_environment import HostProcess, Recovery
from anabranch.protocol.log.timeline import (
    Answer,
    AppendBase,
    AwaitPeer,
    CheckEpoch,
    Clean,
    Copy,
    CopyPeer,
    DiskStep,
    FindFences,
    FindMissing,
    FindPeers,
    FindRecomputed,
    LowerClaim,
    Step,
    Steps,
    Timeline,
    Write,
    carry_out,
)
from anabranch.protocol.log.writer import base_record
from anabranch.protocol.stage.recovery import (
    Beginning,
    beginning,
    continued,
    is_behind,
    plans_anew,
)
from anabranch.protocol.stage.replica import StageRules
from anabranch.streams.boundary_writer import BoundaryWriter

_logger = logging.getLogger("anabranch.checkpoints")


class ReplicaSteps:
    """Executor of the steps of one process of a replica."""

    def __init__(
        self, boundary: BoundaryWriter, disk: Checkpoints, process: HostProcess, rules: StageRules
    ) -> None:
        self._boundary = boundary
        self._disk = disk
        self._process, self._ha = process, rules.ha
        self._horizon = rules.horizon_buckets or 0
        self._restated_after = rules.restated_after
        self.recovery = Recovery()
        """Resources of the start besides this process's disk."""

    def carry_out(self, step: Step) -> Answer:
        """Perform ``step`` and return its answer.

        Raises:
            Fenced: a newer process replaced this one.
            Unavailable: a directory vanished, or kept changing, during a copy.
        """
        if isinstance(step, FindPeers) and not self.recovery.peers:
            return ()
        if isinstance(step, DiskStep):
            return self._on_disk(step)
        match step:
            case CheckEpoch():
                with self._process.log_lock:
                    self._boundary.poll()
                    self._boundary.check_epoch()
            case AppendBase(timeline):
                self._append_base(timeline)
            case FindMissing(name, batch):
                return self.recovery.missing(self._disk.bucket(name, batch))
            case FindRecomputed(name, batch):
                return int(
                    self.recovery.recomputed(self._disk.bucket(name, batch) if batch >= 0 else 0)
                )
            case FindFences():
                return tuple(self.recovery.fenced().items())
            case AwaitPeer(missing):
                self.recovery.wait(missing)
            case LowerClaim(bucket):
                return self.recovery.lower_claim(bucket)
        return None

    def begin(self, steps: Steps) -> tuple[Timeline, Beginning]:
        """Perform the steps of a start, after the log was read through this process's epoch. Return
        the new timeline, and the bucket and record from which it continues.

        Raises:
            Fenced, Unavailable: as for ``carry_out``.
        """
        boundary, comparison = self._boundary, self.recovery.comparison
        fresh = Beginning()

        def perform(step: Step) -> Answer:
            """Perform ``step``; answer for the input that is retained for a fresh start."""
            nonlocal fresh
            match step:
                case FindMissing(_, batch, is_restated) if batch < 0:
                    fresh = self._fresh(self._restated_after if is_restated else None)
                    return self.recovery.missing(fresh.after)
                case FindMissing(name, batch) if self._is_behind(self._disk.bucket(name, batch)):
                    return "input is kept for a process that begins anew, not for this checkpoint"
                case FindRecomputed(_, batch) if batch < 0 and (
                    self._is_behind(0) or plans_anew(boundary.log_state, fresh, self._ha)
                ):
                    return 1
            return self.carry_out(step)

        timeline = carry_out(steps, perform)
        if timeline.start_batch >= 0:
            return timeline, continued(boundary.log_state, self._horizon, self._ha)
        if comparison is not None:
            comparison.begin(boundary.log_state, boundary.replica, fresh.after)
        return timeline, fresh

    def _is_behind(self, bucket: int) -> bool:
        """Return whether a checkpoint at ``bucket`` is older than where a fresh start begins: its
        input is not retained.
        """
        return is_behind(bucket, self._fresh, self._ha)

    def _fresh(self, restated_after: int | None = None) -> Beginning:
        """Return where a start without a checkpoint begins. ``restated_after``: the last bucket of
        the previous function's results, if an operator lets the stage begin anew.
        """
        return beginning(
            self._boundary.log_state,
            self._boundary.replica,
            self._horizon,
            self._ha,
            gone=partial(self.recovery.last_gone, self._boundary.log_state),
            complete=self.recovery.complete,
            restated_after=restated_after,
        )

    def _on_disk(self, step: DiskStep) -> Answer:
        """Perform ``step`` on the disk, with the crash points of tests."""
        if isinstance(step, Clean):
            # Safe at any time (TI2), and gigabytes take a while, for which results would wait.
            self._process.beside("remove older checkpoints", partial(self._clean, step))
            return None
        answer = on_disk(self._disk, step)
        match step:
            case Copy():
                self._process.crash_point("processing.checkpoint_copied")
            case Write():
                self._process.crash_point("processing.timeline_written")
            case CopyPeer():
                self._process.crash_point("processing.peer_copied")
        return answer

    def _clean(self, step: Clean) -> None:
        """Remove older checkpoints. The next call or start removes what cannot be removed now."""
        try:
            on_disk(self._disk, step)
        except OSError as error:
            _logger.warning("older checkpoints are not removed, and take up the disk: %s", error)

    def _append_base(self, timeline: Timeline) -> None:
        """Append the base record of ``timeline`` to the boundary log."""
        now_ms = self._process.clock.now_ms()
        record = base_record(self._boundary.replica, self._boundary.epoch, timeline, now_ms)
        with self._process.log_lock:
            self._boundary.append(record)
        self._process.crash_point("processing.base_appended")
