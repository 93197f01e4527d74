"""Tests of a node without a replica, on an engine whose queries ask as Spark's do."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
import structlog
from prometheus_client import CollectorRegistry

from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.codec.blocks import EVENT_TIME
from anabranch.pipeline.model import Pipeline
from anabranch.ports import Engine
from anabranch.process.frame import ServiceContext
from anabranch.process.metrics import ServiceMetrics
from anabranch.process.settings import ServiceSettings
from anabranch.processing.idle_node import IdleNode, rehearsed
from anabranch.processing.warming import KEEP_WARM_EVERY_MS, WARM_UP_BATCHES
from anabranch.protocol.errors import StageFunctionError
from harness.asking_query import AskingStage
from harness.pipeline_files import loaded
from harness.waiting import wait_until

DEADLINE_S = 20
FILE = """
pipeline: p
sources:
  cars: {topics: [cars], record: car.avsc, event_time: {field: n}}
stages:
  first: {reads: cars, sql: q}
  second: {reads: first, sql: q}
  third: {reads: [cars, first], sql: q}
  other: {reads: cars, sql: r}
  again: {reads: cars, sql: q, replicas: 2}
outputs:
  o: {stage: third, corrected: {topic: o}}
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return loaded(tmp_path, FILE)


class Asked:
    """Engine that notes what it prepares."""

    def __init__(self) -> None:
        self.prepared: list[tuple[str, str, list[str]]] = []
        self.stages: list[AskingStage] = []

    def prepare(self, label: str, stage: str, schemas: Mapping[str, pa.Schema]) -> AskingStage:
        """Return a stage with one query."""
        columns = [f"{name}: {', '.join(schema.names)}" for name, schema in schemas.items()]
        self.prepared.append((label, stage, columns))
        self.stages.append(AskingStage())
        return self.stages[-1]


def idle_node(
    pipeline: Pipeline, engine: Asked, stages: list[str], clock: VirtualClock
) -> IdleNode:
    settings = ServiceSettings(
        pipeline=pipeline.path, name="local.1", kafka="k:1", state_dir=pipeline.path.parent
    )
    context = ServiceContext(
        LocalEventLog(clock),
        None,
        clock,
        SeededEntropy(1),
        registry := CollectorRegistry(),
        ServiceMetrics(registry, pipeline="p", service="processing", name="n", restarts=0),
        settings,
        pipeline,
        structlog.get_logger(),
        threading.Event(),
    )
    return IdleNode(context, cast("Engine", engine), stages)


def test_each_function_whose_inputs_the_file_describes_is_run_once(pipeline: Pipeline) -> None:
    assert rehearsed(pipeline, pipeline.stages) == ["first", "other"]
    assert rehearsed(pipeline, ["second", "again"]) == ["again"]
    assert rehearsed(pipeline, []) == []


def test_all_are_run_and_the_last_one_stays_warm_until_the_end(pipeline: Pipeline) -> None:
    engine, clock = Asked(), VirtualClock()
    idle = idle_node(pipeline, engine, ["first", "other"], clock)
    idle.start()
    assert idle.status.state == "waiting"
    columns = [f"cars: n, {EVENT_TIME}"]
    assert engine.prepared == [("first.idle", "first", columns), ("other.idle", "other", columns)]
    first, other = engine.stages
    wait_until(lambda: other.batches == WARM_UP_BATCHES, DEADLINE_S, "the last one is counted")
    assert not first.is_alive()
    clock.advance(KEEP_WARM_EVERY_MS)
    idle.step()
    wait_until(lambda: other.batches == WARM_UP_BATCHES + 1, DEADLINE_S, "one more")
    idle.stop()
    idle.stop()
    assert not other.is_alive()


def test_a_function_that_fails_is_told(pipeline: Pipeline) -> None:
    engine, clock = Asked(), VirtualClock()
    idle = idle_node(pipeline, engine, ["first"], clock)
    idle.start()
    engine.stages[0].fails = True
    clock.advance(KEEP_WARM_EVERY_MS)
    with pytest.raises(StageFunctionError):
        idle.step()
    idle.stop()
    assert not engine.stages[0].is_alive()


def test_a_node_that_is_told_to_stop_begins_no_query(pipeline: Pipeline) -> None:
    engine = Asked()
    idle = idle_node(pipeline, engine, ["first"], VirtualClock())
    idle._context.stopping.set()
    idle.start()
    idle.stop()
    assert not engine.prepared
