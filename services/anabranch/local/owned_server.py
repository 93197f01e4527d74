"""Server program of the local deployment: state folder, port, process, stop.

The embedded Kafka, the embedded Redis and the proxy of the fault drills are such servers; they
differ in how they are started.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from anabranch.adapters.system.clock import SystemClock
from anabranch.local.child_process import ChildProcess
from anabranch.local.tcp_ports import LOOPBACK, free_port, port_is_free
from anabranch.protocol.errors import ConfigurationError, Unavailable

_TAIL_CHARS_MAX: Final = 2_000


class OwnedServer:
    """One server on the loopback address, with its state folder. Not thread-safe.

    A subclass adds a ``start`` that chooses ports, writes the program's files, and calls ``_run``.
    """

    def __init__(
        self, title: str, folder: Path, log_name: str, *, port: int = 0, pause_ms: int = 50
    ) -> None:
        """Keep the arguments; start nothing.

        ``title`` is the server's name in messages. With ``port`` 0 it takes its last port if there
        is one and it is free, else any free one. ``pause_ms`` is the interval between checks
        whether it answers.
        """
        self._title = title
        self._dir = folder
        self._log_name = log_name
        self._port_wanted = port
        self._port = port
        self._port_kept = 0
        self._pause_ms = pause_ms
        self._process: ChildProcess | None = None

    @property
    def address(self) -> str:
        """Address for clients, ``host:port``.

        Raises:
            Unavailable: the server was never started.
        """
        if self._port == 0:
            raise Unavailable(f"the {self._title} has no address before its first start")
        return f"{LOOPBACK}:{self._port}"

    @property
    def pid(self) -> int | None:
        """Process id; None before the first start."""
        return None if self._process is None else self._process.pid

    @property
    def log_path(self) -> Path:
        """Path of the server's log."""
        return self._dir / self._log_name

    def alive(self) -> bool:
        """Return whether the process runs."""
        return self._process is not None and self._process.alive()

    def stop(self, timeout_s: float) -> None:
        """Stop the server cleanly, or kill it after ``timeout_s``. Idempotent."""
        if self._process is not None:
            self._process.stop(timeout_s)

    def kill(self) -> None:
        """Kill the server, as a crash would."""
        if self._process is not None:
            self._process.kill()

    def _needed_port(self) -> int:
        """Return the port that the server must have: the requested one, or that of its last run,
        which its clients know. 0: any port will do.

        Raises:
            ConfigurationError: the requested port is taken.
            Unavailable: another process took the last run's port while the server was down; it may
                become free again.
        """
        if self._port_wanted and not port_is_free(self._port_wanted):
            raise ConfigurationError(
                f"port {self._port_wanted} for the {self._title} is taken: end what uses it, or let"
                " anabranch choose one"
            )
        if self._port_kept and not port_is_free(self._port_kept):
            raise Unavailable(
                f"port {self._port_kept}, which the {self._title} had before, is taken by another"
                " process: end that process"
            )
        return self._port_wanted or self._port_kept

    def _run(self, command: Sequence[str], answers: Callable[[], bool], timeout_s: float) -> bool:
        """Start ``command`` and wait until ``answers()`` is true. Return False if the process ended
        before.

        Raises:
            OSError: the program cannot be started.
            Unavailable: the server did not answer within ``timeout_s``, and was killed; the text
                has the end of its log.
        """
        self._process = process = ChildProcess(command, self.log_path)
        clock = SystemClock()
        deadline_ms = clock.monotonic_ms() + int(timeout_s * 1000)
        while process.alive():
            if answers() and process.alive():
                self._port_kept = self._port
                return True
            if clock.monotonic_ms() >= deadline_ms:
                process.kill()
                raise Unavailable(
                    f"the {self._title} did not answer within {timeout_s:g} s; its log ends:"
                    f" {self._log_tail()}"
                )
            clock.sleep_ms(self._pause_ms)
        return False

    def _log_tail(self) -> str:
        """Return the end of the log since the last start."""
        return self._process.log_tail()[-_TAIL_CHARS_MAX:] if self._process is not None else ""

    def _ended(self) -> Unavailable:
        """Return the error for a server that ended by itself."""
        how = (
            f"code {self._process.exit_code}; its log ends: {self._log_tail()}"
            if self._process is not None
            else "no attempt"
        )
        return Unavailable(f"the {self._title} ended with {how}")


def port_of_last_time(port: int) -> int:
    """Return ``port`` if it is not 0 and free, else any free port."""
    return port if port and port_is_free(port) else free_port()


def write_whole(path: Path, text: str, mode: int = 0o600) -> None:
    """Write ``path`` atomically: it never holds a part of ``text``."""
    unfinished = path.with_name(path.name + ".unfinished")
    unfinished.touch(mode)
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)
