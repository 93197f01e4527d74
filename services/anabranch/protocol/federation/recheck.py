"""Recomputation of buckets of a sold stage from the stage's own input, to find those that are
wrong.

Theory of operation. Results after time t depend on the input after t - horizon only
(``protocol.stage.recovery``). So a query that begins empty, a horizon before the first bucket that
is wanted, makes the wanted ones whole. It takes its input as every plan does, so what it makes is
what any replica makes of it, bucket for bucket.

The horizon is a promise of the stage's author, and that a function gives the same for the same
input is another. Neither is the seller's. So a bucket that differs is computed a second time, from
twice as far before. It is wrong only if both computations are alike, and the seller's is not.

Invariants:
    RK1 a query begins a horizon, or two, before the first bucket that is wanted, and takes the
        input up to the last one, none left out.
    RK2 nothing is computed of input that is gone, or not known to its end.
    RK3 where two computations differ neither side is blamed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from anabranch.protocol.federation.audit import Contents
from anabranch.protocol.limits import BATCH_ROWS_MAX
from anabranch.protocol.log.boundary_log import LogState, contents
from anabranch.protocol.log.records import Part
from anabranch.protocol.stage.batch_size import first_rows_max
from anabranch.protocol.stage.planner import (
    Plan,
    PlanTraits,
    QueryPosition,
    TakenBucket,
    begun_after,
    next_plan,
)


class Recheck:
    """Query that computes buckets of a stage again. After a crash a new one begins."""

    def __init__(
        self,
        wanted: Sequence[int],
        before: int,
        log_states: Mapping[str, LogState],
        traits: PlanTraits,
        *,
        rows_max: int = BATCH_ROWS_MAX,
    ) -> None:
        """``wanted``: buckets, ascending, at least one. ``before``: the query begins so many
        buckets before the first of them. ``log_states``: the inputs.
        """
        self.wanted = frozenset(wanted)
        self.last = wanted[-1]
        self.after = max(0, wanted[0] - before - 1)
        self._log_states = log_states
        self._traits = traits
        self._rows_max = first_rows_max(rows_max, traits)
        self._made: dict[int, list[Part]] = {}
        self._closed = 0

    @property
    def is_finished(self) -> bool:
        """Whether every wanted bucket is closed."""
        return self._closed >= self.last

    @property
    def is_known(self) -> bool:
        """Whether all inputs are known up to the last wanted bucket (RK2)."""
        return all(log_state.upto >= self.last for log_state in self._log_states.values())

    def lacks(self, gone: Callable[[str, Iterable[TakenBucket]], int | None]) -> str:
        """Return the input that is missing, in words; empty if all is there (RK2).

        ``gone``: (input, buckets of it) -> the first of which blocks are deleted, if any is.
        """
        for stream, log_state in self._log_states.items():
            if self.after < log_state.forgotten:
                return (
                    f"the log of {stream} describes its buckets up to {log_state.forgotten} no more"
                )
            bucket = gone(stream, log_state.stable(self.after + 1, self.last))
            if bucket is not None:
                return f"the blocks of {stream} from bucket {bucket} on are deleted"
        return ""

    def plan(self, position: QueryPosition) -> Plan | None:
        """Return the next plan of the query at ``position``; None once it has finished (RK1)."""
        if position.bucket >= self.last:
            return None
        if position.bucket < self.after:
            return begun_after(self.after, self._log_states)
        return next_plan(
            position, self._log_states, self._traits, rows_max=self._rows_max, last=self.last
        )

    def made(self, parts: Iterable[Part], closed: int) -> None:
        """Add the ``parts`` of a batch, which closed everything up to ``closed``."""
        for part in parts:
            self._made.setdefault(part.bucket, []).append(part)
        self._closed = max(self._closed, closed)

    def computed(self) -> dict[int, Contents]:
        """Return the rows and digest of each wanted bucket. Call it once the query is finished."""
        return {bucket: contents(self._made.get(bucket, ())) for bucket in sorted(self.wanted)}


def confirmed(
    first: Mapping[int, Contents], second: Mapping[int, Contents]
) -> tuple[dict[int, Contents], list[int]]:
    """Return the contents on which two computations agree, and the buckets of ``second`` in which
    they differ (RK3).
    """
    alike = {bucket: found for bucket, found in second.items() if first[bucket] == found}
    return alike, [bucket for bucket in second if bucket not in alike]
