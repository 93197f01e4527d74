"""Split of a shard into its two halves, with its state, while it runs: who decides what, when the
halves count, and from which streams a reader takes a bucket.

Theory of operation. A shard is an interval of the hash of the key (``protocol.stage.intervals``).
Its *halves* are shards of their own, with streams of their own, whose names follow from its name.
They begin in a copy of the shard's state and run beside it, unread, until it is proven that both
together make what the shard makes. Then the shard ends, and readers continue with the halves.

*Two logs decide.* In the log of moves an operator or the scaler states that a split is ``WANTED``.
The offset of that record is the number of the *attempt*. A process of the shard answers it with
``CONFIRMED`` or ``WITHDRAWN``; the first answer in the log counts (``AFTER``). After a
confirmation the attempt cannot be withdrawn any more, and a process of the shard *ends* its stream:
the record in the shard's boundary log names two heirs, and no other record counts after it (BL20).
Until then the shard counts, whatever the halves have made; from then on the halves count, whatever
becomes of the shard. Any process may die between any two of these records: whichever process of
the shard begins next reads both logs and does what is due. A process that was replaced cannot end
the stream, because its epoch is old (BL1); an answer of it counts only as the first one to this
attempt, and is then as good as that of another process.

*The beginning of a half.* It copies a checkpoint of the shard whose record is a clean point of the
shard's log (``protocol.stage.recovery``), made under the same plan with the parent's share
(``parent_text``). From there on it takes only input rows of its interval, and drops results of
other keys: their state came with the copy, still closes windows and fires timers, and leaves as it
expires. The copy names the results after its bucket. A bucket of which the shard had named rows
before that is incomplete in the half, so the half's first record closes all buckets up to the base
of the clean point empty: they are *void*. The base is stable in the shard's stream when the half
begins, so no void bucket comes after the cutover. A half that loses its state begins again in the
same way, as long as the store has a checkpoint of the shard, also after the end.

*The proof.* Digests are sums: of every bucket that all three have closed the sums of rows and
digests of the halves are those of the shard. One difference withdraws the attempt, and names the
bucket: the function does not work key by key. No reader has seen a row of the halves. Equal sums in
``PROVEN_BUCKETS`` buckets, of which at least one has rows, confirm it, once the halves are as far
as the shard but for ``REACH_BUCKETS``: so results do not pause at the cutover.

*Reading.* A reader takes the shard's stream up to the last bucket that was stable when it ended,
and after that the streams of the halves. A plan never reaches beyond that bucket, so a batch takes
all streams of an input up to the same bucket, or none (PN1).

Invariants:
    HV1 an attempt has one answer: the first one in the log that names its number. A split that is
        wanted while another attempt for this shard is open, or confirmed, is that attempt.
    HV2 the stream of a shard ends only after a confirmation that counts.
    HV3 a half stops only if its attempt was withdrawn, and then the shard's stream never ends by
        this attempt.
    HV4 an attempt is confirmed only if ``PROVEN_BUCKETS`` buckets were compared since both halves
        last began, at least one of them with rows, and none differed.
    HV5 a void bucket of a half is stable in the shard's stream, and is neither compared nor read.
    HV6 a bucket is read from the shard or from both halves, never from one of them alone, and never
        from neither.
    HV7 an attempt that makes no progress for ``STALLED_MS``, or is not confirmed within
        ``SPLIT_MS_MAX``, is withdrawn. A shard whose processes are all away cannot withdraw, and
        loses nothing by that.
    HV8 a half uses the checkpoint of no other stage, shard or plan than its parent's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Final

from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import BUCKET_MAX, SHARDS_MAX
from anabranch.protocol.log.boundary_log import LogState, Outcome, contents
from anabranch.protocol.log.records import BoundaryKind, BoundaryRecord, LogEntry, LogSnapshot
from anabranch.protocol.stage.intervals import Interval, interval_of, stage_of
from anabranch.protocol.stage.shares import Share

PROVEN_BUCKETS: Final = 8
"""Number of buckets that must be equal before a split is confirmed. A function that mixes keys
differs wherever both halves have rows; a few buckets more cost little, since the shard goes on.
"""

REACH_BUCKETS: Final = 2
"""Number of buckets by which the halves may be behind the shard at the confirmation. Results pause
at the cutover for as long as the halves need for these.
"""

STALLED_MS: Final = 300_000
"""Time without progress of the halves, in ms, after which a split is withdrawn: a node may need
minutes to start, and a store may be away for some.
"""

SPLIT_MS_MAX: Final = 3_600_000
"""Duration of an attempt, in ms, after which it is withdrawn although the halves get further: they
do not reach the shard, which may be faster than they are.
"""

HEIRS: Final = 2
"""Number of streams in which the stream of a shard continues after its end."""


class Step(StrEnum):
    """Step of an attempt to split a shard, as the log of moves states it."""

    WANTED = "wanted"
    CONFIRMED = "confirmed"
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True, slots=True)
class SplitStep:
    """Record in the log of moves about the split of one shard."""

    shard: str
    step: Step
    written_ms: int
    attempt: int = -1
    """Number of the attempt that the record answers; -1 if it asks for one."""
    reason: str = ""
    """Reason for people: why the attempt is withdrawn."""
    bucket: int = -1
    """First bucket in which the rows of both halves differ from the shard's; -1: none."""


class Phase(Enum):
    """Phase of the newest attempt to split a shard."""

    NONE = auto()
    WANTED = auto()
    CONFIRMED = auto()
    WITHDRAWN = auto()


AFTER: Final[Mapping[tuple[Phase, Step], Phase]] = {
    (Phase.NONE, Step.WANTED): Phase.WANTED,
    (Phase.WITHDRAWN, Step.WANTED): Phase.WANTED,  # another attempt
    (Phase.WANTED, Step.CONFIRMED): Phase.CONFIRMED,
    (Phase.WANTED, Step.WITHDRAWN): Phase.WITHDRAWN,
}
"""Phase after a record. Every other record has no effect (HV1)."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """Newest attempt to split a shard."""

    phase: Phase = Phase.NONE
    number: int = -1
    """Offset of the record that wants it, in the log of moves."""
    reason: str = ""
    """Reason for people: why it was withdrawn."""
    bucket: int = -1
    """First bucket that differed; -1: none."""


class Splits:
    """Attempts to split shards, by the log of moves."""

    def __init__(self) -> None:
        """Start before the first record."""
        self._attempts: dict[str, Attempt] = {}

    def apply(self, offset: int, record: SplitStep) -> bool:
        """Apply the next record of the log, which is at ``offset``. Return whether it counts
        (HV1).
        """
        now = self.of(record.shard)
        phase = AFTER.get((now.phase, record.step))
        if phase is None:
            return False
        if record.step is Step.WANTED:
            self._attempts[record.shard] = Attempt(phase, offset)
            return True
        if record.attempt != now.number:
            return False
        self._attempts[record.shard] = Attempt(phase, now.number, record.reason, record.bucket)
        return True

    def of(self, shard: str) -> Attempt:
        """Return the newest attempt to split ``shard``."""
        return self._attempts.get(shard, Attempt())


def halves_of(shard: str) -> tuple[str, str]:
    """Return the names of the halves of ``shard``."""
    stage = stage_of(shard)
    lower, upper = interval_of(shard).halves()
    return lower.name(stage), upper.name(stage)


def rejected(shard: str, shards: Collection[str]) -> str:
    """Return why ``shard`` cannot be split; empty if it can. ``shards``: shards of its stage whose
    streams have not ended.
    """
    if shard not in shards:
        return f"there is no shard {shard} now; there are {', '.join(sorted(shards))}"
    if len(shards) >= SHARDS_MAX:
        return f"stage {stage_of(shard)} has {len(shards)} shards, the most that its readers follow"
    if not interval_of(shard).can_be_halved:
        return f"shard {shard} is as small as a shard can be: split another one"
    return ""


def half_runs(attempt: Attempt, parent: LogState) -> bool:
    """Return whether the halves of a shard run (HV3). ``attempt``: the newest one of the shard;
    ``parent``: the shard's log.
    """
    return bool(parent.heirs) or attempt.phase in (Phase.WANTED, Phase.CONFIRMED)


# -- the beginning of a half
# --------------------------------------------------------------------------------------------------


def parent_text(share: Share) -> str:
    """Return the share that the shard's log must state whose checkpoint a half with this share
    copies (HV8, BL16); empty: all rows.
    """
    bits = share.interval.bits[:-1]
    return Share(Interval(bits), share.by).text() if bits else ""


def begins(replica: str, epoch: int, ident: BatchId, base: int, written_ms: int) -> BoundaryRecord:
    """Return the first record of a half that begins in a copy of its parent's checkpoint: it voids
    the buckets up to ``base``, the base of the clean point (HV5).
    """
    return BoundaryRecord(
        replica=replica, epoch=epoch, id=ident, prev=None, closed=base, written_ms=written_ms
    )


class VoidBuckets:
    """Last void bucket of a half, by its log. Needs every record of the log, right after the log
    state applied it (``seen``).
    """

    def __init__(self) -> None:
        """Start before the first record."""
        self.upto: int | None = None
        """Last bucket that the half closed without computing it; None: it has not begun."""

    def seen(self, log_state: LogState, entry: LogEntry, outcome: Outcome) -> None:
        """Apply a record of the log. Of a log that is read from a snapshot on, all that is closed
        there counts as void: the beginning is not described.
        """
        if not outcome.accepted:
            return
        if isinstance(entry, LogSnapshot):
            self.upto = log_state.upto or None
        elif (
            isinstance(entry, BoundaryRecord)
            and entry.kind is BoundaryKind.STABLE
            and entry.prev is None
        ):
            self.upto = max(entry.closed, self.upto or 0)


# -- the proof
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Half:
    """Log of one half, as a process of the shard has read it."""

    log_state: LogState
    void_upto: int | None
    """Last void bucket (``VoidBuckets``); None: the half has not begun."""


class Proof:
    """Comparison of a shard with its halves, bucket by bucket (HV4)."""

    def __init__(self) -> None:
        """Start without a compared bucket."""
        self._void_upto = 0
        self._upto = 0
        self.compared = 0
        """Number of buckets that were compared since both halves last began."""
        self.with_rows = 0
        """Number of compared buckets that have rows."""
        self.differs: int | None = None
        """First bucket whose sums differ; None: none does."""

    @property
    def is_enough(self) -> bool:
        """Whether so many buckets were equal that the split may be confirmed."""
        return self.differs is None and self.compared >= PROVEN_BUCKETS and self.with_rows > 0

    def compare(self, shard: LogState, halves: Sequence[Half]) -> None:
        """Compare the buckets that all have closed and that were not compared yet."""
        begun = [half.void_upto for half in halves if half.void_upto is not None]
        if len(begun) < HEIRS:
            return
        if max(begun) > self._void_upto:
            self._void_upto = max(begun)
            self.compared = self.with_rows = 0
        logs = [shard, *(half.log_state for half in halves)]
        first = 1 + max(self._upto, self._void_upto, *(each.forgotten for each in logs))
        last = min(each.upto for each in logs)
        if first > last or self.differs is not None:
            return
        sums = [_sums(each, first, last) for each in logs]
        for bucket in sorted(set().union(*sums)):
            mine, *theirs = (each.get(bucket, (0, 0)) for each in sums)
            together = sum(rows for rows, _ in theirs), sum(digest for _, digest in theirs) % 2**64
            if mine != together:
                self.differs = bucket
                return
            self.with_rows += 1
        self.compared += last - first + 1
        self._upto = last


def _sums(log_state: LogState, first: int, last: int) -> dict[int, tuple[int, int]]:
    """Return rows and digest of each bucket from ``first`` to ``last`` that has rows."""
    return {bucket: contents(parts) for bucket, _, parts in log_state.stable(first, last)}


class SplitDriver:
    """Decisions of a process of the shard about one attempt."""

    def __init__(self, shard: str, attempt: int, now_ms: int) -> None:
        """Begin with attempt number ``attempt``, which the log of moves wants."""
        self.attempt = attempt
        self._shard = shard
        self._proof = Proof()
        self._seen_ms = self._progress_ms = now_ms
        self._reached: tuple[int, ...] = ()

    def answer(
        self, now_ms: int, wall_ms: int, shard: LogState, halves: Sequence[Half]
    ) -> SplitStep | None:
        """Return the answer that is due; None: none yet (HV4, HV7).

        Args:
            now_ms: Present time, by a monotonic clock of the process, as for the constructor.
            wall_ms: Present time by the wall clock, for the record.
            shard: The log of the shard.
            halves: The logs of both halves.
        """
        self._proof.compare(shard, halves)
        differs = self._proof.differs
        if differs is not None:
            reason = (
                f"bucket {differs} of the halves together is not that of {self._shard}: the"
                " function does not compute each key from the rows of this key alone"
            )
            return self._step(Step.WITHDRAWN, wall_ms, reason, differs)
        if self._proof.is_enough and self._is_within_reach(shard, halves):
            return self._step(Step.CONFIRMED, wall_ms)
        reached = tuple(half.log_state.upto for half in halves)
        if reached != self._reached:
            self._reached, self._progress_ms = reached, now_ms
        if now_ms - self._seen_ms >= SPLIT_MS_MAX:
            return self._step(
                Step.WITHDRAWN,
                wall_ms,
                f"the halves did not reach {self._shard} within {SPLIT_MS_MAX // 60_000} minutes",
            )
        if now_ms - self._progress_ms >= STALLED_MS:
            return self._step(
                Step.WITHDRAWN,
                wall_ms,
                f"the halves got no further for {STALLED_MS // 60_000} minutes: check that the"
                f" nodes of {' and '.join(halves_of(self._shard))} run and reach the store",
            )
        return None

    def _is_within_reach(self, shard: LogState, halves: Iterable[Half]) -> bool:
        return all(half.log_state.upto + REACH_BUCKETS >= shard.upto for half in halves)

    def _step(self, step: Step, wall_ms: int, reason: str = "", bucket: int = -1) -> SplitStep:
        return SplitStep(self._shard, step, wall_ms, self.attempt, reason, bucket)


def end(
    replica: str, epoch: int, ident: BatchId, log_state: LogState, written_ms: int
) -> BoundaryRecord:
    """Return the record that ends the stream of a shard whose split is confirmed (HV2)."""
    return BoundaryRecord(
        replica=replica,
        epoch=epoch,
        id=ident,
        prev=log_state.tip(replica),
        closed=BUCKET_MAX,
        past=log_state.upto,
        heirs=HEIRS,
        written_ms=written_ms,
    )


# -- reading
# --------------------------------------------------------------------------------------------------


def streams_after(
    shards: Iterable[str], logs: Mapping[str, LogState], bucket: int
) -> Iterable[str]:
    """Yield the streams that have the next bucket after ``bucket`` of an input (HV6).

    Args:
        shards: Shards with which the stage began.
        logs: Logs that the reader follows. A log that is missing has to be followed next.
        bucket: Last bucket that the reader has taken.
    """
    for shard in shards:
        log_state = logs.get(shard)
        if log_state is not None and log_state.heirs and log_state.upto <= bucket:
            yield from streams_after(halves_of(shard), logs, bucket)
        else:
            yield shard


def complete_upto(shards: Iterable[str], logs: Mapping[str, LogState], bucket: int) -> int:
    """Return the last bucket up to which a plan after ``bucket`` may take the input: complete in
    each of the streams that have it, and not beyond the end of one of them (HV6).
    """
    return min(
        logs[stream].upto if stream in logs else bucket
        for stream in streams_after(shards, logs, bucket)
    )
