"""Passive standby: decides which process of a stage runs its query, and from which checkpoint the
next one continues.

Theory of operation. The processes of a stage with ``ha: passive`` are one *replica*: one writer of
the boundary log, one block topic. The log alone proves which process is primary: that of the newest
``EpochStarted`` (rule 1); later records of any other process are rejected by every reader. So the
processes need not agree on the next primary: a wrong choice costs a restart, never a result. The
others copy the primary's checkpoint from time to time and receive its heartbeats. When the primary
has been silent for ``PRIMARY_SILENT_MS``, the standby whose turn it is begins an epoch and
continues from its copy. The copy is one of the replica's own checkpoints, a little older: the
records of the batches that it runs again replace the original ones (rule 4), closed buckets remain
unchanged, and ids are positions in buckets, so readers see no difference (this is repeating
recovery, which ids make precise).

A replica that an operator moves to another node (``protocol.control.placement``) begins there as a
standby, too, in a stage of any kind. It waits only for its own readiness: it becomes the primary as
soon as it is warm, has access to a checkpoint that is about as advanced as the log, and has
rehearsed its first batches from it (``protocol.stage.rehearsal``). The checkpoint is on the disk of
its machine, or copied from the store (``protocol.stage.transfer``). Until then the process on the
old node continues. That one ends like any primary that finds a newer epoch in the log.

A process has no other state: it stands by until ``StandbyWatch.due`` returns True, begins an epoch,
once, and is the primary until a newer epoch is in the log. Then it ends, and the next process
stands by. ``due`` is a function of the received heartbeats and records, and so are the steps of the
process meanwhile, ``copy_steps``.

A node that ended and is restarted needs all processors, for the start of Java, just when a standby
becomes the primary. Results wait for the standby alone, so the node waits a little first.

Invariants:
    SB1 while a primary sends heartbeats, or closes buckets, no standby becomes the primary. If no
        epoch ever began there is no primary to wait for; nor if the last heartbeat of the newest
        epoch's process says that it has ended.
    SB2 heartbeats of a process of an older epoch are no sign of life.
    SB3 silence counts, and is judged, only while a process receives its own heartbeats
        (``protocol.control.failure_detector``): after its own pause, or an outage of the broker, it
        waits anew. For a primary whose epoch is younger than ``PRIMARY_SETTLED_MS`` it waits
        longer.
    SB4 a standby without a checkpoint yields to those that have one; otherwise the order of the
        processes decides. The process that was last known as the primary has no turn.
    SB5 a copy is of a higher epoch than what it replaces, or of a later batch of the same. It holds
        no less of the input than the process claims, since trimming counts on that: a primary that
        continued from an older checkpoint is copied when the claim has ended (SB12), or it has
        caught up, and not tried before, since each copy scans the state. A process that becomes the
        primary takes the older one, once its lower claim is in the log.
    SB6 a copy has a name above those that the process has used, below those of every later epoch,
        and of no other process: one that slept while it copied, and was replaced, has a directory
        of its own, and deletes nothing that its replacement lives on (``protocol.log.timeline``,
        TI2).
    SB7 a copy gets its timeline file when it is known to be whole and the primary's directory still
        to be its stable one, and durable, since trimming counts on it; until then no process
        continues from it.
    SB8 a moved replica replaces a live process only if its checkpoint is at most
        ``MOVED_BEHIND_MS`` behind the last closed bucket, at least as far as the checkpoint below
        which the input is trimmed, and all of it but ``MOVED_REST_BYTES`` is on its machine:
        results are late by no more than a restart takes, whatever the size of the state. If the
        newest epoch began on its own node, or on none, it begins at once; so does a stage that
        recomputes its state from its input (``upstream_backup``), which needs no checkpoint of
        another process, unless it waits for its owner's (``protocol.stage.owners_checkpoint``).
        While it rehearses it replaces no process whose heartbeats have arrived (RH4).
    SB9 a restarted node yields for ``YIELD_MS_MAX`` at most, and only until the new primary on
        another node has written a record. It does not if one of its stages has no other process:
        that one's results wait for this node.
    SB10 a standby that is behind the primary and has copied nothing for ``UNCOPIED_MS`` says so:
        all input since its checkpoint is kept, and a failover runs it again.
    SB11 a standby forgets only input that it claims to have in its checkpoint. It claims nothing
        once the log has cut that off (TI7): if the process that continued from an older checkpoint
        loses its disk, the next primary needs that input again. One that had forgotten it would end
        in its failover, and so would each replacement; if it was trimmed, none could begin. Whoever
        claims nothing copies whatever the primary has. A claim names the epoch of the newest record
        by which it was judged (``protocol.control.trimming``, TM11).
    SB12 nor does it claim a checkpoint of an epoch that an earlier process of its own began, once a
        later epoch has a record: the earlier process, if it still runs, may fork, and put a copy in
        its place that is not durable. Until then that one's own claim bounds the trim point.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from anabranch.protocol.control.failure_detector import (
    REPLICA_SERVICE,
    STANDBY_SERVICE,
    FailureDetector,
    Peer,
    Silence,
)
from anabranch.protocol.control.records import Heartbeat
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import LONG_SILENT_MS
from anabranch.protocol.log.stateful_plan import NO_PLAN, StatefulPlan
from anabranch.protocol.log.timeline import (
    Answer,
    Clean,
    CopyPeer,
    CutBack,
    FindBatches,
    FindBucket,
    FindCommit,
    FindNewest,
    FindPeerCommit,
    FindPeers,
    FindWhole,
    LowerClaim,
    Remove,
    Step,
    Sync,
    Timeline,
    Write,
    batches_of,
    continues,
    epoch_of,
    number_of,
    timeline_name,
    timelines_of,
)
from anabranch.protocol.stage.recovery import HaMode

PRIMARY_SILENT_MS: Final = 1_500
"""Time without a sign of life of the primary, in ms, after which a standby becomes the primary. Six
heartbeats, because a slow primary must not count as dead: a wrong failover costs it a restart,
though never a result.
"""

PRIMARY_SETTLED_MS: Final = 15_000
"""Grace period after a primary's epoch starts, in ms, during which LONG_SILENT_MS replaces
PRIMARY_SILENT_MS: the primary is catching up, the lost node is restarting, and the machine is at
its busiest. Also the shortest time between two failovers on an overloaded machine.
"""

YIELD_MS_MAX: Final = 4_000
"""Maximum time that a restarted node leaves the processors to a standby that becomes the primary,
in ms: the start of Java takes all of two cores, for as long as a failover lasts.
"""

STANDBY_TURN_MS: Final = 2_000
"""Delay between the turns of two standbys, in ms: the others need that long to read the first one's
epoch; otherwise they would fence one another.
"""

MOVED_BEHIND_MS: Final = 5_000
"""Maximum lag, in ms, of the checkpoint with which a moved replica becomes the primary: a few
batches, which it runs again.
"""

MOVED_REST_BYTES: Final = 16 << 20
"""Maximum size, in bytes, of what a replica that is moved may have to read from the store after it
has become the primary: less than a second's reading.
"""

UNCOPIED_MS: Final = 60_000
"""Time, in ms, for which a standby is behind the primary and copies nothing until it says so
(SB10): some copies, each of which may fail because the primary changes its directory.
"""

STANDING_BY: Final = "standby"
LEADING: Final = "primary"
"""State that the primary reports under ``STANDBY_SERVICE``."""

ENDED: Final = "ended"
"""State in the last heartbeat of a replica's process that ends in order: its query is stopped."""

NO_PROGRESS: Final = (-1, -1)
"""Progress of a process without a committed batch; below that of every checkpoint."""


@dataclass(frozen=True, slots=True)
class StandbyProcess:
    """Process that stands by."""

    stage: str
    process: str
    node: str | None = None
    """Node to which its replica was moved (SB8); None for a standby of a passive stage."""
    token: str = ""
    """Random id of the process, 16 hexadecimal digits (SB6)."""
    plan: StatefulPlan = NO_PLAN
    """Operators that hold the state of the function that it runs."""


class StandbyWatch:
    """One process's knowledge of the other processes of its stage. ``now_ms`` is a clock of its
    own.
    """

    def __init__(
        self,
        own: StandbyProcess,
        writer: str,
        processes: Sequence[str],
        width_ms: int = 1,
        *,
        begins_from_input: bool = False,
    ) -> None:
        """Start without observations.

        Args:
            own: Identity of this process.
            writer: Replica name in the primary's heartbeats.
            processes: Ids of all processes, in the order of their turns.
            width_ms: Width of a bucket, in ms.
            begins_from_input: Whether this process recomputes its state from its input.
        """
        self.begins_from_input = begins_from_input
        """Whether this process begins from its input, with no checkpoint of another one (SB8)."""
        self._node, self._behind_max = own.node, MOVED_BEHIND_MS // width_ms
        self._runs_on = ""
        self._stage = own.stage
        self._process = own.process
        self._primary = Peer(REPLICA_SERVICE, own.stage, writer)
        self._silence = Silence()
        self._order = {each: number for number, each in enumerate(processes)}
        self._detector = FailureDetector(
            [self._primary, *(Peer(STANDBY_SERVICE, own.stage, each) for each in processes)]
        )
        self._epoch: int | None = None
        self._begun_ms = self._closed = 0
        self._log_was_read = False
        self._bucket, self._current_ms = 0, -1
        """Last bucket of the own checkpoint, and when it was last new or up to date, in ms; -1: not
        known yet.
        """

    def receive(self, beat: Heartbeat, now_ms: int) -> None:
        """Apply a heartbeat that was written since this process started to listen (SB1, SB2)."""
        if not self._detector.receive(beat, now_ms):
            return
        if Peer(beat.service, beat.name, beat.replica) == self._primary:
            self._silence.broken(now_ms)
        elif beat.replica == self._process:
            self._silence.came_back(now_ms)

    def log_seen(self, epoch: int | None, now_ms: int, runs_on: str = "", closed: int = 0) -> None:
        """Apply the state of the stage's log, which was read to its end at least once: a new epoch,
        or bucket, is a sign of life (SB1).

        ``epoch``: the newest epoch; None: there is none. ``runs_on``: the node on which it began;
            empty: that is unknown. ``closed``: the last bucket that the replica has closed.
        """
        self._log_was_read = True
        self._epoch = epoch
        self._runs_on = runs_on
        is_new = epoch is not None and self._detector.began(self._primary, epoch, now_ms)
        if is_new:
            self._begun_ms = now_ms
        if is_new or closed > self._closed:
            self._closed = closed
            self._silence.broken(now_ms)

    @property
    def must_wait(self) -> bool:
        """Whether another process may be running the replica, so that this one must wait for it
        (SB1, SB8). Valid once the log was read to its end.
        """
        return self._node is None or self._runs_on not in ("", self._node)

    @property
    def silent_ms(self) -> int:
        """Time since the last sign of life of the primary, in ms (SB3)."""
        return self._silence.ms

    @property
    def last_beat(self) -> Heartbeat | None:
        """Last heartbeat of the primary; None: none arrived."""
        return self._detector.last(self._primary)

    def is_uncopied(self, now_ms: int, bucket: int) -> bool:
        """Return whether the process is behind the primary and has copied nothing for a long time
        (SB10). Call it in every round. ``bucket``: last one in its checkpoint.
        """
        if self._current_ms < 0 or bucket != self._bucket or bucket >= self._closed:
            self._bucket, self._current_ms = bucket, now_ms
        return now_ms - self._current_ms >= UNCOPIED_MS

    def is_near(self, bucket: int, rest_bytes: int = 0) -> bool:
        """Return whether the checkpoint of a moved replica is near enough for the cutover (SB8).
        Takes the same arguments as ``due``.
        """
        if self._node is None or not self._log_was_read:
            return False
        last = self.last_beat
        trimmed = 0 if last is None else last.checkpoint_bucket
        return self.begins_from_input or (
            bucket + self._behind_max >= self._closed
            and bucket >= trimmed
            and rest_bytes <= MOVED_REST_BYTES
        )

    def due(
        self, now_ms: int, bucket: int, rest_bytes: int = 0, *, is_delayed: bool = False
    ) -> bool:
        """Return whether to become the primary now (SB3, SB4, SB8).

        Args:
            now_ms: Present time.
            bucket: Last bucket in the checkpoint from which this process would continue; 0: none.
            rest_bytes: Bytes of the newest stored checkpoint that this machine lacks.
            is_delayed: Whether a rehearsal delays the cutover (RH4).
        """
        if not self._log_was_read:
            return False
        last = self.last_beat
        is_delayed = is_delayed and last is not None
        if not self.must_wait or (not is_delayed and self.is_near(bucket, rest_bytes)):
            return True
        has_ended = last is not None and last.state == ENDED and last.epoch == self._epoch
        own = bucket == 0, self._order[self._process]
        alive = self._detector.alive(STANDBY_SERVICE, self._stage, now_ms)
        turns = [
            (beat.checkpoint_bucket == 0, self._order[each])
            for each, beat in alive.items()
            if each != self._process and beat.state != LEADING
        ]
        is_settled = self._node is None and now_ms - self._begun_ms >= PRIMARY_SETTLED_MS
        limit_ms = PRIMARY_SILENT_MS if is_settled else LONG_SILENT_MS
        wait_ms = 0 if self._epoch is None or has_ended else limit_ms
        if wait_ms and not self._silence.is_known(now_ms):
            return False
        return self.silent_ms >= wait_ms + STANDBY_TURN_MS * sum(turn < own for turn in turns)


def yields_for(stages: Sequence[tuple[str, HaMode, int]], restarts: int) -> list[str]:
    """Return the stages of a node for whose standbys on other nodes it yields when it starts (SB9).

    Args:
        stages: Name, ``ha`` setting and number of processes of each stage that runs on the node.
        restarts: Number of restarts of the node.
    """
    if not restarts or any(processes == 1 for _, _, processes in stages):
        return []
    return [name for name, ha, _ in stages if ha == "passive"]


def must_yield(node: str, runs_on: str, *, has_written: bool, waited_ms: int) -> bool:
    """Return whether a restarted node still leaves the processors to a standby of one of its
    passive stages (SB9).

    Args:
        node: Name of the restarted node.
        runs_on: Node on which the stage's newest epoch began; empty: there is no epoch.
        has_written: Whether the log has a record of that epoch.
        waited_ms: Time that the node has waited so far, in ms.
    """
    is_settled = not runs_on or (runs_on != node and has_written)
    return not is_settled and waited_ms < YIELD_MS_MAX


def progress(timeline: Timeline, commit: int) -> tuple[int, int]:
    """Return the progress of a checkpoint under ``timeline`` as (epoch, batch). ``commit``: the
    last batch that was committed in its directory; -1: none.
    """
    return (epoch_of(timeline.name) or 0, commit) if commit >= 0 else NO_PROGRESS


@dataclass(frozen=True, slots=True)
class CopySource:
    """Checkpoint of another process: its timeline, and the last batch that was committed in its
    directory.
    """

    process: str
    timeline: Timeline
    commit: int
    bucket: int
    """Last bucket of input in it."""

    @property
    def reached(self) -> tuple[int, int]:
        """Progress of the checkpoint."""
        return progress(self.timeline, self.commit)


def to_copy(own: tuple[int, int], others: Sequence[CopySource], claimed: int) -> CopySource | None:
    """Return the checkpoint to copy; None if the most advanced is not ahead of ``own``, the
    progress of the own one, or lacks input up to bucket ``claimed`` (SB5).
    """
    best = max(others, key=lambda each: each.reached, default=None)
    return best if best is not None and own < best.reached and best.bucket >= claimed else None


def copy_name(source: str, own: str | None, token: str) -> str:
    """Return the name for a copy of timeline ``source`` by the process of ``token``; ``own`` is the
    newest timeline that the process has (SB6).
    """
    epoch = epoch_of(source) or 0
    return timeline_name(
        epoch, 0 if own is None or epoch_of(own) != epoch else number_of(own) + 1, token
    )


@dataclass(frozen=True, slots=True)
class Held:
    """Checkpoint from which a standby process would start: the batch of the directory of
    ``timeline``, and the last bucket of input in it.
    """

    timeline: Timeline
    batch: int
    bucket: int


def is_cut_off(held: Held, tip: BatchId | None, accepted: Collection[BatchId]) -> bool:
    """Return whether a process that holds ``held`` must no longer claim it (SB11, SB12).

    Args:
        held: Its checkpoint.
        tip: Last record of the replica, as far as this process has read the stage's log; None:
            there is none.
        accepted: Records of the replica that another one may continue, as far as it has read.
    """
    if tip is None:
        return False
    name, own = held.timeline.name, held.timeline.tip(held.batch)
    epoch, epoch_read = epoch_of(name) or 0, epoch_of(tip.timeline) or 0
    if epoch < epoch_read and name == timeline_name(epoch, number_of(name)):
        return True
    if continues(held.timeline, held.batch, own, accepted.__contains__):
        return False
    # A copy may be ahead of what this process has read of the log.
    return own is None or (epoch_read, tip.batch) >= (epoch_of(own.timeline) or 0, own.batch)


def copy_steps(
    token: str, claimed: int, *, takes_over: bool
) -> Generator[Step, Answer, Held | None]:
    """Yield the steps by which a standby process replaces its checkpoint with a copy of a more
    advanced one. Return None if it keeps its own.

    A crash, or a long sleep, between any two steps does no harm: until ``Write`` no process reads
    the copy.

    Args:
        token: Random id of the process (SB6).
        claimed: Last bucket of input that the process reports to be in its checkpoint.
        takes_over: Whether it becomes the primary next, or is it and has nothing to start from.
    """
    own, reached, name_before = (yield FindNewest()), NO_PROGRESS, None
    if isinstance(own, Timeline):
        reached, name_before = progress(own, _number((yield FindCommit(own.name)))), own.name
    theirs = []
    for peer, timeline in timelines_of((yield FindPeers())):
        commit, bucket = batches_of((yield FindPeerCommit(peer, timeline.name)))
        theirs.append(CopySource(peer, timeline, commit, bucket))
    # While the primary runs a lower claim comes too late: trimming may have passed the copy by the
    # time that it is made.
    least = 0 if takes_over else claimed
    source = to_copy(reached, theirs, least)
    if source is None:
        return None
    name = copy_name(source.timeline.name, name_before, token)
    if not (yield CopyPeer(source.process, source.timeline.name, name)):
        return None
    lowest = max(0, source.timeline.lowest)
    batch = yield FindWhole(
        name, tuple(each for each in batches_of((yield FindBatches(name))) if each >= lowest)
    )
    # Where a newer file names another directory by now, this one may have become a branch while it
    # was copied (``protocol.log.timeline``).
    is_same = (source.process, source.timeline) in timelines_of((yield FindPeers()))
    if not isinstance(batch, int) or not is_same:
        yield Remove(name)
        return None
    bucket = _number((yield FindBucket(name, batch)))
    # Judged again: what is whole may be an older batch. The claim before the file: a process that
    # is killed between the two claims too little.
    if to_copy(reached, [replace(source, commit=batch, bucket=bucket)], least) is None or (
        bucket < claimed and not (yield LowerClaim(bucket))
    ):
        yield Remove(name)
        return None
    yield CutBack(name, batch, keep_plan=False)
    yield Sync(name)
    copied = source.timeline.copied(name, batch)
    yield Write(copied)
    yield Clean(epoch_of(name) or 0, number_of(name))
    return Held(copied, batch, bucket)


def _number(answer: Answer) -> int:
    assert isinstance(answer, int)  # noqa: S101 - the answer to FindCommit and FindBucket
    return answer
