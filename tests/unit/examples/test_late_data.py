"""Test of the late record of ``examples/late_data`` against its README and its cases."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from threading import Event
from typing import Any, Literal

from anabranch.operating.tail import follow
from anabranch.pipeline.file import load
from harness.source_world import World

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "late_data"


def lines(name: str) -> list[bytes]:
    return (FOLDER / name).read_bytes().splitlines()


def case(name: str) -> list[dict[str, Any]]:
    """Return the rows that a stage gets, in the order of event time."""
    rows = [json.loads(line) for line in lines(f"tests/{name}/usage.jsonl")]
    return sorted(rows, key=lambda row: row["at"])


class Run:
    """The source of the example, which gets the sample, and then the late records."""

    def __init__(self, late: Literal["dead_letter", "reassign"] | None = None) -> None:
        pipeline = load(FOLDER / "pipeline.yaml")
        source = pipeline.sources["usage"]
        self.world = World(
            1,
            bucket_ms=pipeline.bucket_ms,
            record=source.record,
            event_time=source.event_time,
            out_of_orderness_ms=source.out_of_orderness_ms,
            late=late or source.late,
        )
        process = self.world.process()
        for file in ("tests/sample/usage.jsonl", "late.jsonl"):
            self.world.produce(0, *lines(file))
            self.world.run(process)

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows that the stage gets, in the order of event time, which is ``at``."""
        tables = self.world.view.stable().values()
        return [
            {"at": row["event_time"], "meter": row["meter"], "kwh": row["kwh"]}
            for table in tables
            for row in table.to_pylist()
        ]


def test_a_dead_letter_is_shown_as_the_readme_shows_it() -> None:
    run = Run()
    assert run.rows() == case("sample")
    (letter,) = islice(follow(run.world.log, "p.reports.rejected", Event(), from_beginning=True), 1)
    shown = letter.rejected_line(with_id=False).replace("p.reports[", "usage[").replace("\t", "  ")
    assert shown in (FOLDER / "README.md").read_text().splitlines()


def test_a_reassigned_record_counts_when_the_case_says() -> None:
    run = Run("reassign")
    assert run.world.dead() == []
    assert run.rows() == case("reassigned")
