"""Scheduler: processes as threads of which exactly one runs, and a clock that moves only when all
of them wait.

Theory of operation. Each simulated process is a real thread, so the services' code runs as it is. A
*baton* goes from thread to thread: who has it runs, all others sleep on a lock of their own. A
process gives it up by ``wait``: until a time, or until something that it watches changes. The next
to run is the one with the earliest time; ties are broken by chance, from the seed. Whoever gives up
the baton looks for the next itself and hands it over directly: one switch of threads per step, none
if it is its own turn again.

Invariants:
    SC1 exactly one thread runs between two hand-overs.
    SC2 the order of steps depends on the seed and on the steps alone: no real time, no set order,
        no hash of a string.
    SC3 a killed process raises ``Killed`` from its next ``wait`` on, at once and for ever: nothing
        that it does afterwards has an effect.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Collection
from heapq import heappop, heappush

STEPS_MAX = 150_000
"""More steps than any seed needs: something runs in circles."""
_UNWIND_S = 300.0
"""Timeout in real seconds: only a thread that hangs takes so long, on whatever machine."""


class Killed(BaseException):
    """The process is dead: raised where it stands, so that nothing behind that point happens.
    Not an Exception: nobody may catch it.
    """


class RunawayError(Exception):
    """More than ``STEPS_MAX`` steps: the run goes in circles."""


class Process:
    """One run of one service, or the world itself."""

    def __init__(self, key: str, number: int) -> None:
        """``key`` names the service (``ingestion/reports``); ``number`` counts its runs."""
        self.key = key
        self.number = number
        self.name = f"{key}#{number}"
        self.baton = threading.Lock()
        self.baton.acquire()
        self.ticket = 0
        self.watching: frozenset[str] = frozenset()
        self.paused_until_ms = 0
        self.is_killed = False
        self.is_ended = False
        self.calls = 0
        """Port calls so far: faults count them."""
        self.thread: threading.Thread | None = None
        self.group = [self]
        """Its threads: they die and are paused together."""
        self.ending = f"end of {self.name}"
        """Name of what changes when it has ended."""
        self.locks: set[str] = set()
        """Locks that it holds and must not wait with: other threads of the process need them."""


class Scheduler:
    """Virtual time and the baton. The thread that makes it is the *world*: it has the baton
    first, and gets it back by ``run_until``.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.now_ms = 0
        self.steps = 0
        self.failure: BaseException | None = None
        self._heap: list[tuple[int, float, int, Process | Callable[[], None], int]] = []
        self._sequence = 0
        self._watched: dict[str, list[Process]] = {}
        self.waits_with_locks: Callable[[Process], None] = lambda _process: None
        """Told of a process that waits for anything while it holds a lock."""
        self._world = Process("world", 0)
        self._running = self._world
        self._processes: list[Process] = []

    @property
    def running(self) -> Process:
        """Process that has the baton."""
        return self._running

    def spawn(self, process: Process, body: Callable[[], None], delay_ms: int = 0) -> None:
        """Start ``process`` after ``delay_ms``. ``body`` runs in a thread of its own; what it
        raises but ``Killed`` ends the run.

        It runs in any case: that its process was killed before is told by the first ``wait``, so
        that whoever looks after a process hears of every death.
        """

        def run() -> None:
            process.baton.acquire()
            try:
                body()
            except Killed:
                pass
            except BaseException as error:  # noqa: BLE001 - told to the world, which raises it
                self.failure = error
                self._push(self._world, self.now_ms)
            process.is_ended = True
            self._unwatch(process)
            self.changed(process.ending)
            self._hand_over(self._next())

        process.thread = threading.Thread(target=run, name=process.name, daemon=True)
        self._processes.append(process)
        process.thread.start()
        self._push(process, self.now_ms + delay_ms)

    def spawn_thread(self, process: Process, name: str, body: Callable[[], None]) -> Process:
        """Start another thread of ``process``."""
        thread = Process(process.key, process.number)
        thread.name = f"{process.name}/{name}"
        thread.ending = f"end of {thread.name}"
        thread.group = process.group
        process.group.append(thread)

        def unless_killed() -> None:
            if not thread.is_killed:
                body()

        self.spawn(thread, unless_killed)
        return thread

    def end_threads(self, process: Process) -> None:
        """``process`` comes to its end by itself: its other threads end with it."""
        for thread in process.group:
            if thread is not process:
                self._kill(thread)

    def at(self, time_ms: int, event: Callable[[], None]) -> None:
        """Call ``event`` at that time, between two steps."""
        self._push(event, max(time_ms, self.now_ms))

    def wait(self, until_ms: int, watching: Collection[str] = ()) -> None:
        """Give up the baton until that time, or until one of ``watching`` changes.

        Raises:
            Killed: the process was killed, before or meanwhile.
        """
        me = self._running
        if me.is_killed:
            raise Killed
        if me.locks:
            self.waits_with_locks(me)
        if watching:
            me.watching = frozenset(watching)
            for name in sorted(me.watching):
                self._watched.setdefault(name, []).append(me)
        self._push(me, max(until_ms, self.now_ms))
        following = self._next()
        if following is not me:
            self._hand_over(following)
            me.baton.acquire()
        if me.watching:
            self._unwatch(me)
        if me.is_killed:
            raise Killed

    def changed(self, name: str, delay_ms: int = 0) -> None:
        """Wake who watches ``name``."""
        for process in list(self._watched.get(name, ())):
            self._unwatch(process)
            self._push(process, self.now_ms + delay_ms)

    def kill(self, process: Process) -> None:
        """``process`` ends where it stands: by its next ``wait``, which is now if it is not
        the one that runs.
        """
        for thread in process.group:
            self._kill(thread)

    def _kill(self, thread: Process) -> None:
        if thread.is_ended or thread.is_killed:
            return
        thread.is_killed = True
        thread.paused_until_ms = 0
        self._unwatch(thread)
        self._push(thread, self.now_ms)

    def pause(self, process: Process, until_ms: int) -> None:
        """``process`` does nothing before that time, like one that got SIGSTOP."""
        for thread in process.group:
            if not thread.is_ended and not thread.is_killed:
                thread.paused_until_ms = max(thread.paused_until_ms, until_ms)

    def resume(self, process: Process) -> None:
        """End its pause."""
        for thread in process.group:
            if not thread.is_ended and thread.paused_until_ms > self.now_ms:
                thread.paused_until_ms = 0
                self._push(thread, self.now_ms)

    def run_until(self, time_ms: int) -> None:
        """Let the others run until then. Called by the world.

        Raises:
            RunawayError: the run goes in circles.
            BaseException: what a process's body raised.
        """
        self.wait(time_ms)
        if self.failure is not None:
            raise self.failure

    def close(self) -> None:
        """Kill all that is left and wait for their threads. Called by the world."""
        self._heap.clear()
        for process in self._processes:
            if not process.is_ended:
                process.is_killed = True
                self._running = process
                self._push(self._world, self.now_ms)
                process.baton.release()
                self._world.baton.acquire()
        for process in self._processes:
            assert process.thread is not None
            process.thread.join(_UNWIND_S)
            assert not process.thread.is_alive(), f"{process.name} does not end"
        self._running = self._world

    def _push(self, what: Process | Callable[[], None], time_ms: int) -> None:
        self._sequence += 1
        ticket = 0
        if isinstance(what, Process):
            what.ticket += 1
            ticket = what.ticket
        heappush(self._heap, (time_ms, self._rng.random(), self._sequence, what, ticket))

    def _next(self) -> Process:
        """Return the process whose turn it is. Due events happen on the way."""
        while True:
            time_ms, _, _, what, ticket = heappop(self._heap)
            time_ms = max(self.now_ms, time_ms)
            if not isinstance(what, Process):
                self.now_ms = time_ms
                what()
                continue
            if what.is_ended or ticket != what.ticket:
                continue
            if what.paused_until_ms > time_ms:
                self._push(what, what.paused_until_ms)
                continue
            self.now_ms = time_ms
            self.steps += 1
            if self.steps > STEPS_MAX and self.failure is None:
                self.failure = RunawayError(
                    f"{STEPS_MAX} steps, virtual time {self.now_ms} ms, last {what.name}"
                )
                return self._world
            return what

    def _hand_over(self, process: Process) -> None:
        self._running = process
        process.baton.release()

    def _unwatch(self, process: Process) -> None:
        for name in process.watching:
            self._watched[name].remove(process)
        process.watching = frozenset()
