"""Tests of questions, output and exit codes of ``anabranch restate``."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from anabranch.adapters.kafka import log as kafka_log
from anabranch.cli import app
from anabranch.operating import restate as shell
from anabranch.pipeline import file
from anabranch.pipeline.model import Pipeline, Stage
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.stage.restating import Restatement
from harness.sources import pipeline

_ARGUMENTS = ["restate", "t", "-f", "p.yaml", "--kafka", "k:1"]


def _pipeline() -> Pipeline:
    stage = Stage(name="t", participant="p", reads=[], transform=["m:f"], version=2)
    return pipeline("p").model_copy(update={"stages": {"t": stage}})


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Replace ``Restating`` by a stand-in and return its decisions."""
    done: list[str] = []

    class Recorded:
        def __init__(
            self, _log: object, _pipeline: object, stage: str, from_ms: object, *_: object
        ) -> None:
            self._what = f"{stage} {from_ms}"

        def plan(self) -> Restatement:
            return Restatement(15, 20, 0)

        def do(self) -> Restatement:
            done.append(self._what)
            return Restatement(18, 20, 23)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(file, "load", lambda _: _pipeline())
    monkeypatch.setattr(kafka_log, "KafkaEventLog", lambda address: address)
    monkeypatch.setattr(shell, "Restating", Recorded)
    return done


def test_it_asks_does_it_and_says_what_became_of_it(done: list[str]) -> None:
    given = CliRunner().invoke(app, [*_ARGUMENTS, "--from", "1000"], input="y\n")
    assert given.exit_code == 0, given.output
    assert done == ["t 1000"]
    assert "no result is left out" in given.output
    assert "are left out" in given.output, "input was deleted meanwhile"
    assert "decided: restart the replicas of t, and version 2 begins" in given.output


def test_without_a_yes_nothing_happens(done: list[str]) -> None:
    for answer in ("n\n", None):
        given = CliRunner().invoke(app, _ARGUMENTS, input=answer)
        assert isinstance(given.exception, ConfigurationError)
    assert done == []
    assert CliRunner().invoke(app, [*_ARGUMENTS, "--yes"]).exit_code == 0
    assert done == ["t None"]
