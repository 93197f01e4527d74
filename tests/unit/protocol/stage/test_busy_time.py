"""Busy time counts what runs, once, from the begin of a batch on."""

from __future__ import annotations

from anabranch.protocol.stage.busy_time import BusyRead, BusyTime


def test_nothing_ran() -> None:
    busy = BusyTime(1_000)
    found = busy.read(3_000)
    assert found == BusyRead(2_000, 0, 0)
    assert (found.busy_permille, found.rows_per_s) == (0, 0)


def test_a_batch_that_runs_counts_before_its_end() -> None:
    """BT2."""
    busy = BusyTime(0)
    busy.began("q", 500)
    assert busy.read(1_000).busy_permille == 500
    assert busy.read(2_000) == BusyRead(1_000, 1_000, 0)
    busy.ended("q", 30, 2_250)
    found = busy.read(4_000)
    assert found == BusyRead(2_000, 250, 30)
    assert found.rows_per_s == 15


def test_two_queries_at_the_same_time_count_once() -> None:
    """BT1, BT3."""
    busy = BusyTime(0)
    busy.began("stable", 0)
    busy.began("branch", 100)
    busy.ended("stable", 5, 400)
    busy.ended("branch", 7, 600)
    assert busy.read(1_000) == BusyRead(1_000, 600, 12)


def test_what_is_read_twice_at_once_has_no_share() -> None:
    busy = BusyTime(0)
    busy.began("q", 0)
    busy.read(1_000)
    found = busy.read(1_000)
    assert (found.busy_permille, found.rows_per_s) == (0, 0)


def test_a_dropped_query_that_never_ran_changes_nothing() -> None:
    busy = BusyTime(0)
    busy.ended("q", 0, 700)
    assert busy.read(1_000) == BusyRead(1_000, 0, 0)
