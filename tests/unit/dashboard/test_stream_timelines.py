"""The cells of a timeline, from the records of a boundary log."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from anabranch.dashboard.stream_timelines import BucketPhase, StreamTimeline
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.records import BoundaryRecord, LogEntry
from harness.boundary_logs import part, record, started

WIDTH_MS = 100


class Log:
    """A boundary log and its timeline."""

    def __init__(self, cells_max: int = 100) -> None:
        self.log_state, self.timeline = LogState(("0", "1")), StreamTimeline(WIDTH_MS, cells_max)
        self.offset = 0

    def take(self, *entries: LogEntry) -> None:
        for entry in entries:
            outcome = self.log_state.apply(self.offset, entry)
            self.timeline.take(entry, outcome, self.log_state)
            self.offset += 1

    def phases(self, buckets: Iterable[int]) -> str:
        """Return the first letter of each bucket's phase, - without a cell."""
        cells = self.timeline.cells
        return "".join(cells[b].phase[0] if b in cells else "-" for b in buckets)


def at(entry: BoundaryRecord, written_ms: int) -> BoundaryRecord:
    return replace(entry, written_ms=written_ms)


def test_a_bucket_that_is_closed_is_stable_with_its_rows_and_delay() -> None:
    log = Log()
    log.take(started(), at(record(0, 0, 3, (part(2, rows=5), part(3, rows=7))), 330))
    assert log.phases(range(1, 5)) == "-ss-"
    assert [(log.timeline.cells[b].rows, log.timeline.cells[b].stable_ms) for b in (2, 3)] == [
        (5, 130),
        (7, 30),
    ]
    assert log.timeline.read_from == "0"
    log.take(at(record(0, 1, 5), 560))
    assert log.phases(range(1, 7)) == "-ssss-", "an empty bucket is closed, too"


def test_the_first_record_closes_all_of_the_past_and_shows_none_of_it() -> None:
    log = Log()
    log.take(started(), record(0, 0, 10**9))
    assert list(log.timeline.cells) == [10**9]


def test_a_stream_that_begins_tentatively_begins_with_its_first_rows_and_is_corrected() -> None:
    """A stage whose input was missing when it began."""
    log = Log()
    log.take(
        started(),
        record(0, 0, 50, (part(48),), timeline="b", prev=None, base=0, branch=(0, 1)),
    )
    assert log.phases(range(45, 52)) == "---ttt-"
    log.take(record(0, 0, 49))
    assert log.phases(range(45, 52)) == "---rru-"
    log.take(record(0, 1, 60, (part(55),)))
    assert log.phases(range(45, 62)) == "---rrr" + "s" * 10 + "-"
    empty = Log()
    empty.take(started(), record(0, 0, 9, timeline="b", prev=None, base=0, branch=(0, 1)))
    assert empty.phases(range(6, 11)) == "---t-"


def test_delay_process_correct_in_one_timeline() -> None:
    log = Log()
    log.take(started(), record(0, 0, 2, (part(2),)))
    log.take(
        at(
            record(
                0,
                0,
                6,
                timeline="b",
                prev=record(0, 0, 2).id,
                base=2,
                branch=(0, 1),
                missing=("reports",),
            ),
            900,
        )
    )
    assert log.phases(range(1, 8)) == "-stttt-"
    assert log.timeline.missing == ("reports",)
    assert log.timeline.cells[6].tentative_ms == 300
    assert log.timeline.cells[6].first_ms == 300
    log.take(at(record(0, 1, 3), 1_000))
    assert log.phases(range(1, 8)) == "-sruuu-", "the first correction voids all that was shown"
    log.take(record(0, 1, 7, timeline="b", prev=record(0, 0, 6, timeline="b").id, branch=(0, 1)))
    assert log.phases(range(1, 8)) == "-sruuut", "what the branch makes meanwhile is shown"
    log.take(record(0, 2, 6))
    assert log.phases(range(1, 8)) == "-srrrrt"
    assert log.timeline.cells[3].stable_ms == 700
    assert log.timeline.cells[3].first_ms == 600, "the first result was the tentative one"
    log.take(record(0, 3, 7))
    assert log.phases(range(1, 9)) == "-srrrr" + "r-"
    assert not log.timeline.missing


def test_a_cell_says_how_many_rows_were_left_out() -> None:
    log = Log()
    log.take(started(), record(0, 0, 2, (part(2),)))
    fork = record(0, 0, 4, timeline="b", prev=record(0, 0, 2).id, base=2, branch=(0, 1))
    log.take(replace(fork, shed=700))
    assert [log.timeline.cells[bucket].shed for bucket in (2, 3, 4)] == [0, 700, 700]
    assert log.timeline.shed == 700
    log.take(record(0, 1, 4))
    assert log.timeline.shed == 0


def test_after_a_failure_the_next_one_has_an_undo_of_its_own() -> None:
    log = Log()
    log.take(started(), record(0, 0, 2, (part(2),)))
    log.take(record(0, 0, 4, timeline="b", prev=record(0, 0, 2).id, base=2, branch=(0, 1)))
    log.take(record(0, 1, 4))
    log.take(record(0, 0, 6, timeline="c", prev=record(0, 1, 4).id, base=4, branch=(0, 2)))
    log.take(record(0, 2, 5))
    assert log.phases(range(2, 7)) == "srrru"


def test_a_rejected_record_changes_nothing() -> None:
    log = Log()
    log.take(started(), record(0, 0, 2, (part(2),)), record(7, 1, 5))
    assert log.timeline.upto == 2


def test_memory_and_work_are_bounded_however_far_a_record_jumps() -> None:
    log = Log(cells_max=10)
    log.take(started(), record(0, 0, 2, (part(2),)), record(0, 1, 10**12))
    assert sorted(log.timeline.cells) == list(range(10**12 - 9, 10**12 + 1))
    log.take(
        record(0, 0, 10**15, timeline="b", prev=record(0, 1, 0).id, base=10**12, branch=(0, 1))
    )
    assert sorted(log.timeline.cells) == list(range(10**15 - 9, 10**15 + 1))
    assert len(log.timeline.changes()) == 10


def test_changes_name_each_cell_once() -> None:
    log = Log()
    log.take(started(), record(0, 0, 3, (part(2),)))
    assert log.timeline.changes() == [2, 3]
    assert log.timeline.changes() == []
    log.take(record(0, 1, 4))
    assert log.timeline.changes() == [4]


def test_a_timeline_begins_with_the_buckets_of_a_log_snapshot() -> None:
    log = Log()
    log.take(started(), record(0, 0, 3, (part(2, rows=4), part(3, rows=5))))
    snapshot = log.log_state.snapshot(2)
    other, timeline = LogState(("0", "1")), StreamTimeline(WIDTH_MS, 100)
    from anabranch.protocol.log.log_snapshots import LogStart

    for offset, entry, outcome in LogStart(other, 2).apply(2, snapshot):
        timeline.take(entry, outcome, other)
        assert offset == 2
    assert timeline.upto == 3
    assert (timeline.cells[3].rows, timeline.cells[3].stable_ms) == (5, None)
    assert timeline.cells[2].phase is BucketPhase.STABLE
