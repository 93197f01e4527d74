"""A processing node: one process with one Spark application, which runs replicas of many stages (specs of Borealis and Medusa: a node).

Theory of operation. The node's thread starts Spark, then looks after its replicas, each of which has a thread of its own (``processing.hosting``).
A replica that ends - its function failed, it was fenced, its disk is full - is started again after a while, and the others go on. The node ends
where Spark's Java does, and takes all along; whoever started it starts it again, and each replica goes on from its own checkpoint.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anabranch.adapters.spark.engine import SparkEngine
from anabranch.adapters.spark.settings import SparkSettings
from anabranch.processing.hosting import FAILED, HostedReplica
from anabranch.processing.stage_replica import StageReplica
from anabranch.protocol.errors import ConfigurationError, Unavailable
from anabranch.protocol.limits import NODE_WAITS_MS
from anabranch.runtime.metrics import Registry, ServiceMetrics
from anabranch.runtime.service import ServiceStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client import CollectorRegistry

    from anabranch.ports import Engine
    from anabranch.runtime.service import ServiceContext
    from anabranch.runtime.settings import ServiceSettings

_ROUND_S: Final = 0.1
_STOP_S: Final = 7.0
"""Of the time for an orderly end; the rest is Spark's own."""
_WORST_FIRST: Final = (FAILED, "restarting", "starting", "running", "waiting", "standby")


def state_of(states: Iterable[str]) -> str:
    """What a node is in whose replicas are in ``states``: the first of these that one of them is in."""
    there = set(states)
    return next((state for state in _WORST_FIRST if state in there), "stopping")


class Node:
    """The service of one node."""

    def __init__(self, settings: ServiceSettings, context: ServiceContext) -> None:
        """Nothing is started yet.

        Raises:
            ConfigurationError: the pipeline has no such node.
        """
        nodes = context.pipeline.nodes()
        if settings.name not in nodes:
            raise ConfigurationError(f"--name {settings.name}: pipeline {context.pipeline.name} has the nodes {', '.join(nodes)}")
        self._settings, self._context = settings, context
        self._engine: Engine | None = None
        self._registries: dict[str, CollectorRegistry] = {}
        self._hosted = [HostedReplica(label, partial(self._make, label), context.clock, context.logger) for label in nodes[settings.name]]
        self.status = ServiceStatus(detail={"stages": []})

    def start(self) -> None:
        """Start Spark; the replicas then start side by side."""
        pipeline, context = self._context.pipeline, self._context
        stages = {each.label.rpartition(".")[0] for each in self._hosted}
        scratch = Path(self._settings.state_dir) / "scratch" / self._settings.name
        self._engine = SparkEngine(f"{pipeline.name}.{self._settings.name}", context, stages, SparkSettings(), scratch)
        context.logger.info("spark_started", node=self._settings.name, replicas=[each.label for each in self._hosted])
        self._await_topics(stages)
        self.step()

    def _await_topics(self, stages: Iterable[str]) -> None:
        """The node may be started before the broker, or before the topics are made: its replicas start when the boundary logs are there."""
        context, names = self._context, self._context.pipeline.topic_names
        wanted = {names.boundaries(stream) for stage in stages for stream in (stage, *context.pipeline.stages[stage].reads)}
        deadline_ms, missing = context.clock.monotonic_ms() + NODE_WAITS_MS, wanted
        admin = context.log.admin()
        try:
            while missing and not context.stopping.is_set():
                try:
                    missing = wanted - set(admin.partitions(sorted(wanted)))
                except Unavailable as error:
                    if context.clock.monotonic_ms() >= deadline_ms:
                        raise
                    self.status.waiting_for = str(error)
                if missing and context.clock.monotonic_ms() >= deadline_ms:
                    raise ConfigurationError(f"there are no topics {', '.join(sorted(missing))}; make them: anabranch topics --create")
                if missing:
                    context.stopping.wait(_ROUND_S)
        finally:
            admin.close()
        self.status.waiting_for = None

    def step(self) -> None:
        """Look after the replicas.

        Raises:
            AnabranchError: the engine has ended: Spark's Java.
        """
        if self._engine is not None:
            self._engine.check()
        for each in self._hosted:
            each.look()
        self._report()
        self._context.stopping.wait(_ROUND_S)

    def stop(self) -> None:
        """Let the batches that run end, then end Spark. Idempotent."""
        for each in self._hosted:
            each.tell_to_stop()
        deadline_ms = self._context.clock.monotonic_ms() + int(_STOP_S * 1_000)
        for each in self._hosted:
            if not each.join(max(0, deadline_ms - self._context.clock.monotonic_ms()) / 1_000):
                self._context.logger.warning("stopped_within_a_batch", replica=each.label)
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def _make(self, label: str, stopping: threading.Event, restarts: int) -> StageReplica:
        """A replica to run; its metrics take the place of those of the one before."""
        context, engine = self._context, self._engine
        assert engine is not None, "started"  # noqa: S101
        assert isinstance(context.registry, Registry), "as runtime.service makes it"  # noqa: S101
        if label in self._registries:
            context.registry.drop(self._registries[label])
        registry = self._registries[label] = context.registry.part()
        metrics = ServiceMetrics(registry, pipeline=context.pipeline.name, service="processing", name=label, restarts=restarts)
        made = StageReplica(
            replace(
                context,
                settings=self._settings.model_copy(update={"name": label}),
                stopping=stopping,
                registry=registry,
                metrics=metrics,
                logger=context.logger.bind(replica=label),
            ),
            engine,
        )
        metrics.follow(lambda: made.status.last_bucket_ms, lambda: made.status.lag_ms)
        return made

    def _report(self) -> None:
        """What the node says: of its replicas the one that is furthest behind, and what each says of itself."""
        shown = [each.shown() for each in self._hosted]
        self.status.detail["stages"] = shown
        self.status.state = state_of(each.state for each in self._hosted)
        statuses = [each.status for each in self._hosted]
        buckets = [status.last_bucket_ms for status in statuses if status.last_bucket_ms is not None]
        lags = [status.lag_ms for status in statuses if status.lag_ms is not None]
        self.status.last_bucket_ms, self.status.lag_ms = min(buckets, default=None), max(lags, default=None)
        self.status.error = next((f"{each.label}: {each.error}" for each in self._hosted if each.error), None)
        waits = [f"{each.label}: {each.status.waiting_for}" for each in self._hosted if each.status.waiting_for]
        self.status.waiting_for = "; ".join(waits) or None
