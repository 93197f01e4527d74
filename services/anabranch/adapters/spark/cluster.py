"""What is different where a node's Spark runs its tasks on a cluster.

The node stays one process with one Java, the driver: it plans, appends boundary records and writes
small results. Tasks run in executors, on the machines of Spark's workers. They read blocks from
Kafka there, and write large results from there. What they must find there:
``docs/operations.md``.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from anabranch.adapters.kafka.security import security_from_environment
from anabranch.adapters.spark.machines import EXECUTOR
from anabranch.protocol.errors import ConfigurationError, Unavailable

_STANDALONE: Final = "spark://"
_REACH_S: Final = 5.0
_DEFAULTS: Final = "spark-defaults.conf"


def is_cluster(master: str) -> bool:
    """Whether tasks run outside of the node's process."""
    return master.startswith(_STANDALONE)


def reached(master: str) -> str:
    """The address of this machine by which one of the masters in ``master`` was reached: executors
    connect to it.

    Raises:
        Unavailable: nobody answers. Spark itself would say so after a minute, in a stack trace.
    """
    failures = []
    for address in master.removeprefix(_STANDALONE).split(","):
        host, _, port = address.rpartition(":")
        try:
            with socket.create_connection((host, int(port)), timeout=_REACH_S) as connection:
                return str(connection.getsockname()[0])
        except OSError as error:
            failures.append(f"{address}: {error}")
    raise Unavailable(
        f"Spark's master {master} cannot be reached ({'; '.join(failures)}): start it, or name"
        " another one in resources.NODE.master or ANABRANCH_SPARK_MASTER"
    )


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
    """The settings that Spark needs beside those of every node.

    Puts ``secret`` into a file in ``folder``, where Spark's Java, which starts next, finds it:
    among the settings it would be an argument of Java, which everybody on the machine can read.

    Args:
        master: Of the cluster.
        memory: Heap of each executor.
        cores: That all executors together take; None: all that the cluster has.
        secret: Of the cluster; None: it has none.
        paths: Of Python modules, the same on every machine.
        java_options: Of the executors.
        folder: Of the node alone; it exists.
        kafka_clusters: Those of other owners that its stages read, by name.

    Raises:
        Unavailable: as ``reached``.
        ConfigurationError: it is on other machines, and there is no secret: whoever reaches the
            node's ports could run what he likes. Or the environment holds a secret of Kafka's
            itself and not the file of one: settings are arguments of Java.
    """
    environment: dict[str, str] = {}
    for kafka_cluster in ("", *kafka_clusters):
        environment |= security_from_environment(kafka_cluster).shown_environment()
    environment |= {"PYTHONPATH": os.pathsep.join(paths), "TZ": "UTC", EXECUTOR: "1"}
    driver = reached(master)
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
        # the folder of the sockets is on the machine of the node
        "spark.python.unix.domain.socket.enabled": "false",
        **{f"spark.executorEnv.{name}": value for name, value in environment.items()},
    }
