"""Client of the fork server: ``python -SE launch.py SOCKET -m MODULE`` lets ``planner_fork`` run
the module.

It imports only the standard library: the query that starts waits for it.
"""

from __future__ import annotations

import json
import os
import socket
import sys


def main() -> None:
    """Request a fork and wait for its end. If no fork server answers, become what it would be."""
    path, *arguments = sys.argv[1:]
    _, module = arguments
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(path)
            request = json.dumps([module, dict(os.environ)]).encode()
            size = len(request).to_bytes(4)
            socket.send_fds(connection, [size], [1, 2])
            connection.sendall(request)
            is_forked = bool(connection.recv(1))
        except OSError:
            is_forked = False
        if not is_forked:  # nobody listens, or the server has ended before it forked
            os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606 - what Spark started
        connection.recv(1)


main()
