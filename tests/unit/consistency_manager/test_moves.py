"""The manager raises an alarm for a split whose halves made something else, once, and trims no less
for halves that never ran.
"""

from __future__ import annotations

from prometheus_client import generate_latest

from anabranch.codec.catalog import topic_settings
from anabranch.consistency_manager.service import ConsistencyManager
from anabranch.pipeline.model import Pipeline
from anabranch.ports import TopicPartition
from anabranch.protocol.control.records import SplitStep, Step
from anabranch.streams.placement import append_decision
from harness.control_topics import alarms
from harness.manager_world import ManagerWorld
from harness.outputs import STAGE

HALVES = f"{STAGE}.0", f"{STAGE}.1"


class World(ManagerWorld):
    """A stage that may be split."""

    def __init__(self) -> None:
        super().__init__()
        self.plain = self.pipeline
        stages = dict(self.plain.stages)
        for half in HALVES:
            stages[half] = stages[STAGE].model_copy(update={"name": half, "parent": STAGE})
        self.pipeline = self.plain.model_copy(
            update={"stages": stages, "stage_shards": {STAGE: [STAGE, *HALVES]}}
        )
        self.create(self.pipeline)

    def create(self, pipeline: Pipeline) -> None:
        names = pipeline.topic_names
        found = [topic_settings("placement", names.placement())]
        for half in HALVES:
            found.append(topic_settings("boundaries", names.boundaries(half)))
            for replica in pipeline.stages[half].replica_ids():
                found.append(topic_settings("blocks", names.blocks(half, replica), 2))
                found.append(
                    topic_settings("control", names.control("processing", f"{half}.{replica}"))
                )
        assert not self.log.admin().create(found)

    def append(self, step: SplitStep) -> None:
        at = TopicPartition(self.pipeline.topic_names.placement(), 0)
        append_decision(self.log, at, step, "step")


def told(world: World, manager: ConsistencyManager) -> list[tuple[str, str, int]]:
    manager.step()
    found = alarms(world.log, world.pipeline)
    return [(each.kind, each.stream, each.bucket) for each in found]


def test_a_split_that_differs_raises_one_alarm() -> None:
    world = World()
    manager = world.manager()
    world.append(SplitStep(STAGE, Step.WANTED, 1))
    world.append(SplitStep(STAGE, Step.WITHDRAWN, 2, 1, "the halves got no further"))
    assert told(world, manager) == []
    world.append(SplitStep(STAGE, Step.WANTED, 3))
    world.append(SplitStep(STAGE, Step.WITHDRAWN, 4, 3, "bucket 7 is another", 7))
    assert told(world, manager) == [("split_differs", STAGE, 7)]
    shown = generate_latest(manager._context.registry).decode()
    assert 'anabranch_split_steps_total{pipeline="p",step="withdrawn"} 2.0' in shown
    manager.stop()
    again = world.manager()
    assert told(world, again) == [("split_differs", STAGE, 7)], "not twice"
    again.stop()


def test_halves_that_do_not_run_do_not_count_for_what_the_pipeline_has_reached() -> None:
    world = World()
    manager = world.manager()
    manager.step()
    assert manager.status.last_bucket_ms in (None, 0)
    world.replicas[0].close_buckets(9, {})
    manager.step()
    assert manager.status.last_bucket_ms == 9 * world.pipeline.bucket_ms
    manager.stop()
