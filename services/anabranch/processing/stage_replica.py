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

from anabranch.adapters.key_files import signer
from anabranch.codec.blocks import ROW_BYTES_MAX, schema_from_text, schema_text
from anabranch.pipeline.offer_columns import not_as_offered
from anabranch.pipeline.source_columns import source_schema
from anabranch.pipeline.waits import availability, horizon_buckets, known_horizon_buckets, quiet_ms
from anabranch.ports import QueryOutput
from anabranch.process.frame import ServiceStatus
from anabranch.process.logging_setup import short
from anabranch.processing.bound_inputs import BoundInputs
from anabranch.processing.checkpoint_sync import CheckpointSync
from anabranch.processing.follower import InputFollower
from anabranch.processing.inputs import StageInputs
from anabranch.processing.node_load import NodeLoad
from anabranch.processing.own_move import NO_MOVE
from anabranch.processing.peers import HostProcess, Recovery, Upstream
from anabranch.processing.recomputing import Recomputing, RecomputingReplica
from anabranch.processing.replica import ReplicaRunner, StartQuery, StopQuery
from anabranch.processing.replica_heartbeats import ReplicaHeartbeats
from anabranch.processing.standing_by import StandingBy
from anabranch.processing.state_metrics import StateMetrics
from anabranch.protocol.control.failure_detector import FailureDetector
from anabranch.protocol.control.placement import has_left
from anabranch.protocol.control.records import ControlRecord, Heartbeat, ReplicaLoad
from anabranch.protocol.errors import (
    AnabranchError,
    ConfigurationError,
    Fenced,
    StageFunctionError,
    Unavailable,
)
from anabranch.protocol.limits import HEARTBEAT_EVERY_MS, PASSIVE_BEAT_MS, RECOMPUTE_MS_MAX
from anabranch.protocol.log.records import EpochStarted
from anabranch.protocol.log.stateful_plan import StageState
from anabranch.protocol.stage.load_control import LoadDemand, LoadFigures
from anabranch.protocol.stage.recovery import Comparison, PartnerWrong, unneeded_upto
from anabranch.protocol.stage.replica import StageRules
from anabranch.protocol.stage.scheduling import BatchRules, CorrectionGate
from anabranch.protocol.stage.standby import STANDING_BY, StandbyProcess
from anabranch.protocol.stage.transfer import Feed, MoveDeadline
from anabranch.streams.boundary_writer import BoundaryWriter, Signing
from anabranch.streams.fences import FenceWatch
from anabranch.streams.heartbeats import ReplicaControl
from anabranch.streams.placement import PlacementReader
from anabranch.streams.range_query import RangeQuery
from anabranch.streams.recompute_client import RecomputeClient
from anabranch.streams.stream_life import check_life, life_of
from anabranch.streams.stream_logs import signers_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from anabranch.ports import (
        BatchDone,
        Disks,
        Engine,
        PreparedStage,
        ReplicaDisk,
        RunningQuery,
        Thread,
    )
    from anabranch.process.frame import ServiceContext
    from anabranch.processing.standby import Standby
    from anabranch.protocol.log.boundary_log import LogState
    from anabranch.streams.stream_signers import PublishedSigners

SUCCESSOR_AFTER_MS: Final = 2_000
"""Delay of a successor's start after the first tentative rows of its branch, in ms. Starting a
query occupies the cores for a second or two, which the downstream stages need for their first
tentative results.
"""

_STEP_MS: Final = 100
"""Timeout for waiting on the queries in one round, in ms."""
_SIGNER_CHECK_S: Final = 1.0
"""Interval between checks whether this replica's signatures are accepted yet, in seconds."""
_EPOCH_CHECK_MS: Final = 1_000
"""Interval between checks for a newer process of this replica, in ms."""
_START_PAUSE_MS: Final = 50
"""Pause between two looks at what the start waits for, in ms."""
_PEER_STEPS: Final = 20
"""Number of such pauses between two attempts to start from a checkpoint."""
_PARTNER_WRONG_MAX: Final = 20
"""Maximum number of buckets with differing partner results that ``status`` lists."""


class _StoppingError(Exception):
    """Raised when a shutdown signal arrives during startup."""


class StageReplica:
    """Replica of one stage: opens its disk and inputs, takes over the writing or stands by, runs
    its queries and reports its state. A crash at any point loses nothing: the next process
    continues from the newest timeline (rule 8).
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
        self.move, self.node_load = (
            NO_MOVE,
            NodeLoad(context.pipeline, context.clock, engine.cores),
        )
        """Move of the replica to another node, and load of its own, with whose stages it shares the
        cores. The node sets both before ``start``.
        """
        self._move_deadline = MoveDeadline()
        self._node = node
        self._may_run_elsewhere = may_run_elsewhere
        self._has_place = has_place
        pipeline, settings = context.pipeline, context.settings
        stage, _, replica = settings.name.rpartition(".")
        self._context = context
        self._settings = settings
        self._pipeline = pipeline
        self._engine = engine
        self._stage_name = stage
        self._process = replica
        self._stage, self._reads = pipeline.stages[stage], pipeline.inputs(stage)
        writers = pipeline.stream_writers(stage)
        self._replica = replica if replica in writers else writers[0]
        self._horizon_buckets = known_horizon_buckets(pipeline, stage)
        self._names = pipeline.topic_names
        self._peers = [other for other in writers if other != self._replica]
        self._disks = disks
        self._disk: ReplicaDisk
        """Checkpoints of this replica, opened by ``start`` for the current life of the stage's log,
        like ``_sync``.
        """
        self._sync: CheckpointSync
        self._feed = Feed(stage, replica, is_passive=self._stage.ha == "passive")
        self._life = ""
        """Life of the stage's log: changes when the topic is deleted and created anew."""
        self._changed = context.threads.condition()
        self._followers: dict[str, InputFollower] = {}
        self._runner: ReplicaRunner | None = None
        self._rejected = 0
        """Number of rows of stable batches that were too large for the stream."""
        self._prepared: PreparedStage | None = None
        self._running: dict[str, RunningQuery] = {}
        self._stopping: dict[str, Thread] = {}
        self._boundary: BoundaryWriter | None = None
        self._epoch_checked_ms = 0
        self._detector = FailureDetector.of_replicas(
            {stream: pipeline.stream_writers(stream) for stream in (stage, *self._reads)}
        )
        self._gate = CorrectionGate(stage, self._replica, self._detector)
        self._fences = FenceWatch(context.log, self._pipeline, stage, self._replica)
        self._heartbeats = ReplicaHeartbeats(
            context.log,
            self._names.control("processing", settings.name),
            context.clock,
            self._heartbeat,
            every_ms=PASSIVE_BEAT_MS if self._stage.ha == "passive" else HEARTBEAT_EVERY_MS,
            threads=context.threads,
        )
        self._bound = BoundInputs(context, stage)
        self._contact = self._bound.open_contact()
        self._inputs = StageInputs(
            context.log,
            self._names,
            self._followers,
            self._changed,
            self._pause_start,
            self._bound.elsewhere,
        )
        self._neighbours: ReplicaControl | None = None
        self._recompute_client = RecomputeClient(
            context, f"processing.{settings.name}", self._reads
        )
        self._recomputing: Recomputing | None = None
        self._standing_by: StandingBy | None = None
        self._sign = signer(pipeline, stage, self._node_owner)
        self._signers: PublishedSigners | None = None
        self._ended = False
        self._state_metrics = StateMetrics(context.registry, pipeline.name, stage, replica)
        self.status = ServiceStatus(detail={"stage": stage, "replica": replica, "batches": 0})

    def start(self) -> None:
        """Build the query; then begin an epoch and continue from the newest checkpoint, or stand
        by.
        The replica is ready when its first batch has run, or when it stands by.
        """
        if not self._bound.await_topics(self.status) or not self._await_accepted_key():
            return
        self._open_disk()
        for stream in self._reads:
            reader = self._bound.open(stream, self._changed)
            follower = self._followers[stream] = InputFollower(
                stream, reader, self._changed, self._context.threads
            )
            follower.start()
        self._heartbeats.start()
        schemas: dict[str, pa.Schema] = {}
        for name in self._stage.reads:
            schema = self._input_schema(name)
            if schema is None or self._context.stopping.is_set():
                return
            schemas[name] = schema
        prepared = self._prepared = self._prepare(schemas)
        self.status.detail |= {
            "batch_safe": prepared.traits.is_batch_safe,
            "stateful": prepared.traits.is_stateful,
            "why": list(prepared.traits.reasons),
        }
        is_passive = self._stage.ha == "passive"
        if is_passive or self._may_run_elsewhere:
            token, node = self._context.entropy.token(), None if is_passive else self._node
            own = StandbyProcess(self._stage_name, self._process, node, token)
            standing_by = self._standing_by = StandingBy(
                self._context, prepared, own, self._disk, self._replica
            )
            must_wait = standing_by.standby.must_wait
            if must_wait and not self._has_place:
                raise Fenced(f"{self._settings.name} runs on another node by now")
            if must_wait:
                standing_by.warm_up()
                self.status.state = "standby"
                return
        self._fail_over(prepared)

    def _prepare(self, schemas: Mapping[str, pa.Schema]) -> PreparedStage:
        """Build the stage's query and judge its plan.

        Raises:
            ConfigurationError: the query cannot be built. No row is involved yet, so every start
                would fail alike: a mistake in the pipeline, in the words of ``anabranch check``.
        """
        try:
            return self._engine.prepare(self._settings.name, self._stage_name, schemas)
        except StageFunctionError as error:
            raise ConfigurationError(f"stage {self._stage_name}: {error}") from error

    def _open_disk(self) -> None:
        """Open the checkpoints that belong to the current life of the stage's log.

        Raises:
            Unavailable: the log does not exist, or the broker does not answer.
        """
        self._life = life_of(self._context.log, self._names.boundaries(self._stage_name))
        self._disk = self._disks.of(
            self._stage_name,
            self._process,
            [other for other in self._stage.process_ids() if other != self._process],
            life=self._life,
            # A stage that rebuilds its state from its input does not need stored checkpoints.
            is_stored=self._stage.backup_horizon_ms is None,
        )
        # The disk removes what other lives left: only those that ended before this one.
        check_life(self._context.log, self._names.boundaries(self._stage_name), self._life)
        self._sync = CheckpointSync(
            self._context, self.status, self._disk.store, self._store_interval_ms
        )

    def _await_accepted_key(self) -> bool:
        """Wait until readers of other owners accept this node's signatures. They would ignore
        records signed before, and every record that continues those. Return False if told to stop.
        """
        federation, sign = self._pipeline.federation, self._sign
        if federation is None or sign is None:
            return True
        message, reported = b"anabranch", ""
        while not self._context.stopping.is_set():
            try:
                if self._signers is None:
                    self._signers = signers_of(self._context.log, self._pipeline, self._stage_name)
                self._signers.refresh()
                why = self._signers.why_not(
                    sign(message), message, self._context.clock.now_ms(), is_snapshot=False
                )
            except Unavailable as error:
                why = str(error)
            if not why:
                self.status.state, self.status.waiting_for = "starting", None
                return True
            if why != reported:
                self._context.logger.warning(
                    "waiting_to_be_named", stage=self._settings.name, why=why
                )
            reported = why
            self.status.state = "waiting"
            self.status.waiting_for = (
                f"{self._node_owner} to publish its key (anabranch keys publish), and"
                f" {federation.participant} to name it (anabranch keys signers): {why}"
            )
            self._context.stopping.wait(_SIGNER_CHECK_S)
        return False

    def _run_standby(self, standing_by: StandingBy, prepared: PreparedStage) -> None:
        """Run one round of the standby, then the failover if it is due."""
        if standing_by.round():
            self.status.state, self.status.waiting_for = "starting", None
            self._fail_over(prepared)
            return
        standby = standing_by.standby
        self._inputs.forget(standby.bucket)
        self.status.waiting_for = standby.waiting_for
        self.status.detail |= {"checkpoint_bucket": standby.bucket, **standby.fetched}

    def _fail_over(self, prepared: PreparedStage) -> None:
        """Begin an epoch and continue in a copy of the newest timeline's directory (rules 1 and 8);
        then start the query.
        """
        context = self._context
        passed = (lambda _: None) if self._standing_by is None else self._standing_by.passed

        def may_begin(log_state: LogState) -> None:
            """Check that the replica may begin an epoch here."""
            self._check_place(log_state)
            passed("log")

        def epoch_begun() -> None:
            """Check that the log is still the one that the checkpoints belong to."""
            check_life(context.log, self._names.boundaries(self._stage_name), self._life)
            passed("epoch")

        self._boundary = self._boundary_writer(prepared)
        self._neighbours = neighbours = self._replica_control()
        runner = ReplicaRunner(
            {stream: follower.reader for stream, follower in self._followers.items()},
            self._boundary,
            self._disk,
            self._rules(prepared),
            HostProcess(
                context.clock,
                lock=self._changed,
                log_lock=context.threads.turn(),
                stopping=context.stopping.is_set,
                crash_point=context.crash_point,
                may_begin=may_begin,
                epoch_begun=epoch_begun,
                own_answers=self._contact.answers,
                batch_began=partial(self.node_load.began, self._stage_name),
                batch_ended=partial(self.node_load.ended, self._stage_name),
            ),
            Upstream(
                neighbours.choose,
                neighbours.states,
                neighbours.may_correct,
                neighbours.peer_serves,
            ),
        )
        try:
            stable_query = runner.fail_over(self._recovery())
        except _StoppingError:
            return
        passed("steps")
        self.status.state, self.status.waiting_for = "starting", None
        self._fences.epoch = self._boundary.epoch
        if runner.given_up > self._boundary.log_state.closed(self._replica):
            self.status.detail["given_up_ms"] = runner.given_up * self._pipeline.bucket_ms
            self._context.logger.error(
                "results_given_up",
                stage=self._settings.name,
                upto_ms=self.status.detail["given_up_ms"],
            )
        self._runner = runner
        self.status.detail |= {"epoch": self._boundary.epoch, "timeline": stable_query}
        for follower in self._followers.values():
            follower.runner = runner
        self._recompute_client.there()
        own_replica = RecomputingReplica(
            self._stage_name,
            self._replica,
            prepared.traits,
            prepared.fingerprint,
            self._boundary.epoch,
            self._disk,
            self._boundary,
            runner.log_lock,
            self._run_range,
        )
        self._recomputing = Recomputing(context, own_replica)
        self._start_query(stable_query)

    def _replica_control(self) -> ReplicaControl:
        """Open the reader of the neighbours' control topics."""
        return ReplicaControl(
            self._bound.open_control(),
            self._context.clock,
            self._gate,
            self._detector,
            self._on_control_record,
            self._changed,
        )

    def _check_place(self, log_state: LogState) -> None:
        """Check that this process may still begin an epoch. A process that is about to stop must
        not: it would end the process that runs, and run nothing itself.

        Raises:
            Fenced: another node has begun the replica meanwhile.
            _StoppingError: this process was told to stop.
        """
        if self._context.stopping.is_set():
            raise _StoppingError
        if has_left(log_state.node(self._replica), self._node, has_place=self._has_place):
            raise Fenced(f"{self._settings.name} runs on another node by now")

    def _rules(self, prepared: PreparedStage) -> StageRules:
        """Collect the rules that the replica's decisions follow."""
        pipeline = self._pipeline
        stage = self._stage
        name = self._stage_name
        return StageRules(
            prepared.traits,
            availability(pipeline, name),
            BatchRules(
                pipeline.bucket_ms,
                self._engine.rows_max,
                self._engine.pace_ms,
                quiet_ms(pipeline, name),
                SUCCESSOR_AFTER_MS,
                rows_per_s=stage.rows_per_s,
            ),
            horizon_buckets(pipeline, name),
            stage.ha,
            StageState(name, prepared.stateful_plan),
            self._restated_after(prepared),
            sheds=stage.shed.kind != "off",
        )

    def _restated_after(self, prepared: PreparedStage) -> int | None:
        """Return the bucket after which an operator lets this version of the stage begin anew; None
        if none does, or if it has no state that another function could have built (RS2).

        Raises:
            Unavailable: the log of moves does not exist, or the broker does not answer.
        """
        name, version = self._stage_name, self._stage.version
        if (
            version == 1
            or not prepared.traits.is_stateful
            or horizon_buckets(self._pipeline, name) is None
        ):
            return None
        with closing(
            PlacementReader(self._context.log, self._names.placement(), self._pipeline.places())
        ) as reader:
            reader.read_to_end()
            return reader.restatements.after(name, version)

    def _recovery(self) -> Recovery:
        """Collect what the start needs where this process's disk is not enough."""
        return Recovery(
            tuple(self._peers),
            self._inputs.missing,
            self._wait_for_blocks,
            gone=self._inputs.last_gone,
            complete=self._inputs.complete,
            comparison=self._comparison(),
            report_difference=self._report_partner_difference,
            fenced=self._fences.fenced,
            recomputed=self._inputs.recomputed,
            points=None if self._log_reader_so_far is None else self._log_reader_so_far.points,
        )

    def _comparison(self) -> Comparison | None:
        """Return the comparison of recomputed results with those in the log, for a stage with
        ``upstream_backup``; else None.
        """
        if self._stage.ha != "upstream_backup":
            return None
        pipeline, name = self._pipeline, self._stage_name
        return Comparison(
            name, self._horizon_buckets, pipeline.bucket_ms, pipeline.places().is_partners
        )

    @property
    def _log_reader_so_far(self) -> Standby | None:
        """Standby that has read the stage's log so far and whose reader the new primary keeps. None
        if the log must be read anew: to verify signatures, or to compare recomputed results with
        old entries, which the standby has forgotten.
        """
        if self._standing_by is None or self._stage.ha != "passive" or self._sign is not None:
            return None
        return self._standing_by.standby

    def _report_partner_difference(self, found: PartnerWrong) -> None:
        """Log a bucket that a partner computed differently, and list it in the status. The
        partner's result stays valid.
        """
        self._state_metrics.partner_wrong()
        self._context.logger.error(
            "partner_wrong",
            stage=found.stage,
            bucket=found.bucket,
            node=found.node,
            text=f"bucket {found.bucket}, computed on {found.node}, differs from what {found.stage}"
            " computes from the same input here; it stays valid. An audit can prove the difference"
            " (docs/federation.md)",
        )
        wrong = self.status.detail.setdefault("partner_wrong", [])
        if isinstance(wrong, list) and len(wrong) < _PARTNER_WRONG_MAX:
            wrong.append({"bucket": found.bucket, "node": found.node})

    def _boundary_writer(self, prepared: PreparedStage) -> BoundaryWriter:
        """Open the writer of the stage's boundary log. It signs records that other pipelines read,
        if there is a key.
        """
        context = self._context
        return BoundaryWriter(
            context.log,
            self._names.boundaries(self._stage_name),
            self._pipeline.stream_writers(self._stage_name)
            if self._log_reader_so_far is None
            else self._log_reader_so_far.boundary,
            EpochStarted(
                self._replica,
                prepared.fingerprint,
                context.entropy.token(),
                schema=schema_text(prepared.schema),
                version=self._stage.version,
                bucket_ms=self._pipeline.bucket_ms,
                node=self._node,
                share="" if self._stage.share is None else self._stage.share.text(),
            ),
            context.clock,
            signing=None if self._sign is None else Signing(self._sign, self._signers),
        )

    @property
    def _node_owner(self) -> str:
        """Participant that runs this node."""
        return self._pipeline.places().owner_of(self._node)

    def _wait_for_blocks(self, missing: str) -> None:
        """Report that there is nothing to start from, request the missing blocks, and wait until
        the next attempt.
        """
        if self.status.state != "waiting":
            self._context.logger.warning(
                "waiting_for_peer", stage=self._settings.name, missing=missing
            )
        if self._standing_by is not None:
            # The disk of another process of the stage may be reachable by now.
            self._standing_by.standby.copy()
        reported = self._recompute_client.ask(self._inputs.gone())
        self.status.state = "waiting"
        self.status.waiting_for = (
            f"a checkpoint of another replica of {self._stage_name}: {missing}, and this replica"
            f" has none; {reported}"
        )
        for _ in range(_PEER_STEPS):
            self._pause_start()

    def _pause_start(self) -> None:
        """Pause the start briefly. Raises _StoppingError if told to stop."""
        if self._context.stopping.is_set():
            raise _StoppingError
        self._context.clock.sleep_ms(_START_PAUSE_MS)

    def _start_query(self, timeline: str) -> None:
        """Start a query in the directory of ``timeline``."""
        assert self._prepared is not None, "prepared"  # noqa: S101
        assert self._boundary is not None, "connected"  # noqa: S101
        assert self._runner is not None, "connected"  # noqa: S101
        output, place = (
            QueryOutput(self._replica, self._boundary.epoch),
            str(self._disk.directory(timeline)),
        )
        self._running[timeline] = self._prepared.start(
            timeline, self._runner, output, place, lambda done: self._batch_done(timeline, done)
        )

    def _run_range(self, query: RangeQuery) -> None:
        """Run a query that recomputes buckets for a reader (``processing.recomputing``), beside
        this replica's queries, at most RECOMPUTE_MS_MAX. Raises the error that ended it.
        """
        assert self._prepared is not None, "prepared"  # noqa: S101
        assert self._boundary is not None, "connected"  # noqa: S101
        clock, place = self._context.clock, str(self._disk.directory(query.name))
        output = QueryOutput(self._replica, self._boundary.epoch, query.only)
        running = self._prepared.start(query.name, query, output, place, lambda _: None)
        try:
            deadline_ms = clock.monotonic_ms() + RECOMPUTE_MS_MAX
            while not (
                query.finished.is_set()
                or self._context.stopping.is_set()
                or clock.monotonic_ms() > deadline_ms
            ):
                running.ended(_STEP_MS)
        finally:
            running.stop()

    def _on_control_record(self, entry: ControlRecord) -> None:
        """Pass a record of a control topic to those who need it: fences, requests to recompute, and
        heartbeats of processes that copy the checkpoint.
        """
        self._fences.hear(entry)
        if isinstance(entry, Heartbeat):
            self._feed.receive(entry, self._context.clock.monotonic_ms())
        if self._recomputing is not None:
            self._recomputing.receive(entry)

    def _store_interval_ms(self, has_failed: bool) -> int:
        """Return the interval between stored checkpoints now, in ms. Without a store nobody copies
        the checkpoint from it.
        """
        runner = self._runner if self._disk.has_store else None
        return self._feed.interval_ms(
            self._context.clock.monotonic_ms(),
            0 if runner is None else runner.synced_bucket,
            0 if runner is None else (self.status.last_bucket_ms or 0) // self._pipeline.bucket_ms,
            has_failed=has_failed,
        )

    def _input_schema(self, name: str) -> pa.Schema | None:
        """Return the columns of input ``name``. Those of another stage's stream are in its log:
        wait until its first process has written them. Return None if told to stop.
        """
        stream = self._pipeline.input_streams(name)[0]
        if stream not in self._pipeline.stages:
            return source_schema(self._pipeline, name)
        follower = self._followers[stream]
        with self._changed:
            while not (text := follower.columns()) and not self._context.stopping.is_set():
                follower.raise_error()
                self.status.state, self.status.waiting_for = "starting", f"{stream} to start"
                self._changed.wait(_STEP_MS / 1_000)
        self.status.waiting_for = None
        if not text:
            return None
        schema, made_by = schema_from_text(text), self._pipeline.stages[stream]
        if made_by.offered is not None and (wrong := not_as_offered(made_by, schema)):
            raise ConfigurationError(f"stage {stream}, function {made_by.functions[0]}: {wrong}")
        return schema

    def _batch_done(self, query: str, done: BatchDone) -> None:
        """Update status and metrics after a batch of ``query``."""
        now = self._context.clock.now_ms()
        width = self._pipeline.bucket_ms
        closed = done.start.after.bucket
        figures = {"rows_in": done.start.rows, "rows_out": done.rows_out, "seconds": done.seconds}
        if self._runner is not None and query != self._runner.stable_query:
            self.status.detail["last_tentative_batch"] = figures | {"bucket_ms": closed * width}
            return
        self.status.detail["batches"] = done.batch + 1
        self.status.detail["last_batch"] = figures
        if closed:
            self.status.last_bucket_ms = closed * width
            self.status.lag_ms = now - self.status.last_bucket_ms
            self.status.age_ms = self._context.metrics.closed(self.status.last_bucket_ms, now)
        self._state_metrics.batch(done.seconds)
        self.status.state = "running"
        if self._standing_by is not None:
            self._standing_by.batch_done(done.seconds)
        self._context.metrics.count_in(done.start.rows, 0)
        self._context.metrics.count_out(done.rows_out, 0)
        if done.rejected:
            self._report_rejected(done)

    def _report_rejected(self, done: BatchDone) -> None:
        """Count and log rows that were too large for the stream. The manager raises an alarm when
        the next heartbeat reports them.
        """
        self._rejected += done.rejected
        self._context.metrics.count_rejected(done.rejected)
        self.status.detail["rejected"] = self._rejected
        self._context.logger.warning(
            "rows_rejected",
            stage=self._settings.name,
            rows=done.rejected,
            row_bytes_max=ROW_BYTES_MAX,
            first_bucket=done.start.before.bucket + 1,
            last_bucket=done.start.after.bucket,
        )

    def step(self) -> None:
        """Run one round: poll the control topics, start and stop queries, and report. Raises the
        error that ended the stable query or a follower.
        """
        for follower in self._followers.values():
            follower.check(self._context.clock.monotonic_ms())
        if self._runner is None and self._standing_by is not None and self._prepared is not None:
            self._run_standby(self._standing_by, self._prepared)
        if self._runner is None or self._neighbours is None:
            return
        self._neighbours.poll()
        self._carry_out_orders(self._runner)
        running = list(self._running.items())
        for timeline, query in running:
            try:
                ended = query.ended(_STEP_MS // len(running))
            except Fenced:
                raise
            except Exception as error:
                if not self._runner.failed(timeline, error):
                    raise
                self._context.logger.warning(
                    "branch_failed",
                    stage=self._settings.name,
                    branch=timeline,
                    error=short(str(error)),
                )
            else:
                if ended and not self._context.stopping.is_set():
                    message = (
                        f"the query of {timeline} ended without an error; Spark's log may say why"
                    )
                    raise AnabranchError(message)
        if self._recomputing is not None:
            self._recomputing.step(
                may_begin=self._runner.branch is None and self.status.state != "starting"
            )
        self._report(self._runner)

    def _carry_out_orders(self, runner: ReplicaRunner) -> None:
        """Start and stop queries as ``runner`` orders."""
        orders = runner.orders()
        stopped = [order.timeline for order in orders if isinstance(order, StopQuery)]
        for order in orders:
            if isinstance(order, StartQuery) and order.timeline not in stopped:
                self._context.logger.info(
                    "branched",
                    stage=self._settings.name,
                    successor=order.timeline,
                    missing=list(runner.missing),
                    shed=runner.shed,
                )
                self._start_query(order.timeline)
        for timeline in stopped:
            self._context.logger.info("branch_dropped", stage=self._settings.name, branch=timeline)
            branch = self._running.pop(timeline, None)
            self._stopping[timeline] = self._context.threads.begin(
                f"stop {timeline}", partial(self._end_branch, runner, timeline, branch)
            )
        for timeline, thread in list(self._stopping.items()):
            if not thread.is_alive():
                del self._stopping[timeline]

    def _end_branch(
        self, runner: ReplicaRunner, timeline: str, branch: RunningQuery | None
    ) -> None:
        """Stop the query of a dropped branch and remove its directory. Errors of the branch no
        longer matter.
        """
        if branch is not None:
            branch.stop()
        runner.stopped(timeline)

    def _report(self, runner: ReplicaRunner) -> None:
        """Update the status, metrics and standby report, start a due sync, and check the epoch."""
        now = self._context.clock.now_ms()
        if self.status.state in ("running", "waiting"):
            position = (self.status.last_bucket_ms or 0) // self._pipeline.bucket_ms
            idle = runner.complete_upto() <= position
            self.status.state = "waiting" if idle else "running"
            cap = f"its cap, {self._stage.rows_per_s} rows/s" if runner.is_capped() else None
            self.status.waiting_for = self._slowest_input(runner) if idle else cap
            if self.status.last_bucket_ms is not None:
                self.status.lag_ms = now - self.status.last_bucket_ms
        self.status.detail |= {
            "replica_state": runner.state.value,
            "missing": list(runner.missing),
            "shed": runner.shed,
            "unread": sorted(runner.unread),
        }
        self._state_metrics.show(runner.state, runner.missing, runner.shed)
        self._report_load(runner.load_figures())
        for name, follower in self._followers.items():
            self._context.metrics.rejected(name, follower.reader.counts)
        if self._standing_by is not None:
            self._standing_by.standby.lead(
                (self.status.last_bucket_ms or 0) // self._pipeline.bucket_ms,
                runner.synced_bucket,
            )
        self._sync.sync_if_due(runner)
        monotonic_ms = self._context.clock.monotonic_ms()
        if monotonic_ms - self._epoch_checked_ms >= _EPOCH_CHECK_MS:
            self._epoch_checked_ms = monotonic_ms
            runner.check_epoch()
            self._check_move(monotonic_ms)

    def _report_load(self, figures: LoadFigures | None) -> None:
        """Report the load of an overloaded stage in status and metrics; None: it is not
        overloaded.
        """
        self._state_metrics.show_load(figures)
        if figures is None:
            self.status.detail.pop("overload", None)
            return
        self.status.detail["overload"] = {
            "kept_permille": figures.kept,
            "limit_permille": figures.limit,
            "use_permille": figures.use,
            "backlog_rows": figures.backlog,
            "room_left_ms": figures.room_left_ms,
        }

    def _check_move(self, now_ms: int) -> None:
        """Withdraw the move of this replica to another node if it makes no progress (TR5)."""
        node = self.move.goes_to()
        coming = next(iter(self._feed.alive(now_ms)), None)
        trouble = str(self.status.detail.get("not_stored", ""))
        reason = self._move_deadline.withdrawn(now_ms, node, coming, trouble)
        if reason:
            self.move.withdraw(reason)

    def _slowest_input(self, runner: ReplicaRunner) -> str:
        """Return the input that delays the stage, with the trouble of reading it, if any."""
        name = runner.waiting_for()
        trouble = self._followers[name].reader.trouble
        return f"{name}: {trouble}" if trouble else name

    def _heartbeat(self) -> Heartbeat | None:
        """Build the current heartbeat; None before this process's epoch. Until the start is over it
        names no checkpoint, so that nothing is trimmed before the checkpoint was read.
        """
        boundary = self._boundary
        gate = self._gate
        runner = self._runner
        if boundary is None or boundary.epoch < 0:
            return None
        beat = Heartbeat(
            "processing",
            self._stage_name,
            self._replica,
            boundary.epoch,
            self.status.state,
            0,
            written_ms=0,
            rejected=self._rejected,
            life=self._life,
        )
        if runner is None:
            return beat
        figures = runner.load_figures()
        return replace(
            beat,
            bucket=(self.status.last_bucket_ms or 0) // self._pipeline.bucket_ms,
            replica_state=runner.state.value,
            branch=runner.branch_number,
            checkpoint=runner.stable_query,
            checkpoint_bucket=self._unneeded_upto(runner),
            corrects=gate.corrects,
            room_left_ms=None if figures is None else figures.room_left_ms,
        )

    def demand(self) -> LoadDemand | None:
        """Return what this replica tells its node of its load; None: nothing yet."""
        return None if self._runner is None or self._ended else self._runner.demand()

    def limit(self, kept: int | None) -> None:
        """Let the replica keep ``kept`` per mille of its rows at most in tentative results; None:
        there are no limits on the node.
        """
        if self._runner is not None and not self._ended:
            self._runner.limit(kept)

    def load(self, state: str) -> ReplicaLoad:
        """Return the load of this replica since the previous call. Called on a thread of the node.
        ``state``: that of its slot, which knows whether it has ended.
        """
        runner = self._runner
        # Not before its first batch, which takes long in a Spark that has just started.
        leads = runner is not None and not self._ended and state in ("running", "waiting")
        busy = None if runner is None else runner.read_busy()
        return ReplicaLoad(
            self._stage_name,
            self._process,
            state,
            leads=leads,
            stands_by=self._stage.ha == "passive" and not leads and state == STANDING_BY,
            busy_permille=0 if busy is None else busy.busy_permille,
            rows_per_s=0 if busy is None else busy.rows_per_s,
            behind=0 if runner is None else runner.behind(),
        )

    def _unneeded_upto(self, runner: ReplicaRunner) -> int:
        """Return the last bucket of input that is never read again (rule 18)."""
        closed = 0 if self._boundary is None else self._boundary.log_state.closed(self._replica)
        return unneeded_upto(closed, runner.synced_bucket, self._horizon_buckets, self._stage.ha)

    def stop(self) -> None:
        """Let running batches end, then release all resources. Idempotent."""
        if self._ended:
            return
        self._ended = True
        self._context.stopping.set()
        # The queries before the last heartbeat, which says that this process has ended: others may
        # take over at once.
        for running in list(self._running.values()):
            running.stop()
        self.node_load.dropped(self._stage_name)
        if self._standing_by is not None:
            self._standing_by.cool_down()
        self._heartbeats.end()
        if self._recomputing is not None:
            self._recomputing.close()
        for follower in self._followers.values():
            follower.close()
        for closable in (
            self._prepared,
            self._boundary,
            self._neighbours,
            self._recompute_client,
            self._standing_by,
            self._signers,
            self._contact,
        ):
            if closable is not None:
                closable.close()
