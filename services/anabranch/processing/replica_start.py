"""Start of a replica as a primary: the process that begins the epoch, and the resources for
recovery besides the process's own disk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from anabranch.pipeline.waits import known_horizon_buckets
from anabranch.processing.half_beginning import HalfBeginning
from anabranch.processing.replica_environment import HostProcess, Recovery
from anabranch.protocol.control.placement import BeginRight, has_left
from anabranch.protocol.errors import Fenced
from anabranch.protocol.stage.recovery import Comparison

if TYPE_CHECKING:
    from anabranch.ports import Condition
    from anabranch.process.frame import ServiceContext
    from anabranch.processing.input_followers import InputFollowers
    from anabranch.processing.inputs import StageInputs
    from anabranch.processing.node_load import NodeLoad
    from anabranch.processing.own_checkpoint import OwnCheckpoint
    from anabranch.processing.own_split import ShardSplit
    from anabranch.processing.replica_identity import ReplicaIdentity
    from anabranch.processing.replica_report import ReplicaReport
    from anabranch.processing.standby import Standby
    from anabranch.processing.warm_standby import WarmStandby
    from anabranch.protocol.log.boundary_log import LogState
    from anabranch.protocol.stage.recovery import PartnerWrong
    from anabranch.streams.fences import FenceWatch
    from anabranch.streams.recompute_client import RecomputeClient

_PAUSE_MS: Final = 50
"""Pause between two checks of a condition that the start waits for, in ms."""
_PAUSES_PER_ATTEMPT: Final = 20
"""Number of such pauses between two attempts to start from a checkpoint."""


class StoppingError(Exception):
    """Raised when a shutdown signal arrives during startup."""


def pause_start(context: ServiceContext) -> None:
    """Pause the start briefly.

    Raises:
        StoppingError: this process was told to stop.
    """
    if context.stopping.is_set():
        raise StoppingError
    context.clock.sleep_ms(_PAUSE_MS)


class SharedBeginRight:
    """Right of a replica to begin an epoch, shared by its own thread, which uses it, and its
    node's, which may withdraw it.
    """

    def __init__(self, lock: Condition) -> None:
        """Grant the right. ``lock``: held for moments by both threads."""
        self._lock, self._right = lock, BeginRight()

    def use(self) -> bool:
        """Use the right. Return False if it was withdrawn."""
        with self._lock:
            return self._right.use()

    def withdraw(self) -> bool:
        """Withdraw the right. Return False if it was used."""
        with self._lock:
            return self._right.withdraw()


class StartingProcess(HostProcess):
    """Process of one replica, which begins an epoch unless another node has the replica by now."""

    def __init__(
        self,
        context: ServiceContext,
        own: ReplicaIdentity,
        inputs: InputFollowers,
        checkpoint: OwnCheckpoint,
        node_load: NodeLoad,
        begin_right: SharedBeginRight,
    ) -> None:
        """Keep the arguments. ``node_load``: measure of the node's cores. ``begin_right``: right to
        begin the epoch.
        """
        super().__init__(context.clock, lock=inputs.changed, log_lock=context.threads.turn())
        self._context, self._own = context, own
        self._contact, self._checkpoint = inputs.contact, checkpoint
        self._node_load, self._begin_right = node_load, begin_right
        self.warm_standby: WarmStandby | None = None
        """Standby that this process was before, if any: it measures the failover."""
        self.split: ShardSplit | None = None
        """Split of the replica's shard, which may be all that is left to do."""

    def stopping(self) -> bool:
        """Return whether this process was told to stop."""
        return self._context.stopping.is_set()

    def crash_point(self, name: str) -> None:
        """End the process here if a test names this point (``process.crash_points``)."""
        self._context.crash_point(name)

    def may_begin(self, log_state: LogState) -> None:
        """Check that the replica may begin an epoch here. A process that is about to stop must not:
        it would end the process that runs, and run nothing itself.

        Raises:
            Fenced: another node has begun the replica meanwhile.
            StoppingError: this process was told to stop, or its node has withdrawn the right.
        """
        own = self._own
        if self._context.stopping.is_set():
            raise StoppingError
        if has_left(log_state.node(own.replica), own.node, has_place=own.has_place):
            raise Fenced(f"{own.label} runs on another node by now")
        if not self._begin_right.use():
            raise StoppingError
        self._passed("log")

    def epoch_begun(self) -> None:
        """Check that the log is still the one that the checkpoints belong to.

        Raises:
            SplitConfirmedError: all that is left to do is to end the stream.
        """
        self._checkpoint.check_life()
        self._passed("epoch")
        if self.split is not None:
            self.split.check_begin()

    def _passed(self, phase: str) -> None:
        """Note the end of ``phase`` of a standby's failover."""
        if self.warm_standby is not None:
            self.warm_standby.passed(phase)

    def beside(self, name: str, work: Callable[[], None]) -> None:
        """Run ``work``, which nothing waits for, on a thread called ``name``."""
        self._context.threads.begin(name, work)

    def own_answers(self) -> bool:
        """Return whether the pipeline's own cluster answers. Called from several threads."""
        return self._contact.answers()

    def batch_began(self, query: str) -> None:
        """Note that a batch of ``query`` begins on the node's cores."""
        self._node_load.began(self._own.stage_name, query)

    def batch_ended(self, query: str) -> float:
        """Note that the batch of ``query`` has ended, or was dropped. Return its processor time, in
        ms.
        """
        return self._node_load.ended(self._own.stage_name, query)


class StageRecovery(Recovery):
    """Resources of a stage's replica: its inputs as they are on the broker, fences, requests to
    recompute blocks, and the disks of the stage's other processes.
    """

    def __init__(
        self,
        context: ServiceContext,
        own: ReplicaIdentity,
        inputs: StageInputs,
        fences: FenceWatch,
        recompute_client: RecomputeClient,
        report: ReplicaReport,
    ) -> None:
        """Keep the arguments; contact nothing."""
        self._context, self._own, self._inputs, self._fences = context, own, inputs, fences
        self._recompute_client, self._report = recompute_client, report
        self._half_beginning = HalfBeginning(context.log, context.pipeline, own.stage_name)
        self.standby: Standby | None = None
        """Standby that this process was before, if any: it reaches disks of other processes."""
        self.split: ShardSplit | None = None
        """Split of the replica's shard, as of ``StartingProcess``."""
        self.peers = own.peers
        if own.stage.ha == "upstream_backup":
            pipeline = context.pipeline
            self.comparison = Comparison(
                own.stage_name,
                known_horizon_buckets(pipeline, own.stage_name),
                pipeline.bucket_ms,
                pipeline.places().is_partners,
            )

    @property
    def takes_over(self) -> bool:
        """Whether this process began as a standby of the one that ran the replica."""
        return self.standby is not None

    @property
    def claimed(self) -> int:
        """Last bucket of input that this process claimed as a standby; 0 if it was none."""
        return 0 if self.standby is None else self.standby.claimed

    def lower_claim(self, bucket: int) -> bool:
        """Claim only ``bucket`` from now on. Return whether the broker has acknowledged that; if
        not, report it and pause first.

        Raises:
            StoppingError: this process was told to stop.
        """
        if self.standby is None or self.standby.lower_claim(bucket):
            return True
        if self._report.status.waiting_for is None:
            self._context.logger.warning("claim_not_lowered", stage=self._own.label, bucket=bucket)
        self._report.waits_for_acknowledgement()
        pause_start(self._context)
        return False

    def missing(self, after: int) -> str:
        """Describe, for people, which blocks of input buckets after ``after`` are missing."""
        return self._inputs.missing(after)

    def wait(self, missing: str) -> None:
        """Report that there is nothing to start from, or that the claim of what there is was not
        acknowledged. Request the missing blocks, and wait until the next attempt. Halves of the
        shard need nothing of what is missing.

        Raises:
            StoppingError: this process was told to stop.
            SplitConfirmedError: all that is left to do is to end the stream.
        """
        if self.split is not None:
            self.split.round_before_begin(self._report.status.detail)
            self.split.check_begin()
        if self._report.status.state != "waiting":
            self._context.logger.warning("waiting_for_peer", stage=self._own.label, missing=missing)
        if self.standby is not None:
            # The disk of another process of the stage may be reachable by now. What it has may be
            # less than this process claimed to have, and is all that there is.
            self.standby.copy(takes_over=True)
        requested = self._recompute_client.ask(self._inputs.gone())
        self._report.waits_for_blocks(missing, requested)
        if self.standby is not None and self.standby.awaits_acknowledgement:
            self._report.waits_for_acknowledgement()
        for _ in range(_PAUSES_PER_ATTEMPT):
            pause_start(self._context)

    def last_gone(self, log_state: LogState) -> int:
        """Return the last bucket that a start without a checkpoint leaves out: an input's blocks
        were trimmed, or a half of a shard does not need it. 0 if none. ``log_state``: the stage's
        own stream.
        """
        return max(self._inputs.last_gone(), self._half_beginning.after(log_state))

    def close(self) -> None:
        """Close the log that only the start needs. Idempotent."""
        self._half_beginning.close()

    def complete(self) -> int:
        """Return the last bucket that is complete on all inputs by now."""
        return self._inputs.complete()

    def fenced(self) -> Mapping[str, int]:
        """Return the newest fenced epoch of each replica that the stage ever had."""
        return self._fences.fenced()

    def recomputed(self, after: int) -> bool:
        """Return whether blocks of input buckets after ``after`` have moved to other offsets."""
        return self._inputs.recomputed(after)

    def report_difference(self, found: PartnerWrong) -> None:
        """Report a bucket whose partner result differs."""
        self._report.partner_differs(found)
