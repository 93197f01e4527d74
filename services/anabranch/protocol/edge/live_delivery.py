"""Delivery of the live topic: what is known now, marked tentative where input was missing, then the
corrections (rules 19, 20).

Theory of operation. Two sequences meet here: the stable buckets of a stream, which never change,
and the tentative ones that a chosen replica offers beyond them. Delivery writes *transactions*.
Each is wholly in the topic or not at all, and holds a ``LiveProgress``; so its replacement
fences the older writer, reads the newest progress that is committed, and continues from there: no
ids are compared.

The first tentative bucket that is shown begins a *failure*; ``rec_done`` ends it. The contents of a
transaction follow from the phase of the failure and from what waits to be delivered (``TABLE``).
The parts of a transaction come in this order:

    undo            once per failure, with its first correction; names the last stable record: every
                    tentative record before it is void
    insertions      stable buckets, whole
    tentative       with an undo, the buckets shown before that are not corrected yet, once more;
                    then new ones
    rec_done        stable has reached the last tentative bucket that was shown, no stable bucket
                    waits, and no branch of the stage runs
    boundary        always, last: stable up to here, which voids what is tentative up to here; shown
                    up to here

New tentative buckets go into the same transaction as corrections, so neither waits for the other. A
transaction is bounded, except that a bucket is never split, since a reader would count a half
corrected bucket twice, and that what an undo voids must come again with it.

After a failure the replicas of a stage correct one after the other. While the first is done, and
the others have still to correct, their branches run on. So the end of a failure is the end of the
last branch, as the boundary log says it (``branching``): what these branches show until then
belongs to the failure, and no other one begins. Every reader of the log, also one that begins
later, finds the same end.

A branch may run on for as long as its replica lives, where its own corrections never end. Its
results are not needed: stable buckets come in time without them. So once all that was shown is
corrected, the end of a failure waits for branches no longer than ``REC_DONE_WAIT_MS``.

``protocol.edge.live_choice`` decides which replica's tentative buckets are shown, and when.

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
        bucket known then, and no branch of the stage runs: corrections are over. So what is
        tentative while a backlog of corrections is made or delivered belongs to the same failure,
        and waits for nothing. A replica that counts as dead holds nothing up; one that lives does
        for at most REC_DONE_WAIT_MS from when stable has come so far, or a replacement of this
        process has.
    LD6 outside a failure nothing tentative is shown while a stable bucket waits.
    LD7 ``sequence`` grows by one with every transaction: a reader of several partitions can tell
        which boundaries belong together.
    LD8 a failure begins only on what the boundary log held when it was read to its end: a process
        that wakes from a pause reads first, then judges.
    LD9 no record is left out before the topic has rejected one: compression may make a large one
        small enough. Then those above the topic's limit are, and with each further rejection those
        above half as much; once even control records are rejected, which are never left out, all
        are tried again, until a person acts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from anabranch.protocol.errors import ConfigurationError, LocalProtocolError
from anabranch.protocol.identifiers import RecordId
from anabranch.protocol.limits import DELIVERY_BUCKETS_MAX
from anabranch.protocol.log.boundary_log import LogState

LIVE_ROWS_MAX: Final = 3_000
"""Rows of stable, and of new tentative, buckets that one live transaction takes beyond the
first: what comes next waits so long for it.
"""

UNDO_ROWS_MAX: Final = 1_000_000
"""Rows of the live transaction that begins corrections, which shows again what is not corrected: it
must end well below the transaction time-out, or it would never end.
"""

REC_DONE_WAIT_MS: Final = 120_000
"""Time for which the end of a failure waits for branches of live replicas, once all that was shown
is corrected, in ms. Most end when their replicas have made the same corrections once more, one
after the other.
"""

Sizes = Iterable[tuple[int, int]]
"""Pairs (bucket, rows) of buckets that are not empty. Read only as far as needed."""


class Kind(Enum):
    """Kind of a record of the live topic: the value of its header."""

    INSERTION = "insertion"
    TENTATIVE = "tentative"
    UNDO = "undo"
    BOUNDARY = "boundary"
    REC_DONE = "rec_done"


class Failure(Enum):
    """Phase of a failure, as the topic shows it."""

    NONE = "none"
    SHOWN = "tentative buckets are shown"
    UNDONE = "corrections have begun"


class LiveAction(Enum):
    """Content of the next transaction, besides its boundary."""

    NOTHING = "nothing"
    INSERT = "insertions"
    SHOW = "new tentative buckets"
    UNDO = "undo, insertions, what is shown and not corrected, new tentative buckets"
    CORRECT = "insertions, new tentative buckets"
    END = "rec_done"


def fitting_bytes(before: int | None, accepted: int) -> int | None:
    """Return the size, in bytes, above which records are left out after the topic has rejected one
    (LD9). None: none is left out.

    Args:
        before: The size above which they were left out when it was rejected; None: none was.
        accepted: Maximum size of a record by the topic's setting, in bytes.
    """
    return (accepted if before is None else before // 2) or None


def live_begins_after(
    recorded: int, forgotten: int, begun: int | None, *, has_delivered: bool
) -> int:
    """Return the bucket after which a live topic begins to which nothing was written yet.

    Args:
        recorded: Last bucket that the corrected topic has whole, or leaves out.
        forgotten: Last bucket that the log state no longer describes.
        begun: Bucket after which an earlier process began the topic; None: none did.
        has_delivered: Whether the corrected topic has any result: then ``begun`` stays valid, even
            if more is deleted by now.
    """
    if begun is None:
        return max(recorded, forgotten)
    return begun if has_delivered else max(begun, recorded)


@dataclass(frozen=True, slots=True)
class LiveCase:
    """Row of the table of actions. It holds if the topic is in ``failure`` (None: in any), if
    stable or tentative buckets are there, and if all is corrected (None: either).
    """

    number: int
    failure: Failure | None
    stable: bool | None
    tentative: bool | None
    corrected: bool | None
    action: LiveAction


TABLE: Final = (
    LiveCase(1, None, False, False, False, LiveAction.NOTHING),
    LiveCase(2, None, False, True, None, LiveAction.SHOW),
    LiveCase(3, Failure.NONE, True, None, None, LiveAction.INSERT),
    LiveCase(4, Failure.SHOWN, True, None, None, LiveAction.UNDO),
    LiveCase(5, Failure.UNDONE, True, None, None, LiveAction.CORRECT),
    LiveCase(6, None, False, False, True, LiveAction.END),
)


def decide(failure: Failure, *, stable: bool, tentative: bool, corrected: bool) -> LiveCase:
    """Return the row of ``TABLE`` that fits: exactly one does. ``corrected``: a failure is shown
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
    """Progress of an output's live topic (rule 19). Each transaction contains one, so it is true of
    the records that read_committed readers see.
    """

    output: str
    partitions: int
    """Number of the topic's partitions: a record's key decides its partition, so the number must
    not change.
    """
    sequence: int
    """Number of the transaction (LD7); 0 if only the place to begin at was recorded."""
    stable: int
    """Every bucket up to this one was delivered as stable, or was before the topic began."""
    shown: int = 0
    """Last tentative bucket that this failure has shown; 0 outside of a failure."""
    undone: bool = False
    """The undo of this failure was sent."""
    last_bucket: int = 0
    """Bucket of the last stable record; 0: none yet."""
    last_position: int = 0
    """Position of the last stable record in ``last_bucket``."""
    written_ms: int = 0
    life: str = ""
    """Life of the output's stream in which this was recorded (``protocol.edge.origins``)."""

    @property
    def failure(self) -> Failure:
        """Phase of a failure, as the topic shows it."""
        if self.shown == 0:
            return Failure.NONE
        return Failure.UNDONE if self.undone else Failure.SHOWN

    @property
    def last(self) -> RecordId | None:
        """Last stable record that was delivered; None before the first."""
        return RecordId(self.last_bucket, self.last_position) if self.last_bucket else None


@dataclass(frozen=True, slots=True)
class LiveRun:
    """Content of one transaction. Named buckets are not empty; the empty ones between them need no
    record.
    """

    before: LiveProgress
    after: LiveProgress
    """Progress after the transaction; the writer fills in ``written_ms``."""
    row: LiveCase
    stable: tuple[int, ...] = ()
    again: tuple[int, ...] = ()
    """Tentative buckets that were shown before and that this transaction's undo voids."""
    tentative: tuple[int, ...] = ()
    """Tentative buckets that are shown for the first time."""
    rec_done: bool = False

    @property
    def begins_failure(self) -> bool:
        """Whether it shows the first tentative bucket of a failure: plan it only on a log that was
        read to its end (LD8).
        """
        return self.before.failure is Failure.NONE and self.after.failure is not Failure.NONE

    @property
    def undo(self) -> bool:
        """Whether it begins with an undo, of everything after ``before.last``."""
        return self.row.action is LiveAction.UNDO


@dataclass(frozen=True, slots=True)
class Available:
    """Content of the boundary log for the live topic."""

    upto: int
    """Every bucket up to this one is stable."""
    stable: Sizes
    """Sizes of the non-empty stable buckets after the last delivered one, up to ``upto``,
    ascending.
    """
    tentative_upto: int = 0
    """Last tentative bucket that the chosen replica offers; 0 while none is chosen."""
    tentative: Sizes = ()
    """Sizes of the chosen replica's tentative buckets: above ``upto`` and what was shown, up to
    ``tentative_upto``, ascending.
    """
    shown: Sizes = ()
    """Sizes of the shown buckets above ``upto``, from any replica that has them, the newest
    first.
    """
    settled: bool = True
    """No branch of the stage runs (``branching``)."""
    now_ms: int = 0
    """Time at which this was read, by a clock that does not go back, in ms."""


def branching(log_state: LogState, silent: Collection[str]) -> list[str]:
    """Return the replicas whose branch runs. ``silent``: those that count as dead."""
    return [
        replica
        for replica in log_state.writers
        if replica not in silent and log_state.has_branch(replica)
    ]


def resumed(progress: LiveProgress, partitions: int) -> LiveProgress:
    """Return ``progress``, read after fencing, if the topic still has the partitions that it
    names.

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
    """Delivery to a live topic between two failovers: created after the older writer was fenced,
    discarded when an outcome is unknown.
    """

    def __init__(self, progress: LiveProgress) -> None:
        """Continue from ``progress``: the newest that is committed, or where to begin."""
        self.progress = progress
        self._corrected_ms: int | None = None
        """Since when all that is shown is corrected (LD5); None: it is not, or nothing is shown."""

    def plan(self, there: Available) -> LiveRun | None:
        """Return the next transaction; None if nothing to say."""
        now = self.progress
        if not 0 < now.shown <= now.stable:  # a stable bucket that is new begins no wait anew
            self._corrected_ms = None
        elif self._corrected_ms is None:
            self._corrected_ms = there.now_ms
        wanted = there.tentative_upto > max(there.upto, now.stable, now.shown)
        row = decide(
            now.failure,
            stable=there.upto > now.stable,
            tentative=wanted,
            corrected=self._is_over(now, there),
        )
        if row.action is LiveAction.NOTHING:
            return None
        after = replace(now, sequence=now.sequence + 1)
        stable: list[tuple[int, int]] = []
        again: tuple[int, ...] = ()
        if row.stable:
            rows_left = UNDO_ROWS_MAX
            if row.action is LiveAction.UNDO:
                again, rows_left = self._again(there.shown)
                after = replace(after, undone=True)
            stable, end = self._insertions(there, rows_left)
            after = replace(after, stable=end)
            if stable:
                after = replace(after, last_bucket=stable[-1][0], last_position=stable[-1][1] - 1)
        new: tuple[int, ...] = ()
        if wanted and row.action is not LiveAction.INSERT:
            new, end = self._new(there)
            after = replace(after, shown=end)
        rec_done = self._is_over(after, there)
        if rec_done:
            after = replace(after, shown=0, undone=False)
        return LiveRun(
            now, after, row, tuple([bucket for bucket, _ in stable]), again, new, rec_done
        )

    def advance(self, run: LiveRun) -> None:
        """Record that ``run`` is committed.

        Raises:
            LocalProtocolError: ``run`` was not planned on what is delivered now.
        """
        if run.before != self.progress:
            raise LocalProtocolError(
                f"live transaction {run.after.sequence} of output {run.after.output} is not the"
                " next one"
            )
        self.progress = run.after

    @staticmethod
    def _is_corrected(at: LiveProgress, there: Available) -> bool:
        return 0 < at.shown <= at.stable and at.stable >= there.upto

    def _is_over(self, at: LiveProgress, there: Available) -> bool:
        """Return whether the failure that is shown is over (LD5)."""
        since_ms = self._corrected_ms
        has_waited = since_ms is not None and there.now_ms - since_ms >= REC_DONE_WAIT_MS
        return (there.settled or has_waited) and self._is_corrected(at, there)

    @staticmethod
    def _again(shown: Sizes) -> tuple[tuple[int, ...], int]:
        """Return the buckets that the undo voids and that are shown again, ascending, and the
        number of records left for the insertions of the same transaction (LD4).
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
        """Return the next stable buckets, and the bucket up to which stable ones are delivered with
        them (LD1). All buckets that an undo voids are included.
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
        """Return the next tentative buckets that were not shown yet, and the bucket up to which
        buckets are shown with them (LD2).
        """
        taken: list[int] = []
        left = LIVE_ROWS_MAX
        for bucket, rows in there.tentative:
            left -= rows
            if taken and (left < 0 or len(taken) >= DELIVERY_BUCKETS_MAX):
                return tuple(taken), taken[-1]
            taken.append(bucket)
        return tuple(taken), there.tentative_upto
