"""What a demo is at is seen on a terminal, and told in lines elsewhere."""

from __future__ import annotations

import io
import time

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
        shown.print("[up] is ready")
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
        shown.print("ready")
    assert file.getvalue().count("ready") == 1


def test_a_pause_is_counted_in_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    on, file = console(terminal=True)
    now_s = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    with Shown(on, "starting") as shown:

        def sleep(sleep_s: float) -> None:
            shown._progress.refresh()
            now_s[0] += 1.5

        monkeypatch.setattr(time, "sleep", sleep)
        shown.pause("north is away", 4)
    for text in ("north is away", "0 of 4 s", "1 of 4 s", "3 of 4 s"):
        assert text in file.getvalue()
    assert now_s[0] == 104.5


def test_what_does_not_come_about_is_named() -> None:
    on, _ = console(terminal=False)
    with Shown(on, "starting") as shown, pytest.raises(TimeoutError, match="0 s: a miracle"):
        shown.until(lambda: False, "a miracle", 0)


@pytest.mark.parametrize(
    ("passed_s", "lag_ms", "total", "texts"),
    [
        (12.4, None, None, ("12 of 75 s", "3,000 of about 60,000", "1.50 GiB", " -")),
        (80.0, 1_234, 20, ("waiting for the last results, 5 s", "1,234 ms", "17 of 20")),
    ],
)
def test_a_run_shows_how_far_it_is(
    passed_s: float, lag_ms: int | None, total: int | None, texts: tuple[str, ...]
) -> None:
    on, file = console(terminal=False)
    far = Sofar(3_000, 60_000, 4, 17, lag_ms, 3 * 512 * 1024**2, total)
    on.print(progress(passed_s, 75.0, far))
    for text in texts:
        assert text in file.getvalue()
