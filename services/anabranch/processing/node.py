"""A processing node: one process with one Spark application, which runs replicas of many stages
(specs of Borealis and Medusa: a node).

Theory of operation. The node's thread starts Spark, then looks after its replicas, each of which
has a thread of its own (``processing.hosting``). A replica that ends - its function failed, it was
fenced, its disk is full - is started again after a while, and the others go on. The node ends where
Spark's Java does, and takes all along; whoever started it starts it again, and each replica goes on
from its own checkpoint.

Which replicas it looks after, the pipeline file and the log of moves say
(``protocol.control.placement``): one that comes is started beside the others, in the same Spark;
one that leaves goes on here until it runs where its place is now.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anabranch.ports import Disks
from anabranch.processing.engine_ends import EngineEnds
from anabranch.processing.hosting import FAILED, HostedReplica
from anabranch.processing.making_way import make_way, stages_elsewhere
from anabranch.protocol.control.placement import AfterEnd, Places, after_end, goes_on
from anabranch.protocol.errors import (
    AnabranchError,
    ConfigurationError,
    DataMissing,
    EngineEnded,
    Unavailable,
)
from anabranch.runtime.metrics import Registry, ServiceMetrics
from anabranch.runtime.placement import PlacementReader, runs_on
from anabranch.runtime.service import OtherCluster, ServiceStatus, StartEngine, no_other_cluster

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client import CollectorRegistry

    from anabranch.ports import Engine, Event, LogAdmin, StartingEngine
    from anabranch.processing.stage_replica import StageReplica
    from anabranch.runtime.service import ServiceContext
    from anabranch.runtime.settings import ServiceSettings

NODE_WAITS_MS: Final = 60_000
"""For a broker that starts beside it, and for whoever makes the topics; then a node says what
is missing and ends, since a mistyped name stays missing.
"""

PLACEMENT_LOOK_MS: Final = 500
"""Between two looks of a node at the log of moves."""

_ROUND_S: Final = 0.1
_STOP_S: Final = 7.0
"""Of the time for an orderly end; the rest is Spark's own."""
_WORST_FIRST: Final = (FAILED, "restarting", "starting", "running", "waiting", "standby")


def state_of(states: Iterable[str]) -> str:
    """What a node is in whose replicas are in ``states``: the first of these that one of them
    is in. Without any it waits for one.
    """
    there = set(states) or {"waiting"}
    return next((state for state in _WORST_FIRST if state in there), "stopping")


def _lacks(admin: LogAdmin, wanted: set[str]) -> ConfigurationError | Unavailable | None:
    """What keeps a node that needs the topics ``wanted``; None: nothing."""
    try:
        missing = wanted - set(admin.partitions(sorted(wanted)))
    except Unavailable as error:
        return error
    if not missing:
        return None
    names = ", ".join(sorted(missing))
    return ConfigurationError(f"there are no topics {names}; make them: anabranch topics --create")


def _end_without(starting: StartingEngine, lacks: AnabranchError) -> None:
    """Raises what is wrong with an engine that has not started, and what else the node lacks."""
    try:
        starting.wait()
    except (ConfigurationError, Unavailable) as error:
        raise type(error)(f"{error}; besides, {lacks}") from error


@dataclass(frozen=True, slots=True)
class Machinery:
    """What a node runs its replicas with."""

    start_engine: StartEngine
    open_disks: Callable[[Path, str, str | None, Callable[[str], None]], Disks]
    """(folder, pipeline, store of checkpoints or None, crash points) -> its processes' disks."""
    other_cluster: OtherCluster = no_other_cluster
    """Opens the clusters that the pipeline file names."""


class Node:
    """The service of one node."""

    def __init__(
        self,
        settings: ServiceSettings,
        context: ServiceContext,
        machinery: Machinery,
    ) -> None:
        """Nothing is started yet.

        Raises:
            ConfigurationError: the pipeline has no such node.
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
        self._kept: set[str] = set()
        """They run here, and have their place elsewhere."""
        self._leaving: set[str] = set()
        """They must stop."""
        self.status = ServiceStatus(detail={"stages": []})

    def start(self) -> None:
        """Start Spark, and meanwhile find out what is to run; the replicas then start side by side.

        Raises:
            ConfigurationError: the state directory is of another version, or the store of
                checkpoints has no such address.
        """
        pipeline, context = self._context.pipeline, self._context
        places, names = pipeline.places(), pipeline.topic_names
        may_come = places.may_come(self._node)
        self._make_way(places)
        starting = self._machinery.start_engine(context, self._node, may_come)
        # all that these need is imported while Java starts
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
                with contextlib.suppress(
                    DataMissing, ConfigurationError
                ):  # of a log that is of no use to who has its place, either
                    self._kept |= {label} if self._goes_on(label, places) else set()
            replicas = [*places.of_node(self._node), *self._kept]
            context.logger.info("placed", node=self._node, replicas=replicas)
            stages = {label.rpartition(".")[0] for label in replicas}
            self._await_topics(
                {
                    names.boundaries(stream)
                    for stage in stages
                    for stream in (stage, *pipeline.inputs(stage))
                    if stream not in pipeline.bindings  # waited for by who reads it
                },
                starting,
            )
            self._engine = starting.wait()
        self.step()

    def _make_way(self, places: Places) -> None:
        """Where it was started again: before Spark takes the processors, let those go first on
        whom results wait. What is wrong with a log, its replica says.
        """
        context = self._context
        labels = places.of_node(self._node)
        stages = stages_elsewhere(context.pipeline, [label.rpartition(".")[0] for label in labels])
        if not self._settings.restarts or not stages:
            return
        with contextlib.suppress(AnabranchError):
            waited_ms = make_way(
                context.log,
                context.clock,
                context.pipeline,
                self._node,
                stages,
                context.stopping.is_set,
            )
            context.logger.info("made_way", node=self._node, ms=waited_ms)

    def _await_topics(self, wanted: set[str], starting: StartingEngine) -> bool:
        """Whether ``wanted`` are there; False: it must stop. The node may be started before
        the broker, or before the topics are made. It says at once what it waits for, and ends with
        the engine that does not start meanwhile.
        """
        context = self._context
        deadline_ms = context.clock.monotonic_ms() + NODE_WAITS_MS
        admin = context.log.admin()
        try:
            while not context.stopping.is_set():
                lacks = _lacks(admin, wanted)
                self._tell_of_topics(None if lacks is None else str(lacks))
                if lacks is None:
                    return True
                if starting.has_failed():
                    _end_without(starting, lacks)
                if context.clock.monotonic_ms() >= deadline_ms:
                    raise lacks
                context.stopping.wait(_ROUND_S)
        finally:
            admin.close()
        return False

    def _tell_of_topics(self, waiting_for: str | None) -> None:
        """Log once what the node waits for before anything starts."""
        if waiting_for is not None and waiting_for != self.status.waiting_for:
            self._context.logger.warning("node_waits", node=self._node, waiting_for=waiting_for)
        self.status.waiting_for = waiting_for

    def step(self) -> None:
        """Look after the replicas.

        Raises:
            EngineEnded: Spark's Java has ended. From the second time on the text names who ran each
                time.
        """
        if self._engine is not None:
            try:
                self._engine.check()
            except EngineEnded as error:
                raise self._ends.describe(error) from error
            self._tell_of_engine(self._engine.waiting_for)
        self._look_at_places()
        for each in list(self._hosted.values()):
            each.look()
        self._report()
        self._context.stopping.wait(_ROUND_S)

    def _tell_of_engine(self, waiting_for: str | None) -> None:
        """Log once what holds all replicas up, and once that it does no longer."""
        if waiting_for == self._engine_waits:
            return
        self._engine_waits = waiting_for
        if waiting_for is None:
            self._context.logger.info("engine_goes_on", node=self._node)
        else:
            self._context.logger.warning("engine_waits", node=self._node, waiting_for=waiting_for)

    def _look_at_places(self) -> None:
        """Start what has come; what has left goes on until it ends, or is ended where nobody
        waits for it.
        """
        placement, now_ms = self._placement, self._context.clock.monotonic_ms()
        if placement is None:
            return
        if now_ms >= self._placement_next_ms:
            self._placement_next_ms = now_ms + PLACEMENT_LOOK_MS
            placement.poll()
        places = placement.places
        placed = places.of_node(self._node)
        self._kept.difference_update(placed)
        self._leaving.difference_update(placed)
        for label, each in list(self._hosted.items()):
            if each.is_over:
                self._over(label, places)
            elif label not in placed and label not in self._kept | self._leaving:
                self._leave(label, each, places)
        for label in (*placed, *self._kept):
            if label not in self._hosted:
                make, after_end = partial(self._make, label), partial(self._after_end, label)
                self._hosted[label] = HostedReplica(
                    label,
                    make,
                    self._context.clock,
                    self._context.logger,
                    after_end,
                    self._context.threads,
                )

    def _leave(self, label: str, hosted: HostedReplica, places: Places) -> None:
        """The place of a replica is elsewhere now. Where its log cannot be read that is
        looked at again.
        """
        with contextlib.suppress(AnabranchError):
            if self._goes_on(label, places):
                self._kept.add(label)
            else:
                self._leaving.add(label)
                hosted.tell_to_stop()

    def _over(self, label: str, places: Places) -> None:
        """A replica has ended and is not started again, unless its newest epoch is of this node
        and its place is not (PC5): it began that just when it was told to stop.
        """
        with contextlib.suppress(AnabranchError):  # looked at again
            goes_on = places.node_of(label) != self._node and self._goes_on(label, places)
            (self._kept.add if goes_on else self._kept.discard)(label)
            del self._hosted[label]
            self._drop_metrics(label)

    def _goes_on(self, label: str, places: Places) -> bool:
        """Whether a replica whose place is elsewhere runs on here."""
        is_passive = self._context.pipeline.stages[label.rpartition(".")[0]].ha == "passive"
        return goes_on(
            runs_here=self._runs_on(label) == self._node,
            is_passive=is_passive,
            is_removed=not places.node_of(label),
        )

    def _after_end(self, label: str, is_fenced: bool) -> AfterEnd:
        """By all that stands in the logs; by what was read of moves, where they cannot be
        read: what is wrong with a log is its replica's alone.
        """
        placement, runs_on = self._placement, ""
        assert placement is not None, "started"  # noqa: S101
        with contextlib.suppress(AnabranchError):
            placement.read_to_end()
            runs_on = self._runs_on(label)
        return after_end(
            has_place=placement.places.node_of(label) == self._node,
            is_fenced=is_fenced,
            runs_on=runs_on,
            node=self._node,
        )

    def _runs_on(self, label: str) -> str:
        """The node on which the newest epoch of the replica began; empty: on none."""
        pipeline, (stage, _, process) = self._context.pipeline, label.rpartition(".")
        return runs_on(self._context.log, pipeline, stage, process)

    def stop(self) -> None:
        """Let the batches that run end, then end Spark. Idempotent."""
        for each in self._hosted.values():
            each.tell_to_stop()
        deadline_ms = self._context.clock.monotonic_ms() + int(_STOP_S * 1_000)
        for each in self._hosted.values():
            if not each.join(max(0, deadline_ms - self._context.clock.monotonic_ms()) / 1_000):
                self._context.logger.warning("stopped_within_a_batch", replica=each.label)
        if self._placement is not None:
            self._placement.close()
            self._placement = None
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def _make(self, label: str, stopping: Event, restarts: int) -> StageReplica:
        """A replica to run; its metrics take the place of those of the one before."""
        context = self._context
        placement = self._placement
        assert placement is not None, "started"  # noqa: S101
        self._drop_metrics(label)
        assert isinstance(context.registry, Registry), "as runtime.service makes it"  # noqa: S101
        registry = self._registries[label] = context.registry.part()
        metrics = ServiceMetrics(
            registry,
            pipeline=context.pipeline.name,
            service="processing",
            name=label,
            restarts=restarts,
        )
        made = self._build(
            replace(
                context,
                settings=self._settings.model_copy(update={"name": label}),
                stopping=stopping,
                registry=registry,
                metrics=metrics,
                logger=context.logger.bind(replica=label),
            ),
            may_run_elsewhere=restarts > 0 or placement.places.was_moved(label),
            has_place=placement.places.node_of(label) == self._node,
        )
        metrics.follow(lambda: made.status.last_bucket_ms, lambda: made.status.lag_ms)
        return made

    def _build(
        self, context: ServiceContext, *, may_run_elsewhere: bool, has_place: bool
    ) -> StageReplica:
        """Build the replica that ``context`` is of, in this node's engine."""
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
        registry = self._registries.pop(label, None)
        if registry is not None:
            assert isinstance(self._context.registry, Registry), "as runtime.service makes it"  # noqa: S101
            self._context.registry.drop(registry)

    def _report(self) -> None:
        """What the node says: of its replicas the one that is furthest behind, and what each
        says of itself.
        """
        hosted = list(self._hosted.values())
        shown = [each.shown() for each in hosted]
        self.status.detail["stages"] = shown
        self.status.state = state_of(each.state for each in hosted)
        statuses = [each.status for each in hosted]
        buckets = [
            status.last_bucket_ms for status in statuses if status.last_bucket_ms is not None
        ]
        lags = [status.lag_ms for status in statuses if status.lag_ms is not None]
        self.status.last_bucket_ms, self.status.lag_ms = (
            min(buckets, default=None),
            max(lags, default=None),
        )
        self.status.error = next(
            (f"{each.label}: {each.error}" for each in hosted if each.error), None
        )
        waits = [
            f"{each.label}: {each.status.waiting_for}" for each in hosted if each.status.waiting_for
        ]
        waits[:0] = [self._engine_waits] if self._engine_waits else []
        self.status.waiting_for = "; ".join(waits) or None
