"""The live half of the delivery service where the output is more patient than its stage."""

from __future__ import annotations

import pytest

from anabranch.delivery.service import DeliveryService
from anabranch.pipeline.waits import output_wait_ms, waits
from anabranch.streams.boundary_reader import BoundaryReader
from harness import outputs
from harness.live_world import World, settle
from harness.outputs import rows


def world_of(own_max_delay_ms: int | None) -> World:
    """Return a world of one output, of a pipeline with 1.5 s; a strict one, which is not
    delivered here, makes the stage hurry.
    """
    world = World(max_delay_ms=1_500, own_max_delay_ms=own_max_delay_ms)
    out = world.pipeline.outputs["out"]
    strict = out.model_copy(update={"name": "strict", "max_delay_ms": None})
    many = {"out": out, "strict": strict}
    world.pipeline = world.pipeline.model_copy(update={"outputs": many})
    return world


def patience_ms(world: World) -> int:
    """Return the time by which the output waits longer than its stage, in ms."""
    return output_wait_ms(world.pipeline, "out") - waits(world.pipeline, outputs.STAGE).first_ms


def begun(world: World) -> DeliveryService:
    service = world.service()
    settle(service)
    return service


def test_a_failure_that_ends_before_the_own_bound_leaves_no_trace() -> None:
    world = world_of(10_000)
    service = begun(world)
    world.replica.show(3, {1: rows(1, 1), 3: rows(3, 1)})
    settle(service)
    assert world.transcript() == []
    assert service._live is not None
    assert service._live.wait_ms is not None
    world.clock.advance(5_000)
    settle(service)
    world.replica.close_buckets(3, {1: rows(1, 2), 3: rows(3, 2)})
    world.replica.end_branch()
    settle(service)
    assert world.transcript() == ["insertion 1 x2, insertion 3 x2, boundary 3"]


def test_one_that_lasts_longer_is_shown_at_the_own_bound() -> None:
    world = world_of(10_000)
    service = begun(world)
    world.replica.show(1, {1: rows(1, 1)})
    settle(service, 2)
    world.clock.advance(patience_ms(world) - 1_000)
    world.says("0", "up_failure")
    settle(service, 1)
    assert world.transcript() == []
    world.clock.advance(1_000)
    settle(service, 2)
    assert world.transcript() == ["tentative 1, boundary 0/1"]
    world.replica.show(2, {2: rows(2, 1)})
    settle(service)
    assert world.transcript()[1:] == ["tentative 2, boundary 0/2"], "the failure is shown"


def test_an_output_as_strict_as_its_stage_waits_no_longer() -> None:
    world = world_of(None)
    service = begun(world)
    world.replica.show(1, {1: rows(1, 1)})
    settle(service, 1)
    assert world.transcript() == ["tentative 1, boundary 0/1"]


def test_ld8_after_a_pause_it_reads_before_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client of a process that wakes has fetched nothing yet."""
    world = world_of(10_000)
    service = begun(world)
    world.replica.show(1, {1: rows(1, 1)})
    settle(service, 1)
    poll = BoundaryReader.poll
    monkeypatch.setattr(
        BoundaryReader, "poll", lambda self, wait_ms: poll(self, wait_ms) if wait_ms else 0
    )
    world.replica.close_buckets(1, {1: rows(1, 2)})
    world.replica.end_branch()
    world.clock.advance(patience_ms(world) + 1_000)
    settle(service, 2)
    assert world.transcript() == ["insertion 1 x2, boundary 1"]
