"""The one place where a service gets its real ports; given to ``process.frame.main`` by
each service's ``__main__``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.kafka.security import security_from_environment
from anabranch.adapters.system.clock import SystemClock
from anabranch.adapters.system.entropy import SystemEntropy
from anabranch.protocol.limits import CLUSTER_REQUEST_MS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from anabranch.ports import AuditNonces, Clock, Disks, Entropy, EventLog, Index, SchemaRegistry

_WRITERS_AHEAD: Final = 3
"""A process starts with one for what it makes, one for its boundary log, one for its heartbeats."""


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
    return KafkaEventLog(kafka, security=security, request_timeout_ms=CLUSTER_REQUEST_MS)


def _index(url: str) -> Index:
    from anabranch.adapters.redis.index import (
        RedisIndex,
    )  # a tenth of a second that only the manager has a use for

    return RedisIndex(url)


def replica_disks(
    folder: Path, pipeline: str, store: str | None, crash_point: Callable[[str], None]
) -> Disks:
    """The disks of a node's processes, below ``folder``. ``store``: of checkpoints, which other
    machines reach; None: there is none.

    Raises:
        ConfigurationError: it is no such address.
    """
    from anabranch.adapters.disk.checkpoints import ReplicaDisks

    if store is None:
        return ReplicaDisks(folder, crash_point=crash_point)
    from anabranch.adapters.disk.checkpoint_store import (
        stored_replicas,
    )  # a sixth of a second that only nodes with a store have a use for

    return ReplicaDisks(folder, crash_point=crash_point, stored=stored_replicas(store, pipeline))


def audit_nonces(path: Path) -> AuditNonces:
    """What the auditor keeps in the file ``path``.

    Raises:
        ConfigurationError: it cannot be read.
    """
    from anabranch.adapters.disk.audit_nonces import NonceFile

    return NonceFile(path)


def schema_registry(url: str) -> SchemaRegistry:
    """The schema registry at ``url``. Nothing is contacted yet."""
    from anabranch.adapters.schema_registry import (
        ConfluentRegistry,
    )  # an HTTP client that only pipelines with a registry have a use for

    return ConfluentRegistry(url)
