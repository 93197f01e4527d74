"""Blocks are deleted on a real broker as readers go on, and never past the slower one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.system.clock import SystemClock
from anabranch.adapters.system.entropy import SystemEntropy
from anabranch.consistency_manager.service import ConsistencyManager
from anabranch.pipeline.model import Output, Sink
from anabranch.ports import TopicPartition
from anabranch.protocol.control import trimming
from anabranch.protocol.control.records import Heartbeat
from anabranch.protocol.errors import DataMissing
from anabranch.streams.block_reader import BlockReader
from anabranch.streams.boundary_reader import BoundaryReader
from anabranch.streams.heartbeats import HeartbeatSender
from harness import outputs
from harness.manager_world import started_manager
from harness.outputs import Replica, create_topics, delivered, ids, rows
from harness.waiting import wait_until

pytestmark = pytest.mark.integration

BUCKETS, ROWS = 40, 30


class World:
    """A stage of two replicas, its manager, the delivery of ``out``, and the slow reader
    ``slow``.
    """

    def __init__(self, address: str, prefix: str) -> None:
        self.log = KafkaEventLog(address)
        self.clock = SystemClock()
        self.entropy = SystemEntropy()
        made = outputs.pipeline(prefix, replicas=2)
        slow = Output(
            name="slow", stage="totals", corrected=Sink(topic=f"{prefix}.slow", key=["car"])
        )
        self.pipeline = made.model_copy(update={"outputs": {**made.outputs, "slow": slow}})
        create_topics(self.log, self.pipeline)
        self.names = self.pipeline.topic_names
        self.replicas = [
            Replica(self.log, self.pipeline, self.clock, self.entropy, name) for name in "01"
        ]
        self.delivery = outputs.service(self.log, self.pipeline, self.clock, self.entropy)
        self.delivery.start()
        self.manager = self.start_manager()
        self._following = BoundaryReader(self.log, self.names.boundaries("totals"), ["0", "1"])
        self._sender = HeartbeatSender(self.log, self.names.control("delivery", "slow"), self.clock)
        self.blocks = self.reader()
        self.passed = 0

    def start_manager(self) -> ConsistencyManager:
        return started_manager(self.log, self.pipeline, self.clock, self.entropy)

    def reader(self) -> BlockReader:
        return BlockReader(
            self.log, lambda replica: self.names.blocks("totals", replica), self.clock
        )

    def read(self, first: int, last: int, blocks: BlockReader | None = None) -> list[int]:
        """Buckets that were read whole, of both replicas."""
        self._following.read_to_end()
        log_state = self._following.log_state
        found = []
        for replica in "01":
            wanted = [
                (b, replica, log_state.replica_bucket(replica, b) or ())
                for b in range(first, last + 1)
            ]
            found += [
                b
                for b, table in (blocks or self.blocks).read_buckets(wanted)
                if table.num_rows == ROWS
            ]
        return found

    def say(self) -> None:
        self._sender.send(
            Heartbeat(
                "delivery",
                "slow",
                "0",
                -1,
                "running",
                self.passed,
                0,
                checkpoint_bucket=self.passed,
            )
        )

    def round(self) -> bool:
        self.delivery.step()
        self.manager.step()
        return True

    def trimmed(self, floor: list[int]) -> bool:
        """After one more round: whether every partition begins behind ``floor``."""
        self.say()
        self.round()
        return all(now > before for now, before in zip(self.starts(), floor, strict=True))

    def starts(self) -> list[int]:
        reader = self.log.reader()
        places = [TopicPartition(self.names.blocks("totals", r), p) for r in "01" for p in (0, 1)]
        found = [reader.offsets(at)[0] for at in places]
        reader.close()
        return found

    def close(self) -> None:
        self.delivery.stop()
        self.manager.stop()
        self._sender.close()
        self._following.close()
        self.blocks.close()
        for replica in self.replicas:
            replica.close()


@pytest.fixture
def world(kafka: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(trimming, "TRIM_EVERY_MS", 100)
    made = World(kafka, topic_prefix)
    yield made
    made.close()


def test_never_past_the_slower_reader(world: World) -> None:
    for upto in range(4, BUCKETS + 1, 4):
        for replica in world.replicas:
            replica.close_buckets(upto, {n: rows(n, ROWS) for n in range(upto - 3, upto + 1)})
        wait_until(
            lambda n=upto: world.round() and len(delivered(world.log, world.pipeline)) == n * ROWS,  # type: ignore[misc]
            60,
            "all is delivered",
        )
    for _ in range(10):
        world.round()
    assert world.starts() == [0, 0, 0, 0], "the slow one was never heard"
    before = world.starts()
    for upto in range(
        5, BUCKETS - 4, 5
    ):  # the last transaction of the delivery would be read again
        assert world.read(world.passed + 1, upto) == [*range(world.passed + 1, upto + 1)] * 2
        world.passed = upto
        wait_until(lambda floor=before: world.trimmed(floor), 30, "the blocks are deleted")  # type: ignore[misc]
        for _ in range(5):
            world.round()
        before = world.starts()
        fresh = world.reader()
        assert world.read(upto + 1, BUCKETS, fresh) == [*range(upto + 1, BUCKETS + 1)] * 2, (
            "what it has still to read is there"
        )
        with pytest.raises(DataMissing):
            world.read(upto - 4, upto - 3, fresh)
        fresh.close()
        if upto == 20:
            world.manager.stop()
            world.manager = world.start_manager()
    assert sorted(ident for _, ident, _, _ in delivered(world.log, world.pipeline)) == ids(
        dict.fromkeys(range(1, BUCKETS + 1), ROWS)
    )
