"""A server program that belongs to the local deployment: its folder, its port, its process and its
end.

The embedded Kafka, the embedded Redis and the proxy of the fault drills are such servers; what is
special to each is how it is started.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from anabranch.adapters.system.clock import SystemClock
from anabranch.protocol.errors import ConfigurationError, Unavailable
from anabranch.up.child_process import ChildProcess
from anabranch.up.tcp_ports import LOOPBACK, free_port, port_is_free

_TAIL_CHARS_MAX: Final = 2_000


class OwnedServer:
    """One server on the loopback address and its state folder. Not thread-safe.

    A subclass has a ``start`` that chooses ports, writes what the program reads, and calls
    ``_run``.
    """

    def __init__(
        self, title: str, folder: Path, log_name: str, *, port: int = 0, pause_ms: int = 50
    ) -> None:
        """Nothing is started.

        ``title`` is what messages call it. ``port`` 0: that of last time if there was one and it is
        free, else any free one. ``pause_ms``: between two looks whether it answers.
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
        """``host:port`` for clients.

        Raises:
            Unavailable: it was never started.
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
        """Where the server writes what it has to say."""
        return self._dir / self._log_name

    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.alive()

    def stop(self, timeout_s: float) -> None:
        """End it cleanly, or by force after ``timeout_s``. Idempotent."""
        if self._process is not None:
            self._process.stop(timeout_s)

    def kill(self) -> None:
        """End it as a crash would."""
        if self._process is not None:
            self._process.kill()

    def _needed_port(self) -> int:
        """The port that it must have: the requested one, or that it had before, which its
        clients know; 0: any.

        Raises:
            ConfigurationError: the requested one is taken.
            Unavailable: the one that it had before is taken: by a process that took it while this
                one was down, so it may be given back.
        """
        if self._port_wanted and not port_is_free(self._port_wanted):
            raise ConfigurationError(
                f"port {self._port_wanted} for the {self._title} is taken: end what uses it, or let"
                " anabranch choose one"
            )
        if self._port_kept and not port_is_free(self._port_kept):
            raise Unavailable(
                f"port {self._port_kept}, where the {self._title} was, is taken by another process:"
                " end that one"
            )
        return self._port_wanted or self._port_kept

    def _run(self, command: Sequence[str], answers: Callable[[], bool], timeout_s: float) -> bool:
        """Start ``command`` and wait until ``answers()`` is true while it runs; False: it ended
        before that.

        Raises:
            OSError: the program cannot be started.
            Unavailable: it did not answer within ``timeout_s``, and was killed; the text has the
                end of its log.
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
        """The end of what it wrote since its last start."""
        return self._process.log_tail()[-_TAIL_CHARS_MAX:] if self._process is not None else ""

    def _ended(self) -> Unavailable:
        """The error that says that it ended by itself."""
        how = (
            f"code {self._process.exit_code}; its log ends: {self._log_tail()}"
            if self._process is not None
            else "no attempt"
        )
        return Unavailable(f"the {self._title} ended with {how}")


def port_of_last_time(port: int) -> int:
    """``port`` if it is one and free, else any free one."""
    return port if port and port_is_free(port) else free_port()


def write_whole(path: Path, text: str, mode: int = 0o600) -> None:
    """Write ``path`` so that it never holds half of ``text``."""
    unfinished = path.with_name(path.name + ".unfinished")
    unfinished.touch(mode)
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)
