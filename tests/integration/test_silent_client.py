"""A client that hands over nothing though there is more, on a real broker: stopped by hand,
as librdkafka stops by itself after a broker's restart.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import pairwise

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaPartition

from anabranch.adapters.kafka import reader as module
from anabranch.adapters.kafka.end_offsets import EndOffsets
from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.kafka.reader import KafkaLogReader
from anabranch.adapters.kafka.settings import FOLLOWER_WAIT_MS
from anabranch.adapters.system.clock import SystemClock
from anabranch.ports import TopicPartition
from demo import consuming
from harness.sources import until_decided
from harness.waiting import wait_until


def send(kafka: str, at: TopicPartition, *values: bytes) -> None:
    writer = KafkaEventLog(kafka).writer()
    for value in values:
        writer.send(at, value)
    writer.flush()
    writer.close()


def second_partition(kafka: str, at: TopicPartition) -> TopicPartition:
    """Give the topic of ``at`` a second partition, and return it."""
    admin = KafkaEventLog(kafka).admin()
    admin.grow(at.topic, 2)
    admin.close()
    return TopicPartition(at.topic, at.partition + 1)


@pytest.mark.parametrize("answers", [True, False])
def test_what_was_not_handed_over_is_read_by_a_new_client(
    kafka: str, at: TopicPartition, monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    """``answers``: the stopped client still finds out where the log ends."""
    monkeypatch.setattr(module, "_IDLE_S", 0.5)
    send(kafka, at, b"0", b"1")
    reader = KafkaEventLog(kafka).reader()
    reader.assign({at: 0})
    found: list[bytes | None] = []

    def has(count: int) -> bool:
        found.extend(value for chunk in reader.fetch(100, 50) for value in chunk.values)
        return len(found) >= count

    wait_until(lambda: has(2), 30, "the first records")
    stopped = reader._consumer
    assert stopped is not None
    stopped.pause([KafkaPartition(at.topic, at.partition)])
    real = EndOffsets.ask

    def answer(
        ends: EndOffsets, client: Consumer, places: Collection[TopicPartition], wait_ms: int
    ) -> dict[TopicPartition, int]:
        return real(ends, client, places, wait_ms) if answers or client is not stopped else {}

    monkeypatch.setattr(EndOffsets, "ask", answer)
    send(kafka, at, b"2", b"3")
    wait_until(lambda: has(4), 30, "what came after the client stopped")
    assert found == [b"0", b"1", b"2", b"3"]
    assert reader._consumer is not stopped
    reader.close()


def test_a_partition_that_was_not_handed_over_is_read_though_others_are(
    kafka: str, at: TopicPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_IDLE_S", 0.5)
    other = second_partition(kafka, at)
    reader = KafkaEventLog(kafka).reader(follows=True)
    reader.assign({at: 0, other: 0})
    found: dict[TopicPartition, list[bytes | None]] = {at: [], other: []}

    def has(count: int) -> bool:
        send(kafka, other, b"x")
        for chunk in reader.fetch(100, 50):
            found[chunk.at].extend(chunk.values)
        return len(found[at]) >= count

    send(kafka, at, b"0")
    wait_until(lambda: has(1), 30, "the first record")
    stopped = reader._consumer
    assert stopped is not None
    stopped.pause([KafkaPartition(at.topic, at.partition)])
    send(kafka, at, b"1", b"2")
    wait_until(lambda: has(3), 30, "what came after the client stopped")
    assert reader._consumer is not stopped
    assert found[at] == [b"0", b"1", b"2"]
    reader.close()


def test_the_examples_reader_goes_on_where_it_stood(
    kafka: str, at: TopicPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consuming, "_IDLE_S", 2.0)
    anew: list[int] = []
    real = consuming.TopicReader._assign

    def counted(reader: consuming.TopicReader, partitions: list[int]) -> None:
        real(reader, partitions)
        anew.append(len(found))

    monkeypatch.setattr(consuming.TopicReader, "_assign", counted)
    found: list[bytes | None] = []
    reader = consuming.TopicReader(kafka, at.topic, lambda message: found.append(message.value()))
    reader.start()
    wait_until(lambda: len(anew) >= 2, 30, "a new client before the first record")
    for sent in ([b"0", b"1"], [b"2"]):
        send(kafka, at, *sent)
        wait_until(
            lambda: anew.count(len(found)) >= 3 and found[-1:] == sent[-1:],  # noqa: B023
            30,
            "three new clients behind the last record",
        )
    reader.stop()
    assert (found, reader.error) == ([b"0", b"1", b"2"], None)


def test_the_examples_reader_reads_a_partition_that_alone_was_not_handed_over(
    kafka: str, at: TopicPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consuming, "_IDLE_S", 1.0)
    other = second_partition(kafka, at)
    send(kafka, at, b"0", b"1")
    clients: list[consuming.TopicReader] = []
    real = consuming.TopicReader._assign

    def assign(reader: consuming.TopicReader, partitions: list[int]) -> None:
        real(reader, partitions)
        if not clients:
            reader._consumer.pause([KafkaPartition(at.topic, at.partition)])
        clients.append(reader)

    monkeypatch.setattr(consuming.TopicReader, "_assign", assign)
    found: dict[int, list[bytes | None]] = {at.partition: [], other.partition: []}
    reader = consuming.TopicReader(
        kafka, at.topic, lambda message: found[message.partition() or 0].append(message.value())
    )
    reader.start()

    def has_all() -> bool:
        send(kafka, other, b"x")
        return len(found[at.partition]) == 2

    wait_until(has_all, 60, "what the first client did not hand over")
    reader.stop()
    assert (found[at.partition], reader.error) == ([b"0", b"1"], None)
    assert len(clients) >= 2


def test_the_end_of_a_transaction_is_nothing_to_wait_for(
    kafka: str, at: TopicPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stands behind the last record, and is shown to nobody."""
    monkeypatch.setattr(module, "_IDLE_S", 0.2)
    log = KafkaEventLog(kafka)
    writer = log.transactional_writer(at.topic)
    for ends in (writer.commit, writer.abort):
        writer.begin()
        writer.send(at, b"x")
        ends()
    writer.close()
    until_decided(log, at.topic)
    readers = [log.reader(committed=committed) for committed in (True, False)]
    for reader in readers:
        reader.assign({at: 0})

        def is_read(reader: KafkaLogReader = reader) -> bool:
            reader.fetch(100, 50)
            return reader.position(at) == reader.offsets(at)[1]

        wait_until(is_read, 60, "the topic is read to its end")
    clients = [reader._consumer for reader in readers]
    looks: list[str] = []
    real = KafkaLogReader._check_idle

    def counted(reader: KafkaLogReader) -> None:
        looks.append("look")
        real(reader)

    monkeypatch.setattr(KafkaLogReader, "_check_idle", counted)

    def looked() -> bool:
        for reader in readers:
            reader.fetch(100, 50)
        return len(looks) >= 20

    wait_until(looked, 60, "twenty looks at a topic that is read to its end")
    assert [reader._consumer for reader in readers] == clients
    for reader in readers:
        reader.close()


def test_a_follower_of_a_log_without_news_keeps_its_client(
    kafka: str, at: TopicPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does its question after a silence wait behind the fetch that the broker keeps."""
    monkeypatch.setattr(module, "_IDLE_S", 0.3)
    reader = KafkaEventLog(kafka).reader(follows=True)
    reader.assign({at: 0})
    client, answers = reader._consumer, []
    real = EndOffsets.ask

    def answer(
        ends: EndOffsets, client: Consumer, places: Collection[TopicPartition], wait_ms: int
    ) -> dict[TopicPartition, int]:
        answers.append(real(ends, client, places, wait_ms))
        return answers[-1]

    monkeypatch.setattr(EndOffsets, "ask", answer)

    def looked() -> bool:
        reader.fetch(100, 20)
        return len(list(filter(None, answers))) >= 10

    wait_until(looked, 60, "ten answers from a topic in which nothing comes")
    assert all(answer in ({at: 0}, {}) for answer in answers)
    assert ({}, {}) not in pairwise(answers), "a slow answer is one that comes the next time"
    assert reader._consumer is client
    reader.close()


def test_who_asks_a_follower_does_not_wait_behind_its_fetch(kafka: str, at: TopicPartition) -> None:
    reader = KafkaEventLog(kafka).reader(follows=True)
    reader.assign({at: 0})
    send(kafka, at, b"0")
    wait_until(lambda: reader.fetch(100, 50), 30, "it reads")
    clock = SystemClock()
    questions: list[Callable[[], int]] = [
        lambda: reader.offsets(at)[1],
        lambda: reader.ends([at], 10_000)[at],
    ]
    took_ms = []
    for question in questions * 5:
        begun_ms = clock.monotonic_ms()
        assert question() == 1
        took_ms.append(clock.monotonic_ms() - begun_ms)
    assert sum(took_ms) < len(took_ms) * FOLLOWER_WAIT_MS / 2, took_ms
    reader.close()
