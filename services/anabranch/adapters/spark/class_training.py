"""Query that makes Java load the classes that stages need. ``class_archive`` starts this module as
a process of its own.

It uses a Python source, a watermark, a window with state in RocksDB, and both ways of writing a
batch's results: by the driver and by tasks.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the customary name
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from anabranch.adapters.spark.session import start_session
from anabranch.adapters.system.progress import printed
from anabranch.adapters.system.scratch import Scratch

_FORMAT: Final = "anabranch-training"
_BATCHES: Final = 4
"""Number of a query's last batch; the first is 0."""
_STEPS: Final = 2 * (_BATCHES + 1) + 2
"""Steps reported to the user: Spark's start, the batches of two queries, and the dump of the
archive.
"""
_EXIT_S: Final = 120
"""Timeout for Java's exit, in seconds: it writes the archive then."""


class TrainingSource(DataSource):
    """Data source of two rows in each of two splits, without end."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return _FORMAT

    def schema(self) -> str:
        """Return the columns of the rows."""
        return "key int, note string, event_time timestamp"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's names
        """Return the reader."""
        return TrainingReader()


class TrainingReader(DataSourceStreamReader):
    """Reader of the source. Its offsets are numbers of batches."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the first offset."""
        return {"batch": 0}

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: ARG002, N802 - Spark's names
        """Return the offset of the next batch."""
        return {"batch": start["batch"] + 1}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:  # noqa: ARG002 - Spark's names
        """Return two splits."""
        return [InputPartition(end["batch"]), InputPartition(end["batch"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield two rows."""
        event_times = pa.array([partition.value * 10_000_000] * 2, pa.timestamp("us", tz="UTC"))
        arrays = [pa.array([1, 2], pa.int32()), pa.array(["a", None]), event_times]
        yield pa.RecordBatch.from_arrays(arrays, names=["key", "note", "event_time"])


def _unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield ``batches`` unchanged: the query then passes rows through Python."""
    yield from batches


def train(home: str, archive: str, scratch_folder: str) -> int:
    """Run the query with Spark in ``home``, and let Java write ``archive`` when it exits. Return
    Java's exit code.
    """
    progress, done = printed(), count()

    def step() -> None:
        """Report one more step."""
        progress("steps", next(done), _STEPS)

    step()
    scratch = Scratch(Path(scratch_folder) / "scratch")
    session = start_session(
        "training",
        master="local[2]",
        memory="1g",
        state_partitions=1,
        import_roots=[],
        scratch=scratch,
        recorded=(Path(home), Path(archive)),
    )
    step()
    session.dataSource.register(TrainingSource)
    frame = session.readStream.format(_FORMAT).load().withWatermark("event_time", "0 seconds")
    windows = frame.groupBy(F.window("event_time", "10 seconds").alias("window"), "key").agg(
        F.count("*").alias("rows"), F.max("note").alias("note")
    )
    plain = frame.where("key % 2 = 1").select(
        (F.col("key").cast("long") * 3).alias("key"), "event_time"
    )
    for name, query in (
        ("windows", windows.select("key", "rows", "note", F.col("window.end").alias("event_time"))),
        ("plain", plain),
    ):
        enough = threading.Event()

        def run(batch: DataFrame, number: int, enough: threading.Event = enough) -> None:
            """Collect a batch by the driver, every second one through tasks."""
            (batch if number % 2 else batch.mapInArrow(_unchanged, batch.schema)).toArrow()
            if number <= _BATCHES:
                step()
            if number >= _BATCHES:
                enough.set()

        writer = (
            query.writeStream.foreachBatch(run)
            .outputMode("append")
            .option("checkpointLocation", str(scratch.path / name))
        )
        running = writer.start()
        # ``awaitTermination`` raises the error of a failed query.
        while not enough.is_set() and not running.awaitTermination(1):
            pass
        running.stop()
    java = session._sc._gateway.proc  # noqa: SLF001 - no other way to see its end
    session.stop()
    java.stdin.close()  # Java ends, and writes the archive
    return int(java.wait(_EXIT_S))
