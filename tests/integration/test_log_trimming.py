"""Boundary logs are trimmed below snapshots on a real broker while every service is started
anew over them, and nothing is lost or repeated.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from anabranch.adapters.disk.checkpoints import ReplicaFolder
from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.system.clock import SystemClock
from anabranch.adapters.system.entropy import SystemEntropy
from anabranch.codec import boundary_records
from anabranch.codec.catalog import topic_settings
from anabranch.consistency_manager.service import build as build_manager
from anabranch.pipeline.model import Output, Pipeline, Sink
from anabranch.pipeline.topic_names import TopicNames
from anabranch.ports import TopicPartition
from anabranch.process.frame import Service
from anabranch.protocol import limits
from anabranch.protocol.control import trimming
from anabranch.protocol.errors import DataMissing
from anabranch.protocol.log.records import BoundaryRecord, EpochStarted, Part
from anabranch.streams.boundary_reader import BoundaryReader
from harness import file_replica, outputs, sources
from harness.boundary_logs import record
from harness.file_replica import FileReplica, stage_log_state
from harness.replica_world import stable_rows
from harness.trimmed_log import trim_below_snapshot
from harness.waiting import wait_until

pytestmark = pytest.mark.integration

EVERY = 25
DEADLINE_S = 60


class World:
    """A source that is delivered as it is, with its three services, each of which can be
    started anew.
    """

    def __init__(self, kafka: str, prefix: str) -> None:
        self.log = KafkaEventLog(kafka)
        self.clock = SystemClock()
        self.entropy = SystemEntropy()
        made = sources.pipeline(prefix)
        sink = Sink(topic=f"{prefix}.out", key=["car"])
        self.pipeline: Pipeline = made.model_copy(
            update={"outputs": {"out": Output(name="out", stage="reports", corrected=sink)}}
        )
        sources.create_topics(self.log, self.pipeline)
        admin, names = self.log.admin(), self.pipeline.topic_names
        admin.create([topic_settings("alarms", names.alarms())])
        admin.close()
        self.boundaries = TopicPartition(names.boundaries("reports"), 0)
        self._cars = count()
        self._writer = self.log.writer()  # a new one needs half a second for its first record
        self.sent = 0
        self.services: dict[str, Service] = {}
        for name in ("ingestion", "delivery", "consistency_manager"):
            self.start(name)
        self.whole = BoundaryReader(self.log, self.boundaries.topic, ["0"])

    def start(self, name: str) -> None:
        """Start a new process in place of the previous one, as if that had been killed."""
        if name in self.services:
            self.services[name].stop()
        if name == "ingestion":
            made: Service = sources.service(self.log, self.pipeline, self.clock, self.entropy)
        elif name == "delivery":
            made = outputs.service(self.log, self.pipeline, self.clock, self.entropy)
        else:
            context = outputs.context(
                self.log, self.pipeline, self.clock, self.entropy, name, self.pipeline.name
            )
            made = build_manager(context.settings, context)
        made.start()
        self.services[name] = made

    def produce(self, records: int) -> None:
        for _ in range(records):
            car = next(self._cars)
            self._writer.send(
                TopicPartition(f"{self.pipeline.name}.reports", car % 2),
                sources.report(1_000 + 40 * car, car),
            )
        self._writer.flush()
        self.sent += records

    def step(self) -> bool:
        for service in self.services.values():
            service.step()
        return True

    def first(self) -> int:
        reader = self.log.reader()
        found = reader.offsets(self.boundaries)[0]
        reader.close()
        return found

    def grow(self, start: int) -> None:
        """Until the log begins after ``start``."""

        def grown() -> bool:
            self.produce(6)
            self.step()
            self.whole.read_to_end()
            return self.first() > start

        wait_until(grown, DEADLINE_S, f"the log does not begin after {start}", every_s=0)

    def cars(self) -> list[int]:
        """Return the delivered cars, in order."""
        outputs.until_decided(self.log, self.pipeline)
        found = outputs.delivered(self.log, self.pipeline)
        return [
            int((value or b"").partition(b'"car":')[2].partition(b",")[0])
            for _, _, _, value in sorted(found, key=lambda r: r[1])
        ]

    def close(self) -> None:
        for service in self.services.values():
            service.stop()
        self._writer.close()
        self.whole.close()


@pytest.fixture
def world(kafka: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(limits, "SNAPSHOT_EVERY_RECORDS", EVERY)
    monkeypatch.setattr(trimming, "TRIM_EVERY_MS", 100)
    made = World(kafka, topic_prefix)
    yield made
    made.close()


def test_every_service_goes_on_over_a_log_that_begins_later(world: World) -> None:
    for name in ("ingestion", "delivery", "consistency_manager"):
        world.grow(world.first())
        world.start(name)
        world.produce(20)
        world.step()
    for name in ("consistency_manager", "delivery", "ingestion"):
        world.start(name)
    assert world.first() > 2 * EVERY
    ingestion, delivery = world.services["ingestion"].status, world.services["delivery"].status
    closed_ms = 1_000 + 40 * (world.sent - 2) - 100  # by the last record of the slower partition
    for status in (ingestion, delivery):
        wait_until(
            lambda s=status: world.step() and (s.last_bucket_ms or 0) >= closed_ms,  # type: ignore[misc]
            DEADLINE_S,
            "all is delivered",
            every_s=0,
        )
    found = world.cars()
    assert len(found) >= world.sent - 6
    assert found == list(range(len(found))), "each once, in order"
    begun = BoundaryReader(world.log, world.boundaries.topic, ["0"])
    begun.read_to_end()
    world.whole.read_to_end()
    assert begun.log_state.forgotten > 0
    floor = begun.log_state.forgotten
    assert begun.log_state.snapshot(0, floor) == world.whole.log_state.snapshot(0, floor)
    begun.close()


def test_a_replica_goes_on_from_its_checkpoint_and_from_a_peers(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    log = KafkaEventLog(kafka)
    names = TopicNames(topic_prefix)
    clock = SystemClock()
    entropy = SystemEntropy()
    file_replica.create_topics(log, names)
    source = file_replica.Source(log, names, clock, entropy)

    def run(replica: str, folder: Path = tmp_path) -> None:
        made = FileReplica(log, names, replica, folder, clock, entropy)
        made.start()
        made.settle()
        made.close()

    def trim() -> None:
        source.poll()
        for topic, writers in (
            (names.boundaries(file_replica.INPUT), ["0"]),
            (names.boundaries(file_replica.STAGE), file_replica.REPLICAS),
        ):
            trim_below_snapshot(log, topic, writers)

    for number in range(1, 8):
        upto = 10 * number
        source.close(upto, *range(upto - 9, upto - 2))
        run("0")
        if number == 4:
            source.trim(30)  # 1 cannot begin at the beginning
        if number in (2, 4, 5, 6):
            trim()
        if number >= 4:
            run("1")
        assert stable_rows(stage_log_state(log, names)) == source.expected(upto), f"bucket {upto}"
    assert ReplicaFolder(tmp_path / "s.1", {}).newest() is not None


@pytest.mark.parametrize("parts", [2_000, 60_000])
def test_a_large_snapshot_goes_through_a_broker(kafka: str, topic_prefix: str, parts: int) -> None:
    """The snapshots have about 0.1 and 4 MiB, and the topic its usual settings."""
    log, topic = KafkaEventLog(kafka), TopicNames(topic_prefix).boundaries("s")
    admin = log.admin()
    admin.create([topic_settings("boundaries", topic)])
    admin.close()
    writer, at = log.writer(), TopicPartition(topic, 0)
    entries: list[EpochStarted | BoundaryRecord] = [EpochStarted("0", "f", "t")]
    for number in range(parts // 500):
        named = tuple(
            Part(1 + number * 500 + i, 0, "0123456789abcdef", 1, i, i + 1, 1, 2**63 + i)
            for i in range(500)
        )
        entries.append(record(0, number, 500 * (number + 1), named))
    for entry in entries:
        value, headers = boundary_records.encode(entry)
        writer.send(at, value, headers=headers)
    writer.flush()
    writer.close()
    whole = BoundaryReader(log, topic, ["0"])
    whole.read_to_end()
    trim_below_snapshot(log, topic, ["0"])
    begun = BoundaryReader(log, topic, ["0"])
    begun.read_to_end()
    assert begun.log_state.snapshot(0) == whole.log_state.snapshot(0)
    assert len(begun.log_state.stable(1, parts)) == parts
    for reader in (whole, begun):
        reader.close()


def test_a_log_that_somebody_else_has_trimmed_cannot_be_read(kafka: str, topic_prefix: str) -> None:
    log, topic = KafkaEventLog(kafka), TopicNames(topic_prefix).boundaries("s")
    admin, at = log.admin(), TopicPartition(topic, 0)
    admin.create([topic_settings("boundaries", topic)])
    writer = log.writer()
    for _ in range(3):
        writer.send(at, b"?")
    writer.flush()
    writer.close()
    admin.delete_before({at: 2})
    admin.close()
    reader = BoundaryReader(log, topic, ["0"])
    with pytest.raises(DataMissing, match="its first records are deleted"):
        reader.read_to_end()
    reader.close()
