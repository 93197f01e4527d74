"""``ports.Threads`` of one simulated process: threads of the scheduler, and what they wait for each
other with, under virtual time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Final

from simulation.locks import SimulatedCondition
from simulation.scheduler import Process, Scheduler

_LONG_MS: Final = 600_000


class SimulatedThread:
    """See ``ports.Thread``."""

    ident: int | None = None

    def __init__(self, scheduler: Scheduler, thread: Process) -> None:
        self._scheduler, self._thread = scheduler, thread

    def is_alive(self) -> bool:
        """See the port."""
        return not self._thread.is_ended

    def join(self, timeout: float | None = None) -> None:
        """See the port."""
        scheduler = self._scheduler
        until_ms = scheduler.now_ms + (_LONG_MS if timeout is None else int(timeout * 1_000))
        while self.is_alive() and scheduler.now_ms < until_ms:
            scheduler.wait(until_ms, [self._thread.ending])


class SimulatedEvent:
    """See ``ports.Flag``."""

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        """``name`` must be its own: threads that wait for the event watch this name."""
        self._scheduler, self._name = scheduler, name
        self._is_set = False

    def set(self) -> None:
        """See the port."""
        self._is_set = True
        self._scheduler.changed(self._name)

    def is_set(self) -> bool:
        """See the port."""
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        """See the port."""
        until_ms = self._scheduler.now_ms + (_LONG_MS if timeout is None else int(timeout * 1_000))
        while not self._is_set and self._scheduler.now_ms < until_ms:
            self._scheduler.wait(until_ms, [self._name])
        return self._is_set


class SimulatedThreads:
    """See ``ports.Threads``."""

    def __init__(self, scheduler: Scheduler, process: Process) -> None:
        self._scheduler, self._process = scheduler, process
        self._numbers = itertools.count()

    def begin(self, name: str, work: Callable[[], None]) -> SimulatedThread:
        """See the port. What ``work`` raises ends the run: the services' threads hand errors on."""
        thread = self._scheduler.spawn_thread(self._process, name, work)
        return SimulatedThread(self._scheduler, thread)

    def event(self) -> SimulatedEvent:
        """See the port."""
        return SimulatedEvent(self._scheduler, self._own_name("event"))

    def condition(self) -> SimulatedCondition:
        """See the port."""
        return SimulatedCondition(self._scheduler, self._own_name("condition"))

    def turn(self) -> SimulatedCondition:
        """See the port."""
        return SimulatedCondition(self._scheduler, self._own_name("turn"), is_turn=True)

    def _own_name(self, kind: str) -> str:
        return f"{self._process.name} {kind} {next(self._numbers)}"
