"""The one place where a service gets its real ports; given to ``runtime.service.main`` by
each service's ``__main__``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.system.clock import SystemClock
from anabranch.adapters.system.entropy import SystemEntropy

if TYPE_CHECKING:
    from anabranch.ports import Clock, Entropy, EventLog, Index, SchemaRegistry


def connect(kafka: str, redis: str | None) -> tuple[EventLog, Index | None, Clock, Entropy]:
    """Kafka at ``kafka`` (bootstrap address), the index at ``redis`` (URL; None: without), the
    system's clock and randomness.

    Nothing is contacted yet: the first call on a port is.
    """
    return (
        KafkaEventLog(kafka),
        None if redis is None else _index(redis),
        SystemClock(),
        SystemEntropy(),
    )


def _index(url: str) -> Index:
    from anabranch.adapters.redis.index import (
        RedisIndex,
    )  # a tenth of a second that only the manager has a use for

    return RedisIndex(url)


def schema_registry(url: str) -> SchemaRegistry:
    """The schema registry at ``url``. Nothing is contacted yet."""
    from anabranch.adapters.schema_registry import (
        ConfluentRegistry,
    )  # an HTTP client that only pipelines with a registry have a use for

    return ConfluentRegistry(url)
