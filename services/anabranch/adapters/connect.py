"""The one place where a service gets its real ports; given to ``runtime.service.main`` by each service's ``__main__``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.redis.index import RedisIndex
from anabranch.adapters.system.clock import SystemClock
from anabranch.adapters.system.entropy import SystemEntropy

if TYPE_CHECKING:
    from anabranch.ports import Clock, Entropy, EventLog, Index


def connect(kafka: str, redis: str | None) -> tuple[EventLog, Index | None, Clock, Entropy]:
    """Kafka at ``kafka`` (bootstrap address), the index at ``redis`` (URL; None: without), the system's clock and randomness.

    Nothing is contacted yet: the first call on a port is.
    """
    index = RedisIndex(redis) if redis is not None else None
    return KafkaEventLog(kafka), index, SystemClock(), SystemEntropy()
