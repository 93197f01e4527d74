"""The most that a data source in Java could bring that hands Spark columns.

``python -m benchmarks.columnar_source [--rows N] [--rounds N] [--compilers quick|full]``

The same two queries over the same rows, in turns: read by a data source in Python, which gives
Spark Arrow batches, as that of stages does, and by the columnar reader that Spark has, of Parquet
files without compression. What is printed is processor time, of Spark's Java and of all its
workers, per million rows. Kafka, blocks and state are in neither.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F  # noqa: N812 - the customary name
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from anabranch.adapters.spark.session import start_session
from anabranch.adapters.system.scratch import Scratch
from benchmarks.processes import tree

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROOT: Final = Path(__file__).parents[1]
_PARTS: Final = 2
_BATCH_ROWS: Final = 10_000
_COLUMNS: Final = "event_time timestamp, key long, value double, name string"
_WARM_ROUNDS: Final = 4
_FORMAT: Final = "arrow_files"


class _Part(InputPartition):  # type: ignore[misc]
    def __init__(self, path: str) -> None:
        self.path = path


class _Reader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, folder: str) -> None:
        self._folder = folder

    def partitions(self) -> list[InputPartition]:
        return [_Part(f"{self._folder}/{part}.arrow") for part in range(_PARTS)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, _Part)  # noqa: S101
        with pa.memory_map(partition.path) as file:
            yield from pa.ipc.open_stream(file)


class _Source(DataSource):  # type: ignore[misc]
    @classmethod
    def name(cls) -> str:
        return _FORMAT

    def schema(self) -> str:
        return _COLUMNS

    def reader(self, schema: Any) -> DataSourceReader:
        del schema
        return _Reader(self.options["path"])


def _write(folder: Path, rows: int) -> None:
    random = np.random.default_rng(1)
    table = pa.table(
        {
            "event_time": pa.array(np.arange(rows) * 50_000, pa.timestamp("us", "UTC")),
            "key": random.integers(0, 3, rows),
            "value": random.random(rows),
            "name": np.array([f"c{number % 50:02d}" for number in range(rows)]),
        }
    )
    for part in range(_PARTS):
        mine = table.slice(part * rows // _PARTS, rows // _PARTS)
        pq.write_table(mine, folder / f"{part}.parquet", compression="NONE")
        with pa.ipc.new_stream(str(folder / f"{part}.arrow"), mine.schema) as writer:
            writer.write_table(mine, max_chunksize=_BATCH_ROWS)


def _windowed(rows: DataFrame) -> DataFrame:
    windows = rows.groupBy(F.window("event_time", "10 seconds"), "key")
    return windows.agg(F.count("*").alias("n"), F.avg("value").alias("mean"))


def _stateless(rows: DataFrame) -> DataFrame:
    kept = rows.where("value > 0.5")
    return kept.select("event_time", "key", "name", (F.col("value") * 2).alias("twice"))


_QUERIES: Final[dict[str, Callable[[DataFrame], DataFrame]]] = {
    "windowed": _windowed,
    "stateless": _stateless,
}


def _measure(
    session: SparkSession, folder: Path, rounds: int
) -> dict[tuple[str, str], list[float]]:
    """CPU seconds of each round, by query and source."""
    session.dataSource.register(_Source)
    sources: dict[str, Callable[[], DataFrame]] = {
        "Python": lambda: session.read.format(_FORMAT).load(str(folder)),
        "columns": lambda: session.read.parquet(
            *(str(folder / f"{part}.parquet") for part in range(_PARTS))
        ),
    }
    found: dict[tuple[str, str], list[float]] = {}
    for number in range(_WARM_ROUNDS + rounds):
        for query, of in _QUERIES.items():
            for source, read in sources.items():
                before_s = sum(tree(os.getpid()).values())
                of(read()).write.format("noop").mode("overwrite").save()
                used_s = sum(tree(os.getpid()).values()) - before_s
                if number >= _WARM_ROUNDS:
                    found.setdefault((query, source), []).append(used_s)
    return found


def main() -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(prog="columnar_source")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--compilers", choices=("quick", "full"), default="quick")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="anabranch-bench-") as name:
        folder = Path(name)
        _write(folder, given.rows)
        session = start_session(
            "bench-columnar",
            master=f"local[{_PARTS}]",
            memory="2g",
            state_partitions=1,
            import_roots=[str(_ROOT)],
            scratch=Scratch(folder / "scratch"),
            compilers=given.compilers,
        )
        try:
            found = _measure(session, folder, given.rounds)
        finally:
            session.stop()
    for (query, source), used_s in found.items():
        least, middle, most = (
            f"{1_000_000 * of(used_s) / given.rows:.2f}" for of in (min, statistics.median, max)
        )
        print(f"{query:10} {source:8} {least} / {middle} / {most} CPU s per million rows")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
