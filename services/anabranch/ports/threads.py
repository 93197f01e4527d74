"""Threads of one process, and the locks and events by which they wait for each other."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Protocol


class Thread(Protocol):
    """Work that runs beside the thread that began it; ``threading.Thread`` is one."""

    @property
    def ident(self) -> int | None:
        """Key of its frame in ``sys._current_frames``; None: it has none."""

    def is_alive(self) -> bool:
        """Return whether the work still runs."""

    def join(self, timeout: float | None = None) -> None:
        """Wait for the end of the work, ``timeout`` seconds at most."""


class Flag(Protocol):
    """Flag that one thread sets and others wait for; ``threading.Event`` is one."""

    def set(self) -> None:
        """Set the flag and wake all threads that wait for it."""

    def is_set(self) -> bool:
        """Return whether the flag is set."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the flag, ``timeout`` seconds at most; return whether it is set."""


class Turn(Protocol):
    """Lock whose owner may wait for a broker or a disk; ``threading.Lock`` is one."""

    def acquire(self, blocking: bool = True) -> bool:
        """Take the lock; return whether it was taken, which may fail only without ``blocking``."""

    def release(self) -> None:
        """Give the lock up."""

    def __enter__(self) -> bool:
        """Take the lock."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None:
        """Give the lock up."""


class Condition(Protocol):
    """Reentrant lock for moments, with notification; ``threading.Condition`` is one.

    Its owner waits for nothing but ``wait``, which gives the lock up meanwhile: followers,
    heartbeats and timers need it.
    """

    def wait(self, timeout: float | None = None) -> bool:
        """Give the lock up until notified, ``timeout`` seconds at most; then take it again."""

    def notify_all(self) -> None:
        """Wake all threads that wait."""

    def __enter__(self) -> bool:
        """Take the lock."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None:
        """Give the lock up."""


class Threads(Protocol):
    """Factory of a process's threads and of what they wait for each other with.

    A process that takes all of these from one factory can run under virtual time.
    """

    def begin(self, name: str, work: Callable[[], None]) -> Thread:
        """Run ``work`` on a new thread, which does not keep the process alive; return the
        thread.
        """

    def event(self) -> Flag:
        """Return an event that is not set."""

    def condition(self) -> Condition:
        """Return a condition with a lock of its own."""

    def turn(self) -> Turn:
        """Return a lock whose owner may wait for a broker or a disk."""
