from __future__ import annotations

import io
import sys

import pytest
from rich.console import Console

from anabranch.cli import work_display
from anabranch.cli.work_display import WorkDisplay, run_shown
from anabranch.protocol.errors import AnabranchError

BAR = "\u2501"


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


def test_what_is_counted_has_a_bar_until_all_is_done() -> None:
    on = console(terminal=True)
    with WorkDisplay(on, "starting") as display:
        display._progress.refresh()
        assert BAR not in shown(on)
        for done in (0, 3):
            display.count("processes", done, 7)
            display.say(f"north.{done} is running")
            display._progress.refresh()
            last = shown(on).splitlines()[-1]
            assert f"north.{done} is running" in last
            assert f"{done} of 7 processes" in last
            assert BAR in last
        display.count("processes", 7, 7)
        display.now("keeping classes")
        display._progress.refresh()
        last = shown(on).splitlines()[-1]
        assert "keeping classes" in last
        assert BAR not in last
        assert "of 7" not in last


def test_the_clock_goes_on_when_all_that_was_counted_is_done() -> None:
    with WorkDisplay(console(terminal=True), "starting") as display:
        for done in (0, 1, 2):
            display.count("jars", done, 2)
        assert display._progress.tasks[0].finished_time is None


def test_a_count_brings_back_what_went_away_with_ready() -> None:
    on = console(terminal=True)
    with WorkDisplay(on, "starting") as display:
        display.say("ready  kafka :9092")
        display.say("stopping")
        before = shown(on)
        display.count("processes", 1, 3)
        display._progress.refresh()
        assert "1 of 3 processes" in shown(on)[len(before) :]
    before = shown(on)
    display.count("processes", 2, 3)
    assert shown(on) == before, "all is over"


def test_elsewhere_than_on_a_terminal_nothing_is_counted() -> None:
    on = console(terminal=False)
    with WorkDisplay(on, "starting") as display:
        display.count("processes", 1, 3)
    assert shown(on) == ""


STEPS = """
from anabranch.adapters.system.progress import printed
progress = printed()
progress("stages", 0, 2)
print("looked at", flush=True)
progress("stages", 1, 2)
"""
BOTH_STREAMS = "import sys; print('looked at', flush=True); sys.exit('a mistake')"


def test_on_a_terminal_the_lines_of_a_command_come_above_what_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on = console(terminal=True)
    monkeypatch.setattr(work_display, "Console", lambda **_: on)
    assert run_shown([sys.executable, "-c", BOTH_STREAMS], "starting Spark") == 1
    assert "starting Spark" in shown(on)
    assert shown(on).index("looked at") < shown(on).index("a mistake")


def test_on_a_terminal_a_command_is_counted_as_far_as_it_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on, steps = console(terminal=True), list[tuple[str, int, int]]()
    monkeypatch.setattr(work_display, "Console", lambda **_: on)
    monkeypatch.setattr(WorkDisplay, "count", lambda _self, *step: steps.append(step))
    assert run_shown([sys.executable, "-c", STEPS], "starting Spark") == 0
    assert steps == [("stages", 0, 2), ("stages", 1, 2)]
    assert "progress" not in shown(on)
    assert "looked at" in shown(on)


def test_elsewhere_a_command_prints_no_steps(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(work_display, "Console", lambda **_: console(terminal=False))
    assert run_shown([sys.executable, "-c", STEPS], "starting Spark") == 0
    assert capfd.readouterr().out == "looked at\n"


def test_elsewhere_a_command_has_its_own_streams(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(work_display, "Console", lambda **_: console(terminal=False))
    assert run_shown([sys.executable, "-c", BOTH_STREAMS], "starting Spark") == 1
    assert tuple(capfd.readouterr()) == ("looked at\n", "a mistake\n")


@pytest.mark.parametrize("terminal", [True, False])
def test_what_spark_writes_at_each_start_is_left_out(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    on = console(terminal=terminal)
    monkeypatch.setattr(work_display, "Console", lambda **_: on)
    script = """
import sys
print('Setting default log level to "WARN".', 'WARNING: it matters', sep='\\n', file=sys.stderr)
"""
    assert run_shown([sys.executable, "-c", script], "starting Spark") == 0
    output = shown(on) if terminal else capfd.readouterr().err
    assert "it matters" in output
    assert "Setting default" not in output


def test_where_nothing_is_to_be_shown_nothing_is(capsys: pytest.CaptureFixture[str]) -> None:
    on = Console(force_terminal=True, quiet=True)
    with WorkDisplay(on, "reading -") as display:
        display.now("sent 1 records")
        assert not display._progress.live.is_started
    assert capsys.readouterr().out == ""


def test_a_process_that_a_signal_ended_is_an_error_that_names_it() -> None:
    script = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    with pytest.raises(AnabranchError, match="starting Spark: the process was ended by SIGKILL"):
        run_shown([sys.executable, "-c", script], "starting Spark")
