"""Driver of a query that computes a range of buckets and then ends: recomputed buckets, empty
batches that warm up the JVM, samples of an auditor.

Nothing of such a query needs to survive a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from anabranch.codec.plan_offsets import Offset, offset_of, position_of, rows_of
from anabranch.ports import Threads
from anabranch.process.threads import OWN_THREADS
from anabranch.protocol.log.records import BoundaryKind, Part
from anabranch.protocol.stage.planner import Plan, QueryPosition, check_joint, check_watermark
from anabranch.protocol.stage.replica import JointPlan

_ANSWER_WAIT_S: Final = 2.0
"""Time that a request waits for a plan, in s. Each request costs the engine a round over all
inputs.
"""


class RangeTask(Protocol):
    """Interface of the work of such a query: its plans and results."""

    @property
    def is_finished(self) -> bool:
        """Whether all of the work is done."""

    def plan(self, position: QueryPosition) -> Plan | None:
        """Return the next plan of the query at ``position``; None if there is none now."""

    def made(self, parts: Iterable[Part], closed: int) -> None:
        """Take over a batch's ``parts``; it has closed all buckets up to ``closed``."""


@dataclass(frozen=True, slots=True)
class RangeStart:
    """Batch of a range query (``ports.engine.BatchStart``)."""

    before: QueryPosition
    after: QueryPosition
    rows: int
    kind: BoundaryKind = BoundaryKind.STABLE


class RangeQuery:
    """Driver of a query beside those of the replica. Passes the task's plans to the query and the
    parts to the task; appends nothing to a boundary log.
    """

    def __init__(
        self,
        name: str,
        task: RangeTask,
        width_ms: int,
        only: frozenset[int] = frozenset(),
        *,
        waits: bool = False,
        threads: Threads = OWN_THREADS,
    ) -> None:
        """Keep the arguments. ``name`` is the query's. Blocks are written only for the buckets of
        ``only``. With ``waits`` the task may get more work later.
        """
        self.name = name
        self.only = only
        self._task = task
        self._width_ms = width_ms
        self._joint, self._changed = JointPlan(), threads.condition()
        self._after, self._waits = QueryPosition(), waits
        self.finished = threads.event()
        """Event that is set once the task is finished."""

    def advance(self, query: str, name: str, start: Offset, source: int = 0) -> Offset | None:
        """See ``ports.QueryDriver``."""
        del query
        position = position_of(start)
        with self._changed:
            plan = self._joint.known(position)
            if plan is None and self._joint.leads(name, source):
                plan = self._task.plan(position)
                if plan is None and self._waits:
                    self._changed.wait(_ANSWER_WAIT_S)
                    plan = self._task.plan(position)
                if plan is not None:
                    self._joint.made(plan)
            return None if plan is None else offset_of(plan, name)

    def change(self, task: Callable[[], None]) -> None:
        """Call ``task``, which may add work, and wake a waiting query."""
        with self._changed:
            task()
            self._changed.notify_all()

    def end(self) -> None:
        """Let the query end: it waits for no further work."""
        with self._changed:
            self._waits = False
            self._changed.notify_all()

    def begin(
        self, query: str, offsets: list[Offset], watermark_ms: int, before: QueryPosition
    ) -> RangeStart:
        """Check the offsets of a batch that is in the query's log and about to run."""
        del query
        self._after = check_joint({str(i): position_of(offset) for i, offset in enumerate(offsets)})
        check_watermark(self._after, watermark_ms, self._width_ms)
        return RangeStart(before, self._after, rows_of(offsets))

    def finish(
        self, query: str, batch: int, parts: tuple[Part, ...], rows_read: int | None = None
    ) -> bool:
        """Pass the task the ``parts`` that a batch has written."""
        del query, batch, rows_read
        self._task.made(parts, self._after.bucket)
        if self._task.is_finished:
            self.finished.set()
        return True
