"""Service processes of a local deployment: start, marks, and stop, with everything below them.

Every process has a session and group of its own (so that Ctrl-C at a terminal reaches only the
supervisor), dies with the supervisor, and carries two marks in its environment: the deployment's
and its own. Below a node run a JVM and Python workers. Some have groups of their own, as PySpark's
daemon, and some are orphaned when the node dies; all inherit the marks, by which they are found.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from anabranch.adapters.system.clock import SystemClock
from anabranch.local import waiting_process
from anabranch.local.child_process import ChildProcess

MARK: Final = "ANABRANCH_SUPERVISED_BY"
"""Environment variable that marks all processes of a deployment; its value is the state
directory.
"""

MARK_OF_ONE: Final = "ANABRANCH_SUPERVISED_AS"
"""Environment variable that marks one service process and all below it; its value is the path of
the process' log, which is unique.
"""

STOPPED: Final = "Tt"
"""States of a process that SIGSTOP or a debugger has stopped, for ``has_state``."""

LOG_BYTES_MAX: Final = 16 * 1024 * 1024
"""Size above which the content of a log is moved aside, in bytes. One old file is kept."""

_REASON_BYTES: Final = 256 * 1024
"""Size of the end of a log that is searched for the reason of an exit, in bytes. Large, since the
line with the reason also holds the tracebacks of Python and Spark.
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
"""Environment variables that set one service. The supervisor does not pass its own on: they would
apply to every service.
"""


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """Command, environment and priority of one service process."""

    service: str
    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables added to the supervisor's own."""
    niceness: int = 0
    starts_first: bool = False
    """Whether ``niceness`` applies only from when the process is ready. After a restart it applies
    at once: the other services have work then.
    """
    takes_spare: bool = False
    """Whether a ``SpareProcess`` takes its place when it ends. Its command is then
    ``python -m anabranch.SERVICE`` with arguments.
    """

    @property
    def label(self) -> str:
        """Name of the process in messages and commands, ``service/name``."""
        return f"{self.service}/{self.name}"


class SpareProcess:
    """Process that is started ahead and becomes whichever service dies first
    (``local.waiting_process``). Its output goes to ``<state_dir>/logs/spare.log`` until then.
    """

    def __init__(self, state_dir: Path) -> None:
        """Start the process.

        Raises:
            OSError: the program cannot be started.
        """
        log = spare_log(state_dir.resolve())
        log.parent.mkdir(parents=True, exist_ok=True)
        bound_log(log)
        environment = {
            **_inherited(),
            MARK: mark_of(state_dir),
            MARK_OF_ONE: str(log),
            "PYTHONSAFEPATH": "1",
        }
        command = [sys.executable, "-m", waiting_process.__name__]
        self.child = ChildProcess(command, log, environment=environment, has_input=True)

    def alive(self) -> bool:
        """Return whether the process still waits."""
        return self.child.alive()

    def kill(self) -> None:
        """Kill the process. Idempotent."""
        self.child.kill()


class ManagedProcess:
    """One run of a ``ProcessSpec``. Its output goes to
    ``<state_dir>/logs/<service>-<name>.log``.
    """

    def __init__(
        self,
        spec: ProcessSpec,
        state_dir: Path,
        restarts: int = 0,
        spare: SpareProcess | None = None,
    ) -> None:
        """Start the process. ``restarts`` is the number of runs before this one; ``spare`` becomes
        the process, unless it has ended.

        Raises:
            OSError: the program cannot be started.
        """
        self.spec = spec
        self.log_path = log_path(state_dir.resolve(), spec.service, spec.name)
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        bound_log(self.log_path)
        own = {
            **spec.environment,
            MARK: mark_of(state_dir),
            MARK_OF_ONE: str(self.log_path),
            "ANABRANCH_RESTARTS": str(restarts),
            # Otherwise modules in the folder where `up` was run would hide those of the standard
            # library, in Spark's workers too.
            "PYTHONSAFEPATH": "1",
        }
        adopted = None if spare is None else self._adopt(spare, own)
        self._child = adopted or ChildProcess(
            spec.command, self.log_path, environment={**_inherited(), **own}
        )
        if spec.niceness and (restarts or not spec.starts_first):
            self.yield_cores()

    def _adopt(self, spare: SpareProcess, environment: dict[str, str]) -> ChildProcess | None:
        """Let ``spare`` become this process; None if it has ended meanwhile."""
        arguments = tuple(self.spec.command[3:])
        role = waiting_process.Role(self.spec.service, arguments, environment, str(self.log_path))
        try:
            spare.child.hand_over(role.line(), self.log_path)
        except OSError:
            return None
        return spare.child

    def yield_cores(self) -> None:
        """Apply the niceness of the spec to the process and all below it."""
        self._child.yield_cores(self.spec.niceness)

    @property
    def pid(self) -> int:
        """Process id, which is also that of its group and session."""
        return self._child.pid

    def exit_code(self) -> int | None:
        """Return the exit code; negative: the signal that ended it; None while it runs."""
        return self._child.exit_code

    def terminate(self) -> None:
        """Send SIGTERM. Also resumes the process and all below it: a paused one could not end."""
        if self.exit_code() is None:
            os.kill(self.pid, signal.SIGTERM)
            for pid in {self.pid, *marked(MARK_OF_ONE, str(self.log_path))}:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGCONT)

    def kill(self) -> None:
        """Kill the process and all below it. Works also after it has ended: its group or children
        may have outlived it.
        """
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._child.stop(_KILL_WAIT_S)
        _kill_marked(MARK_OF_ONE, str(self.log_path))

    def last_error(self) -> str:
        """Return why the process ended, by its log: the ``error`` of the last JSON line that has
        one, else the last line.
        """
        return reason_in(self._child.log_tail(_REASON_BYTES).splitlines())


def _inherited() -> dict[str, str]:
    """Return the variables that a service takes over from the supervisor."""
    return {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}


def reason_in(lines: Sequence[str]) -> str:
    """Return the reason of an exit that the last ``lines`` of a log give, or an empty text."""
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
    """Return the path of a process' log. The supervisor in the background has an empty name."""
    return state_dir / "logs" / f"{'-'.join(filter(None, (service, name)))}.log"


def spare_log(state_dir: Path) -> Path:
    """Return the path of the spare process' log."""
    return log_path(state_dir, "spare", "")


def bound_log(path: Path) -> None:
    """Move the log ``path`` aside if it is larger than LOG_BYTES_MAX. No process may write to
    it.
    """
    if path.exists() and path.stat().st_size > LOG_BYTES_MAX:
        path.replace(_old(path))


def logs_in(state_dir: Path) -> list[Path]:
    """Return the paths of all logs of processes of the deployment in ``state_dir``."""
    return list((state_dir / "logs").glob("*.log"))


def bound_logs(paths: Iterable[Path]) -> None:
    """Move the content of each log of ``paths`` that is larger than LOG_BYTES_MAX aside, while
    processes append to it. A line that is written at this moment is lost. A log that cannot be
    moved, as on a full disk, stays as it is.
    """
    for path in paths:
        with contextlib.suppress(OSError):
            if path.stat().st_size > LOG_BYTES_MAX:
                # Not by its name: the processes would continue to write to the old file.
                shutil.copyfile(path, _old(path))
                os.truncate(path, 0)


def _old(path: Path) -> Path:
    """Return the file that takes the content of log ``path`` when that is too large."""
    return path.with_suffix(".log.1")


def mark_of(state_dir: Path) -> str:
    """Return the value of ``MARK`` for the deployment in ``state_dir``."""
    return str(state_dir.resolve())


def marked(variable: str, value: str) -> list[int]:
    """Return the ids of this user's other processes whose environment has ``variable=value``.
    Zombies have no environment, and are not found.
    """
    wanted = f"{variable}={value}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                environment = (entry / "environ").read_bytes()
            except OSError:  # another user's process, or it ended meanwhile
                continue
            if wanted in environment.split(b"\0"):
                found.append(int(entry.name))
    return found


def has_state(pid: int, states: str) -> bool:
    """Return whether a process is in one of ``states``, letters of /proc/PID/stat: T stopped, Z
    zombie ... A process that does not exist is in X.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return "X" in states
    return text.rpartition(")")[2].split()[0] in states


def sweep(state_dir: Path) -> list[int]:
    """Kill all processes left of the deployment in ``state_dir`` and return their ids. For use
    after a stop, and before a start, as the last supervisor may have been killed.
    """
    return _kill_marked(MARK, mark_of(state_dir))


def _kill_marked(variable: str, value: str) -> list[int]:
    """Kill all processes with the mark, wait until they are gone, and return their ids. Repeats, as
    one may start another meanwhile.
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
