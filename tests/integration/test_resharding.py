"""A source gets another number of shards on a real broker, while its producers go on."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.system.clock import SystemClock
from anabranch.adapters.system.entropy import SystemEntropy
from anabranch.codec.catalog import TopicSettings
from anabranch.ingestion.service import IngestionService
from anabranch.pipeline.model import Pipeline
from anabranch.ports import TopicPartition
from anabranch.protocol.errors import ConfigurationError, Fenced
from harness.sources import StreamView, create_topics, pipeline, report, service
from harness.waiting import wait_until

pytestmark = pytest.mark.integration

DEADLINE_S = 60
PARTITIONS = 4
WIDTH_MS = 100
ROUNDS = 20
"""Number of rounds of the producers under each number of shards."""


@pytest.fixture
def log(kafka: str) -> KafkaEventLog:
    return KafkaEventLog(kafka)


class Load:
    """Producers of all partitions, and what they have sent."""

    def __init__(self, log: KafkaEventLog, topic: str) -> None:
        self._writer, self._topic = log.writer(), topic
        self._rng = random.Random(7)
        self._time_ms = 1_000
        self.sent: dict[int, list[int]] = {}
        """The answer: by bucket the cars that were reported."""

    def go_on(self) -> int:
        """Write a few records into each partition, some of them of the next bucket."""
        self._time_ms += 40
        for partition in range(PARTITIONS):
            for _ in range(self._rng.randrange(4)):
                car = sum(map(len, self.sent.values()))
                time_ms = self._time_ms + self._rng.randrange(200)
                self.sent.setdefault(-(-time_ms // WIDTH_MS), []).append(car)
                at = TopicPartition(self._topic, partition)
                self._writer.send(at, report(time_ms, car), key=b"key")
        self._writer.flush()
        return self._time_ms

    def close(self) -> None:
        self._writer.close()


@pytest.fixture
def load(log: KafkaEventLog, topic_prefix: str) -> Iterator[Load]:
    found = Load(log, f"{topic_prefix}.reports")
    yield found
    found.close()


def with_numbers(prefix: str, *numbers: int) -> Pipeline:
    return pipeline(
        prefix, shards=numbers[-1], shards_before=list(numbers[:-1]), out_of_orderness_ms=200
    )


def add_topics(log: KafkaEventLog, of: Pipeline) -> None:
    """Create the topics of the newest number."""
    admin, names = log.admin(), of.topic_names
    streams = of.source_processes()
    admin.create(
        [
            *(TopicSettings(names.boundaries(s), 1) for s in streams),
            *(TopicSettings(names.blocks(s, "0"), of.partitions) for s in streams),
            *(TopicSettings(names.control("ingestion", s), 1) for s in streams),
        ]
    )
    admin.close()


class Deployment:
    """The processes of the newest number, and those of the number before, which nobody stops."""

    def __init__(self, log: KafkaEventLog, load: Load) -> None:
        self._log, self._load = log, load
        self._older: list[IngestionService] = []
        self._now: list[IngestionService] = []

    def start(self, of: Pipeline) -> None:
        """Start the processes that ``of`` names, one after the other."""
        self._older, self._now = self._now, []
        for name in of.source_processes():
            self.go_on()
            self._now.append(service(self._log, of, SystemClock(), SystemEntropy(), name=name))
            self._now[-1].start()
        wait_until(self._has_replaced, DEADLINE_S, "the old ones go on", every_s=0)

    def go_on(self) -> None:
        """More comes, and all read that still may."""
        self._load.go_on()
        for process in [*self._older, *self._now]:
            try:
                process.step()
            except (ConfigurationError, Fenced):
                process.stop()
                self._older.remove(process)

    def _has_replaced(self) -> bool:
        self.go_on()
        return not self._older

    def stop(self) -> None:
        for process in [*self._older, *self._now]:
            process.stop()


def test_from_one_to_three_and_to_two_under_load_every_row_is_there_once(
    log: KafkaEventLog, topic_prefix: str, load: Load
) -> None:
    of = with_numbers(topic_prefix, 1)
    create_topics(log, of, PARTITIONS)
    deployment = Deployment(log, load)
    for numbers in ((1,), (1, 3), (1, 3, 2)):
        of = with_numbers(topic_prefix, *numbers)
        add_topics(log, of)
        deployment.start(of)
        for _ in range(ROUNDS):
            deployment.go_on()
    last = max(load.sent)
    views = {stream: StreamView(log, of, SystemClock(), stream) for stream in of.source_streams()}

    def is_closed() -> bool:
        deployment.go_on()
        return all(views[name].closed() >= last for name in of.source_processes())

    wait_until(is_closed, DEADLINE_S, f"bucket {last} is not closed", every_s=0)
    deployment.stop()
    found: dict[int, list[int]] = {}
    for view in views.values():
        view.closed()
        view.log_state().heirs_known = view.log_state().heirs
        assert view.stable(), "each had work"
        for bucket, table in view.stable().items():
            found.setdefault(bucket, []).extend(table.column("car").to_pylist())
        view.close()
    assert [view.log_state().heirs for view in views.values()] == [3, 2, 2, 2, 0, 0]
    for bucket, cars in load.sent.items():
        assert bucket > last or sorted(found[bucket]) == sorted(cars)
    assert found.keys() >= {bucket for bucket in load.sent if bucket <= last}
