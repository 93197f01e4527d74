"""Checkpoint of a replica, as its process manages it: opened for one life of the stage's log,
synced and stored in the background, and stored more often while another process copies it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.processing.checkpoint_sync import CheckpointSync
from anabranch.protocol.stage.owners_checkpoint import store_use
from anabranch.protocol.stage.transfer import CheckpointFeed, MoveDeadline
from anabranch.streams.stream_life import check_life, life_of

if TYPE_CHECKING:
    from anabranch.ports import Disks, ReplicaDisk
    from anabranch.process.frame import ServiceContext
    from anabranch.processing.own_move import OwnMove
    from anabranch.processing.replica import ReplicaRunner
    from anabranch.processing.replica_identity import ReplicaIdentity
    from anabranch.processing.replica_report import ReplicaReport
    from anabranch.protocol.control.records import Heartbeat


class OwnCheckpoint:
    """Checkpoint of one replica. The replica's thread calls it, after ``open``."""

    disk: ReplicaDisk
    """Checkpoints of this replica."""
    _sync: CheckpointSync

    def __init__(
        self, context: ServiceContext, own: ReplicaIdentity, disks: Disks, report: ReplicaReport
    ) -> None:
        """Keep the arguments; neither disk nor broker is accessed yet. ``disks``: the checkpoints
        of the node's replicas.
        """
        self._context, self._own, self._disks, self._report = context, own, disks, report
        self.life = ""
        """Life of the stage's log: changes when the topic is deleted and created anew."""
        self._move_deadline = MoveDeadline()
        self._synced_bucket = 0
        self._store_use = store_use(
            own.stage.transfer,
            rebuilds=own.stage.backup_horizon_ms is not None,
            is_owners=own.node_owner == own.stage.participant,
        )
        self._feed = CheckpointFeed(
            own.stage_name, own.process, is_passive=own.is_passive, use=self._store_use
        )

    def open(self) -> None:
        """Open the checkpoints that belong to the current life of the stage's log.

        Raises:
            Unavailable: the log does not exist, or the broker does not answer.
        """
        own = self._own
        self.life = life_of(self._context.log, own.log_topic)
        self.disk = self._disks.of(
            own.stage_name,
            own.process,
            [other for other in own.stage.process_ids() if other != own.process],
            life=self.life,
            store_use=self._store_use,
        )
        # The disk removes what other lives left: only those that ended before this one.
        self.check_life()
        self._sync = CheckpointSync(
            self._context, self._report.status, self._store, self._interval_ms
        )

    def check_life(self) -> None:
        """Check that the stage's log is still the one that the checkpoints belong to.

        Raises:
            Unavailable: the log was deleted or created anew, or the broker does not answer.
        """
        check_life(self._context.log, self._own.log_topic, self.life)

    def receive(self, beat: Heartbeat) -> None:
        """Note a heartbeat of another process, which may copy the checkpoint."""
        self._feed.receive(beat, self._context.clock.monotonic_ms())

    def sync_if_due(self, runner: ReplicaRunner) -> None:
        """Start a sync of the stable query's checkpoint if one is due.

        Raises:
            Fenced: a newer process replaced this one and removed the directory.
            OSError: the last sync failed, or the directory is lost.
        """
        self._synced_bucket = runner.synced_bucket
        self._feed.look(self._context.clock.monotonic_ms())
        self._sync.sync_if_due(runner)

    def _interval_ms(self, has_failed: bool) -> int:
        """Return the interval between syncs of the checkpoint now, in ms."""
        return self._feed.interval_ms(
            self._context.clock.monotonic_ms(),
            self._synced_bucket,
            self._report.bucket,
            has_store=self.disk.has_store,
            has_failed=has_failed,
        )

    def _store(self, name: str) -> bool:
        """Write a directory to the store if the feed says so, as ``ports.ReplicaDisk.store``.
        Called on the thread of the sync.
        """
        if not self._feed.stores:
            return True
        is_whole = self.disk.store(name)
        self._feed.stored(is_whole=is_whole)
        return is_whole

    def check_move(self, move: OwnMove) -> None:
        """Withdraw ``move``, this replica's to another node, if it makes no progress (TR5)."""
        now_ms = self._context.clock.monotonic_ms()
        coming = next(iter(self._feed.alive(now_ms)), None)
        trouble = str(self._report.status.detail.get("not_stored", ""))
        reason = self._move_deadline.withdrawn(now_ms, move.goes_to(), coming, trouble)
        if reason:
            move.withdraw(reason)
