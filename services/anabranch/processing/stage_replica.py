"""Replica of one stage on a node, from its start to its end.

One thread calls ``start``, ``step`` and ``stop`` (``processing.hosting``). Other threads run beside
it: the followers of the inputs, the heartbeats, a checkpoint copy, its ``fsync``, and the engine's
threads, which ask what to run next and run it. ``processing.replica`` states the order of the
locks. The other threads only read the attributes of this module's class; the replica's own thread
changes them.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from anabranch.codec.blocks import schema_text
from anabranch.pipeline.file import with_place
from anabranch.processing.input_followers import InputFollowers
from anabranch.processing.inputs import StageInputs
from anabranch.processing.neighbours import Neighbours
from anabranch.processing.node_load import NodeLoad
from anabranch.processing.own_checkpoint import OwnCheckpoint
from anabranch.processing.own_key import OwnKey
from anabranch.processing.own_move import NO_MOVE
from anabranch.processing.own_split import ShardSplit, SplitConfirmedError
from anabranch.processing.primary import Primary
from anabranch.processing.rehearsing import Rehearsing
from anabranch.processing.replica import ReplicaRunner
from anabranch.processing.replica_heartbeats import ReplicaHeartbeats
from anabranch.processing.replica_identity import ReplicaIdentity
from anabranch.processing.replica_report import ReplicaReport
from anabranch.processing.replica_start import (
    SharedBeginRight,
    StageRecovery,
    StartingProcess,
    StoppingError,
    pause_start,
)
from anabranch.processing.stage_rules import stage_rules
from anabranch.processing.warm_standby import WarmStandby
from anabranch.protocol.control.records import (
    INPUT_REFUSED,
    ControlRecord,
    Heartbeat,
    ReplicaLoad,
    ReplicaState,
)
from anabranch.protocol.errors import ConfigurationError, DataMissing, Fenced, StageFunctionError
from anabranch.protocol.limits import BUCKET_MAX, HEARTBEAT_EVERY_MS, PASSIVE_BEAT_MS
from anabranch.protocol.log.records import EpochStarted
from anabranch.protocol.stage.busy_time import reported_load
from anabranch.protocol.stage.standby import StandbyProcess
from anabranch.streams.boundary_reader import BoundaryReader
from anabranch.streams.boundary_writer import BoundaryWriter
from anabranch.streams.recompute_client import RecomputeClient
from anabranch.streams.stream_logs import expected_stream

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from anabranch.ports import Disks, Engine, PreparedStage
    from anabranch.process.frame import ServiceContext
    from anabranch.processing.standby import Standby
    from anabranch.protocol.stage.load_control import LoadDemand

_REST_S: Final = 0.1
"""Pause between two rounds of a shard that was split, in seconds."""


class StageReplica:
    """Replica of one stage: opens its disk and inputs, takes over the writing or stands by, and
    reports its state. A crash at any point loses nothing: the next process continues from the
    newest timeline (rule 8).
    """

    def __init__(
        self,
        context: ServiceContext,
        engine: Engine,
        disks: Disks,
        node: str,
        *,
        may_run_elsewhere: bool = False,
        has_place: bool = True,
    ) -> None:
        """Prepare the replica; ``start`` contacts the broker.

        Args:
            context: The context of this replica, whose name is ``STAGE.REPLICA``.
            engine: The node's engine.
            disks: The checkpoints of the node's replicas.
            node: The node on which this process runs.
            may_run_elsewhere: Whether another node may be running the replica: it was moved, or has
                run before.
            has_place: Whether the replica's place is this node.
        """
        pipeline, label = context.pipeline, context.settings.name
        self.move = NO_MOVE
        """Move of the replica to another node. The node sets it before ``start``."""
        self.begin_right = SharedBeginRight(context.threads.condition())
        """Right to begin an epoch, which the node may withdraw."""
        self.node_load = NodeLoad(pipeline, context.clock, engine.cores)
        """Load of the node, whose stages share its cores. The node sets it before ``start``."""
        self.lost_input = False
        """Whether the replica ended because blocks of an input were missing or differed."""
        self._context, self._engine = context, engine
        self._own = own = ReplicaIdentity.of(
            pipeline, label, node, may_run_elsewhere=may_run_elsewhere, has_place=has_place
        )
        self.split = ShardSplit(context, own.stage_name)
        self._report = ReplicaReport(context, own)
        self.status = self._report.status
        self._key = OwnKey(context, own)
        self._checkpoint = OwnCheckpoint(context, own, disks, self._report)
        self._followers = followers = InputFollowers(context, own)
        self._inputs = StageInputs(
            context.log,
            pipeline.topic_names,
            followers.by_stream,
            followers.changed,
            partial(pause_start, context),
            followers.bound.elsewhere,
        )
        self._heartbeats = ReplicaHeartbeats(
            context.log,
            pipeline.topic_names.control("processing", label),
            context.clock,
            self._heartbeat,
            every_ms=PASSIVE_BEAT_MS if own.is_passive else HEARTBEAT_EVERY_MS,
            threads=context.threads,
        )
        self._recompute_client = RecomputeClient(context, f"processing.{label}", own.reads)
        self._prepared: PreparedStage | None = None
        self._warm_standby: WarmStandby | None = None
        self._neighbours: Neighbours | None = None
        self._primary: Primary | None = None
        self._ended = False

    def prove_input(self) -> None:
        """Let the start prove that the inputs' blocks are there, because the replica's previous
        process could not read some. Call it before ``start``.
        """
        self._inputs.prove_blocks(self._context.clock)

    def start(self) -> None:
        """Build the query; then begin an epoch and continue from the newest checkpoint, or stand
        by.
        The replica is ready when its first batch has run, or when it stands by.
        """
        own = self._own
        if not self._followers.bound.await_topics(self.status):
            return
        if not self._key.await_accepted(self.status):
            return
        if self.split.was_carried_out():
            self._rest_after_split()
            self._heartbeats.start()
            return
        self._checkpoint.open()
        self._followers.start()
        self._heartbeats.start()
        schemas = self._followers.schemas(self.status)
        if schemas is None:
            return
        prepared = self._prepared = self._prepare(schemas)
        self._report.prepared(prepared.traits)
        if own.is_passive or own.may_run_elsewhere:
            token, node = self._context.entropy.token(), None if own.is_passive else own.node
            standby_process = StandbyProcess(
                own.stage_name, own.process, node, token, prepared.stateful_plan
            )
            warm_standby = self._warm_standby = WarmStandby(
                self._context,
                prepared,
                standby_process,
                self._checkpoint.disk,
                own.replica,
                None if own.is_passive else self._rehearsing(prepared),
            )
            must_wait = warm_standby.standby.must_wait()
            if must_wait and not own.has_place:
                raise Fenced(f"{own.label} runs on another node by now")
            if must_wait:
                warm_standby.warm_up()
                self.status.state = "standby"
                return
        self._fail_over(prepared)

    def _prepare(self, schemas: Mapping[str, pa.Schema]) -> PreparedStage:
        """Build the stage's query and judge its plan.

        Raises:
            ConfigurationError: the query cannot be built. No row is involved yet, so every start
                would fail alike: a mistake in the pipeline, in the words of ``anabranch check``.
        """
        own = self._own
        try:
            return self._engine.prepare(own.label, own.stage_name, schemas)
        except StageFunctionError as error:
            place = with_place(self._context.pipeline, "stages", own.stage_name)
            raise ConfigurationError(f"{place}: {error}") from error

    def _rehearsing(self, prepared: PreparedStage) -> Rehearsing:
        """Prepare the rehearsal of a replica that moves here."""
        followers = self._followers
        return Rehearsing(
            self._context,
            prepared,
            self._checkpoint.disk,
            self._own.replica,
            (
                lambda: {name: each.log_state for name, each in followers.readers.items()},
                followers.changed,
            ),
        )

    def _run_standby(self, warm_standby: WarmStandby, prepared: PreparedStage) -> None:
        """Run one round of the standby, then the failover if it is due. A shard that was split
        meanwhile runs nowhere any more, and no process has a newer checkpoint of it to wait for.
        """
        if self.split.was_carried_out():
            warm_standby.cool_down()
            self._rest_after_split()
            return
        self.split.round_before_begin(self.status.detail)
        if warm_standby.round():
            self._report.starting()
            self._fail_over(prepared)
            return
        standby = warm_standby.standby
        # A rehearsal reads what follows an older checkpoint.
        if not standby.rehearsal.is_running and standby.bucket:
            self._inputs.forget(standby.bucket)
        self.status.waiting_for = standby.waiting_for
        self.status.detail |= {"checkpoint_bucket": standby.bucket, **standby.fetched}

    def _fail_over(self, prepared: PreparedStage) -> None:
        """Become the primary, and start its first query. Returns without one if told to stop, or if
        the halves of the shard take over.
        """
        neighbours = self._neighbours = self._open_neighbours()
        primary = self._primary = self._new_primary(prepared, neighbours)
        recovery = StageRecovery(
            self._context,
            self._own,
            self._inputs,
            neighbours.fences,
            self._recompute_client,
            self._report,
        )
        recovery.split = self.split
        if self._warm_standby is not None:
            recovery.standby = self._warm_standby.standby
            primary.warm_standby = self._warm_standby
        if (log_reader := self._log_reader_so_far) is not None:
            recovery.points = log_reader.points
        try:
            with closing(recovery):
                primary.begin(recovery)
        except StoppingError:
            return
        except SplitConfirmedError:
            self._end_after_split(primary)
            return
        neighbours.fences.epoch = primary.epoch
        self._followers.follow_through(primary.runner)
        self._recompute_client.stop_requesting()
        primary.run()

    def _open_neighbours(self) -> Neighbours:
        """Open the control topics of the neighbours."""
        return Neighbours(self._context, self._own, self._followers, self._on_control_record)

    def _new_primary(self, prepared: PreparedStage, neighbours: Neighbours) -> Primary:
        """Build the primary; it has no epoch yet."""
        context, own, disk = self._context, self._own, self._checkpoint.disk
        process = StartingProcess(
            context, own, self._followers, self._checkpoint, self.node_load, self.begin_right
        )
        process.split = self.split
        process.warm_standby = self._warm_standby
        runner = ReplicaRunner(
            self._followers.readers,
            self._boundary_writer(prepared),
            disk,
            stage_rules(context.log, context.pipeline, own.stage_name, self._engine, prepared),
            process,
            neighbours.control,
        )
        return Primary(context, own, prepared, disk, runner, self._report)

    @property
    def _log_reader_so_far(self) -> Standby | None:
        """Standby that has read the stage's log so far and whose reader the new primary keeps. None
        if the log must be read anew: to verify signatures, or to compare recomputed results with
        old entries, which the standby has forgotten.
        """
        if self._warm_standby is None or not self._own.is_passive or self._key.signing is not None:
            return None
        return self._warm_standby.standby

    def _boundary_writer(self, prepared: PreparedStage) -> BoundaryWriter:
        """Open the writer of the stage's boundary log. It signs records that other pipelines read,
        if there is a key.
        """
        context, own, kept = self._context, self._own, self._log_reader_so_far
        return BoundaryWriter(
            context.log,
            own.log_topic,
            self._own_log() if kept is None else kept.boundary,
            EpochStarted(
                own.replica,
                prepared.fingerprint,
                context.entropy.token(),
                schema=schema_text(prepared.schema),
                version=own.stage.version,
                bucket_ms=context.pipeline.bucket_ms,
                node=own.node,
                share="" if own.stage.share is None else own.stage.share.text(),
                attempt=self.split.begin_for(),
            ),
            context.clock,
            signing=self._key.signing,
        )

    def _own_log(self) -> BoundaryReader:
        """Open the stage's boundary log for its writer."""
        own, pipeline, signing = self._own, self._context.pipeline, self._key.signing
        return BoundaryReader(
            self._context.log,
            own.log_topic,
            pipeline.stream_writers(own.stage_name),
            expected=replace(
                expected_stream(pipeline, own.stage_name),
                judge=None if signing is None else signing.judge,
            ),
        )

    def _on_control_record(self, entry: ControlRecord) -> None:
        """Pass a record of a control topic to the parts that need it: heartbeats of processes that
        copy the checkpoint, and requests to recompute.
        """
        if isinstance(entry, Heartbeat):
            self._checkpoint.receive(entry)
        if self._primary is not None:
            self._primary.receive(entry)

    def step(self) -> None:
        """Run one round: poll the control topics, start and stop queries, and report. Raises the
        error that ended the stable query or a follower.
        """
        if self.split.is_over:
            self.split.check_life()
            self.split.confirm()
            self._report.rests(self.split.rest)
            self._context.stopping.wait(_REST_S)
            return
        self._followers.check()
        if self._runner is None and self._warm_standby is not None and self._prepared is not None:
            self._run_standby(self._warm_standby, self._prepared)
        primary, neighbours = self._primary, self._neighbours
        if primary is None or neighbours is None or not primary.has_begun:
            return
        neighbours.poll()
        split = self.split
        primary.runner.note_split(is_read=split.is_read, is_awaited=split.is_awaited)
        try:
            primary.step()
        except DataMissing:
            self.lost_input = True
            raise
        except Fenced:
            # A batch of this replica may end after another replica has ended the stream.
            if not primary.stream_has_ended:
                raise
            self._end_after_split(primary)
            return
        self._report.show(primary.runner, self._followers)
        if self._warm_standby is not None:
            tip = primary.boundary.log_state.tip(self._own.replica)
            standby = self._warm_standby.standby
            standby.lead(self._report.bucket, primary.runner.synced_bucket, tip)
        self._checkpoint.sync_if_due(primary.runner)
        if primary.check_epoch_if_due():
            self.split.check_attempt()
            self._checkpoint.check_move(self.move)
            if self.split.round(self.status.detail):
                self._end_after_split(primary)

    def _end_after_split(self, primary: Primary) -> None:
        """End the stream, unless another replica has done so, and stop all work."""
        primary.end_stream(self.split.successors)
        self.split.over(primary.epoch, self._checkpoint.life)
        self._rest_after_split()

    def _rest_after_split(self) -> None:
        """Stop all work: the halves of this shard have taken over. The process remains, so that its
        heartbeats let go of its inputs, and people see what became of the shard.
        """
        self._followers.close()
        self.node_load.dropped(self._own.stage_name)
        self._report.rests(self.split.rest)

    def _heartbeat(self) -> Heartbeat | None:
        """Build the current heartbeat; None before this process's epoch."""
        primary, neighbours, own = self._primary, self._neighbours, self._own
        if self.split.is_over:
            # It reads nothing any more, so no input is kept for it, and it has no branch.
            return Heartbeat(
                "processing",
                own.stage_name,
                own.replica,
                self.split.epoch,
                self.status.state,
                self._report.bucket,
                written_ms=0,
                rejected=self._report.rejected,
                life=self.split.life,
                replica_state=ReplicaState.STABLE.value,
                checkpoint_bucket=BUCKET_MAX,
            )
        if primary is None or neighbours is None or primary.epoch < 0:
            return None
        return primary.heartbeat(
            Heartbeat(
                "processing",
                own.stage_name,
                own.replica,
                primary.epoch,
                INPUT_REFUSED if self._followers.is_refused() else self.status.state,
                0,
                written_ms=0,
                rejected=self._report.rejected,
                life=self._checkpoint.life,
                corrects=neighbours.gate.corrects,
            )
        )

    @property
    def _runner(self) -> ReplicaRunner | None:
        """Driver of the primary's decisions, from the beginning of its epoch to the end of the
        stream: a shard that was split needs nothing of its node.
        """
        primary = self._primary
        has_begun = primary is not None and primary.has_begun
        return primary.runner if primary and has_begun and not self.split.is_over else None

    def demand(self) -> LoadDemand | None:
        """Return the load that this replica reports to its node; None before its primary has begun,
        and after its end.
        """
        runner = self._runner
        return None if runner is None or self._ended else runner.demand()

    def limit(self, kept: int | None) -> None:
        """Let the replica keep ``kept`` per mille of its rows at most in tentative results; None:
        there are no limits on the node.
        """
        runner = self._runner
        if runner is not None and not self._ended:
            runner.limit(kept)

    def load(self, state: str) -> ReplicaLoad:
        """Return the load of this replica since the previous call. Called on a thread of the node.
        ``state``: that of its slot, which knows whether it has ended.
        """
        runner, own = self._runner, self._own
        return reported_load(
            own.stage_name,
            own.process,
            state,
            None if runner is None else runner.read_busy(),
            0 if runner is None else runner.behind(),
            is_passive=own.is_passive,
            has_ended=self._ended,
        )

    def stop(self) -> None:
        """Let running batches end, then release all resources. Idempotent."""
        if self._ended:
            return
        self._ended = True
        self._context.stopping.set()
        # The queries before the last heartbeat, which says that this process has ended: others may
        # take over at once.
        if self._primary is not None:
            self._primary.stop()
        self.node_load.dropped(self._own.stage_name)
        if self._warm_standby is not None:
            self._warm_standby.cool_down()
        self._heartbeats.end()
        self._followers.close()
        for closable in (
            self.split,
            self._primary,
            self._prepared,
            self._neighbours,
            self._recompute_client,
            self._warm_standby,
            self._key,
            self._followers.contact,
        ):
            if closable is not None:
                closable.close()
