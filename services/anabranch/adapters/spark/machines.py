"""Says on which machine of a cluster something failed.

Files that are missing, a wrong password, a broker that is not reached: on a cluster each machine
has such faults of its own, and Spark passes on no more of a task's error than its text.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from anabranch.protocol.errors import ConfigurationError, Unavailable

EXECUTOR: Final = "ANABRANCH_SPARK_EXECUTOR"
"""Variable that executors of a cluster have, and no other process."""


@contextmanager
def machine_named() -> Iterator[None]:
    """Around what a task does: on a cluster its errors name the machine.

    Raises:
        ConfigurationError, Unavailable: as raised within, with the machine before the text.
    """
    try:
        yield
    except ConfigurationError as error:
        if EXECUTOR not in os.environ:
            raise
        raise ConfigurationError(
            f"{_here()}: {error} (the files that the node's settings name must be on each machine"
            " of the cluster, at the same path, for the user of its worker)"
        ) from error
    except Unavailable as error:
        if EXECUTOR not in os.environ:
            raise
        raise type(error)(f"{_here()}: {error}") from error


def _here() -> str:
    return f"executor on {socket.gethostname()}"
