"""An input on another owner's cluster: a process goes on without it while nobody answers there, and
not where it has lost its own.
"""

from __future__ import annotations

import pytest

from anabranch.protocol.control.records import ReplicaState
from anabranch.protocol.log.records import BoundaryKind
from anabranch.protocol.stage.availability import OWN
from harness.replica_bench import WAITS
from harness.replica_world import Process, World

LONG_MS = 3 * WAITS.first_ms


def running(elsewhere: str = "b") -> tuple[World, Process]:
    """All is well up to bucket 3."""
    world = World(elsewhere=elsewhere)
    process = world.start()
    process.begin()
    for name in world.names:
        world.close(name, 3, 1, 2, 3)
    process.settle()
    process.wait(300)
    assert world.log_state().upto == 3
    return world, process


def tentative(world: World) -> list[tuple[int, tuple[str, ...]]]:
    return [
        (record.closed, record.missing)
        for record in world.records()
        if record.kind is BoundaryKind.TENTATIVE
    ]


def test_a_cluster_that_does_not_answer_is_a_missing_input_and_is_corrected() -> None:
    world, process = running()
    world.cut = {"b"}
    world.close("a", 5, 4, 5)
    world.close("b", 5, 4, 5)
    process.wait(500)
    assert tentative(world) == []
    process.wait(WAITS.first_ms - 500)
    assert tentative(world) == [(5, ("b",))], "in time: it was asked before the wait was over"
    world.close("a", 6, 6)
    process.wait(WAITS.next_ms + 200)
    assert tentative(world) == [(5, ("b",)), (6, ("b",))]
    assert process.runner.state is ReplicaState.UP_FAILURE
    world.cut = set()
    world.close("b", 7, 6, 7)
    world.close("a", 7, 7)
    process.wait(LONG_MS)
    assert process.runner.branch is None
    assert world.stable_rows() == world.expected(7)


@pytest.mark.parametrize("is_cut", [True, False])
def test_where_no_input_is_on_it_the_own_cluster_is_asked(*, is_cut: bool) -> None:
    world, process = running("ab")
    world.close("a", 5, 4, 5)
    process.runner.tick()
    world.cut = {"b", OWN} if is_cut else {"b"}
    process.wait(LONG_MS)
    assert tentative(world) == ([] if is_cut else [(5, ("b",))])
    world.cut = set()
    world.close("b", 6, 4, 5, 6)
    world.close("a", 6, 6)
    process.wait(LONG_MS)
    assert world.stable_rows() == world.expected(6)


def test_a_process_that_begins_while_nobody_answers_there_goes_on_without() -> None:
    world, process = running()
    world.cut = {"b"}
    del process
    world.close("a", 5, 4, 5)
    process = world.start()
    process.begin()
    process.wait(LONG_MS)
    assert tentative(world) == [(5, ("b",))]
    world.cut = set()
    world.close("b", 5, 4, 5)
    process.wait(LONG_MS)
    assert world.stable_rows() == world.expected(5)


def test_before_it_is_known_whether_a_log_can_be_read_nothing_is_judged() -> None:
    world, process = running()
    world.close("a", 5, 4, 5)
    process = world.start()
    process.inputs["b"].is_opening = True
    world.cut = {"b"}
    process.begin()
    process.wait(LONG_MS)
    assert tentative(world) == []
    assert process.runner.state is ReplicaState.FAILURE
    process.inputs["b"].is_opening = False
    process.wait(LONG_MS)
    assert tentative(world) == [(5, ("b",))]
