"""Checkpoint of a stage's owner, from which the node of another participant begins: which one it
is, who uses the store of checkpoints for that, and when the input takes its place.

Theory of operation. A stage with ``upstream_backup`` can begin from its input anywhere, which takes
as long as two horizons of input. With ``transfer: checkpoint`` a node that is to run it begins from
the checkpoint of the node that runs it, as other stages do (``protocol.stage.transfer``), and from
the input where that does not come.

Trust goes one way. A participant's node that begins from the state of the stage's owner computes
what the owner wants to have computed. An owner that began from a partner's state would take over
its mistakes without a trace: it begins from a checkpoint of its own, or from the input, and then
compares the partner's last results (``protocol.stage.recovery``). So the owner's nodes write to the
store, and partners need no right but to read there. Whoever reads it does not trust the store
either: the owner's node announces the digest of each checkpoint in its heartbeats, by the broker.
The digest is that of the manifest, the manifest has the digest of each file, and names the
operators that hold the state. So both are known before the first byte of the state is read, and
every byte is compared before it is used.

Where an owner's state is wrong, so are the seller's results of one horizon. They blame the owner
alone, so an auditor leaves them out (``protocol.federation.auditing``).

What the processes of a stage do with the store (``store_use``):
    other modes of recovery              store their checkpoints, and restore from any in the store
    upstream_backup, amnesia             do not use it
    transfer: checkpoint, owner's node   stores while a process stands by, reads what is announced
    transfer: checkpoint, other nodes    store nothing, read what is announced

Invariants:
    OC1 only the checkpoint is used that the process of the newest epoch has announced, and only if
        that epoch began on a node of the stage's owner.
    OC2 nothing of a checkpoint is read whose manifest has another digest than the announced one, is
        of another epoch than the heartbeat, or names other operators with state than the function
        of the process that reads it.
    OC3 a process that may use no checkpoint begins from the input, and keeps to that; so does one
        that has waited ``TRANSFER_FIRST_MS`` while none was announced, ``TRANSFER_STALLED_MS``
        without progress while one is, or ``TRANSFER_MS_MAX`` at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final

from anabranch.protocol.control.records import Heartbeat
from anabranch.protocol.log.stateful_plan import StatefulPlan, difference
from anabranch.protocol.log.timeline import epoch_of

TRANSFER_FIRST_MS: Final = 60_000
"""Time, in ms, for which a process waits until a checkpoint is announced. The owner's node stores
nothing until a process stands by, so the first one takes as long as its whole state.
"""

TRANSFER_STALLED_MS: Final = 15_000
"""Time without progress, in ms, after which a process waits no longer for a checkpoint that is
announced. Several attempts to store and to read one fit.
"""

TRANSFER_MS_MAX: Final = 120_000
"""Maximum time that a process waits for the owner's checkpoint, in ms: the time in which a contract
lets a stage start is about that.
"""


class Transfer(StrEnum):
    """Way in which a node to which a stage moves gets the stage's state."""

    REBUILD = "rebuild"
    """Recovery from the input, which ``upstream_backup`` has in any case."""
    CHECKPOINT = "checkpoint"
    """From the checkpoint of its owner's node; from its input where that does not come."""


class StoreUse(Enum):
    """Use of the store of checkpoints by one process."""

    NONE = "none"
    """Neither reads nor writes it."""
    WHOLE = "whole"
    """Stores its checkpoints, and restores from any in the store."""
    OFFERS = "offers"
    """Stores its checkpoints while a process stands by, and reads only those that are announced."""
    TAKES = "takes"
    """Reads only checkpoints that are announced, and stores none."""


def store_use(transfer: Transfer, *, rebuilds: bool, is_owners: bool) -> StoreUse:
    """Return how a process of a stage uses the store.

    Args:
        transfer: Way in which a node to which the stage moves gets its state.
        rebuilds: Whether the stage can recompute its state from its input.
        is_owners: Whether the process runs on a node of the stage's owner.
    """
    if not rebuilds:
        return StoreUse.WHOLE
    if transfer is Transfer.REBUILD:
        return StoreUse.NONE
    return StoreUse.OFFERS if is_owners else StoreUse.TAKES


@dataclass(frozen=True, slots=True)
class Announced:
    """Checkpoint that the process which runs a stage has announced."""

    digest: str
    """SHA-256 of its manifest, in hexadecimal digits."""
    epoch: int
    """Epoch of the process."""
    plan: StatefulPlan
    """Operators that hold the state of the function that is to continue from it."""

    def is_named(self, digest: str) -> bool:
        """Return whether the heartbeat names the manifest of SHA-256 ``digest``."""
        return digest == self.digest

    def refusal(self, digest: str, timeline: str, plan: StatefulPlan) -> str:
        """Return why a stored checkpoint is not read; empty: it is (OC2).

        Args:
            digest: SHA-256 of its manifest.
            timeline: Name of its timeline.
            plan: Operators that hold its state, by its manifest.
        """
        if not self.is_named(digest):
            return "it is not the one that the owner's node has announced"
        if epoch_of(timeline) != self.epoch:
            return "it is of another epoch than the heartbeat that announces it"
        changed = difference(plan, self.plan)
        return f"another function has made its state: {changed}" if changed else ""


class OwnersCheckpoint:
    """Wait of one process for its owner's checkpoint. ``now_ms`` is monotonic and its own."""

    def __init__(self, plan: StatefulPlan, is_owners: Callable[[str], bool]) -> None:
        """Begin without observations. ``plan``: operators that hold the state of the function of
        this process. ``is_owners``: whether the stage's owner runs a node.
        """
        self._plan, self._is_owners = plan, is_owners
        self._begun_ms: int | None = None
        self._progress_ms = 0
        self._reached = (0, 0, False)
        self._announced: Announced | None = None
        self._begins_from_input = False
        self.failed = ""
        """Why the process begins from the input although its owner runs the stage; empty: it does
        not.
        """

    def announced(
        self, runs_on: str, epoch: int | None, beat: Heartbeat | None
    ) -> Announced | None:
        """Return the checkpoint to read; None: there is none (OC1).

        Args:
            runs_on: Node on which the newest epoch began; empty: none, or it is unknown.
            epoch: Newest epoch of the log; None: there is none.
            beat: Last heartbeat of its process; None: none arrived.
        """
        self._announced = None
        if self._is_owners(runs_on) and beat is not None and beat.epoch == epoch and beat.stored:
            self._announced = Announced(beat.stored, beat.epoch, self._plan)
        return self._announced

    def look(self, now_ms: int, runs_on: str, bucket: int, read_bytes: int, why: str) -> bool:
        """Return whether the process begins from the input (OC3). Call it after ``announced``.

        Args:
            now_ms: Present time.
            runs_on: Node on which the newest epoch began; empty: none, or it is unknown.
            bucket: Last bucket in the checkpoint within reach; 0: there is none.
            read_bytes: Bytes that the process has read from the store.
            why: Why the last attempt to read it failed; empty: it did not.
        """
        if self._begun_ms is None:
            self._begun_ms = self._progress_ms = now_ms
        reached = bucket, read_bytes, self._announced is not None
        if reached != self._reached:
            self._reached, self._progress_ms = reached, now_ms
        if not self._begins_from_input and self._is_owners(runs_on):
            self.failed = self._why_no_longer(now_ms - self._begun_ms, now_ms - self._progress_ms)
            if self.failed and why:
                self.failed += f": {why}"
        self._begins_from_input |= bool(self.failed) or not self._is_owners(runs_on)
        return self._begins_from_input

    def _why_no_longer(self, waited_ms: int, stalled_ms: int) -> str:
        """Return why the process waits no longer; empty: it does."""
        limit_ms = TRANSFER_FIRST_MS if self._announced is None else TRANSFER_STALLED_MS
        if stalled_ms >= limit_ms:
            what = "none was announced" if self._announced is None else "no progress"
            return f"{what} for {limit_ms // 1_000} s"
        if waited_ms >= TRANSFER_MS_MAX:
            return f"not near enough within {TRANSFER_MS_MAX // 1_000} s"
        return ""
