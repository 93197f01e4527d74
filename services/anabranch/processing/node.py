"""Processing node: one process with one Spark application that runs replicas of many stages (the
nodes of Borealis and Medusa).

Theory of operation. The node's thread starts Spark, then watches its replicas, each of which has a
thread of its own (``processing.hosting``). A replica that fails - its function raised, it was
fenced, its disk is full - is restarted after a back-off while the others keep running. When Spark's
Java process ends, the node ends with all its replicas; its supervisor starts it again, and each
replica continues from its own checkpoint.

The pipeline file and the log of moves decide which replicas run here
(``protocol.control.placement``). A replica that moves here is started beside the others, in the
same Spark. A replica that moves away keeps running until it runs on its new node. A node without
any replica keeps its Spark warm (``processing.idle_node``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anabranch.ports import Disks, TopicPartition
from anabranch.process.frame import OtherCluster, ServiceStatus, StartEngine, no_other_cluster
from anabranch.process.metrics import Registry, ServiceMetrics
from anabranch.processing.engine_ends import EngineEnds
from anabranch.processing.hosting import FAILED, HostedReplica
from anabranch.processing.idle_node import IdleNode, rehearsed
from anabranch.processing.node_load import NodeLoad
from anabranch.processing.node_reports import NodeReports
from anabranch.processing.own_move import OwnMove
from anabranch.processing.own_split import OwnSplit
from anabranch.processing.yield_to_primary import yield_to_primary
from anabranch.protocol.control.idle_node import Idleness, IdleStep
from anabranch.protocol.control.placement import AfterEnd, AfterMove, Places, after_end, after_move
from anabranch.protocol.control.records import Move, NodeReport, SplitStep
from anabranch.protocol.errors import (
    AnabranchError,
    ConfigurationError,
    DataMissing,
    EngineEnded,
    Unavailable,
)
from anabranch.protocol.stage.splitting import Attempt, half_runs
from anabranch.protocol.stage.standby import yields_for
from anabranch.streams.placement import PlacementReader, append_decision, runs_on

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client import CollectorRegistry

    from anabranch.ports import Engine, Flag, LogAdmin, StartingEngine
    from anabranch.process.frame import ServiceContext
    from anabranch.process.settings import ServiceSettings
    from anabranch.processing.stage_replica import StageReplica

NODE_WAITS_MS: Final = 60_000
"""Time, in ms, that a node waits for the broker and for missing topics, which may be created while
it starts. Then it ends with an error that names them, since a mistyped name never appears.
"""

PLACEMENT_LOOK_MS: Final = 500
"""Interval between polls of the log of moves, in ms."""

_ROUND_S: Final = 0.1
"""Pause between two rounds of the node's thread, in seconds."""
_STOP_S: Final = 7.0
"""Time for the replicas' orderly stop, in seconds. Spark gets the rest of the process's stop
timeout.
"""
_WORST_FIRST: Final = (FAILED, "restarting", "starting", "running", "waiting", "standby")
"""States of replicas, worst first."""


def state_of(states: Iterable[str]) -> str:
    """Return the state of a node whose replicas have ``states``: the worst of them. A node without
    replicas is ``waiting``.
    """
    there = set(states) or {"waiting"}
    return next((state for state in _WORST_FIRST if state in there), "stopping")


def _missing_topics(admin: LogAdmin, wanted: set[str]) -> ConfigurationError | Unavailable | None:
    """Return the error that keeps a node from starting which needs the topics ``wanted``: some are
    missing, or the broker does not answer. None if there is none.
    """
    try:
        missing = wanted - set(admin.partitions(sorted(wanted)))
    except Unavailable as error:
        return error
    if not missing:
        return None
    names = ", ".join(sorted(missing))
    return ConfigurationError(f"there are no topics {names}; make them: anabranch topics --create")


def _raise_engine_failure(starting: StartingEngine, lacks: AnabranchError) -> None:
    """Raise the failure of an engine that did not start, with ``lacks``, the node's other problem,
    in the text.
    """
    try:
        starting.wait()
    except (ConfigurationError, Unavailable) as error:
        raise type(error)(f"{error}; besides, {lacks}") from error


@dataclass(frozen=True, slots=True)
class Machinery:
    """Adapters with which a node runs its replicas."""

    start_engine: StartEngine
    open_disks: Callable[[Path, str, str | None, Callable[[str], None]], Disks]
    """Function (folder, pipeline, checkpoint store or None, crash points) that opens the
    checkpoints of the node's replicas.
    """
    other_cluster: OtherCluster = no_other_cluster
    """Function that opens the other clusters that the pipeline file names."""


class Node:
    """Service of one processing node."""

    def __init__(
        self,
        settings: ServiceSettings,
        context: ServiceContext,
        machinery: Machinery,
    ) -> None:
        """Prepare the node; ``start`` starts it.

        Raises:
            ConfigurationError: the pipeline has no node of this name.
        """
        nodes = [*context.pipeline.nodes(), *context.pipeline.partner_nodes]
        if settings.name not in nodes:
            raise ConfigurationError(
                f"--name {settings.name}: pipeline {context.pipeline.name} has the nodes"
                f" {', '.join(nodes)}"
            )
        self._settings = settings
        self._machinery = machinery
        self._context = replace(context, other_cluster=machinery.other_cluster)
        self._node = settings.name
        self._engine: Engine | None = None
        self._engine_waits: str | None = None
        self._disks: Disks | None = None
        self._new_replica: type[StageReplica] | None = None
        self._ends = EngineEnds(
            Path(settings.state_dir) / "processing" / f"{self._node}.ends.json", context.clock
        )
        self._registries: dict[str, CollectorRegistry] = {}
        self._placement: PlacementReader | None = None
        self._placement_next_ms = 0
        self._hosted: dict[str, HostedReplica] = {}
        self._made: dict[str, StageReplica] = {}
        """Newest replica of each label that was built here, whether it runs or not."""
        self._reports: NodeReports | None = None
        self._kept: set[str] = set()
        """Labels of replicas that keep running here although their place is on another node."""
        self._stalled: dict[str, str] = {}
        """Replica -> what people have to do about its move, which this node cannot withdraw."""
        self._leaving: set[str] = set()
        """Labels of replicas that were asked to stop because their place is elsewhere."""
        self._load: NodeLoad | None = None
        self._idle: HostedReplica | None = None
        """Work of the node while it has no replica."""
        self._rehearsed = rehearsed(
            context.pipeline, context.pipeline.places().may_come(settings.name)
        )
        self._idleness = Idleness(self._rehearsed)
        self.status = ServiceStatus(detail={"stages": [], "shedding": []})

    def start(self) -> None:
        """Start Spark and meanwhile read which replicas belong here; then start them all.

        Raises:
            ConfigurationError: the state directory has another version's format, or the
                checkpoint store's address is not valid.
        """
        pipeline, context = self._context.pipeline, self._context
        places, names = pipeline.places(), pipeline.topic_names
        may_come = places.may_come(self._node)
        self._yield_to_standbys(places)
        starting = self._machinery.start_engine(context, self._node, may_come)
        # Imported here, since Java is starting meanwhile: these imports take long.
        from anabranch.processing.stage_replica import StageReplica

        self._disks = self._machinery.open_disks(
            Path(self._settings.state_dir) / "processing",
            pipeline.name,
            self._settings.checkpoint_store,
            context.crash_point,
        )
        self._new_replica = StageReplica
        if self._await_topics({names.placement()}, starting):
            self._placement = PlacementReader(context.log, names.placement(), places)
            self._placement.read_to_end()
            for label in places.moved_away(self._node):
                # An unreadable log fails the replica on its new node as well: leave it there.
                with contextlib.suppress(DataMissing, ConfigurationError):
                    self._kept |= {label} if self._stays(label, places) else set()
            replicas = [*filter(self._is_wanted, places.of_node(self._node)), *self._kept]
            context.logger.info("placed", node=self._node, replicas=replicas)
            stages = {label.rpartition(".")[0] for label in replicas}
            self._await_topics(
                {
                    names.boundaries(stream)
                    for stage in stages
                    for stream in (stage, *pipeline.inputs(stage))
                    if stream not in pipeline.bindings  # the replica itself waits for these
                },
                starting,
            )
            self._engine = starting.wait()
            self._load = NodeLoad(pipeline, context.clock, self._engine.cores)
            if self._node in pipeline.reporting_nodes():
                self._reports = NodeReports(
                    context.log,
                    names.node_reports(self._node),
                    context.clock,
                    self._load_report,
                    context.threads,
                )
                self._reports.start()
        self.step()

    def _load_report(self) -> NodeReport:
        """Return the load of this node since the previous report. Called on the reports' thread."""
        assert self._engine is not None, "started"  # noqa: S101
        return NodeReport(
            self._node,
            self._context.clock.now_ms(),
            self._engine.cores,
            tuple(
                made.load(hosted.state)
                for label, hosted in list(self._hosted.items())
                if (made := self._made.get(label)) is not None
            ),
        )

    def _yield_to_standbys(self, places: Places) -> None:
        """Let standbys on other nodes that are becoming primary go first after a restart, before
        Spark's start takes all processors: results wait for them. Errors of a log are left to its
        replica.
        """
        context = self._context
        stages = [
            context.pipeline.stages[label.rpartition(".")[0]]
            for label in places.of_node(self._node)
        ]
        awaited = yields_for(
            [(stage.name, stage.ha, len(stage.process_ids())) for stage in stages],
            self._settings.restarts,
        )
        if not awaited:
            return
        with contextlib.suppress(AnabranchError):
            waited_ms = yield_to_primary(
                context.log,
                context.clock,
                context.pipeline,
                self._node,
                awaited,
                context.stopping.is_set,
            )
            context.logger.info("made_way", node=self._node, ms=waited_ms)

    def _await_topics(self, wanted: set[str], starting: StartingEngine) -> bool:
        """Wait until the topics ``wanted`` exist: the node may be started before the broker, or
        before they are created. Return False if told to stop.

        Raises:
            ConfigurationError: topics are missing after NODE_WAITS_MS, or the engine failed to
                start meanwhile.
            Unavailable: the broker does not answer, or the engine failed to start.
        """
        context = self._context
        deadline_ms = context.clock.monotonic_ms() + NODE_WAITS_MS
        admin = context.log.admin()
        try:
            while not context.stopping.is_set():
                lacks = _missing_topics(admin, wanted)
                self._report_missing_topics(None if lacks is None else str(lacks))
                if lacks is None:
                    return True
                if starting.has_failed():
                    _raise_engine_failure(starting, lacks)
                if context.clock.monotonic_ms() >= deadline_ms:
                    raise lacks
                context.stopping.wait(_ROUND_S)
        finally:
            admin.close()
        return False

    def _report_missing_topics(self, waiting_for: str | None) -> None:
        """Put what the node waits for before its start into its status, and log each change."""
        if waiting_for is not None and waiting_for != self.status.waiting_for:
            self._context.logger.warning("node_waits", node=self._node, waiting_for=waiting_for)
        self.status.waiting_for = waiting_for

    def step(self) -> None:
        """Run one round: follow moves, watch the replicas, update the status.

        Raises:
            EngineEnded: Spark's Java process has ended. From the second time on the text names the
                replicas that were running each time.
        """
        # The engine first: its end also explains the errors of all replicas.
        if self._engine is not None:
            try:
                self._engine.check()
            except EngineEnded as error:
                raise self._ends.describe(error) from error
            self._report_engine(self._engine.waiting_for)
        self._follow_moves()
        for each in list(self._hosted.values()):
            each.supervise()
        self._keep_warm()
        self._report()
        self._context.stopping.wait(_ROUND_S)

    def _report_engine(self, waiting_for: str | None) -> None:
        """Log when something begins to delay all replicas of the engine, and when it no longer
        does.
        """
        if waiting_for == self._engine_waits:
            return
        self._engine_waits = waiting_for
        if waiting_for is None:
            self._context.logger.info("engine_goes_on", node=self._node)
        else:
            self._context.logger.warning("engine_waits", node=self._node, waiting_for=waiting_for)

    def _follow_moves(self) -> None:
        """Poll the log of moves. Start replicas that moved here; keep or stop those that moved
        away.
        """
        placement, now_ms = self._placement, self._context.clock.monotonic_ms()
        if placement is None:
            return
        if now_ms >= self._placement_next_ms:
            self._placement_next_ms = now_ms + PLACEMENT_LOOK_MS
            placement.poll()
        places = placement.places
        placed = [label for label in places.of_node(self._node) if self._is_wanted(label)]
        # A half that waits for its new node stops, too, when its attempt is withdrawn (HG1).
        self._kept = {*filter(self._is_wanted, self._kept)}.difference(placed)
        self._leaving.difference_update(placed)
        for label, each in list(self._hosted.items()):
            if each.is_over:
                self._remove_ended(label, places)
            elif label not in placed and label not in self._kept | self._leaving:
                self._leave(label, each, places)
        for label in (*placed, *self._kept):
            if label not in self._hosted:
                make, after_end = (
                    partial(self._make_replica, label),
                    partial(self._after_end, label),
                )
                self._hosted[label] = HostedReplica(
                    label,
                    make,
                    self._context.clock,
                    self._context.logger,
                    after_end,
                    self._context.threads,
                )

    def _keep_warm(self) -> None:
        """Run stages on empty batches while the node has no replica."""
        context = self._context
        step = self._idleness.next_step(
            context.clock.monotonic_ms(),
            has_engine=self._engine is not None and not context.stopping.is_set(),
            has_replica=bool(self._hosted),
            rehearses=self._idle is not None,
        )
        if step is IdleStep.BEGIN:
            self._idle = HostedReplica(
                "warm-up", self._make_idle, context.clock, context.logger, threads=context.threads
            )
        if self._idle is not None:
            if step is IdleStep.END:
                self._idle.request_stop()
            self._idle.supervise()
            if self._idle.is_over:
                self._idle = None

    def _make_idle(self, stopping: Flag, _restarts: int) -> IdleNode:
        """Build the work of the node while it has no replica."""
        assert self._engine is not None, "started"  # noqa: S101
        return IdleNode(replace(self._context, stopping=stopping), self._engine, self._rehearsed)

    def _is_wanted(self, label: str) -> bool:
        """Return whether the replica ``label`` is to run anywhere: a half of a shard runs only from
        the split on.
        """
        parent = self._context.pipeline.stages[label.rpartition(".")[0]].parent
        return not parent or half_runs(self._attempt(parent))

    def _attempt(self, shard: str) -> Attempt:
        """Return the newest attempt to split ``shard``, as far as the log of moves was read."""
        return Attempt() if self._placement is None else self._placement.splits.of(shard)

    def _answer_split(self, step: SplitStep) -> str:
        """Write the answer to an attempt into the log of moves. Return why it cannot be written;
        empty: it is. The shard gives it again every second until it is read there.
        """
        context = self._context
        at = TopicPartition(context.pipeline.topic_names.placement(), 0)
        try:
            append_decision(context.log, at, step, "answer to the split")
        except AnabranchError as error:
            return str(error)
        context.logger.info(
            "split_answered",
            shard=step.shard,
            step=step.step.value,
            bucket=step.bucket,
            reason=step.reason,
        )
        return ""

    def _leave(self, label: str, hosted: HostedReplica, places: Places) -> None:
        """Decide whether the replica ``label``, whose place is elsewhere now, keeps running until
        it runs there, or stops. If its log cannot be read, the next round tries again.
        """
        with contextlib.suppress(AnabranchError):
            action = self._after_move(label, places)
            if action is AfterMove.STAY:
                self._kept.add(label)
            elif action is AfterMove.STOP or self._made[label].begin_right.withdraw():
                self._leaving.add(label)
                hosted.request_stop()

    def _remove_ended(self, label: str, places: Places) -> None:
        """Remove a replica that ended for good. Start it again if its newest epoch began on this
        node and its place is elsewhere (PC5): its log could not be read when it ended.
        """
        with contextlib.suppress(AnabranchError):  # the next round tries again
            stays = places.node_of(label) != self._node and self._stays(label, places)
            (self._kept.add if stays else self._kept.discard)(label)
            del self._hosted[label]
            self._made.pop(label, None)
            self._drop_metrics(label)

    def _stays(self, label: str, places: Places) -> bool:
        """Return whether the replica ``label``, whose place is elsewhere, keeps running here."""
        return self._after_move(label, places) is AfterMove.STAY

    def _after_move(self, label: str, places: Places) -> AfterMove:
        """Decide what to do about the replica ``label``, whose place is elsewhere, from the end of
        its boundary log.
        """
        hosted = self._hosted.get(label)
        return after_move(
            runs_here=self._runs_on(label) == self._node,
            is_passive=self._context.pipeline.stages[label.rpartition(".")[0]].ha == "passive",
            is_removed=not (places.node_of(label) and self._is_wanted(label)),
            has_process=hosted is not None and hosted.is_running,
        )

    def _after_end(self, label: str, is_fenced: bool) -> AfterEnd:
        """Decide what to do about a replica that ended, from the newest moves and its boundary log.
        If one cannot be read, decide from the moves read so far: an error of a log concerns its
        replica alone.
        """
        placement, runs_on = self._placement, ""
        assert placement is not None, "started"  # noqa: S101
        with contextlib.suppress(AnabranchError):
            placement.read_to_end()
            runs_on = self._runs_on(label)
        return after_end(
            has_place=placement.places.node_of(label) == self._node and self._is_wanted(label),
            is_fenced=is_fenced,
            runs_on=runs_on,
            node=self._node,
        )

    def _runs_on(self, label: str) -> str:
        """Return the node on which the newest epoch of the replica began; empty if none did."""
        pipeline, (stage, _, process) = self._context.pipeline, label.rpartition(".")
        return runs_on(self._context.log, pipeline, stage, process)

    def stop(self) -> None:
        """Let running batches end, then stop Spark. Idempotent."""
        if self._reports is not None:
            self._reports.end()
            self._reports = None
        # All are asked before any is waited for, so that their batches end side by side.
        hosted = [*self._hosted.values(), *([] if self._idle is None else [self._idle])]
        for each in hosted:
            each.request_stop()
        deadline_ms = self._context.clock.monotonic_ms() + int(_STOP_S * 1_000)
        for each in hosted:
            if not each.join(max(0, deadline_ms - self._context.clock.monotonic_ms()) / 1_000):
                self._context.logger.warning("stopped_within_a_batch", replica=each.label)
        if self._placement is not None:
            self._placement.close()
            self._placement = None
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def _make_replica(self, label: str, stopping: Flag, restarts: int) -> StageReplica:
        """Build the replica ``label``, with new metrics that replace those of its previous run."""
        context = self._context
        placement = self._placement
        assert placement is not None, "started"  # noqa: S101
        self._drop_metrics(label)
        assert isinstance(context.registry, Registry), "as process.frame makes it"  # noqa: S101
        registry = self._registries[label] = context.registry.part()
        metrics = ServiceMetrics(
            registry,
            pipeline=context.pipeline.name,
            service="processing",
            name=label,
            restarts=restarts,
        )
        made = self._build_in_engine(
            replace(
                context,
                settings=self._settings.model_copy(update={"name": label}),
                stopping=stopping,
                registry=registry,
                metrics=metrics,
                logger=context.logger.bind(replica=label),
            ),
            may_run_elsewhere=placement.places.may_run_elsewhere(label, restarts),
            has_place=placement.places.node_of(label) == self._node,
        )
        if self._load is not None:
            made.node_load = self._load
        made.move = OwnMove(partial(self._goes_to, label), partial(self._withdraw, label))
        before = self._made.get(label)
        if before is not None and before.lost_input:
            made.prove_input()
        shard = label.rpartition(".")[0]
        if context.pipeline.may_split:
            made.split.access = OwnSplit(
                partial(self._attempt, shard),
                self._answer_split,
                partial(self._attempt, context.pipeline.stages[shard].parent),
            )
        self._made[label] = made
        metrics.follow(lambda: made.status.last_bucket_ms, lambda: made.status.lag_ms)
        return made

    def _goes_to(self, label: str) -> str:
        """Return the node to which the replica ``label`` moves, if this one may withdraw that; else
        an empty text.
        """
        if self._placement is None:
            return ""  # the node is stopping
        return self._placement.places.withdrawable(label, self._node)

    def _move_shown(self, label: str) -> dict[str, object]:
        """Return what is shown of a replica whose last move was withdrawn, or is to be."""
        if self._placement is None:
            return {}
        places = self._placement.places
        if places.node_of(label) == self._node:
            self._stalled.pop(label, None)
        texts = {
            "move_withdrawn": places.withdrawn(label),
            "move_stalled": self._stalled.get(label, ""),
        }
        return {name: text for name, text in texts.items() if text}

    def _withdraw(self, label: str, reason: str) -> None:
        """Record that the replica ``label`` does not move where it was to go, for ``reason``, and
        stays on this node. A newer move that was not read yet remains (PC7). The replica asks
        again every second while the broker does not take the record. Where it never does - only
        operators may write there (``anabranch acls``) - people see what they have to do.
        """
        context, (stage, _, replica) = self._context, label.rpartition(".")
        at = TopicPartition(context.pipeline.topic_names.placement(), 0)
        target = self._goes_to(label)
        if not target:
            return
        move = Move(
            stage,
            replica,
            self._node,
            context.clock.now_ms(),
            withdrawn=reason,
            only_from=target,
        )
        try:
            append_decision(context.log, at, move, "move")
        except AnabranchError as error:
            if label not in self._stalled:
                context.logger.warning("move_stalled", replica=label, reason=reason, why=str(error))
            self._stalled[label] = f"{reason}; take it back: anabranch move {label} {self._node}"
        else:
            context.logger.warning("move_withdrawn", replica=label, reason=reason)

    def _build_in_engine(
        self, context: ServiceContext, *, may_run_elsewhere: bool, has_place: bool
    ) -> StageReplica:
        """Build the replica of ``context`` in this node's engine."""
        assert self._engine is not None, "started"  # noqa: S101
        assert self._disks is not None, "started"  # noqa: S101
        assert self._new_replica is not None, "started"  # noqa: S101
        return self._new_replica(
            context,
            self._engine,
            self._disks,
            self._node,
            may_run_elsewhere=may_run_elsewhere,
            has_place=has_place,
        )

    def _drop_metrics(self, label: str) -> None:
        """Remove the metrics of the replica ``label``, if it has any."""
        registry = self._registries.pop(label, None)
        if registry is not None:
            assert isinstance(self._context.registry, Registry), "as process.frame makes it"  # noqa: S101
            self._context.registry.drop(registry)

    def _report(self) -> None:
        """Update the node's status: the state of its worst replica, the bucket and lag of the one
        furthest behind, and the status of each.
        """
        hosted = list(self._hosted.values())
        shown = [each.shown() | self._move_shown(each.label) for each in hosted]
        self.status.detail["stages"] = shown
        if self._load is not None:
            made = {label.rpartition(".")[0]: each for label, each in self._made.items()}
            self._load.decide(made)
            self.status.detail["shedding"] = self._load.table
        self.status.state = state_of(each.state for each in hosted)
        # A shard that was split has no lag: its last bucket says nothing of the node.
        reached = [
            (status.last_bucket_ms, status.lag_ms)
            for status in (each.status for each in hosted)
            if status.last_bucket_ms is not None and status.lag_ms is not None
        ]
        self.status.last_bucket_ms = min((bucket_ms for bucket_ms, _ in reached), default=None)
        self.status.lag_ms = max((lag_ms for _, lag_ms in reached), default=None)
        self.status.error = next(
            (f"{each.label}: {each.error}" for each in hosted if each.error), None
        )
        waits = [
            f"{each.label}: {each.status.waiting_for}" for each in hosted if each.status.waiting_for
        ]
        waits[:0] = [self._engine_waits] if self._engine_waits else []
        self.status.waiting_for = "; ".join(waits) or None
