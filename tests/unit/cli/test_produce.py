from __future__ import annotations

import threading
from pathlib import Path

from anabranch.adapters.memory.log import LocalEventLog
from anabranch.cli.produce import _checked, _Sending
from anabranch.codec.catalog import TopicSettings
from anabranch.operating.produce import Lines, Target
from anabranch.pipeline.file import load

READING = '{"type": "record", "name": "reading", "fields": [{"name": "at", "type": "long"}]}'
PIPELINE = (
    "pipeline: p\nsources:\n  readings: {topics: [readings], record: reading.avsc, event_time:"
    " {field: at, unit: ms}}\nstages:\n  f: {reads: readings, transform: stages:f}\noutputs:\n"
    "  out: {stage: f, corrected: {topic: out}}\n"
)


def sending(folder: Path) -> tuple[_Sending, list[str]]:
    (folder / "reading.avsc").write_text(READING)
    (folder / "stages.py").write_text("def f(readings):\n    return readings\n")
    (folder / "pipeline.yaml").write_text(PIPELINE)
    pipeline, log = load(folder / "pipeline.yaml"), LocalEventLog()
    notes: list[str] = []
    log.admin().create([TopicSettings("readings", 1)])
    target = Target(log, pipeline, "readings", None)
    return _Sending(target, Lines(pipeline.sources["readings"]), notes.append), notes


def test_of_a_long_file_it_is_shown_how_much_was_sent(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"at": 7}\n' * 10_000)
    under_way, notes = sending(tmp_path)
    under_way.from_file(rows, 0)
    assert under_way.sent == 10_000
    assert len(notes) > 2
    assert notes[-1] == "sent 10000 records"


def test_so_it_is_of_rows_that_are_made_up(tmp_path: Path) -> None:
    under_way, notes = sending(tmp_path)
    under_way.made(0, 2_500, 0, threading.Event())
    assert notes == ["sent 1000 records", "sent 2000 records", "sent 2500 records"]


def test_a_file_is_moved_to_the_present_from_any_time(tmp_path: Path) -> None:
    under_way, _ = sending(tmp_path)
    rows = tmp_path / "rows.jsonl"
    shifts = []
    for newest in (0, 1_000):
        rows.write_text(f'{{"at": {newest}}}\n{{"at": 0}}\n')
        shifts.append(_checked(rows, under_way._lines, now=True) + newest)
    assert shifts[0] > 1_700_000_000_000, "0 is a time"
    assert 0 <= shifts[1] - shifts[0] < 60_000
    assert _checked(rows, under_way._lines, now=False) == 0
