"""Search for free TCP ports on the loopback address."""

from __future__ import annotations

import os
import socket
from typing import Final

from anabranch.protocol.errors import ConfigurationError

LOOPBACK: Final = "127.0.0.1"

# Below the range from which kernels take ports of outgoing connections, so that none occupies the
# port of a server while it restarts.
_FIRST: Final = 20_000
_COUNT: Final = 12_000
_STEP: Final = 7_919  # prime: processes with neighbouring ids start their search far apart

_given: set[int] = set()


def port_is_free(port: int) -> bool:
    """Return whether a server could listen on ``port`` now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            attempt.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """Return a port that is free and that this process was not given before. Another process may
    take it before it is used: callers must be ready to try again.

    Raises:
        ConfigurationError: no port is left.
    """
    start = os.getpid() * _STEP
    for step in range(_COUNT):
        port = _FIRST + (start + step) % _COUNT
        if port not in _given and port_is_free(port):
            _given.add(port)
            return port
    message = f"no free TCP port in {_FIRST}-{_FIRST + _COUNT - 1}: end what uses them"
    raise ConfigurationError(message)
