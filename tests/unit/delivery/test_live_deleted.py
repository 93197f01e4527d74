"""Blocks are deleted that the live topic has not read, or neither topic of an output."""

from __future__ import annotations

import pytest

from anabranch.adapters.memory.log import FailingOperation
from anabranch.ports import TopicPartition
from anabranch.protocol.control.records import Ask
from anabranch.protocol.errors import Unavailable
from harness import outputs
from harness.control_topics import all_control_records
from harness.live_world import World, settle
from harness.outputs import delivered, drain, rows


@pytest.mark.parametrize("restart", [False, True])
def test_a_new_output_begins_after_what_is_deleted(restart: bool) -> None:
    """Both topics of it; also where more is deleted before the live one has written anything."""
    world = World(partitions=2)
    world.replica.close_buckets(4, {n: rows(n, 2) for n in (1, 2, 3, 4)})
    blocks = [TopicPartition("p.totals.blocks.0", n) for n in (0, 1)]
    world.log.trim(blocks[0], 2)
    if restart:
        first = outputs.service(world.log, world.pipeline, world.clock, world.entropy)
        first.start()
        first.stop()
        world.log.trim(blocks[1], 3)
    service = world.service()
    drain(service, 4)
    settle(service)
    left = (4,) if restart else (3, 4)
    assert {ident.bucket for _, ident, _, _ in delivered(world.log, world.pipeline)} == set(left)
    view = outputs.live_view(world.log, world.pipeline)
    assert {record.id.bucket for record in view.stable() if record.id is not None} == set(left)
    assert service.status.detail["left_out_ms"] == 100 * (left[0] - 1)


def delete_blocks(world: World) -> None:
    at = TopicPartition("p.totals.blocks.0", 0)
    world.log.trim(at, world.log.reader().offsets(at)[1])


@pytest.mark.parametrize("restart", [False, True])
def test_what_is_deleted_when_the_live_topic_alone_has_something_is_waited_for(
    restart: bool,
) -> None:
    """Nothing is left out any more: the live topic, too, lacks what comes then."""
    world = World(partitions=1)
    world.replica.close_buckets(2, {n: rows(n, 2) for n in (1, 2)})
    service = outputs.service(world.log, world.pipeline, world.clock, world.entropy)
    world.log.fail_next(
        FailingOperation.OFFSETS,
        error=Unavailable,
        topic=world.pipeline.outputs["out"].corrected.topic,
    )
    service.start()
    service.step()
    assert world.transcript() == ["insertion 1 x2, insertion 2 x2, boundary 2"]
    world.replica.close_buckets(4, {n: rows(n, 2) for n in (3, 4)})
    delete_blocks(world)
    if restart:
        service.stop()
        service = world.service()
    for _ in range(6):
        service.step()
    assert str(service.status.waiting_for).endswith("requested buckets 1..4 of totals")
    assert list(delivered(world.log, world.pipeline)) == []
    world.replica.append_recomputed({n: rows(n, 2) for n in (1, 2, 3, 4)})
    drain(service, 4)
    world.clock.sleep_ms(20_000)
    settle(service)
    assert {ident.bucket for _, ident, _, _ in delivered(world.log, world.pipeline)} == {1, 2, 3, 4}
    assert world.transcript()[1:] == ["insertion 3 x2, insertion 4 x2, boundary 4"]


def test_what_the_live_topic_alone_lacks_is_asked_for() -> None:
    world = World(partitions=1)
    service = world.service()
    world.replica.close_buckets(2, {n: rows(n, 2) for n in (1, 2)})
    drain(service, 2)
    world.replica.close_buckets(4, {n: rows(n, 2) for n in (3, 4)})
    world.log.fail_next(FailingOperation.COMMIT, error=Unavailable, applied=0)
    drain(service, 4)
    assert len(world.transcript()) == 1
    delete_blocks(world)
    world.clock.sleep_ms(20_000)
    for _ in range(3):
        service.step()
    requests = [
        entry for entry in all_control_records(world.log, world.pipeline) if isinstance(entry, Ask)
    ]
    assert [(request.bucket_first, request.bucket_last) for request in requests] == [(3, 4)]
    world.replica.close_buckets(6, {6: rows(6, 2)})
    drain(service, 6)
    for _ in range(3):
        service.step()
    assert (
        len([e for e in all_control_records(world.log, world.pipeline) if isinstance(e, Ask)]) == 1
    )
    world.replica.append_recomputed({n: rows(n, 2) for n in (3, 4)})
    world.clock.sleep_ms(20_000)
    settle(service)
    assert world.transcript()[1:] == ["insertion 3 x2, insertion 4 x2, insertion 6 x2, boundary 6"]
