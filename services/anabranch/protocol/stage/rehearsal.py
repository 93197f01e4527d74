"""Rehearsal of a move: the batches that a replica's new node runs before it takes over, so that its
first batch afterwards takes no longer than a later one.

Theory of operation. A replica that moves stands by on its new node (``protocol.stage.standby``). It
has a copy of the checkpoint there while the old node still runs, so no reader waits for it. From
the cutover on all readers do, until its first batch has ended: the files of the checkpoint are
checked and loaded, Java compiles what the plan needs, and the readers of the inputs connect. So the
new node does all of that once before the cutover. It runs the stage's query in a throw-away copy of
the checkpoint, over the buckets that follow it and that the old node has closed already, and drops
the results. What was checked, compiled, connected or read is not needed a second time.

Invariants:
    RH1 a process rehearses once at most: from the first checkpoint that is near enough for the
        cutover. A stage that recomputes its state from its input has no checkpoint, and rehearses
        nothing.
    RH2 a rehearsal takes no bucket that the replica has not closed, appends no record, and writes
        no block: no reader can see that it ran.
    RH3 a rehearsal ends after ``REHEARSED_BATCHES`` batches. A batch for which there is no bucket,
        or none that this process still knows, is empty: it loads the state all the same.
    RH4 the cutover waits for the end of the rehearsal, whether it succeeds or fails, and for
        ``REHEARSAL_MS_MAX`` at most. It does not wait where the old node is silent, or has
        sent no heartbeat since this process began: then results wait for this process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.records import Part
from anabranch.protocol.stage.planner import Plan, PlanTraits, QueryPosition, next_plan

REHEARSED_BATCHES: Final = 3
"""Number of batches of a rehearsal, as many as make a standby warm: the first loads, the next ones
find what only a batch over loaded state needs.
"""

REHEARSAL_MS_MAX: Final = 60_000
"""Maximum time for which the cutover waits for a rehearsal, in ms: gigabytes are checked and loaded
at more than 100 MB/s, also by a busy machine.
"""


class Rehearsal:
    """State of the rehearsal of one process. ``now_ms`` is monotonic and its own."""

    def __init__(self, *, is_wanted: bool) -> None:
        """Begin before the rehearsal. ``is_wanted``: whether there is one at all (RH1)."""
        self._is_over = not is_wanted
        self._begun_ms: int | None = None

    def begins(self, now_ms: int, *, is_near: bool) -> bool:
        """Return True once: when the rehearsal is to begin (RH1). ``is_near``: whether the
        checkpoint is near enough for the cutover.
        """
        if self._is_over or self._begun_ms is not None or not is_near:
            return False
        self._begun_ms = now_ms
        return True

    def ended(self) -> None:
        """Note that the rehearsal has ended, by success or failure. Idempotent."""
        self._is_over = True

    @property
    def is_running(self) -> bool:
        """Whether the rehearsal has begun and not ended."""
        return self._begun_ms is not None and not self._is_over

    def delays(self, now_ms: int) -> bool:
        """Return whether the cutover waits for the rehearsal (RH4)."""
        if self._is_over:
            return False
        return self._begun_ms is None or now_ms - self._begun_ms < REHEARSAL_MS_MAX


class RehearsedBatches:
    """Plans of a rehearsal's query (RH2, RH3)."""

    def __init__(self, log_states: Mapping[str, LogState], traits: PlanTraits, closed: int) -> None:
        """Begin before the first batch.

        Args:
            log_states: Log state of each input by name.
            traits: Traits of the query's plan.
            closed: Last bucket that the replica has closed.
        """
        self._log_states, self._traits, self._closed = log_states, traits, closed
        self._first: int | None = None
        self._run = 0

    @property
    def is_finished(self) -> bool:
        """Whether all batches have run."""
        return self._run >= REHEARSED_BATCHES

    def plan(self, position: QueryPosition) -> Plan | None:
        """Return the next batch of the query at ``position``, of one bucket with rows at most; None
        if all have been planned.
        """
        if self._first is None:
            self._first = position.sequence
        if position.sequence - self._first >= REHEARSED_BATCHES:
            return None
        plan = None
        if all(each.forgotten <= position.bucket for each in self._log_states.values()):
            plan = next_plan(
                position, self._log_states, self._traits, buckets_max=1, last=self._closed
            )
        return plan or next_plan(position, self._log_states, self._traits, warm_up=True)

    def made(self, parts: Iterable[Part], closed: int) -> None:
        """Note that a batch has run. Its results are dropped."""
        del parts, closed
        self._run += 1
