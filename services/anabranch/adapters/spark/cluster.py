"""Settings and checks for a node whose Spark runs its tasks on a cluster.

The node stays one process with one Java, the driver: it plans, appends boundary records and writes
small results. Tasks run in executors, on the machines of Spark's workers. They read blocks from
Kafka there, and write large results from there. ``docs/operations.md`` lists what must be installed
on those machines.
"""

from __future__ import annotations

import ipaddress
import json
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anabranch.adapters.kafka.security import security_from_environment
from anabranch.adapters.spark.machines import EXECUTOR
from anabranch.protocol.control.executors import ExecutorWatch, WithoutExecutors
from anabranch.protocol.errors import ConfigurationError, EngineEnded, Unavailable

if TYPE_CHECKING:
    from anabranch.ports import Clock

_STANDALONE: Final = "spark://"
_REACH_S: Final = 5.0
"""Timeout for connecting to a master, in seconds."""
_DEFAULTS: Final = "spark-defaults.conf"
_LOOK_EVERY_MS: Final = 1_000
"""Interval between queries for Spark's number of executors, in ms."""
_SILENT_S: Final = 30
"""Time, in seconds, after which the kernel probes the machine of an idle master, then every
``_SILENT_AGAIN_S``.
"""
_SILENT_AGAIN_S: Final = 10
"""Interval between those probes, in seconds."""


def is_cluster(master: str) -> bool:
    """Return whether tasks run outside of the node's process."""
    return master.startswith(_STANDALONE)


def reach_master(master: str) -> str:
    """Connect to one of the masters in ``master`` and return the address of this machine on that
    connection: executors connect to it.

    Raises:
        Unavailable: no master answers. Spark itself would report it after a minute, in a stack
            trace.
    """
    failures = []
    for address, place in _addresses(master):
        try:
            with socket.create_connection(place, timeout=_REACH_S) as connection:
                return str(connection.getsockname()[0])
        except OSError as error:
            failures.append(f"{address}: {error}")
    raise Unavailable(
        f"Spark's master {master} cannot be reached ({'; '.join(failures)}): start it, or name"
        " another one in resources.NODE.master or ANABRANCH_SPARK_MASTER"
    )


def _addresses(master: str) -> Iterator[tuple[str, tuple[str, int]]]:
    """Yield each address in ``master``, as text and as (host, port)."""
    for address in master.removeprefix(_STANDALONE).split(","):
        host, _, port = address.rpartition(":")
        yield address, (host, int(port))


class ExecutorMonitor:
    """Monitor of a node's executors (``protocol.control.executors``).

    Spark does not report that a master has died. So this class keeps an idle connection to each
    master open: it ends with the master.
    """

    def __init__(
        self, master: str, memory: str, clock: Clock, executors: Callable[[], int]
    ) -> None:
        """Start to monitor a node that has just registered with one of the masters in ``master``.
        ``memory``: heap of each executor. ``executors``: returns their current number.
        """
        self._master, self._memory = master, memory
        self._clock, self._executors = clock, executors
        self._watch = ExecutorWatch(clock.monotonic_ms())
        self._next_ms = 0
        self._waiting_for: str | None = None
        self._connections: list[socket.socket] = []
        for _, place in _addresses(master):
            try:
                connection = socket.create_connection(place, timeout=_REACH_S)
            except OSError:
                continue  # the node needs only one of several masters
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _SILENT_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _SILENT_AGAIN_S)
            connection.setblocking(False)
            self._connections.append(connection)

    def poll(self) -> str | None:
        """Return what the node waits for, for people; None if nothing.

        Raises:
            EngineEnded: the node has no executor, and the master that it registered with has died.
        """
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._next_ms:
            return self._waiting_for
        self._next_ms = now_ms + _LOOK_EVERY_MS
        gone = not self._connections or any(map(_has_ended, self._connections))
        self._waiting_for = None
        match self._watch.look(now_ms, self._executors(), master_has_gone=gone):
            case WithoutExecutors.END:
                raise EngineEnded(
                    f"Spark's master {self._master} has gone, and with it the node's executors:"
                    " start the master, if it is not there; the node registers again when it is"
                    " started again",
                    (),
                )
            case WithoutExecutors.WAIT:
                self._waiting_for = (
                    f"an executor: Spark's master {self._master} gives this node none; start a"
                    f" worker that has a core and {self._memory} of memory to spare, or stop what"
                    " holds them"
                )
        return self._waiting_for

    def close(self) -> None:
        """Close the connections. Idempotent."""
        for connection in self._connections:
            connection.close()


def check_shared(checkpoint: Path) -> None:
    """Check that the node sees the state that the executors keep in ``checkpoint``. Called after
    the first batch of a query and before its results count. If each machine kept its share of the
    state to itself, nothing would fail until the next start, and then all state would be lost.

    Raises:
        ConfigurationError: the node does not see the state.
    """
    for operator in sorted((checkpoint / "state").glob("*")):
        unseen = [
            str(partition)
            for partition in range(_partitions_of(operator))
            if not _has_state(operator / str(partition))
        ]
        if unseen:
            raise ConfigurationError(
                f"executors keep state where this node does not see it: {operator} has nothing of"
                f" partitions {', '.join(unseen)}: put --state-dir on a file system that the node"
                " and all workers of the cluster share, at the same path"
            )


def _partitions_of(operator: Path) -> int:
    """Return the number of state partitions of ``operator``, from the metadata that Spark wrote on
    this machine: ``v1``, then JSON. 0 if it states none.
    """
    found = 0
    for path in (operator / "_metadata").rglob("*"):
        if path.is_file() and not path.name.startswith("."):
            _, _, text = path.read_text(encoding="utf-8").partition("\n")
            stores = json.loads(text).get("stateStoreInfo", [])
            found = max([found, *(int(store.get("numPartitions", 0)) for store in stores)])
    return found


def _has_state(partition: Path) -> bool:
    """Return whether ``partition`` has files besides its schema, which Spark writes on the driver's
    machine.
    """
    return any(
        path.is_file() and "_metadata" not in path.relative_to(partition).parts
        for path in partition.rglob("*")
    )


def _has_ended(connection: socket.socket) -> bool:
    """Return whether the other end closed ``connection``."""
    try:
        return connection.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def settings(
    master: str,
    *,
    memory: str,
    cores: int | None,
    secret: str | None,
    paths: Sequence[str],
    java_options: str,
    folder: Path,
    kafka_clusters: Sequence[str] = (),
) -> dict[str, str]:
    """Return the additional settings of a Spark on a cluster.

    Writes ``secret`` into a file in ``folder``, where Spark's Java, which starts next, finds it. As
    a setting it would be an argument of Java, which every user of the machine can read.

    Args:
        master: The cluster's masters.
        memory: Heap of each executor.
        cores: Number of cores of all executors together; None for all of the cluster.
        secret: The cluster's secret; None if it has none.
        paths: Folders of Python modules, the same on every machine.
        java_options: Options of the executors' Java.
        folder: An existing folder that belongs to this node alone.
        kafka_clusters: Names of other owners' Kafka clusters that the node's stages read.

    Raises:
        Unavailable: no master answers.
        ConfigurationError: the cluster is on other machines and there is no secret: any process
            that reaches the node's ports could run code. Or the environment holds a Kafka secret
            itself instead of its file's name: settings are arguments of Java.
    """
    environment: dict[str, str] = {}
    for kafka_cluster in ("", *kafka_clusters):
        environment |= security_from_environment(kafka_cluster).shown_environment()
    environment |= {"PYTHONPATH": os.pathsep.join(paths), "TZ": "UTC", EXECUTOR: "1"}
    driver = reach_master(master)
    if secret is not None:
        file = folder / _DEFAULTS
        file.touch(mode=0o600)
        escaped = secret.replace("\\", "\\\\")
        file.write_text(f"spark.authenticate.secret={escaped}\n")
        os.environ["SPARK_CONF_DIR"] = str(folder)
    elif not ipaddress.ip_address(driver).is_loopback:
        raise ConfigurationError(
            f"Spark's master {master} is on another machine: give the cluster a secret"
            " (spark.authenticate.secret of its master and workers) and name its file in"
            " ANABRANCH_SPARK_SECRET_FILE"
        )
    return {
        "spark.driver.host": driver,
        "spark.driver.bindAddress": driver,
        "spark.executor.memory": memory,
        "spark.executor.extraJavaOptions": java_options,
        **({} if cores is None else {"spark.cores.max": str(cores)}),
        "spark.authenticate": "false" if secret is None else "true",
        "spark.network.crypto.enabled": "false" if secret is None else "true",
        # The sockets' folder is on the node's machine: executors elsewhere cannot reach it.
        "spark.python.unix.domain.socket.enabled": "false",
        **{f"spark.executorEnv.{name}": value for name, value in environment.items()},
    }
