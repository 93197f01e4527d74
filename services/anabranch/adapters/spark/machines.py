"""Name of the machine of a cluster in the errors of its tasks.

Missing files, a wrong password, a broker that cannot be reached: each machine of a cluster may have
such a fault of its own, and Spark passes on only the text of a task's error.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from anabranch.protocol.errors import ConfigurationError, Unavailable

EXECUTOR: Final = "ANABRANCH_SPARK_EXECUTOR"
"""Environment variable that executors of a cluster have, and no other process."""


@contextmanager
def machine_named() -> Iterator[None]:
    """Name the machine in errors that the body raises in an executor of a cluster.

    Raises:
        ConfigurationError, Unavailable: as raised by the body, the machine before the text.
    """
    try:
        yield
    except ConfigurationError as error:
        if EXECUTOR not in os.environ:
            raise
        raise ConfigurationError(
            f"{_machine()}: {error} (the files that the node's settings name must be on each"
            " machine of the cluster, at the same path, for the user of its worker)"
        ) from error
    except Unavailable as error:
        if EXECUTOR not in os.environ:
            raise
        raise type(error)(f"{_machine()}: {error}") from error


def _machine() -> str:
    """Return the name of this machine for a message."""
    return f"executor on {socket.gethostname()}"
