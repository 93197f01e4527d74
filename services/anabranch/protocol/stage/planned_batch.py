"""Batch of a query, by the plan that is in the query's log: what it closes, and how many rows it
counts with where a stage measures what its rows cost.

Invariants:
    QB1 what a batch closes is not measured if it is the first one of its stream, which may close
        any number of buckets at once. One that leaves out rows closes only the share that it keeps.
    QB2 a batch counts with the rows that its function got: with those that the engine counted,
        where it can, else with the plan's share of them. It never counts with more than it reads:
        a shard's count is an estimate, made from the rows of its interval.
"""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.protocol.log.records import BoundaryKind
from anabranch.protocol.stage.kept_rows import KEPT_ALL
from anabranch.protocol.stage.planner import QueryPosition


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """Batch that is about to run."""

    kind: BoundaryKind
    before: QueryPosition
    after: QueryPosition
    rows: int
    """Number of rows that it reads."""
    missing: tuple[str, ...]
    shed: int = 0
    """Per mille of the input's rows that the results lack, because rows were left out."""
    kept: int = KEPT_ALL
    """Per mille of ``rows`` that the batch itself keeps."""

    def closes_ms(self, width_ms: int) -> int:
        """Return the event time that it closes, in ms, less the share of the rows that it leaves
        out; 0: it is not measured (QB1). ``width_ms``: that of a bucket.
        """
        buckets = self.after.bucket - self.before.bucket if self.before.bucket else 0
        return buckets * width_ms * self.kept // KEPT_ALL

    def rows_processed(self, counted: int | None) -> int:
        """Return the number of rows with which it counts (QB2). ``counted``: rows that its function
        got, by the engine's count; None: the engine did not count them.
        """
        if counted is None:
            return self.rows * self.kept // KEPT_ALL
        return min(counted, self.rows)
