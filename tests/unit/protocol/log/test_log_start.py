"""Reading a log from its beginning, or from a log snapshot on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.protocol import limits
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.log_start import LogStart
from anabranch.protocol.log.records import LogEntry, LogSnapshot
from harness.boundary_logs import part, record, started, state_after

ENTRIES: list[LogEntry] = [
    started("0"),
    started("1"),
    *(record(0, n, n, (part(n + 1),)) for n in range(8)),
]
WHOLE = state_after(*ENTRIES)


def upto(offset: int) -> LogSnapshot:
    """Of everything below ``offset``."""
    return state_after(*ENTRIES[:offset]).snapshot(offset)


class Reading:
    """Somebody who reads."""

    def __init__(self, first: int, writers: str = "01") -> None:
        self.log_state = LogState(writers)
        self.start = LogStart(self.log_state, first)
        self.heard: list[tuple[int, str]] = []

    @property
    def is_over(self) -> bool:
        return self.start.is_over

    def take(self, offset: int, entry: LogEntry) -> None:
        self.heard += [(at, outcome.reason) for at, _, outcome in self.start.apply(offset, entry)]

    def take_entries(self, first: int, end: int) -> None:
        for offset in range(first, end):
            self.take(offset, ENTRIES[offset])


def test_ls2_a_log_that_begins_at_its_beginning_is_read_as_it_comes() -> None:
    reading = Reading(0)
    assert reading.is_over
    reading.take_entries(0, 4)
    reading.take(4, replace(upto(3), past=99))
    reading.take_entries(4, 10)
    assert [reason for _, reason in reading.heard] == ["epoch"] * 2 + ["accepted"] * 2 + [
        "log_snapshot"
    ] + ["accepted"] * 6
    assert reading.log_state.snapshot(0) == WHOLE.snapshot(0)


@pytest.mark.parametrize(
    ("first", "as_of", "stands"), [(1, 1, 1), (3, 3, 7), (3, 6, 6), (1, 6, 10), (9, 10, 10)]
)
def test_ls1_what_was_held_back_is_applied_from_the_snapshot_on(
    first: int, as_of: int, stands: int
) -> None:
    reading = Reading(first)
    reading.take_entries(first, stands)
    assert (
        reading.is_over,
        reading.heard,
        reading.log_state.upto,
        reading.log_state.epoch("0"),
    ) == (False, [], 0, None)
    reading.take(stands, upto(as_of))
    assert reading.is_over
    assert [offset for offset, _ in reading.heard] == [stands, *range(as_of, stands)]
    reading.take_entries(stands, 10)
    assert reading.log_state.snapshot(0) == WHOLE.snapshot(0)


def test_ls1_the_log_state_changes_by_one_record_at_a_time() -> None:
    reading = Reading(2)
    reading.take_entries(2, 8)
    seen = [reading.log_state.upto for _ in reading.start.apply(8, upto(4))]
    assert seen == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "log_snapshot",
    [upto(2), replace(upto(7), as_of=8), state_after(*ENTRIES, writers="7").snapshot(5)],
)
def test_ls4_what_it_cannot_begin_with_is_passed_by(log_snapshot: LogSnapshot) -> None:
    """Of too early a state, of one that is still to come, of other writers."""
    reading = Reading(3)
    reading.take_entries(3, 7)
    reading.take(7, log_snapshot)
    assert (reading.is_over, reading.heard) == (False, [])
    reading.take(7, upto(5))
    reading.take_entries(7, 10)
    assert reading.log_state.snapshot(0) == WHOLE.snapshot(0)


def test_a_snapshot_among_what_is_held_back_changes_nothing() -> None:
    reading = Reading(3)
    reading.take_entries(3, 6)
    reading.take(6, replace(upto(7), as_of=9))
    reading.take(6, upto(5))
    assert reading.heard == [(6, "adopted"), (5, "accepted"), (6, "log_snapshot")]


def test_ls3_no_more_is_held_back_than_a_snapshot_may_be_late() -> None:
    reading, late = Reading(5), limits.SNAPSHOT_LATE_RECORDS
    for offset in range(5, 4 * late):
        reading.take(offset, ENTRIES[5])
    assert len(reading.start._held) == late + 1
    reading.take(4 * late, replace(upto(5), as_of=3 * late - 1))
    assert len(reading.heard) == 0
    reading.take(4 * late, replace(upto(5), as_of=3 * late))
    assert len(reading.heard) == late + 2, "and the log snapshot before"
