"""Child process that logs to a file and dies with its parent."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from anabranch.adapters.system.clock import SystemClock

_PR_SET_PDEATHSIG: Final = 1
_KILL_WAIT_S: Final = 5.0
_TAIL_BYTES: Final = 4_000
_GROUP_TRIES: Final = 3
_GROUP_AGAIN_MS: Final = 110
"""Interval between attempts to set a group's niceness, in ms: Linux allows a user ten a second."""

# The kernel sends the parent-death signal when the *thread* that forked ends. So one thread, which
# lives as long as this process, starts all children.
_starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="start-children")


def _die_with_parent() -> Callable[[], None] | None:
    """Return a function for the child to run between fork and exec, that makes it die with its
    parent; None where the system cannot. Prepared before the fork, since little is safe after it.
    """
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def request_death_signal() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)  # the parent died before the call above

    return request_death_signal


class ChildProcess:
    """One run of a program in a session of its own, so that Ctrl-C at a terminal reaches only the
    parent. Not thread-safe.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        has_input: bool = False,
    ) -> None:
        """Start the program and append its output and errors to ``log``. ``has_input``: it reads
        what ``hand_over`` writes; otherwise its input is empty.

        Raises:
            OSError: the program cannot be started.
        """
        self.log = log
        with log.open("ab") as output:
            self._log_start = output.tell()

            def start() -> subprocess.Popen[bytes]:
                return subprocess.Popen(
                    list(arguments),
                    stdin=subprocess.PIPE if has_input else subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=None if environment is None else dict(environment),
                    cwd=folder,
                    start_new_session=True,
                    preexec_fn=_die_with_parent(),  # noqa: PLW1509 - only one system call, prepared before the fork
                )

            self._process = _starter.submit(start).result()

    def hand_over(self, line: bytes, log: Path) -> None:
        """Write ``line`` to the program's input and close it. The program appends its output to
        ``log`` from then on.

        Raises:
            OSError: the program has ended, or has no input.
        """
        if self._process.stdin is None:
            raise BrokenPipeError(f"process {self.pid} has no input")
        with log.open("ab") as output:
            start = output.tell()
        with self._process.stdin as pipe:
            pipe.write(line)
        self.log, self._log_start = log, start

    @property
    def pid(self) -> int:
        """Process id, which is also that of its session and process group."""
        return self._process.pid

    def yield_cores(self, niceness: int) -> None:
        """Lower the priority of the process, and of all processes below it, present and future, by
        ``niceness``.

        Where Linux groups processes by session (autogroup), it shares cores among the groups, and
        each child has a session of its own. There only the group's niceness counts, so both are
        set.
        """
        own = os.getpriority(os.PRIO_PROCESS, 0)  # what the child inherited
        for group_id in {self.pid, *_groups_of_session(self.pid)}:
            with contextlib.suppress(ProcessLookupError):  # the group has ended
                os.setpriority(os.PRIO_PGRP, group_id, own + niceness)
        group = Path(f"/proc/{self.pid}/autogroup")
        for _ in range(_GROUP_TRIES):
            try:
                group.write_text(str(niceness), encoding="ascii")
            except BlockingIOError:
                SystemClock().sleep_ms(_GROUP_AGAIN_MS)
            except OSError:  # the system has no such groups, or the process has ended
                break
            else:
                break

    def alive(self) -> bool:
        """Return whether the process still runs; a paused one does."""
        return self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Exit code; negative: the signal that ended the process; None while it runs."""
        return self._process.poll()

    def stop(self, timeout_s: float) -> None:
        """Send SIGTERM, wait up to ``timeout_s``, then kill the whole process group. Idempotent."""
        if self.alive():
            self._process.terminate()
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.kill()
        self._process.wait(_KILL_WAIT_S)

    def kill(self) -> None:
        """Kill the process and its group at once, as a crash would."""
        if self.alive():
            os.killpg(self.pid, signal.SIGKILL)
            self._process.wait(_KILL_WAIT_S)

    def log_tail(self, bytes_max: int = _TAIL_BYTES) -> str:
        """Return the end of this run's log; empty if the file was moved or removed."""
        try:
            with self.log.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                # A log that was too large was emptied since.
                start = self._log_start if self._log_start <= size else 0
                file.seek(max(start, size - bytes_max))
                return file.read().decode(errors="replace")
        except OSError:
            return ""


def _groups_of_session(session_id: int) -> set[int]:
    """Return the process groups of a session. There can be several: PySpark's worker daemon has its
    own.
    """
    groups = set[int]()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if os.getsid(int(entry.name)) == session_id:
                    groups.add(os.getpgid(int(entry.name)))
    return groups
