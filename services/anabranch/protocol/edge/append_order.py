"""Order in which the blocks, dead letters and boundary record of a source's batch are appended to
their topics.

Theory of operation. The boundary record of a batch says up to where the source is read, and names
the blocks of what is part of the stream. What it does not name is read again by the next process,
and judged by the boundary that the log has then. The batch was judged by the boundary of the record
before, which may still be under way. So before a dead letter says that a record is late, that
boundary is in the log, and before the batch's own record says that all of it is read, so are its
blocks and dead letters. Blocks come first: the client sends them while the record before is waited
for.

Invariants:
    AO1 a boundary record is sent when the blocks that it names are in the log, and when the record
        before it was seen accepted.
    AO2 of what is read, nothing is in neither the stream nor the dead letters, whenever the process
        ends.
    AO3 nor is anything in both: what was late stays late for the next process.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final


class Step(Enum):
    """Step of appending one batch. After a crash between any two the batch is read again."""

    AWAIT_BLOCKS = auto()
    """Waits until all blocks of the batch are in their topic."""
    AWAIT_RECORD = auto()
    """Waits until the previous boundary record was read back as accepted."""
    WRITE_DEAD_LETTERS = auto()
    """Appends all dead letters of the batch to their topic."""
    SEND_RECORD = auto()
    """Sends the batch's own boundary record."""


APPEND_ORDER: Final = (
    Step.AWAIT_BLOCKS,
    Step.AWAIT_RECORD,
    Step.WRITE_DEAD_LETTERS,
    Step.SEND_RECORD,
)
