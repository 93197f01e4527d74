"""``benchmarks.batch``: what the report says of several runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from benchmarks.batch import Cost, write

COST = Cost(
    batches=100,
    java_ms=110.0,
    forked_ms=0.2,
    python_ms=5.0,
    driver_ms=4.0,
    commands=0.1,
    compiled=6.0,
    compiling_ms=3.0,
    between_ms=250,
    others=0.1,
)


def test_of_several_runs_the_middle_of_each_figure_is_reported(tmp_path: Path) -> None:
    runs = [
        replace(COST, java_ms=java_ms, commands=commands)
        for java_ms, commands in ((300.0, 1.0), (110.0, 2.0), (120.0, 9.0))
    ]
    write(tmp_path / "BATCH.md", {"quick": runs, "full": [COST]}, 50, 90)
    text = (tmp_path / "BATCH.md").read_text()
    assert "| quick | 3 | 120 | 3 | 0.2 | 5 | 4 | 2 | 6 | 250 | 0.1 |" in text
    assert "| full | 1 | 110 |" in text
