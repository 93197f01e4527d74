"""One output on a log in memory, with processes that deliver it, and a replica that feeds it."""

from __future__ import annotations

from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.codec import control_records
from anabranch.delivery.service import DeliveryService
from anabranch.protocol.control.records import DeliveryProgress
from harness import outputs
from harness.outputs import Replica, create_topics, delivered, ids, rows
from harness.sources import everything


class World:
    """One output with shards and what feeds it."""

    def __init__(self, shards: int = 2, partitions: int = 5, **facts: object) -> None:
        self.clock, self.entropy = VirtualClock(), SeededEntropy(1)
        self.log = LocalEventLog(self.clock)
        self.facts = {"partitions": partitions, **facts}
        self.reshard(shards)
        self.replica = Replica(self.log, self.pipeline, self.clock, self.entropy)
        self.sizes: dict[int, int] = {}

    def reshard(self, *numbers: int) -> None:
        """Change the numbers of shards in the pipeline file, and create the topics."""
        *before, shards = numbers
        self.pipeline = outputs.pipeline("p", shards=shards, shards_before=before, **self.facts)  # type: ignore[arg-type]
        create_topics(self.log, self.pipeline)

    def feed(self, upto: int, sizes: dict[int, int]) -> None:
        self.replica.close_buckets(upto, {bucket: rows(bucket, n) for bucket, n in sizes.items()})
        self.sizes |= sizes

    def service(self, name: str = "out") -> DeliveryService:
        made = outputs.service(self.log, self.pipeline, self.clock, self.entropy, name)
        made.start()
        return made

    def services(self) -> list[DeliveryService]:
        return [self.service(name) for name in self.pipeline.deliveries()]

    def check(self) -> None:
        found = delivered(self.log, self.pipeline)
        assert sorted(ident for _, ident, _, _ in found) == ids(self.sizes)
        for partition in {p for p, _, _, _ in found}:
            mine = [ident for p, ident, _, _ in found if p == partition]
            assert mine == sorted(mine)

    def progress(self, process: str) -> list[DeliveryProgress]:
        values = (
            value
            for chunk in everything(self.log, self.pipeline.topic_names.progress(process))
            for value in chunk.values
        )
        return [
            entry
            for entry in map(control_records.decode, values)
            if isinstance(entry, DeliveryProgress) and entry.output == process
        ]


class DeliveringWorld(World):
    """One output with both topics, and the process that delivers it."""

    def __init__(self) -> None:
        super().__init__(1, 2, live=True)
        self._delivery = self.service()

    def deliver(self) -> None:
        for _ in range(5):
            self._delivery.step()

    def close(self, bucket: int, count: int) -> None:
        self.replica.close_buckets(bucket, {bucket: rows(bucket, count)})
        self.deliver()
