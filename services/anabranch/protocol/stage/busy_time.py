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

The lag of a replica falls only when a batch ends. While one runs that closes half a minute of
backlog within five seconds, the lag grows by five. So a read says what the batches need, too: the
*need* is the share of the time that they would fill if the lag stayed as it is. That is what they
took for each second of event time that they closed. It counts for the stable query, since what
waits waits for that. While only a branch runs, its batches are the measure; rows that it leaves out
count as not closed. Of the time in which both run each has half. A need below the busy share means
that the replica can catch up, one above it that it falls behind, whatever the lag is just now.

Invariants:
    BT1 the busy time between two reads is at most the time between them, whatever the number of
        queries.
    BT2 the busy times of consecutive reads add up to the time in which at least one batch ran.
    BT3 rows are counted once, in the read after the end of their batch.
    BT4 a read is cold if one of the first COLD_BATCHES batches with rows ran since the previous
        read, and not later than COLD_MS_MAX after the first of them began.
    BT5 the need is that of whole batches that were not cold: of those that ended since the previous
        read, else of those of an earlier read while another one runs. A running batch raises it
        once it has taken longer than that for what it will close. It is that of stable batches
        where one ended or runs, else that of a branch's, and 0 where there is neither.
    BT6 a replica counts as running on its node once its first batch has ended, which takes long in
        a Spark that has just started, and until its process ends. A process of a passive stage that
        is ready to become the primary stands by there, and is no primary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from anabranch.protocol.control.records import ReplicaLoad
from anabranch.protocol.stage.load_control import COLD_BATCHES
from anabranch.protocol.stage.standby import STANDING_BY

_LEADING_STATES: Final = ("running", "waiting")
"""States of a replica, as ``status`` shows them, in which its first batch has ended."""

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
    need_permille: int = 0
    """Share of the time that batches would fill if the lag stayed as it is (BT5); 0: it was not
    measured.
    """

    @property
    def busy_permille(self) -> int:
        """Share of the time in which a batch ran."""
        return self.busy_ms * 1_000 // self.elapsed_ms if self.elapsed_ms > 0 else 0

    @property
    def rows_per_s(self) -> int:
        """Rows per second."""
        return self.rows * 1_000 // self.elapsed_ms if self.elapsed_ms > 0 else 0


@dataclass(slots=True)
class _Measured:
    """Measured batch, or the sum of several of its kind."""

    is_stable: bool
    closes_ms: int = 0
    """Event time that it closes, in ms, less the share of the rows that it leaves out."""
    work_ms: float = 0.0
    """Time in which it ran, in ms; time with another batch of the replica counts half."""

    @property
    def need_permille(self) -> int:
        """Share of the time that such batches fill if the lag stays as it is, in permille."""
        return int(self.work_ms * 1_000 / self.closes_ms)


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
        self._measured: dict[str, _Measured] = {}
        """Running batches that are measured (BT5)."""
        self._ended: dict[bool, _Measured] = {}
        """Sum of the measured batches that ended since the previous read: of the stable ones, and
        of those of branches.
        """
        self._needs: dict[bool, int] = {}
        """Need of those of each kind that ended last, in permille."""
        self._counted_ms = self._read_ms = now_ms
        self._busy_ms = self._rows = 0

    def began(
        self, query: str, rows: int, now_ms: int, closes_ms: int = 0, *, is_stable: bool = True
    ) -> None:
        """Note that a batch has begun.

        Args:
            query: Its query.
            rows: Number of its rows.
            now_ms: Present time.
            closes_ms: Event time that it closes, less the share of the rows that it leaves out; 0:
                it is not measured.
            is_stable: Whether it is a batch of the stable query, and not of a branch.
        """
        self.dropped(query, now_ms)  # one that failed has not ended
        self._running.add(query)
        if rows and self._cold_left:
            if self._cold_left == COLD_BATCHES:
                self._warm_from_ms = now_ms + COLD_MS_MAX
            self._cold_left -= 1
            self._cold.add(query)
        elif closes_ms:
            self._measured[query] = _Measured(is_stable, closes_ms)

    def ended(self, query: str, rows: int, now_ms: int) -> None:
        """Note that the batch of ``query`` has ended after reading ``rows``."""
        self._count(now_ms)
        if batch := self._measured.get(query):
            ended = self._ended.setdefault(batch.is_stable, _Measured(batch.is_stable))
            ended.closes_ms += batch.closes_ms
            ended.work_ms += batch.work_ms
        self._rows += rows
        self.dropped(query, now_ms)

    def dropped(self, query: str, now_ms: int) -> None:
        """Note that ``query`` runs no batch any more."""
        self._count(now_ms)
        self._running.discard(query)
        self._cold.discard(query)
        self._measured.pop(query, None)

    def read(self, now_ms: int) -> BusyRead:
        """Return what was measured since the previous read, and begin anew (BT2)."""
        self._count(now_ms)
        need_permille = self._read_need()
        found = BusyRead(
            now_ms - self._read_ms, self._busy_ms, self._rows, self._is_cold, need_permille
        )
        self._read_ms, self._busy_ms, self._rows, self._is_cold = now_ms, 0, 0, False
        return found

    def _read_need(self) -> int:
        """Return the need since the previous read, and measure it anew (BT5)."""
        ended, self._ended = self._ended, {}
        self._needs |= {is_stable: each.need_permille for is_stable, each in ended.items()}
        for is_stable in (True, False):
            running = [each for each in self._measured.values() if each.is_stable is is_stable]
            if running or is_stable in ended:
                so_far = [each.need_permille for each in running]
                return max([self._needs.get(is_stable, 0), *so_far])
        return 0

    def _count(self, now_ms: int) -> None:
        """Count the time since the last call."""
        elapsed_ms = now_ms - self._counted_ms
        if self._running:
            self._busy_ms += elapsed_ms
        for each in self._measured.values():
            each.work_ms += elapsed_ms / len(self._running)
        if self._cold and self._counted_ms < min(now_ms, self._warm_from_ms):
            self._is_cold = True
        self._counted_ms = now_ms


def reported_load(
    stage: str,
    process: str,
    state: str,
    busy: BusyRead | None,
    behind: int,
    *,
    is_passive: bool,
    has_ended: bool,
) -> ReplicaLoad:
    """Return the load that a node reports of a replica (BT6).

    Args:
        stage: Name of the stage.
        process: Name of the replica, or of the process of a passive stage.
        state: State of the replica on the node, as ``status`` shows it.
        busy: What was measured since the previous report; None: no epoch of this process has begun,
            or its stream has ended.
        behind: Number of buckets that are complete on all inputs and not closed.
        is_passive: Whether processes of the stage stand by while one of them runs it.
        has_ended: Whether the process has ended.
    """
    leads = busy is not None and not has_ended and state in _LEADING_STATES
    measured = BusyRead(0, 0, 0) if busy is None else busy
    return ReplicaLoad(
        stage,
        process,
        state,
        leads=leads,
        stands_by=is_passive and state == STANDING_BY,
        busy_permille=measured.busy_permille,
        rows_per_s=measured.rows_per_s,
        behind=behind,
        is_cold=measured.is_cold,
        need_permille=measured.need_permille,
    )
