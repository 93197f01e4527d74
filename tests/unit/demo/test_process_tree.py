"""Tests of the processor time that all programs of the machine took, by the fields of
/proc/stat.
"""

from __future__ import annotations

import os
import time
from itertools import pairwise
from pathlib import Path

import pytest

from demo import process_tree
from demo.stalls import others_share, taken_away


def test_own_tasks_of_a_low_priority_are_in_the_work_from_which_they_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the rest, which others had, is negative."""
    monkeypatch.setattr(process_tree, "_PROC", tmp_path)
    monkeypatch.setattr(os, "getpriority", lambda *_: 0)
    monkeypatch.setattr(os, "sysconf", lambda _: 100)
    (tmp_path / "stat").write_text("cpu  1000 5000 200 90000 70 3 4 8 0 0\ncpu0 1 1\n")
    assert process_tree.busy_s() == 12.15
    assert process_tree.busy_s(with_low=True) == 62.15
    monkeypatch.setattr(os, "getpriority", lambda *_: 10)
    assert process_tree.busy_s() == 62.15
    (tmp_path / "stat").unlink()
    assert process_tree.busy_s(with_low=True) == 0.0


def test_what_is_spent_while_the_trees_are_read_is_not_that_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All time is the tree's; reading it takes long the second time, on a busy machine."""
    now_s, reading_s = [0.0], [0.0]

    def took_s(_process: process_tree.Process) -> float:
        now_s[0] += reading_s[0] / 2
        spent_s = 2 * now_s[0]
        now_s[0] += reading_s[0] / 2
        return spent_s

    one = process_tree.Process(1, 1)
    monkeypatch.setattr(process_tree, "descendants", lambda _: {one})
    monkeypatch.setattr(process_tree, "processor_s", took_s)
    monkeypatch.setattr(process_tree, "busy_s", lambda: 2 * now_s[0])
    monkeypatch.setattr(os, "times", lambda: (0.0,) * 5)
    monkeypatch.setattr(time, "time_ns", lambda: round(now_s[0] * 1e9))
    meter = process_tree.TreeMeter(1, sees_memory=False)
    for takes_s in (0.0, 1.2, 0.0):
        reading_s[0] = takes_s
        meter.sample()
        now_s[0] += 1.0
    assert [each.at_ms for each in meter.spent] == [0, 1_600, 3_200]
    shares = [others_share(*pair, processors=2) for pair in pairwise(meter.spent)]
    assert shares == pytest.approx([0.0, 0.0])
    assert taken_away(meter.spent, 2) == []
