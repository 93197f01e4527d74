"""Effects of faults on the processes of a run."""

from __future__ import annotations

import random
from functools import partial
from typing import Final, Protocol

from anabranch.process.frame import Service
from simulation.disk import Machine
from simulation.ends import Life
from simulation.faults import (
    COPY_ZOMBIE,
    EVERYTHING,
    HELD_START,
    SPLIT_CRASH,
    UNHEARD_CLAIM,
    UNREACHABLE,
    Fault,
)
from simulation.history import History
from simulation.network import Aim, Link, Strike
from simulation.scheduler import Process, Scheduler
from simulation.side_ports import SimulatedClock

_WRONG_MS: Final = 400
"""Additional duration of a batch whose rows are wrong, in ms: mostly other replicas are
first then.
"""


_AIMED: Final = (
    "race",
    "fork zombie",
    "fork crash",
    "record crash",
    COPY_ZOMBIE,
    SPLIT_CRASH,
)


class Runs:
    """All runs of one service."""

    def __init__(self) -> None:
        self.current: Process | None = None
        self.service: Service | None = None
        """Service of the current run."""
        self.alive: dict[Process, tuple[Link, SimulatedClock]] = {}
        self.lives: list[Life] = []
        """Lives of all runs."""
        self.lost_input = False
        """Whether the run before ended because blocks of an input were missing or differed."""
        self.restarts = 0
        self.is_dead = False
        self.link = Link()
        """Link that new runs begin with."""
        self.clock_offset_ms = 0
        self.clock_set_ms = 0
        """Displacement of the machine's wall clock that nobody mends, in ms."""
        self.drift_permille = 0
        self.away_until_ms = 0
        """Time before which no process begins, whatever ended the last one."""
        self.unreachable_until_ms = 0
        """Time until which nobody reaches the disk of its machine."""


class Start(Protocol):
    """Starts a run of a service."""

    def __call__(
        self, key: str, delay_ms: int = 0, strikes: list[Strike] | tuple[Strike, ...] = ()
    ) -> None:
        """``strikes``: what befalls it."""


class ProcessFaults:
    """Strikes processes, and the machines that they run on."""

    def __init__(
        self,
        scheduler: Scheduler,
        history: History,
        runs: dict[str, Runs],
        machines: dict[str, Machine],
        start: Start,
        rng: random.Random,
    ) -> None:
        self._scheduler = scheduler
        self._history = history
        self._runs = runs
        self._machines = machines
        self._start, self._rng = start, rng

    def strike(self, fault: Fault, until_ms: int) -> None:
        """Let ``fault`` happen to the service that it names."""
        if fault.target == EVERYTHING:
            for key, each in self._runs.items():
                if fault.kind == "power of all":
                    self._lose("power", key, each)
                else:
                    self._strike_all(fault._replace(kind="cut"), each, until_ms)
            return
        runs = self._runs[fault.target]
        alive = None if runs.current is None else runs.alive.get(runs.current)
        if fault.kind in ("power", "disk", "dead"):
            self._lose(fault.kind, fault.target, runs)
        elif fault.kind in (
            "cut",
            "cut_to",
            "cut_from",
            "slow",
            "clock",
            "clock back",
            "clock set",
            "drift",
            "disk full",
        ):
            self._strike_all(fault, runs, until_ms)
        elif fault.kind == "new version":
            runs.link.version += 1
            if fault.value:
                self.kill(runs)
        elif fault.kind in ("away", UNREACHABLE):
            self.be_away(runs, until_ms, is_reachable=fault.kind != UNREACHABLE)
        elif (
            alive is None
            and (fault.kind.startswith("commit ") or fault.kind == UNHEARD_CLAIM)
            and runs.away_until_ms > self._scheduler.now_ms
        ):
            runs.link.planned.append((fault.kind.split(" ")[1], fault.value))
        elif alive is None:
            self._history.reached("fault missed: nobody was alive")
        else:
            self._strike_current(fault, alive[0])

    @staticmethod
    def _strike_all(fault: Fault, runs: Runs, until_ms: int) -> None:
        """Strike the machine: all runs on it, and those that begin there later."""
        kind = fault.kind
        for link in (runs.link, *(link for link, _ in runs.alive.values())):
            if kind in ("cut", "cut_to"):
                link.cut_to_until_ms = max(link.cut_to_until_ms, until_ms)
            if kind in ("cut", "cut_from"):
                link.cut_from_until_ms = max(link.cut_from_until_ms, until_ms)
            if kind == "slow":
                link.slow_until_ms = max(link.slow_until_ms, until_ms)
            if kind == "disk full":
                link.full_until_ms = max(link.full_until_ms, until_ms)
        if kind in ("clock", "clock back"):
            runs.clock_offset_ms = fault.value if kind == "clock" else 0
            for _, clock in runs.alive.values():
                clock.offset_ms = runs.clock_offset_ms
        if kind == "clock set":
            runs.clock_set_ms = fault.value
            for _, clock in runs.alive.values():
                clock.set_ms = fault.value
        if kind == "drift":
            runs.drift_permille = fault.value
            for _, clock in runs.alive.values():
                clock.drift(fault.value)

    def _strike_current(self, fault: Fault, link: Link) -> None:
        """Strike one run of a service."""
        if fault.kind.startswith(("write ", "commit ", UNHEARD_CLAIM)):
            link.planned.append((fault.kind.split(" ")[1], fault.value))
        elif fault.kind == "wrong rows":
            link.makes_wrong_rows, link.wrong_ms = True, _WRONG_MS
            self._runs[fault.target].lives[-1].made_wrong_rows = True
        elif fault.kind == "branch fails":
            link.branch_failures.append(fault.value)
        elif fault.kind == "double":
            self._start(fault.target)
        elif fault.kind == "twins":
            self._twins(fault)
        elif fault.kind == HELD_START:
            self._restart_held(fault)
        elif fault.kind in _AIMED:
            self._aim(fault, link)
        else:
            aims: tuple[Aim, ...] = (
                "any",
                "effect",
                "disk" if fault.target.startswith("processing/") else "effect",
            )
            strike = Strike(
                fault.value // 3 + 1,
                aims[fault.value % 3],
                None if fault.kind == "crash" else fault.duration_ms,
            )
            if fault.kind == "zombie":
                strike.struck = lambda: self._start(fault.target, delay_ms=fault.value)
            link.strikes.append(strike)

    def _twins(self, fault: Fault) -> None:
        """Replace the process by two that begin at the same time."""
        process = self._runs[fault.target].current
        assert process is not None
        self._start(fault.target)
        self._start(fault.target, delay_ms=fault.value // 3)
        self._scheduler.kill(process)

    def _restart_held(self, fault: Fault) -> None:
        """Replace the process by one that is held up when it is about to begin an epoch."""
        process = self._runs[fault.target].current
        assert process is not None
        self._start(fault.target, strikes=[Strike(1 + fault.value, "begin", fault.duration_ms)])
        self._scheduler.kill(process)

    def _aim(self, fault: Fault, link: Link) -> None:
        """Strike at the calls that follow a certain step: a failover, a fork, a record, a copy, an
        answer to a split. Who is struck in a failover goes on when its replacement has begun.

        ``race``: a second process replaces it, and is overtaken by a third. ``fork zombie``: the
        process forks, and is overtaken meanwhile by a second one that is held up while it copies.
        ``fork crash``: it dies there.
        """
        value, pause_ms = fault.value, fault.duration_ms
        begins = partial(self._start, fault.target)
        if fault.kind == "race":
            begins(strikes=[Strike(1 + value % 16, "disk", pause_ms, begins)])
        elif fault.kind == "fork zombie":
            second = Strike(1 + value // 6, "disk", 50 + pause_ms)
            overtakes = partial(begins, strikes=[second])
            link.strikes.append(Strike(1 + value % 6, "fork", 10 + pause_ms % 120, overtakes))
        elif fault.kind == "fork crash":
            link.strikes.append(Strike(1 + value % 8, "fork"))
        elif fault.kind == "record crash":
            link.strikes.append(Strike(1, "record"))
        elif fault.kind == COPY_ZOMBIE:
            link.strikes.append(Strike(1 + value, "copy", pause_ms, begins))
        elif value % 2:
            link.strikes.append(Strike(1 + value // 2 % 6, "split", pause_ms, begins))
        else:
            link.strikes.append(Strike(1 + value // 2 % 6, "split"))

    def forget_state(self, key: str) -> None:
        """Delete the checkpoints of a replica that cannot continue from them, as a person does."""
        self._lose("disk", key, self._runs[key])

    def _lose(self, kind: str, key: str, runs: Runs) -> None:
        """Strike the machine of a replica: power cut, disk lost, gone for good. The first two
        strike all that share it: nodes of one host, between which a replica is moved.
        """
        runs.is_dead = runs.is_dead or kind == "dead"
        machine = self._machines.get(key)
        sharing = [key] if machine is None or kind == "dead" else self._on(machine)
        for each in sharing:
            self.kill(self._runs[each])
        if kind == "power" and machine is None:
            return
        if kind == "power":
            lost, is_out_of_order, is_torn = self._machines[key].power_cut(self._rng)
            self._history.reached("checkpoint tail lost" if lost else "power cut without loss")
            if is_out_of_order:
                self._history.reached("checkpoint files out of order")
            if is_torn:
                self._history.reached("checkpoint files torn")
        else:
            self._machines.update(dict.fromkeys(sharing, Machine()))

    def _on(self, machine: Machine) -> list[str]:
        return [key for key, each in self._machines.items() if each is machine]

    def be_away(self, runs: Runs, until_ms: int, *, is_reachable: bool) -> None:
        """End all processes of a service, and let none begin before ``until_ms``, nor before it
        would have by now. ``is_reachable``: whether others reach the disk of its machine meanwhile.
        """
        runs.away_until_ms = max(runs.away_until_ms, until_ms)
        if not is_reachable:
            runs.unreachable_until_ms = max(runs.unreachable_until_ms, until_ms)
        self.kill(runs)

    def kill(self, runs: Runs) -> None:
        """End all processes of a service at once."""
        for process in list(runs.alive):
            self._scheduler.kill(process)

    @staticmethod
    def calm(link: Link) -> None:
        link.cut_to_until_ms = 0
        link.cut_from_until_ms = 0
        link.slow_until_ms = 0
        link.full_until_ms = 0
        link.planned.clear()
        link.strikes.clear()
        link.branch_failures.clear()
