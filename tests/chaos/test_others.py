"""The share of the processors' time that others had."""

from __future__ import annotations

import os
import time

import pytest

from chaos import others
from chaos.others import OthersShare


def test_what_a_run_takes_itself_is_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """In 10 s the machine worked for 8, of which the deployment had 3 and this process 1."""
    processors = os.cpu_count() or 1
    clock = [0.0]
    busy = [100.0]
    deployment = [50.0]
    own = [7.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(others, "busy_s", lambda: busy[0])
    monkeypatch.setattr(os, "getpriority", lambda *_: 0)
    monkeypatch.setattr(os, "times", lambda: (own[0], 0.0, 0.0, 0.0, clock[0]))
    share = OthersShare(lambda: deployment[0])
    clock[0], busy[0] = 10.0, 108.0
    deployment[0], own[0] = 50.0 + 3.0 * processors, 7.0 + 1.0 * processors
    assert share.now() == pytest.approx(0.4)
    busy[0] = 100.0
    assert share.now() == 0.0


def test_a_run_at_a_low_priority_counts_among_what_runs_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In 10 s the machine worked for 5, and for 4 at a low priority: the deployment had 3."""
    clock = [0.0]
    busy, low = [100.0], [70.0]
    deployment = [50.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(others, "busy_s", lambda: busy[0])
    monkeypatch.setattr(others, "low_priority_s", lambda: low[0])
    monkeypatch.setattr(os, "times", lambda: (7.0, 0.0, 0.0, 0.0, clock[0]))
    monkeypatch.setattr(os, "getpriority", lambda *_: 19)
    share = OthersShare(lambda: deployment[0])
    clock[0], busy[0] = 10.0, 105.0
    low[0] = 74.0
    deployment[0] = 50.0 + 3.0 * (os.cpu_count() or 1)
    assert share.now() == pytest.approx(0.6)
