"""New writers on a real broker: none waits for the half second at which librdkafka asks again for
its producer id.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.system.clock import SystemClock
from anabranch.codec.catalog import TopicSettings
from anabranch.ports import TopicPartition
from anabranch.protocol.control.records import TrimPoint
from anabranch.streams.heartbeats import ControlWriter

pytestmark = pytest.mark.integration

TRIES = 6
SOON_S = 0.4
"""Less than the half second."""


def shortest_s(action: Callable[[], None], before: Callable[[], None] = lambda: None) -> float:
    """Return how long ``action`` takes at least, each time after ``before``. Other processes can
    make it longer, not shorter.
    """

    def taken_s() -> float:
        before()
        begun_s = time.monotonic()
        action()
        return time.monotonic() - begun_s

    return min(taken_s() for _ in range(TRIES))


@pytest.fixture
def at(kafka: str, topic_prefix: str) -> TopicPartition:
    admin = KafkaEventLog(kafka).admin()
    admin.create([TopicSettings(f"{topic_prefix}.t", 1)])
    admin.close()
    return TopicPartition(f"{topic_prefix}.t", 0)


def test_it_takes_over_an_open_transaction_at_once(kafka: str, at: TopicPartition) -> None:
    log = KafkaEventLog(kafka)

    def die() -> None:
        writer = log.transactional_writer(at.topic)
        writer.begin()
        writer.send(at, b"of the dead")
        writer.flush()

    def take_over() -> None:
        writer = log.transactional_writer(at.topic)
        writer.begin()
        writer.send(at, b"of its heir")
        writer.commit()
        writer.close()

    assert shortest_s(take_over, before=die) < SOON_S


def test_its_first_record_is_written_at_once(kafka: str, at: TopicPartition) -> None:
    def write() -> None:
        writer = KafkaEventLog(kafka).writer()
        writer.send(at, b"first")
        writer.flush()
        writer.close()

    assert shortest_s(write) < SOON_S


def test_its_first_control_record_is_written_at_once(kafka: str, at: TopicPartition) -> None:
    def write() -> None:
        writer = ControlWriter(KafkaEventLog(kafka), at.topic, SystemClock())
        assert writer.write([TrimPoint("readings", 1, 0)])
        writer.close()

    assert shortest_s(write) < SOON_S
