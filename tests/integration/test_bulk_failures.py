"""One of many records that are sent at once fails, and the last ones do not: nothing of the
transaction is committed, and the cause is told.
"""

from __future__ import annotations

import random

import pytest

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.codec.catalog import TopicSettings
from anabranch.ports import TopicPartition
from anabranch.protocol.errors import RecordTooLarge, Unavailable
from anabranch.protocol.limits import RECORD_BYTES_ON_BROKER_MAX
from harness.event_logs import read, values
from harness.waiting import wait_until

_AROUND = 20_000
"""Records before and after the one that fails: more than librdkafka puts into one batch, so
that the last one travels apart from it.
"""
_SOONER_MS = 4_000
"""A record times out before its topic is given up: that would be told as certainly not written."""


def _first_committed(log: KafkaEventLog, at: TopicPartition) -> list[bytes | None]:
    reader = log.reader(committed=True, headers=False)
    reader.assign({at: reader.offsets(at)[0]})
    found = values(read(reader, 1))
    reader.close()
    return found


@pytest.mark.parametrize("late", [False, True])
def test_a_transaction_is_not_committed_without_one_of_its_records(
    kafka: str, topic_prefix: str, *, late: bool
) -> None:
    log, at = KafkaEventLog(kafka), TopicPartition(f"{topic_prefix}bulk", 0)
    admin = log.admin()
    admin.create([TopicSettings(at.topic, 1, config={"max.message.bytes": "400000"})])
    admin.close()
    rejected = random.Random(1).randbytes(500_000)
    many = [b"x" * 20] * _AROUND
    writer = log.transactional_writer(f"{topic_prefix}.w")
    writer.begin()
    sent = [*many, rejected, *many]
    writer.send_many(at.topic, [0] * len(sent), sent, [None] * len(sent), [()] * len(sent))
    # what comes after the client knows of the failure is rejected at once: its cause is still the
    # record's
    if late:
        wait_until(writer.settled, 20, "the reports of the first ones")
        writer.send_many(at.topic, [0], [b"late"], [None], [()])
    with pytest.raises(Unavailable, match="MSG_SIZE_TOO_LARGE"):
        writer.commit()
    writer.close()
    writer = log.transactional_writer(f"{topic_prefix}.w")
    writer.begin()
    writer.send_many(at.topic, [0], [b"after"], [None], [()])
    writer.commit()
    writer.close()
    assert _first_committed(log, at) == [b"after"]


def test_what_waits_behind_a_failed_record_is_not_waited_for(kafka: str, topic_prefix: str) -> None:
    """Its transaction can only be aborted. Without that the first record, whose topic is not
    there, would be waited for until it times out.
    """
    log, at = (
        KafkaEventLog(kafka, delivery_timeout_ms=_SOONER_MS),
        TopicPartition(f"{topic_prefix}known", 0),
    )
    admin = log.admin()
    admin.create([TopicSettings(at.topic, 1)])
    admin.close()
    writer = log.transactional_writer(f"{topic_prefix}.w")
    writer.begin()
    writer.send(TopicPartition(f"{topic_prefix}unknown", 0), b"waits")
    writer.send(at, b"x" * (RECORD_BYTES_ON_BROKER_MAX + 1))
    with pytest.raises(RecordTooLarge):
        writer.commit()
    writer.abort()
    writer.begin()
    writer.send(at, b"after")
    writer.commit()
    writer.close()
    assert _first_committed(log, at) == [b"after"]
