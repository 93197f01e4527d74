"""The logs that the suite runs against."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.memory.log import LocalEventLog
from harness.event_logs import Rig
from harness.kafka import trim


@pytest.fixture(params=["local", pytest.param("kafka", marks=pytest.mark.integration)])
def rig(request: pytest.FixtureRequest, topic_prefix: str) -> Iterator[Rig]:
    if request.param == "local":
        local = LocalEventLog()
        made = Rig(local, topic_prefix, local.trim)
    else:
        address: str = request.getfixturevalue("kafka")
        made = Rig(
            KafkaEventLog(address), topic_prefix, lambda at, offset: trim(address, at, offset)
        )
    yield made
    for reader in made.opened:
        reader.close()
