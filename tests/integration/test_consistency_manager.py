"""The consistency manager with a real broker and a real Redis, which loses everything or is
killed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
import redis

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.redis.index import RedisIndex
from anabranch.adapters.system.clock import SystemClock
from anabranch.adapters.system.entropy import SystemEntropy
from anabranch.codec import control_records
from anabranch.consistency_manager.service import ConsistencyManager, build
from anabranch.local.embedded_redis import EmbeddedRedis
from anabranch.pipeline.control_topics import control_topics
from anabranch.protocol.control.failure_detector import FailureDetector
from anabranch.protocol.control.records import Alarm, ControlRecord, Fence, Heartbeat, TrimPoint
from anabranch.protocol.errors import Fenced
from anabranch.protocol.stage.scheduling import CorrectionGate, GateReason
from anabranch.streams.fences import FenceWatch
from anabranch.streams.heartbeats import ControlReader, HeartbeatSender, ReplicaControl
from harness import outputs
from harness.control_topics import all_control_records
from harness.outputs import Replica, after_step, create_topics, rows
from harness.sources import everything
from harness.waiting import wait_until

pytestmark = pytest.mark.integration

T = TypeVar("T")


class Neighbour:
    """The part of a replica that talks on the control topic."""

    def __init__(self, world: World, name: str) -> None:
        self.name, self.epoch = name, world.replicas[int(name)].epoch
        detector = FailureDetector.of_replicas({"totals": world.pipeline.stream_writers("totals")})
        self.gate = CorrectionGate("totals", name, detector)
        fences = FenceWatch(world.log, world.pipeline, "totals", name)
        fences.epoch = self.epoch
        self._control = ReplicaControl(
            ControlReader(world.log, control_topics(world.pipeline)),
            world.clock,
            self.gate,
            detector,
            fences.hear,
        )
        self._sender = HeartbeatSender(
            world.log,
            world.pipeline.topic_names.control("processing", f"totals.{name}"),
            world.clock,
        )
        self.wants = False

    def step(self) -> None:
        self._control.poll(10)
        self._control.may_correct(self.wants)
        self._sender.send(
            Heartbeat(
                "processing",
                "totals",
                self.name,
                self.epoch,
                "running",
                0,
                0,
                "stabilization" if self.wants else "up_failure",
                branch=1,
                checkpoint="timeline",
                checkpoint_bucket=3,
                corrects=self.gate.corrects,
            )
        )

    def close(self) -> None:
        self._sender.close()
        self._control.close()


def stepping(*steps: Callable[[], object]) -> Callable[[Callable[[], T]], Callable[[], T]]:
    """Before a condition is asked, everybody does a round."""

    def after(condition: Callable[[], T]) -> Callable[[], T]:
        def ask() -> T:
            for step in steps:
                step()
            return condition()

        return ask

    return after


class World:
    """A stage of two replicas on a real broker, and its manager."""

    def __init__(self, address: str, prefix: str, url: str, replicas: int = 2) -> None:
        self.log = KafkaEventLog(address)
        self.clock = SystemClock()
        self.entropy = SystemEntropy()
        self.prefix = prefix
        self.pipeline = outputs.pipeline(prefix, replicas=replicas)
        create_topics(self.log, self.pipeline)
        names = self.pipeline.stream_writers("totals")
        self.replicas = [
            Replica(self.log, self.pipeline, self.clock, self.entropy, name) for name in names
        ]
        self.index = RedisIndex(url, timeout_ms=20_000)
        self.managers: list[ConsistencyManager] = []
        self.neighbours: list[Neighbour] = []

    def manager(self) -> ConsistencyManager:
        made = outputs.context(
            self.log,
            self.pipeline,
            self.clock,
            self.entropy,
            "consistency_manager",
            self.prefix,
            self.index,
        )
        manager = build(made.settings, made)
        self.managers.append(manager)
        manager.start()
        return manager

    def content(self) -> dict[str, object]:
        """All but who wrote it, and the heartbeats, which pass."""
        keys = [
            k
            for k in self.index.keys(f"anabranch:{self.prefix}:")
            if not k.endswith(":index") and ":process:" not in k
        ]
        return {
            k: self.index.ranked(k, 0, 1e18) if ":boundaries:" in k else self.index.get(k)
            for k in keys
        }

    def neighbour(self, name: str) -> Neighbour:
        made = Neighbour(self, name)
        self.neighbours.append(made)
        return made

    def upto(self) -> str | None:
        return self.index.get(f"anabranch:{self.prefix}:stream:totals").get("upto")

    def records_of(self, kind: type[ControlRecord]) -> list[ControlRecord]:
        return [
            entry
            for entry in all_control_records(self.log, self.pipeline)
            if isinstance(entry, kind)
        ]

    def alarms(self) -> list[Alarm]:
        topic = self.pipeline.topic_names.alarms()
        found = [
            control_records.decode(value)
            for chunk in everything(self.log, topic)
            for value in chunk.values
        ]
        return [alarm for alarm in found if isinstance(alarm, Alarm)]

    def close(self) -> None:
        for replica in self.replicas:
            replica.close()
        for neighbour in self.neighbours:
            neighbour.close()
        self.index.close()
        for manager in self.managers:
            manager.stop()


@pytest.fixture
def world(kafka: str, topic_prefix: str, redis_url: str) -> Iterator[World]:
    made = World(kafka, topic_prefix, redis_url)
    yield made
    made.close()


def test_flushall_and_restart_bring_the_same_index_back(world: World, redis_url: str) -> None:
    manager = world.manager()
    for upto in range(1, 6):
        world.replicas[upto % 2].close_buckets(upto, {upto: rows(upto, 4)})
    wait_until(after_step(manager, lambda: world.upto() == "5"), 20, "the index is written")
    before = world.content()
    redis.Redis.from_url(redis_url).flushall()
    wait_until(
        after_step(manager, lambda: world.content() == before), 20, "the index is written again"
    )
    manager.stop()
    redis.Redis.from_url(redis_url).flushall()
    again = world.manager()
    wait_until(
        after_step(again, lambda: world.content() == before), 20, "a restart writes the same index"
    )


def test_a_difference_raises_an_alarm_once(world: World) -> None:
    for replica, count in zip(world.replicas, (6, 7), strict=True):
        replica.close_buckets(2, {1: rows(1, 5), 2: rows(2, count)})
    first = world.manager()
    (alarm,) = wait_until(after_step(first, world.alarms), 20, "an alarm")
    assert (alarm.kind, alarm.stream, alarm.bucket) == ("digest_mismatch", "totals", 2)
    second = world.manager()
    second.step()
    second.step()
    assert len(world.alarms()) == 1


def test_it_goes_on_while_redis_is_down(kafka: str, topic_prefix: str, tmp_path: Path) -> None:
    server = EmbeddedRedis(tmp_path / "redis")
    url = server.start()
    world = World(kafka, topic_prefix, url)
    try:
        manager = world.manager()
        world.replicas[0].close_buckets(1, {1: rows(1, 4)})
        wait_until(after_step(manager, lambda: world.upto() == "1"), 20, "the index is written")
        server.stop()
        for replica, count in zip(world.replicas, (6, 7), strict=True):
            replica.close_buckets(
                3,
                {1: rows(1, 4), 3: rows(3, count)}
                if replica is world.replicas[1]
                else {3: rows(3, count)},
            )
        wait_until(after_step(manager, world.alarms), 20, "an alarm without Redis")
        wait_until(
            after_step(manager, manager._index_failures._value.get), 20, "the failure is counted"
        )
        assert server.start() == url
        wait_until(
            after_step(
                manager,
                lambda: (
                    world.content().get(f"anabranch:{world.prefix}:stream:totals") == {"upto": "3"}
                ),
            ),
            20,
            "the index is back",
        )
    finally:
        world.close()
        server.stop()


def test_replicas_correct_one_after_the_other_with_and_without_it(world: World) -> None:
    manager = world.manager()
    zero = world.neighbour("0")
    one = world.neighbour("1")
    everybody = stepping(manager.step, zero.step, one.step)
    wait_until(
        everybody(lambda: str(manager.status.detail["processes"]).count("running") == 2),
        20,
        "all are heard",
    )
    zero.wants = one.wants = True
    wait_until(everybody(lambda: zero.gate.corrects), 20, "the first begins")
    wait_until(
        everybody(lambda: one.gate.why is GateReason.ANOTHER_CORRECTS), 20, "the other hears it"
    )
    wanted = {
        "replica_state": "stabilization",
        "branch": "1",
        "checkpoint": "timeline",
        "checkpoint_bucket": "3",
        "corrects": "",
    }
    key = f"anabranch:{world.prefix}:process:processing:totals:1"
    wait_until(
        everybody(lambda: wanted.items() <= world.index.get(key).items()),
        20,
        "its heartbeat of now is in the index",
    )
    manager.stop()
    alone = stepping(zero.step, one.step)
    assert alone(lambda: (zero.gate.corrects, one.gate.corrects))() == (True, False)
    zero.wants = False
    wait_until(alone(lambda: one.gate.corrects), 20, "the other has its turn")
    assert not zero.gate.corrects


def test_while_it_is_dead_results_are_delivered_and_it_catches_up_later(world: World) -> None:
    delivery = outputs.service(world.log, world.pipeline, world.clock, world.entropy)
    delivery.start()
    try:
        for replica in world.replicas:
            replica.close_buckets(4, {n: rows(n, 5) for n in range(1, 5)})
        wait_until(
            after_step(delivery, lambda: len(outputs.delivered(world.log, world.pipeline)) == 20),
            30,
            "delivered without a manager",
        )
    finally:
        delivery.stop()
    manager = world.manager()
    wait_until(after_step(manager, lambda: world.upto() == "4"), 20, "the index is written")
    wait_until(
        after_step(manager, lambda: manager.status.detail["compared"] == {"totals": 4}),
        20,
        "all is compared",
    )


def test_trim_points_follow_the_delivery(world: World) -> None:
    manager = world.manager()
    world.replicas[0].close_buckets(9, {9: rows(9, 4)})
    sender = HeartbeatSender(
        world.log, world.pipeline.topic_names.control("delivery", "out"), world.clock
    )
    beat = Heartbeat("delivery", "out", "0", -1, "running", 9, 0, checkpoint_bucket=6)

    def trim_points() -> list[ControlRecord]:
        """Repeat the delivery's heartbeat, since an old one does not count, and return the trim
        points.
        """
        sender.send(beat)
        return world.records_of(TrimPoint)

    (point,) = wait_until(after_step(manager, trim_points), 20, "a trim point")
    sender.close()
    assert isinstance(point, TrimPoint)
    assert (point.stream, point.bucket) == ("totals", 6)
    key = f"anabranch:{world.prefix}:trim:totals"
    assert wait_until(
        after_step(manager, lambda: world.index.get(key)), 20, "it is in the index"
    ) == {"bucket": "6"}


def test_a_majority_of_three_fences(kafka: str, topic_prefix: str, redis_url: str) -> None:
    world = World(kafka, topic_prefix, redis_url, replicas=3)
    try:
        outvoted, other = world.neighbour("2"), world.neighbour("1")
        for replica, count in zip(world.replicas, (6, 6, 7), strict=True):
            replica.close_buckets(2, {2: rows(2, count)})
        manager = world.manager()
        (fence,) = wait_until(after_step(manager, lambda: world.records_of(Fence)), 20, "a fence")
        assert isinstance(fence, Fence)
        assert (fence.stage, fence.replica, fence.epoch) == ("totals", "2", world.replicas[2].epoch)
        with pytest.raises(Fenced, match="must end"):
            wait_until(stepping(outvoted.step)(lambda: False), 20, "the outvoted process ends")
        other.step()
    finally:
        world.close()
