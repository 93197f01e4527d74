"""The state directory of a local deployment: its lock, and ``supervisor.json``, which says what
runs.

Invariants:
    SF1 Who holds the lock is the one supervisor of the directory; only it writes
        ``supervisor.json``. The lock goes with its process.
    SF2 ``supervisor.json`` is replaced as a whole, readable by its owner only, and holds no
        password.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Final

from anabranch.adapters.system.clock import SystemClock
from anabranch.protocol.errors import ConfigurationError

DIRECTORY_NAME: Final = ".anabranch"
_FILE: Final = "supervisor.json"
_LOCK: Final = "supervisor.lock"
_LOCK_TRIES: Final = 50
_LOCK_AGAIN_MS: Final = 20
"""Interval between attempts to take the lock, in ms: ``holder`` has it for a moment, and whoever
looks must not keep a supervisor from starting.
"""


@dataclass(frozen=True, slots=True)
class ProcessRow:
    """One process as the supervisor knows it. ``state``: starting, running, restarting,
    failed, stopped.
    """

    service: str
    name: str
    pid: int | None = None
    metrics_port: int | None = None
    restarts: int = 0
    state: str = "starting"
    error: str | None = None
    address: str | None = None


@dataclass(frozen=True, slots=True)
class Deployment:
    """What ``supervisor.json`` says.

    ``ready``: every service was ready at least once since ``up``. ``drills``: there is a proxy
        whose links can be cut.
    """

    pid: int
    pipeline: str
    kafka: str
    redis: str | None
    ready: bool = False
    processes: tuple[ProcessRow, ...] = field(default=())
    drills: bool = False


def default_directory(pipeline_file: Path) -> Path:
    """Where the state of a pipeline is kept by default: next to its file."""
    return pipeline_file.resolve().parent / DIRECTORY_NAME


def directory_of(state_dir: Path | None, pipeline_file: Path | None) -> Path:
    """The state directory that a command means: the one given, else that of the pipeline
    file, else that of the current folder.
    """
    if state_dir is not None:
        return state_dir
    return default_directory(pipeline_file) if pipeline_file is not None else Path(DIRECTORY_NAME)


def nothing_runs(directory: Path) -> str:
    """The message where a command meant a deployment of this directory, and there is none."""
    return (
        f"nothing runs in {directory.absolute()}: name the deployment with -f FILE or --state-dir"
        " DIR, or start it with `anabranch up`"
    )


def write(directory: Path, deployment: Deployment) -> None:
    """Replace ``supervisor.json``."""
    path = directory / _FILE
    draft = directory / f"{_FILE}.new"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(asdict(deployment), file, indent=1)
    draft.replace(path)


def read(directory: Path) -> Deployment | None:
    """What the last supervisor of ``directory`` wrote; None: nothing, or not readable as such
    (an older version's).
    """
    try:
        content = json.loads((directory / _FILE).read_text(encoding="utf-8"))
        rows = tuple(ProcessRow(**row) for row in content.pop("processes"))
        return Deployment(processes=rows, **content)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


class Lock:
    """The lock of a state directory."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / _LOCK
        self._file: IO[str] | None = None

    def acquire(self) -> None:
        """Take it.

        Raises:
            ConfigurationError: another supervisor has it; names its process.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = self._path.open("a+", encoding="utf-8")
        if not _locked(file):
            file.seek(0)
            holder = file.read().strip() or "unknown"
            file.close()
            message = (
                f"{self._path.parent}: already in use by `anabranch up` (process {holder}); stop it"
                f" with `anabranch down --state-dir {self._path.parent}`, or give another"
                " --state-dir"
            )
            raise ConfigurationError(message)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        self._file = file

    def release(self) -> None:
        """Give it back. Idempotent."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def holder(self) -> int | None:
        """Process id of the supervisor that has the lock now; None: nobody."""
        try:
            file = self._path.open("r+", encoding="utf-8")
        except FileNotFoundError:
            return None
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                text = file.read().strip()
                return int(text) if text.isdecimal() else None
        return None


def _locked(file: IO[str]) -> bool:
    """Lock ``file`` for this process alone; False: another supervisor has it, since nobody else
    keeps it for so long.
    """
    clock = SystemClock()
    for attempt in range(_LOCK_TRIES):
        if attempt:
            clock.sleep_ms(_LOCK_AGAIN_MS)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    return False
