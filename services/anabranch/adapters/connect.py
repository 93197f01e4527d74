"""Construction of a service's real ports, which each service's ``__main__`` passes to
``process.frame.main``.
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
"""Number of producers that a process connects in advance: for its results, its boundary log and its
heartbeats.
"""


def connect(kafka: str, redis: str | None) -> tuple[EventLog, Index | None, Clock, Entropy]:
    """Return the log at ``kafka`` (bootstrap address), the index at ``redis`` (URL; None: without),
    and the system's clock and randomness.

    Waits for nothing.
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
    """Return another owner's cluster at ``kafka``, by its name in the pipeline file. It is not
    contacted yet.

    Raises:
        ConfigurationError: the environment's credentials for it are wrong.
    """
    security = security_from_environment(name)
    return KafkaEventLog(kafka, security=security, request_timeout_ms=CLUSTER_REQUEST_MS)


def _index(url: str) -> Index:
    # Imported here: it takes a tenth of a second, and only the manager uses it.
    from anabranch.adapters.redis.index import RedisIndex

    return RedisIndex(url)


def replica_disks(
    folder: Path, pipeline: str, store: str | None, crash_point: Callable[[str], None]
) -> Disks:
    """Open the disks of a node's processes, below ``folder``. ``store``: address of the checkpoint
    store, which other machines reach; None if there is none.

    Raises:
        ConfigurationError: ``store`` is not such an address.
    """
    from anabranch.adapters.disk.checkpoints import ReplicaDisks

    if store is None:
        return ReplicaDisks(folder, crash_point=crash_point)
    # Imported here: it takes a sixth of a second, and only nodes with a store use it.
    from anabranch.adapters.disk.checkpoint_store import stored_replicas

    return ReplicaDisks(folder, crash_point=crash_point, stored=stored_replicas(store, pipeline))


def audit_nonces(path: Path) -> AuditNonces:
    """Open the auditor's numbers in the file ``path``.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    from anabranch.adapters.disk.audit_nonces import NonceFile

    return NonceFile(path)


def schema_registry(url: str) -> SchemaRegistry:
    """Return the schema registry at ``url``. It is not contacted yet."""
    # Imported here: its HTTP client is used only by pipelines with a registry.
    from anabranch.adapters.schema_registry import ConfluentRegistry

    return ConfluentRegistry(url)
