"""Faults that a test can plan for the cluster in memory; each happens once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from anabranch.protocol.errors import AnabranchError

T = TypeVar("T")


class FailingOperation(Enum):
    """Operation that can be made to fail."""

    FLUSH = "flush"
    BEGIN = "begin"
    COMMIT = "commit"
    ABORT = "abort"
    FETCH = "fetch"
    OFFSETS = "offsets"


@dataclass(slots=True)
class PlannedFault:
    """Planned failure (``LocalEventLog.fail_next``)."""

    operation: FailingOperation
    error: type[AnabranchError]
    """Type of the error that the operation raises."""
    applied: int | None
    """Extent to which the operation takes effect nevertheless, as in ``fail_next``."""
    topic: str | None
    """Topic whose operation fails; None: any."""

    def of(self, sent: Sequence[T]) -> Sequence[T]:
        """Return those of the records ``sent`` that reach the log all the same."""
        if self.applied is None:
            return sent
        return sent[: self.applied] if self.applied >= 0 else sent[self.applied :]
