from __future__ import annotations

import io
import sys

import pytest
from rich.console import Console

from anabranch.cli import work_display
from anabranch.cli.work_display import WorkDisplay, run_shown
from anabranch.protocol.errors import AnabranchError


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


def test_a_process_that_a_signal_ended_is_an_error_that_names_it() -> None:
    script = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    with pytest.raises(AnabranchError, match="starting Spark: the process was ended by SIGKILL"):
        run_shown([sys.executable, "-c", script], "starting Spark")
