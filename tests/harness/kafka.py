"""A real broker for tests: the one that ``ANABRANCH_TEST_KAFKA`` names, else an embedded one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from anabranch.local.embedded_kafka import EmbeddedKafka
from anabranch.ports import TopicPartition

ADDRESS_VARIABLE = "ANABRANCH_TEST_KAFKA"

_ANSWER_S = 20


@contextmanager
def broker(state_dir: Path) -> Iterator[str]:
    """Start a broker and yield its address until the end of the block. A missing broker is an
    error, never a skip.
    """
    named = os.environ.get(ADDRESS_VARIABLE)
    if named:
        yield named
        return
    embedded = EmbeddedKafka(state_dir)
    try:
        yield embedded.start()
    finally:
        embedded.stop()


def trim(address: str, at: TopicPartition, offset: int) -> None:
    """Delete the records below ``offset``, as retention does, and wait until they are gone."""
    admin = AdminClient({"bootstrap.servers": address})
    (future,) = admin.delete_records([KafkaPartition(at.topic, at.partition, offset)]).values()
    future.result(timeout=_ANSWER_S)
