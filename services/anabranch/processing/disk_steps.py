"""Execution of those steps of ``protocol.log.timeline`` and ``protocol.stage.standby`` that need
only the replica's disk.

The modules that define the steps state what holds after a crash between two of them.
"""

from __future__ import annotations

from anabranch.ports import Checkpoints
from anabranch.protocol.log.timeline import (
    Answer,
    Clean,
    Copy,
    CopyPeer,
    Create,
    CutBack,
    DiskStep,
    FindBatches,
    FindBucket,
    FindCommit,
    FindNewest,
    FindPeers,
    FindWhole,
    Remove,
    Sync,
    Write,
)


def on_disk(disk: Checkpoints, step: DiskStep) -> Answer:
    """Perform ``step`` on ``disk`` and return its answer; None for a step that only changes the
    disk.

    Raises:
        Unavailable: a directory vanished, or kept changing, during a copy.
        OSError: the disk is full, or cannot be written.
    """
    match step:
        case FindNewest():
            return disk.newest()
        case FindCommit(name):
            return disk.last_commit(name)
        case FindBatches(name):
            return tuple(disk.batches(name))
        case FindBucket(name, batch):
            return disk.bucket(name, batch)
        case FindWhole(name, batches):
            return disk.whole(name, batches)
        case FindPeers():
            return tuple(disk.peers())
        case CopyPeer(replica, source, target):
            return disk.copy_peer(replica, source, target)
    _change(disk, step)
    return None


def _change(
    disk: Checkpoints, step: Create | Copy | CutBack | Write | Sync | Clean | Remove
) -> None:
    """Perform a step that changes the disk and has no answer."""
    match step:
        case Create(name):
            disk.create(name)
        case Copy(source, target):
            disk.copy(source, target)
        case CutBack(name, batch, keep_plan):
            disk.cut_back(name, batch, keep_plan=keep_plan)
        case Write(timeline):
            disk.write(timeline)
        case Sync(name):
            disk.sync(name)
        case Clean(epoch, number):
            disk.clean(epoch, number)
        case Remove(name):
            disk.remove(name)
