"""Tests of output and exit codes of ``anabranch move``."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from anabranch.adapters.kafka import log as kafka_log
from anabranch.cli import app
from anabranch.operating import move as shell
from anabranch.pipeline import file
from anabranch.protocol.errors import AnabranchError
from harness.sources import pipeline

_WHERE = ["-f", "p.yaml", "--kafka", "k:1"]


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, object]:
    """Replace ``MoveCommand`` by a stand-in; return its arguments and its answer."""
    done: dict[str, object] = {"runs_on": "north.0", "is_done": True}

    class Recorded:
        def __init__(
            self, _log: object, _pipeline: object, label: str, node: str, *_: object
        ) -> None:
            done["asked"] = label, node
            self.runs_on = done["runs_on"]

        def do(self) -> None:
            done["written"] = True

        def is_done(self, wait_ms: int) -> bool:
            done["waited_ms"] = wait_ms
            return bool(done["is_done"])

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(file, "load", lambda _: pipeline("p"))
    monkeypatch.setattr(kafka_log, "KafkaEventLog", lambda address: address)
    monkeypatch.setattr(shell, "MoveCommand", Recorded)
    return done


def test_it_waits_until_the_replica_runs_there(done: dict[str, object]) -> None:
    given = CliRunner().invoke(app, ["move", "clean.0", "north.1", "--wait", "7", *_WHERE])
    assert given.exit_code == 0, given.output
    assert (done["asked"], done["waited_ms"]) == (("clean.0", "north.1"), 7_000)
    assert "north.0 runs it until north.1 has become the primary" in given.output
    assert "clean.0: runs on node north.1" in given.output


def test_it_need_not_wait(done: dict[str, object]) -> None:
    given = CliRunner().invoke(app, ["move", "clean.0", "north.1", "--wait", "0", *_WHERE])
    assert (given.exit_code, "clean.0: will run on node north.1" in given.output) == (0, True)
    assert "waited_ms" not in done


def test_what_takes_too_long_is_reported_with_what_to_do(done: dict[str, object]) -> None:
    done["is_done"] = False
    given = CliRunner().invoke(app, ["move", "clean.0", "north.1", *_WHERE])
    assert isinstance(given.exception, AnabranchError)
    assert "`anabranch move clean.0 north.0` cancels it" in str(given.exception)
    done["runs_on"] = ""
    given = CliRunner().invoke(app, ["move", "clean.0", "north.1", *_WHERE])
    assert "cancels it" not in str(given.exception)


def test_a_replica_is_removed(done: dict[str, object]) -> None:
    given = CliRunner().invoke(app, ["remove", "clean.1", *_WHERE])
    assert (given.exit_code, given.output) == (0, "clean.1: removed\n")
    assert (done["asked"], done["written"]) == (("clean.1", ""), True)
