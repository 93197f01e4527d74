"""Locks and conditions between the threads of one simulated process. A real one would be held
by a thread that sleeps without the baton.
"""

from __future__ import annotations

from typing import Final

from simulation.scheduler import Process, Scheduler

_LONG_MS: Final = 600_000


class SimulatedCondition:
    """``threading.Condition`` with its reentrant lock, as far as the services use it; also
    serves as ``threading.Lock``.
    """

    def __init__(self, scheduler: Scheduler, name: str, *, is_turn: bool = False) -> None:
        """``name`` must be its own: who waits for it watches this name. ``is_turn``: whoever
        has it may wait, for the broker or the disk.
        """
        self._scheduler = scheduler
        self._name = name
        self._is_turn = is_turn
        self._owner: Process | None = None
        self._depth = 0

    def acquire(self, blocking: bool = True) -> bool:
        """Wait until nobody else has it."""
        me = self._scheduler.running
        if self._owner is me:
            self._depth += 1
            return True
        while self._owner is not None:
            if not blocking:
                return False
            self._scheduler.wait(self._scheduler.now_ms + _LONG_MS, [self._name])
        self._owner, self._depth = me, 1
        if not self._is_turn:
            me.locks.add(self._name)
        return True

    def release(self) -> None:
        """Give it up. A thread that was killed while it waited has nothing to give up."""
        if self._owner is not self._scheduler.running:
            return
        self._depth -= 1
        if self._depth == 0:
            self._owner.locks.discard(self._name)
            self._owner = None
            self._scheduler.changed(self._name)

    def wait(self, timeout: float | None = None) -> bool:
        """Give it up until notified, at most ``timeout`` seconds."""
        wait_ms = _LONG_MS if timeout is None else int(timeout * 1_000)
        depth, self._depth = self._depth, 1
        self.release()
        self._scheduler.wait(self._scheduler.now_ms + wait_ms, [f"{self._name} notified"])
        self.acquire()
        self._depth = depth
        return True

    def notify_all(self) -> None:
        """Wake who waits."""
        self._scheduler.changed(f"{self._name} notified")

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()
