"""Guard of the port at which Spark's Java calls this process: rejects connections of other
processes.

``foreachBatch`` runs in this process. Java calls it through a port of the loopback address at which
PySpark, in the mode with a Java thread for each Python thread, requires no token, and Java's half
could not send one. So this module asks the kernel which process owns the other end of each
connection.
"""

from __future__ import annotations

import logging
import socket
from pathlib import Path
from typing import Any, Final

_logger = logging.getLogger("anabranch.spark")
_PROC: Final = Path("/proc")
# Columns of /proc/net/tcp.
_LOCAL = 1
_REMOTE = 2
_INODE = 9


def guard(gateway: Any) -> None:
    """Make the callback server of ``gateway``, which must not be started yet, reject connections
    that do not come from its Java. Without /proc nothing is rejected.
    """
    if (_PROC / "self" / "fd").exists():
        gateway.callback_server_parameters.ssl_context = OnlyFrom(gateway.proc.pid)


class OnlyFrom:
    """Filter of connections, given to Py4J in place of an SSL context: Py4J passes it each
    connection before it reads a byte.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def wrap_socket(self, connection: socket.socket, *, server_side: bool) -> socket.socket:  # noqa: ARG002 - Py4J's words
        """Return ``connection`` if the process owns its other end; else close it and return a
        connection that is at its end.

        An exception would end the server, and after a mere shutdown data that has arrived could
        still be read.
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
    """Return whether the other end of ``connection``, within this machine, belongs to process
    ``pid``.
    """
    try:
        ends = (connection.getpeername()[1], connection.getsockname()[1])
        opened = {_link(entry) for entry in (_PROC / str(pid) / "fd").iterdir()}
    except OSError:  # the connection is closed or the process has ended
        return False
    return any(f"socket:[{inode}]" in opened for inode in _inodes(ends))


def _link(entry: Path) -> str:
    """Return the target of a link; empty if the link vanished meanwhile."""
    try:
        return str(entry.readlink())
    except OSError:
        return ""


def _inodes(ends: tuple[int, int]) -> list[str]:
    """Return the inodes of connections from the first to the second of the ports ``ends``."""
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
