"""Split of a shard into its two halves while it runs: which service decides what, when the halves
count, and what a reader takes from each stream.

Theory of operation. A shard is an interval of the hash of the key (``protocol.stage.intervals``).
Its *halves* are stages of the pipeline from its first start on, with streams and places of their
own, which no process runs before a split is wanted. Then they begin as any stage does that is added
to a pipeline: empty, *late* (``protocol.stage.recovery``), one state horizon and
``PROVEN_BUCKETS`` before what the shard has closed, or after what is deleted of their inputs. Each
attempt begins anew: the first epoch of a half for it ends what was made for earlier ones (BL21),
whose input is not kept. The results of the first horizon may lack input, so their buckets are
closed empty: they are *void*. Nothing is copied, so a half never has state of keys that are not its
own. The halves run beside the shard, unread, until it is proven that both together make what the
shard makes. Then the shard ends, and readers continue with the halves.

*Two logs decide.* In the log of moves an operator, or a scaler, states that a split is ``WANTED``.
That record begins an *attempt*, whose number is the time at which it was written, in ms, or one
more than the shard's last number where that is not less. A process of the shard answers it with
``CONFIRMED`` or ``WITHDRAWN``; the first answer in the log counts (``AFTER``). After a confirmation
the attempt cannot be withdrawn any more, and a process of the shard *ends* its stream: the record
in the shard's boundary log names two heirs, and no other record counts after it (BL20). Until then
the shard counts, whatever the halves have made; from then on the halves count, whatever becomes of
the shard. Any process may die between any two of these records: whichever process of the shard
begins next reads both logs and does what is due. A process that was replaced cannot end the stream,
because its epoch is old (BL1); an answer of it counts only as the first one to this attempt, and is
then as good as that of another process.

*The proof.* Digests are sums: of every bucket that all three have closed and that is not void the
sums of rows and digests of the halves are those of the shard. One difference withdraws the attempt,
and names the bucket: the function does not work key by key, or its state horizon is longer than
stated. No reader has seen a row of the halves. Equal sums in ``PROVEN_BUCKETS`` buckets, in at
least one of which both halves have rows, confirm it, once the halves are as far as the shard but
for ``REACH_BUCKETS``: so results do not pause at the cutover. A bucket with rows of one half alone
is equal for every function. The buckets that the shard had closed before the halves began are
enough, if their input is there.

*A shard whose node is lost* may be split, too: this is SEEP's parallel recovery (SIGMOD 2013). Its
state is computed anew on two nodes, each of which has half of the input to work off, and the proof
needs nothing of the shard but its log. Meanwhile the next process of the shard restores all of it,
as without a split. If that is first, this is an ordinary split, and a half that is late or lost
delays no result. If the halves are first, the process ends the stream. It compares before it has
begun, too, and needs no checkpoint to end the stream; so a store that is away delays nothing. The
input for this is kept (``needed_after``) where the pipeline file wants shards to be recovered so.

*A shard that is overloaded* and leaves out rows corrects nothing for as long as that lasts, and has
no new buckets that could be compared: so it corrects all the same while its halves, which are
further by then, wait for it (``protocol.stage.replica``, OV9).

*A log of moves that was made anew* knows nothing of earlier attempts, but the halves' logs do, and
an answer to one may still be on its way. Offsets begin at 0 again, and would give a new attempt the
number of an earlier one: the answer, which rests on other halves, would confirm it. A number that
is a time does not come again. If the stream of a shard has ended, it is split, whatever the log of
moves says: its halves continue what they have, and a split that is wanted is confirmed at once.

*Reading.* A reader follows the streams of all shards that there may be, as it follows all
generations of a source (``protocol.edge.handover``): it takes bucket n of all of them or of none
(PN1). A stream that has ended holds nothing back, and has no rows after its last bucket that
counts. A half that is not read yet, because a shard above it has not ended, holds nothing back
either, and has no rows. So all that a split changes for a reader is in the state of the log
(``ShardLogState``).

Invariants:
    HV1 an attempt has one answer: the first one in the log that names its number. A split that is
        wanted while another attempt for this shard is open, or confirmed, is that attempt. One that
        a scaler wants counts only if no attempt is newer than the one that it names: of two
        scalers, one that is late does not begin an attempt that the other has seen withdrawn.
    HV2 the stream of a shard ends only after a confirmation that counts.
    HV3 a half stops only if its attempt was withdrawn, and then the shard's stream never ends by
        this attempt.
    HV4 an attempt is confirmed only if ``PROVEN_BUCKETS`` buckets were compared that both halves
        made for it since they last began, at least one of them with rows of both, and none
        differed.
    HV5 a void bucket of a half is neither compared nor read: an attempt is confirmed only after
        buckets that follow it, and those are read from the shard.
    HV6 a bucket is read from the shard or from both halves, never from one of them alone, and never
        from neither.
    HV7 an attempt whose halves are behind the shard and make no progress for ``STALLED_MS``, or
        that is not confirmed within ``SPLIT_MS_MAX`` and the state horizon, is withdrawn, by the
        clock of one process: one that begins anew counts from there. A shard whose processes are
        all away cannot withdraw, and loses nothing by that.
    HV8 a half begins late before it has results of an attempt, and not again for this attempt: a
        half that loses its state waits for its input or a checkpoint as every stage does. So no
        void bucket comes after the cutover, and none of an earlier attempt is compared.
    HV9 where a new version of the stage begins during an attempt, a bucket is compared only if it
        is of the same version in all three, and more than a state horizon after the last of them
        began with it: before, the state of each may come from another mix of both versions. The
        attempt continues.
    HV10 the numbers of a shard's attempts rise within a log of moves; an attempt in a log that was
        made anew has a higher number, too, unless the clock of the process that requests the
        attempt is behind by the time since the last one.
    HV11 a half of a shard whose stream has ended continues for the attempt that its own log names,
        if it names one; every other process of a half begins for the newest attempt.
    HV12 if no input is deleted that halves would read that began now (``needed_after``), a split is
        proven without a further bucket of the shard, if in one of its last ``PROVEN_BUCKETS`` both
        halves have rows.
    HV13 a process that begins its epoch when it knows that the split of its shard is confirmed
        restores nothing and closes no bucket: it ends the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from anabranch.protocol.control.records import SplitStep, Step
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import BUCKET_MAX
from anabranch.protocol.log.boundary_log import LogState, contents
from anabranch.protocol.log.records import BoundaryRecord, Part
from anabranch.protocol.stage.intervals import interval_of, stage_of

PROVEN_BUCKETS: Final = 8
"""Number of buckets that must be equal before a split is confirmed. A function that mixes keys
differs wherever both halves have rows; a few buckets more cost little, since the shard continues.
"""

REACH_BUCKETS: Final = 2
"""Number of buckets by which the halves may be behind the shard at the confirmation. Results pause
at the cutover for as long as the halves need for these.
"""

STALLED_MS: Final = 300_000
"""Time without progress of halves that are behind, in ms, after which a split is withdrawn: a node
may need minutes to start, and a store may be away for some.
"""

SPLIT_MS_MAX: Final = 3_600_000
"""Duration of an attempt, in ms, after which it is withdrawn although the halves get further: they
do not reach the shard, which may be faster than they are.
"""

HEIRS: Final = 2
"""Number of streams in which the stream of a shard continues after its end."""

UNDECLARED: Final = (
    "this shard was split into halves, which the pipeline file does not name: a stage keeps its"
    " `halvings`. Put those that it had back"
)
"""Error of a process that finds the stream of a shard ended, if its pipeline file names no halves:
it would wait for buckets that never come.
"""


class SplitPhase(Enum):
    """Phase of the newest attempt to split a shard."""

    NONE = auto()
    WANTED = auto()
    CONFIRMED = auto()
    WITHDRAWN = auto()


AFTER: Final[Mapping[tuple[SplitPhase, Step], SplitPhase]] = {
    (SplitPhase.NONE, Step.WANTED): SplitPhase.WANTED,
    (SplitPhase.WITHDRAWN, Step.WANTED): SplitPhase.WANTED,  # another attempt
    (SplitPhase.WANTED, Step.CONFIRMED): SplitPhase.CONFIRMED,
    (SplitPhase.WANTED, Step.WITHDRAWN): SplitPhase.WITHDRAWN,
}
"""Phase after a record. Every other record has no effect (HV1)."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """Newest attempt to split a shard."""

    phase: SplitPhase = SplitPhase.NONE
    number: int = -1
    """Number of the attempt (HV10), by the record that wants it."""
    reason: str = ""
    """Reason for people: why it was withdrawn."""
    bucket: int = -1
    """First bucket that differed; -1: none."""


class Splits:
    """Attempts to split shards, by the log of moves."""

    def __init__(self) -> None:
        """Start before the first record."""
        self._attempts: dict[str, Attempt] = {}

    def apply(self, record: SplitStep) -> bool:
        """Apply the next record of the log. Return whether it counts (HV1)."""
        now = self.of(record.shard)
        phase = AFTER.get((now.phase, record.step))
        if phase is None:
            return False
        if record.step is Step.WANTED:
            if record.is_scalers_wish and record.attempt != now.number:
                return False
            number = max(now.number + 1, record.written_ms)
            self._attempts[record.shard] = Attempt(phase, number)
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


def rejected(shard: str, parents: Mapping[str, str], splits: Splits) -> str:
    """Return why ``shard`` cannot be split; empty if it can, or is being split. ``parents``: of
    each stage of the pipeline the shard that it is a half of; empty for one that is none.
    """
    if shard not in parents:
        return f"there is no stage {shard}; there are {', '.join(sorted(parents))}"
    if shard not in parents.values():
        return (
            f"the pipeline file names no halves of {shard}: raise `halvings` of its stage before"
            " the pipeline's first start"
        )
    if splits.of(shard).phase is SplitPhase.CONFIRMED:
        return f"{shard} was split: split {' or '.join(halves_of(shard))}"
    parent = parents[shard]
    if parent and splits.of(parent).phase is not SplitPhase.CONFIRMED:
        return f"{shard} does not run: it is a half of {parent}, which is not split"
    return ""


def half_runs(attempt: Attempt) -> bool:
    """Return whether the halves of a shard run (HV3). ``attempt``: the newest one of the shard."""
    return attempt.phase in (SplitPhase.WANTED, SplitPhase.CONFIRMED)


def half_begins_for(newest: int, shard: LogState, own: Callable[[], LogState]) -> int:
    """Return the number of the attempt for which a process of a half begins (HV8, HV11).

    Args:
        newest: Number of the newest attempt in the log of moves.
        shard: The log of the shard.
        own: Function that returns the log of the half. Called only if the shard has ended.
    """
    continues = own().attempt if shard.heirs else -1
    return newest if continues < 0 else continues


def only_ends(attempt: Attempt) -> bool:
    """Return whether a process of a shard that begins its epoch only ends the stream (HV13).
    ``attempt``: the newest one of the shard.
    """
    return attempt.phase is SplitPhase.CONFIRMED


def half_begins_after(shard: LogState, half: LogState, horizon: int) -> int:
    """Return the bucket after which ``half`` of ``shard`` begins, if its input from there on is not
    deleted: so early that the proof needs no further bucket of the shard (HV12), and after what the
    half has closed for earlier attempts (HV8). 0 once a late start for this attempt is recorded:
    all its processes begin there (LA2 of ``protocol.stage.recovery``). ``horizon``: the state
    horizon of the stage, in buckets.
    """
    return 0 if void_upto(half, 0) else max(needed_after(shard.closed_upto, horizon), half.upto)


def needed_after(closed_upto: int, horizon: int) -> int:
    """Return the bucket after which halves need the input of a shard that has closed
    ``closed_upto``: one state horizon, of which the results are void, and the buckets of the proof
    (HV12). ``horizon``: as for ``half_begins_after``.
    """
    return max(0, closed_upto - horizon - PROVEN_BUCKETS)


def versions_of(logs: Iterable[LogState]) -> set[int]:
    """Return the versions of the stage that count in ``logs``, without logs in which none does."""
    return {log_state.version[0] for log_state in logs} - {0}


def mixed_upto(logs: Iterable[LogState], horizon: int) -> int:
    """Return the last bucket whose state may be of two versions in one of ``logs`` (HV9); 0: none.
    ``horizon``: the state horizon of the stage, in buckets.
    """
    begun_after = max(log_state.version[1] for log_state in logs)
    return begun_after + horizon if begun_after else 0


def void_upto(half: LogState, horizon: int) -> int:
    """Return the last void bucket of a half (HV5); 0: none is. ``horizon``: the state horizon of
    the stage, in buckets.
    """
    late = max(half.origin(writer).late_upto for writer in half.writers)
    return late + horizon if late else 0


# -- the proof
# --------------------------------------------------------------------------------------------------


class Proof:
    """Comparison of a shard with its halves, bucket by bucket (HV4)."""

    def __init__(self, horizon: int) -> None:
        """Start without a compared bucket. ``horizon``: the stage's state horizon, in buckets."""
        self._horizon = horizon
        self._void_upto = 0
        self._upto = 0
        self.compared = 0
        """Number of buckets that were compared since both halves last began."""
        self.of_both = 0
        """Number of compared buckets in which both halves have rows."""
        self.differs: int | None = None
        """First bucket whose sums differ; None: none does."""

    @property
    def is_enough(self) -> bool:
        """Whether so many buckets were equal that the split may be confirmed."""
        return self.differs is None and self.compared >= PROVEN_BUCKETS and self.of_both > 0

    @property
    def upto(self) -> int:
        """Last bucket that was compared, or need not be."""
        return max(self._upto, self._void_upto)

    def compare(self, shard: LogState, halves: Sequence[LogState]) -> None:
        """Compare the buckets that all have closed and that were not compared yet."""
        logs = [shard, *halves]
        if len(versions_of(logs)) > 1:
            return
        void = max(
            mixed_upto(logs, self._horizon), *(void_upto(half, self._horizon) for half in halves)
        )
        if void > self._void_upto:
            self._void_upto = void
            self.compared = self.of_both = 0
        first = 1 + max(self.upto, *(each.forgotten for each in logs))
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
            self.of_both += all(rows for rows, _ in theirs)
        self.compared += last - first + 1
        self._upto = last


def _sums(log_state: LogState, first: int, last: int) -> dict[int, tuple[int, int]]:
    """Return rows and digest of each bucket from ``first`` to ``last`` that has rows."""
    return {bucket: contents(parts) for bucket, _, parts in log_state.stable(first, last)}


class SplitDriver:
    """Decisions of a process of the shard about one attempt."""

    def __init__(
        self, shard: str, attempt: int, now_ms: int, *, horizon: int, width_ms: int
    ) -> None:
        """Begin with attempt number ``attempt``, which the log of moves wants.

        Args:
            shard: Name of the shard.
            attempt: Number of the attempt.
            now_ms: Present time, by a monotonic clock of the process.
            horizon: The stage's state horizon, in buckets: for so long the halves are void.
            width_ms: Width of a bucket, in ms.
        """
        self.attempt = attempt
        self._shard = shard
        self.proof = Proof(horizon)
        self._split_ms_max = SPLIT_MS_MAX + horizon * width_ms
        self._seen_ms = self._progress_ms = now_ms
        self._reached: tuple[int, ...] = ()
        self.is_awaited = False
        """Whether the halves have made as much as the shard and wait for its next bucket, which is
        compared with theirs.
        """

    def answer(
        self, now_ms: int, wall_ms: int, shard: LogState, halves: Sequence[LogState]
    ) -> SplitStep | None:
        """Return the answer that is due; None: none yet (HV4, HV7).

        Args:
            now_ms: Present time, by a monotonic clock of the process, as for the constructor.
            wall_ms: Present time by the wall clock, for the record.
            shard: The log of the shard.
            halves: The logs of both halves.
        """
        have_made = all(self._has_made(half) for half in halves)
        if have_made:
            self.proof.compare(shard, halves)
        differs = self.proof.differs
        if differs is not None:
            reason = (
                f"bucket {differs} of the halves together is not that of {self._shard}: the"
                " function does not compute each key from the rows of this key alone, or its state"
                " reaches back further than its state_horizon, or it gives rows an event_time that"
                " is later by more than that"
            )
            return self._step(Step.WITHDRAWN, wall_ms, reason, differs)
        if have_made and self.proof.is_enough and self._is_within_reach(shard, halves):
            return self._step(Step.CONFIRMED, wall_ms)
        reached = tuple(half.upto if half.attempt == self.attempt else -1 for half in halves)
        self.is_awaited = has_reached = min(reached) >= shard.upto  # it waits for input, too
        if reached != self._reached or has_reached:
            self._reached, self._progress_ms = reached, now_ms
        if now_ms - self._seen_ms >= self._split_ms_max:
            versions = versions_of((shard, *halves))
            reason = self._too_long(versions, has_reached=has_reached)
            return self._step(Step.WITHDRAWN, wall_ms, reason)
        if now_ms - self._progress_ms >= STALLED_MS:
            return self._step(
                Step.WITHDRAWN,
                wall_ms,
                f"the halves got no further for {STALLED_MS // 60_000} minutes: check that the"
                f" nodes of {' and '.join(halves_of(self._shard))} run",
            )
        return None

    def behind(self, shard: LogState, halves: Iterable[LogState]) -> list[int | None]:
        """Return by how many buckets each half is behind the shard; None for one that has no record
        of the attempt yet.
        """
        return [max(0, shard.upto - half.upto) if self._has_made(half) else None for half in halves]

    def _has_made(self, half: LogState) -> bool:
        """Return whether the half has a record of the attempt, which tells what is void: its epoch
        alone leaves the buckets of earlier attempts closed.
        """
        return half.attempt == self.attempt and any(map(half.tip, half.writers))

    def _too_long(self, versions: Collection[int], *, has_reached: bool) -> str:
        """Return why an attempt is withdrawn that has had its time. ``versions``: those of the
        stage in the three logs. ``has_reached``: whether the halves are as far as the shard.
        """
        minutes = self._split_ms_max // 60_000
        if len(versions) > 1:
            return (
                f"{self._shard} and its halves ran versions"
                f" {' and '.join(map(str, sorted(versions)))} of the stage for too long: restart"
                " the nodes of all three with one pipeline file, and split it again"
            )
        if not has_reached:
            return f"the halves did not reach {self._shard} within {minutes} minutes"
        return (
            f"within {minutes} minutes {self.proof.compared} buckets of the halves could be"
            f" compared, and in {self.proof.of_both} of them both have rows: {PROVEN_BUCKETS} and 1"
            " are needed. Split it again when more input arrives"
        )

    def _is_within_reach(self, shard: LogState, halves: Iterable[LogState]) -> bool:
        return all(half.upto + REACH_BUCKETS >= shard.upto for half in halves)

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
        past=log_state.closed_upto,
        heirs=HEIRS,
        written_ms=written_ms,
    )


# -- reading
# --------------------------------------------------------------------------------------------------


class ShardLogState(LogState):
    """State of the log of one shard for a reader that follows all shards of the stage: rows of a
    bucket are in the shard or in both of its halves (HV6). The reader has to lock the states of all
    shards together.
    """

    def __init__(self, writers: Iterable[str], parent: ShardLogState | None = None) -> None:
        """Start before the first record. ``parent``: state of the shard that this one is a half of;
        None: the stage began with it.
        """
        super().__init__(writers)
        self._parent = parent
        self.heirs_known = HEIRS

    @property
    def is_read(self) -> bool:
        """Whether every shard above this one has ended."""
        return self._parent is None or (self._parent.heirs > 0 and self._parent.is_read)

    @property
    def begins_after(self) -> int:
        """Last bucket whose rows are in a shard above this one."""
        if self._parent is None:
            return 0
        return max(self._parent.closed_upto, self._parent.begins_after)

    @property
    def upto(self) -> int:
        """Last bucket up to which the stream is complete for this reader; ``BUCKET_MAX`` while it
        is not read, since it then holds no bucket back.
        """
        return max(super().upto, self.begins_after) if self.is_read else BUCKET_MAX

    @property
    def past_upto(self) -> int:
        """Last bucket that the stream is known to have passed; 0 while it is not read."""
        return super().past_upto if self.is_read else 0

    @property
    def seen_upto(self) -> int:
        """Last bucket that the stream has passed or begun; 0 while it is not read."""
        return super().seen_upto if self.is_read else 0

    def stable(
        self, first: int, last: int, count_max: int | None = None
    ) -> list[tuple[int, str, tuple[Part, ...]]]:
        """Return the non-empty stable buckets in ``first..last`` that are read from this stream, as
        ``LogState`` does.
        """
        first, last = self._own_range(first, last)
        return super().stable(first, last, count_max) if self.is_read and first <= last else []

    def _own_range(self, first: int, last: int) -> tuple[int, int]:
        """Return the first and last bucket of ``first..last`` that are read from this stream."""
        # What the shard had named of later buckets when it ended is in the halves, too.
        upto = min(last, self.closed_upto) if self.heirs else last
        return max(first, self.begins_after + 1), upto

    def open_parts(self, bucket: int) -> tuple[str, tuple[Part, ...]]:
        """Return (writer, its stable parts) of a bucket that is not stable; none if the bucket is
        not read from this stream.
        """
        return super().open_parts(bucket) if bucket > self.upto else ("", ())

    def open_buckets(self, first: int, last: int, count_max: int | None = None) -> list[int]:
        """Return the buckets in ``first..last`` that have named parts, are not stable and are read
        from this stream, ascending.
        """
        return super().open_buckets(max(first, self.upto + 1), last, count_max)

    def has_branch(self, replica: str) -> bool:
        """Return whether a branch of the writer runs; False while the stream is not read."""
        return self.is_read and super().has_branch(replica)

    def tentative_upto(self, replica: str) -> int:
        """Return the highest bucket that any branch of the writer has closed; 0 while the stream is
        not read.
        """
        return super().tentative_upto(replica) if self.is_read else 0

    def tentative_offers(self, after: int = 0) -> dict[str, int]:
        """Return, per writer, its last tentative bucket after those that are read elsewhere."""
        return super().tentative_offers(max(after, self.upto))
