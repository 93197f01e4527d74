from __future__ import annotations

import threading
from pathlib import Path

from anabranch.adapters.memory.log import LocalEventLog
from anabranch.adapters.system.progress import Progress, unwatched
from anabranch.cli.produce import _checked, _Sender
from anabranch.codec.catalog import TopicSettings
from anabranch.operating.produce import Lines, Target
from anabranch.pipeline.file import load

READING = '{"type": "record", "name": "reading", "fields": [{"name": "at", "type": "long"}]}'
PIPELINE = (
    "pipeline: p\nsources:\n  readings: {topics: [readings], record: reading.avsc, event_time:"
    " {field: at, unit: ms}}\nstages:\n  f: {reads: readings, transform: stages:f}\noutputs:\n"
    "  out: {stage: f, corrected: {topic: out}}\n"
)


def sending(folder: Path, total: int | None = None) -> tuple[_Sender, list[str]]:
    (folder / "reading.avsc").write_text(READING)
    (folder / "stages.py").write_text("def f(readings):\n    return readings\n")
    (folder / "pipeline.yaml").write_text(PIPELINE)
    pipeline, log = load(folder / "pipeline.yaml"), LocalEventLog()
    notes: list[str] = []
    log.admin().create([TopicSettings("readings", 1)])
    target = Target(log, pipeline, "readings", None)
    lines = Lines(pipeline.sources["readings"])
    return _Sender(target, lines, notes.append, noted(notes), total), notes


def noted(notes: list[str]) -> Progress:
    """Return a progress function that notes each count as a line."""
    return lambda what, done, total: notes.append(f"{done} of {total} {what}")


def test_of_generated_rows_it_is_shown_how_many_were_sent(tmp_path: Path) -> None:
    under_way, notes = sending(tmp_path, 2_500)
    under_way.send_generated(0, 0, threading.Event())
    assert notes == [f"{sent} of 2500 records" for sent in (1_000, 2_000, 2_500)]


def test_without_an_end_it_is_shown_how_much_was_sent(tmp_path: Path) -> None:
    under_way, notes = sending(tmp_path)
    stopping = threading.Event()

    def note(text: str) -> None:
        notes.append(text)
        stopping.set()

    under_way._note = note
    under_way.send_generated(0, 1, stopping)
    assert notes == ["sent 1 records"]


def test_a_file_is_moved_to_the_present_from_any_time(tmp_path: Path) -> None:
    under_way, _ = sending(tmp_path)
    rows = tmp_path / "rows.jsonl"
    shifts = []
    for newest in (0, 1_000):
        rows.write_text(f'{{"at": {newest}}}\n{{"at": 0}}\n')
        total, shift = _checked(rows, under_way._lines, True, unwatched)
        shifts.append(shift + newest)
        assert total == 2
    assert shifts[0] > 1_700_000_000_000, "0 is a time"
    assert 0 <= shifts[1] - shifts[0] < 60_000
    assert _checked(rows, under_way._lines, False, unwatched) == (2, 0)
