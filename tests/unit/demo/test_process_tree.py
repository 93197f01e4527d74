"""Tests of the processor time that all programs of the machine took, by the fields of
/proc/stat.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from demo import process_tree


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
