from __future__ import annotations

import sys
from pathlib import Path

import pytest

from anabranch import cli
from anabranch.pipeline.file import load
from anabranch.pipeline.old_keys import ENTRIES, KEYS, renamed
from anabranch.protocol.errors import ConfigurationError

RECORD = '{"type": "record", "name": "reading", "fields": [{"name": "at", "type": "long"}]}'
FILE = """\
pipeline: old
sources:
  readings:
    topics: [readings]
    record: reading.avsc
    event_time: {field: at, unit: ms}
    out_of_orderness: 1s
    idle_timeout: {partition: 5s, source: never}
    max_ahead: 1m
    bounded: true
    late: reassign
stages:
  all:
    reads: [readings]
    transform: stages:all_of
    on_missing_input: delay
    ha: amnesia
    state_horizon: 10s
outputs:
  all: {stage: all, corrected: {topic: all}}
"""

LEFT_COLUMN = [
    (
        "event_time: {field: at, unit: ms}",
        "stime: {field: at, unit: ms}",
        "6: sources.readings.stime: stime is now called event_time; rename it",
    ),
    (
        "out_of_orderness:",
        "disorder:",
        "7: sources.readings.disorder: disorder is now called out_of_orderness; rename it",
    ),
    (
        "idle_timeout:",
        "idle:",
        "8: sources.readings.idle: idle is now called idle_timeout; rename it",
    ),
    ("max_ahead:", "ahead:", "9: sources.readings.ahead: ahead is now called max_ahead; rename it"),
    (
        "bounded: true",
        "end: last_record",
        "10: sources.readings.end: end: last_record is now bounded: true; replace it",
    ),
    (
        "bounded: true",
        "end: never",
        "10: sources.readings.end: end: never is now bounded: false; replace it",
    ),
    (
        "late: reassign",
        "late: restamp",
        "11: sources.readings.late: late: restamp is now late: reassign; replace it",
    ),
    (
        "on_missing_input:",
        "when_late:",
        "16: stages.all.when_late: when_late is now called on_missing_input; rename it",
    ),
    (
        "state_horizon:",
        "reach:",
        "18: stages.all.reach: reach is now called state_horizon; rename it",
    ),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "reading.avsc").write_text(RECORD)
    (tmp_path / "stages.py").write_text("def all_of(readings): return readings\n")
    return tmp_path


@pytest.mark.parametrize(
    ("new", "old", "says"), LEFT_COLUMN, ids=[old.split(" {")[0] for _, old, _ in LEFT_COLUMN]
)
def test_an_old_key_is_one_mistake_that_names_the_new_key_and_the_line(
    folder: Path,
    new: str,
    old: str,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = folder / "pipeline.yaml"
    file.write_text(FILE.replace(new, old))
    with pytest.raises(ConfigurationError) as caught:
        load(file)
    assert str(caught.value) == f"{file}:{says}"
    monkeypatch.setattr(sys, "argv", ["anabranch", "check", "--file", str(file)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


def test_the_file_with_the_new_keys_is_right(folder: Path) -> None:
    (folder / "pipeline.yaml").write_text(FILE)
    pipeline = load(folder / "pipeline.yaml")
    assert pipeline.sources["readings"].bounded
    assert pipeline.stages["all"].on_missing_input == "delay"


def test_all_old_keys_are_tried() -> None:
    tried = {old.split(":")[0] for _, old, _ in LEFT_COLUMN}
    assert tried == {*KEYS, *(key for key, _ in ENTRIES)}


def test_a_file_with_the_old_and_the_new_key_says_so_once(folder: Path) -> None:
    file = folder / "pipeline.yaml"
    file.write_text(FILE.replace("    max_ahead: 1m\n", "    max_ahead: 1m\n    ahead: 2m\n"))
    with pytest.raises(ConfigurationError) as caught:
        load(file)
    assert (
        str(caught.value)
        == f"{file}:10: sources.readings.ahead: ahead is now called max_ahead; rename it"
    )


@pytest.mark.parametrize(
    ("key", "value", "known"),
    [
        ("stime", "arrival", ("topics",)),
        ("end", 7, ("bounded",)),
        ("end", "last_record", ("late",)),
    ],
)
def test_elsewhere_the_same_word_is_an_unknown_key(
    key: str, value: object, known: tuple[str, ...]
) -> None:
    assert renamed(key, value, known) is None
