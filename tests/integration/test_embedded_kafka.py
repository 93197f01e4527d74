"""The embedded broker itself: it stops, crashes and comes back with its data and address."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.kafka.writer import KafkaLogWriter
from anabranch.codec.catalog import TopicSettings
from anabranch.local.embedded_kafka import EmbeddedKafka
from anabranch.local.tcp_ports import free_port
from anabranch.ports import RecordPosition, TopicPartition
from anabranch.protocol.errors import ConfigurationError, OutcomeUnknown, Unavailable
from harness.waiting import wait_until

pytestmark = pytest.mark.integration

AT = TopicPartition("a", 0)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """Yield one for all tests: what the first of them leaves runs on."""
    made = EmbeddedKafka(tmp_path_factory.mktemp("broker") / "state")
    yield made
    made.stop()


def test_data_and_address_survive_a_stop_and_a_crash(broker: EmbeddedKafka) -> None:
    """A reader and a writer that were open all the time go on as well; nothing is lost or
    doubled.
    """
    address = broker.reserve()
    assert broker.start() == address
    assert broker.start() == address  # does nothing
    log = KafkaEventLog(address)
    assert log.admin().create([TopicSettings("a", 1)]) == []
    reader, writer = log.reader(), log.writer()
    reader.assign({AT: 0})
    seen: list[bytes | None] = []
    for number, end in enumerate([broker.stop, broker.kill, broker.kill]):
        writer.send(AT, b"%d" % number)
        assert writer.flush() == [RecordPosition(AT, number)]
        end()
        assert not broker.alive()
        seen += [
            value for chunk in reader.fetch(10, 100) for value in chunk.values
        ]  # passing trouble is no error
        assert broker.start() == address
    writer.send(AT, b"3")
    assert writer.flush() == [RecordPosition(AT, 3)]
    writer.close()

    def enough() -> bool:
        seen.extend(value for chunk in reader.fetch(10, 200) for value in chunk.values)
        return len(seen) >= 4

    wait_until(enough, 60, "four records")
    assert seen == [b"0", b"1", b"2", b"3"]
    reader.close()


def test_it_never_comes_back_at_another_port(broker: EmbeddedKafka) -> None:
    address = broker.start()
    broker.kill()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", int(address.rpartition(":")[2])))
        other.listen()
        with pytest.raises(Unavailable, match="is taken by another process"):
            broker.start()
    assert broker.start() == address


def test_a_write_while_the_broker_is_away_is_of_unknown_outcome(broker: EmbeddedKafka) -> None:
    address = broker.start()
    log = KafkaEventLog(address, delivery_timeout_ms=2_000, request_timeout_ms=8_000)
    log.admin().create([TopicSettings("a", 1)])
    transactional = KafkaEventLog(address).transactional_writer("w")
    writer = wait_until(lambda: writer_that_has_written(log), 60, "a first record is delivered")
    assert writer is not None
    transactional.begin()
    transactional.send(AT, b"in a transaction")
    transactional.flush()
    broker.kill()
    writer.send(AT, b"1")
    with pytest.raises(OutcomeUnknown):
        writer.flush()
    writer.close()
    broker.start()
    transactional.abort()
    transactional.close()


def writer_that_has_written(log: KafkaEventLog) -> KafkaLogWriter | None:
    """Before its first record a writer asks for its producer id, which takes a broker that has just
    started longer than the time-out for a record here.
    """
    writer = log.writer()
    writer.send(AT, b"0")
    try:
        writer.flush()
    except (OutcomeUnknown, Unavailable):
        writer.close()
        return None
    return writer


def test_a_taken_port_is_a_mistake_that_is_explained(tmp_path: Path, kafka: str) -> None:
    with pytest.raises(ConfigurationError, match="is taken"):
        EmbeddedKafka(tmp_path, port=int(kafka.rpartition(":")[2])).start()


def test_a_chosen_port_is_used(tmp_path: Path) -> None:
    port = free_port()
    broker = EmbeddedKafka(tmp_path, port=port)
    with pytest.raises(Unavailable):
        _ = EmbeddedKafka(tmp_path).address
    try:
        assert broker.start() == f"127.0.0.1:{port}"
    finally:
        broker.stop()
