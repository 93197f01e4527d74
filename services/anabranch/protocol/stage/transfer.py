"""Transfer of a stage's state to a process on another machine: how often the process that runs the
stage stores its checkpoint meanwhile, and when a move that makes no progress is withdrawn.

Theory of operation. Machines share the store of checkpoints and the broker, no disk. A replica
stores its checkpoint every ``STORE_EVERY_MS`` in any case; a store has each file once, so a
checkpoint costs what is new since the one before. A process that stands by - a replica that moves
there (``protocol.control.placement``), or a standby of a passive stage
(``protocol.stage.standby``) - copies the newest stored checkpoint again and again, and what it has
already it does not read again. So the copy follows the state, whatever its size; what is missing at
the cutover is what was stored last, and what the stage has done since then is run again from its
input. The process that stands by reports in its heartbeats how far its copy is. While these
heartbeats arrive, the process that runs stores every second, so that the copy can come near enough
for the cutover (SB8).

No process waits for another: a store that is away, a copy that fails or a process that dies leaves
the stage where it runs. A move that has made no progress for long is taken back by the process that
runs the stage, with the reason in the record.

Invariants:
    TR1 a checkpoint is stored every ``STORE_EVERY_MS``; while a process stands by whose copy is not
        ahead of what is stored, every ``FEED_MOVE_EVERY_MS`` for a move, or
        ``FEED_STANDBY_EVERY_MS`` for a standby, if the stage has read anything since.
    TR2 a process whose checkpoint is ahead of what is stored reads the directory of the one that
        runs: nothing is stored for it. One whose primary continued from an older checkpoint counts
        as ahead, too, until its claim has ended (SB11): it copies none that holds less than it
        claims, and one is stored every ``STORE_EVERY_MS`` in any case.
    TR3 after an attempt that failed the next one comes after ``STORE_AGAIN_MS`` at the earliest.
    TR4 a process without a heartbeat for ``LONG_SILENT_MS`` is gone: nothing is stored for it.
    TR5 a move is withdrawn when no heartbeat reported it, or its copy has neither got further nor
        read anything, for ``MOVE_STALLED_MS``; or ``MOVE_MS_MAX`` after it was seen. Only the
        process that runs the replica withdraws it, so what it takes back has not begun elsewhere as
        far as it knows; if it has, the record is a move to where the replica was.
    TR6 a process that stores its checkpoints only for others (``StoreUse.OFFERS``) stores none
        while no process stands by. As soon as one stands by, a checkpoint is stored whatever that
        process has, and even if the stage has read nothing since the last sync: the two have no
        directory in common.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from anabranch.protocol.control.failure_detector import STANDBY_SERVICE
from anabranch.protocol.control.records import Heartbeat
from anabranch.protocol.limits import LONG_SILENT_MS
from anabranch.protocol.stage.owners_checkpoint import StoreUse
from anabranch.protocol.stage.standby import STANDING_BY

STORE_EVERY_MS: Final = 30_000
"""Interval between stored checkpoints, in ms. Blocks are trimmed only below what is stored, so this
bounds what is kept for a restart after a loss of power; a checkpoint costs the disk whatever was
written since the last.
"""

FEED_MOVE_EVERY_MS: Final = 1_000
"""Interval between stored checkpoints during a move, in ms. It bounds how far the copy is behind at
the cutover, so how much is run again.
"""

FEED_STANDBY_EVERY_MS: Final = 5_000
"""Interval between stored checkpoints for a standby on another machine, in ms: for as long as the
stage lives, so longer than for a move. It bounds how much a failover runs again.
"""

STORE_AGAIN_MS: Final = 5_000
"""Interval between attempts to store a checkpoint while the store fails, in ms."""

MOVE_STALLED_MS: Final = 300_000
"""Time without progress, in ms, after which a move is withdrawn: a node may need minutes to start,
and a store may be away for some.
"""

MOVE_MS_MAX: Final = 3_600_000
"""Duration of a move, in ms, after which it is withdrawn although its copy gets further: the stage
changes its state faster than the new node can read it.
"""


@dataclass(frozen=True, slots=True)
class _Heard:
    """Last heartbeat of a process that stands by."""

    beat: Heartbeat
    at_ms: int


class CheckpointFeed:
    """Decisions of the process that runs a stage about storing its checkpoint for the processes
    that copy it. ``now_ms`` is monotonic and its own.
    """

    def __init__(
        self, stage: str, process: str, *, is_passive: bool, use: StoreUse = StoreUse.WHOLE
    ) -> None:
        """Begin without any heartbeat. ``process``: this one, which uses the store as ``use``.
        ``is_passive``: all processes of the stage copy its checkpoint; otherwise only the same
        replica's on another node.
        """
        self._stage, self._process, self._is_passive = stage, process, is_passive
        self._use = use
        self._heard: dict[str, _Heard] = {}
        self._is_awaited = self._is_stored = False
        """Whether a process stands by; and whether the last sync since then was stored."""

    def look(self, now_ms: int) -> None:
        """Note whether a process stands by now (TR4)."""
        self._is_awaited = bool(self.alive(now_ms))
        self._is_stored = self._is_stored and self._is_awaited

    @property
    def stores(self) -> bool:
        """Whether a checkpoint that is synced now is to be stored, too (TR6)."""
        return self._use is not StoreUse.OFFERS or self._is_awaited

    def stored(self, *, is_whole: bool) -> None:
        """Note that the checkpoint was written to the store. ``is_whole``: nothing of it was gone
        meanwhile.
        """
        self._is_stored = is_whole

    def receive(self, beat: Heartbeat, now_ms: int) -> None:
        """Take note of a heartbeat of any process."""
        if (beat.service, beat.name) == (STANDBY_SERVICE, self._stage) and (
            beat.replica != self._process if self._is_passive else beat.replica == self._process
        ):
            self._heard[beat.replica] = _Heard(beat, now_ms)

    def interval_ms(
        self, now_ms: int, stored: int, read: int, *, has_store: bool, has_failed: bool
    ) -> int:
        """Return the interval between the last attempt to sync or store a checkpoint and the next,
        in ms (TR1 to TR4, TR6).

        Args:
            now_ms: Present time.
            stored: Last bucket of input in the checkpoint that was last synced or stored; 0: none.
            read: Last bucket of input that the stage has read.
            has_store: Whether there is a store.
            has_failed: Whether the last attempt failed.
        """
        behind = self.alive(now_ms)
        if not has_store or self._use is StoreUse.TAKES:
            behind = []
        elif self._use is StoreUse.WHOLE or self._is_stored:
            behind = [each for each in behind if each.checkpoint_bucket <= stored < read]
        if not behind:
            return STORE_EVERY_MS
        every_ms = FEED_STANDBY_EVERY_MS if self._is_passive else FEED_MOVE_EVERY_MS
        return max(every_ms, STORE_AGAIN_MS) if has_failed else every_ms

    def alive(self, now_ms: int) -> list[Heartbeat]:
        """Return the last heartbeat of each process that stands by now (TR4)."""
        return [
            each.beat
            for each in self._heard.values()
            if each.beat.state == STANDING_BY and now_ms - each.at_ms < LONG_SILENT_MS
        ]


class MoveDeadline:
    """Progress of the move of one replica, as the process that runs it sees it."""

    def __init__(self) -> None:
        """Begin without a move."""
        self._node = ""
        self._seen_ms = self._progress_ms = 0
        self._reached: tuple[int, int] | None = None

    def withdrawn(self, now_ms: int, node: str, coming: Heartbeat | None, trouble: str) -> str:
        """Return why the move to ``node`` is to be withdrawn now; empty: it is not (TR5).

        Args:
            now_ms: Present time, by a clock of this process.
            node: Node that has the place of the replica; empty: this one, or none.
            coming: Last heartbeat of the replica on that node; None: none arrives.
            trouble: Error of the checkpoint store, as this process sees it; empty: none.
        """
        if node != self._node:
            self._node, self._reached = node, None
            self._seen_ms = self._progress_ms = now_ms
        reached = None if coming is None else (coming.checkpoint_bucket, coming.fetched_bytes)
        if reached is not None and reached != self._reached:
            self._reached, self._progress_ms = reached, now_ms
        if not node:
            return ""
        if now_ms - self._seen_ms >= MOVE_MS_MAX:
            return f"node {node} did not come near enough within {MOVE_MS_MAX // 60_000} minutes"
        if now_ms - self._progress_ms < MOVE_STALLED_MS:
            return ""
        minutes = f"for {MOVE_STALLED_MS // 60_000} minutes"
        if coming is None:
            return f"node {node} did not stand by {minutes}: check that it runs"
        return f"the copy on node {node} got no further {minutes}" + (
            f": {trouble}" if trouble else ": its status says what it waits for"
        )
