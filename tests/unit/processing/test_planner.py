"""The planner behind the readers: one input leads, all get their part of the same plan."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from anabranch.adapters.local.clock import SeededEntropy
from anabranch.adapters.local.log import LocalEventLog, Operation
from anabranch.adapters.spark.offsets import INITIAL, position_fields, position_of, taken_of
from anabranch.adapters.system.clock import SystemClock
from anabranch.ports import TopicSettings
from anabranch.processing.planner import InputFollower, Planner
from anabranch.protocol.errors import Unavailable
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.plans import PlanTraits
from anabranch.protocol.records import BoundaryRecord, Part
from anabranch.runtime.boundary_writer import BoundaryWriter
from harness.waiting import wait_until

STATELESS = PlanTraits(is_stateful=False, is_batch_safe=True)


class World:
    """Streams in memory with a planner over them, asked as Spark asks."""

    def __init__(self, names: str, traits: PlanTraits = STATELESS, rows_max: int = 1) -> None:
        self.log, self.changed, self.stopping = LocalEventLog(SystemClock()), threading.Condition(), False
        self.log.admin().create([TopicSettings(name, 1) for name in names])
        self.writers = {n: BoundaryWriter(self.log, n, ["0"], "0", "f", SystemClock(), SeededEntropy(i)) for i, n in enumerate(names)}
        self.batches = dict.fromkeys(names, 0)
        for writer in self.writers.values():
            writer.start()
        self.followers = {name: InputFollower(self.log, name, ["0"], self.changed) for name in names}
        self.planner = Planner(self.followers, traits, self.changed, rows_max=rows_max, stopping=lambda: self.stopping)
        self.offsets: dict[str, dict[str, Any]] = {name: dict(INITIAL) for name in names}
        for follower in self.followers.values():
            follower.start()

    def close_upto(self, name: str, bucket: int, *parts: Part) -> None:
        writer, self.batches[name] = self.writers[name], self.batches[name] + 1
        writer.append(BoundaryRecord("0", writer.epoch, BatchId("l", self.batches[name]), writer.tip(), bucket, parts))

    def seen(self, name: str, bucket: int) -> None:
        wait_until(lambda: self.followers[name].reader.fold.upto >= bucket, 10, f"{name} up to {bucket}")

    def trigger(self, order: str) -> bool:
        """One trigger of Spark: every input is asked once, in ``order``. Whether a batch came of it."""
        before = dict(self.offsets)
        for name in order:
            answer = self.planner.answer(name, position_fields(before[name]))
            self.offsets[name] = before[name] if answer is None else answer
        assert len({position_of(offset) for offset in self.offsets.values()}) == 1, "the inputs of a batch advance together"
        return self.offsets != before

    def close(self) -> None:
        for follower in self.followers.values():
            follower.close()
        for follower in self.followers.values():
            follower.join(10)
            assert not follower.is_alive()


@pytest.fixture
def worlds() -> Iterator[list[World]]:
    made: list[World] = []
    yield made
    for world in made:
        world.close()


def part(bucket: int) -> Part:
    return Part(bucket, 0, f"{bucket:016x}", 1, bucket, bucket + 1, 1, 0)


def test_the_first_plan_is_an_empty_one_that_warms_spark_up(worlds: list[World]) -> None:
    worlds.append(world := World("a"))
    world.close_upto("a", 3, part(2))
    world.seen("a", 3)
    assert world.trigger("a")
    assert (position_of(world.offsets["a"]).bucket, taken_of(world.offsets["a"])) == (0, [])
    assert world.trigger("a")
    assert (position_of(world.offsets["a"]).bucket, [b for b, _, _ in taken_of(world.offsets["a"])]) == (3, [2])
    assert not world.trigger("a")


@pytest.mark.parametrize("is_stateful", [False, True])
def test_several_inputs_asked_in_turn_always_advance_together(worlds: list[World], is_stateful: bool) -> None:
    """Boundaries move between any two questions; ``trigger`` checks that all inputs stand at one position."""
    worlds.append(world := World("abc", PlanTraits(is_stateful=is_stateful, is_batch_safe=True)))
    g = random.Random(7)
    upto = dict.fromkeys("abc", 0)
    taken: dict[str, list[int]] = {name: [] for name in "abc"}
    inner = world.planner.answer

    def answer(name: str, start: dict[str, Any]) -> dict[str, Any] | None:
        moved = g.choice("abc")
        if upto[moved] < 60:
            upto[moved] += 1
            world.close_upto(moved, upto[moved], part(upto[moved]))
            world.seen(moved, upto[moved])
        return inner(name, start)

    world.planner.answer = answer  # type: ignore[method-assign]
    batches = 0
    while position_of(world.offsets["a"]).closed < 60:
        if world.trigger("bca"):
            batches += 1
            for name, offset in world.offsets.items():
                taken[name] += [bucket for bucket, _, _ in taken_of(offset)]
    assert taken == {name: list(range(1, 61)) for name in "abc"}
    assert batches >= 60


def test_an_input_that_does_not_lead_makes_no_plan(worlds: list[World]) -> None:
    worlds.append(world := World("ab"))
    assert world.trigger("ab")
    for name in "ab":
        world.close_upto(name, 1, part(1))
        world.seen(name, 1)
    assert world.planner.answer("b", position_fields(world.offsets["b"])) is None
    assert world.trigger("ab")


def test_the_same_question_gets_the_same_plan_although_more_is_there(worlds: list[World]) -> None:
    worlds.append(world := World("a"))
    world.trigger("a")
    start = position_fields(world.offsets["a"])
    world.close_upto("a", 1, part(1))
    world.seen("a", 1)
    first = world.planner.answer("a", start)
    world.close_upto("a", 2, part(2))
    world.seen("a", 2)
    assert world.planner.answer("a", start) == first


def test_a_silent_input_holds_all_back_and_is_named(worlds: list[World]) -> None:
    worlds.append(world := World("ab"))
    world.trigger("ab")
    world.close_upto("a", 5, part(4))
    world.seen("a", 5)
    assert not world.trigger("ab")
    assert (world.planner.available(), world.planner.waiting_for()) == (0, "b")


def test_a_stage_that_stops_begins_nothing_new_but_finishes_what_its_leader_began(worlds: list[World]) -> None:
    worlds.append(world := World("ab"))
    leader = world.planner.answer("a", position_fields(dict(INITIAL)))
    world.stopping = True
    other = world.planner.answer("b", position_fields(dict(INITIAL)))
    assert leader is not None
    assert other is not None
    assert position_of(leader) == position_of(other)
    assert world.planner.answer("a", position_fields(leader)) is None


def test_what_ends_a_follower_is_raised_in_the_stage(worlds: list[World]) -> None:
    worlds.append(world := World("a"))
    world.followers["a"].raise_error()
    world.log.fail_next(Operation.FETCH, error=Unavailable, topic="a")
    wait_until(lambda: not world.followers["a"].is_alive(), 10, "the thread's end")
    with pytest.raises(Unavailable):
        world.followers["a"].raise_error()


def test_an_idle_leader_is_answered_when_its_input_moves(worlds: list[World]) -> None:
    worlds.append(world := World("a"))
    world.trigger("a")
    world.close_upto("a", 1, part(1))
    wait_until(lambda: world.trigger("a"), 10, "a plan")
    assert position_of(world.offsets["a"]).bucket == 1
