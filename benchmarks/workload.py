"""The records of the benchmark and, computed with polars, the results that a correct system
makes of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import polars as pl

Job = Literal["stateless", "windowed"]
JOBS: Final[tuple[Job, ...]] = ("stateless", "windowed")

INPUT: Final = "readings"
OUTPUT: Final = "results"
PARTITIONS: Final = 4
WINDOW_MS: Final = 10_000
OUT_OF_ORDERNESS_MS: Final = 200
"""Allowed by both systems; the records' own out-of-orderness is less."""
JITTER_MS: Final = 50
EVENT_TIME_MS: Final = 100_000
"""Event time that a backlog spans."""
ENDER_AFTER_MS: Final = 30_000
"""A backlog is followed by one record per partition so much later: without it no system could
close the last windows.
"""

_SCHEMAS: Final[dict[Job, dict[str, type[pl.DataType]]]] = {
    "stateless": {"time": pl.Int64, "seq": pl.Int64, "region": pl.Int64, "scaled": pl.Int64},
    "windowed": {
        "region": pl.Int64,
        "site": pl.Int64,
        "device": pl.Int64,
        "window_start": pl.Int64,
        "records": pl.Int64,
        "total": pl.Int64,
    },
}
_KEYS: Final[dict[Job, list[str]]] = {
    "stateless": ["seq"],
    "windowed": ["region", "site", "device", "window_start"],
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """How results differ from the expected ones. ``lost`` counts input records that no result
    accounts for.
    """

    expected: int
    missing: int
    duplicated: int
    wrong: int
    lost: int

    @property
    def right(self) -> bool:
        """Whether every result is there once and equal."""
        return self.missing == self.duplicated == self.wrong == 0


def readings(times: np.ndarray) -> pl.DataFrame:
    """Return readings with the given event times (ms); everything else follows from the record's
    number.
    """
    number = np.arange(len(times), dtype=np.uint64)
    mixed = (number * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(24)
    return pl.DataFrame(
        {
            "time": times.astype(np.int64),
            "region": (mixed % 4).astype(np.int32),
            "site": (mixed // 4 % 5).astype(np.int32),
            "device": (mixed // 20 % 5).astype(np.int32),
            "seq": number.astype(np.int64),
            "value": (mixed // 100 % 1000).astype(np.int32),
        }
    ).with_columns(pl.lit("abcdefgh").alias("note"))


def backlog(count: int, start_ms: int) -> pl.DataFrame:
    """``count`` readings over ``EVENT_TIME_MS`` from ``start_ms``, slightly out of order."""
    number = np.arange(count, dtype=np.int64)
    jitter = (number * 7_919) % JITTER_MS
    return readings(start_ms + number * (EVENT_TIME_MS - JITTER_MS) // count + jitter)


def payloads(frame: pl.DataFrame) -> list[str]:
    """One JSON object per row."""
    return frame.select(pl.struct(pl.all()).struct.json_encode()).to_series().to_list()


def ender(time_ms: int) -> str:
    """Return the record that ends a backlog: its key is not checked, and the stateless job drops
    it.
    """
    return f'{{"time":{time_ms},"region":-1,"site":0,"device":0,"seq":-1,"value":1,"note":"ender"}}'


def expected(job: Job, frame: pl.DataFrame) -> pl.DataFrame:
    """Compute the results of ``frame``."""
    if job == "stateless":
        kept = frame.filter(pl.col("value") % 2 == 0)
        result = kept.select(
            "time", "seq", "region", (pl.col("value").cast(pl.Int64) * 3 + 1).alias("scaled")
        )
    else:
        start = (pl.col("time") // WINDOW_MS * WINDOW_MS).alias("window_start")
        result = frame.group_by("region", "site", "device", start).agg(
            pl.len().alias("records"), pl.col("value").cast(pl.Int64).sum().alias("total")
        )
    return result.select(pl.col(name).cast(kind) for name, kind in _SCHEMAS[job].items())


def parse(job: Job, values: list[bytes]) -> pl.DataFrame:
    """Parse result records into a table, in the order of ``values``."""
    if not values:
        return pl.DataFrame(schema=_SCHEMAS[job])
    return pl.read_ndjson(b"\n".join(values), schema=_SCHEMAS[job])


def event_time(job: Job) -> pl.Expr:
    """When a result was due: the record's time, or the end of the window."""
    return pl.col("time") if job == "stateless" else pl.col("window_start") + WINDOW_MS


def compare(job: Job, wanted: pl.DataFrame, got: pl.DataFrame) -> Verdict:
    """Results against the expected ones, by key and then by value."""
    keys = _KEYS[job]
    once = got.unique(keys, keep="first", maintain_order=True)
    missing = wanted.join(once, on=keys, how="anti")
    wrong = once.join(wanted, on=list(_SCHEMAS[job]), how="anti")
    if job == "stateless":
        lost = missing.height
    else:
        both = wanted.join(
            once.select(*keys, pl.col("records").alias("counted")), on=keys, how="left"
        )
        lost = int(
            both.select(
                (pl.col("records") - pl.col("counted").fill_null(0)).clip(lower_bound=0).sum()
            ).item()
        )
    return Verdict(wanted.height, missing.height, got.height - once.height, wrong.height, lost)
