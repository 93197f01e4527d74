"""Busy time counts what runs, once, from the begin of a batch on."""

from __future__ import annotations

import pytest

from anabranch.protocol.control.records import ReplicaLoad
from anabranch.protocol.stage.busy_time import COLD_MS_MAX, BusyRead, BusyTime, reported_load
from anabranch.protocol.stage.load_control import COLD_BATCHES


def test_nothing_ran() -> None:
    busy = BusyTime(1_000)
    found = busy.read(3_000)
    assert found == BusyRead(2_000, 0, 0)
    assert (found.busy_permille, found.rows_per_s) == (0, 0)


def test_a_batch_that_runs_counts_before_its_end() -> None:
    """BT2."""
    busy = BusyTime(0)
    busy.began("q", 0, 500)
    assert busy.read(1_000).busy_permille == 500
    assert busy.read(2_000) == BusyRead(1_000, 1_000, 0)
    busy.ended("q", 30, 2_250)
    found = busy.read(4_000)
    assert found == BusyRead(2_000, 250, 30)
    assert found.rows_per_s == 15


def test_two_queries_at_the_same_time_count_once() -> None:
    """BT1, BT3."""
    busy = BusyTime(0)
    busy.began("stable", 0, 0)
    busy.began("branch", 0, 100)
    busy.ended("stable", 5, 400)
    busy.ended("branch", 7, 600)
    assert busy.read(1_000) == BusyRead(1_000, 600, 12)


def test_what_is_read_twice_at_once_has_no_share() -> None:
    busy = BusyTime(0)
    busy.began("q", 0, 0)
    busy.read(1_000)
    found = busy.read(1_000)
    assert (found.busy_permille, found.rows_per_s) == (0, 0)


def test_a_dropped_query_that_never_ran_changes_nothing() -> None:
    busy = BusyTime(0)
    busy.ended("q", 0, 700)
    assert busy.read(1_000) == BusyRead(1_000, 0, 0)


def test_the_first_batches_with_rows_are_cold() -> None:
    """BT4."""
    busy = BusyTime(0)
    for second in range(COLD_BATCHES):
        busy.began("branch" if second else "q", 7, second * 1_000)
        busy.ended("branch" if second else "q", 7, second * 1_000 + 900)
        assert busy.read(second * 1_000 + 1_000).is_cold
    busy.began("q", 7, 10_000)
    assert not busy.read(11_000).is_cold


def test_a_batch_without_rows_is_not_cold() -> None:
    """BT4: it says nothing of Java."""
    busy = BusyTime(0)
    for second in range(COLD_BATCHES):
        busy.began("q", 0, second * 1_000)
        busy.ended("q", 0, second * 1_000 + 500)
        assert not busy.read(second * 1_000 + 1_000).is_cold
    busy.began("q", 1, 9_000)
    assert busy.read(10_000).is_cold
    busy.ended("q", 1, 10_500)
    assert busy.read(11_000).is_cold
    assert not busy.read(12_000).is_cold, "none ran"


def test_after_a_minute_no_batch_is_cold() -> None:
    """BT4: an overload that begins with long batches is seen at last."""
    busy = BusyTime(0)
    busy.began("q", 1_000, 1_000)
    assert busy.read(COLD_MS_MAX).is_cold
    assert busy.read(COLD_MS_MAX + 2_000).is_cold, "it began a second later"
    assert not busy.read(COLD_MS_MAX + 3_000).is_cold
    busy.ended("q", 1_000, COLD_MS_MAX + 4_000)
    busy.began("q", 1_000, COLD_MS_MAX + 4_000)
    assert not busy.read(COLD_MS_MAX + 5_000).is_cold


def warm() -> BusyTime:
    """Return a measurement whose cold batches have ended, at 10 s."""
    busy = BusyTime(0)
    for _ in range(COLD_BATCHES):
        busy.began("q", 1, 0, 1_000)
        busy.ended("q", 1, 5_000)
    assert busy.read(10_000).need_permille == 0, "cold batches are not measured"
    return busy


def test_the_need_is_what_a_second_of_event_time_takes() -> None:
    """BT5."""
    busy = warm()
    busy.began("q", 9, 10_000, 2_000)
    busy.ended("q", 9, 10_300)
    busy.began("q", 9, 10_300, 500)
    busy.ended("q", 9, 11_000)
    assert busy.read(11_000).need_permille == 400
    assert busy.read(12_000).need_permille == 0, "none ran"


def test_a_long_batch_has_the_need_of_those_before_until_it_exceeds_it() -> None:
    """BT5."""
    busy = warm()
    busy.began("q", 9, 10_000, 2_000)
    busy.ended("q", 9, 10_500)
    assert busy.read(10_500).need_permille == 250
    busy.began("q", 9, 10_500, 10_000)
    assert busy.read(12_500).need_permille == 250
    assert busy.read(15_500).need_permille == 500
    busy.ended("q", 9, 18_500)
    assert busy.read(18_500).need_permille == 800


def test_the_time_of_two_queries_counts_half_for_each() -> None:
    """BT5: the stable query is the measure where it runs."""
    busy = warm()
    busy.began("stable", 9, 10_000, 1_000)
    busy.began("branch", 9, 10_400, 100, is_stable=False)
    busy.ended("branch", 9, 10_800)
    busy.ended("stable", 9, 11_000)
    assert busy.read(11_000).need_permille == 800
    busy.began("branch", 9, 11_000, 1_000, is_stable=False)
    assert busy.read(11_500).need_permille == 2_000, "that of the one that ended before"
    busy.ended("branch", 9, 11_600)
    assert busy.read(12_000).need_permille == 600


def test_a_batch_that_failed_is_not_measured() -> None:
    """BT5."""
    busy = warm()
    busy.began("q", 9, 10_000, 2_000)
    busy.began("q", 9, 13_000)
    busy.ended("q", 9, 14_000)
    busy.began("q", 9, 14_000, 100)
    busy.dropped("q", 15_000)
    assert busy.read(15_000).need_permille == 0


READ = BusyRead(2_000, 500, 30, is_cold=True, need_permille=700)


def reported(state: str, busy: BusyRead | None = READ, **facts: bool) -> ReplicaLoad:
    given = {"is_passive": False, "has_ended": False} | facts
    return reported_load("s", "0", state, busy, 4, **given)


def test_bt6_a_replica_runs_on_its_node_from_its_first_batch_to_its_end() -> None:
    assert reported("running") == ReplicaLoad(
        "s",
        "0",
        "running",
        leads=True,
        stands_by=False,
        busy_permille=250,
        rows_per_s=15,
        behind=4,
        is_cold=True,
        need_permille=700,
    )
    assert reported("waiting").leads
    assert not reported("starting").leads
    ended = reported("running", has_ended=True)
    assert (ended.leads, ended.busy_permille) == (False, 250)
    without = reported("running", None)
    assert (without.leads, without.busy_permille, without.need_permille) == (False, 0, 0)


@pytest.mark.parametrize(
    ("state", "is_passive", "stands_by"),
    [("standby", True, True), ("standby", False, False), ("starting", True, False)],
)
def test_bt6_a_process_that_is_ready_stands_by(
    state: str, *, is_passive: bool, stands_by: bool
) -> None:
    found = reported(state, None, is_passive=is_passive)
    assert (found.leads, found.stands_by) == (False, stands_by)
