"""The one place where a service gets its real ports; given to ``runtime.service.main`` by
each service's ``__main__``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.kafka.security import security_from_environment
from anabranch.adapters.system.clock import SystemClock
from anabranch.adapters.system.entropy import SystemEntropy
from anabranch.protocol.limits import CLUSTER_ASKED_MS

if TYPE_CHECKING:
    from anabranch.ports import Clock, Entropy, EventLog, Index, SchemaRegistry

_WRITERS_AHEAD: Final = 3
"""At its start a process needs one for what it makes, one for its boundary log, one for its heartbeats."""


def connect(kafka: str, redis: str | None) -> tuple[EventLog, Index | None, Clock, Entropy]:
    """Kafka at ``kafka`` (bootstrap address), the index at ``redis`` (URL; None: without), the
    system's clock and randomness.

    Nothing is waited for.
    """
    log = KafkaEventLog(kafka)
    log.open_ahead(_WRITERS_AHEAD)
    return (
        log,
        None if redis is None else _index(redis),
        SystemClock(),
        SystemEntropy(),
    )


def other_cluster(name: str, kafka: str) -> EventLog:
    """The cluster of another owner at ``kafka``, which the pipeline file names so. Nothing is
    contacted yet.

    Raises:
        ConfigurationError: the environment says something wrong of who reads there.
    """
    security = security_from_environment(name)
    return KafkaEventLog(kafka, security=security, request_timeout_ms=CLUSTER_ASKED_MS)


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
