"""Which queries get the cores: how often does one begin a batch, which replica of a stage corrects
first, and how much does its branch leave to the correction?

Theory of operation. Nothing that is right or wrong depends on this, only how old results are.

*Batches.* A small batch costs about SMALL_BATCH_MS of one core whatever it holds. So fewer and
larger ones are cheaper, and results get older by as much as batches are apart. A batch for each
bucket would keep the cores busy: queries would wait for one another, and results be no younger. So
batches are APART_TIMES as far apart as they take of the cores by themselves, whatever number of
replicas shares these.

Where results are far apart, as those of a window are, only the batch that lets them out matters. In
which buckets they come is seen (``ResultSpacing``): windows end at every so manieth bucket. The
batch that completes such a bucket does not wait. One that completes none is *quiet*: it only keeps
the next one small and says how far the stage is, so it comes after QUIET_READ_MS where other stages
read that, and else after QUIET_UNREAD_MS. A stage without state is quiet where it reads no rows.

*Who corrects first.* Corrections cost as much as the results that they replace, and the replicas of
a stage become able to make them at the same moment. One after the other is better (DPC staggers its
replicas; here nobody asks for leave): the others keep their cores for new, tentative results, and
find the corrections done by the time it is their turn, since any replica's stable bucket will do. A
replica that could correct says so by its state (STABILIZATION), and that it does (``corrects``).
The first by id begins; who has begun goes on to the end, and then the next by id begins. Time-outs
count observed time. A process looks at the control topic before it asks ``open``: what it has not
read it cannot respect.

Which of this holds is decided at every look anew, by the first row of ``GATE``.

*What the branch leaves to it.* While a replica corrects, its branch gives new results beside it,
with an equal share of the cores. Where two queries cost more than real time neither catches up,
though each would alone: the correction never ends, and the branch falls behind, too. So the
correction is watched: over every ``CORRECTION_STEP_MS`` its lag must shrink. Where it did not, the
branch is *paced*: it begins a batch only when the bound of its results asks for one, so that it
needs fewer and larger ones. Where that is not enough it is *suspended*: at once if a peer serves,
or if the branch cannot hold the bound either; else after a longer while, since corrections must
end. A suspended branch stays, and its last results with it, until the correction has caught up, or
stands at a hole.

Invariants:
    BP1 batches are never less than APART_LEAST_MS apart, and never more than APART_MOST_MS.
    BP2 one more replica never makes batches come closer, one more core never farther apart.
    BP3 a bucket in which results are expected is not waited with, once it is complete, unless they
        come in nearly every batch: then they would make batches twice as many.
    BP4 a batch that is quiet comes after QUIET_UNREAD_MS at the latest, and after half of the long
        wait: how far a stage is says nothing of a failure.
    BP5 a stage that takes one bucket per batch is not paced: its batches cannot be fewer, and it
        would fall behind.
    CO1 of the replicas of a stage that hear each other two are open together for no longer than it
        takes to hear of it.
    CO2 never do all wait for each other: of the replicas that want and are alive one opens within a
        bounded time, whether or not any peer lives, hears or answers.
    PA1 a branch whose correction comes nearer over every step is free.
    PA2 within one correction the pace only falls, so there is an end to every state in which it
        does not come nearer.
    PA3 a correction that has caught up, or stands, or must wait for its turn, needs nothing: the
        branch is free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from math import gcd
from typing import Final

from anabranch.protocol.control.failure_detector import REPLICA_SERVICE, FailureDetector, Peer
from anabranch.protocol.control.records import Heartbeat, ReplicaState
from anabranch.protocol.limits import BATCH_ROWS_MAX, FAILURE_AFTER_MS, HOP_MS
from anabranch.protocol.stage.planner import Plan, PlanTraits

APART_LEAST_MS: Final = 200
"""Closer batches make results younger by less than a bucket takes to close."""
APART_MOST_MS: Final = 1_000
"""Results get older by it at every stage, so there is an end to what is saved."""
SMALL_BATCH_MS: Final = 100
"""What a small batch takes of one core, measured."""
APART_TIMES: Final = 4
"""Batches take one part in so many of the cores: the rest is for rows, for the services, and for
whatever else runs.
"""


def pace_ms(replicas: int, cores: int) -> int:
    """Least time between the starts of two batches of a query, where ``replicas`` of stages share
    ``cores`` (BP1, BP2).
    """
    wanted_ms = APART_TIMES * SMALL_BATCH_MS * replicas // cores
    return min(APART_MOST_MS, max(APART_LEAST_MS, wanted_ms))


QUIET_READ_MS: Final = HOP_MS // 2
"""Least time from any batch to one that is quiet, where stages read what it closes: a batch costs
much the same whatever it holds, and one that gives nothing is in the way of the next result.
"""
QUIET_UNREAD_MS: Final = APART_MOST_MS
"""The same where no other stage reads it."""
QUIET_ROWS_MAX: Final = 20_000
"""A batch with more is never quiet: its rows cost more than the batch, and would delay the results
that come after them.
"""


def quiet_every_ms(*, is_read: bool, wait_ms: int) -> int:
    """Least time from any batch to one that is quiet (BP4). ``is_read``: by stages, here or of
    others. ``wait_ms``: what the stage waits for missing input.
    """
    return min(QUIET_READ_MS if is_read else QUIET_UNREAD_MS, wait_ms // 2)


class ResultSpacing:
    """In which buckets a stage has results, as far as they were seen: in one of so many."""

    def __init__(self) -> None:
        self._last = 0
        self.buckets = 0
        """From one that may have results to the next; 0: not known yet."""

    def seen(self, buckets: Iterable[int]) -> None:
        """There are results in these."""
        for bucket in buckets:
            if self._last:
                self.buckets = gcd(self.buckets, bucket - self._last)
            self._last = bucket

    def expected(self, after: int, upto: int) -> bool:
        """Whether a bucket in (``after``, ``upto``] may have results."""
        if not self.buckets:
            return True
        return (upto - self._last) // self.buckets > (after - self._last) // self.buckets

    def is_sparse(self, width_ms: int, pace_ms: int) -> bool:
        """Whether fewer than every other batch of that pace has results (BP3)."""
        return self.buckets * width_ms >= 2 * pace_ms > 0


@dataclass(frozen=True, slots=True)
class BatchRules:
    """When a query of a replica runs its next batch, and how much that takes."""

    width_ms: int
    """Of a bucket."""
    rows_max: int = BATCH_ROWS_MAX
    pace_ms: int = 0
    """Least time between the starts of two batches of a query, so that many replicas share few
    cores: a batch costs much the same whatever it holds, so fewer and larger ones are cheaper.
    """
    quiet_every_ms: int = 0
    """Least time from any batch to one that gives nothing (``protocol.stage.scheduling``)."""
    successor_after_ms: int = 0
    """See SUCCESSOR_AFTER_MS."""
    warm_up: bool = True
    """A query that has nothing to run yet when it first asks runs an empty batch."""
    rows_per_s: int = 0
    """A query takes no more, over any longer while (RE11); 0: as much as it can."""

    def batch_rows_max(self) -> int:
        """Rows of one batch, beyond its first bucket: those of a second where there is a cap."""
        return min(self.rows_max, self.rows_per_s) if self.rows_per_s else self.rows_max


class BatchPacing:
    """How long the queries of one process rest between batches. Of the stable query, where there
    is no branch, some wait for longer than that, and some for less (BP3, BP4).
    """

    def __init__(self, rules: BatchRules, traits: PlanTraits) -> None:
        """What is seen of results is of one process: the next one sees them again."""
        self._rules, self._traits = rules, traits
        self._pace_ms = rules.pace_ms if traits.is_batch_safe else 0
        self._spacing = ResultSpacing()
        self._quiet_from_ms = 0

    def rest(self, rows: int) -> tuple[int, bool]:
        """From the start of a batch with so many rows to that of the next one, in milliseconds;
        and whether that is more than its pace wants, by its cap.
        """
        per_s = self._rules.rows_per_s
        capped_ms = -(-rows * 1_000 // per_s) if per_s else 0
        return max(self._pace_ms, capped_ms), capped_ms > self._pace_ms

    def gave(self, buckets: Iterable[int]) -> None:
        """There are results in these."""
        self._spacing.seen(buckets)

    def is_awaited(self, after: int, complete: int) -> bool:
        """BP3. Whether the next results of a query that has run up to ``after`` can be had now,
        and should not wait.
        """
        spacing = self._spacing
        return spacing.is_sparse(self._rules.width_ms, self._pace_ms) and spacing.expected(
            after, complete
        )

    def waits(self, plan: Plan, complete: int, now_ms: int) -> bool:
        """BP4. Whether ``plan``, of what is ``complete``, is quiet, and its time has not come."""
        if now_ms >= self._quiet_from_ms:
            return False
        if not self._traits.is_stateful:
            return not plan.rows
        return (
            plan.rows <= QUIET_ROWS_MAX
            and plan.after.bucket == complete
            and not self._spacing.expected(plan.before.bucket, plan.after.bucket)
        )

    def begins(self, now_ms: int) -> None:
        """A batch does. One that is not batch-safe takes too little for any to wait."""
        if self._traits.is_batch_safe:
            self._quiet_from_ms = now_ms + self._rules.quiet_every_ms


CORRECTION_TURN_MS: Final = 1_000
"""A replica that could correct leaves so much time to those with lower ids that could, too,
and are not heard to yet.
"""

CORRECTION_STALL_MS: Final = 30_000
"""A replica that corrects, or could, without progress for so long is not waited for: one that
hangs must not keep all others waiting.
"""


class Why(Enum):
    """Why the gate is open or closed: the row of ``GATE`` that decided."""

    NOTHING_WANTED = 1
    GOES_ON = 2
    ANOTHER_CORRECTS = 3
    ANOTHER_IS_FIRST = 4
    OWN_TURN = 5
    WAITING = 6


@dataclass(frozen=True, slots=True)
class _Seen:
    """What one look at the gate is decided by. Peers are those that are alive and have not
    stalled.
    """

    is_wanted: bool
    was_open: bool
    lower_corrects: bool
    """A peer with a lower id does."""
    peer_corrects: bool
    lower_could: bool
    """A peer with a lower id could correct."""
    could_be_heard: bool
    """Who lives and could correct as early can have been heard by now."""


GATE: Final[tuple[tuple[Why, Callable[[_Seen], bool]], ...]] = (
    (Why.NOTHING_WANTED, lambda seen: not seen.is_wanted),
    (Why.GOES_ON, lambda seen: seen.was_open and not seen.lower_corrects),
    (Why.ANOTHER_CORRECTS, lambda seen: seen.peer_corrects),
    (Why.ANOTHER_IS_FIRST, lambda seen: seen.lower_could),
    (Why.OWN_TURN, lambda seen: seen.could_be_heard),
    (Why.WAITING, lambda _: True),
)
"""The first row that holds decides."""

OPEN: Final = frozenset({Why.GOES_ON, Why.OWN_TURN})


class CorrectionGate:
    """One replica: may it correct at full speed? Not thread-safe. Times are
    of the monotonic clock.

    After a restart nothing is wanted.
    """

    def __init__(self, stage: str, replica: str, detector: FailureDetector) -> None:
        """``detector``: what is heard of the replicas of ``stage``."""
        self.why = Why.NOTHING_WANTED
        """What decided at the last look."""
        self._stage = stage
        self._replica = replica
        self._detector = detector
        self._has_peers = detector.replicas(REPLICA_SERVICE, stage) not in ([], [replica])
        self._wanted_at: int | None = None

    @property
    def corrects(self) -> bool:
        """For the heartbeat: the gate was open at the last look."""
        return self._wanted_at is not None and self.why in OPEN

    def want(self, monotonic_ms: int) -> None:
        """Corrections are possible. Again: nothing changes."""
        at = self._detector.look(monotonic_ms)
        if self._wanted_at is None:
            self._wanted_at = at
            self.why = Why.WAITING

    def done(self) -> None:
        """Corrections are made, or not possible any more."""
        self._wanted_at = None
        self.why = Why.NOTHING_WANTED

    def peer_serves(self, monotonic_ms: int) -> bool:
        """Whether another replica of the stage is alive that gives new results: one that does
        not correct at full speed.
        """
        alive = self._peers(monotonic_ms).values()
        return any(
            ReplicaState.heard(beat.replica_state) is not ReplicaState.FAILURE and not beat.corrects
            for beat in alive
        )

    def open(self, monotonic_ms: int) -> bool:
        """Whether to correct at full speed now. Call it again and again: it may close."""
        seen = self._seen(monotonic_ms)
        self.why = next(why for why, holds in GATE if holds(seen))
        return self.why in OPEN

    def _peers(self, monotonic_ms: int) -> dict[str, Heartbeat]:
        alive = self._detector.alive(REPLICA_SERVICE, self._stage, monotonic_ms)
        return {replica: beat for replica, beat in alive.items() if replica != self._replica}

    def _seen(self, monotonic_ms: int) -> _Seen:
        at, wanted_at = self._detector.look(monotonic_ms), self._wanted_at
        alive = self._peers(monotonic_ms)
        able = {
            replica: beat
            for replica, beat in alive.items()
            if not self._detector.stalled(
                Peer(REPLICA_SERVICE, self._stage, replica), CORRECTION_STALL_MS, monotonic_ms
            )
        }
        correcting = [replica for replica, beat in able.items() if beat.corrects]
        turn_ms = CORRECTION_TURN_MS if any(r < self._replica for r in alive) else 0
        heard_at = FAILURE_AFTER_MS if self._has_peers else 0
        return _Seen(
            is_wanted=wanted_at is not None,
            was_open=self.why in OPEN,
            lower_corrects=any(r < self._replica for r in correcting),
            peer_corrects=bool(correcting),
            lower_could=any(
                r < self._replica and beat.replica_state == ReplicaState.STABILIZATION
                for r, beat in able.items()
            ),
            could_be_heard=wanted_at is not None and at >= max(wanted_at + turn_ms, heard_at),
        )


CORRECTION_STEP_MS: Final = 10_000
"""Over so long a correction must have come nearer, or its branch leaves it more of the cores:
longer than a few batches and what varies with them.
"""

CORRECTION_STEPS_SERVED: Final = 2
"""Such steps without coming nearer after which a branch is suspended where a peer serves, or where
it cannot hold its bound either: one of them was paced.
"""

CORRECTION_STEPS_ALONE: Final = 4
"""The same where the branch is all that serves new results in time: without an end to it the
results before would never be corrected.
"""


class Pace(Enum):
    """How a branch runs."""

    FREE = "free"
    PACED = "paced"
    """Only when the bound of its results asks for it."""
    SUSPENDED = "suspended"


class CorrectionWatch:
    """Of one replica. ``now_ms`` is monotonic."""

    def __init__(self) -> None:
        self._steps = 0
        """Over which the lag did not shrink, in this correction (PA2)."""
        self._began: tuple[int, int] | None = None
        """When the step that runs began, and the lag then."""
        self._late = False

    def lags(self, now_ms: int, buckets: int) -> None:
        """The correction goes on, and is so far behind."""
        if self._began is None:
            self._began = now_ms, buckets
        elif now_ms - self._began[0] >= CORRECTION_STEP_MS:
            self._steps += buckets >= self._began[1]
            self._began = now_ms, buckets

    def waits(self) -> None:
        """It has to wait for its turn: the step that runs says nothing."""
        self._began = None

    def branch_is_late(self) -> None:
        """The branch, paced, does not hold the bound."""
        self._late = True

    def ended(self) -> None:
        """There is nothing to correct, or nothing to correct it from (PA3)."""
        self._steps = 0
        self._began = None
        self._late = False

    def pace(self, *, peer_serves: bool) -> Pace:
        """How the branch runs now. ``peer_serves``: another replica of the stage gives new
        results.
        """
        if self._steps == 0:
            return Pace.FREE
        steps_max = CORRECTION_STEPS_SERVED if peer_serves or self._late else CORRECTION_STEPS_ALONE
        return Pace.PACED if self._steps < steps_max else Pace.SUSPENDED
