"""The live topic on a real broker, from hand-written boundary records: an upsert view over
restarts, and a tentative bucket beside a backlog. Killed: ``test_crash_points.py``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.system.clock import SystemClock
from anabranch.adapters.system.entropy import SystemEntropy
from anabranch.client import Follower, current
from anabranch.delivery.service import BESIDE_LIVE_ROWS_MAX, DeliveryService
from anabranch.pipeline.model import Pipeline
from harness import outputs
from harness.outputs import (
    Replica,
    create_topics,
    delivered,
    drain,
    rows,
    until_decided,
)
from harness.sources import everything
from harness.waiting import given_s, is_busy, wait_until

pytestmark = pytest.mark.integration

PARTITIONS = 2


class World:
    """One output with a live topic on a real broker, and what feeds it."""

    def __init__(self, address: str, pipeline: Pipeline) -> None:
        self.log = KafkaEventLog(address)
        self.clock = SystemClock()
        self.entropy = SystemEntropy()
        self.pipeline = pipeline
        create_topics(self.log, self.pipeline)
        self.replica = Replica(self.log, self.pipeline, self.clock, self.entropy)
        self.services: list[DeliveryService] = []
        self._beating = contextlib.ExitStack()
        self._beating.enter_context(self.replica.beating())

    @property
    def live(self) -> str:
        sink = self.pipeline.outputs["out"].live
        assert sink is not None
        return sink.topic

    def service(self) -> DeliveryService:
        made = outputs.service(self.log, self.pipeline, self.clock, self.entropy)
        self.services.append(made)
        made.start()
        return made

    def feeds(self) -> list[Callable[[], object]]:
        """Return the steps of a failure, from before it to after its correction."""
        return [
            lambda: self.replica.close_buckets(3, {2: rows(2, 30), 3: rows(3, 20)}),
            lambda: self.replica.show(4, {4: rows(4, 10)}),
            lambda: self.replica.show(6, {5: rows(5, 20), 6: rows(6, 10)}),
            lambda: self.replica.close_buckets(4, {4: rows(4, 40)}),
            lambda: self.replica.close_buckets(5, {5: rows(5, 50)}),
            self._last,
        ]

    def _last(self) -> None:
        self.replica.end_branch()
        self.replica.close_buckets(7, {6: rows(6, 10)})

    def check(self) -> None:
        """Check that the last answer is the corrected one."""
        until_decided(self.log, self.pipeline)
        view = current(self.log, self.live)
        assert [(r.id, r.key, r.value) for r in view.stable()] == sorted(
            (i, k, v) for _, i, k, v in delivered(self.log, self.pipeline)
        )
        assert (list(view.tentative()), view.in_failure, view.gaps, view.foreign) == (
            [],
            False,
            0,
            0,
        )

    def close(self) -> None:
        self._beating.close()
        self.replica.close()
        for made in self.services:
            made.stop()


@pytest.fixture
def world(kafka: str, topic_prefix: str) -> Iterator[World]:
    made = World(kafka, outputs.pipeline(topic_prefix, partitions=PARTITIONS, live=True))
    yield made
    made.close()


def progressed(world: World, service: DeliveryService, count: int) -> None:
    """Step until so many transactions are in the live topic and the corrected one is as far."""

    def done() -> bool:
        service.step()
        machine = service._live._machine if service._live is not None else None
        return machine is not None and machine.progress.sequence >= count

    wait_until(done, 30, f"live transaction {count}", every_s=0)
    stable = service._following().log_state.upto
    if stable:
        drain(service, stable)


def test_an_upsert_view_goes_on_after_restarts(kafka: str, topic_prefix: str) -> None:
    world = World(kafka, outputs.pipeline(topic_prefix, partitions=PARTITIONS, upsert=True))
    try:
        for number, feed in enumerate(world.feeds()):
            feed()
            service = world.service()
            progressed(world, service, number + 1)
            service.stop()
        until_decided(world.log, world.pipeline)
        found: dict[bytes | None, tuple[int, bytes | None]] = {}
        for partition, ident, key, value in delivered(world.log, world.pipeline):
            found[key] = max(
                found.get(key, (0, b"")), (ident.bucket * 1_000 + ident.position, value)
            )
            assert partition < PARTITIONS
        newest: dict[bytes | None, bytes | None] = {}
        for chunk in everything(world.log, world.live, PARTITIONS):
            newest.update(zip(chunk.keys, chunk.values, strict=True))
        assert newest == {key: value for key, (_, value) in found.items()}
    finally:
        world.close()


def test_a_tentative_bucket_is_soon_there_beside_a_backlog(world: World) -> None:
    """Corrections and the corrected topic have a backlog of 120 000 rows while a branch goes on;
    its buckets wait for one or two small transactions of it.

    Its time is bounded by ten times what was measured on a quiet machine, where the test has the
    machine for itself.
    """
    sizes = {1: 100, 2: 100, **dict.fromkeys(range(3, 62), 2_000)}
    service = world.service()
    world.replica.close_buckets(1, {1: rows(1, sizes[1])})
    progressed(world, service, 1)
    world.replica.show(3, {2: rows(2, 100), 3: rows(3, 100)})
    progressed(world, service, 2)
    world.replica.close_buckets(2, {2: rows(2, sizes[2])})
    world.replica.close_buckets(
        61, {bucket: rows(bucket, sizes[bucket]) for bucket in range(3, 62)}
    )

    def delivered_rows() -> int:
        assert service._delivery is not None
        cursor = service._delivery.cursor
        return sum(sizes[bucket] for bucket in sizes if bucket < cursor.bucket) + cursor.position

    follower = Follower(world.log, world.live)
    late_ms: list[int] = []
    beside: list[int] = []
    steps: list[int] = []
    for upto in range(70, 90):
        began, before = given_s(), delivered_rows()
        world.replica.show(upto, {upto: rows(upto, 100)})
        shown_ms = upto * outputs.WIDTH_MS

        def there(wanted_ms: int = shown_ms) -> bool:
            first = delivered_rows()
            service.step()
            steps.append(delivered_rows() - first)
            follower.poll()
            return follower.view.shown_ms >= wanted_ms

        wait_until(there, 30, f"bucket {upto}", every_s=0)
        late_ms.append(round((given_s() - began) * 1_000))
        beside.append(delivered_rows() - before)
    print("tentative buckets after ms:", sorted(late_ms), "beside rows:", beside)
    assert max(steps) <= BESIDE_LIVE_ROWS_MAX
    assert sorted(beside)[len(beside) // 2] <= 2 * BESIDE_LIVE_ROWS_MAX
    assert is_busy() or sorted(late_ms)[len(late_ms) // 2] < 1_000
    world.replica.end_branch()
    world.replica.close_buckets(90, {})
    drain(service, 90)

    def over() -> bool:
        service.step()
        follower.poll()
        return not follower.view.in_failure

    wait_until(over, 60, "the failure is over", every_s=0)
    follower.close()
    world.check()
