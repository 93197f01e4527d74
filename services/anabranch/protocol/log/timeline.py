"""Timelines: which checkpoint directory a replica continues from, and which record its next one
continues.

Theory of operation. A replica's query has a checkpoint directory. At every start (and every fork)
the replica continues in a *copy*, under a timeline name of its own, which carries its epoch (rule
8). A small timeline file beside the directories records it; the highest name is the newest. Record
ids are (timeline, batch of Spark), so a batch that is run again under a new timeline has a new id
and names in ``prev`` the record that it continues (rules 3, 9): that of the last batch that Spark
committed in the directory.

Invariants:
    TI1 names sort as (epoch, number): the newest timeline is the one of the newest process.
    TI2 only directories and files of lower names are ever deleted: those of lower epochs, and, by a
        standby process, those of lower numbers of the epoch that it copies. So a process that was
        paused for long may delete at any time.
    TI3 ``tip`` is the record of the last committed batch, whichever timeline made it.
    TI4 a replica continues from its own directory if that has a complete batch and the blocks after
        it exist; else from a peer's; else from the beginning of the log, if that exists; else it
        waits for a peer.
    TI5 a peer's checkpoint is used at a batch all of whose parts are stable by now
        (``protocol.stage.recovery``), without the plan after it; the new timeline begins with a
        base record, and until its first commit every restart appends it again (rule 6).
    TI6 going back to an older batch (damage, loss of power) is safe: the new timeline has another
        name, and its records cut the chain (rule 4).
    TI7 a replica continues from its own batch only if the batch's record is on the accepted chain:
        the log would reject any other next record (rule 4). A passive replica finds its checkpoint
        cut off if another process continued from an older copy and that one's disk was lost. If all
        buckets that such a batch had closed or begun are stable, it is used like a peer's, under a
        base record (TI5).
    TI8 no process continues from the checkpoint of a process that a majority contradicted
        (``protocol.control.fencing``): its state is wrong, and would yield the same results again.
        Everything of its epoch, or an earlier one, is ignored, in the replica's own checkpoint and
        in a peer's alike: the next process starts from another peer's, or from the beginning. Its
        own checkpoints have a higher epoch, and count again.
    TI9 a timeline names the operators that hold its state. A process whose function has other ones
        (``protocol.log.stateful_plan``) continues from no checkpoint with a committed batch. For
        its own checkpoint it ends, if possible before it begins an epoch, unless an operator lets
        the stage begin anew; a peer's checkpoint it ignores.
    TI10 a process that takes the replica over from one that ran until then plans the batch after
        the last committed one anew. The plan in the log is as old as the checkpoint; results wait,
        and one batch takes all that is complete by now. Without a committed batch it keeps the
        plan, which may decide what is given up.
    TI11 the new timeline of a process that claims a checkpoint of its own, as a standby does
        (``protocol.stage.standby``), holds no less of the input than is claimed: a lower claim is
        in the log before the timeline file is written, and before the last check that the input
        after the checkpoint exists: until then trimming may delete it. Trimming counts on the claim
        even if the process is killed then. A replica without standbys claims nothing for a process:
        its newest epoch speaks for it (``protocol.control.trimming``, TM5).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Self, TypeVar

from anabranch.protocol.errors import LocalProtocolError
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import CHECKPOINT_BATCHES_RETAINED
from anabranch.protocol.log.stateful_plan import (
    NO_PLAN,
    NO_STATE,
    StageState,
    StatefulPlan,
    difference,
)

_NAME = re.compile(r"([0-9]{12})-([0-9]{6})(?:-[0-9a-f]{16})?\Z")


def timeline_name(epoch: int, number: int, token: str = "") -> str:
    """Return the name of the ``number``-th timeline of ``epoch`` (TI1).

    ``token``: random id of the process, 16 hexadecimal digits, if it has not begun the epoch
        itself: another process may choose the same number.
    """
    return f"{epoch:012d}-{number:06d}" + (f"-{token}" if token else "")


def epoch_of(name: str) -> int | None:
    """Return the epoch in a timeline's name; None if it is not such a name."""
    match = _NAME.match(name)
    return int(match[1]) if match else None


def number_of(name: str) -> int:
    """Return the number within its epoch of timeline ``name``; 0 if it is not such a name."""
    match = _NAME.match(name)
    return int(match[2]) if match else 0


@dataclass(frozen=True, slots=True)
class Timeline:
    """Contents of a timeline file. Written once, before the timeline's first batch."""

    name: str
    start_batch: int
    """Last batch that was committed in the directory when it was copied; -1 if none was: a new
    checkpoint.
    """
    start_tip: BatchId | None
    """Record of ``start_batch``."""
    base: int | None = None
    """Last bucket that is not the replica's own, if the timeline began in a copy of a peer's
    directory, or of one whose records were cut off (rule 6). ``start_tip`` is then its base record.
    """
    earlier: tuple[BatchId, ...] = ()
    """Earlier timelines, each with its last batch in this directory, ascending: they tell which
    timeline made each batch up to ``start_batch``.
    """
    floor: int | None = None
    """Lowest batch whose record is known, with that of every later batch; -1 if all are. None:
    those from ``start_batch`` on.
    """
    plan: StatefulPlan = NO_PLAN
    """Operators that hold the state in the directory (TI9)."""

    @classmethod
    def fresh(cls, epoch: int) -> Self:
        """Return the timeline of a replica that starts without a checkpoint."""
        return cls(name=timeline_name(epoch, 0), start_batch=-1, start_tip=None, floor=-1)

    @classmethod
    def from_peer(cls, name: str, batch: int, base: int) -> Self:
        """Return the timeline that continues in a copy of a peer's directory as of ``batch``: its
        first record is the base record (TI5, TI7).
        """
        return cls(
            name=name, start_batch=batch, start_tip=BatchId(name, batch), base=base, floor=batch
        )

    @property
    def lowest(self) -> int:
        """Lowest batch from which a copy of the directory may continue, if the directory still has
        it.
        """
        return self.start_batch if self.floor is None else self.floor

    def tip(self, last_commit: int) -> BatchId | None:
        """Return the record that a query in this timeline's directory continues, given that
        ``last_commit`` is the last batch that Spark committed (TI3).

        Raises:
            LocalProtocolError: the record is not known: the directory is not this
                timeline's.
        """
        if last_commit > self.start_batch:
            return BatchId(self.name, last_commit)
        if last_commit < self.lowest:
            message = (
                f"timeline {self.name} began after batch {self.start_batch}, but the last batch"
                f" committed in its directory is {last_commit}"
            )
            raise LocalProtocolError(message)
        if last_commit == self.start_batch:
            return self.start_tip
        if last_commit < 0:
            return None
        return next(
            (
                BatchId(before.timeline, last_commit)
                for before in self.earlier
                if before.batch >= last_commit
            ),
            None,
        )

    def copied(self, name: str, last_commit: int) -> Timeline:
        """Return the timeline ``name`` that continues in a copy of this one's directory, in which
        ``last_commit`` is the last committed batch.
        """
        if self.base is not None and last_commit == self.start_batch:
            return replace(Timeline.from_peer(name, last_commit, self.base), plan=self.plan)
        tip = self.tip(last_commit)
        forgotten = last_commit - CHECKPOINT_BATCHES_RETAINED
        known = dict.fromkeys(
            (*self.earlier, *(() if self.start_tip is None else (self.start_tip,)))
        )
        earlier = tuple(before for before in known if forgotten <= before.batch < last_commit)
        earlier += () if tip is None else (tip,)
        floor = max(self.lowest, min(forgotten, last_commit))
        return Timeline(
            name=name,
            start_batch=last_commit,
            start_tip=tip,
            earlier=earlier,
            floor=floor,
            plan=self.plan,
        )

    def forked(self, name: str, last_commit: int) -> Timeline:
        """Return the timeline that ``copied`` returns, but without a base: the forking process has
        appended the base record already, if there is one.
        """
        return replace(self, base=None).copied(name, last_commit)


def newest(names: Iterable[str]) -> str | None:
    """Return the name of the newest timeline (TI1); None if there is none."""
    return max((n for n in names if epoch_of(n) is not None), default=None)


def obsolete(names: Iterable[str], epoch: int, number: int = 0) -> list[str]:
    """Return the names that may be deleted beside timeline ``number`` of ``epoch``: only lower ones
    (TI2).
    """
    return sorted(
        n for n in names if (e := epoch_of(n)) is not None and (e, number_of(n)) < (epoch, number)
    )


@dataclass(frozen=True, slots=True)
class FindNewest:
    """Answer: the timeline in the newest timeline file, or None."""


@dataclass(frozen=True, slots=True)
class FindFences:
    """Answer: pairs of each fenced replica of the stage and its newest fenced epoch, as far as they
    are known by now (TI8).
    """


@dataclass(frozen=True, slots=True)
class Create:
    """Create an empty directory. An existing one, from an abandoned copy, is removed."""

    name: str


@dataclass(frozen=True, slots=True)
class Copy:
    """Make directory ``target`` a copy of ``source``, atomically; what was durable in the source is
    durable in the copy.
    """

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class FindCommit:
    """Answer: the last batch committed in the directory; -1 if there is none."""

    name: str


@dataclass(frozen=True, slots=True)
class FindBatches:
    """Answer: the batches committed in the directory, newest first; (-1,) if there are none."""

    name: str


@dataclass(frozen=True, slots=True)
class FindBucket:
    """Answer: the last bucket of input in ``batch`` of the directory, which is committed."""

    name: str
    batch: int


@dataclass(frozen=True, slots=True)
class FindWhole:
    """Answer: the first of ``batches`` whose logs and state are complete in the directory; None if
    there is none. -1 stands for an empty checkpoint.
    """

    name: str
    batches: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CutBack:
    """Remove every batch after ``batch`` from the directory, which is a copy. ``keep_plan`` keeps
    the plan of the very next batch (rule 9).
    """

    name: str
    batch: int
    keep_plan: bool


@dataclass(frozen=True, slots=True)
class FindMissing:
    """Answer: a description of the missing blocks among those that come after ``batch`` of the
    directory; empty if all exist. -1 means from the beginning.
    """

    name: str
    batch: int
    is_restated: bool = False
    """Whether the process ignores a checkpoint of another function, because an operator lets the
    stage begin anew (``protocol.stage.restating``).
    """


@dataclass(frozen=True, slots=True)
class FindRecomputed:
    """Answer: 1 if blocks that come after ``batch`` of the directory were moved by a recomputation
    (``protocol.stage.recomputation``), else 0.
    """

    name: str
    batch: int


@dataclass(frozen=True, slots=True)
class FindPeers:
    """Answer: the peers whose disks can be reached, each with its newest timeline."""


@dataclass(frozen=True, slots=True)
class CopyPeer:
    """Make ``target`` a copy of a peer's directory, atomically. Answer: False if the copy
    failed.
    """

    replica: str
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class AwaitPeer:
    """Wait a while for a peer: there is nothing to start from. ``missing`` says why the beginning
    of the log will not do.
    """

    missing: str


@dataclass(frozen=True, slots=True)
class AppendBase:
    """Append the base record of the timeline and wait until the log accepts it (rules 2, 6)."""

    timeline: Timeline


@dataclass(frozen=True, slots=True)
class Write:
    """Write the timeline file durably."""

    timeline: Timeline


@dataclass(frozen=True, slots=True)
class CheckEpoch:
    """Read the boundary log; end the process if a newer one began."""


@dataclass(frozen=True, slots=True)
class Clean:
    """Remove everything below timeline ``number`` of ``epoch`` (TI2)."""

    epoch: int
    number: int = 0


@dataclass(frozen=True, slots=True)
class FindPeerCommit:
    """Answer: the last batch committed in the directory on a peer's disk, and the last bucket of
    input in it; (-1, 0) if there is none. The bucket is 0, too, if it cannot be read now.
    """

    replica: str
    name: str


@dataclass(frozen=True, slots=True)
class LowerClaim:
    """Report ``bucket`` as the last one in the process's checkpoint, which held more so far.
    Answer: whether the broker has acknowledged it.
    """

    bucket: int


@dataclass(frozen=True, slots=True)
class Sync:
    """Make the contents of the directory durable."""

    name: str


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove one directory that no timeline file names."""

    name: str


DiskStep = (
    FindNewest
    | FindCommit
    | FindBatches
    | FindBucket
    | FindWhole
    | FindPeers
    | CopyPeer
    | Create
    | Copy
    | CutBack
    | Write
    | Sync
    | Clean
    | Remove
)
"""Steps that need only the replica's disk (``ports.Checkpoints``)."""
Step = (
    DiskStep
    | FindMissing
    | FindRecomputed
    | FindFences
    | FindPeerCommit
    | LowerClaim
    | AwaitPeer
    | CheckEpoch
    | AppendBase
)
PeerTimelines = tuple[tuple[str, Timeline], ...]
Fences = tuple[tuple[str, int], ...]
Answer = Timeline | PeerTimelines | Fences | tuple[int, ...] | int | str | None
_Result = TypeVar("_Result")
Steps = Generator[Step, Answer, Timeline]
"""Steps in order. The shell performs each and sends back the answer, if there is one. A crash
between any two is safe.
"""
BaseOf = Callable[[str, BatchId], int | None]
"""Function from (peer, id of its record) to the base of a copy of its checkpoint as of that record;
None if the checkpoint must not be copied.
"""


def carry_out(
    steps: Generator[Step, Answer, _Result], perform: Callable[[Step], Answer]
) -> _Result:
    """Perform ``steps`` one after the other and return their result."""
    answer: Answer = None
    while True:
        try:
            step = steps.send(answer)
        except StopIteration as done:
            result: _Result = done.value
            return result
        answer = perform(step)


@dataclass(frozen=True, slots=True)
class OwnChain:
    """Facts of the stage's log about the replica's own records. The default describes a log in
    which nothing was ever cut off.
    """

    has: Callable[[BatchId], bool] = lambda _ident: True
    """Return whether a record may be continued."""
    cut_off_base: Callable[[BatchId], int | None] = lambda _ident: None
    """Return, for a record that may not be continued, the base of the checkpoint as of that record;
    None if the checkpoint is of no use.
    """
    is_open: bool = False
    """Whether the replica must not continue from its own checkpoint
    (``protocol.stage.recovery``).
    """
    replica: str = ""
    """Name of the replica."""
    state: StageState = NO_STATE
    """State that the function of the process keeps between batches."""
    is_restated: bool = False
    """Whether an operator lets the stage begin anew with this version: a checkpoint that another
    function of a lower version made is ignored (``protocol.stage.restating``).
    """
    takes_over: bool = False
    """Whether the process began as a standby of the one that ran the replica (TI10)."""
    claimed: Callable[[], int] = lambda: 0
    """Return the last bucket of input that the process now claims to have in a checkpoint of its
    own; 0 if it claims none (TI11).
    """


def failover_steps(
    epoch: int, base_of: BaseOf = lambda _replica, _ident: None, own: OwnChain = OwnChain()
) -> Steps:
    """Yield the steps by which the process of ``epoch`` creates its stable timeline (rules 6 and 8,
    TI4).

    The old process may still be running: it may fork while its directory is copied, which makes the
    directory a branch. So the newest timeline is read again after copying, and the copy is repeated
    if it changed. Of a peer's directory only batches with stable records are used, so it does not
    matter if that one becomes a branch meanwhile.
    """
    name = timeline_name(epoch, 0)
    while True:
        found, fenced = (yield FindNewest()), _epochs((yield FindFences()))
        timeline, is_restated = None, False
        if isinstance(found, Timeline) and _is_usable(found, own, fenced):
            is_restated = yield from _is_of_another_function(found, own)
            timeline = None if is_restated else (yield from _from_own(found, name, own))
        if timeline is None:
            timeline = yield from _from_peer(name, base_of, fenced, own.state.plan)
        if timeline is None:
            missing = yield FindMissing(name, -1, is_restated)
            if missing:
                yield AwaitPeer(str(missing))
                yield CheckEpoch()
                continue
            yield Create(name)
            timeline = Timeline.fresh(epoch)
        if (yield FindNewest()) != found:
            continue
        # A lower claim comes after the check for missing blocks, which trimming may have deleted
        # between the two.
        if not (yield from _lower_claim(timeline, own)):
            break
    timeline = replace(timeline, plan=own.state.plan)
    # The file first: from here on the next process finds this directory. Older directories are
    # removed only after that, and only if no newer process has begun.
    yield Write(timeline)
    yield CheckEpoch()
    yield Clean(epoch)
    if timeline.base is not None:
        yield AppendBase(timeline)
    return timeline


def _lower_claim(timeline: Timeline, own: OwnChain) -> Generator[Step, Answer, bool]:
    """Lower the claim of the process to what ``timeline`` holds at its start, if that is less, and
    wait until the log has the lower one (TI11). Return whether it was more.
    """
    claimed = own.claimed()
    if not claimed:
        return False
    bucket = yield FindBucket(timeline.name, timeline.start_batch)
    assert isinstance(bucket, int)  # noqa: S101 - the answer to FindBucket
    while bucket < claimed and not (yield LowerClaim(bucket)):
        yield CheckEpoch()
    return bucket < claimed


def check_plan_steps(own: OwnChain) -> Generator[Step, Answer, None]:
    """Raise if the failover would end because the function has changed (TI9). A process runs these
    steps before it begins its epoch: the log then shows nothing of it, and the previous function
    can continue.

    Raises:
        ConfigurationError: the state of the checkpoint means something else to the function.
    """
    found, fenced = (yield FindNewest()), _epochs((yield FindFences()))
    if isinstance(found, Timeline) and _is_usable(found, own, fenced):
        yield from _is_of_another_function(found, own)


def _is_usable(found: Timeline, own: OwnChain, fenced: Mapping[str, int]) -> bool:
    """Return whether the process may continue from its own checkpoint ``found``, if that is
    complete.
    """
    return not own.is_open and not _is_fenced(found, own.replica, fenced)


def _is_of_another_function(found: Timeline, own: OwnChain) -> Generator[Step, Answer, bool]:
    """Return whether ``found`` is ignored because its state means something else to the function
    (TI9). Before the first committed batch there is no state.

    Raises:
        ConfigurationError: ``found`` has state, and no operator has decided that the stage begins
            anew.
    """
    if not difference(found.plan, own.state.plan):
        return False
    last = yield FindCommit(found.name)
    if not isinstance(last, int) or last < 0:
        return False
    if not own.is_restated or found.plan.version >= own.state.plan.version:  # RS3
        own.state.check(found.plan)
    return True


def _from_own(
    found: Timeline, name: str, own: OwnChain
) -> Generator[Step, Answer, Timeline | None]:
    """Return the timeline ``name`` in a copy of the directory of ``found``; None if no batch in it
    can be continued.
    """
    yield Copy(found.name, name)
    tips = {
        batch: found.tip(batch)
        for batch in batches_of((yield FindBatches(name)))
        if batch >= found.lowest
    }
    last = yield FindWhole(
        name,
        tuple(batch for batch, tip in tips.items() if continues(found, batch, tip, own.has)),
    )
    if isinstance(last, int) and not (yield FindMissing(name, last)):
        # A plan that was logged before blocks were recomputed names the old blocks. Without it the
        # batch is planned anew, as after damage (TI6).
        is_stale = (own.takes_over and last >= 0) or (yield FindRecomputed(name, last))
        yield CutBack(name, last, keep_plan=not is_stale)
        return found.copied(name, last)
    bases = {
        batch: base
        for batch, tip in tips.items()
        if tip is not None and (base := own.cut_off_base(tip)) is not None
    }
    last = yield FindWhole(name, tuple(bases))
    if not isinstance(last, int) or (yield FindMissing(name, last)):
        return None
    yield CutBack(name, last, keep_plan=False)
    return Timeline.from_peer(name, last, bases[last])


def continues(
    found: Timeline, batch: int, tip: BatchId | None, has: Callable[[BatchId], bool]
) -> bool:
    """Return whether the log will accept the first record after ``batch`` of the directory of
    ``found``, whose record is ``tip`` (TI7). It always accepts a first record, or a base record.

    ``has``: function that returns whether a record may be continued.
    """
    return (
        batch < 0
        or (found.base is not None and batch == found.start_batch)
        or (tip is not None and has(tip))
    )


def _is_fenced(timeline: Timeline, replica: str, fenced: Mapping[str, int]) -> bool:
    """Return whether the timeline is of a fenced epoch of ``replica``, or of an earlier one
    (TI8).
    """
    return (epoch_of(timeline.name) or 0) <= fenced.get(replica, -1)


def _epochs(answer: Answer) -> dict[str, int]:
    assert isinstance(answer, tuple)  # noqa: S101 - the answer to FindFences
    return {
        each[0]: each[1] for each in answer if isinstance(each, tuple) and isinstance(each[1], int)
    }


def _from_peer(
    name: str, base_of: BaseOf, fenced: Mapping[str, int], plan: StatefulPlan
) -> Generator[Step, Answer, Timeline | None]:
    """Return the timeline ``name`` in a copy of the most advanced usable directory of a peer (TI5);
    None if there is none.
    """
    peers = yield FindPeers()
    found = []
    for replica, theirs in timelines_of(peers):
        if _is_fenced(theirs, replica, fenced) or difference(theirs.plan, plan):
            continue
        if not (yield CopyPeer(replica, theirs.name, name)):
            continue
        bases = {}
        for batch in batches_of((yield FindBatches(name))):
            tip = theirs.tip(batch) if batch >= max(0, theirs.lowest) else None
            base = None if tip is None else base_of(replica, tip)
            if base is not None:
                bases[batch] = base
        last = yield FindWhole(name, tuple(bases))
        # Older batches need these blocks and more: if the newest batch has missing blocks, so have
        # the others.
        if isinstance(last, int) and not (yield FindMissing(name, last)):
            found.append((bases[last], last, replica, theirs.name))
    for base, batch, replica, source in sorted(found, reverse=True):
        if (yield CopyPeer(replica, source, name)) and (
            yield FindWhole(name, (batch,))
        ) is not None:
            yield CutBack(name, batch, keep_plan=False)
            return Timeline.from_peer(name, batch, base)
    return None


def batches_of(answer: Answer) -> tuple[int, ...]:
    """Return the answer to ``FindBatches``, checked."""
    assert isinstance(answer, tuple)  # noqa: S101 - the answer to FindBatches
    return tuple(batch for batch in answer if isinstance(batch, int))


def timelines_of(answer: Answer) -> PeerTimelines:
    """Return the answer to ``FindPeers``, checked."""
    assert isinstance(answer, tuple)  # noqa: S101 - the answer to FindPeers
    return tuple(
        (each[0], each[1])
        for each in answer
        if isinstance(each, tuple) and isinstance(each[1], Timeline)
    )


def fork_steps(stable_query: Timeline, name: str) -> Steps:
    """Yield the steps of a fork: copy the directory, write the timeline file (rule 11). Only after
    the last step may the query of ``stable_query`` continue as the branch.

    The copy is as durable as the stable query's directory was: a loss of power removes the same
    batches from the end of both (TI6).
    """
    yield Copy(stable_query.name, name)
    last = yield FindCommit(name)
    assert isinstance(last, int)  # noqa: S101 - the answer to FindCommit
    timeline = stable_query.forked(name, last)
    yield Write(timeline)
    return timeline
