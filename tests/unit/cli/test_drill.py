"""Tests of the output of the drill commands, and that a drill with a duration undoes itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from anabranch.cli import drill
from anabranch.local.drill_links import Cut, Direction
from anabranch.protocol.errors import ConfigurationError, Unavailable


class _Recorded:
    """Stand-in for ``Drill`` that records its calls."""

    done: list[object]

    def __init__(self, state_dir: Path) -> None:
        _Recorded.done = [state_dir]

    def check(self, labels: list[str]) -> None:
        if "no/such" in labels:
            raise ConfigurationError("no process no/such")

    def kill(self, label: str) -> list[int]:
        self.done.append(("kill", label))
        return [12, 3]

    def pause(self, label: str) -> list[int]:
        self.done.append(("pause", label))
        if label == "a/fails":
            raise Unavailable("it does not run now")
        return [5]

    def resume(self, label: str) -> list[int]:
        self.done.append(("resume", label))
        if label.startswith("gone/"):
            raise Unavailable(f"{label} does not run now")
        return [5]

    def cut(self, label: str, cut: Cut) -> None:
        self.done.append(("cut", label, cut))

    def heal(self, label: str) -> None:
        self.done.append(("heal", label))
        if label.startswith("gone/"):
            raise Unavailable(f"{label}: the proxy did not do it")

    def cuts(self) -> dict[str, Cut]:
        return {"x/y": Cut()}


@pytest.fixture(autouse=True)
def _recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drill, "Drill", _Recorded)


def _run(*arguments: str) -> tuple[str, list[object]]:
    result = CliRunner().invoke(drill.app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output, _Recorded.done[1:]


def test_kill_pause_and_resume_name_what_they_reached() -> None:
    assert _run("kill", "a/b", "c/d") == (
        (
            "killed a/b: processes 3 12; it is started again\nkilled c/d: processes 3 12; it is"
            " started again\n"
        ),
        [("kill", "a/b"), ("kill", "c/d")],
    )
    assert _run("pause", "a/b") == ("paused a/b: processes 5\n", [("pause", "a/b")])
    assert _run("resume", "a/b") == ("resumed a/b: processes 5\n", [("resume", "a/b")])


def test_a_drill_with_a_duration_undoes_itself() -> None:
    assert _run("pause", "a/b", "--for", "10ms")[1] == [("pause", "a/b"), ("resume", "a/b")]
    out, done = _run("cut", "a/b", "--for", "10ms", "--direction", "to")
    assert out == "cut a/b: its requests do not reach Kafka\nhealed a/b\n"
    assert done == [("cut", "a/b", Cut(Direction.TO)), ("heal", "a/b")]


def test_a_link_can_be_made_slow_instead_of_cut() -> None:
    out, done = _run("cut", "a/b", "--delay", "100ms")
    assert (out, done) == (
        "cut a/b: slow link to Kafka: all 100 ms late\n",
        [("cut", "a/b", Cut(delay_ms=100))],
    )
    with pytest.raises(ConfigurationError, match="--delay and --reset exclude each other"):
        _run("cut", "a/b", "--delay", "100ms", "--reset")
    with pytest.raises(ConfigurationError, match="--delay 20: '20' is not a duration"):
        _run("cut", "a/b", "--delay", "20")


def test_it_undoes_itself_also_when_it_fails_half_way() -> None:
    with pytest.raises(Unavailable):
        _run("pause", "a/b", "a/fails", "--for", "1h")
    assert _Recorded.done[1:] == [
        ("pause", "a/b"),
        ("pause", "a/fails"),
        ("resume", "a/b"),
        ("resume", "a/fails"),
    ]


@pytest.mark.parametrize(
    ("command", "undo"),
    [
        (("pause", "--for", "1ms"), "resume"),
        (("cut", "--for", "1ms"), "heal"),
        (("resume",), "resume"),
        (("heal",), "heal"),
    ],
)
def test_a_failed_undo_does_not_keep_the_others_from_being_undone(
    command: tuple[str, ...], undo: str
) -> None:
    result = CliRunner().invoke(drill.app, [*command, "gone/a", "gone/b", "c/d"])
    assert isinstance(result.exception, Unavailable)
    assert str(result.exception).startswith("gone/a")
    assert "gone/b" in result.stderr
    assert _Recorded.done[-3:] == [(undo, "gone/a"), (undo, "gone/b"), (undo, "c/d")]


def test_heal_without_names_heals_all() -> None:
    assert _run("heal", "--state-dir", "/s") == ("healed x/y\n", [("heal", "x/y")])
    assert _run("heal", "a/b", "-f", "/p/pipeline.yaml") == ("healed a/b\n", [("heal", "a/b")])
    assert _Recorded.done[0] == Path("/p/.anabranch")


def test_nothing_is_done_when_one_name_is_wrong() -> None:
    with pytest.raises(ConfigurationError, match="no process no/such"):
        _run("kill", "a/b", "no/such")
    assert _Recorded.done[1:] == []
    with pytest.raises(ConfigurationError, match="--for 20: '20' is not a duration"):
        _run("cut", "a/b", "--for", "20")
    assert _Recorded.done[1:] == []
