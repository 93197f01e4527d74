"""Drives a query that makes a range of buckets and then ends: buckets that are made again, empty
batches that warm Java up, samples that an auditor computes.

What holds after a crash at any point: nothing of such a query is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from anabranch.codec.plan_offsets import Offset, offset_of, position_of, rows_of
from anabranch.ports import Threads
from anabranch.protocol.log.records import BoundaryKind, Part
from anabranch.protocol.stage.planner import Plan, QueryPosition, check_joint, check_watermark
from anabranch.protocol.stage.replica import JointPlan
from anabranch.runtime.own_threads import OWN_THREADS

_ANSWER_WAIT_S: Final = 2.0
"""A question that has no plan waits so long: each costs the engine a round over all inputs."""


class RangeTask(Protocol):
    """What such a query runs, and what comes of it."""

    @property
    def is_finished(self) -> bool:
        """Whether all has run."""

    def plan(self, position: QueryPosition) -> Plan | None:
        """What the query that stands at ``position`` runs next; None: nothing (any more)."""

    def made(self, parts: Iterable[Part], closed: int) -> None:
        """A batch has given ``parts`` and closed everything up to ``closed``."""


@dataclass(frozen=True, slots=True)
class RangeStart:
    """A batch of the query that makes buckets again (see ``processing.replica.BatchStart``)."""

    before: QueryPosition
    after: QueryPosition
    rows: int
    kind: BoundaryKind = BoundaryKind.STABLE


class RangeQuery:
    """Drives a query beside those of the replica: it is given plans, and its parts are kept;
    nothing is appended.
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
        """``name``: of the query. ``task``: what it runs. ``only``: of what it makes only
        these buckets are written. ``waits``: there may be more to run later.
        ``threads``: of the process.
        """
        self.name = name
        self.only = only
        self._task = task
        self._width_ms = width_ms
        self._joint, self._changed = JointPlan(), threads.condition()
        self._after, self._waits = QueryPosition(), waits
        self.finished = threads.event()
        """All has run."""

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
        """Call ``task``, after which there may be more to run."""
        with self._changed:
            task()
            self._changed.notify_all()

    def end(self) -> None:
        """The query is about to be stopped: it waits for nothing."""
        with self._changed:
            self._waits = False
            self._changed.notify_all()

    def begin(
        self, query: str, offsets: list[Offset], watermark_ms: int, before: QueryPosition
    ) -> RangeStart:
        """A batch is in the query's log and about to run."""
        del query
        self._after = check_joint({str(i): position_of(offset) for i, offset in enumerate(offsets)})
        check_watermark(self._after, watermark_ms, self._width_ms)
        return RangeStart(before, self._after, rows_of(offsets))

    def finish(self, query: str, batch: int, parts: tuple[Part, ...]) -> bool:
        """The results of a batch are written as ``parts``."""
        del query, batch
        self._task.made(parts, self._after.bucket)
        if self._task.is_finished:
            self.finished.set()
        return True
