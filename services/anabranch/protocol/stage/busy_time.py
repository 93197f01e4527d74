"""Time in which a replica's batches ran, and the rows that they read: what a node reports of its
load (``protocol.control.scaling``).

Theory of operation. A batch counts from its begin, not from its end: one that takes a minute must
not look like a minute of rest. Two queries of a replica that run at the same time, while it
corrects, count once: what is reported is the share of the time in which the replica was busy.

The first batches of a process are *cold*: Java loads and compiles what they need, and Python
workers start, so they take two to five times as long as later ones. What is measured meanwhile says
nothing of the load to come. So a read says whether cold batches ran. These are as many as the
control of the stage's load leaves out of its own measurements (OL10 of
``protocol.stage.load_control``), of all queries together: a branch finds Java warm.

Invariants:
    BT1 the busy time between two reads is at most the time between them, whatever the number of
        queries.
    BT2 the busy times of consecutive reads add up to the time in which at least one batch ran.
    BT3 rows are counted once, in the read after the end of their batch.
    BT4 a read is cold if one of the first COLD_BATCHES batches with rows ran since the previous
        read, and not later than COLD_MS_MAX after the first of them began.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from anabranch.protocol.stage.load_control import COLD_BATCHES

COLD_MS_MAX: Final = 60_000
"""Time, in ms, from the begin of the first batch with rows after which none is cold: what takes so
long is not slow because of Java, or comes so seldom that it must not be awaited.
"""


@dataclass(frozen=True, slots=True)
class BusyRead:
    """Busy time and rows since the previous read."""

    elapsed_ms: int
    """Time since the previous read, or since the begin of the measurement, in ms."""
    busy_ms: int
    rows: int
    is_cold: bool = False
    """Whether a cold batch ran (BT4)."""

    @property
    def busy_permille(self) -> int:
        """Share of the time in which a batch ran."""
        return self.busy_ms * 1_000 // self.elapsed_ms if self.elapsed_ms > 0 else 0

    @property
    def rows_per_s(self) -> int:
        """Rows per second."""
        return self.rows * 1_000 // self.elapsed_ms if self.elapsed_ms > 0 else 0


class BusyTime:
    """Measurement of one replica. ``now_ms`` is monotonic. Not thread-safe."""

    def __init__(self, now_ms: int) -> None:
        """Begin with no batch running."""
        self._running: set[str] = set()
        self._cold: set[str] = set()
        """Queries whose running batch is cold."""
        self._cold_left = COLD_BATCHES
        self._warm_from_ms = now_ms
        """Time from which on no batch is cold, once the first one with rows has begun."""
        self._is_cold = False
        self._counted_ms = self._read_ms = now_ms
        self._busy_ms = self._rows = 0

    def began(self, query: str, rows: int, now_ms: int) -> None:
        """Note that a batch of ``query`` with ``rows`` has begun."""
        self._count(now_ms)
        self._running.add(query)
        if rows and self._cold_left:
            if self._cold_left == COLD_BATCHES:
                self._warm_from_ms = now_ms + COLD_MS_MAX
            self._cold_left -= 1
            self._cold.add(query)

    def ended(self, query: str, rows: int, now_ms: int) -> None:
        """Note that the batch of ``query`` has ended, or was dropped, after reading ``rows``."""
        self._count(now_ms)
        self._running.discard(query)
        self._cold.discard(query)
        self._rows += rows

    def read(self, now_ms: int) -> BusyRead:
        """Return what was measured since the previous read, and begin anew (BT2)."""
        self._count(now_ms)
        found = BusyRead(now_ms - self._read_ms, self._busy_ms, self._rows, self._is_cold)
        self._read_ms, self._busy_ms, self._rows, self._is_cold = now_ms, 0, 0, False
        return found

    def _count(self, now_ms: int) -> None:
        """Count the time since the last call."""
        if self._running:
            self._busy_ms += now_ms - self._counted_ms
        if self._cold and self._counted_ms < min(now_ms, self._warm_from_ms):
            self._is_cold = True
        self._counted_ms = now_ms
