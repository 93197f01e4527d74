"""Load of a node, and the limits of its stages."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from anabranch.adapters.memory.clock import VirtualClock
from anabranch.pipeline.model import Pipeline
from anabranch.pipeline.waits import losses, may_shed
from anabranch.processing.node_load import NodeLoad
from anabranch.protocol.stage.kept_rows import KEPT_ALL
from anabranch.protocol.stage.load_control import LoadDemand
from anabranch.protocol.stage.shed_choice import CHOOSE_EVERY_MS
from harness.pipeline_files import loaded


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """``first`` is read by ``second``; ``whole`` leaves out nothing; ``unseen`` is not live."""
    return loaded(
        tmp_path,
        "pipeline: p\nsources:\n"
        "  cars: {topics: [cars], record: car.avsc, event_time: {field: n}}\n"
        "stages:\n"
        "  first: {reads: cars, sql: q, shed: rows}\n"
        "  second: {reads: first, sql: q, shed: rows}\n"
        "  whole: {reads: cars, sql: q}\n"
        "  unseen: {reads: cars, sql: q, shed: rows}\n"
        "outputs:\n"
        "  a: {stage: first, corrected: {topic: a}, live: {topic: al}}\n"
        "  b:\n    stage: second\n    corrected: {topic: b}\n    live: {topic: bl}\n"
        "    qos: {loss: {0%: 1, 50%: 0.8, 100%: 0}}\n"
        "  c: {stage: whole, corrected: {topic: c}, live: {topic: cl}}\n"
        "  d: {stage: unseen, corrected: {topic: d}}\n",
    )


@dataclass
class Part:
    """Replica of a stage, as the node sees it."""

    needs: LoadDemand | None
    limits: list[int | None] = field(default_factory=list)

    def demand(self) -> LoadDemand | None:
        return self.needs

    def limit(self, kept: int | None) -> None:
        self.limits.append(kept)


def test_a_stage_serves_the_outputs_that_show_its_results(pipeline: Pipeline) -> None:
    found = {
        stage: [(curve.value(500), set(along)) for curve, along in losses(pipeline, stage)]
        for stage in pipeline.stages
    }
    assert found == {
        "first": [(500, set()), (800, {"second"})],
        "second": [(800, {"first"})],
        "whole": [(500, set())],
        "unseen": [],
    }
    assert [stage for stage in pipeline.stages if may_shed(pipeline, stage)] == ["first", "second"]


def test_readers_of_a_published_stream_count_as_an_output(tmp_path: Path) -> None:
    published = loaded(
        tmp_path,
        "pipeline: p\nsources:\n"
        "  cars: {topics: [cars], record: car.avsc, event_time: {field: n}}\n"
        "stages:\n  first: {reads: cars, sql: q, shed: rows}\npublish: {first: {}}\n",
    )
    assert [(curve.value(300), along) for curve, along in losses(published, "first")] == [
        (700, frozenset())
    ]


def test_the_stage_that_costs_less_utility_is_limited(pipeline: Pipeline) -> None:
    node = NodeLoad(pipeline, VirtualClock(), 1)
    stages = {
        "first": Part(LoadDemand(800_000, is_late=True)),
        "second": Part(LoadDemand(700_000, is_late=False)),
        "whole": Part(LoadDemand(10, is_late=True)),
        "unseen": Part(None),
    }
    node.decide(stages)
    node.decide(stages)  # too soon for another decision
    assert {name: stage.limits for name, stage in stages.items()} == {
        "first": [850],
        "second": [300],  # what it leaves out makes rows of the first worth less at one output only
        "whole": [KEPT_ALL],
        "unseen": [KEPT_ALL],
    }
    assert node.table == [
        {
            "stage": "first",
            "limit_permille": 850,
            "processor_us_per_s": 800_000,
            "step_utility_lost_permille": 74,
            "step_processor_saved_us_per_s": 40_000,
        },
        {
            "stage": "second",
            "limit_permille": 300,
            "processor_us_per_s": 700_000,
            "step_utility_lost_permille": 69,
            "step_processor_saved_us_per_s": 35_000,
        },
    ]


def test_without_limits_nothing_is_limited(pipeline: Pipeline) -> None:
    node, stage = NodeLoad(pipeline, VirtualClock(), 1), Part(LoadDemand(0, is_late=False))
    node.decide({"first": stage})
    assert stage.limits == [None]
    assert node.table[0]["step_processor_saved_us_per_s"] == 0


def test_what_stages_that_leave_out_nothing_take_is_not_there(pipeline: Pipeline) -> None:
    clock = VirtualClock()
    node = NodeLoad(pipeline, clock, 1)
    stages = {
        "first": Part(LoadDemand(400_000, is_late=True)),
        "second": Part(LoadDemand(400_000, is_late=False)),
    }
    node.decide(stages)
    node.began("whole", "q")
    clock.advance(CHOOSE_EVERY_MS // 2)
    assert node.ended("whole", "q") == CHOOSE_EVERY_MS // 2
    node.began("first", "q")
    clock.advance(CHOOSE_EVERY_MS // 2)
    node.dropped("first")
    node.decide(stages)
    assert stages["second"].limits == [None, 200]


@pytest.mark.parametrize(("inputs_shed", "lost"), [(0, 20), (500, 40)])
def test_rows_that_other_nodes_left_out_before_count(
    pipeline: Pipeline, inputs_shed: int, lost: int
) -> None:
    """The loss of ``second`` costs more the more its results lack already."""
    node = NodeLoad(pipeline, VirtualClock(), 1)
    node.decide({"second": Part(LoadDemand(700_000, is_late=True, inputs_shed=inputs_shed))})
    assert [row["step_utility_lost_permille"] for row in node.table] == [lost]


def test_rows_that_a_stage_of_the_same_node_left_out_count_once(pipeline: Pipeline) -> None:
    """They are part of the same choice: its stages must not take turns."""
    clock = VirtualClock()
    node = NodeLoad(pipeline, clock, 1)
    limits = []
    for inputs_shed in (0, 350, 900):
        stages = {
            "first": Part(LoadDemand(800_000, is_late=True)),
            "second": Part(LoadDemand(700_000, is_late=False, inputs_shed=inputs_shed)),
        }
        node.decide(stages)
        clock.sleep_ms(CHOOSE_EVERY_MS)
        limits.append([stage.limits for stage in stages.values()])
    assert limits[0] == limits[1] == limits[2]
