"""Sharing of the cores between queries: how often each begins a batch, which replica of a stage
corrects first, and how much its branch yields to the correction.

Theory of operation. Correctness does not depend on this module, only the age of results.

*Batches.* A small batch costs about SMALL_BATCH_MS of one core whatever it holds. So fewer and
larger ones are cheaper, and results get older by as much as batches are apart. A batch for each
bucket would keep the cores busy: queries would wait for one another, and results be no younger. So
batches are APART_TIMES as far apart as they take of the cores by themselves, whatever number of
replicas shares these.

If results are far apart, like those of a window, only the batch that publishes them matters. The
buckets with results are learnt by observation (``ResultSpacing``): windows end every n-th bucket.
The batch that completes such a bucket does not wait. One that completes none is *quiet*: it only
keeps the next one small and reports the progress of the stage, so it runs QUIET_READ_MS after the
last one if other stages read its boundary, otherwise QUIET_UNREAD_MS. A batch of a stage without
state is quiet if it reads no rows.

A stage that reads a stage gets its input at the pace of that one, but not evenly: the record of a
batch that takes longer comes later. If its own next batch had to be a whole pace after the late
one, the next input would come too early, and wait, and so would all after it: each stage of a chain
would lag by the longest batch of the one before it. So such a stage *keeps its slots*: its pace
counts from when a batch could have begun, not from when its input came. It then begins when a
record comes that completes a bucket, in step with the stage before it. How many batches there are
is decided by that stage, and by the pace as before. For a stage that reads only sources this would
be of no use: their buckets are closer together than batches, and the pace alone spaces these.

*Who corrects first.* Corrections cost as much as the results that they replace, and the replicas of
a stage become able to make them at the same moment. One after the other is better (DPC staggers its
replicas by requests; here each decides from the heartbeats of the others): the others keep their
cores for new, tentative results, and find the corrections done by the time it is their turn, since
any replica's stable bucket will do. A replica that could correct says so by its state
(STABILIZATION), and that it does (``corrects``). The first by id begins and continues to the end,
and then the next by id begins. Timeouts count observed time. A process reads the control topic
before it calls ``open``: it can take only those states into account that it has read.

Every check decides anew, by the first row of ``GATE`` that holds.

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
    BP6 an input that comes late delays one batch of a stage that reads a stage, and none after it
        for whose input it would be time. Over any time a query begins at most one batch more than
        with the pace alone, apart from those of BP3.
    CO1 of the replicas of a stage that receive each other's heartbeats two are open together for no
        longer than such a heartbeat takes.
    CO2 never do all wait for each other: of the replicas that want and are alive one opens within a
        bounded time, whether or not any peer lives or answers.
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
"""Shortest interval between batches, in ms. Closer batches would make results younger by less than
a bucket takes to close.
"""
APART_MOST_MS: Final = 1_000
"""Longest interval between batches, in ms. It adds to the age of results at every stage, so the
saving is bounded.
"""
SMALL_BATCH_MS: Final = 100
"""Time that a small batch takes on one core, in ms; measured."""
APART_TIMES: Final = 4
"""Divisor of the cores that batches may take: the rest is for rows, for the services, and for other
programs.
"""


def pace_ms(replicas: int, cores: int) -> int:
    """Return the shortest interval between the starts of two batches of a query, in ms, for
    ``replicas`` of stages that share ``cores`` (BP1, BP2).
    """
    wanted_ms = APART_TIMES * SMALL_BATCH_MS * replicas // cores
    return min(APART_MOST_MS, max(APART_LEAST_MS, wanted_ms))


QUIET_READ_MS: Final = HOP_MS // 2
"""Shortest time from any batch to a quiet one, in ms, if stages read what it closes. A batch costs
much the same whatever it holds, and one without results delays the next result.
"""
QUIET_UNREAD_MS: Final = APART_MOST_MS
"""Shortest time from any batch to a quiet one, in ms, if no other stage reads it."""
QUIET_ROWS_MAX: Final = 20_000
"""Number of rows above which a batch is never quiet: its rows cost more than the batch, and would
delay the results after them.
"""


def quiet_every_ms(*, is_read: bool, wait_ms: int) -> int:
    """Return the shortest time from any batch to a quiet one, in ms (BP4). ``is_read``: whether
    stages read this one, here or of other owners. ``wait_ms``: long wait of the stage for missing
    input.
    """
    return min(QUIET_READ_MS if is_read else QUIET_UNREAD_MS, wait_ms // 2)


class ResultSpacing:
    """Spacing of the buckets in which a stage has results, as far as observed."""

    def __init__(self) -> None:
        self._last = 0
        self.buckets = 0
        """Distance between two buckets that may have results, in buckets; 0 until it is known."""

    def seen(self, buckets: Iterable[int]) -> None:
        """Add ``buckets``, in order, to the buckets in which the stage has results."""
        for bucket in buckets:
            if self._last:
                self.buckets = gcd(self.buckets, bucket - self._last)
            self._last = bucket

    def expected(self, after: int, upto: int) -> bool:
        """Return whether a bucket in (``after``, ``upto``] may have results."""
        if not self.buckets:
            return True
        return (upto - self._last) // self.buckets > (after - self._last) // self.buckets

    def is_sparse(self, width_ms: int, pace_ms: int) -> bool:
        """Return whether fewer than every other batch of that pace has results (BP3)."""
        return self.buckets * width_ms >= 2 * pace_ms > 0


@dataclass(frozen=True, slots=True)
class BatchRules:
    """Timing and size of a query's batches."""

    width_ms: int
    """Width of a bucket, in ms."""
    rows_max: int = BATCH_ROWS_MAX
    pace_ms: int = 0
    """Shortest interval between the starts of two batches of a query, in ms, so that many replicas
    can share few cores: a batch costs much the same whatever it holds, so fewer and larger ones are
    cheaper.
    """
    quiet_every_ms: int = 0
    """Shortest time from any batch to one without results, in ms
    (``protocol.stage.scheduling``).
    """
    successor_after_ms: int = 0
    """Delay before a successor is started, in ms (SUCCESSOR_AFTER_MS)."""
    warm_up: bool = True
    """Whether a query that has nothing to run at its first request runs an empty batch."""
    rows_per_s: int = 0
    """Maximum average number of rows per second that a query takes (RE11); 0 for no limit."""
    reads_stages: bool = False
    """Whether an input is the stream of a stage, so that batches keep their slots (BP6)."""

    def batch_rows_max(self) -> int:
        """Return the maximum number of rows of one batch, beyond its first bucket: those of a
        second if there is a cap.
        """
        return min(self.rows_max, self.rows_per_s) if self.rows_per_s else self.rows_max


class BatchPacing:
    """Rests between the batches of one process's queries. While there is no branch, some batches of
    the stable query wait longer, and some less (BP3, BP4).
    """

    def __init__(self, rules: BatchRules, traits: PlanTraits) -> None:
        """Start without observed results: each process learns their spacing anew."""
        self._rules, self._traits = rules, traits
        self._pace_ms = rules.pace_ms if traits.is_batch_safe else 0
        self._spacing = ResultSpacing()
        self._quiet_from_ms = 0

    def next_at(self, due_ms: int, rows: int, now_ms: int) -> tuple[int, bool]:
        """Return the earliest start of the batch after one with ``rows`` that begins at ``now_ms``
        and could have begun at ``due_ms`` (BP6), and whether the cap makes it later than the pace
        requires.
        """
        per_s = self._rules.rows_per_s
        capped_ms = now_ms + (-(-rows * 1_000 // per_s) if per_s else 0)
        # One that was awaited (BP3) begins before its slot, and the pace counts from there.
        slot_ms = min(due_ms, now_ms) if self._rules.reads_stages else now_ms
        # Not earlier than now: time without any input gives no claim to batches in a row.
        paced_ms = max(now_ms, slot_ms + self._pace_ms)
        return max(paced_ms, capped_ms), capped_ms > paced_ms

    def gave(self, buckets: Iterable[int]) -> None:
        """Add buckets with results, in order."""
        self._spacing.seen(buckets)

    def is_awaited(self, after: int, complete: int) -> bool:
        """Return whether the next results of a query that has run up to ``after`` are complete and
        must not wait (BP3).
        """
        spacing = self._spacing
        return spacing.is_sparse(self._rules.width_ms, self._pace_ms) and spacing.expected(
            after, complete
        )

    def waits(self, plan: Plan, complete: int, now_ms: int) -> bool:
        """Return whether ``plan``, made when buckets up to ``complete`` were complete, is quiet and
        must wait (BP4).
        """
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
        """Record the start of a batch. Plans that are not batch-safe take too little per batch to
        wait.
        """
        if self._traits.is_batch_safe:
            self._quiet_from_ms = now_ms + self._rules.quiet_every_ms


CORRECTION_TURN_MS: Final = 1_000
"""Time that a replica that could correct leaves to those with lower ids, in ms: their states may
not have been received yet.
"""

CORRECTION_STALL_MS: Final = 30_000
"""Time without progress, in ms, after which the others no longer wait for a replica that corrects,
or could: one that hangs must not block them.
"""


class GateReason(Enum):
    """Reason why the gate is open or closed: the row of ``GATE`` that decided."""

    NOTHING_WANTED = 1
    GOES_ON = 2
    ANOTHER_CORRECTS = 3
    ANOTHER_IS_FIRST = 4
    OWN_TURN = 5
    WAITING = 6


@dataclass(frozen=True, slots=True)
class _Seen:
    """Facts that decide one check of the gate. Peers are those that are alive and have not
    stalled.
    """

    is_wanted: bool
    was_open: bool
    lower_corrects: bool
    """Whether a peer with a lower id corrects."""
    peer_corrects: bool
    lower_could: bool
    """Whether a peer with a lower id could correct."""
    could_be_heard: bool
    """Whether enough time has passed to receive the state of every live peer that could correct as
    early.
    """


GATE: Final[tuple[tuple[GateReason, Callable[[_Seen], bool]], ...]] = (
    (GateReason.NOTHING_WANTED, lambda seen: not seen.is_wanted),
    (GateReason.GOES_ON, lambda seen: seen.was_open and not seen.lower_corrects),
    (GateReason.ANOTHER_CORRECTS, lambda seen: seen.peer_corrects),
    (GateReason.ANOTHER_IS_FIRST, lambda seen: seen.lower_could),
    (GateReason.OWN_TURN, lambda seen: seen.could_be_heard),
    (GateReason.WAITING, lambda _: True),
)
"""Rows of (reason, condition); the first one whose condition holds decides."""

OPEN: Final = frozenset({GateReason.GOES_ON, GateReason.OWN_TURN})


class CorrectionGate:
    """Gate that lets one replica of a stage correct at full speed at a time. Not thread-safe. Times
    are of the monotonic clock.

    After a restart nothing is wanted.
    """

    def __init__(self, stage: str, replica: str, detector: FailureDetector) -> None:
        """Start closed. ``detector``: failure detector for the replicas of ``stage``."""
        self.why = GateReason.NOTHING_WANTED
        """Reason of the last check."""
        self._stage = stage
        self._replica = replica
        self._detector = detector
        self._has_peers = detector.replicas(REPLICA_SERVICE, stage) not in ([], [replica])
        self._wanted_at: int | None = None

    @property
    def corrects(self) -> bool:
        """Whether the gate was open at the last check; for the heartbeat."""
        return self._wanted_at is not None and self.why in OPEN

    def want(self, monotonic_ms: int) -> None:
        """Record that corrections are possible. Repeated calls change nothing."""
        at = self._detector.look(monotonic_ms)
        if self._wanted_at is None:
            self._wanted_at = at
            self.why = GateReason.WAITING

    def done(self) -> None:
        """Record that corrections are complete, or no longer possible."""
        self._wanted_at = None
        self.why = GateReason.NOTHING_WANTED

    def peer_serves(self, monotonic_ms: int) -> bool:
        """Return whether another live replica of the stage gives new results: one that does not
        correct at full speed.
        """
        alive = self._peers(monotonic_ms).values()
        return any(
            ReplicaState.parse(beat.replica_state) is not ReplicaState.FAILURE and not beat.corrects
            for beat in alive
        )

    def open(self, monotonic_ms: int) -> bool:
        """Return whether to correct at full speed now. Must be called repeatedly: the gate may
        close.
        """
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
"""Interval over which a correction's lag must shrink, in ms, or its branch yields more of the
cores. Longer than a few batches and their variation.
"""

CORRECTION_STEPS_SERVED: Final = 2
"""Number of steps without a shrinking lag after which a branch is suspended, if a peer serves, or
if the branch cannot hold its bound anyway. During one of them it was paced.
"""

CORRECTION_STEPS_ALONE: Final = 4
"""Number of such steps if only the branch serves new results in time. Bounded, because otherwise
the earlier results would never be corrected.
"""


class Pace(Enum):
    """Pace of a branch."""

    FREE = "free"
    PACED = "paced"
    """Runs only when the bound of its results requires a batch."""
    SUSPENDED = "suspended"


class CorrectionWatch:
    """Progress of one replica's correction. ``now_ms`` is monotonic."""

    def __init__(self) -> None:
        self.steps = 0
        """Number of steps of this correction over which the lag did not shrink (PA2)."""
        self._began: tuple[int, int] | None = None
        """Start of the current step, and the lag then."""
        self._late = False

    def lags(self, now_ms: int, buckets: int) -> None:
        """Record that the correction is ``buckets`` behind, or so many rows."""
        if self._began is None:
            self._began = now_ms, buckets
        elif now_ms - self._began[0] >= CORRECTION_STEP_MS:
            self.steps += buckets >= self._began[1]
            self._began = now_ms, buckets

    def waits(self) -> None:
        """Record that the correction waits for its turn: the current step does not count."""
        self._began = None

    def branch_is_late(self) -> None:
        """Record that the paced branch does not hold its bound."""
        self._late = True

    def ended(self) -> None:
        """Record that there is nothing to correct, or no input to correct it from (PA3)."""
        self.steps = 0
        self._began = None
        self._late = False

    def pace(self, *, peer_serves: bool) -> Pace:
        """Return the current pace of the branch. ``peer_serves``: whether another replica of the
        stage gives new results.
        """
        if self.steps == 0:
            return Pace.FREE
        steps_max = CORRECTION_STEPS_SERVED if peer_serves or self._late else CORRECTION_STEPS_ALONE
        return Pace.PACED if self.steps < steps_max else Pace.SUSPENDED
