"""An output gets another number of shards on a real broker, and its live topic another process,
while results go on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from anabranch.codec.partitions import partition_of
from anabranch.delivery.service import DeliveryService
from anabranch.local.topic_creation import prepare, topics_of
from anabranch.protocol.errors import ConfigurationError, Fenced, Unavailable
from harness import outputs
from harness.crash_world import World
from harness.outputs import Replica, delivered, ids, rows
from harness.waiting import wait_until

pytestmark = pytest.mark.integration

DEADLINE_S = 60
PARTITIONS = 4
ROUNDS = 6
"""Number of rounds of results under each number of shards."""


def replica_of(world: World) -> Replica | None:
    """Return the stage's replica; None if its log is too new."""
    try:
        return Replica(world.log, world.pipeline, world.clock, world.entropy)
    except Unavailable:
        return None


class Deployment:
    """The results, and the processes that deliver them: those of the newest number, and older ones,
    which nobody stops.
    """

    def __init__(self, world: World) -> None:
        replica = wait_until(lambda: replica_of(world), DEADLINE_S, "its log has no leader")
        assert replica is not None
        self._replica = replica
        self.sizes: dict[int, int] = {}
        self.running: dict[str, DeliveryService] = {}
        self.ended: dict[str, type[Exception]] = {}

    def start(self, world: World, name: str) -> None:
        """``name``, with the file of ``world``; it runs with what runs, or it has ended."""
        service = outputs.service(world.log, world.pipeline, world.clock, world.entropy, name)
        self.ended.pop(name, None)
        self.running[name] = service
        self._do(name, service.start)

    def go_on(self) -> None:
        """More results come, and all deliver that still may."""
        bucket = 1 + len(self.sizes)
        self.sizes[bucket] = 5 + bucket % 23
        self._replica.close_buckets(bucket, {bucket: rows(bucket, self.sizes[bucket])})
        for name, service in list(self.running.items()):
            self._do(name, service.step)

    def _do(self, name: str, what: Callable[[], None]) -> None:
        try:
            what()
        except (ConfigurationError, Fenced) as error:
            self.ended[name] = type(error)
            self.running.pop(name).stop()

    def replaced(self, world: World, crash_point: str) -> None:
        """``out`` ends, since the first new shard replaces it, which dies at ``crash_point``.

        A broker that fences a process may tell it that the outcome of its transaction is unknown.
        Then it fails over, and may go on where nobody has written its end: it is replaced again.
        """
        while "out" in self.running:
            self.killed(world, crash_point)
            last = len(self.sizes)
            self.until(partial(self._notices, last), f"out notices {crash_point}")

    def _notices(self, last: int) -> bool:
        """``out`` has ended, or has delivered more than bucket ``last``."""
        out = self.running.get("out")
        return out is None or (out.status.last_bucket_ms or 0) > last * outputs.WIDTH_MS

    def killed(self, world: World, crash_point: str) -> None:
        """Run a process of the first new shard until it dies at ``crash_point``; the others
        continue.
        """
        with world.run("delivery", world.pipeline.outputs["out"].processes()[0], crash_point) as it:
            self.until(lambda: it.process.poll() is not None, crash_point)
            it.wait_killed()

    def until(self, condition: Callable[[], bool], what: str) -> None:
        def goes_on() -> bool:
            self.go_on()
            return condition()

        wait_until(goes_on, DEADLINE_S, what, every_s=0)

    def close(self) -> None:
        for service in self.running.values():
            service.stop()
        self._replica.close()


def with_numbers(first: World, folder: Path, *numbers: int) -> World:
    """Return the world with other numbers in the file, and create the topics."""
    shards = str(list(numbers))
    world = World(first.kafka, first.name, folder, live=True, shards=shards, partitions=PARTITIONS)
    prepare(world.log, topics_of(world.pipeline), create_inputs=True, say=print)
    return world


def test_from_one_to_three_and_to_two_under_load_every_result_is_there_once(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    one = World(kafka, topic_prefix, tmp_path / "1", live=True, partitions=PARTITIONS)
    here = Deployment(one)
    here.start(one, "out")
    here.until(lambda: len(here.sizes) >= ROUNDS, "the first results")

    three = with_numbers(one, tmp_path / "2", 1, 3)
    here.replaced(three, "delivery.earlier_fenced")
    assert here.ended == {"out": Fenced}
    here.start(one, "out")
    here.until(lambda: "out" in here.running and len(here.sizes) % ROUNDS == 0, "it has come back")
    here.replaced(three, "delivery.earlier_ended")
    here.start(one, "out")
    assert here.ended == {"out": ConfigurationError}, "it reads that it has ended"
    for name in ("out.2-1", "out.2-2", "out.2-0"):
        here.go_on()
        here.start(three, name)
    here.until(lambda: len(here.sizes) % ROUNDS == 0, "more results")

    two = with_numbers(one, tmp_path / "3", 1, 3, 2)
    for name in ("out.3-0", "out.3-1"):
        here.go_on()
        here.start(two, name)
    here.until(lambda: sorted(here.running) == ["out.3-0", "out.3-1"], "the old ones are fenced")
    here.start(three, "out.2-1")
    assert here.ended["out.2-1"] is ConfigurationError
    last = len(here.sizes)

    def is_delivered() -> bool:
        done_ms = (service.status.last_bucket_ms or 0 for service in here.running.values())
        return min(done_ms) >= last * outputs.WIDTH_MS

    here.until(is_delivered, f"bucket {last} is delivered")
    here.until(
        lambda: outputs.live_view(one.log, one.pipeline).stable_upto >= last,
        f"bucket {last} is on the live topic",
    )
    here.close()
    wanted = ids({bucket: size for bucket, size in here.sizes.items() if bucket <= last})
    shown = [record.id for _, record in outputs.live_records_of(one.log, one.pipeline)]
    assert sorted(ident for ident in shown if ident and ident.bucket <= last) == wanted
    found = [each for each in delivered(one.log, one.pipeline) if each[1].bucket <= last]
    assert sorted(ident for _, ident, _, _ in found) == wanted
    for partition in range(PARTITIONS):
        mine = [(ident, key) for p, ident, key, _ in found if p == partition]
        assert mine
        assert [ident for ident, _ in mine] == sorted(ident for ident, _ in mine)
        assert all(partition_of(key, ident, PARTITIONS) == partition for ident, key in mine)
