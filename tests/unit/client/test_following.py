"""The client on a log in memory that the real delivery has written."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from anabranch.client import BUCKETS_KEPT, Follower, Kind, LiveView, current, follow
from anabranch.ports import LogReader, TopicPartition
from anabranch.protocol.errors import ConfigurationError
from harness.output_world import DeliveringWorld as World
from harness.outputs import delivered, rows

TOPIC = "p.out.live"


class Wakeful:
    """A log whose readers find more, as soon as they are assigned: ``sizes`` are delivered then."""

    def __init__(self, world: World, sizes: dict[int, int]) -> None:
        self._world, self._sizes = world, sizes

    def __getattr__(self, name: str) -> object:
        return getattr(self._world.log, name)

    def reader(self, **options: Any) -> LogReader:
        reader = self._world.log.reader(**options)
        assign = reader.assign

        def assigned(positions: Mapping[TopicPartition, int]) -> None:
            assign(positions)
            self._world.replica.close_buckets(
                max(self._sizes), {b: rows(b, n) for b, n in self._sizes.items()}
            )
            self._world.deliver()

        reader.assign = assigned  # type: ignore[method-assign]
        return reader


@pytest.fixture
def world() -> World:
    return World()


def test_follow_shows_the_answer_as_it_changes(world: World) -> None:
    stopping = threading.Event()
    views = follow(world.log, TOPIC, stopping=stopping, wait_ms=1)
    world.close(1, 3)
    view = next(views)
    assert [r.kind for r in view.records()] == [Kind.INSERTION] * 3
    world.replica.show(2, {2: rows(2, 2)}, ("reports",))
    world.deliver()
    assert next(views) is view
    assert [r.kind for r in view.records()] == [Kind.INSERTION] * 3 + [Kind.TENTATIVE] * 2
    assert (view.missing, view.in_failure, view.stable_ms, view.shown_ms) == (
        ("reports",),
        True,
        100,
        200,
    )
    world.replica.close_buckets(2, {2: rows(2, 4)})
    world.replica.end_branch()
    world.deliver()
    next(views)
    assert [(r.id, r.key, r.value) for r in view.stable()] == sorted(
        ((i, k, v) for _, i, k, v in delivered(world.log, world.pipeline)),
        key=lambda entry: entry[0],
    )
    assert (list(view.tentative()), view.in_failure, view.foreign, view.undone) == ([], False, 0, 2)
    stopping.set()
    assert list(views) == []


def test_follow_can_begin_with_what_comes(world: World) -> None:
    world.close(1, 3)
    stopping = threading.Event()
    wakeful = Wakeful(world, {2: 1})
    views = follow(wakeful, TOPIC, stopping=stopping, from_beginning=False, wait_ms=1)  # type: ignore[arg-type]
    assert [r.id.bucket for r in next(views).records() if r.id is not None] == [2]


def test_follow_forgets_what_is_old_and_current_does_not(world: World) -> None:
    """A program that follows for months must not keep every record; ``by_key`` has every key
    all the same.
    """
    assert (
        inspect.signature(follow).parameters["buckets_kept"].default
        == inspect.signature(Follower).parameters["buckets_kept"].default
        == 1_000
    )
    buckets = BUCKETS_KEPT + 5
    world.replica.close_buckets(
        buckets, {bucket: rows(bucket, 1) for bucket in range(1, buckets + 1)}
    )
    world.deliver()
    follower = Follower(world.log, TOPIC)
    while not follower.caught_up:
        follower.poll()
    assert [r.id.bucket for r in follower.view.records() if r.id is not None] == list(
        range(6, buckets + 1)
    )
    assert len(follower.view.by_key()) == len(current(world.log, TOPIC).by_key())
    assert len(list(current(world.log, TOPIC).records())) == buckets


def test_current_is_the_answer_of_now(world: World) -> None:
    assert list(current(world.log, TOPIC).records()) == []
    world.close(1, 3)
    view = current(world.log, TOPIC, buckets_kept=5)
    assert (len(list(view.records())), len(view.by_key())) == (3, 3)


def test_a_topic_that_is_not_there_is_reported(world: World) -> None:
    with pytest.raises(ConfigurationError, match="topic nowhere does not exist"):
        current(world.log, "nowhere")
    with pytest.raises(ConfigurationError, match="topic nowhere does not exist"):
        next(follow(world.log, "nowhere"))


def test_records_of_others_are_left_out(world: World) -> None:
    view = LiveView(1)
    assert not view.apply(0, [], b"k", b"v")
    assert view.foreign == 1
    writer = world.log.writer()
    writer.send(TopicPartition(TOPIC, 0), b"x")
    writer.flush()
    assert current(world.log, TOPIC).foreign == 1
