"""``harness.waiting``: a deadline counts the time that the machine was given."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from harness import waiting


class Machine:
    """``stolen`` of each second goes to others."""

    def __init__(self, folder: Path, stolen: float) -> None:
        self.statistics = folder / "stat"
        self._stolen = stolen
        self.now_s = 0.0
        self.wait(0)

    def wait(self, pause_s: float) -> bool:
        self.now_s += pause_s
        ticks = round(self.now_s * self._stolen * os.sysconf("SC_CLK_TCK") * (os.cpu_count() or 1))
        self.statistics.write_text(f"cpu  1 2 3 4 5 6 7 {ticks} 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n")
        return False


@pytest.mark.parametrize(
    ("stolen", "expected_s"), [(0.0, 10), (0.5, 20), (0.75, 40), (0.99, 50), (1.0, 50)]
)
def test_time_that_others_had_does_not_count(
    stolen: float, expected_s: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine = Machine(tmp_path, stolen)
    monkeypatch.setattr(time, "monotonic", lambda: machine.now_s)
    monkeypatch.setattr(waiting, "_STATISTICS", machine.statistics)
    monkeypatch.setattr(waiting, "_PAUSE", machine)
    with pytest.raises(AssertionError, match="not within 10 s: it; last answer False"):
        waiting.wait_until(lambda: False, 10, "it", every_s=0.1)
    assert machine.now_s == pytest.approx(expected_s, abs=0.5)


@pytest.mark.parametrize("text", [None, "cpu  1 2 3 4\n"])
def test_where_the_system_does_not_tell_all_time_counts(
    text: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(waiting, "_STATISTICS", tmp_path / "stat")
    if text is not None:
        (tmp_path / "stat").write_text(text)
    before_s = time.monotonic()
    assert before_s <= waiting.given_s() <= time.monotonic()


def test_who_waits_may_allow_less_for_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine = Machine(tmp_path, 0.99)
    monkeypatch.setattr(time, "monotonic", lambda: machine.now_s)
    monkeypatch.setattr(waiting, "_STATISTICS", machine.statistics)
    monkeypatch.setattr(waiting, "_PAUSE", machine)
    with pytest.raises(AssertionError, match="not within 10 s: it"):
        waiting.wait_until(lambda: False, 10, "it", every_s=0.1, stretch=1)
    assert machine.now_s == pytest.approx(10, abs=0.5)


def test_a_message_tells_of_the_end_of_the_wait(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine = Machine(tmp_path, 0.0)
    monkeypatch.setattr(time, "monotonic", lambda: machine.now_s)
    monkeypatch.setattr(waiting, "_STATISTICS", machine.statistics)
    monkeypatch.setattr(waiting, "_PAUSE", machine)
    with pytest.raises(AssertionError, match="not within 10 s: it is 10; last answer False"):
        waiting.wait_until(lambda: False, 10, lambda: f"it is {machine.now_s:.0f}", every_s=0.1)
