"""New writers, and readers of a new topic, on a real broker: none waits for the half second after
which librdkafka requests its producer id again, or for the second after which it looks for leaders
again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from statistics import median

import pytest

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.system.clock import SystemClock
from anabranch.codec.catalog import TopicSettings
from anabranch.ports import LogReader, TopicPartition
from anabranch.protocol.control.records import TrimPoint
from anabranch.streams.heartbeats import ControlWriter
from harness.waiting import wait_until

pytestmark = pytest.mark.integration

TRIES = 6
DEADLINE_S = 30
SOON_S = 0.4
"""Less than the half second."""
IDLE_S = 0.3
"""Time after which a client's first connection is no longer young."""


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


def test_a_writer_takes_over_an_open_transaction_at_once(kafka: str, at: TopicPartition) -> None:
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


def test_a_writers_first_record_is_written_at_once(kafka: str, at: TopicPartition) -> None:
    def write() -> None:
        writer = KafkaEventLog(kafka).writer()
        writer.send(at, b"first")
        writer.flush()
        writer.close()

    assert shortest_s(write) < SOON_S


def test_a_first_control_record_is_written_at_once(kafka: str, at: TopicPartition) -> None:
    def write() -> None:
        writer = ControlWriter(KafkaEventLog(kafka), at.topic, SystemClock())
        assert writer.write([TrimPoint("readings", 1, 0)])
        writer.close()

    assert shortest_s(write) < SOON_S


@pytest.mark.parametrize("has_read", [False, True])
def test_a_reader_that_was_idle_reads_a_new_topic_at_once(
    kafka: str, at: TopicPartition, topic_prefix: str, has_read: bool
) -> None:
    """``has_read``: it has read another topic before."""
    log = KafkaEventLog(kafka)
    other = TopicPartition(f"{topic_prefix}.other", 0)
    admin, writer = log.admin(), log.writer()
    admin.create([TopicSettings(other.topic, 1)])
    for place in (at, other):
        writer.send(place, b"1")
    writer.flush()
    admin.close()
    writer.close()

    def read_s(reader: LogReader, place: TopicPartition) -> float:
        begun_s = time.monotonic()
        reader.assign({place: 0})
        wait_until(lambda: reader.fetch(10, 50), DEADLINE_S, "its record", every_s=0)
        return time.monotonic() - begun_s

    def read_after_a_while_s() -> float:
        with closing(log.reader()) as reader:
            if has_read:
                read_s(reader, other)
            begun_s = time.monotonic()
            wait_until(lambda: time.monotonic() - begun_s > IDLE_S, DEADLINE_S, "it is idle")
            return read_s(reader, at)

    assert median(read_after_a_while_s() for _ in range(TRIES)) < SOON_S
