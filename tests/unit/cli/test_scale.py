"""Output of ``anabranch scale``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from anabranch.cli import app
from anabranch.operating import scale as operating
from anabranch.operating.scale import LoadView
from anabranch.protocol.control.records import SplitStep, Step
from anabranch.protocol.control.scaling import Cause, Halving, ScalingDecision
from harness.pipeline_files import written

FILE = """\
pipeline: p
sources: {a: {topics: [a], record: car.avsc, event_time: arrival}}
stages:
  s: {reads: [a], sql: SELECT * FROM a}
outputs:
  o: {stage: s, corrected: {topic: o}}
scaling: {nodes: [local.7]}
"""
LOAD = {
    "replica": "s.0",
    "state": "running",
    "busy_permille": 930,
    "rows_per_s": 70,
    "behind_ms": 2_500,
    "is_overloaded": True,
}
NODES = {
    "local.0": {
        "state": "alive",
        "cores": 2,
        "busy_permille": 930,
        "is_pool": False,
        "places": ["s.0"],
        "replicas": [LOAD],
    },
    "local.7": {
        "state": "unknown",
        "cores": None,
        "busy_permille": 0,
        "is_pool": True,
        "places": [],
        "replicas": [],
    },
}
EVENT = {
    "label": "s.0",
    "source": "local.0",
    "target": "local.7",
    "cause": "overload",
    "because": "it is [slow]",
    "written_ms": 1_700_000_000_000,
}
SPLIT = Halving(
    "s",
    "local.0",
    "s.0.0 on local.7, s.1.0 on local.8",
    Cause.SPLIT,
    "it is slow",
    SplitStep("s", Step.WANTED, 0),
)
WOULD = ScalingDecision("s.0", "local.0", "local.7", Cause.OVERLOAD, "it is slow")


def printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: LoadView, *more: str) -> str:
    path = written(tmp_path, FILE)
    monkeypatch.setattr(operating, "look", lambda *_: found)
    arguments = ["scale", "-f", str(path), "--kafka", "none:1", *more]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def shown(**more: Any) -> dict[str, Any]:
    return {"nodes": NODES, "notes": {}, "events": []} | more


def test_nodes_replicas_decisions_and_what_would_be_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = printed(tmp_path, monkeypatch, LoadView(shown(events=[EVENT]), (WOULD,)))
    lines = [line.split() for line in text.splitlines()]
    assert ["local.0", "alive", "0.93", "of", "2"] in lines
    assert ["local.7", "pool", "silent", "-"] in lines
    assert ["s.0", "93", "%", "70", "2.5", "s", "overloaded"] in lines
    assert "it is [slow]" in text
    assert "would move s.0 from local.0 to local.7 (overload): it is slow" in text


def test_a_split_that_would_be_wanted_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = printed(tmp_path, monkeypatch, LoadView(shown(), (SPLIT,)))
    assert "would split s on local.0 into s.0.0 on local.7, s.1.0 on local.8: it is slow" in text
    (would,) = json.loads(printed(tmp_path, monkeypatch, LoadView(shown(), (SPLIT,)), "--json"))[
        "would"
    ]
    assert (would["label"], would["cause"]) == ("s", "split")


def test_what_no_move_can_help_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = printed(tmp_path, monkeypatch, LoadView(shown(notes={"s.0": "more shards can"}), ()))
    assert text.splitlines()[-1] == "more shards can"
    text = printed(tmp_path, monkeypatch, LoadView(shown(), ()))
    assert text.splitlines()[-1] == "nothing is to be moved now"


def test_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = printed(tmp_path, monkeypatch, LoadView(shown(events=[EVENT]), (WOULD,)), "--json")
    found = json.loads(text)
    assert found["would"] == [
        {"label": "s.0", "target": "local.7", "cause": "overload", "because": "it is slow"}
    ]
    assert found["events"] == [EVENT]
