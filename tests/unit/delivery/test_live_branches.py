"""The live half of the delivery service where a stage has two replicas, each with its branch."""

from __future__ import annotations

import pytest

from anabranch.delivery.service import DeliveryService
from anabranch.pipeline.waits import waits
from anabranch.protocol.edge.live_choice import LIVE_HOLD_MS
from anabranch.protocol.limits import FAILURE_AFTER_MS
from harness import outputs
from harness.live_world import World, settle
from harness.outputs import rows


def one_of_two_corrects(world: World, service: DeliveryService) -> None:
    """Both show bucket 4 without an input; the first corrects it, and ends its branch."""
    for replica in world.replicas:
        replica.show(4, {4: rows(4, 1)})
    settle(service)
    first, _ = world.replicas
    first.close_buckets(4, {4: rows(4, 2)})
    first.end_branch()


@pytest.mark.parametrize("restarts", [False, True])
def test_a_failure_lasts_until_the_log_says_that_every_branch_has_ended(*, restarts: bool) -> None:
    """Whoever follows it begins to read when; what replicas say of themselves decides nothing."""
    world = World(replicas=2)
    first, second = world.replicas
    service = world.service()
    one_of_two_corrects(world, service)
    world.says("0", "stable")
    world.says("1", "stabilization")
    settle(service)
    begun = ["tentative 4, boundary 0/4", "undo, insertion 4 x2, boundary 4/4"]
    assert world.transcript() == begun, "the other one has still to correct"
    if restarts:
        service.stop()
        service = world.service()
        settle(service)
        assert world.transcript() == begun
    second.show(5, {5: rows(5, 1)})
    world.says("1", "stable")
    settle(service)
    first.close_buckets(5, {5: rows(5, 2)})
    settle(service)
    assert world.transcript()[2:] == [
        "tentative 5, boundary 4/5",
        "insertion 5 x2, boundary 5/5",
    ], "still the same failure: no undo"
    second.end_branch()
    settle(service)
    assert world.transcript()[4:] == ["rec_done, boundary 5"]


def test_a_replica_that_counts_as_dead_holds_no_failure_open() -> None:
    world = World(replicas=2)
    service = world.service()
    one_of_two_corrects(world, service)
    world.says("1", "stabilization")
    settle(service)
    assert world.transcript()[-1] == "undo, insertion 4 x2, boundary 4/4"
    world.clock.advance(FAILURE_AFTER_MS // 2)
    settle(service)
    assert len(world.transcript()) == 2
    world.clock.advance(FAILURE_AFTER_MS // 2)
    settle(service)
    assert world.transcript()[2:] == ["rec_done, boundary 4"]


def test_a_tentative_bucket_is_held_while_a_peer_is_stable() -> None:
    world = World(replicas=2)
    first, second = world.replicas
    service = world.service()
    world.says("0", "up_failure")
    world.says("1", "stable")
    first.show(1, {1: rows(1, 2)})
    service.step()
    assert service._live is not None
    assert service._live.wait_ms == LIVE_HOLD_MS
    second.close_buckets(1, {1: rows(1, 3)})
    settle(service)
    assert world.transcript() == ["insertion 1 x3, boundary 1"]
    first.show(2, {2: rows(2, 2)})
    world.says("1", "stable")
    settle(service)
    assert world.transcript()[1:] == ["tentative 2 x2, boundary 1/2"]


def test_a_branch_that_begins_when_its_failure_is_over_begins_no_other_one() -> None:
    world = World(replicas=2, max_delay_ms=3_000)
    first, second = world.replicas
    service = world.service()
    assert service._live is not None
    second.show(1, {1: rows(1, 2)})
    settle(service)
    second.close_buckets(1, {1: rows(1, 3)})
    second.end_branch()
    settle(service)
    assert world.transcript() == [
        "tentative 1 x2, boundary 0/1",
        "undo, insertion 1 x3, rec_done, boundary 1",
    ]
    world.says("0", "up_failure")
    world.says("1", "stable")
    first.show(1, {1: rows(1, 2)})
    first.show(2, {2: rows(2, 2)})
    service.step()
    wait = waits(world.pipeline, outputs.STAGE)
    assert service._live.wait_ms == wait.first_ms - wait.next_ms
    assert service._live.wait_ms > LIVE_HOLD_MS
    second.close_buckets(2, {2: rows(2, 3)})
    settle(service)
    assert world.transcript()[2:] == ["insertion 2 x3, boundary 2"]


def test_a_peer_that_fell_silent_holds_nothing() -> None:
    world = World(replicas=2)
    first, _ = world.replicas
    service = world.service()
    world.says("1", "stable")
    service.step()
    settle(service, 30)  # 3 s: nobody is heard
    world.says("0", "up_failure")
    first.show(1, {1: rows(1, 2)})
    service.step()
    assert service._live is not None
    assert service._live.wait_ms is None
    assert world.transcript() == ["tentative 1 x2, boundary 0/1"]
