"""Requests of which the broker refuses the first one while the next one is under way, on a real
broker: the client takes the answer to the second one for that to both (``adapters.kafka.writer``,
``adapters.kafka.reader``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.codec.catalog import TopicSettings
from anabranch.local.embedded_kafka import EmbeddedKafka
from anabranch.ports import TopicPartition
from anabranch.protocol.errors import OutcomeUnknown, Unavailable
from harness.refusing_link import Kind, RefusingLink
from harness.sources import everything

pytestmark = pytest.mark.integration

DEADLINE_S = 30
Linked = tuple[KafkaEventLog, RefusingLink]


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Linked]:
    """Yield a log that is reached by a link, and the link."""
    kafka = EmbeddedKafka(tmp_path_factory.mktemp("kafka"), linked=["writer/it"])
    kafka.start()
    link = RefusingLink(kafka.links[0])
    try:
        with link.opened() as address:
            yield KafkaEventLog(address), link
    finally:
        kafka.stop()


@pytest.fixture
def place(linked: Linked, topic_prefix: str) -> TopicPartition:
    log, _ = linked
    admin = log.admin()
    admin.create([TopicSettings(f"{topic_prefix}.t", 1)])
    admin.close()
    return TopicPartition(f"{topic_prefix}.t", 0)


def test_a_record_of_a_refused_batch_does_not_count_as_written(
    linked: Linked, place: TopicPartition
) -> None:
    log, link = linked
    link.refuse(place.topic)
    writer = log.writer()
    writer.send(place, b"refused")
    assert link.is_held.wait(DEADLINE_S)
    writer.send(place, b"taken")
    for _ in range(2):  # such a writer takes no more records
        with pytest.raises(OutcomeUnknown, match="1 records were reported"):
            writer.flush()
    writer.close()
    assert [chunk.values for chunk in everything(log, place.topic)] == [[b"taken"]]


def test_a_transaction_is_not_committed_without_a_refused_batch(
    linked: Linked, place: TopicPartition, topic_prefix: str
) -> None:
    log, link = linked
    link.refuse(place.topic)
    writer = log.transactional_writer(f"{topic_prefix}.w")
    writer.begin()
    writer.send_many(place.topic, [0], [b"refused"], [None], [()])
    assert link.is_held.wait(DEADLINE_S)
    writer.send_many(place.topic, [0], [b"taken"], [None], [()])
    with pytest.raises(OutcomeUnknown, match="1 records were reported"):
        writer.commit()
    writer.close()
    next_one = log.transactional_writer(f"{topic_prefix}.w")
    next_one.begin()
    next_one.send_many(place.topic, [0, 0], [b"refused", b"taken"], [None] * 2, [()] * 2)
    next_one.commit()
    next_one.close()
    assert [chunk.values for chunk in everything(log, place.topic)] == [[b"refused", b"taken"]]


def test_a_log_does_not_seem_empty_if_the_question_where_it_begins_is_refused(
    linked: Linked, place: TopicPartition
) -> None:
    log, link = linked
    writer = log.writer()
    for value in (b"0", b"1"):
        writer.send(place, value)
    writer.flush()
    writer.close()
    reader = log.reader()
    assert reader.offsets(place) == (0, 2)
    for _ in range(5):
        link.refuse(place.topic, Kind.LIST_OFFSETS)
        with suppress(Unavailable):  # the first answer was read before the second one arrived
            assert reader.offsets(place) == (0, 2)
        assert link.is_held.is_set()
    reader.close()
