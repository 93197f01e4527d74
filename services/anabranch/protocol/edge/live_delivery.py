"""Delivery of the live topic: what is known now, marked tentative where input was missing, then the
corrections (rules 19, 20).

Theory of operation. Two sequences meet here: the stable buckets of a stream, which never change,
and the tentative ones that a chosen replica offers beyond them. Delivery writes *transactions*.
Each is wholly in the topic or not at all, and holds a ``LiveProgress``; so its replacement
fences the older writer, reads the newest progress that is committed, and goes on from there: no ids
are compared.

The first tentative bucket that is shown begins a *failure*; ``rec_done`` ends it. What a
transaction holds follows from where in a failure the topic stands and from what there is
(``TABLE``); the parts of a transaction come in this order:

    undo            once per failure, with its first correction; names the last stable record: every tentative record before it is void
    insertions      stable buckets, whole
    tentative       with an undo, the buckets shown before that are not corrected yet, once more; then new ones
    rec_done        stable has reached the last tentative bucket that was shown, no stable bucket waits, and the stage has settled
    boundary        always, last: stable up to here, which voids what is tentative up to here; shown up to here

New tentative buckets go into the same transaction as corrections, so neither waits for the other. A
transaction is bounded, except that a bucket is never split, since a reader would count a half
corrected bucket twice, and that what an undo voids must come again with it.

After a failure the replicas of a stage correct one after the other. One that is done says STABLE
and makes stable buckets while a peer's branch still makes tentative ones of the same input, often a
moment earlier. Shown at once, they would begin a new failure on the live topic, with an undo, that
is none. So while a peer says STABLE a tentative bucket is held back (``Hold``), but not for long:
what a replica says of itself decides about this much time, never about a record.

How long depends on how much of its delay the bucket has used. The first bucket of a new branch has
had the stage's whole first wait, so little is left: ``LIVE_HOLD_MS``. A branch that ran already
when the end of its failure was told takes later buckets after the short wait; for those the
difference between the waits is left, and while the topic stands outside a failure they may be held
for it: if the input is missing again, the stable peer forks after its own first wait, which is no
later.

Which branches ran is remembered in memory only. After a restart of delivery every branch is taken
for a new one. The other way round a branch that began between the last correction and the telling
of the end is taken for an old one, though its first bucket has had the long wait: it is held until
the peer forks, whose wait began with the same sign.

Invariants:
    LD1 stable buckets are delivered in order, whole, once; none is ever retracted.
    LD2 a tentative bucket is above every stable one that is delivered *or known*, and is shown once
        between two undos.
    LD3 at most one undo per failure, in the transaction of its first correction, naming the last
        stable record before it.
    LD4 the transaction with the undo shows everything again that was shown and is not corrected in
        it (rule 20), up to UNDO_ROWS_MAX records: beyond that the oldest tentative buckets are
        missing from the live answer until they are corrected.
    LD5 rec_done comes when stable has reached the last tentative bucket shown and every stable
        bucket known then, and the stage says that it has settled: corrections are over. So what is
        tentative while a backlog of corrections is made or delivered belongs to the same failure,
        and waits for nothing. A stage that is not heard holds nothing up.
    LD6 outside a failure nothing tentative is shown while a stable bucket waits.
    LD7 ``sequence`` grows by one with every transaction: a reader of several partitions can tell
        which boundaries belong together.
    LH1 nothing is held while no peer says STABLE.
    LH2 a bucket is held for at most ``LIVE_HOLD_MS`` from when it could first be shown; one of a
        branch whose failure is over, outside a failure, for at most what the stage's later wait is
        shorter than its first one, if that is more.
    LH3 so a later bucket is not shown later than a first one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from anabranch.protocol.control.replica_states import ReplicaState
from anabranch.protocol.errors import ConfigurationError, LocalProtocolError
from anabranch.protocol.identifiers import RecordId
from anabranch.protocol.limits import (
    DELIVERY_BUCKETS_MAX,
    LIVE_HOLD_MS,
    LIVE_ROWS_MAX,
    UNDO_ROWS_MAX,
)
from anabranch.protocol.log.records import BranchNumber
from anabranch.protocol.stage.availability import BucketTimers, Policy, Waits

Sizes = Iterable[tuple[int, int]]
"""(bucket, rows) of buckets that are not empty. Read only as far as needed."""


class Kind(Enum):
    """What a record of the live topic is: the value of its header."""

    INSERTION = "insertion"
    TENTATIVE = "tentative"
    UNDO = "undo"
    BOUNDARY = "boundary"
    REC_DONE = "rec_done"


class Failure(Enum):
    """Where in a failure the topic stands."""

    NONE = "none"
    SHOWN = "tentative buckets are shown"
    UNDONE = "corrections have begun"


class Action(Enum):
    """What the next transaction holds, beside its boundary."""

    NOTHING = "nothing"
    INSERT = "insertions"
    SHOW = "new tentative buckets"
    UNDO = "undo, insertions, what is shown and not corrected, new tentative buckets"
    CORRECT = "insertions, new tentative buckets"
    END = "rec_done"


@dataclass(frozen=True, slots=True)
class Row:
    """If the topic stands at ``failure`` (None: wherever), and stable or tentative buckets
    are there, or all is corrected (None: either).
    """

    number: int
    failure: Failure | None
    stable: bool | None
    tentative: bool | None
    corrected: bool | None
    action: Action


TABLE: Final = (
    Row(1, None, False, False, False, Action.NOTHING),
    Row(2, None, False, True, None, Action.SHOW),
    Row(3, Failure.NONE, True, None, None, Action.INSERT),
    Row(4, Failure.SHOWN, True, None, None, Action.UNDO),
    Row(5, Failure.UNDONE, True, None, None, Action.CORRECT),
    Row(6, None, False, False, True, Action.END),
)


def decide(failure: Failure, *, stable: bool, tentative: bool, corrected: bool) -> Row:
    """The row of ``TABLE`` that fits: exactly one does. ``corrected``: a failure is shown
    that is over.
    """
    return next(
        row
        for row in TABLE
        if row.failure in (None, failure)
        and row.stable in (None, stable)
        and row.tentative in (None, tentative)
        and row.corrected in (None, corrected)
    )


@dataclass(frozen=True, slots=True)
class LiveProgress:
    """How far the live topic of an output is (rule 19): in every transaction, and so true of
    what committed readers see.
    """

    output: str
    partitions: int
    """Of the topic: a record's key decides its partition, so their number must not change."""
    sequence: int
    """Of the transaction (LD7); 0: only the place to begin at was recorded."""
    stable: int
    """Every bucket up to this one was delivered as stable, or was before the topic began."""
    shown: int = 0
    """The last tentative bucket of this failure; 0: there is no failure."""
    undone: bool = False
    """The undo of this failure was sent."""
    last_bucket: int = 0
    """Bucket of the last stable record; 0: none yet."""
    last_position: int = 0
    """Its position."""
    written_ms: int = 0

    @property
    def failure(self) -> Failure:
        """Where in a failure the topic stands."""
        if self.shown == 0:
            return Failure.NONE
        return Failure.UNDONE if self.undone else Failure.SHOWN

    @property
    def last(self) -> RecordId | None:
        """The last stable record delivered; None: there was none."""
        return RecordId(self.last_bucket, self.last_position) if self.last_bucket else None


@dataclass(frozen=True, slots=True)
class LiveRun:
    """One transaction. Buckets that are named are not empty; the empty ones between them need
    no record.
    """

    before: LiveProgress
    after: LiveProgress
    """``written_ms`` is the writer's to fill."""
    row: Row
    stable: tuple[int, ...] = ()
    again: tuple[int, ...] = ()
    """Tentative, shown before and voided by this transaction's undo."""
    tentative: tuple[int, ...] = ()
    """Tentative, new."""
    rec_done: bool = False

    @property
    def undo(self) -> bool:
        """Whether it begins with an undo, of everything after ``before.last``."""
        return self.row.action is Action.UNDO


@dataclass(frozen=True, slots=True)
class Available:
    """What the boundary log has for the live topic."""

    upto: int
    """Every bucket up to this one is stable."""
    stable: Sizes
    """All non-empty ones after the last one delivered, up to ``upto``, ascending."""
    tentative_upto: int = 0
    """The chosen replica offers tentative buckets up to this one; 0: nobody is chosen."""
    tentative: Sizes = ()
    """Of the chosen replica: above ``upto`` and what was shown, up to ``tentative_upto``,
    ascending.
    """
    shown: Sizes = ()
    """Above ``upto``, up to what was shown, from anyone who has them: the newest first."""
    settled: bool = True
    """The stage says of no corrections that they are still to come
    (``upstream_selection.awaits_corrections``).
    """


def resumed(progress: LiveProgress, partitions: int) -> LiveProgress:
    """``progress``, as read after fencing, if the topic is still the one that it tells of.

    Raises:
        ConfigurationError: the topic has another number of partitions.
    """
    if progress.partitions != partitions:
        raise ConfigurationError(
            f"output {progress.output}: its live topic has {partitions} partitions, delivery began"
            f" with {progress.partitions}; records of a key would move to another partition:"
            " deliver to a new topic, under a new output name"
        )
    return progress


class LiveDelivery:
    """One failover of an output's live topic: made after the older writer was fenced, given
    up when an outcome is unknown.
    """

    def __init__(self, progress: LiveProgress) -> None:
        """``progress``: the newest that is committed, or where to begin."""
        self.progress = progress

    def plan(self, there: Available) -> LiveRun | None:
        """The next transaction; None: nothing to say."""
        now = self.progress
        wanted = there.tentative_upto > max(there.upto, now.stable, now.shown)
        row = decide(
            now.failure,
            stable=there.upto > now.stable,
            tentative=wanted,
            corrected=self._is_over(now, there),
        )
        if row.action is Action.NOTHING:
            return None
        after = replace(now, sequence=now.sequence + 1)
        stable: list[tuple[int, int]] = []
        again: tuple[int, ...] = ()
        if row.stable:
            rows_left = UNDO_ROWS_MAX
            if row.action is Action.UNDO:
                again, rows_left = self._again(there.shown)
                after = replace(after, undone=True)
            stable, end = self._insertions(there, rows_left)
            after = replace(after, stable=end)
            if stable:
                after = replace(after, last_bucket=stable[-1][0], last_position=stable[-1][1] - 1)
        new: tuple[int, ...] = ()
        if wanted and row.action is not Action.INSERT:
            new, end = self._new(there)
            after = replace(after, shown=end)
        rec_done = self._is_over(after, there)
        if rec_done:
            after = replace(after, shown=0, undone=False)
        return LiveRun(
            now, after, row, tuple([bucket for bucket, _ in stable]), again, new, rec_done
        )

    def advance(self, run: LiveRun) -> None:
        """``run`` is committed.

        Raises:
            LocalProtocolError: it was not planned on what is delivered now.
        """
        if run.before != self.progress:
            raise LocalProtocolError(
                f"live transaction {run.after.sequence} of output {run.after.output} is not the"
                " next one"
            )
        self.progress = run.after

    @staticmethod
    def _is_over(at: LiveProgress, there: Available) -> bool:
        """LD5."""
        return there.settled and 0 < at.shown <= at.stable and at.stable >= there.upto

    @staticmethod
    def _again(shown: Sizes) -> tuple[tuple[int, ...], int]:
        """LD4: what the undo would void, ascending; and how many records are left for its
        insertions.
        """
        left = UNDO_ROWS_MAX
        kept: list[int] = []
        for bucket, rows in shown:
            if rows > left:
                left = 0
                break
            left -= rows
            kept.append(bucket)
        return tuple(reversed(kept)), left

    def _insertions(self, there: Available, rows_left: int) -> tuple[list[tuple[int, int]], int]:
        """LD1: the next stable buckets, and the bucket up to which stable is delivered with
        them. What an undo voids comes with it.
        """
        voided_upto = self.progress.shown if self.progress.failure is Failure.SHOWN else 0
        taken: list[tuple[int, int]] = []
        sum_rows = 0
        for bucket, rows in there.stable:
            sum_rows += rows
            limits = (
                (rows_left, UNDO_ROWS_MAX)
                if bucket <= voided_upto
                else (LIVE_ROWS_MAX, DELIVERY_BUCKETS_MAX)
            )
            if taken and (sum_rows > limits[0] or len(taken) >= limits[1]):
                return taken, taken[-1][0]
            taken.append((bucket, rows))
        return taken, there.upto

    @staticmethod
    def _new(there: Available) -> tuple[tuple[int, ...], int]:
        """LD2: tentative buckets that were not shown yet, and the bucket up to which they are
        shown with them.
        """
        taken: list[int] = []
        left = LIVE_ROWS_MAX
        for bucket, rows in there.tentative:
            left -= rows
            if taken and (left < 0 or len(taken) >= DELIVERY_BUCKETS_MAX):
                return tuple(taken), taken[-1]
            taken.append(bucket)
        return tuple(taken), there.tentative_upto


@dataclass(frozen=True, slots=True)
class Offer:
    """Tentative buckets of a replica that could be shown."""

    replica: str
    branch: BranchNumber | None
    """The newest one of the replica; None: not known."""
    first: int
    last: int


class Hold:
    """Of one output. ``now_ms`` is monotonic."""

    def __init__(self, waits: Waits, policy: Policy) -> None:
        """``waits`` and ``policy`` of the stage that makes the output."""
        saved_ms = waits.first_ms - waits.next_ms if policy is Policy.PROCESS else 0
        self._long_ms = max(LIVE_HOLD_MS, saved_ms)
        self._over: dict[str, BranchNumber] = {}
        """Per replica: its branches up to this one were for failures that are over."""
        self._offered = BucketTimers()
        """The timer of bucket n started when bucket n - 1 could first be shown."""

    def failure_ended(self, branches: Mapping[str, BranchNumber | None]) -> None:
        """The end of a failure was told. ``branches``: the newest one of each replica; None:
        it never had one.
        """
        self._over = {replica: number for replica, number in branches.items() if number is not None}

    def left_ms(
        self, offer: Offer, states: Mapping[str, ReplicaState], now_ms: int, *, failing: bool
    ) -> int:
        """How long to wait with what is offered; 0: show it.

        Args:
            offer: What could be shown.
            states: What each replica says of itself.
            now_ms: Now.
            failing: A failure is shown: more of it begins none.

        Raises:
            LocalProtocolError: nothing is offered.
        """
        self._offered.observe(now_ms, offer.last)
        self._offered.forget(offer.first)
        since_ms = self._offered.started(offer.first + 1)
        if since_ms is None:
            message = (
                f"tentative buckets {offer.first}..{offer.last} of {offer.replica} are none to be"
                " held"
            )
            raise LocalProtocolError(message)
        if not any(
            state is ReplicaState.STABLE
            for replica, state in states.items()
            if replica != offer.replica
        ):
            return 0
        newest_over = self._over.get(offer.replica)
        is_over = (
            newest_over is not None and offer.branch is not None and offer.branch <= newest_over
        )
        hold_ms = self._long_ms if is_over and not failing else LIVE_HOLD_MS
        return max(0, since_ms + hold_ms - now_ms)
