"""One process of one replica in the simulation: the real shell (``processing.stage_replica``) over
the simulated engine, and notes of what it does, for the checkers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from typing_extensions import override

from anabranch.ports import BatchDone, PreparedStage
from anabranch.process.frame import ServiceContext
from anabranch.processing.neighbours import Neighbours
from anabranch.processing.primary import Primary
from anabranch.processing.stage_replica import StageReplica
from anabranch.processing.standby import Standby
from anabranch.processing.warm_standby import WarmStandby
from anabranch.protocol.control.records import Heartbeat, ReplicaState
from anabranch.protocol.errors import Unavailable
from anabranch.protocol.log.records import BoundaryKind
from anabranch.protocol.log.timeline import FindWhole, LowerClaim, Write
from anabranch.protocol.stage.owners_checkpoint import StoreUse
from anabranch.protocol.stage.recovery import PartnerWrong, begins_anew
from simulation.disk import SimulatedDisk
from simulation.engine import SimulatedEngine
from simulation.network import Port

NOT_BEGUN: Final = -1
_UNHEARD_OF: Final = 2**40
"""Epoch that no log of a run reaches."""
_OLDER: Final = "an older checkpoint than this process had copied"


class NodeDisks:
    """``ports.Disks`` of a node: a disk for each of its replicas."""

    def __init__(self, make: Callable[[str], SimulatedDisk]) -> None:
        """``make``: makes the disk of a replica, given its label, for this process of the node."""
        self._make = make
        self._made: dict[str, SimulatedDisk] = {}

    def disk_of(self, label: str) -> SimulatedDisk:
        """Return the disk of the replica ``label``."""
        if label not in self._made:
            self._made[label] = self._make(label)
        return self._made[label]

    def of(
        self, stage: str, process: str, others: Sequence[str], *, life: str, store_use: StoreUse
    ) -> SimulatedDisk:
        """See the port."""
        del others
        disk = self.disk_of(f"{stage}.{process}")
        disk.open_in(life, stage, process, store_use=store_use)
        return disk


def _note_before(target: object, method: str, note: Callable[..., None]) -> None:
    """Let ``note`` be called, with the same arguments, before each call of ``method``."""
    original = getattr(target, method)

    def noted(*arguments: object) -> object:
        note(*arguments)
        return original(*arguments)

    setattr(target, method, noted)


class SimulatedReplica(StageReplica):
    """Real shell that notes what it does. See ``process.frame.Service``."""

    def __init__(
        self,
        context: ServiceContext,
        engine: SimulatedEngine,
        disks: NodeDisks,
        node: str,
        *,
        port: Port,
        may_run_elsewhere: bool = False,
        has_place: bool = True,
    ) -> None:
        """``port``: of the process."""
        super().__init__(
            replace(context, crash_point=self._reach_crash_point),
            engine,
            disks,
            node,
            may_run_elsewhere=may_run_elsewhere,
            has_place=has_place,
        )
        self._port = port
        self.looks: Callable[[], None] = lambda: None
        """Called before it reads its own log to the end, to begin an epoch."""
        self.begun: Callable[[int], None] = lambda _epoch: None
        """Told the epoch once the replica is the primary."""
        self._judged_engine = engine
        self._own_disk: SimulatedDisk = disks.disk_of(context.settings.name)
        self._corrects = self._is_abandoned = self._is_claim_lowered = False
        self._copied_bucket = self._looks_ms = 0
        self.built_ms = port.now_ms
        """Time at which this process of the replica was built."""
        self.died_of: Exception | None = None
        """Error that ``start`` or ``step`` raised."""
        sends, self._heartbeats._sender.send = self._heartbeats._sender.send, self._send_noted  # type: ignore[method-assign]
        self._sends = sends
        _note_before(self._report, "waits_for_blocks", self._note_wait)
        _note_before(self._report, "partner_differs", self._note_partner)

    # ---------------------------------------------------------------- what the world asks

    @property
    def stable_query(self) -> str:
        """The stable timeline."""
        assert self._runner is not None, "begun"
        return self._runner.stable_query

    @property
    def branch(self) -> str | None:
        """The timeline of the branch, if there is one."""
        return None if self._runner is None else self._runner.branch

    @property
    def stream(self) -> str:
        """The stream that it writes."""
        return self._own.stage_name

    @property
    def writer(self) -> str:
        """The replica that it is a process of."""
        return self._own.replica

    @property
    def is_passive(self) -> bool:
        """Whether its process stands by where another one is primary."""
        return self._own.is_passive

    @property
    def epoch(self) -> int:
        """The epoch of this process; -1: it has not begun."""
        primary = self._primary
        return primary.epoch if primary is not None and primary.has_begun else NOT_BEGUN

    @property
    def buckets_remembered(self) -> int:
        """Stable buckets with rows that the log states of the inputs remember."""
        return sum(
            len(each.reader.log_state._stable) for each in self._followers.by_stream.values()
        )

    @property
    def stands_by(self) -> bool:
        """Whether another process may be the primary."""
        return self._runner is None and self.status.state == "standby"

    @property
    def is_stable(self) -> bool:
        """Whether it has begun, and has no branch. It may say UP_FAILURE all the same, every now
        and then, where its input usually takes nearly as long as it may.
        """
        return self._runner is not None and self.branch is None

    # ---------------------------------------------------------------- what is noted

    def start(self) -> None:
        """See ``StageReplica``."""
        try:
            super().start()
        except Exception as error:
            self.died_of = error
            raise
        if self._warm_standby is not None:
            standby = self._warm_standby.standby
            _note_before(standby, "_perform", partial(self._note_copy, standby))
        if self.stands_by:
            self._reached("stands by" if self.is_passive else "stands by where it is moved to")
            self._port.note("stands by", self._own.stage_name, self._own.process)

    def step(self) -> None:
        """See ``StageReplica``."""
        try:
            super().step()
        except Exception as error:
            self.died_of = error
            raise

    def _reached(self, what: str) -> None:
        self._port.network.history.reached(what)

    def _reach_crash_point(self, name: str) -> None:
        runner = self._runner
        if name == "processing.fork_decided" and runner is not None:
            position = runner._started().position(runner.stable_query)
            is_late = runner._started()._is_late
            bucket = None if position is None else position.bucket
            self._port.note("forks", bucket, is_late, self._own.label)
            if is_late:
                self._reached("forks because it is late")
            if runner.branch is not None:
                self._port.note(
                    "forks again",
                    self._own.stage_name,
                    self._own.process,
                    self._port.now_ms - self._judged_engine.moved_ms,
                    runner._availability.waits.first_ms,
                )
        if name == "processing.standby_due" and self._warm_standby is not None and self.is_passive:
            bucket = self._warm_standby.standby.bucket
            self._port.note(
                "becomes the primary",
                self._own.stage_name,
                self._own.process,
                bucket,
                self._looks_ms,
            )
        self._port.crash_point(name)

    @override
    def _run_standby(self, warm_standby: WarmStandby, prepared: PreparedStage) -> None:
        standby, self._looks_ms = warm_standby.standby, self._port.now_ms
        try:
            super()._run_standby(warm_standby, prepared)
        except Unavailable as error:
            if _OLDER in str(error):
                # what it has forgotten is needed again: that is why it ends
                self._port.struck("another went on from an older checkpoint")
            raise
        if not self.is_passive:
            return
        if self._runner is None:
            # Once it has an epoch, only what it says as the primary counts (TM11).
            self._own_disk.check_newest_synced(standby.bucket)
        if standby.bucket != self._copied_bucket:
            self._copied_bucket = standby.bucket
            self._reached("standby copied")

    @override
    def _fail_over(self, prepared: PreparedStage) -> None:
        self._port.crash_point("processing.begins")
        super()._fail_over(prepared)
        primary = self._primary
        if primary is None or not primary.has_begun:
            return
        runner, boundary, own = primary.runner, primary.boundary, self._own
        self.begun(boundary.epoch)
        if self._warm_standby is not None and self._warm_standby.standby.bucket and self.is_passive:
            self._reached("fails over to a copy")
        if runner.given_up > boundary.log_state.closed(own.replica):
            self._reached("results given up")
        comparison = runner._steps.recovery.comparison
        if comparison is not None and comparison.upto:
            self._reached("state made anew")
        if begins_anew(boundary.log_state.origin(own.replica), own.stage.ha):
            self._reached("state made anew while nothing new is closed")

    @override
    def _open_neighbours(self) -> Neighbours:
        neighbours = super()._open_neighbours()
        asks = neighbours.control.may_correct

        def may_correct(wanted: bool) -> bool:
            may = asks(wanted)
            self._reached(f"gate {neighbours.gate.why.name}")
            if (may and wanted) != self._corrects:
                self._corrects = not self._corrects
                self._port.note("corrects", self._own.stage_name, self._own.process, self._corrects)
            return may

        neighbours.control.may_correct = may_correct  # type: ignore[method-assign]
        return neighbours

    @override
    def _new_primary(self, prepared: PreparedStage, neighbours: Neighbours) -> Primary:
        primary = super()._new_primary(prepared, neighbours)

        def starts(timeline: str) -> None:
            if timeline == primary.runner.stable_query and not primary._running:
                if self._own.stage.ha == "upstream_backup":
                    closed = primary.boundary.log_state.closed(self._own.replica)
                    self._port.link.wrong_after = closed
            else:
                self._reached("successor started")

        _note_before(primary, "_start_query", starts)
        _note_before(primary, "_end_branch", lambda *_: self._reached("branch dropped"))
        _note_before(primary, "_batch_done", self._note_batch)
        _note_before(primary.runner.boundary, "start", self._note_look)
        if self._warm_standby is not None:
            note = partial(self._note_claim, self._warm_standby.standby)
            _note_before(primary.runner._steps, "carry_out", note)
        _note_before(primary.runner, "_abandon", self._note_abandoned)
        _note_before(primary.runner, "_end_branch", self._note_end)
        return primary

    def _note_copy(self, standby: Standby, step: object) -> None:
        if isinstance(step, FindWhole):  # it follows ``CopyPeer``
            self._port.crash_point("processing.standby_copied")
        self._note_claim(standby, step)

    def _note_claim(self, standby: Standby, step: object) -> None:
        match step:
            case LowerClaim():
                self._reached("claim lowered")
                self._port.claim_lowered()
                self._is_claim_lowered = True
            case Write(timeline):
                self._own_disk.check_claimed(timeline, standby.claimed)
                if self._is_claim_lowered:
                    own, self._is_claim_lowered = self._own, False
                    self._port.note(
                        "claims less",
                        own.stage_name,
                        own.process,
                        standby.claimed,
                        standby._judged_epoch,
                    )
                    self._port.crash_point("processing.claim_lowered")

    def _note_look(self, *_: object) -> None:
        self.looks()

    def _note_abandoned(self, *_: object) -> None:
        runner = self._runner
        self._is_abandoned = runner is not None and runner.branch is not None

    def _note_end(self, _branch: str) -> None:
        """Note that the replica ends its branch itself: it has caught up."""
        if not self._is_abandoned:
            self._port.note("has caught up", self._own.label)
        self._is_abandoned = False

    def _note_batch(self, _query: str, done: BatchDone) -> None:
        if done.start.kind is BoundaryKind.TENTATIVE:
            self._reached("tentative batch")

    def _note_wait(self, missing: str, _requested: str) -> None:
        self._reached("waits for a peer")
        self._port.note("waits", missing)

    def _note_partner(self, found: PartnerWrong) -> None:
        self._port.note("partner wrong", found.stage, found.bucket, found.node)

    @override
    def _heartbeat(self) -> Heartbeat | None:
        beat, runner = super()._heartbeat(), self._runner
        if beat is None or runner is None or beat.replica_state is None:
            return beat
        self._reached(f"replica {beat.replica_state}")
        if runner._availability._lags.beyond_expected_ms:
            self._reached("depth measured")
        if runner.unread:
            self._reached("no room for more of an input")
            # its log goes on, and is trimmed (protocol.log.log_snapshots)
            self._port.struck("no room for more of an input")
        self._own_disk.check_synced(runner.stable_query, runner.synced_bucket)
        self._own_disk.check_stored(runner.synced_bucket)
        return beat

    def _send_noted(self, beat: Heartbeat) -> bool:
        claims = self._port.link.claims
        if claims is not None:
            self._reached("a seller lies about its checkpoint")
            beat = replace(beat, checkpoint_bucket=claims)
        if self._port.link.makes_up_epochs:
            self._reached("a seller makes up epochs")
            beat = replace(beat, epoch=_UNHEARD_OF)
        sent, runner = self._sends(beat), self._runner
        if sent and runner is not None and runner.state is ReplicaState.STABLE:
            position = runner._started().position(runner.stable_query)
            self._port.note(
                "says stable",
                self._own.stage_name,
                self._own.process,
                position.bucket if position is not None else 0,
            )
        return sent
