"""One process of one replica in the simulation: the replica's real driver over the simulated engine
(``simulation.engine``).

It does what ``processing.stage_replica`` does, in threads of the scheduler.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from anabranch.codec.blocks import schema_text
from anabranch.codec.plan_offsets import Offset
from anabranch.pipeline.shape import horizon_buckets, lags, policy, quiet_ms, waits
from anabranch.pipeline.speakers import speakers
from anabranch.ports import BatchDone, QueryOutput, RunningQuery
from anabranch.processing.inputs import StageInputs
from anabranch.processing.peers import HostProcess, Recovery, Upstream
from anabranch.processing.recomputing import Made, Recomputing
from anabranch.processing.replica import BatchStart, ReplicaRunner, StartQuery, StopQuery
from anabranch.processing.stage_replica import SUCCESSOR_AFTER_MS
from anabranch.protocol.control.failure_detector import FailureDetector
from anabranch.protocol.control.placement import has_left
from anabranch.protocol.control.records import ControlRecord, Heartbeat, ReplicaState
from anabranch.protocol.errors import Fenced, Unavailable
from anabranch.protocol.limits import HEARTBEAT_EVERY_MS, PASSIVE_BEAT_MS, RECOMPUTE_MS_MAX
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.records import BoundaryKind, EpochStarted, Part
from anabranch.protocol.stage.availability import Availability
from anabranch.protocol.stage.planner import PlanTraits, QueryPosition
from anabranch.protocol.stage.recovery import (
    Comparison,
    PartnerWrong,
    begins_anew,
    unneeded_upto,
)
from anabranch.protocol.stage.replica import StageRules
from anabranch.protocol.stage.scheduling import BatchRules, CorrectionGate
from anabranch.runtime.boundary_reader import BoundaryReader
from anabranch.runtime.boundary_writer import BoundaryWriter
from anabranch.runtime.fences import FenceWatch
from anabranch.runtime.heartbeats import (
    ControlReader,
    HeartbeatSender,
    ReplicaControl,
)
from anabranch.runtime.range_query import RangeQuery
from anabranch.runtime.service import ServiceContext, ServiceStatus
from anabranch.runtime.stream_logs import open_stream
from simulation.disk import SimulatedDisk
from simulation.engine import SimulatedEngine
from simulation.locks import SimulatedCondition
from simulation.network import Port
from simulation.options import StageOptions
from simulation.scheduler import Process
from simulation.standing_by import STEP_MS, StandingBy

_POLL_MS: Final = 100
_EPOCH_EVERY_MS: Final = 1_000
_SYNC_CHANCE: Final = 0.3
"""At each of these looks; for real it is every ``CHECKPOINT_SYNC_EVERY_MS``."""


class WatchedDriver:
    """Notes when the stable query moves, and complains of a batch without rows that leaves
    complete buckets behind.
    """

    def __init__(
        self, runner: ReplicaRunner, traits: PlanTraits, port: Port, context: ServiceContext
    ) -> None:
        self._runner = runner
        self._traits = traits
        self._port = port
        self._context = context
        self._complete: dict[str, int] = {}
        """By query, the buckets that were complete before it was given the plan that it runs."""
        self.moved_ms = 0
        """When the stable query began its last batch that went on."""

    def advance(self, query: str, name: str, start: Offset, source: int = 0) -> Offset | None:
        """See ``ports.QueryDriver``."""
        if self._port.link.makes_nothing:
            return None
        complete = self._runner.complete_upto()
        answer = self._runner.advance(query, name, start, source)
        if answer is not None:
            self._complete.setdefault(query, complete)
        return answer

    def begin(
        self, query: str, offsets: list[Offset], watermark_ms: int, before: QueryPosition
    ) -> BatchStart:
        """See ``ports.QueryDriver``."""
        start = self._runner.begin(query, offsets, watermark_ms, before)
        complete = self._complete.pop(query, 0)
        if (
            start.before.bucket < start.after.bucket < complete
            # What is left out at a beginning has a batch of its own, what is given up ends one.
            and start.before.sequence > 0
            and start.after.bucket != self._runner.given_up
            and not self._traits.has_timers
            and not start.rows
        ):
            self._context.logger.error(
                "a batch without rows leaves complete buckets behind",
                upto=start.after.bucket,
                complete=complete,
            )
        if start.kind is BoundaryKind.STABLE and start.after.bucket > start.before.bucket:
            self.moved_ms = self._port.now_ms
        return start

    def finish(self, query: str, batch: int, parts: tuple[Part, ...]) -> bool:
        """See ``ports.QueryDriver``."""
        return self._runner.finish(query, batch, parts)


@dataclass(frozen=True)
class _Follower:
    """See ``processing.follower``."""

    reader: BoundaryReader
    raise_error: Callable[[], None]


class SimulatedReplica:
    """One process of one replica of a stage. See ``runtime.service.Service``."""

    def __init__(
        self,
        context: ServiceContext,
        port: Port,
        disk: SimulatedDisk,
        stage: StageOptions,
        replica: str,
        rng: random.Random,
        node: str = "",
    ) -> None:
        self.status, self._node = ServiceStatus(), node
        self._context = context
        self._port = port
        self._disk = disk
        self._stage = stage
        self._process = replica
        writers = context.pipeline.stream_writers(stage.name)
        self._replica = replica if replica in writers else writers[0]
        self._label = f"{stage.name}.{replica}"
        self._rng = rng
        self._standing_by: StandingBy | None = None
        self._pipeline, self._scheduler = context.pipeline, port.network.scheduler
        self._changed = SimulatedCondition(self._scheduler, f"{port.process.name} changed")
        self._inputs: dict[str, BoundaryReader] = {}
        followers: dict[str, Any] = {}
        self._followers = followers
        lock: Any = self._changed
        self._stage_inputs = StageInputs(
            context.log,
            self._pipeline.topic_names,
            followers,
            lock,
            lambda: context.clock.sleep_ms(_POLL_MS),
        )
        self._horizon = horizon_buckets(self._pipeline, stage.name)
        self._comparison = (
            Comparison(
                stage.name,
                self._horizon or 0,
                self._pipeline.bucket_ms,
                self._pipeline.places().is_partners,
            )
            if stage.ha == "upstream_backup"
            else None
        )
        self._runner: ReplicaRunner | None = None
        self._recomputing: Recomputing | None = None
        self._running: dict[str, RunningQuery] = {}
        self._error: Exception | None = None
        self._epoch_next_ms = 0
        self._closed = 0
        self._corrects = self.stands_by = False
        self._has_place = True
        self._prepared = SimulatedEngine(context, port, disk, {stage.name: stage}, rng).prepare(
            self._label, stage.name, {}
        )

    def stand_by(self, warm_ms: int, *, has_place: bool, leaves: Callable[[], bool]) -> bool:
        """As one that was moved: until it is to become the primary; False: ``leaves`` says that its
        place is elsewhere.
        """
        self._has_place = has_place
        moved = StandingBy(self._context, self._port, self._disk, self._label, self._node)
        try:
            if moved.standby.must_wait and not has_place:
                raise Fenced("it runs on another node by now")
            self.stands_by = moved.standby.must_wait
            return moved.until_due(warm_ms, leaves)
        finally:
            self.stands_by = self.stands_by and not moved.is_over
            moved.standby.close()

    def _check_place(self, log_state: LogState) -> None:
        if has_left(log_state.node(self._replica), self._node, has_place=self._has_place):
            raise Fenced("it runs on another node by now")

    def _boundary_writer(self) -> BoundaryWriter:
        context, stage = self._context, self._stage.name
        own = self._pipeline.stream_writers(stage)
        return BoundaryWriter(
            context.log,
            self._pipeline.topic_names.boundaries(stage),
            own if self._standing_by is None else self._standing_by.standby.boundary,
            EpochStarted(
                self._replica,
                self._prepared.fingerprint,
                context.entropy.token(),
                version=self._port.link.version,
                schema=schema_text(self._prepared.schema),
                node=self._node,
            ),
            context.clock,
        )

    def start(self) -> None:
        """Follow the inputs, stand by if the stage is passive, fence the older process."""
        context = self._context
        pipeline = self._pipeline
        stage = self._stage
        names, own = pipeline.topic_names, pipeline.stream_writers(stage.name)
        lock: Any = self._changed
        for stream in pipeline.inputs(stage.name):
            self._inputs[stream] = open_stream(context.log, pipeline, stream, lock=lock)
            self._followers[stream] = _Follower(self._inputs[stream], self._raise_error)
            self._thread(f"follow {stream}", lambda stream=stream: self._follow(stream))  # type: ignore[misc]
        if stage.ha == "passive":
            self._stand_by()
        boundary = self._boundary_writer()
        detector = FailureDetector.of_replicas(
            {stream: pipeline.stream_writers(stream) for stream in (stage.name, *self._inputs)}
        )
        self._gate = CorrectionGate(stage.name, self._replica, detector)
        self._fences = FenceWatch(context.log, pipeline, stage.name, self._replica)
        self._heartbeats = HeartbeatSender(
            context.log,
            names.control("processing", self._label),
            context.clock,
            every_ms=PASSIVE_BEAT_MS if self.is_passive else HEARTBEAT_EVERY_MS,
        )
        self._control = ReplicaControl(
            ControlReader(context.log, speakers(pipeline)),
            context.clock,
            self._gate,
            detector,
            self._hear,
            lock,
        )
        self._boundary = boundary
        log_lock: Any = SimulatedCondition(
            self._scheduler, f"{self._port.process.name} log", is_turn=True
        )
        runner = ReplicaRunner(
            self._inputs,
            boundary,
            self._disk,
            self._rules(),
            HostProcess(
                context.clock,
                lock=lock,
                log_lock=log_lock,
                crash_point=self._crash_point,
                may_begin=self._check_place,
            ),
            Upstream(
                self._control.choose,
                self._control.states,
                self._may_correct,
                self._control.peer_serves,
            ),
        )
        stable_query = runner.fail_over(
            Recovery(
                tuple(other for other in own if other != self._replica),
                self._missing_input,
                self._await_peer,
                gone=self._stage_inputs.last_gone,
                complete=self._stage_inputs.complete,
                comparison=self._comparison,
                tell=self._partner_wrong,
                fenced=self._fences.fenced,
                recomputed=self._stage_inputs.recomputed,
                points=None if self._standing_by is None else self._standing_by.standby.points,
            )
        )
        self._note_beginning(runner)
        if self._comparison is not None:
            self._port.link.wrong_after = boundary.log_state.closed(self._replica)
        self._fences.epoch = boundary.epoch
        self._runner, self._driver = (
            runner,
            WatchedDriver(runner, self._prepared.traits, self._port, context),
        )
        self._recomputing = self._serving(log_lock)
        self._start_query(stable_query)

    def _partner_wrong(self, found: PartnerWrong) -> None:
        self._port.note("partner wrong", found.stage, found.bucket, found.node)

    def _serving(self, log_lock: Any) -> Recomputing:
        """What serves readers whose blocks are gone."""
        made = Made(
            self._stage.name,
            self._replica,
            self._prepared.traits,
            self._prepared.fingerprint,
            self._boundary.epoch,
            self._disk,
            self._boundary,
            log_lock,
            self._run_range,
        )
        return Recomputing(self._context, made)

    def _hear(self, entry: ControlRecord) -> None:
        self._fences.hear(entry)
        if self._recomputing is not None:
            self._recomputing.heard(entry)

    def _run_range(self, query: RangeQuery) -> None:
        """Make buckets again for a reader, beside the queries of the replica."""
        output, clock = (
            QueryOutput(self._replica, self._boundary.epoch, query.only),
            self._context.clock,
        )
        running = self._prepared.start(query.name, query, output, query.name, lambda _: None)
        deadline_ms = clock.monotonic_ms() + RECOMPUTE_MS_MAX
        try:
            while not query.finished.is_set() and clock.monotonic_ms() < deadline_ms:
                running.ended(STEP_MS)
        finally:
            running.stop()

    def _rules(self) -> StageRules:
        """What its decisions follow."""
        pipeline, name = self._pipeline, self._stage.name
        self._lags = lags(pipeline, name)
        return StageRules(
            self._prepared.traits,
            Availability(
                list(self._inputs), waits(pipeline, name), policy(pipeline, name), self._lags
            ),
            BatchRules(
                pipeline.bucket_ms,
                pace_ms=self._stage.pace_ms,
                quiet_every_ms=quiet_ms(pipeline, name),
                successor_after_ms=SUCCESSOR_AFTER_MS,
            ),
            self._horizon,
            pipeline.stages[name].ha,
        )

    def _note_beginning(self, runner: ReplicaRunner) -> None:
        """Where the state was lost: what came of that."""
        reached, log_state = self._port.network.history.reached, self._boundary.log_state
        if runner.given_up > log_state.closed(self._replica):
            reached("results given up")
        if self._comparison is not None and self._comparison.upto:
            reached("state made anew")
        if begins_anew(log_state.origin(self._replica), self._stage.ha):
            reached("state made anew while nothing new is closed")

    def _stand_by(self) -> None:
        passive = self._standing_by = StandingBy(
            self._context, self._port, self._disk, self._label, None
        )
        self.stands_by = True
        passive.until_due(self._rng.randrange(STEP_MS), each_round=self._forget)
        self.stands_by = False

    def _forget(self, upto: int) -> None:
        """What a standby has in its checkpoint."""
        self._raise_error()
        with self._may_be_behind():
            self._stage_inputs.forget(upto)

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _missing_input(self, after: int) -> str:
        """What is gone of the inputs' blocks."""
        with self._may_be_behind():
            self._stage_inputs.check_forgotten(after)
        return self._stage_inputs.missing(after)

    @contextlib.contextmanager
    def _may_be_behind(self) -> Iterator[None]:
        """What this process has forgotten may be needed again: that is why it ends."""
        try:
            yield
        except Unavailable:
            self._port.struck("another went on from an older checkpoint")
            raise

    def _await_peer(self, missing: str) -> None:
        self._port.network.history.reached("waits for a peer")
        self._port.note("waits", missing)
        if self._standing_by is not None:
            self._standing_by.standby.copy()
        self._context.clock.sleep_ms(1_000)

    def step(self) -> None:
        """Look after the queries, as the service's main thread does."""
        runner, context = self._started(), self._context
        if self._error is not None:
            raise self._error
        self._control.poll()
        for timeline, query in list(self._running.items()):
            try:
                query.ended(0)
            except Fenced:
                raise
            except Exception as error:
                if not runner.failed(timeline, error):
                    raise
        self._carry_out(runner)
        if self._recomputing is not None:
            self._recomputing.step(may_begin=runner.branch is None)
        now_ms = context.clock.monotonic_ms()
        if now_ms >= self._epoch_next_ms:
            self._epoch_next_ms = now_ms + _EPOCH_EVERY_MS
            runner.check_epoch()
            if self._rng.random() < _SYNC_CHANCE:
                runner.sync()
        if self._standing_by is not None:
            self._standing_by.say(self._closed, runner.synced_bucket)
        if self._heartbeats.send(self._heartbeat(runner)) and runner.state is ReplicaState.STABLE:
            position = runner._started().position(runner.stable_query)
            self._port.note(
                "says stable",
                self._stage.name,
                self._process,
                position.bucket if position is not None else 0,
            )
        context.clock.sleep_ms(STEP_MS)

    def stop(self) -> None:
        """Its threads end with the process."""

    def _started(self) -> ReplicaRunner:
        assert self._runner is not None, "start comes first"
        return self._runner

    def _thread(self, name: str, body: Callable[[], None]) -> Process:
        """A thread of this process. Its error ends the process, by the main thread."""

        def run() -> None:
            try:
                body()
            except Exception as error:  # noqa: BLE001 - handed to the main thread, as the service does
                self._error = self._error or error

        return self._scheduler.spawn_thread(self._port.process, name, run)

    def _follow(self, stream: str) -> None:
        """Follow one input's log for ever."""
        while True:
            if self._runner is not None:
                self._runner.follow(stream, _POLL_MS)
            elif self._inputs[stream].poll(_POLL_MS):
                with self._changed:
                    self._changed.notify_all()

    def _crash_point(self, name: str) -> None:
        if name == "processing.fork_decided":
            runner = self._started()
            position = runner._started().position(runner.stable_query)
            self._port.note("forks", None if position is None else position.bucket)
            if runner.branch is not None:
                self._port.note(
                    "forks again",
                    self._stage.name,
                    self._process,
                    self._port.now_ms - self._driver.moved_ms,
                    runner._availability.waits.first_ms,
                )
        self._port.crash_point(name)

    def _may_correct(self, wanted: bool) -> bool:
        """As the control topic says; noted when it changes."""
        may = self._control.may_correct(wanted)
        self._port.network.history.reached(f"gate {self._gate.why.name}")
        if (may and wanted) != self._corrects:
            self._corrects = not self._corrects
            self._port.note("corrects", self._stage.name, self._process, self._corrects)
        return may

    @property
    def stable_query(self) -> str:
        """The stable timeline."""
        return self._started().stable_query

    @property
    def branch(self) -> str | None:
        """The timeline of the branch, if there is one."""
        return None if self._runner is None else self._runner.branch

    @property
    def writer(self) -> str:
        """The replica that it is a process of."""
        return self._replica

    @property
    def is_passive(self) -> bool:
        """Its process stands by where another one is primary."""
        return self._standing_by is not None

    @property
    def epoch(self) -> int:
        """Of this process; -1: not begun."""
        return -1 if self._runner is None else self._boundary.epoch

    @property
    def buckets_remembered(self) -> int:
        """Stable buckets with rows that the log states of the inputs remember."""
        return sum(len(reader.log_state._stable) for reader in self._inputs.values())

    @property
    def is_stable(self) -> bool:
        """It has begun, and has no branch. It may say UP_FAILURE all the same, every now and then,
        where its input usually takes nearly as long as it may.
        """
        return self._runner is not None and self.branch is None

    def _heartbeat(self, runner: ReplicaRunner) -> Heartbeat:
        gate = self._gate
        self._port.network.history.reached(f"replica {runner.state.value}")
        if self._lags.beyond_expected_ms:
            self._port.network.history.reached("depth measured")
        if runner.unread:
            self._port.network.history.reached("no room for more of an input")
            self._port.struck(
                "no room for more of an input"
            )  # its log goes on, and is trimmed (protocol.log.log_snapshots)
        self._disk.check_synced(runner.stable_query, runner.synced_bucket)
        closed = self._boundary.log_state.closed(self._replica)
        horizon, ha = self._horizon or 0, self._stage.ha
        return Heartbeat(
            service="processing",
            name=self._stage.name,
            replica=self._replica,
            epoch=self._boundary.epoch,
            state="running",
            bucket=self._closed,
            written_ms=0,
            replica_state=runner.state.value,
            branch=runner.branch_number,
            checkpoint=runner.stable_query,
            checkpoint_bucket=unneeded_upto(closed, runner.synced_bucket, horizon, ha),
            corrects=gate.corrects,
        )

    def _carry_out(self, runner: ReplicaRunner) -> None:
        reached = self._port.network.history.reached
        for order in runner.orders():
            if isinstance(order, StartQuery):
                reached("successor started")
                self._start_query(order.timeline)
            elif isinstance(order, StopQuery):
                reached("branch dropped")
                self._thread(
                    f"stop {order.timeline}",
                    lambda timeline=order.timeline: self._stop_query(timeline),  # type: ignore[misc]
                )

    def _start_query(self, timeline: str) -> None:
        output = QueryOutput(self._replica, self._boundary.epoch)
        self._running[timeline] = self._prepared.start(
            timeline, self._driver, output, timeline, self._batch_done
        )

    def _batch_done(self, done: BatchDone) -> None:
        if done.start.kind is BoundaryKind.STABLE:
            self._closed = done.start.after.bucket
        else:
            self._port.network.history.reached("tentative batch")

    def _stop_query(self, timeline: str) -> None:
        """Wait for the query's end; then its directory goes."""
        query = self._running.pop(timeline, None)
        if query is not None:
            query.stop()
        self._started().stopped(timeline)
