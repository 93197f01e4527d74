"""When a node without executors waits, and when it ends."""

from __future__ import annotations

import pytest

from anabranch.protocol.control.executors import (
    EXECUTORS_AWAY_MS,
    ExecutorWatch,
    WithoutExecutors,
)

GO_ON, WAIT, END = WithoutExecutors


@pytest.mark.parametrize("gone", [False, True])
def test_who_has_an_executor_goes_on_with_or_without_a_master(gone: bool) -> None:
    watch = ExecutorWatch(0)
    for now_ms in range(0, 10 * EXECUTORS_AWAY_MS, EXECUTORS_AWAY_MS):
        assert watch.look(now_ms, 1, master_has_gone=gone) is GO_ON


@pytest.mark.parametrize("gone", [False, True])
def test_a_moment_without_executors_is_none(gone: bool) -> None:
    watch = ExecutorWatch(100)
    assert watch.look(99 + EXECUTORS_AWAY_MS, 0, master_has_gone=gone) is GO_ON
    assert watch.look(500_000, 2, master_has_gone=gone) is GO_ON
    assert watch.look(499_999 + EXECUTORS_AWAY_MS, 0, master_has_gone=gone) is GO_ON


def test_who_has_none_waits_as_long_as_its_master_is_there() -> None:
    watch = ExecutorWatch(0)
    for now_ms in (EXECUTORS_AWAY_MS, 100 * EXECUTORS_AWAY_MS):
        assert watch.look(now_ms, 0, master_has_gone=False) is WAIT
    assert watch.look(100 * EXECUTORS_AWAY_MS + 1, 1, master_has_gone=False) is GO_ON


def test_who_has_none_and_has_lost_its_master_ends() -> None:
    watch = ExecutorWatch(0)
    assert watch.look(EXECUTORS_AWAY_MS, 0, master_has_gone=True) is END
