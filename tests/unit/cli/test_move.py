"""What ``anabranch move`` says and ends with."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from anabranch.adapters.kafka import log as kafka_log
from anabranch.cli import app
from anabranch.local import move as shell
from anabranch.pipeline import file
from anabranch.protocol.errors import AnabranchError
from harness.sources import pipeline

_WHERE = ["-f", "p.yaml", "--kafka", "k:1"]


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, object]:
    """What a command that stands in for ``Moving`` was asked for, and what it answers."""
    done: dict[str, object] = {"is_done": False, "begins": True}

    class Recorded:
        def __init__(self, _log: object, _pipeline: object, label: str, node: str, *_: object) -> None:
            done["asked"] = label, node
            self.is_done = done["is_done"]

        def do(self) -> str:
            return "north.0"

        def has_begun(self, wait_ms: int) -> bool:
            done["waited_ms"] = wait_ms
            return bool(done["begins"])

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(file, "load", lambda _: pipeline("p"))
    monkeypatch.setattr(kafka_log, "KafkaEventLog", lambda address: address)
    monkeypatch.setattr(shell, "Moving", Recorded)
    return done


def test_it_waits_until_the_replica_runs_there(done: dict[str, object]) -> None:
    given = CliRunner().invoke(app, ["move", "clean.0", "north.1", "--wait", "7", *_WHERE])
    assert given.exit_code == 0, given.output
    assert (done["asked"], done["waited_ms"]) == (("clean.0", "north.1"), 7_000)
    assert "north.0 goes on with it until north.1 has taken over" in given.output
    assert "clean.0: runs on node north.1" in given.output


def test_it_need_not_wait(done: dict[str, object]) -> None:
    assert CliRunner().invoke(app, ["move", "clean.0", "north.1", "--wait", "0", *_WHERE]).exit_code == 0
    done["is_done"] = True
    given = CliRunner().invoke(app, ["move", "clean.0", "north.1", *_WHERE])
    assert "clean.0: moved from node north.0 to node north.1" in given.output
    assert "waited_ms" not in done


def test_what_takes_too_long_is_told_with_what_to_do(done: dict[str, object]) -> None:
    done["begins"] = False
    given = CliRunner().invoke(app, ["move", "clean.0", "north.1", *_WHERE])
    assert isinstance(given.exception, AnabranchError)
    assert "`anabranch move clean.0 north.0` takes it back" in str(given.exception)
