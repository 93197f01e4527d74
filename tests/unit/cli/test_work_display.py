from __future__ import annotations

import io
import sys

import pytest
from rich.console import Console

from anabranch.cli import work_display
from anabranch.cli.work_display import WorkDisplay, run_shown


def console(*, terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, soft_wrap=True, width=80)


def shown(of: Console) -> str:
    assert isinstance(of.file, io.StringIO)
    return of.file.getvalue()


def test_a_file_gets_the_lines_and_nothing_else() -> None:
    on = console(terminal=False)
    with WorkDisplay(on, "starting") as display:
        for line in ("starting Kafka", "[bold]x[/] is running (pid 7)", "ready  kafka :9092"):
            display.say(line)
    assert shown(on) == "starting Kafka\n[bold]x[/] is running (pid 7)\nready  kafka :9092\n"


def test_a_terminal_shows_what_goes_on_until_all_is_ready() -> None:
    on = console(terminal=True)
    with WorkDisplay(on, "starting") as display:
        display.say("starting Kafka")
        display._progress.refresh()
        assert shown(on).count("starting Kafka") == 2
        assert "0:00:00" in shown(on)
        display.say("ready  kafka :9092")
        before = shown(on)
        display.say("stopping")
    assert shown(on)[len(before) :].strip().endswith("stopping")
    assert "0:00:00" not in shown(on)[len(before) :]


def test_what_goes_on_may_change_without_a_line() -> None:
    for terminal in (True, False):
        on = console(terminal=terminal)
        with WorkDisplay(on, "fetching") as display:
            display.now("keeping classes")
            display._progress.refresh()
        assert ("keeping classes" in shown(on)) is terminal


BOTH_STREAMS = "import sys; print('looked at', flush=True); sys.exit('a mistake')"


def test_on_a_terminal_the_lines_of_a_command_come_above_what_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on = console(terminal=True)
    monkeypatch.setattr(work_display, "Console", lambda **_: on)
    assert run_shown([sys.executable, "-c", BOTH_STREAMS], "starting Spark") == 1
    assert "starting Spark" in shown(on)
    assert shown(on).index("looked at") < shown(on).index("a mistake")


def test_elsewhere_a_command_has_its_own_streams(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(work_display, "Console", lambda **_: console(terminal=False))
    assert run_shown([sys.executable, "-c", BOTH_STREAMS], "starting Spark") == 1
    assert tuple(capfd.readouterr()) == ("looked at\n", "a mistake\n")


def test_where_nothing_is_to_be_shown_nothing_is(capsys: pytest.CaptureFixture[str]) -> None:
    on = Console(force_terminal=True, quiet=True)
    with WorkDisplay(on, "reading -") as display:
        display.now("sent 1 records")
        assert not display._progress.live.is_started
    assert capsys.readouterr().out == ""
