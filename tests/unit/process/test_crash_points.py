"""Crash points: only the one that is asked for, and only its n-th time."""

from __future__ import annotations

import itertools
import os
import signal

import pytest

from anabranch.process import crash_points


@pytest.mark.parametrize(
    ("wanted", "killed_at"), [("", None), ("p", 1), ("p:1", 1), ("p:3", 3), ("q", None)]
)
def test_a_crash_point_kills_at_its_nth_time(
    wanted: str, killed_at: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[tuple[int, int]] = []
    monkeypatch.setenv(crash_points.VARIABLE, wanted)
    monkeypatch.setattr(crash_points, "_IS_ARMED", bool(wanted))
    monkeypatch.setattr(crash_points, "_TIMES", itertools.count(1))
    monkeypatch.setattr("os.kill", lambda pid, number: killed.append((pid, number)))
    times = 0
    while not killed and times < 10:
        crash_points.crash_point("other")
        crash_points.crash_point("p")
        times += 1
    assert (times if killed else None) == killed_at
    assert killed in ([], [(os.getpid(), signal.SIGKILL)])


def test_every_point_says_what_is_so_there() -> None:
    assert all(name.count(".") == 1 and text for name, text in crash_points.POINTS.items())
    assert len(set(crash_points.POINTS.values())) == len(crash_points.POINTS)
