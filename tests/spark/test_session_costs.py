"""Tests that the settings which keep a small batch cheap take effect, and that damage to a
checkpoint is still found.
"""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the customary name

from anabranch.adapters.disk.spark_checkpoint_files import numbered
from anabranch.adapters.spark import bare_files
from anabranch.adapters.spark.engine import SparkQuery
from anabranch.adapters.spark.session import PLANNER_PATH
from anabranch.adapters.system.clock import SystemClock
from harness.spark_sessions import small_session
from harness.waiting import wait_until

pytestmark = pytest.mark.integration

BATCHES = 6
IMPORTED_MIN = 10_000
"""Objects that pyarrow and PySpark bring with them, at least."""


def end_java() -> None:
    """End a Java that another file's tests have started: it has chosen its class path and how it
    writes files, and these tests try how a session starts.
    """
    context: Any = SparkContext
    if context._gateway is not None:
        java = context._gateway.proc
        # it ends by this; the gateway's own shutdown may wait for ever for a stream that is in use
        java.stdin.close()
        java.wait(60)
        context._gateway = context._jvm = None


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    bare_files.fetch()
    end_java()
    with small_session(tmp_path_factory.mktemp("scratch")) as session:
        session.conf.set("spark.sql.streaming.stateStore.maintenanceInterval", "200ms")
        session.conf.set("spark.sql.streaming.stateStore.minDeltasForSnapshot", "2")
        yield session


def test_a_program_started_later_does_not_find_the_modules_of_the_session(
    session: SparkSession,
) -> None:
    """The path of a program begins with these folders: another pipeline's module of the same name
    would be imported.
    """
    assert session.version
    assert str(PLANNER_PATH) not in os.environ.get("PYTHONPATH", "").split(os.pathsep)


def run_windows(
    session: SparkSession,
    checkpoint: Path,
    is_enough: Callable[[], bool] | None = None,
) -> None:
    """Run a query with state until ``is_enough``, or for some batches."""
    is_enough = is_enough or (lambda: len(numbered(checkpoint / "commits")) >= BATCHES)
    rows = session.readStream.format("rate").option("rowsPerSecond", 20).load()
    counts = (
        rows.withWatermark("timestamp", "0 seconds")
        .groupBy(F.window("timestamp", "1 second"))
        .count()
    )
    query = (
        counts.writeStream.format("noop")
        .outputMode("append")
        .option("checkpointLocation", str(checkpoint))
        .start()
    )
    try:
        wait_until(lambda: is_enough() or query.exception() is not None, 120, "batches")
        assert query.exception() is None
    finally:
        SparkQuery(
            lambda: query, "windows", SystemClock(), lambda error: error, lambda: None
        ).stop()


def commands_while(session: SparkSession, run: Any, folder: Path) -> list[str]:
    """Return the commands that Java starts meanwhile, as its flight recorder shows them."""
    java: Any = session._jvm
    recording = java.jdk.jfr.Recording()
    recording.enable("jdk.ProcessStart")
    recording.start()
    run()
    recording.stop()
    file = java.java.io.File(str(folder / "recording.jfr")).toPath()
    recording.dump(file)
    return [
        event.getString("command")
        for event in java.jdk.jfr.consumer.RecordingFile.readAllEvents(file)
    ]


def test_no_command_is_forked_for_a_file_of_a_checkpoint(
    session: SparkSession, tmp_path: Path
) -> None:
    started = commands_while(session, lambda: run_windows(session, tmp_path / "c"), tmp_path)
    assert [command for command in started if command.startswith("chmod")] == []


def test_each_file_of_a_checkpoint_has_its_sums(session: SparkSession, tmp_path: Path) -> None:
    """The checksums let ``checkpoint_files`` find damage after a power loss."""
    run_windows(session, tmp_path)
    made = [
        path
        for kind in ("offsets/*", "commits/*", "state/**/*.changelog")
        for path in tmp_path.glob(kind)
        if path.name[0] != "."
    ]
    assert len(made) >= 3 * BATCHES - 1
    assert [path for path in made if not (path.parent / f".{path.name}.crc").exists()] == []
    assert list(tmp_path.glob("**/*[!.]*.changelog.crc.crc")) == [], "Spark's own are not written"


def test_a_query_links_the_files_of_its_state_and_changes_none(
    session: SparkSession, tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    run_windows(session, first, lambda: any(first.glob("state/0/0/*.zip")))
    shutil.copytree(first, second)
    files = {path: path.read_bytes() for path in second.glob("state/0/0/SSTs/[!.]*")}
    last = max(numbered(second / "commits"))
    linked: set[Path] = set()

    def has_loaded() -> bool:
        linked.update(path for path in files if path.stat().st_nlink > 1)
        return max(numbered(second / "commits")) > last

    run_windows(session, second, has_loaded)
    assert linked
    assert {path: path.read_bytes() for path in files} == files


def test_a_file_that_cannot_be_linked_is_copied(session: SparkSession, tmp_path: Path) -> None:
    java: Any = session
    hadoop = java._jvm.org.apache.hadoop.fs
    files = hadoop.FileSystem.getLocal(java._jsc.hadoopConfiguration())
    source, target = tmp_path / "SSTs" / "1.sst", tmp_path / "1.sst"
    source.parent.mkdir()
    source.write_bytes(b"content")
    target.write_bytes(b"left by another")
    files.copyToLocalFile(hadoop.Path(source.as_uri()), hadoop.Path(target.as_uri()))
    assert target.read_bytes() == b"content"
    assert source.stat().st_nlink == 1


def test_a_setting_of_hadoop_does_not_carry_the_name_of_its_file(session: SparkSession) -> None:
    java: Any = session
    configuration = java._jsparkSession.sessionState().newHadoopConf()
    assert configuration.get("fs.s3a.impl").endswith("S3AFileSystem"), "the defaults are there"
    assert configuration.getPropertySources("fs.s3a.impl") is None


def test_a_worker_looks_for_garbage_among_what_tasks_made_only(session: SparkSession) -> None:
    def frozen(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"frozen": [gc.get_freeze_count()]})

    def counts(frame: DataFrame) -> list[int]:
        return [row.frozen for row in frame.mapInArrow(frozen, "frozen long").collect()]

    ones = session.range(0, 1, 1, 1)
    counts(ones)
    assert min(counts(ones)) > IMPORTED_MIN
