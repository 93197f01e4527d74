"""The consistency manager with a real broker and a real Redis, which loses everything or is
killed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import redis

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.redis.index import RedisIndex
from anabranch.adapters.system.clock import SystemClock
from anabranch.adapters.system.entropy import SystemEntropy
from anabranch.consistency_manager.service import ConsistencyManager
from anabranch.local.embedded_redis import EmbeddedRedis
from harness import outputs
from harness.control_topics import alarms
from harness.manager_world import started_manager
from harness.outputs import Replica, after_step, create_topics, rows
from harness.redis import stored
from harness.waiting import wait_until

pytestmark = pytest.mark.integration


class World:
    """A stage of two replicas on a real broker, and its manager."""

    def __init__(self, address: str, prefix: str, url: str) -> None:
        self.log = KafkaEventLog(address)
        self.clock = SystemClock()
        self.entropy = SystemEntropy()
        self.prefix = prefix
        self.pipeline = outputs.pipeline(prefix, replicas=2)
        create_topics(self.log, self.pipeline)
        names = self.pipeline.stream_writers("totals")
        self.replicas = [
            Replica(self.log, self.pipeline, self.clock, self.entropy, name) for name in names
        ]
        self.url = url
        self.index = RedisIndex(url, timeout_ms=20_000)
        self.managers: list[ConsistencyManager] = []

    def manager(self) -> ConsistencyManager:
        made = started_manager(self.log, self.pipeline, self.clock, self.entropy, self.index)
        self.managers.append(made)
        return made

    def content(self) -> dict[str, object]:
        """All but the heartbeats, which pass."""
        keys = [k for k in self.index.keys(f"anabranch:{self.prefix}:") if ":process:" not in k]
        return {k: stored(self.url, k) for k in keys}

    def upto(self) -> str | None:
        return stored(self.url, f"anabranch:{self.prefix}:stream:totals").get("upto")

    def close(self) -> None:
        for replica in self.replicas:
            replica.close()
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
        told = partial(alarms, world.log, world.pipeline)
        wait_until(after_step(manager, told), 20, "an alarm without Redis")
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
