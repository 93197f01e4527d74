"""Order in which the blocks, dead letters and boundary record of a source's batch are appended to
their topics.

Theory of operation. The boundary record of a batch says up to where the source has been read, and
names the blocks that are part of the stream. After a crash the next process reads again whatever no
record names, and judges it by the boundary that the log has by then. The batch itself was judged by
the boundary of the previous record, which may still be in flight. So two orders matter. The
previous record is in the log before a dead letter calls a record late. The batch's blocks and dead
letters are in the log before the batch's own record says that all of it has been read. Blocks come
first, so that the client sends them while the process waits for the previous record.

Invariants:
    AO1 a boundary record is sent only when the blocks that it names are in the log, and the
        previous record was seen accepted.
    AO2 each record that was read is in the stream or in the dead letters, whenever the process
        ends.
    AO3 no record is in both: what was late stays late for the next process.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final


class AppendStep(Enum):
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
    AppendStep.AWAIT_BLOCKS,
    AppendStep.AWAIT_RECORD,
    AppendStep.WRITE_DEAD_LETTERS,
    AppendStep.SEND_RECORD,
)
