"""State directory of a local deployment: its lock, and ``supervisor.json``, the list of what runs.

Invariants:
    SF1 The process that holds the lock is the directory's only supervisor, and alone writes
        ``supervisor.json``. The lock ends with the process.
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
"""Interval between attempts to take the lock, in ms. ``holder`` takes it for a moment, and a
command that only asks must not keep a supervisor from starting.
"""


@dataclass(frozen=True, slots=True)
class ProcessRow:
    """One process as the supervisor knows it."""

    service: str
    name: str
    pid: int | None = None
    metrics_port: int | None = None
    restarts: int = 0
    state: str = "starting"
    """One of starting, running, restarting, failed, stopped."""
    error: str | None = None
    """Reason why the process last ended, or is not ready; None if there is none."""
    address: str | None = None
    """Address of a server, for clients; None for a service."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """Content of ``supervisor.json``."""

    pid: int
    pipeline: str
    kafka: str
    redis: str | None
    ready: bool = False
    """Whether all services have been ready at the same time since ``up``."""
    processes: tuple[ProcessRow, ...] = field(default=())
    drills: bool = False
    """Whether there is a proxy whose links can be cut."""


def default_directory(pipeline_file: Path) -> Path:
    """Return the default state directory of a pipeline: beside its file."""
    return pipeline_file.resolve().parent / DIRECTORY_NAME


def directory_of(state_dir: Path | None, pipeline_file: Path | None) -> Path:
    """Return the state directory that a command's options mean: ``state_dir`` if given, else that
    of ``pipeline_file``, else that of the current folder.
    """
    if state_dir is not None:
        return state_dir
    return default_directory(pipeline_file) if pipeline_file is not None else Path(DIRECTORY_NAME)


def nothing_runs(directory: Path, pipeline_file: Path | None = None) -> str:
    """Return the message for a command on a deployment that does not run in ``directory``, that of
    ``pipeline_file`` if one was given.
    """
    if pipeline_file is not None and not pipeline_file.exists():
        return f"nothing runs in {directory.absolute()}, and there is no file {pipeline_file}"
    return (
        f"nothing runs in {directory.absolute()}: name the deployment with -f FILE or --state-dir"
        " DIR, or start it with `anabranch up`"
    )


def write(directory: Path, deployment: Deployment) -> None:
    """Replace ``supervisor.json`` by ``deployment``."""
    path = directory / _FILE
    draft = directory / f"{_FILE}.new"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(asdict(deployment), file, indent=1)
    draft.replace(path)


def read(directory: Path) -> Deployment | None:
    """Return what the last supervisor of ``directory`` wrote; None if there is nothing, or an older
    version's file.
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
    """Lock of a state directory; a process that holds it is the supervisor."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / _LOCK
        self._file: IO[str] | None = None

    def acquire(self) -> None:
        """Take the lock, and write this process' id into its file.

        Raises:
            ConfigurationError: another supervisor holds it; the text names its process.
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
        """Release the lock. Idempotent."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def holder(self) -> int | None:
        """Return the process id of the supervisor that holds the lock; None if none does."""
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
    """Try for _LOCK_TRIES times to lock ``file`` for this process. False means that another
    supervisor holds it: commands that only ask hold it for a moment.
    """
    clock = SystemClock()
    for attempt in range(_LOCK_TRIES):
        if attempt:
            clock.sleep_ms(_LOCK_AGAIN_MS)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    return False
