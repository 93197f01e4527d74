"""When a log gets a snapshot, what of it may be deleted, and how a reader begins after that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.codec import boundary_records
from anabranch.protocol import limits
from anabranch.protocol.log import log_snapshots
from anabranch.protocol.log.boundary_log import LogState, Outcome
from anabranch.protocol.log.log_snapshots import (
    SNAPSHOT_LATE_RECORDS,
    LogSnapshots,
    LogStart,
    forgettable,
    items,
)
from anabranch.protocol.log.records import (
    BoundaryRecord,
    BranchEnded,
    InputPosition,
    LogEntry,
    LogSnapshot,
    Recomputed,
)
from harness.boundary_logs import part, record, started, state_after

TAKEN = Outcome(accepted=True, reason="accepted", replica="0")
READ = Outcome(accepted=False, reason="log_snapshot", replica="")
STRANGE = Outcome(accepted=False, reason="unknown_writer", replica="2")


def at(as_of: int, forgotten: int = 0) -> LogSnapshot:
    log_state = state_after(started(), record(0, 0, 9, tuple(part(n) for n in range(1, 10))))
    return log_state.snapshot(as_of, forgotten)


def seen(every: int, *as_ofs: int) -> LogSnapshots:
    made = LogSnapshots("01", every)
    for as_of in as_ofs:
        made.seen(as_of, at(as_of), READ)
    return made


def test_what_readers_have_passed_need_not_be_described() -> None:
    log_state = state_after(started(), record(0, 0, 9))
    assert [forgettable(log_state, point, "0", 0) for point in (0, 4, 9, 99)] == [0, 4, 9, 9]


def test_of_a_stage_with_a_state_horizon_the_last_results_are_described() -> None:
    """It makes those of the last horizon again, and compares; they may be half a horizon
    older by the time.
    """
    log_state = state_after(started(), record(0, 0, 9))
    assert [forgettable(log_state, point, "0", 2) for point in (0, 4, 9, 99)] == [0, 4, 5, 5]
    assert forgettable(log_state, 9, "0", 50) == 0


def test_the_first_snapshot_is_due_when_enough_is_there_and_the_next_after_it() -> None:
    made = seen(100)
    assert [made.due(end) for end in (0, 99, 100, 1_000)] == [False, False, True, True]
    made.seen(110, at(105), READ)
    assert made.newest == 105
    assert [made.due(end) for end in (204, 205)] == [False, True]


def test_many_parts_make_one_due_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_snapshots, "SNAPSHOT_EVERY_PARTS", 10)
    made = seen(100)
    made.seen(0, started(), TAKEN)
    made.seen(0, record(0, 0, 1, (part(1),) * 6), TAKEN)
    assert not made.due(1)
    made.seen(1, BranchEnded("0", 0, 1), TAKEN)
    assert not made.due(2)
    made.seen(1, Recomputed("0", 0, (part(1),) * 4), TAKEN)
    assert made.due(2)
    made.seen(2, at(2), READ)
    assert not made.due(3)


def test_sn2_between_what_is_deleted_and_the_newest_snapshot_there_is_enough() -> None:
    assert seen(100).cut() == 0
    assert seen(100, 100).cut() == 0
    assert seen(100, 100, 150, 199).cut() == 0
    assert seen(100, 100, 150, 200).cut() == 100
    made = seen(100, 100, 150, 200, 250)
    assert [made.cut(), made.cut()] == [150, 150]
    made.seen(300, at(300), READ)
    assert (made.cut(), made.newest) == (200, 300)


@pytest.mark.parametrize(
    ("offset", "log_snapshot"),
    [
        (SNAPSHOT_LATE_RECORDS + 51, at(50)),
        (49, at(50)),
        (60, state_after(started(), writers="7").snapshot(50)),
        (60, at(10)),
    ],
    ids=["too late", "of what is to come", "of other writers", "older than another"],
)
def test_sn1_what_no_reader_can_begin_with_does_not_count(
    offset: int, log_snapshot: LogSnapshot
) -> None:
    made = seen(1, 20)
    made.seen(offset, log_snapshot, READ)
    assert (made.newest, made.cut()) == (20, 0)


def test_a_snapshot_is_what_was_read_less_what_is_not_needed() -> None:
    log_state = state_after(started(), record(0, 0, 9, tuple(part(n) for n in range(1, 10))))
    made = seen(1)
    log_snapshot = made.make(log_state, 2, 4, {"0": "h"})
    plain = log_state.snapshot(2, 4)
    assert log_snapshot == replace(
        plain, replicas=(replace(plain.replicas[0], history="h"), plain.replicas[1])
    )
    assert log_snapshot.forgotten == 4
    assert (made.rejected, log_state.forgotten) == ("", 0)


def test_two_managers_write_the_same() -> None:
    """Also where one of them began at a log snapshot of the other."""
    log: list[LogEntry] = [started(), record(0, 0, 9, tuple(part(n) for n in range(1, 10)))]
    whole, begun = state_after(*log), LogState("01")
    begun.adopt(state_after(*log).snapshot(2, 3))
    for log_state in (whole, begun):
        log_state.apply(2, record(0, 1, 12, (part(11),)))
    assert seen(1).make(whole, 3, 5, {}) == seen(1).make(begun, 3, 5, {})


def test_one_that_was_made_is_not_made_again_at_once() -> None:
    log_state, late = state_after(started(), record(0, 0, 3)), SNAPSHOT_LATE_RECORDS
    made = seen(10_000)
    assert made.make(log_state, 10_000, 0, {}) is not None
    assert [made.due(10_000 + more) for more in (0, late - 1, late)] == [False, False, True], (
        "by then it would be too late"
    )
    made = seen(10)
    assert made.make(log_state, 10, 0, {}) is not None
    assert [made.due(end) for end in (19, 20)] == [False, True]


def test_sn3_where_what_readers_need_is_forgotten_there_is_no_log_snapshot() -> None:
    log_state = state_after(started(), record(0, 0, 9))
    log_state.forget(5)
    made = seen(10)
    assert made.make(log_state, 10, 4, {}) is None
    assert (
        made.rejected
        == "readers need buckets from 5 on, and those up to 5 were dropped from memory"
        " for lack of room"
    )
    assert [made.due(end) for end in (10, 19, 20)] == [False, False, True]
    assert made.make(log_state, 20, 5, {}) is not None
    assert made.rejected == ""


def test_sn3_what_a_snapshot_has_forgotten_may_be_forgotten() -> None:
    """The trim point may have been lost; that nobody needs them was true."""
    log_state = LogState("01")
    log_state.adopt(at(2, 5))
    made = seen(10)
    made.seen(2, at(2, 5), READ)
    log_snapshot = made.make(log_state, 20, 0, {})
    assert log_snapshot is not None
    assert log_snapshot.forgotten == 5


def test_sn4_one_that_is_too_large_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_snapshots, "SNAPSHOT_ITEMS_MAX", 20)
    log_state = state_after(started(), record(0, 0, 9, tuple(part(n) for n in range(1, 10))))
    made = seen(10)
    assert made.make(log_state, 10, 0, {}) is None
    assert "more than 20: a reader far behind needs buckets from 1 on" in made.rejected
    assert not made.due(19)
    log_state = state_after(started(), record(0, 0, 9, (part(3),)), record(0, 1, 9))
    assert made.make(log_state, 20, 5, {}) is not None
    made.too_large(20, "too many bytes")
    assert (made.rejected, made.due(29), made.due(30)) == ("too many bytes", False, True)


def test_sn4_now_and_then_it_is_looked_how_much_the_log_state_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_snapshots, "SNAPSHOT_EVERY_PARTS", 4)
    monkeypatch.setattr(log_snapshots, "SNAPSHOT_ITEMS_MAX", 8)
    made = seen(100)
    log_state = state_after(started())
    answers = []
    for number in range(1, 13):
        entry = record(0, number - 1, number, (part(number),))
        made.seen(number, entry, log_state.apply(number, entry))
        answers.append(made.overfull(log_state))
    assert answers == [False] * 11 + [True]
    assert not made.overfull(log_state)


def test_sn5_while_a_stranger_writes_there_is_no_log_snapshot() -> None:
    made = seen(10)
    made.seen(0, started("2"), STRANGE)
    made.seen(1, record(0, 0, 1, replica="2"), STRANGE)
    made.read_to_end()
    assert made.due(10), "who wrote before is no writer any more"
    made.seen(2, record(1, 1, 1, replica="2"), STRANGE)
    made.seen(3, Recomputed("3", 0, ()), STRANGE)
    assert (made.unknown_writer, made.due(10)) == ("", True), "of no epoch: somebody made it up"
    made.seen(5, record(0, 2, 1, replica="2"), STRANGE)
    assert (made.unknown_writer, made.due(10)) == ("2", False)
    made = seen(10)
    made.read_to_end()
    made.seen(0, started("2"), STRANGE)
    assert (made.unknown_writer, made.due(10)) == ("2", False)


def test_names_of_unknown_writers_do_not_fill_memory() -> None:
    made = seen(10)
    for number in range(100):
        made.seen(number, started(f"s{number}"), STRANGE)
    assert len(made._unknown_epochs) == limits.REPLICAS_MAX


def test_items_are_counted_as_the_codec_counts_them() -> None:
    """Never fewer: the decoder rejects a record of more."""
    tentative = record(
        0, 1, 12, (part(11), part(14)), branch=(0, 1), base=9, prev=None, missing=("a", "b")
    )
    last = BoundaryRecord(
        **{
            name: getattr(record(0, 0, 9, (part(3), part(12))), name)
            for name in ("replica", "epoch", "id", "prev", "closed", "parts")
        },
        positions=(InputPosition("t", 0, 1, 1),),
        made_from=(("x", 1),),
        missing=("m",),
    )
    log_snapshot = state_after(started(), last, tentative).snapshot(3)
    assert log_snapshot.replicas[0].branches is not None
    count = items(log_snapshot)
    limits_before = limits.SNAPSHOT_ITEMS_MAX
    value, _ = boundary_records.encode(log_snapshot)
    try:
        vars(limits)["SNAPSHOT_ITEMS_MAX"] = count
        assert boundary_records.decode(value) == log_snapshot
    finally:
        vars(limits)["SNAPSHOT_ITEMS_MAX"] = limits_before


def test_enough_is_left_for_copies_of_peers() -> None:
    assert limits.SNAPSHOT_EVERY_RECORDS > limits.REPLICAS_MAX * limits.CHECKPOINT_BATCHES_RETAINED
    assert SNAPSHOT_LATE_RECORDS < limits.SNAPSHOT_EVERY_RECORDS


ENTRIES: list[LogEntry] = [
    started("0"),
    started("1"),
    *(record(0, n, n, (part(n + 1),)) for n in range(8)),
]
WHOLE = state_after(*ENTRIES)


def upto(offset: int) -> LogSnapshot:
    """Return a snapshot of everything below ``offset``."""
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
    """The snapshot is of too early a state, of a later one, or of other writers."""
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
    reading, late = Reading(5), SNAPSHOT_LATE_RECORDS
    for offset in range(5, 4 * late):
        reading.take(offset, ENTRIES[5])
    assert len(reading.start._buffered) == late + 1
    reading.take(4 * late, replace(upto(5), as_of=3 * late - 1))
    assert len(reading.heard) == 0
    reading.take(4 * late, replace(upto(5), as_of=3 * late))
    assert len(reading.heard) == late + 2, "and the log snapshot before"
