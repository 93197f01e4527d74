"""Topics that tests on a real broker share."""

from __future__ import annotations

import pytest

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.codec.catalog import TopicSettings
from anabranch.ports import TopicPartition


@pytest.fixture
def at(kafka: str, topic_prefix: str) -> TopicPartition:
    """Return the only partition of a new topic."""
    admin = KafkaEventLog(kafka).admin()
    admin.create([TopicSettings(f"{topic_prefix}.t", 1)])
    admin.close()
    return TopicPartition(f"{topic_prefix}.t", 0)
