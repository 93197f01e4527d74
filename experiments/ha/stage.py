"""Pipeline of the experiments: one stage that counts the values of each key in a window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.pipeline.file import load

if TYPE_CHECKING:
    from pathlib import Path

    from anabranch.pipeline.model import Pipeline

_RECORD: Final = """
{"type": "record", "name": "reading", "fields": [
  {"name": "key", "type": "long"},
  {"name": "value", "type": "long"},
  {"name": "time", "type": "long"}]}
"""
_FUNCTIONS: Final = """
from pyspark.sql import functions as F

def windowed(a):
    groups = a.groupBy(F.window("event_time", "{window_s} seconds"), "key")
    counts = groups.agg(F.sum("value").alias("value"), F.count("value").alias("time"))
    return counts.select("key", "value", "time", F.col("window.end").alias("event_time"))
"""


def write_stage(folder: Path, name: str, keys: str, *, width_ms: int, window_s: int) -> Pipeline:
    """Write a pipeline of one stage ``s``.

    Args:
        folder: Place of the file, the functions and the schema.
        name: Name of the pipeline.
        keys: Further keys of the stage in the file.
        width_ms: Width of a bucket.
        window_s: Length of the stage's window.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "reading.avsc").write_text(_RECORD)
    (folder / f"functions_{name}.py").write_text(_FUNCTIONS.format(window_s=window_s))
    path = folder / f"{name}.yaml"
    path.write_text(
        f"pipeline: {name}\nbucket: {width_ms}ms\npartitions: 2\nsources:\n  a:\n    topics:"
        f" [{name}.in]\n    record: reading.avsc\n    event_time: {{field: time, unit:"
        " ms}\nstages:\n  s:\n    participant: s\n    reads: [a]\n    transform:"
        f" functions_{name}:windowed\n    {keys}\noutputs:\n  out:\n    stage: s\n    corrected:"
        f" {{topic: {name}.out}}\n"
    )
    return load(path)
