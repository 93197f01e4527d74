"""The processors in docs/operators.md that stand for Aurora's WSort and Resample, run as they are
printed there.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
FILE = """
pipeline: recipes
sources:
  items: {topics: [items], record: item.avsc, event_time: {field: at, unit: ms}}
  readings: {topics: [readings], record: reading.avsc, event_time: {field: at, unit: ms}}
  ticks: {topics: [ticks], record: tick.avsc, event_time: {field: at, unit: ms}}
stages:
  sorted: {reads: [items], transform: "stages:in_order"}
  resampled: {reads: [readings, ticks], transform: "stages:resampled"}
outputs:
  sorted: {stage: sorted, corrected: {topic: sorted}}
  resampled: {stage: resampled, corrected: {topic: resampled}}
"""
RECORDS = {
    "item": {"line": "string", "number": "long"},
    "reading": {"sensor": "string", "value": "double"},
    "tick": {"sensor": "string"},
}
ITEMS = [(1, 5), (2, 3), (3, 9), (4, 4), (7, 2), (8, 7), (30, 1), (31, 12)]
"""(second, number). 5 leaves at 6 s and takes 3 and 4 along; 2 comes too late, and so does 1."""
SORTED = [(6, 0, 3), (6, 1, 4), (6, 2, 5), (8, 0, 7), (8, 1, 9), (36, 0, 12)]
"""(second, place, number)."""
READINGS = [(10, 100.0), (20, 200.0), (24, 100.0)]
TICKS = [5, 10, 15, 20, 23, 30]
RESAMPLED = [(20, 15, 150.0), (20, 20, 200.0), (24, 23, 125.0)]
"""(second, second of the tick, value). The ticks at 5 s and 30 s have no reading on one side; that
at 10 s comes before the reading of the same time, the first one, and so has none either.
"""


def written(folder: Path, name: str, rows: list[dict[str, object]]) -> None:
    """Write a file of a test case."""
    case = folder / "tests" / "sample"
    case.mkdir(parents=True, exist_ok=True)
    (case / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_wsort_and_resample_do_what_auroras_operators_do(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "operators.md").read_text()
    section = text.split("## Aurora's WSort and Resample")[1].split("\n## ")[0]
    blocks = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert len(blocks) == 2
    (tmp_path / "stages.py").write_text("\n".join(blocks))
    (tmp_path / "pipeline.yaml").write_text(FILE)
    for record, fields in RECORDS.items():
        named = [{"name": name, "type": kind} for name, kind in {**fields, "at": "long"}.items()]
        schema = {"type": "record", "name": record, "fields": named}
        (tmp_path / f"{record}.avsc").write_text(json.dumps(schema))
    written(tmp_path, "items", [{"line": "a", "number": n, "at": s * 1_000} for s, n in ITEMS])
    written(
        tmp_path, "readings", [{"sensor": "x", "value": v, "at": s * 1_000} for s, v in READINGS]
    )
    written(tmp_path, "ticks", [{"sensor": "x", "at": s * 1_000} for s in TICKS])
    written(
        tmp_path,
        "sorted.expected",
        [
            {"place": place, "line": "a", "number": number, "event_time": s * 1_000}
            for s, place, number in SORTED
        ],
    )
    written(
        tmp_path,
        "resampled.expected",
        [
            {
                "sensor": "x",
                "tick": f"1970-01-01T00:00:{tick:02}.000000Z",
                "value": value,
                "event_time": s * 1_000,
            }
            for s, tick, value in RESAMPLED
        ],
    )
    done = subprocess.run(
        [sys.executable, "-m", "anabranch.operating.trial", "pipeline.yaml", "tests"],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
