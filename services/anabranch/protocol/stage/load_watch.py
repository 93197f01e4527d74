"""Measurement of a replica's load, for ``protocol.stage.load_control``: which batches say what a
row costs, and how many rows arrive.

Theory of operation. Only a batch that says what rows cost is measured. The first batches of a query
do not: Java compiles. Nor does a batch during which the process was paused, or a batch of the
successor: beside the branch it gets the cores that the branch leaves. A batch of the branch during
which the successor began or ran a batch counts as one beside it.

Rows arrive with the buckets that become complete. What was complete when the process first knew the
state of its inputs, or knew it again after a pause, had arrived before: it waits, but says nothing
of the rate.

Invariants:
    LW1 a bucket's rows are counted once, when it is complete on all inputs.
    LW2 what became complete while the process did not read its inputs is no arrival.
    LW3 the first COLD_BATCHES batches with rows of a query are not measured. Their durations only
        bound the next ones (OL10 of ``protocol.stage.load_control``).
    LW4 a batch counts with the rows that it processed, not with those that its plan was to keep.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.records import BoundaryKind
from anabranch.protocol.stage.kept_rows import KEPT_ALL
from anabranch.protocol.stage.key_shares import KeyShares
from anabranch.protocol.stage.load_control import COLD_BATCHES, LoadControl
from anabranch.protocol.stage.planner import Plan


@dataclass(slots=True)
class _Batch:
    """Running batch of a query."""

    plan: Plan
    rows: int
    """Number of rows that it processes: by its plan, until the batch says it."""
    began_ms: int
    beside: int | None
    """Number of batches that other queries had begun when this one began; None if one of them was
    running.
    """


class LoadWatch:
    """Measurement of the batches and inputs of one replica. ``now_ms`` is monotonic."""

    def __init__(self, control: LoadControl) -> None:
        """Start without measurements. ``control`` receives what is measured."""
        self._control = control
        self.key_shares = KeyShares()
        """Share of the rows that a share of the keys has; as long as nothing counts what batches
        processed, they are equal.
        """
        self.backlog = 0
        """Number of rows that are complete on all inputs, and that the stable query has not begun
        to process.
        """
        self._running: dict[str, _Batch] = {}
        self._begun: dict[str, int] = {}
        """Number of batches with rows that each query has begun."""
        self._begun_before = 0
        """Number of those of queries that were dropped."""
        self._counted: tuple[int | None, int] | None = None
        """Time since which the state of the inputs has been known, and the last bucket whose rows
        were counted.
        """

    def looks(
        self,
        now_ms: int,
        sighted_ms: int | None,
        log_states: Mapping[str, LogState],
        position: int,
    ) -> None:
        """Count the rows that arrived. Called at every request of a query, before it gets a plan:
        later the buckets may be forgotten.

        Args:
            now_ms: Now.
            sighted_ms: Time since which the process has known the state of its inputs
                (``Availability.sighted_ms``); None if it does not know it now.
            log_states: The inputs.
            position: Last bucket that the stable query has run, or leaves out. No log may have
                forgotten later ones.
        """
        complete = min(log_state.upto for log_state in log_states.values())
        before_ms, counted = self._counted or (None, position)
        self._counted = sighted_ms, max(counted, complete)
        rows = 0
        if complete > counted:
            rows = sum(
                part.rows
                for log_state in log_states.values()
                for _, _, parts in log_state.stable(counted + 1, complete, complete - counted)
                for part in parts
            )
        self.backlog += rows
        if sighted_ms is None or before_ms != sighted_ms:
            self._control.arrivals.begin(now_ms)
        else:
            self._control.arrivals.arrived(now_ms, rows)

    def begins(self, query: str, plan: Plan, now_ms: int) -> None:
        """Record that ``query`` begins the batch of ``plan``."""
        if plan.kind is BoundaryKind.STABLE:
            self.backlog = max(0, self.backlog - plan.rows)
        elif plan.kept == KEPT_ALL:
            self.key_shares.saw(KEPT_ALL, plan.rows, plan.rows)
        if plan.rows:
            rows = plan.rows * plan.kept // KEPT_ALL
            others = [name for name in self._running if name != query]
            self._begun[query] = self._begun.get(query, 0) + 1
            beside = None if others else self._by_others(query)
            self._running[query] = _Batch(plan, rows, now_ms, beside)

    def ends(self, query: str, now_ms: int, woke_ms: int, *, is_successor: bool) -> None:
        """Record that the last batch of ``query`` has ended. ``woke_ms``: when the process last
        woke from a pause. ``is_successor``: whether the query corrects beside a branch.
        """
        batch = self._running.pop(query, None)
        if batch is None or is_successor or woke_ms >= batch.began_ms > 0:
            return
        if self._begun[query] <= COLD_BATCHES:
            self._control.took_cold(batch.rows, now_ms - batch.began_ms)
            return
        beside = batch.beside is None or batch.beside != self._by_others(query)
        self._control.took(batch.rows, now_ms - batch.began_ms, beside=beside)

    def processed(self, query: str, rows: int) -> None:
        """Record that the running batch of ``query``, which keeps whole keys, processed ``rows``
        (LW4).
        """
        batch = self._running.get(query)
        if batch is not None:
            batch.rows = rows
            self.key_shares.saw(batch.plan.kept, rows, batch.plan.rows)

    def used(self, query: str, rows: int, processor_ms: float) -> None:
        """Record that a batch of ``query`` took ``processor_ms`` of the node's cores for ``rows``
        (LW3).
        """
        if self._begun.get(query, 0) > COLD_BATCHES:
            self._control.used(rows, processor_ms)

    def dropped(self, query: str) -> None:
        """Forget ``query``."""
        self._running.pop(query, None)
        self._begun_before += self._begun.pop(query, 0)

    def _by_others(self, query: str) -> int:
        others = sum(count for name, count in self._begun.items() if name != query)
        return self._begun_before + others
