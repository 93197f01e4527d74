"""An output with a live topic on a log in memory, and one failure line by line."""

from __future__ import annotations

import json

from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.codec import control_records
from anabranch.delivery.service import DeliveryService
from anabranch.pipeline.model import Pipeline
from anabranch.ports import TopicPartition
from anabranch.protocol.control.records import Heartbeat
from harness import outputs
from harness.outputs import Replica, create_topics, rows, transcript
from harness.sources import everything


class World:
    """One output with a live topic, and what feeds it."""

    def __init__(self, **facts: object) -> None:
        self.clock, self.entropy = VirtualClock(), SeededEntropy(1)
        self.log = LocalEventLog(self.clock)
        self.pipeline: Pipeline = outputs.pipeline("p", **{"live": True, "partitions": 1, **facts})  # type: ignore[arg-type]
        create_topics(self.log, self.pipeline)
        writers = self.pipeline.stream_writers(outputs.STAGE)
        self.replicas = [
            Replica(self.log, self.pipeline, self.clock, self.entropy, name) for name in writers
        ]
        self.replica = self.replicas[0]

    def service(self) -> DeliveryService:
        made = outputs.service(self.log, self.pipeline, self.clock, self.entropy)
        made.start()
        return made

    def transcript(self) -> list[str]:
        return transcript(self.log, self.pipeline)

    def says(self, replica: str, state: str) -> None:
        """Send a heartbeat of a replica of the stage."""
        beat = Heartbeat(
            "processing",
            outputs.STAGE,
            replica,
            0,
            "running",
            0,
            self.clock.now_ms(),
            replica_state=state,
        )
        writer = self.log.writer()
        writer.send(
            TopicPartition(
                self.pipeline.topic_names.control("processing", f"{outputs.STAGE}.{replica}"), 0
            ),
            control_records.encode(beat),
        )
        writer.flush()
        writer.close()


def settle(service: DeliveryService, rounds: int = 6) -> None:
    for _ in range(rounds):
        service.step()


def compacted(world: World) -> dict[int, tuple[str, int | None]]:
    """Car -> (kind, total) of the newest record of each key, as a reader of the compacted
    topic has it.
    """
    found = {}
    for chunk in everything(world.log, "p.out.live", world.pipeline.partitions):
        for key, value, headers in zip(chunk.keys, chunk.values, chunk.headers, strict=True):
            total = None if value is None else json.loads(value)["total"]
            found[json.loads(key or b"")["car"]] = (
                (dict(headers)["anabranch-kind"] or b"").decode(),
                total,
            )
    return found


FAILURE = [
    "insertion 2 x3, insertion 3 x2, boundary 3",
    "tentative 4, boundary 3/4",
    "tentative 5 x2, tentative 6, boundary 3/6",
    "undo 3.1, insertion 4 x4, tentative 5 x2, tentative 6, boundary 4/6",
    "insertion 5 x5, boundary 5/6",
    "insertion 6, rec_done, boundary 7",
]


def feed(world: World, number: int) -> None:
    """Append the log entry that leads to line ``number`` of FAILURE."""
    replica = world.replica
    if number == 0:
        replica.close_buckets(3, {2: rows(2, 3), 3: rows(3, 2)})
    elif number == 1:
        replica.show(4, {4: rows(4, 1)})
    elif number == 2:
        replica.show(6, {5: rows(5, 2), 6: rows(6, 1)})
    elif number == 3:
        replica.close_buckets(4, {4: rows(4, 4)})
    elif number == 4:
        replica.close_buckets(5, {5: rows(5, 5)})
    else:
        replica.close_buckets(7, {6: rows(6, 1)})
        replica.end_branch()
