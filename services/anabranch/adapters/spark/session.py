"""Spark session of a node, with the settings that are not optional, here or on a cluster."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from anabranch.adapters.spark import (
    bare_files,
    callbacks,
    class_archive,
    cluster,
    linked_state,
)
from anabranch.adapters.spark.settings import Compilers
from anabranch.adapters.spark.source import AnabranchSource
from anabranch.adapters.system.java import find_java
from anabranch.adapters.system.java_archive import options_to_write
from anabranch.adapters.system.scratch import Scratch
from anabranch.protocol.limits import CHECKPOINT_BATCHES_RETAINED, MIB

_logger = logging.getLogger("anabranch.spark")
_LOG_SETTINGS: Final = Path(__file__).with_name("log4j2.properties")
"""Configuration of Java's logging."""
_PREFIX: Final = "spark.sql.streaming"

DRIVER_RESULT_BYTES: Final = 64 * MIB
"""Maximum size of the results that the tasks of one batch send to the driver, in bytes; if there
are more, the tasks write them. The driver's Java holds them several times over.
"""

_SOCKET_NAME: Final = f".{'0' * 36}.sock"
"""File name as long as the longest that Spark and PySpark give to sockets: a socket's path has a
maximum length.
"""
REQUIRED: Final = {
    # 1 silently corrupts state after a rewind: stale snapshots of the abandoned timeline are loaded
    f"{_PREFIX}.stateStore.checkpointFormatVersion": "2",
    f"{_PREFIX}.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    f"{_PREFIX}.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    f"{_PREFIX}.stateStore.maintenanceInterval": "20s",
    f"{_PREFIX}.minBatchesToRetain": str(CHECKPOINT_BATCHES_RETAINED),
    # the default forks a shell command per file if Hadoop's native library is missing
    f"{_PREFIX}.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # Hadoop's checksums beside each file show damage (checkpoint_files): Spark's own would be two
    # more files for each
    f"{_PREFIX}.checkpoint.fileChecksum.enabled": "false",
    # every batch is one that the planner planned
    f"{_PREFIX}.noDataMicroBatches.enabled": "false",
    f"{_PREFIX}.multipleWatermarkPolicy": "min",
    # without it stop() blocks for ever while a batch waits for an unreachable broker
    f"{_PREFIX}.stopTimeout": "3s",
    "spark.sql.session.timeZone": "UTC",
    # else a sum that overflows is null or wrong, and not an error; SPARK_ANSI_SQL_MODE in the
    # environment may turn it off
    "spark.sql.ansi.enabled": "true",
    "spark.scheduler.mode": "FAIR",
    "spark.driver.maxResultSize": str(DRIVER_RESULT_BYTES),
    "spark.python.daemon.module": "anabranch.adapters.spark.worker_daemon",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.ui.enabled": "false",
    # every user of the machine can reach Java's ports: with a secret, new for each session, they
    # reject connections of others
    "spark.authenticate": "true",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.cache.maxEntries": "1000",
    "spark.cleaner.periodicGC.interval": "5min",
    f"{_PREFIX}.metricsEnabled": "false",
    f"{_PREFIX}.numRecentProgressUpdates": "4",
    "spark.sql.ui.retainedExecutions": "2",
    "spark.ui.retainedJobs": "4",
    "spark.ui.retainedStages": "4",
    "spark.ui.retainedTasks": "20",
    "spark.log.level": "ERROR",
}
"""Settings of Spark that every stage depends on."""

PLANNER_PATH: Final = Path(__file__).with_name("planner_path")
"""Folder on the path of the workers that look for data sources: they import every module there that
is named ``pyspark_...``.
"""

_JAVA_OPTIONS: Final = (
    "-XX:+UseSerialGC -XX:+ExitOnOutOfMemoryError -XX:MetaspaceSize=192m -XX:MaxMetaspaceSize=384m"
    " -XX:ReservedCodeCacheSize=128m -Xss4m -Darrow.enable_null_check_for_get=false"
)
"""Options of Java for the driver and the executors. Metaspace may grow to what a node loads before
Java unloads classes: it would do so four times before the first results, by full collections. The
large stack is for plans with deep expressions, through which Spark recurses. Out of memory ends
Java: Spark would continue with the remaining threads. Spark checks for null before it reads a
value, so Arrow need not check again.
"""

_QUERY_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Loggers to which PySpark writes each error about a query as JSON with Java's stack trace and the
whole plan. The code that builds the query gets the same error and reports it.
"""

_COMPILERS: Final[dict[Compilers, str]] = {
    "quick": "-XX:TieredStopAtLevel=1",
    "full": "",
}
"""Options of Java for each value of ``SparkSettings.compilers``."""


def start_session(
    name: str,
    *,
    master: str,
    memory: str,
    state_partitions: int,
    import_roots: list[str],
    scratch: Scratch,
    compilers: Compilers = "quick",
    cores: int | None = None,
    secret: str | None = None,
    kafka_clusters: Sequence[str] = (),
    recorded: tuple[Path, Path] | None = None,
    python: str = sys.executable,
    changed: Mapping[str, str] | None = None,
) -> SparkSession:
    """Start Spark in this process.

    Args:
        name: The application's name.
        master: ``local[2]`` for that number of cores in this process, or a cluster's address.
        memory: Heap of the driver, such as ``1g``, and of each executor.
        state_partitions: Shuffle partitions, fixed for the life of the stage's state.
        import_roots: Folders in which the workers find the user's modules.
        scratch: Folder for temporary files of Spark, Java and their children, until this process
            ends.
        compilers: See ``SparkSettings.compilers``.
        cores: Number of cores to take of a cluster; None for all.
        secret: Secret of a cluster; None if it has none.
        kafka_clusters: Names of other owners' Kafka clusters that are read.
        recorded: (home, archive): run from this folder, and let Java write this archive of its
            classes at its end (``class_archive``).
        python: Program that Spark starts as Python.
        changed: Settings of Spark to override, to measure the effect of each.

    Raises:
        ConfigurationError: there is no Java, or an old one: Spark itself would report after half a
            minute that Java did not answer. Or a cluster on other machines has no secret.
        Unavailable: the cluster's master does not answer.
    """
    os.environ["JAVA_HOME"] = str(find_java().home)
    os.environ["PYSPARK_PYTHON"], os.environ["PYSPARK_DRIVER_PYTHON"] = python, sys.executable
    roots = [*import_roots, str(Path(__file__).parents[3]), str(PLANNER_PATH)]
    paths = [path for path in [*roots, os.environ.get("PYTHONPATH", "")] if path]
    os.environ["TZ"] = "UTC"
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    folder = scratch.path
    home, classes = (
        (recorded[0], shlex.join(options_to_write(find_java(), recorded[1])) + " ")
        if recorded
        else class_archive.home_and_options(folder)
    )
    os.environ["SPARK_HOME"] = str(home)
    builder = SparkSession.builder.appName(name).master(master)
    options = (
        f"{classes}{_COMPILERS[compilers]} {_JAVA_OPTIONS}"
        f' "-Dlog4j2.configurationFile={_LOG_SETTINGS}" "-Djava.io.tmpdir={folder}"'
    )
    spread = cluster.is_cluster(master)
    files = {} if spread else bare_files.settings()  # executors do not have the jar
    if not files and not spread:
        _logger.warning(
            "Spark forks a command for each file of a checkpoint: `anabranch classes` downloads a"
            " jar that avoids it"
        )
    settings = REQUIRED | {
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": options,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": str(state_partitions),
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        **files,
        **(
            cluster.settings(
                master,
                memory=memory,
                cores=cores,
                secret=secret,
                paths=paths,
                java_options=f"{_COMPILERS[compilers]} {_JAVA_OPTIONS}",
                folder=folder,
                kafka_clusters=kafka_clusters,
            )
            if spread
            else {}
        ),
        **(changed or {}),
        "spark.python.unix.domain.socket.dir": str(Path(scratch.socket_path(_SOCKET_NAME)).parent),
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    with scratch.for_children(), _python_path_of_children(paths):
        session = builder.getOrCreate()
    for complaints in _QUERY_LOGGERS:
        PySparkLogger.getLogger(complaints).disabled = True
    callbacks.guard(session.sparkContext._gateway)  # noqa: SLF001 - before a query starts the server
    session.dataSource.register(AnabranchSource)
    _forget_where_settings_are_from(session)
    if not spread:  # executors do not have the class
        linked_state.install(session)
    return session


def _forget_where_settings_are_from(session: SparkSession) -> None:
    """Make Hadoop's configuration cheaper to serialize, which Spark does for each stateful operator
    of each batch.

    Of each of its thousand settings it keeps the file that it is from, and compresses that name by
    itself: more than half of the time. Only Hadoop's own logs would show the names.
    """
    configuration = session.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 - PySpark offers no other way
    files = configuration.getClass().getDeclaredField("updatingResource")
    files.setAccessible(True)
    files.get(configuration).clear()


@contextlib.contextmanager
def _python_path_of_children(paths: Sequence[str]) -> Iterator[None]:
    """Let programs that are started within this context search ``paths`` for Python modules.

    Java keeps its environment and hands it to all workers. Programs that this process starts later
    must not find the modules of this pipeline before their own.
    """
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def session_beside(session: SparkSession) -> SparkSession:
    """Create another session of the same application, for the streams of a pipeline. Neither
    session sees the other's views and functions.

    It becomes the active session of the calling thread: Spark looks there for data sources, and
    functions find their session by it.
    """
    beside = session.newSession()
    SparkSession._get_j_spark_session_class(beside._jvm).setActiveSession(beside._jsparkSession)  # noqa: SLF001 - PySpark offers no other way
    beside.dataSource.register(AnabranchSource)
    return beside
