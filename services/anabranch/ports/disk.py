"""What a replica keeps on its disk: checkpoints, timeline files, numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from anabranch.protocol.log.timeline import Timeline

if TYPE_CHECKING:
    from pathlib import Path


class Checkpoints(Protocol):
    """Checkpoint directories and timeline files of one replica (``protocol.log.timeline``). A
    directory is named by its timeline.
    """

    def newest(self) -> Timeline | None:
        """The timeline that the newest file names; None: no file, or its directory is gone."""

    def create(self, name: str) -> None:
        """An empty directory, whatever is there, for a replica that starts from nothing."""

    def copy(self, source: str, target: str) -> None:
        """Make ``target`` a copy of ``source``, whole or not at all; replaces an earlier copy. What
        was durable there is durable here.

        Raises:
            Unavailable: the source vanished or kept changing.
        """

    def last_commit(self, name: str) -> int:
        """The last batch that was committed in the directory; -1: none."""

    def batches(self, name: str) -> Sequence[int]:
        """The committed batches that the directory still has, newest first, damaged or not;
        (-1,): none was ever committed; empty: all that were are gone.
        """

    def whole(self, name: str, batches: Sequence[int]) -> int | None:
        """The first of ``batches`` whose logs and state are whole; None: of none. May mend
        what can be; so only for a copy.
        """

    def cut_back(self, name: str, batch: int, *, keep_plan: bool) -> None:
        """Forget what came after ``batch``; ``keep_plan``: but for the plan of the next one, if it
        is whole. Only for a copy.
        """

    def bucket(self, name: str, batch: int) -> int:
        """The last bucket that was read with ``batch``, which is whole; 0 for -1."""

    def peers(self) -> Sequence[tuple[str, Timeline]]:
        """The replicas of the same stage whose disks are within reach, each with its newest
        timeline.
        """

    def copy_peer(self, replica: str, source: str, target: str) -> bool:
        """As ``copy``, from a peer's disk; of what it holds nothing is durable before
        ``sync``. False: it could not be copied.
        """

    def peer_commit(self, replica: str, name: str) -> int:
        """As ``last_commit``, on a peer's disk."""

    def within_reach(self) -> int:
        """The last bucket of the checkpoint on this machine from which a failover would go on now:
        the own one, else the furthest of a peer; 0: there is none. Another process may run in it:
        nothing is changed.
        """

    def write(self, timeline: Timeline) -> None:
        """Make ``timeline`` the newest, durably."""

    def sync(self, name: str) -> None:
        """What is in the directory now survives a loss of power. Takes as long as the disk does:
        call it without a lock.

        Raises:
            Fenced, FileNotFoundError: a newer process has removed the directory (rule 21).
        """

    def clean(self, epoch: int, number: int = 0) -> None:
        """Remove directories and timeline files below timeline ``number`` of ``epoch``, and all
        that other lives of the stage's log left.
        """

    def remove(self, name: str) -> None:
        """Remove one directory, if it is there; its timeline file too, unless it is the newest."""


class ReplicaDisk(Checkpoints, Protocol):
    """``Checkpoints`` that an engine writes to."""

    def directory(self, name: str) -> Path:
        """Where the engine finds the directory."""

    def store(self, name: str) -> bool:
        """Write what is in the directory to the store of checkpoints, if there is one; whether
        another machine could go on from it now.

        Raises:
            Unavailable: the store is away, full, or denies it.
        """


class Disks(Protocol):
    """The disks of a node's processes."""

    def of(
        self, stage: str, process: str, others: Sequence[str], *, life: str, is_stored: bool
    ) -> ReplicaDisk:
        """Open the disk of one process of a stage.

        Args:
            stage: Its stage.
            process: Its id.
            others: Those of the stage's other processes, whose disks may be within reach.
            life: Identity of the stage's log (``runtime.stream_life``). What another life of it
                left is not found, and goes with the first ``clean``.
            is_stored: Whether a store of checkpoints, if there is one, is of use to it.
        """


class KeptNumbers(Protocol):
    """The numbers that an auditor has drawn and not revealed yet. Not thread-safe."""

    def of(self, movement_id: str) -> tuple[bytes, ...]:
        """Those of a movement, the oldest first."""

    def keep(self, movement_id: str, numbers: Sequence[bytes]) -> None:
        """These of a movement, and no others. Durable when it returns.

        Raises:
            OSError: they cannot be written.
        """
