"""Driver of ``anabranch up``, through its command line only, as a person would use it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ruamel.yaml import YAML

from anabranch.adapters.system.progress import Progress, unwatched
from demo.process_tree import Process, descendants, is_running

SERVER_SERVICES = ("kafka", "redis", "proxy")
STOP_S = 20
_READY_AGAIN_S = 300.0
"""Timeout for the second start of a deployment, in seconds."""
_COMMAND_S = 120.0
"""Timeout of an ``anabranch`` command, in seconds, enough for a busy machine."""
_RUNNING = " is running (pid "
"""Text that ``up`` prints behind the title of a running process."""
RESTART_S = 30
"""Time within which a process that is restarting runs again, in seconds."""


class DeploymentError(Exception):
    """Raised when the deployment fails; the text says what happened and where its log is."""


@dataclass(frozen=True, slots=True)
class Row:
    """Line of ``anabranch status --json``."""

    service: str
    name: str
    pid: int | None
    state: str
    address: str | None

    @property
    def title(self) -> str:
        """SERVICE/NAME, as in the demo's options."""
        return f"{self.service}/{self.name}"


def copy_pipeline(pipeline: Path, folder: Path, replicas: int | None) -> Path:
    """Copy a pipeline file and its folder, and set the replicas of its first stage to ``replicas``.
    Return the path of the copy.
    """
    shutil.copytree(
        pipeline.parent,
        folder,
        ignore=shutil.ignore_patterns("__pycache__", ".anabranch"),
        dirs_exist_ok=True,
    )
    copied = folder / pipeline.name
    if replicas is not None:
        yaml = YAML()
        document = yaml.load(copied)
        stage = next(iter(document["stages"].values()))
        stage["replicas"] = replicas
        yaml.dump(document, copied)
    return copied


class Deployment:
    """Running ``anabranch up`` in a process group of its own."""

    def __init__(
        self,
        pipeline: Path,
        state_dir: Path,
        log: Path,
        *,
        drills: bool = False,
        only: Sequence[str] = (),
    ) -> None:
        """Start it. ``drills``: so that services can be cut off from Kafka. ``only``: these
        services, besides broker and Redis.
        """
        self._state_dir = state_dir
        self._log = log
        self._services: frozenset[str] = frozenset()
        """Titles of the services whose start is counted; empty while they are not known."""
        self._output: IO[bytes] = log.open("wb")
        self._process = subprocess.Popen(
            [
                *_anabranch(),
                "up",
                "--file",
                str(pipeline),
                "--state-dir",
                str(state_dir),
                *(["--drills"] if drills else []),
                *(word for name in only for word in ("--only", name)),
            ],
            stdout=self._output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the demo, which then stops this in order
            env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1"},
        )

    @property
    def pid(self) -> int:
        """Id of the supervisor's process."""
        return self._process.pid

    def wait_ready(
        self,
        deadline_s: float,
        on_line: Callable[[str], None] = lambda _: None,
        progress: Progress = unwatched,
    ) -> None:
        """Wait until ``up`` has printed its ready line. ``on_line`` is called with its last line,
        ``progress`` with the number of ready processes.

        Raises:
            DeploymentError: it ended, or is not ready in time.
        """
        end = time.monotonic() + deadline_s
        while not self._is_ready():
            if self._process.poll() is not None:
                raise DeploymentError(
                    "anabranch up ended with exit code"
                    f" {self._process.returncode}:\n{self.log_tail()}"
                )
            if time.monotonic() > end:
                raise DeploymentError(f"not ready within {deadline_s:g} s:\n{self.log_tail()}")
            if lines := self._log.read_text(errors="replace").split("\n")[:-1]:
                on_line(lines[-1])
                if progress is not unwatched:
                    self._count_ready(lines, progress)
            time.sleep(0.2)

    def _count_ready(self, lines: Sequence[str], progress: Progress) -> None:
        """Report how many processes are ready, from the lines of ``up``; ``status`` tells how many
        there are.
        """
        ready = {line.partition(_RUNNING)[0] for line in lines if _RUNNING in line}
        if ready and not self._services:
            with suppress(DeploymentError):  # the first process is ready before ``status`` knows it
                self._services = frozenset(
                    row.title for row in self.status() if row.service not in SERVER_SERVICES
                )
        if self._services:
            progress("processes ready", len(ready & self._services), len(self._services))

    def status(self) -> list[Row]:
        """Return all processes, broker and Redis included.

        Raises:
            DeploymentError: ``anabranch status`` failed.
        """
        command = [*_anabranch(), "status", "--state-dir", str(self._state_dir), "--json"]
        done = subprocess.run(
            command, capture_output=True, timeout=_COMMAND_S, check=False, text=True
        )
        if done.returncode != 0:
            raise DeploymentError(
                f"anabranch status: exit code {done.returncode}: {done.stderr.strip()}"
            )
        rows: list[dict[str, Any]] = json.loads(done.stdout)
        return [
            Row(row["service"], row["name"], row.get("pid"), row["state"], row.get("address"))
            for row in rows
        ]

    def status_text(self) -> str:
        """Return what ``anabranch status`` shows to people."""
        command = [*_anabranch(), "status", "--state-dir", str(self._state_dir)]
        done = subprocess.run(
            command, capture_output=True, timeout=_COMMAND_S, check=False, text=True
        )
        return done.stdout + done.stderr

    def kafka(self) -> str:
        """Return the address of the broker.

        Raises:
            DeploymentError: status shows none.
        """
        address = next((row.address for row in self.status() if row.service == "kafka"), None)
        if address is None:
            raise DeploymentError("anabranch status shows no address of the broker")
        return address

    def kill(self, title: str) -> int:
        """Send SIGKILL to the process SERVICE/NAME. Return its id.

        Raises:
            DeploymentError: there is no such process, or it does not run.
        """
        end = time.monotonic() + RESTART_S
        while time.monotonic() < end:
            for row in self.status():
                if row.title == title and row.pid is not None:
                    try:
                        os.kill(row.pid, signal.SIGKILL)
                    except ProcessLookupError:  # it ended since, and is restarted
                        break
                    return row.pid
            time.sleep(0.5)
        raise DeploymentError(f"cannot kill {title}: status shows no such process")

    def drill(self, *arguments: str) -> None:
        """Run ``anabranch drill``, such as ``cut`` or ``heal``, and wait until it is done.

        Raises:
            DeploymentError: the command failed.
        """
        command = [*_anabranch(), "drill", *arguments, "--state-dir", str(self._state_dir)]
        done = subprocess.run(
            command, capture_output=True, timeout=_COMMAND_S, check=False, text=True
        )
        if done.returncode != 0:
            raise DeploymentError(
                f"anabranch drill {' '.join(arguments)}: exit code {done.returncode}:"
                f" {done.stderr.strip()}"
            )

    def check_running(self) -> None:
        """Raise DeploymentError if the supervisor has ended."""
        if self._process.poll() is not None:
            raise DeploymentError(
                f"anabranch up ended with exit code {self._process.returncode}:\n{self.log_tail()}"
            )

    def stop(self, seen: set[Process], progress: Progress = unwatched) -> list[int]:
        """Stop as Ctrl-C does. Return the ids of processes that remained, of those that run now and
        of ``seen``; they are killed. ``progress`` is called with the number of ended processes.
        """
        running = descendants(self._process.pid)
        processes = seen | running
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            deadline_s = time.monotonic() + STOP_S
            while self._process.poll() is None and time.monotonic() < deadline_s:
                ended = sum(not is_running(process) for process in running)
                progress("processes stopped", ended, len(running))
                time.sleep(0.1)
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
        self._output.close()
        end = time.monotonic() + 2
        while any(is_running(process) for process in processes) and time.monotonic() < end:
            time.sleep(0.1)
        left = [process.pid for process in sorted(processes) if is_running(process)]
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        return left

    def log_tail(self, lines: int = 25) -> str:
        """Return the last lines that ``up`` printed."""
        text = self._log.read_text(errors="replace").splitlines()[-lines:]
        return "\n".join(
            [*text, f"(all of it: {self._log}; each process's own log: {self._state_dir})"]
        )

    def _is_ready(self) -> bool:
        """Return whether ``up`` has printed its ready line."""
        return any(
            line.lower().lstrip().startswith("ready")
            for line in self._log.read_text(errors="replace").splitlines()
        )


@contextmanager
def stopped(pipeline: Path, state_dir: Path, log: Path) -> Iterator[str]:
    """Start the broker of a stopped deployment and yield its address, while no writer of an output
    runs.

    Raises:
        DeploymentError: the broker does not start again.
    """
    # The consistency manager writes no output.
    deployment = Deployment(pipeline, state_dir, log, only=["consistency_manager"])
    try:
        deployment.wait_ready(_READY_AGAIN_S)
        yield deployment.kafka()
    finally:
        deployment.stop(set())


def _anabranch() -> list[str]:
    """Return the command that runs ``anabranch``."""
    beside = Path(sys.executable).with_name("anabranch")
    return [str(beside)] if beside.is_file() else [sys.executable, "-m", "anabranch.cli"]
