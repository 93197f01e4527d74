"""Who may call this process back: its own Java, and nobody else on the machine.

``foreachBatch`` runs in this process. Java calls it by a port of the loopback address, at which
PySpark, in the mode with a Java thread for each thread of Python, asks for no token, and Java's
half could not send one. So this module asks the kernel whose the other end of each connection is.
"""

from __future__ import annotations

import logging
import socket
from pathlib import Path
from typing import Any, Final

_logger = logging.getLogger("anabranch.spark")
_PROC: Final = Path("/proc")
_LOCAL = 1
_REMOTE = 2
# Columns of the kernel's tables of connections.
_INODE = 9


def guard(gateway: Any) -> None:
    """Let the callback server of ``gateway``, which is not started yet, reject whatever does
    not come from its Java. Without /proc nothing is rejected.
    """
    if (_PROC / "self" / "fd").exists():
        gateway.callback_server_parameters.ssl_context = OnlyFrom(gateway.proc.pid)


class OnlyFrom:
    """Py4J takes it for an SSL context: it is handed each connection before a byte is read."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def wrap_socket(self, connection: socket.socket, *, server_side: bool) -> socket.socket:  # noqa: ARG002 - Py4J's words
        """The connection, or in place of one from elsewhere one that is at its end.

        An exception would end the server, and what has come already can be read after a shutdown.
        """
        if _is_of(self._pid, connection):
            return connection
        _logger.warning(
            "rejected a connection to the port for Java's calls: it did not come from Spark's Java"
        )
        connection.close()
        over, other_end = socket.socketpair()
        other_end.close()
        return over


def _is_of(pid: int, connection: socket.socket) -> bool:
    """Whether the other end of a connection within this machine belongs to the process."""
    try:
        ends = (connection.getpeername()[1], connection.getsockname()[1])
        opened = {_link(entry) for entry in (_PROC / str(pid) / "fd").iterdir()}
    except OSError:  # the connection or the process is gone
        return False
    return any(f"socket:[{inode}]" in opened for inode in _inodes(ends))


def _link(entry: Path) -> str:
    """Where it leads; nowhere, if it was closed meanwhile."""
    try:
        return str(entry.readlink())
    except OSError:
        return ""


def _inodes(ends: tuple[int, int]) -> list[str]:
    """Of the connections between two ports, seen from the first of them."""
    found = []
    for table in ("tcp", "tcp6"):
        for line in (_PROC / "net" / table).read_text().splitlines()[1:]:
            fields = line.split()
            if (
                tuple(int(fields[column].rpartition(":")[2], 16) for column in (_LOCAL, _REMOTE))
                == ends
            ):
                found.append(fields[_INODE])
    return found
