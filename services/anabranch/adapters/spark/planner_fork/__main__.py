"""``python -m anabranch.adapters.spark.planner_fork SOCKET``: forks planners until its standard
input ends.
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

from anabranch.adapters.spark.planner_fork import PLANNER, SOURCE
from anabranch.protocol.limits import MIB

_ENVIRONMENT_BYTES_MAX: Final = 16 * MIB
"""More than Linux lets a program have."""
_SIZE_BYTES: Final = 4
_OUTPUTS: Final = 2
_REQUEST_S: Final = 10.0
"""For one request, which is sent whole: meanwhile nobody else is served."""


def main() -> None:
    """Returns in the process that was started; what it forks ends as Spark's module does."""
    path = Path(sys.argv[1])
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        # A planner that is wanted meanwhile waits: it would have to import the same.
        import_module(PLANNER)
        import_module(SOURCE)
        del sys.modules[PLANNER]  # a fork runs it anew, as what was started
        gc.collect()
        gc.freeze()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks what became of a fork
        request = _serve(listener)
    if request is not None:
        runpy.run_module(PLANNER, run_name="__main__", alter_sys=True)
    else:
        path.unlink(missing_ok=True)


def _serve(listener: socket.socket) -> socket.socket | None:
    """In a fork: the connection of who asked for it, which ends with the fork. None: it is over."""
    with selectors.DefaultSelector() as ready:
        ready.register(listener, selectors.EVENT_READ)
        ready.register(sys.stdin, selectors.EVENT_READ)
        while all(key.fileobj is listener for key, _ in ready.select()):
            connection, _ = listener.accept()
            outputs: list[int] = []
            environment = None
            with suppress(OSError, ValueError):  # who asked has gone
                environment = _request(connection, outputs)
            if environment is not None and not os.fork():
                _become(environment, outputs)
                return connection
            for output in outputs:
                os.close(output)
            connection.close()
    return None


def _request(connection: socket.socket, outputs: list[int]) -> dict[str, str]:
    """The environment of what is asked for; its standard output and error are added to ``outputs``.

    Raises:
        OSError, ValueError: it is not whole.
    """
    connection.settimeout(_REQUEST_S)
    size, received, _, _ = socket.recv_fds(connection, _SIZE_BYTES, _OUTPUTS)
    outputs += received
    left = int.from_bytes(size)
    if len(size) != _SIZE_BYTES or len(outputs) != _OUTPUTS or left > _ENVIRONMENT_BYTES_MAX:
        message = "no request"
        raise ValueError(message)
    text = bytearray()
    while piece := connection.recv(left - len(text)):
        text += piece
    environment: dict[str, str] = json.loads(text)
    return environment


def _become(environment: dict[str, str], outputs: list[int]) -> None:
    """Go on as what was started."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
    for descriptor, output in enumerate(outputs, start=1):
        os.dup2(output, descriptor)
        os.close(output)
    os.environ.clear()
    os.environ.update(environment)


main()
