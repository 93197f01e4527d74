"""Tests of questions, output and exit codes of ``anabranch give-up``."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from anabranch.adapters.kafka import log as kafka_log
from anabranch.cli import app
from anabranch.operating import give_up as shell
from anabranch.pipeline import file
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.log.records import GivenUp
from harness.sources import pipeline

_WHERE = ["-f", "p.yaml", "--kafka", "k:1"]


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Replace ``GiveUp`` by a stand-in and return its calls."""
    done: list[str] = []

    class Recorded:
        def __init__(
            self, _log: object, _pipeline: object, source: str, times: object, *_: object
        ) -> None:
            self._what = f"{source} {times}"

        def plan(self) -> GivenUp:
            return GivenUp("reports", 11, 20)

        def do(self) -> GivenUp:
            done.append(self._what)
            return GivenUp("reports", 11, 19)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(file, "load", lambda _: pipeline("p"))
    monkeypatch.setattr(kafka_log, "KafkaEventLog", lambda address: address)
    monkeypatch.setattr(shell, "GiveUp", Recorded)
    return done


def test_it_asks_and_does_it(done: list[str]) -> None:
    given = CliRunner().invoke(
        app, ["give-up", "reports", "--from", "1000", "--until", "2000", *_WHERE], input="y\n"
    )
    assert given.exit_code == 0, given.output
    assert done == ["reports Times(from_ms=1000, until_ms=2000)"]
    assert "given up after 1970-01-01T00:00:01.000Z up to" in given.output
    assert "given up: 9 buckets" in given.output


def test_without_a_yes_nothing_happens(done: list[str]) -> None:
    arguments = ["give-up", "reports", "--from", "1000", "--until", "2000", *_WHERE]
    for answer in ("n\n", None):
        given = CliRunner().invoke(app, arguments, input=answer)
        assert isinstance(given.exception, ConfigurationError)
        assert "--yes" in str(given.exception)
    assert done == []
    assert CliRunner().invoke(app, [*arguments, "--yes"]).exit_code == 0
    assert len(done) == 1


def test_wrong_usage_is_reported(done: list[str]) -> None:
    for wrong in (
        _WHERE,
        ["--from", "1000", "--missing", *_WHERE],
        ["--from", "soon", *_WHERE],
        ["--from", "1000", *_WHERE],
        ["--from", "1000", "--until", "2000"],
    ):
        assert isinstance(
            CliRunner().invoke(app, ["give-up", "reports", *wrong]).exception, ConfigurationError
        )
    assert done == []
