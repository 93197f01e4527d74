"""The Spark session of a node: settings that are not optional, here or on a cluster."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from anabranch.adapters.spark import bare_files, callbacks, class_archive, cluster
from anabranch.adapters.spark.settings import Compilers
from anabranch.adapters.spark.source import AnabranchSource
from anabranch.adapters.system.java import find_java
from anabranch.adapters.system.scratch import Scratch
from anabranch.protocol.limits import CHECKPOINT_BATCHES_RETAINED, MIB

_logger = logging.getLogger("anabranch.spark")
_LOG_SETTINGS: Final = Path(__file__).with_name("log4j2.properties")
_PREFIX: Final = "spark.sql.streaming"

DRIVER_RESULT_BYTES: Final = 64 * MIB
"""Results of the tasks of one batch that the driver takes; where there are more, the tasks write
them. The driver's Java holds them several times over.
"""

_SOCKET_NAME: Final = f".{'0' * 36}.sock"
"""As long as the names that Spark and PySpark give to sockets."""
REQUIRED: Final = {
    # 1 silently corrupts state after a rewind: stale snapshots of the abandoned timeline are loaded
    f"{_PREFIX}.stateStore.checkpointFormatVersion": "2",
    f"{_PREFIX}.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    f"{_PREFIX}.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    f"{_PREFIX}.stateStore.maintenanceInterval": "20s",
    f"{_PREFIX}.minBatchesToRetain": str(CHECKPOINT_BATCHES_RETAINED),
    # the default forks a shell command per file where Hadoop's native library is missing
    f"{_PREFIX}.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # each file has Hadoop's sums beside it, by which damage is found (checkpoint_files): Spark's
    # own would be two more files for each
    f"{_PREFIX}.checkpoint.fileChecksum.enabled": "false",
    # batches are exactly the planner's
    f"{_PREFIX}.noDataMicroBatches.enabled": "false",
    f"{_PREFIX}.multipleWatermarkPolicy": "min",
    # without it stop() waits for ever where a batch waits for a broker that is away
    f"{_PREFIX}.stopTimeout": "3s",
    "spark.sql.session.timeZone": "UTC",
    # else a sum that overflows is null, or another number, and not an error; the environment may
    # say so (SPARK_ANSI_SQL_MODE)
    "spark.sql.ansi.enabled": "true",
    "spark.scheduler.mode": "FAIR",
    "spark.driver.maxResultSize": str(DRIVER_RESULT_BYTES),
    "spark.python.daemon.module": "anabranch.adapters.spark.worker_daemon",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.ui.enabled": "false",
    # who else is on the machine reaches Java's ports: with a secret that is made anew for each
    # session they reject him
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

PLANNER_PATH: Final = Path(__file__).with_name("planner_path")
"""Holds what workers import that look which data sources there are: all that is called
``pyspark_...``.
"""

_JAVA_OPTIONS: Final = (
    "-XX:+UseSerialGC -XX:+ExitOnOutOfMemoryError -XX:MetaspaceSize=192m -XX:MaxMetaspaceSize=384m"
    " -XX:ReservedCodeCacheSize=128m -Xss4m -Darrow.enable_null_check_for_get=false"
)
"""Metaspace may grow to what a node loads before Java looks for classes to unload: it would do so
four times until the first results, by full collections. The large stack is for plans whose
expressions are deep, through which Spark goes by recursion. Without memory Java ends: Spark would
go on with whatever thread is left. Spark asks whether a value is null before it gets it: Arrow need
not ask again.
"""

_COMPILERS: Final[dict[Compilers, str]] = {
    "quick": "-XX:TieredStopAtLevel=1",
    "full": "",
}
"""See ``SparkSettings.compilers``."""


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
        name: Of the application.
        master: ``local[2]``: with so many cores, in this process; or a cluster's.
        memory: Heap of the driver, such as ``1g``, and of each executor.
        state_partitions: Shuffle partitions, fixed for the life of the stage's state.
        import_roots: Folders that the workers must find the user's modules in.
        scratch: For the temporary files of Spark, of Java and of whatever they start. Java keeps
            them there until this process ends.
        compilers: See ``SparkSettings.compilers``.
        cores: Of a cluster, that are taken; None: all.
        secret: Of a cluster; None: it has none.
        kafka_clusters: Those of other owners that are read, by name.
        recorded: (home, archive): run from this folder, and let Java write this archive of its
            classes at its end (``class_archive``).
        python: What Spark starts as Python.
        changed: Settings of Spark that are to be other ones, to measure what each does.

    Raises:
        ConfigurationError: there is no Java, or an old one; Spark itself would only say after half
            a minute that Java did not answer. A cluster on other machines has no secret.
        Unavailable: a cluster's master does not answer.
    """
    os.environ["JAVA_HOME"] = str(find_java().home)
    os.environ["PYSPARK_PYTHON"], os.environ["PYSPARK_DRIVER_PYTHON"] = python, sys.executable
    roots = [*import_roots, str(Path(__file__).parents[3]), str(PLANNER_PATH)]
    paths = [*roots, os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(p for p in paths if p)
    os.environ["TZ"] = "UTC"
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    folder = scratch.path
    home, classes = (
        (recorded[0], f'-XX:ArchiveClassesAtExit="{recorded[1]}" ')
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
            "Spark forks a command for each file of a checkpoint: `anabranch classes` gets the jar"
            " that does without"
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
                paths=[path for path in paths if path],
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
    with scratch.for_children():
        session = builder.getOrCreate()
    callbacks.guard(session.sparkContext._gateway)  # noqa: SLF001 - before a query starts the server
    session.dataSource.register(AnabranchSource)
    return session


def session_beside(session: SparkSession) -> SparkSession:
    """Another session of the same application, which reads the streams of a pipeline. Views and
    functions of one are not seen in the other.

    It becomes the active one of the calling thread: by that one Spark looks whether a data source
    is there, and functions find their session.
    """
    beside = session.newSession()
    SparkSession._get_j_spark_session_class(beside._jvm).setActiveSession(beside._jsparkSession)  # noqa: SLF001 - PySpark offers no other way
    beside.dataSource.register(AnabranchSource)
    return beside
