"""``anabranch init``: write a new pipeline that runs, with sample data and a test."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from anabranch.protocol.errors import ConfigurationError

# Event time of the first sample record: 2026-09-01T10:00:00Z.
_FIRST_MS: Final = 1_788_256_800_000
_SAMPLE: Final = (
    (0, "roof", 21.5),
    (1_200, "cellar", 12.0),
    (2_600, "roof", 23.25),
    (7_400, "cellar", 12.5),
    (9_900, "roof", 22.0),
    (10_000, "roof", 24.5),
    (13_000, "cellar", 11.75),
    (18_500, "roof", 26.0),
    (21_000, "roof", 25.0),
    (29_000, "cellar", 11.5),
)
_WINDOW_MS: Final = 10_000

_PIPELINE: Final = """\
version: 1
pipeline: {name}
partitions: 1  # of each topic
sources:
  readings:
    topics: [readings]
    record: reading.avsc
    event_time: {{field: at, unit: ms}}  # when it was measured
    idle_timeout: {{source: 2s}}  # after 2 s of silence, time follows the clock
stages:
  hottest:
    reads: [readings]
    transform: stages:hottest
outputs:
  hottest:
    stage: hottest
    corrected: {{topic: hottest, key: [sensor]}}
    live: {{topic: hottest.live}}
"""
_SCHEMA: Final = """\
{"type": "record", "name": "reading", "fields": [
  {"name": "at", "type": "long"},
  {"name": "sensor", "type": "string"},
  {"name": "celsius", "type": "double"}]}
"""
_STAGES: Final = '''\
from pyspark.sql import functions as F


def hottest(readings):
    """Return the highest temperature of each sensor in windows of ten seconds."""
    windows = readings.groupBy(F.window("event_time", "10 seconds"), "sensor").agg(
        F.max("celsius").alias("celsius")
    )
    return windows.select(
        "sensor",
        F.date_format("window.end", "HH:mm:ss").alias("until"),
        "celsius",
        F.col("window.end").alias("event_time"),
    )
'''


def write(folder: Path, name: str) -> list[Path]:
    """Write the files into ``folder``, which is new or empty, and return their paths.

    Raises:
        ConfigurationError: the folder is not empty, and nothing was changed; or it cannot be
            written.
    """
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ConfigurationError(
                f"{folder.absolute()} is not an empty folder: give the name of a new one,"
                " `anabranch init FOLDER`"
            )
        written = []
        for path, text in files(name).items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
            written.append(target)
    except OSError as error:
        raise ConfigurationError(f"{folder}: cannot be written: {error.strerror}") from error
    return written


def files(name: str) -> dict[str, str]:
    """Return the content of each file of the pipeline ``name``, by its path in the folder."""
    return {
        "pipeline.yaml": _PIPELINE.format(name=name),
        "reading.avsc": _SCHEMA,
        "stages.py": _STAGES,
        "tests/sample/readings.jsonl": _lines(
            {"at": _FIRST_MS + at, "sensor": sensor, "celsius": value}
            for at, sensor, value in _SAMPLE
        ),
        "tests/sample/hottest.expected.jsonl": _lines(_expected()),
        ".gitignore": ".anabranch/\n__pycache__/\n",
    }


def _expected() -> Iterator[dict[str, object]]:
    """Yield the rows that ``hottest`` gives for the sample."""
    highest: dict[tuple[int, str], float] = {}
    for at, sensor, celsius in _SAMPLE:
        window = at // _WINDOW_MS, sensor
        highest[window] = max(celsius, highest.get(window, celsius))
    for (number, sensor), celsius in sorted(highest.items()):
        yield {
            "sensor": sensor,
            "until": f"10:00:{(number + 1) * _WINDOW_MS // 1_000:02}",
            "celsius": celsius,
        }


def _lines(rows: Iterator[dict[str, object]]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)
