"""Cost of a row to a shard of a stage: of reading it from a real broker, and of taking it to Spark.

``python -m benchmarks.shard_reading [--rows N] [--rounds N]``

A reader of a stage reads the same blocks again and again, for a batch query in place of a
streaming one: there is no state and no result stream. Of 1, 2 and 4 shards one runs alone, as it
is (its reader drops the rows of other shards) and as it was until 2026-11-29 (its query drops
them), in turns. What is printed is the processor time of Spark's Java and its workers, in
microseconds per row of the *input*: least and median of the rounds. The first lines are the reader
alone, in a process without Spark.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - the customary name
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.spark import reading
from anabranch.adapters.spark.session import start_session
from anabranch.adapters.spark.source_options import SourceOptions
from anabranch.adapters.system.entropy import SystemEntropy
from anabranch.adapters.system.scratch import Scratch
from anabranch.codec.batch_slices import slices
from anabranch.codec.blocks import schema_text
from anabranch.codec.catalog import TopicSettings
from anabranch.codec.part_lists import parts_from_json, parts_to_json
from anabranch.streams.block_writer import BlockWriter
from benchmarks.jobs.bench_jobs import stateless, windowed
from benchmarks.pinned_shards import broker
from benchmarks.processes import tree

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from anabranch.protocol.log.records import Part

_ROOT: Final = Path(__file__).parents[1]
_FORMAT: Final = "shard_blocks"
_TOPIC: Final = "bench.readings.blocks"
_KEY: Final = ("region", "site", "device")
_BUCKET_MS: Final = 250
_BUCKET_ROWS: Final = 2_500
_PARTITIONS: Final = 4
_WARM_ROUNDS: Final = 2
_FUNCTIONS: Final[dict[str, Callable[[DataFrame], DataFrame]]] = {
    "windowed": windowed,
    "stateless": stateless,
}
_USED: Final = {
    "windowed": (*_KEY, "value"),
    "stateless": ("time", "seq", *_KEY, "value"),
}
"""Columns that the functions use, and the key."""


class _Reader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, options: SourceOptions, parts: tuple[Part, ...]) -> None:
        self._options, self._parts = options, parts

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        del partition
        return reading.rows(self._options, [("readings", "0", self._parts)])


class _Source(DataSource):  # type: ignore[misc]
    @classmethod
    def name(cls) -> str:
        return _FORMAT

    def schema(self) -> Any:
        return from_arrow_schema(reading.arrow_schema(self._config()))

    def reader(self, schema: Any) -> DataSourceReader:
        del schema
        return _Reader(self._config(), parts_from_json(json.loads(self.options["parts"])))

    def _config(self) -> SourceOptions:
        return SourceOptions.from_json(self.options["config"])


def _rows(bucket: int) -> pa.Table:
    """Return readings of one bucket."""
    random = np.random.default_rng(bucket)
    times = (bucket - 1) * _BUCKET_MS + 1 + random.integers(0, _BUCKET_MS, _BUCKET_ROWS)
    keys = [random.integers(0, count, _BUCKET_ROWS, np.int32) for count in (4, 5, 5)]
    return pa.table(
        {
            "time": times,
            **dict(zip(_KEY, keys, strict=True)),
            "seq": np.arange(_BUCKET_ROWS),
            "value": random.integers(0, 1_000, _BUCKET_ROWS, np.int32),
            "note": ["abcdefgh"] * _BUCKET_ROWS,
            "event_time": times,
        }
    )


def _write(log: KafkaEventLog, rows: int) -> tuple[Part, ...]:
    """Write ``rows`` to the block topic, and return the parts."""
    admin = log.admin()
    admin.create([TopicSettings(f"{_TOPIC}.0", _PARTITIONS)])
    admin.close()
    writer = BlockWriter(log, f"{_TOPIC}.0", "0", 1, SystemEntropy())
    parts: tuple[Part, ...] = ()
    for first in range(1, rows // _BUCKET_ROWS + 1, 40):
        tables = [_rows(bucket) for bucket in range(first, first + 40)]
        parts += writer.write(
            [each for table in tables for each in slices(table, _BUCKET_MS, _PARTITIONS)]
        )
    writer.close()
    return parts


def _of_shard_by_query(frame: DataFrame, bits: str) -> DataFrame:
    """Filter ``frame`` to the rows of a shard in the query."""
    if not bits:
        return frame
    hashed = F.shiftrightunsigned(F.hash(*_KEY), 32 - len(bits))
    return frame.where(hashed == F.lit(int(bits, 2)))


def _cpu_s() -> float:
    return sum(tree(os.getpid()).values())


def _measure(
    session: SparkSession, options: Callable[..., SourceOptions], parts: str, rounds: int
) -> dict[str, list[float]]:
    """Return the processor time of each round, in seconds, by what was measured."""
    session.dataSource.register(_Source)
    found: dict[str, list[float]] = {}
    for number in range(_WARM_ROUNDS + rounds):
        for name, function in _FUNCTIONS.items():
            for bits in ("", "0", "01"):
                for place in ("reader", "query"):
                    of = options(
                        columns=_USED[name],
                        share_by=_KEY if bits and place == "reader" else (),
                        share_bits=bits,
                    )
                    before_s = _cpu_s()
                    frame = (
                        session.read.format(_FORMAT)
                        .option("config", of.to_json())
                        .option("parts", parts)
                        .load()
                    )
                    mine = _of_shard_by_query(frame, bits if place == "query" else "")
                    function(mine).write.format("noop").mode("overwrite").save()
                    if number >= _WARM_ROUNDS:
                        found.setdefault(
                            f"{name}, 1 of {1 << len(bits)} shards, the {place} drops", []
                        ).append(_cpu_s() - before_s)
    return found


def _measure_reader(
    options: Callable[..., SourceOptions], parts: tuple[Part, ...], rounds: int
) -> dict[str, list[float]]:
    """Return as ``_measure`` the processor time of the reader alone, in this process."""
    found: dict[str, list[float]] = {}
    for number in range(_WARM_ROUNDS + rounds):
        for bits in ("", "0", "01"):
            of = options(columns=_USED["windowed"], share_by=_KEY if bits else (), share_bits=bits)
            before_s = time.process_time()
            for _ in reading.rows(of, [("readings", "0", parts)]):
                pass
            if number >= _WARM_ROUNDS:
                found.setdefault(f"the reader alone, 1 of {1 << len(bits)}", []).append(
                    time.process_time() - before_s
                )
    return found


def _print(found: dict[str, list[float]], rows: int) -> None:
    for what, used_s in found.items():
        least, middle = (1e6 * of(used_s) / rows for of in (min, statistics.median))
        print(f"{what:45} {least:.3f} / {middle:.3f} us", flush=True)


def main() -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(prog="shard_reading")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="anabranch-bench-") as name:
        folder = Path(name)
        with broker(folder) as kafka:
            parts = _write(KafkaEventLog(kafka.address), given.rows)
            options = partial(
                SourceOptions,
                blocks={"readings": _TOPIC},
                query="bench",
                stream="readings",
                kafka=kafka.address,
                cluster="",
                socket="",
                schema=schema_text(_rows(1).schema),
                optional=(),
                width_ms=_BUCKET_MS,
                splits_max=1,
                is_own=True,
                ordered=False,
                kept_salt=0,
            )
            _print(_measure_reader(options, parts, given.rounds), given.rows)
            session = start_session(
                "bench-shard-reading",
                master="local[1]",
                memory="2g",
                state_partitions=1,
                import_roots=[str(_ROOT)],
                scratch=Scratch(folder / "scratch"),
            )
            try:
                text = json.dumps(parts_to_json(parts))
                _print(_measure(session, options, text, given.rounds), given.rows)
            finally:
                session.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
