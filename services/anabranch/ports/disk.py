"""State on the disk of a process: checkpoints and timeline files of a replica, nonces of an
auditor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from anabranch.protocol.log.timeline import Timeline
from anabranch.protocol.stage.owners_checkpoint import Announced, StoreUse

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Reach:
    """Checkpoint from which a failover would continue now, and what was fetched for it."""

    bucket: int
    """Last bucket of input in it; 0: there is none."""
    rest_bytes: int = 0
    """Bytes of the newest stored checkpoint that this machine lacks."""
    read_bytes: int = 0
    """Bytes that this process has read from the store."""
    linked_bytes: int = 0
    """Bytes of stored checkpoints that this process has found on this machine."""


class Checkpoints(Protocol):
    """Checkpoint directories and timeline files of one replica (``protocol.log.timeline``). A
    directory has the name of its timeline.
    """

    def newest(self) -> Timeline | None:
        """Return the timeline that the newest file names; None: there is no file, or its directory
        is gone.
        """

    def create(self, name: str) -> None:
        """Create an empty directory, replacing an existing one, for a replica that starts from
        nothing.
        """

    def copy(self, source: str, target: str) -> None:
        """Make ``target`` a copy of ``source``, whole or not at all. Replaces an earlier copy.
        Files that are durable in the source are durable in the copy.

        Raises:
            Unavailable: the source vanished or kept changing.
        """

    def last_commit(self, name: str) -> int:
        """Return the last batch that was committed in the directory; -1: none."""

    def batches(self, name: str) -> Sequence[int]:
        """Return the committed batches that the directory still has, newest first, damaged or not;
        (-1,): none was ever committed; empty: all committed ones are gone.
        """

    def whole(self, name: str, batches: Sequence[int]) -> int | None:
        """Return the first of ``batches`` whose logs and state are whole; None: none is. May repair
        damage, so call it only on a copy.
        """

    def cut_back(self, name: str, batch: int, *, keep_plan: bool) -> None:
        """Remove what came after ``batch``; with ``keep_plan`` except for the plan of the next
        batch, if that is whole. Call it only on a copy.
        """

    def bucket(self, name: str, batch: int) -> int:
        """Return the last bucket that ``batch``, which is whole, has read; 0 for batch -1."""

    def peers(self) -> Sequence[tuple[str, Timeline]]:
        """Return the replicas of the same stage whose disks can be read, each with its newest
        timeline.
        """

    def copy_peer(self, replica: str, source: str, target: str) -> bool:
        """Copy a directory from a peer's disk; otherwise as ``copy``, but nothing in the copy is
        durable before ``sync``. Return False if it could not be copied.

        Raises:
            OSError, Unavailable: the own disk is full, or cannot be written.
        """

    def peer_commit(self, replica: str, name: str) -> tuple[int, int]:
        """Return the last batch that was committed in a directory on a peer's disk, and the last
        bucket that it has read; (-1, 0): none. The bucket is 0, too, if it cannot be read now.
        """

    def within_reach(self) -> Reach:
        """Return how far the checkpoint is from which a failover would continue now: the replica's
        own, here or as ``fetch`` has copied it, otherwise the most advanced of a peer. Changes
        nothing, since another process may be running in it.
        """

    def fetch(self, announced: Announced | None = None) -> None:
        """Copy the newest checkpoint that the store has of this replica, or the ``announced`` one,
        where there is a store and nothing on this machine is as far. What is on this machine
        already is not read again. The copy becomes the replica's own at the next ``newest``. Only
        one thread may call this; others may call the other methods meanwhile.

        Raises:
            Unavailable: the store is away, slow, or denies access; or it does not have the
                announced checkpoint, or not whole. What was read is kept.
        """

    @property
    def announces(self) -> str:
        """Digest of the last checkpoint that this process has stored for processes that read only
        what is announced; empty: none.
        """

    @property
    def has_store(self) -> bool:
        """Whether the process uses a store of checkpoints."""

    def write(self, timeline: Timeline) -> None:
        """Make ``timeline`` the newest, durably."""

    def sync(self, name: str) -> None:
        """Make the present content of the directory survive a loss of power. Takes as long as the
        disk does: call it without holding a lock.

        Raises:
            Fenced, FileNotFoundError: a newer process has removed the directory (rule 21).
        """

    def clean(self, epoch: int, number: int = 0) -> None:
        """Remove directories and timeline files older than timeline ``number`` of ``epoch``, and
        what lives of the stage's log before this one had left when the disk was opened.
        """

    def remove(self, name: str) -> None:
        """Remove one directory if it exists, and its timeline file unless it is the newest."""


class ReplicaDisk(Checkpoints, Protocol):
    """Checkpoints in directories that an engine writes to."""

    def directory(self, name: str) -> Path:
        """Return the path of the directory, for the engine."""

    def copy_within_reach(self, target: str) -> bool:
        """Make ``target`` a copy of the replica's own checkpoint that ``within_reach`` describes;
        return False if there is none. Changes nothing else. The copy is for a query whose results
        are dropped: ``remove`` it afterwards.

        Raises:
            Unavailable: the checkpoint kept changing.
            OSError: the disk is full, or cannot be written or read.
        """

    def store(self, name: str) -> bool:
        """Write the directory to the store of checkpoints, if there is one. Return whether another
        machine could start from it now.

        Raises:
            Unavailable: the store is away, full, or denies access.
        """


class Disks(Protocol):
    """The disks of a node's processes."""

    def of(
        self, stage: str, process: str, others: Sequence[str], *, life: str, store_use: StoreUse
    ) -> ReplicaDisk:
        """Open the disk of one process of a stage.

        Args:
            stage: Name of the stage.
            process: Id of the process.
            others: Ids of the stage's other processes, whose disks may be readable.
            life: Life of the stage's log (``streams.stream_life``). What another life left is never
                found, and the first ``clean`` removes it.
            store_use: How the process uses the store of checkpoints, if there is one.
        """


class AuditNonces(Protocol):
    """Nonces that an auditor has drawn and not revealed yet. Not thread-safe."""

    def of(self, movement_id: str) -> tuple[bytes, ...]:
        """Return the nonces of a movement, the oldest first."""

    def keep(self, movement_id: str, nonces: Sequence[bytes]) -> None:
        """Replace the nonces of a movement by ``nonces``. They are durable when this returns.

        Raises:
            OSError: the nonces cannot be written.
        """
