"""Timelines: which checkpoint directory does a replica go on from, and which record does it
continue?

Theory of operation. A replica's query has a checkpoint directory. At every start (and every fork)
the replica goes on in a *copy*, under a timeline name of its own, which carries its epoch (rule 8).
A small timeline file beside the directories says so; the highest name is the newest. Record ids are
(timeline, batch of Spark), so a batch that is run again under a new timeline has a new id and says
by ``prev`` which record it continues (rules 3, 9): that of the last batch that Spark committed in
the directory.

Invariants:
    TI1 names sort as (epoch, number): the newest timeline is the one of the newest process.
    TI2 only directories and files of lower names are ever deleted: of lower epochs, and by a
        process that stands by, of the epoch that it copies, those of lower numbers. A process that
        slept for long may do its part of this at any time.
    TI3 ``tip`` is the record of the last committed batch, by whichever timeline made it.
    TI4 a replica goes on from its own directory if a whole batch is in it and the blocks that come
        after it are there; else from a peer's; else from the beginning of the log, if that is
        there; else it waits for a peer.
    TI5 a peer's checkpoint is taken at a batch all of whose parts are stable by now
        (``protocol.stage.recovery``), without the plan after it; the new timeline begins with a
        base record, and until its first commit every restart says it again (rule 6).
    TI6 going back to an older batch (damage, loss of power) is safe: the new timeline has another
        name, and its records cut the chain (rule 4).
    TI7 an own batch is gone on from only if its record is on the accepted chain: any other record
        would be rejected (rule 4). A passive replica finds its checkpoint cut off where another
        process went on from an older copy, and that one's disk was lost. Where all that such a
        batch had closed or begun is stable it is taken as a peer's would be, under a base record
        (TI5).
    TI8 what a process made that a majority contradicts is gone on from by nobody
        (``protocol.control.fencing``): its state is wrong, and the next process would come to the
        same. Whatever its epoch, or an earlier one, made is passed over, the own checkpoint and a
        peer's alike: the next process starts from another peer's, or from the beginning. What it
        makes itself has a higher epoch, and counts again.
    TI9 a timeline names the operators that hold its state. A process whose function has others
        (``protocol.log.stateful_plan``) goes on from no checkpoint with a committed batch: from its
        own it ends, before it has begun an epoch where it can, unless an operator lets the stage
        begin anew; a peer's it passes over.
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
    """Name of the ``number``-th timeline of ``epoch`` (TI1).

    ``token``: of the process, 16 hexadecimal digits, where it has not begun the epoch itself:
        another one may come to the same number.
    """
    return f"{epoch:012d}-{number:06d}" + (f"-{token}" if token else "")


def epoch_of(name: str) -> int | None:
    """The epoch in a timeline's name; None: not such a name."""
    match = _NAME.match(name)
    return int(match[1]) if match else None


def number_of(name: str) -> int:
    """Which timeline of its epoch ``name`` is; 0 where it is not such a name."""
    match = _NAME.match(name)
    return int(match[2]) if match else 0


@dataclass(frozen=True, slots=True)
class Timeline:
    """What a timeline file says. Written once, before the timeline's first batch."""

    name: str
    start_batch: int
    """Last batch that was committed in the directory when it was copied; -1: none, a new
    checkpoint.
    """
    start_tip: BatchId | None
    """The record of that batch."""
    base: int | None = None
    """Rule 6: it began in a copy of a peer's directory, or of one that was cut off; buckets up to
    here are not its own. ``start_tip`` is its base record.
    """
    earlier: tuple[BatchId, ...] = ()
    """The timelines before, each with the last of its batches in this directory, ascending:
    who made which of the batches up to ``start_batch``.
    """
    floor: int | None = None
    """The record of this batch, and of those after it, is known; -1: of all. None: only from
    ``start_batch`` on.
    """
    plan: StatefulPlan = NO_PLAN
    """What the state in the directory means (TI9)."""

    @classmethod
    def fresh(cls, epoch: int) -> Self:
        """The timeline of a replica that starts from nothing."""
        return cls(name=timeline_name(epoch, 0), start_batch=-1, start_tip=None, floor=-1)

    @classmethod
    def from_peer(cls, name: str, batch: int, base: int) -> Self:
        """The timeline that goes on in a copy of a peer's directory as it was after
        ``batch``: its first record is the base record (TI5, TI7).
        """
        return cls(
            name=name, start_batch=batch, start_tip=BatchId(name, batch), base=base, floor=batch
        )

    @property
    def lowest(self) -> int:
        """The lowest batch from which a copy of the directory may go on, if it is still there."""
        return self.start_batch if self.floor is None else self.floor

    def tip(self, last_commit: int) -> BatchId | None:
        """The record that a query in this timeline's directory continues, when Spark committed
        ``last_commit`` last (TI3).

        Raises:
            LocalProtocolError: it is not known which record that is: the directory is not this
                timeline's.
        """
        if last_commit > self.start_batch:
            return BatchId(self.name, last_commit)
        if last_commit < self.lowest:
            message = (
                f"timeline {self.name} began after batch {self.start_batch}, but its directory"
                f" stands at {last_commit}"
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
        """The timeline ``name`` that goes on in a copy of this one's directory, in which
        ``last_commit`` is the last batch committed.
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
        """The same, by the process that has appended the base record already, if there is one."""
        return replace(self, base=None).copied(name, last_commit)


def newest(names: Iterable[str]) -> str | None:
    """The newest timeline (TI1)."""
    return max((n for n in names if epoch_of(n) is not None), default=None)


def obsolete(names: Iterable[str], epoch: int, number: int = 0) -> list[str]:
    """What may be deleted beside timeline ``number`` of ``epoch``: only what is below it (TI2)."""
    return sorted(
        n for n in names if (e := epoch_of(n)) is not None and (e, number_of(n)) < (epoch, number)
    )


@dataclass(frozen=True, slots=True)
class FindNewest:
    """Answer: the timeline that the newest file names, or None."""


@dataclass(frozen=True, slots=True)
class FindFences:
    """Answer: of each replica of the stage that was ever fenced the newest epoch that was, as
    far as that is known by now (TI8).
    """


@dataclass(frozen=True, slots=True)
class Create:
    """Make an empty directory: what is there, a copy that was given up, goes."""

    name: str


@dataclass(frozen=True, slots=True)
class Copy:
    """Make directory ``target`` a copy of ``source``, whole or not at all; what was durable
    there is durable here.
    """

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class FindCommit:
    """Answer: the last batch committed in the directory, -1 if none."""

    name: str


@dataclass(frozen=True, slots=True)
class FindBatches:
    """Answer: the batches that were committed in the directory, newest first; (-1,): none."""

    name: str


@dataclass(frozen=True, slots=True)
class FindWhole:
    """Answer: the first of ``batches`` whose logs and state are whole in the directory; None:
    of none. -1: nothing was ever committed.
    """

    name: str
    batches: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CutBack:
    """Forget every batch after ``batch`` in the directory, which is a copy; ``keep_plan``:
    but for the plan of the one right after it (rule 9).
    """

    name: str
    batch: int
    keep_plan: bool


@dataclass(frozen=True, slots=True)
class FindMissing:
    """Answer: what is gone, in words, of the blocks that come after ``batch`` of the
    directory; empty: they are there. -1: from the beginning.
    """

    name: str
    batch: int
    is_restated: bool = False
    """The process passes over a checkpoint of another function, since an operator lets the stage
    begin anew (``protocol.stage.restating``).
    """


@dataclass(frozen=True, slots=True)
class FindRecomputed:
    """Answer: 1 if blocks that come after ``batch`` of the directory stand elsewhere than
    they did (``protocol.stage.recomputation``), else 0.
    """

    name: str
    batch: int


@dataclass(frozen=True, slots=True)
class FindPeers:
    """Answer: the peers whose disks are within reach, each with its newest timeline."""


@dataclass(frozen=True, slots=True)
class CopyPeer:
    """Make ``target`` a copy of a peer's directory, whole or not at all. Answer: False if it
    could not be copied.
    """

    replica: str
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class AwaitPeer:
    """Wait a while: nothing can be started from. ``missing``: why not from the beginning of
    the log.
    """

    missing: str


@dataclass(frozen=True, slots=True)
class AppendBase:
    """Append the base record of the timeline, and see it accepted (rules 2, 6)."""

    timeline: Timeline


@dataclass(frozen=True, slots=True)
class Write:
    """Write the timeline file, durably."""

    timeline: Timeline


@dataclass(frozen=True, slots=True)
class CheckEpoch:
    """Read the boundary log; end here if a newer process began."""


@dataclass(frozen=True, slots=True)
class Clean:
    """Remove what is below timeline ``number`` of ``epoch`` (TI2)."""

    epoch: int
    number: int = 0


@dataclass(frozen=True, slots=True)
class FindPeerCommit:
    """Answer: as for ``FindCommit``, on a peer's disk."""

    replica: str
    name: str


@dataclass(frozen=True, slots=True)
class Sync:
    """Make what is in the directory durable."""

    name: str


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove one directory, which no timeline file names."""

    name: str


DiskStep = (
    FindNewest
    | FindCommit
    | FindBatches
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
"""What needs nothing but the replica's disk (``ports.Checkpoints``)."""
Step = (
    DiskStep
    | FindMissing
    | FindRecomputed
    | FindFences
    | FindPeerCommit
    | AwaitPeer
    | CheckEpoch
    | AppendBase
)
PeerTimelines = tuple[tuple[str, Timeline], ...]
Fences = tuple[tuple[str, int], ...]
Answer = Timeline | PeerTimelines | Fences | tuple[int, ...] | int | str | None
_Result = TypeVar("_Result")
Steps = Generator[Step, Answer, Timeline]
"""Steps in their order; the shell performs each and sends the answer, if there is one. A
crash between any two is safe.
"""
BaseOf = Callable[[str, BatchId], int | None]
"""(peer, id of its record) -> the base of a copy of its checkpoint as it was then; None: it
must not be copied.
"""


def carry_out(
    steps: Generator[Step, Answer, _Result], perform: Callable[[Step], Answer]
) -> _Result:
    """Have ``perform`` carry out ``steps`` one after the other; what they come to."""
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
    """What the stage's log says of the replica's own records. The default is for a log in
    which nothing was ever cut off.
    """

    has: Callable[[BatchId], bool] = lambda _ident: True
    """Whether a record may be continued."""
    cut_off_base: Callable[[BatchId], int | None] = lambda _ident: None
    """Of one that may not: the base of its checkpoint as it was then; None: it is of no use."""
    is_open: bool = False
    """The own checkpoint is not to be gone on from (``protocol.stage.recovery``)."""
    replica: str = ""
    """Name of the replica that it is of."""
    state: StageState = NO_STATE
    """What the function of the process keeps between batches."""
    is_restated: bool = False
    """An operator lets the stage begin anew with this version: a checkpoint that another function
    of a lower one made is passed over (``protocol.stage.restating``).
    """


def failover_steps(
    epoch: int, base_of: BaseOf = lambda _replica, _ident: None, own: OwnChain = OwnChain()
) -> Steps:
    """Rules 6 and 8: how the process of ``epoch`` comes to its stable timeline (TI4).

    The old process may be alive: it may fork while its directory is copied, which makes the
    directory a branch. So the newest timeline is looked up again after copying, and the copy is
    made again if it changed. Of a peer's directory only batches of stable records are taken, so
    what it becomes meanwhile does not matter.
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
        if (yield FindNewest()) == found:
            break
    timeline = replace(timeline, plan=own.state.plan)
    yield Write(timeline)
    yield CheckEpoch()
    yield Clean(epoch)
    if timeline.base is not None:
        yield AppendBase(timeline)
    return timeline


def check_plan_steps(own: OwnChain) -> Generator[Step, Answer, None]:
    """Raise if the failover would end since the function has changed (TI9). A process calls it
    before it begins its epoch: the log then has nothing of it, and the function before can go on.

    Raises:
        ConfigurationError: the state of the checkpoint means something else to the function.
    """
    found, fenced = (yield FindNewest()), _epochs((yield FindFences()))
    if isinstance(found, Timeline) and _is_usable(found, own, fenced):
        yield from _is_of_another_function(found, own)


def _is_usable(found: Timeline, own: OwnChain, fenced: Mapping[str, int]) -> bool:
    """Whether the process goes on from its own checkpoint ``found``, as far as that is whole."""
    return not own.is_open and not _is_fenced(found, own.replica, fenced)


def _is_of_another_function(found: Timeline, own: OwnChain) -> Generator[Step, Answer, bool]:
    """Return whether ``found`` has state that means something else to the function (TI9), and is
    passed over. Before the first committed batch there is none.

    Raises:
        ConfigurationError: it has, and nobody has decided that the stage begins anew.
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
    """The timeline ``name`` in a copy of the directory of ``found``; None: nothing in it can
    be gone on from.
    """
    yield Copy(found.name, name)
    tips = {
        batch: found.tip(batch)
        for batch in batches_of((yield FindBatches(name)))
        if batch >= found.lowest
    }
    last = yield FindWhole(
        name, tuple(batch for batch, tip in tips.items() if _goes_on(found, batch, tip, own))
    )
    if isinstance(last, int) and not (yield FindMissing(name, last)):
        # A plan that was made before blocks were recomputed names the old ones. Without it the
        # batch is planned anew, as after damage (TI6).
        yield CutBack(name, last, keep_plan=not (yield FindRecomputed(name, last)))
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


def _goes_on(found: Timeline, batch: int, tip: BatchId | None, own: OwnChain) -> bool:
    """Whether the first record after ``batch`` of the directory of ``found`` will be accepted
    (TI7): a first record, or a base record, always is.
    """
    return (
        batch < 0
        or (found.base is not None and batch == found.start_batch)
        or (tip is not None and own.has(tip))
    )


def _is_fenced(timeline: Timeline, replica: str, fenced: Mapping[str, int]) -> bool:
    """Whether a process of ``replica`` made it that was fenced, or one before that (TI8)."""
    return (epoch_of(timeline.name) or 0) <= fenced.get(replica, -1)


def _epochs(answer: Answer) -> dict[str, int]:
    assert isinstance(answer, tuple)  # noqa: S101 - the answer to FindFences
    return {
        each[0]: each[1] for each in answer if isinstance(each, tuple) and isinstance(each[1], int)
    }


def _from_peer(
    name: str, base_of: BaseOf, fenced: Mapping[str, int], plan: StatefulPlan
) -> Generator[Step, Answer, Timeline | None]:
    """The timeline ``name`` in a copy of a peer's directory, of the one that is furthest and
    will do (TI5); None: there is none.
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
        # Older batches need more blocks than this one: if its are gone, theirs are.
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
    """The answer to ``FindBatches``."""
    assert isinstance(answer, tuple)  # noqa: S101 - the answer to FindBatches
    return tuple(batch for batch in answer if isinstance(batch, int))


def timelines_of(answer: Answer) -> PeerTimelines:
    """The answer to ``FindPeers``."""
    assert isinstance(answer, tuple)  # noqa: S101 - the answer to FindPeers
    return tuple(
        (each[0], each[1])
        for each in answer
        if isinstance(each, tuple) and isinstance(each[1], Timeline)
    )


def fork_steps(stable_query: Timeline, name: str) -> Steps:
    """Rule 11: snapshot, timeline file. Only after the last step may the query of ``stable_query``
    go on as the branch.

    The snapshot is as durable as the stable query was: a loss of power takes batches from its end
    that it would have taken from the stable query's (TI6), no others.
    """
    yield Copy(stable_query.name, name)
    last = yield FindCommit(name)
    assert isinstance(last, int)  # noqa: S101 - the answer to FindCommit
    timeline = stable_query.forked(name, last)
    yield Write(timeline)
    return timeline
