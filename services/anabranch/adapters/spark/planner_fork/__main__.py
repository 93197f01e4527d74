"""Entry point of ``python -m anabranch.adapters.spark.planner_fork SOCKET``: forks what is asked
for until its standard input ends.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import selectors
import signal
import socket
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Final

from anabranch.adapters.spark.planner_fork import FORKED, IMPORTED
from anabranch.protocol.limits import MIB

_ENVIRONMENT_BYTES_MAX: Final = 16 * MIB
"""Maximum size of a request, in bytes: more than Linux allows an environment."""
_SIZE_BYTES: Final = 4
"""Size of a request's length field, in bytes."""
_OUTPUTS: Final = 2
"""Number of file descriptors in a request: standard output and error."""
_REQUEST_S: Final = 10.0
"""Timeout for receiving one request, in seconds: meanwhile no other is served."""


def main() -> None:
    """Serve requests until standard input ends. In a fork, run Spark's module as the process that
    was asked for.
    """
    path = Path(sys.argv[1])
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        # Imported after ``listen``: who requests a fork meanwhile waits for them.
        for each in IMPORTED:
            import_module(each)
        for each in FORKED:
            del sys.modules[each]  # a fork runs it as its main module
        gc.collect()
        gc.freeze()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # leaves no zombies: no fork is waited for
        found = _serve(listener)
    if found is not None:
        _connection, module = found
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        path.unlink(missing_ok=True)


def _serve(listener: socket.socket) -> tuple[socket.socket, str] | None:
    """Fork for each request. Return, in a fork, the connection of its requester, which must end
    with the fork, and the module to run; return None in the server, when its standard input has
    ended.
    """
    with selectors.DefaultSelector() as ready:
        ready.register(listener, selectors.EVENT_READ)
        ready.register(sys.stdin, selectors.EVENT_READ)
        while all(key.fileobj is listener for key, _ in ready.select()):
            connection, _ = listener.accept()
            outputs: list[int] = []
            request = None
            with suppress(OSError, ValueError):  # the requester has gone
                request = _request(connection, outputs)
            if request is not None and not os.fork():
                module, environment = request
                _become(environment, outputs)
                connection.sendall(b"+")  # the requester need not run the module itself
                return connection, module
            for output in outputs:
                os.close(output)
            connection.close()
    return None


def _request(connection: socket.socket, outputs: list[int]) -> tuple[str, dict[str, str]]:
    """Receive a request: return its module and environment, and add its standard output and error
    to ``outputs``.

    Raises:
        OSError, ValueError: the request is incomplete.
    """
    connection.settimeout(_REQUEST_S)
    size, received, _, _ = socket.recv_fds(connection, _SIZE_BYTES, _OUTPUTS)
    outputs += received
    left = int.from_bytes(size)
    if len(size) != _SIZE_BYTES or len(outputs) != _OUTPUTS or left > _ENVIRONMENT_BYTES_MAX:
        message = "the request to fork is malformed"
        raise ValueError(message)
    text = bytearray()
    while piece := connection.recv(left - len(text)):
        text += piece
    module, environment = json.loads(text)
    if module not in FORKED:
        message = f"{module} is not forked"
        raise ValueError(message)
    return module, environment


def _become(environment: dict[str, str], outputs: list[int]) -> None:
    """Take over the environment and outputs of the process that was asked for."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
    for descriptor, output in enumerate(outputs, start=1):
        os.dup2(output, descriptor)
        os.close(output)
    os.environ.clear()
    os.environ.update(environment)
    # It imports the user's functions, whose folders Python would have put here at its start.
    folders = [each for each in environment.get("PYTHONPATH", "").split(os.pathsep) if each]
    sys.path[1:] = dict.fromkeys([*folders, *sys.path[1:]])


main()
