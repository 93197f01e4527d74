"""The nemesis: does to a running deployment what the schedule says, and writes down when it did
what.

One thread works off the begins and ends of all faults in their order. Where a fault takes long (a
process is not there yet, a second copy is slow to start), those after it come late; each is judged
by the times at which it really happened.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import redis

from anabranch.adapters.disk import state_format
from anabranch.local import probe, state_file
from anabranch.local.child_process import ChildProcess
from anabranch.local.drill_links import Cut, Direction
from anabranch.local.drills import Drill
from anabranch.local.processes import MARK_OF_ONE, has_state, marked
from anabranch.local.state_file import ProcessRow
from anabranch.pipeline.file import load
from anabranch.pipeline.model import Pipeline
from anabranch.process.frame import ExitCode
from anabranch.protocol.errors import Unavailable
from chaos.judgement import Injected
from chaos.schedule import Fault, Kind, service_of
from harness.waiting import wait_until

RUNS_AGAIN_S: Final = 60.0
"""A process that was just ended is there again within this."""
ENDS_S: Final = 20.0
"""After SIGTERM a process is gone within this, else it hangs."""
COPY_READY_S: Final = 60.0
COPY_GONE_S: Final = 90.0
"""After the first one woke (and was started again), the second is fenced and gone within this."""
_STOP_S: Final = 10.0
COMMAND_S: Final = 60.0
"""An ``anabranch`` command that does not wait for its effect has ended within this."""
_GONE: Final = "ZX"
AGAIN_AFTER_S: Final = 2.0
"""Between two kills of a process that starts."""

_NOT_FENCED: Final = frozenset({"consistency_manager"})
"""It need not be: what it says is read back from the log, whoever said it
(protocol.stage.scheduling).
"""
_CUTS: Final = {
    Kind.CUT: Cut(),
    Kind.CUT_TO: Cut(Direction.TO),
    Kind.CUT_FROM: Cut(Direction.FROM),
    Kind.RESET: Cut(reset=True),
}


class Nemesis(threading.Thread):
    """Breaks the deployment in ``state_dir``. ``injected`` and ``broken`` may be read once it
    has ended.
    """

    def __init__(
        self,
        state_dir: Path,
        faults: Sequence[Fault],
        journal: Path,
        say: Callable[[str], None],
        until_s: float,
        rush: Callable[[str, bool], None] = lambda *_: None,
    ) -> None:
        """``until_s``: after this many seconds none begins any more, however late this is.
        ``rush``: begins or ends a rush at a source, of which it gets the process.
        """
        super().__init__(name="nemesis", daemon=True)
        self._state_dir = state_dir
        self._faults = faults
        self._journal = journal
        self._until_s = until_s
        self._rush = rush
        self._say = say
        self._stop_requested = threading.Event()
        self._pause = threading.Event()
        self._copies: dict[int, tuple[str, ChildProcess]] = {}
        self._first_runs: dict[str, tuple[list[str], dict[str, str]]] = {}
        """Command and environment of each process of which a second copy is to come, from before
        the first fault: a spare process that has become it shows its own.
        """
        self._were_ready: set[int] = set()
        self._begun: dict[int, int] = {}
        self._moved: set[str] = set()
        """Replicas that were moved to the pool last."""
        self._begin = time.monotonic()
        self.injected: list[Injected] = []
        self.left_out: list[Fault] = []
        self.half_done: list[Injected] = []
        """Faults that were begun and then left out: they may have struck, but do not count
        as done.
        """
        self.broken: list[str] = []
        """Promises that a fault itself showed not to be kept: a hang at SIGTERM, a second
        copy that nobody fences.
        """
        self.error: Exception | None = None

    def run(self) -> None:
        """All faults, then ``heal``."""
        self._begin = time.monotonic()
        begins = deque(sorted(self._faults, key=lambda fault: (fault.at_ms, fault.number)))
        ends: list[tuple[float, int]] = []
        try:
            for target in {fault.target for fault in self._faults if fault.kind is Kind.ZOMBIE}:
                pid = self._await_row(target).pid
                assert pid is not None
                self._first_runs[target] = _command_of(pid), dict(_environment_of(pid))
            while begins or ends:
                is_end = bool(ends) and (not begins or ends[0][0] <= begins[0].at_ms / 1_000)
                due_s = ends[0][0] if is_end else begins[0].at_ms / 1_000
                if self._stop_requested.wait(max(0.0, self._begin + due_s - time.monotonic())):
                    break
                if is_end:
                    self._undo(self._faults[heapq.heappop(ends)[1]])
                    continue
                fault = begins.popleft()
                if self._elapsed_s() > self._until_s:
                    self._leave_out(fault, "the time is over")
                elif self._do(fault) and fault.for_ms:
                    heapq.heappush(ends, (self._elapsed_s() + fault.for_ms / 1_000, fault.number))
        except Exception as error:  # noqa: BLE001 - the main thread raises it again
            self.error = error
        finally:
            with contextlib.suppress(Unavailable):
                self.heal()

    def stop(self) -> None:
        """Do no more; what is broken is healed, and what is not within a while is woken by
        the supervisor's own stop.
        """
        self._stop_requested.set()
        self.join(_STOP_S)

    def heal(self) -> None:
        """Undo whatever may still be broken. Idempotent."""
        drill = self._drill()
        for label in drill.cuts():
            drill.heal(label)
        for label in drill.labels:
            with contextlib.suppress(Unavailable):
                drill.resume(label)

    def await_copies(self) -> None:
        """Wait until the second copies are fenced; end and report those that are not."""
        for number, (target, copy) in self._copies.items():
            if service_of(target) not in _NOT_FENCED and number in self._were_ready:
                with self._noting(
                    f"the second copy of {target} (fault {number}) still runs: nobody fenced it"
                ):
                    _await_end(copy)
                    self.broken += _not_fenced(target, number, copy.exit_code)
            copy.kill()
            for pid in marked(MARK_OF_ONE, str(copy.log)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._copies.clear()

    def _drill(self) -> Drill:
        return Drill(self._state_dir)

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._begin

    def _leave_out(self, fault: Fault, why: str) -> None:
        self._note(f"left out: {why}", fault)
        self._say(f"          left out: {fault.kind} {fault.target}: {why}")
        self.left_out.append(fault)

    def _do(self, fault: Fault) -> bool:
        """Begin it. False: it was left out."""
        begun_ms = _now_ms()
        delay = f" {fault.delay_ms} ms late" if fault.delay_ms else ""
        self._note("begins", fault)
        self._say(
            f"{self._elapsed_s():6.1f} s  {fault.kind} {fault.target}{delay}{_for(fault.for_ms)}"
        )
        try:
            self._begin_fault(fault)
        except (
            Unavailable,
            AssertionError,
        ) as error:  # it is not there: the fault before it was too near
            self.half_done.append(
                Injected(fault.number, fault.kind, fault.target, begun_ms, _now_ms())
            )
            self._leave_out(fault, str(error))
            return False
        self._begun[fault.number] = begun_ms
        if not fault.for_ms:
            self.injected.append(
                Injected(fault.number, fault.kind, fault.target, begun_ms, _now_ms())
            )
        return True

    def _undo(self, fault: Fault) -> None:
        drill = self._drill()
        if fault.kind in {*_CUTS, Kind.SLOW}:
            drill.heal(fault.target)
        elif fault.kind is Kind.RUSH:
            self._rush(fault.target, False)
        elif fault.kind is Kind.ZOMBIE:
            replaced = self._await_copy(fault)
            self._resume(fault.target)
            if not replaced:
                self.half_done.append(
                    Injected(
                        fault.number, fault.kind, fault.target, self._begun[fault.number], _now_ms()
                    )
                )
                self._leave_out(fault, "the second copy was not ready: nobody replaced it")
                return
        else:
            self._resume(fault.target)
        self._note("ends", fault)
        self.injected.append(
            Injected(fault.number, fault.kind, fault.target, self._begun[fault.number], _now_ms())
        )

    def _begin_fault(self, fault: Fault) -> None:
        drill, target = self._drill(), fault.target
        match fault.kind:
            case Kind.KILL | Kind.BROKER_KILL | Kind.REDIS_KILL:
                self._kill(target)
            case Kind.KILL_TWICE:
                self._kill(target)
                self._pause.wait(AGAIN_AFTER_S)
                self._kill(target)
            case Kind.TERMINATE | Kind.BROKER_STOP:
                self._terminate(target)
            case Kind.PAUSE | Kind.BROKER_PAUSE | Kind.REDIS_PAUSE:
                self._when_it_runs(target, Drill.pause)
            case Kind.SLOW:
                drill.cut(target, Cut(delay_ms=fault.delay_ms))
            case Kind.REDIS_EMPTY:
                self._empty_redis()
            case Kind.DISK:
                self._reject_the_last_disk(target)
                self._kill(target)
                self._lose_disk(fault)
            case Kind.ZOMBIE:
                self._replace(fault)
            case Kind.MOVE:
                self._move(fault)
            case Kind.SPLIT:
                self._split()
            case Kind.RUSH:
                self._rush(fault.target, True)
            case _:
                drill.cut(target, _CUTS[fault.kind])

    def _await_row(self, target: str) -> ProcessRow:
        """Wait for the status row of a running process.

        Raises:
            AssertionError: it does not run for a long time.
        """

        def running() -> ProcessRow | None:
            found = state_file.read(self._state_dir)
            rows = found.processes if found is not None else ()
            return next(
                (
                    row
                    for row in rows
                    if f"{row.service}/{row.name}" == target and row.pid is not None
                ),
                None,
            )

        row = wait_until(running, RUNS_AGAIN_S, f"{target} runs", stretch=1)
        assert row is not None
        return row

    def _when_it_runs(self, target: str, act: Callable[[Drill, str], object]) -> None:
        """Act on a process, and retry while it is ending or starting."""

        def done() -> bool:
            self._await_row(target)
            try:
                act(self._drill(), target)
            except Unavailable:
                self._resume(target)  # what was stopped half-way
                return False
            return True

        wait_until(done, RUNS_AGAIN_S, f"{target} runs", every_s=0.2, stretch=1)

    def _kill(self, target: str) -> None:
        self._when_it_runs(target, Drill.kill)

    def _terminate(self, target: str) -> None:
        pid = self._await_row(target).pid
        assert pid is not None
        os.kill(pid, signal.SIGTERM)
        with self._noting(f"{target} did not end within {ENDS_S:g} s of SIGTERM"):
            wait_until(lambda: has_state(pid, _GONE), ENDS_S, "it ended", stretch=1)

    def _move(self, fault: Fault) -> None:
        """Move a replica of a node to the pool, or back if it is there; each in its turn. The
        command does not wait, so the next fault may meet the move.
        """
        own = [label for label in self._replicas_on(fault.target) if not self._is_half(label)]
        label = own[fault.number % len(own)]
        home = fault.target.partition("/")[2]
        target = home if label in self._moved else self._pool()
        self._command("move", label, target, "--wait", "0")
        self._moved ^= {label}

    def _split(self) -> None:
        """Split the first shard that has halves, one of them onto the pool."""
        pipeline = self._pipeline()
        shard = next(name for name in pipeline.order() if pipeline.halves(name))
        self._command("split", shard, "--to", self._pool(), "--wait", "0")

    def _is_half(self, label: str) -> bool:
        return bool(self._pipeline().stages[label.rpartition(".")[0]].parent)

    def _pool(self) -> str:
        """Return the node without replicas of its own."""
        return next(node for node, labels in self._pipeline().nodes().items() if not labels)

    def _pipeline(self) -> Pipeline:
        found = state_file.read(self._state_dir)
        assert found is not None, "the deployment runs"
        return load(found.pipeline)

    def _command(self, *words: str) -> None:
        """Run a command as an operator does.

        Raises:
            Unavailable: it failed, or the broker does not answer.
        """
        command = [sys.executable, "-m", "anabranch.cli", *words]
        named = f"anabranch {' '.join(words)}"
        try:
            done = subprocess.run(
                [*command, "--state-dir", str(self._state_dir)],
                capture_output=True,
                text=True,
                timeout=COMMAND_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise Unavailable(f"{named}: no end after {COMMAND_S:g} s") from error
        if done.returncode:
            raise Unavailable(f"{named}: {done.stderr.strip()}")

    def _resume(self, target: str) -> None:
        with contextlib.suppress(Unavailable):  # it was killed meanwhile, or is just started again
            self._drill().resume(target)

    def _empty_redis(self) -> None:
        found = state_file.read(self._state_dir)
        assert found is not None
        if found.redis is None:
            raise Unavailable("this deployment has no Redis")
        try:
            redis.Redis.from_url(found.redis, socket_timeout=5).flushall()
        except redis.RedisError as error:
            raise Unavailable(f"Redis: {error}") from error

    def _reject_the_last_disk(self, target: str) -> None:
        """One of two may be lost; both at once are outside of what anabranch promises.

        Raises:
            Unavailable: no peer has a checkpoint yet.
        """
        for name in self._replicas_on(target):
            peers = [
                each
                for each in (self._state_dir / "processing").glob(f"{name.rpartition('.')[0]}.*")
                if each.name != name
            ]
            if not any(next(each.glob("*/checkpoints/*/commits/[0-9]*"), None) for each in peers):
                raise Unavailable(
                    f"no peer of {name} has a checkpoint: two lost disks at once are one too many"
                )

    def _replicas_on(self, target: str) -> list[str]:
        """``STAGE.REPLICA`` of what a node runs: each has a folder of that name."""
        return self._pipeline().nodes()[target.partition("/")[2]]

    def _lose_disk(self, fault: Fault) -> None:
        """At once, before the supervisor starts the process again."""
        for name in self._replicas_on(fault.target):
            folder, lost = (
                self._state_dir / "processing" / name,
                self._state_dir / "lost" / f"{fault.number}-{name}",
            )
            lost.parent.mkdir(exist_ok=True)
            if folder.exists():
                folder.rename(lost)
                shutil.rmtree(lost)

    def _replace(self, fault: Fault) -> None:
        """Pause it; start a second one on a machine of its own, that is in a folder of its
        own with an image of the first one's disk.
        """
        self._when_it_runs(fault.target, Drill.pause)  # from here on it does not end by itself
        row = self._await_row(fault.target)
        started, environment = self._first_runs[fault.target]
        command = list(started)
        folder = self._state_dir / "zombies" / str(fault.number)
        own, peers = self._state_dir / "processing", folder / "processing"
        peers.mkdir(parents=True)
        shutil.copy(self._state_dir / state_format.FILE_NAME, folder)
        if service_of(fault.target) == "processing":
            replicas = self._replicas_on(fault.target)
            for each in own.iterdir():
                if each.name in replicas:
                    shutil.copytree(each, peers / each.name)
                else:
                    (peers / each.name).symlink_to(each, target_is_directory=True)
        command[command.index("--state-dir") + 1] = str(folder)
        log = self._state_dir / "logs" / f"{row.service}-{row.name}.copy-{fault.number}.log"
        self._copies[fault.number] = (
            fault.target,
            ChildProcess(command, log, environment={**environment, MARK_OF_ONE: str(log)}),
        )

    def _await_copy(self, fault: Fault) -> bool:
        """Until the second copy is ready, which it once was if this is true; the broker or
        the network may keep it from that.
        """
        target, copy = self._copies[fault.number]
        service, _, name = target.partition("/")
        folder = self._state_dir / "zombies" / str(fault.number)

        def ready() -> str:
            port = probe.metrics_port(folder, service, name, copy.pid)
            if port is not None and probe.ready(port):
                return "ready"
            return "ended" if not copy.alive() or self._stop_requested.is_set() else ""

        try:
            is_ready = (
                wait_until(ready, COPY_READY_S, "the second copy is ready", every_s=0.1, stretch=1)
                == "ready"
            )
        except AssertionError as error:
            self._note(str(error), fault)
            return False
        if is_ready:
            self._were_ready.add(fault.number)
        return is_ready

    def _note(self, what: str, fault: Fault) -> None:
        entry = {
            "at_ms": _now_ms(),
            "what": what,
            "number": fault.number,
            "kind": fault.kind,
            "target": fault.target,
        }
        with self._journal.open("a", encoding="utf-8") as file:
            file.write(
                json.dumps(entry | {"for_ms": fault.for_ms, "delay_ms": fault.delay_ms}) + "\n"
            )

    @contextlib.contextmanager
    def _noting(self, text: str) -> Iterator[None]:
        try:
            yield
        except AssertionError:
            self.broken.append(text)


def _not_fenced(target: str, number: int, exit_code: int | None) -> list[str]:
    """Return what is wrong with the end of a second copy that had been ready."""
    if exit_code == ExitCode.FENCED:
        return []
    return [
        f"the second copy of {target} (fault {number}) was not fenced: it ended with {exit_code}"
    ]


def _await_end(copy: ChildProcess) -> None:
    """Wait for the copy's end. Raises AssertionError if it does not end."""
    wait_until(
        lambda: not copy.alive(), COPY_GONE_S, "the second copy ended", every_s=0.2, stretch=1
    )


def _command_of(pid: int) -> list[str]:
    return [word.decode() for word in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]]


def _environment_of(pid: int) -> Iterator[tuple[str, str]]:
    for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
        name, is_set, value = entry.decode(errors="surrogateescape").partition("=")
        if is_set:
            yield name, value


def _for(for_ms: int) -> str:
    return f", for {for_ms / 1_000:g} s" if for_ms else ""


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
