"""What can be made to fail in the cluster in memory, once each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from anabranch.protocol.errors import AnabranchError


class Operation(Enum):
    """What can be made to fail."""

    FLUSH = "flush"
    BEGIN = "begin"
    COMMIT = "commit"
    ABORT = "abort"
    FETCH = "fetch"
    OFFSETS = "offsets"


@dataclass(slots=True)
class Fault:
    """One planned failure (``LocalEventLog.fail_next``)."""

    operation: Operation
    error: type[AnabranchError]
    applied: int | None
    topic: str | None
