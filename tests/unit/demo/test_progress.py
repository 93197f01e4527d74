"""What a demo is at is seen on a terminal, and told in lines elsewhere."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from demo.progress import Shown
from demo.reporting import Sofar, progress


def console(*, terminal: bool) -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    return Console(file=file, force_terminal=terminal, width=120), file


def test_a_file_gets_lines() -> None:
    on, file = console(terminal=False)
    with Shown(on, "starting") as shown:
        shown.now("starting Kafka")
        shown.say("[up] is ready")
        shown.until(lambda: True, "results")
    assert file.getvalue() == "starting ...\n[up] is ready\n"


def test_a_terminal_shows_what_goes_on() -> None:
    on, file = console(terminal=True)
    with Shown(on, "starting") as shown:
        for what in ("starting Kafka", "waiting: results"):
            shown.now(what)
            shown._progress.refresh()
            assert what in file.getvalue()
        assert "0:00:00" in file.getvalue()
        shown.say("ready")
    assert file.getvalue().count("ready") == 1


def test_what_does_not_come_about_is_named() -> None:
    on, _ = console(terminal=False)
    with Shown(on, "starting") as shown, pytest.raises(TimeoutError, match="0 s: a miracle"):
        shown.until(lambda: False, "a miracle", 0)


@pytest.mark.parametrize(
    ("passed_s", "lag_ms", "texts"),
    [
        (12.4, None, ("12 of 75 s", "3,000 of about 60,000", "1.50 GiB", " -")),
        (80.0, 1_234, ("written; waiting for the last results, 5 s", "1,234 ms")),
    ],
)
def test_a_run_shows_how_far_it_is(
    passed_s: float, lag_ms: int | None, texts: tuple[str, ...]
) -> None:
    on, file = console(terminal=False)
    on.print(progress(passed_s, 75.0, Sofar(3_000, 60_000, 4, 17, lag_ms, 3 * 512 * 1024**2)))
    for text in texts:
        assert text in file.getvalue()
