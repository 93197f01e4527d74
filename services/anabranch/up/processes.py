"""Processes of a local deployment: how one is started, watched and ended, with everything below it.

Every process gets a session and group of its own (a terminal's Ctrl-C reaches the supervisor only),
dies with the supervisor, and carries two marks in its environment: the deployment's and its own. A
node has a JVM and Python workers below it, some in groups of their own (PySpark's daemon makes one)
and some without a parent once it is dead; they all inherit the marks, which find whatever is left.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from anabranch.adapters.system.clock import SystemClock
from anabranch.up.child_process import ChildProcess

MARK: Final = "ANABRANCH_SUPERVISED_BY"
"""Environment variable of every process of a deployment; its value is the state directory."""

MARK_OF_ONE: Final = "ANABRANCH_SUPERVISED_AS"
"""Environment variable of one process and all below it; its value is its log file, which no
other has.
"""

STOPPED: Final = "Tt"
"""States of a process that SIGSTOP or a debugger stopped, as ``has_state`` takes them."""

LOG_BYTES_MAX: Final = 16 * 1024 * 1024
"""A log file larger than this is moved aside (one older file is kept) when its process starts."""

_REASON_BYTES: Final = 256 * 1024
"""Of the end of a log, in which a reason is looked for: the line that gives it holds the
tracebacks of Python and Spark, too.
"""

_KILL_WAIT_S: Final = 5.0
_KILL_PAUSE_MS: Final = 10

_NOT_INHERITED: Final = frozenset(
    f"ANABRANCH_{name}"
    for name in (
        "PIPELINE",
        "NAME",
        "KAFKA",
        "REDIS",
        "STATE_DIR",
        "OFFERS",
        "METRICS_HOST",
        "METRICS_PORT",
        "CHECK_CONFIG",
        "RESTARTS",
    )
)
"""Settings of one service: those of whoever started the supervisor must not become those of
every process.
"""


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """What to run. ``environment`` is added to the supervisor's own."""

    service: str
    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    niceness: int = 0
    starts_first: bool = False
    """Whether it yields the cores only when it is ready. Started again it yields them at once: then
    others have work.
    """

    @property
    def label(self) -> str:
        """``service/name``, as people write it."""
        return f"{self.service}/{self.name}"


class ManagedProcess:
    """One run of a ``ProcessSpec``. Its output goes to
    ``<state_dir>/logs/<service>-<name>.log``.
    """

    def __init__(self, spec: ProcessSpec, state_dir: Path, restarts: int = 0) -> None:
        """Start it.

        Raises:
            OSError: the program cannot be started.
        """
        self.spec = spec
        self.log_path = log_path(state_dir.resolve(), spec.service, spec.name)
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        bound_log(self.log_path)
        inherited = {
            name: value for name, value in os.environ.items() if name not in _NOT_INHERITED
        }
        environment = {
            **inherited,
            **spec.environment,
            MARK: mark_of(state_dir),
            MARK_OF_ONE: str(self.log_path),
        }
        environment["ANABRANCH_RESTARTS"] = str(restarts)
        environment["PYTHONSAFEPATH"] = (
            # else the folder in which `up` was run would come before the standard library, in
            # Spark's workers too
            "1"
        )
        self._child = ChildProcess(spec.command, self.log_path, environment=environment)
        if spec.niceness and (restarts or not spec.starts_first):
            self.yield_cores()

    def yield_cores(self) -> None:
        """Let those of less niceness come first on busy cores, from now on."""
        self._child.yield_cores(self.spec.niceness)

    @property
    def pid(self) -> int:
        """Its process id, which is its group's and session's too."""
        return self._child.pid

    def exit_code(self) -> int | None:
        """None while it runs; negative: the signal that ended it."""
        return self._child.exit_code

    def terminate(self) -> None:
        """Ask it to end. What is paused of it and below it is woken, else it could not."""
        if self.exit_code() is None:
            os.kill(self.pid, signal.SIGTERM)
            for pid in {self.pid, *marked(MARK_OF_ONE, str(self.log_path))}:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGCONT)

    def kill(self) -> None:
        """End it and everything below it, now. Also after it has ended: its group may have
        outlived it.
        """
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._child.stop(_KILL_WAIT_S)
        _kill_marked(MARK_OF_ONE, str(self.log_path))

    def last_error(self) -> str:
        """Why it ended, from the end of its log: the ``error`` of its last JSON line that has
        one, else the last line.
        """
        return reason_in(self._child.log_tail(_REASON_BYTES).splitlines())


def reason_in(lines: Sequence[str]) -> str:
    """The reason that the last lines of a log give; empty if there is none."""
    last = ""
    for line in reversed(lines):
        try:
            entry = json.loads(line)
        except ValueError:
            last = last or line.strip()
            continue
        if isinstance(entry, dict) and entry.get("error"):
            return str(entry["error"])
    return last


def log_path(state_dir: Path, service: str, name: str) -> Path:
    """Where the output of a process goes; that of the supervisor in the background has no name."""
    return state_dir / "logs" / f"{'-'.join(filter(None, (service, name)))}.log"


def bound_log(path: Path) -> None:
    """Move a log aside that has grown too large."""
    if path.exists() and path.stat().st_size > LOG_BYTES_MAX:
        path.replace(path.with_suffix(".log.1"))


def mark_of(state_dir: Path) -> str:
    """Value of ``MARK`` for the processes of a state directory."""
    return str(state_dir.resolve())


def marked(variable: str, value: str) -> list[int]:
    """Ids of the processes of this user whose environment has ``variable=value``, this one
    left out; zombies have none.
    """
    wanted = f"{variable}={value}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                environment = (entry / "environ").read_bytes()
            except OSError:  # another user's, or it ended meanwhile
                continue
            if wanted in environment.split(b"\0"):
                found.append(int(entry.name))
    return found


def has_state(pid: int, states: str) -> bool:
    """Whether a process is in one of ``states``, letters of /proc/PID/stat: T stopped, Z
    zombie ...; one that is gone is in X.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return "X" in states
    return text.rpartition(")")[2].split()[0] in states


def sweep(state_dir: Path) -> list[int]:
    """Kill whatever of a deployment is still there; their process ids. For after a stop, and
    before a start after a crash.
    """
    return _kill_marked(MARK, mark_of(state_dir))


def _kill_marked(variable: str, value: str) -> list[int]:
    """Kill all that carry the mark and wait until they are gone; again if one of them started
    another meanwhile. Their process ids.
    """
    clock = SystemClock()
    deadline_ms = clock.monotonic_ms() + int(_KILL_WAIT_S * 1_000)
    killed: list[int] = []
    while (left := marked(variable, value)) and clock.monotonic_ms() < deadline_ms:
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed += [pid for pid in left if pid not in killed]
        clock.sleep_ms(_KILL_PAUSE_MS)
    return killed
