"""Tests of output and exit codes of ``anabranch split``."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from anabranch.adapters.kafka import log as kafka_log
from anabranch.cli import app
from anabranch.operating import split as shell
from anabranch.pipeline import file
from anabranch.protocol.errors import AnabranchError
from harness.sources import pipeline

_WHERE = ["-f", "p.yaml", "--kafka", "k:1"]


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, object]:
    """Replace ``SplitCommand`` by a stand-in; return its arguments and its answer."""
    done: dict[str, object] = {"is_done": True}

    class Recorded:
        def __init__(
            self, _log: object, _pipeline: object, shard: str, node: str, *_: object
        ) -> None:
            done["asked"] = shard, node

        def do(self) -> None:
            done["written"] = True

        def is_done(self, wait_ms: int) -> bool:
            done["waited_ms"] = wait_ms
            return bool(done["is_done"])

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(file, "load", lambda _: pipeline("p"))
    monkeypatch.setattr(kafka_log, "KafkaEventLog", lambda address: address)
    monkeypatch.setattr(shell, "SplitCommand", Recorded)
    return done


def test_it_waits_until_the_halves_have_taken_over(done: dict[str, object]) -> None:
    given = CliRunner().invoke(app, ["split", "s.1", "--to", "north.1", "--wait", "7", *_WHERE])
    assert given.exit_code == 0, given.output
    assert (done["asked"], done["waited_ms"]) == (("s.1", "north.1"), 7_000)
    assert "s.1: split into s.10 and s.11" in given.output


def test_it_need_not_wait(done: dict[str, object]) -> None:
    given = CliRunner().invoke(app, ["split", "s", "--wait", "0", *_WHERE])
    assert (given.exit_code, "s: will be split into s.0 and s.1" in given.output) == (0, True)
    assert "waited_ms" not in done


def test_what_takes_too_long_is_reported(done: dict[str, object]) -> None:
    done["is_done"] = False
    given = CliRunner().invoke(app, ["split", "s", "--wait", "3", *_WHERE])
    assert given.exit_code == 1
    assert isinstance(given.exception, AnabranchError)
    assert "s.0 and s.1 have not taken over from s after 3 s" in str(given.exception)
