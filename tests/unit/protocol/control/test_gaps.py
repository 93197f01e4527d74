"""What people are told of results that a stage with ``amnesia`` has given up."""

from __future__ import annotations

from dataclasses import replace

from anabranch.protocol.control.gaps import GapBook
from anabranch.protocol.control.records import Alarm
from anabranch.protocol.log.boundary_log import Outcome
from anabranch.protocol.log.records import BoundaryKind, InputPosition, LogEntry
from harness.stage_logs import StageLog, forgetful, part


class Reader:
    """Reads a log, and keeps the alarms."""

    def __init__(self, log: StageLog) -> None:
        self._log = log
        self.book = GapBook("s", 2, width_ms=100)
        self.alarms = list[Alarm]()

    def add(self, entry: LogEntry) -> None:
        self.see(entry, self._log.add(entry))

    def see(self, entry: LogEntry, outcome: Outcome) -> None:
        alarm = self.book.seen(entry, outcome, 77)
        if alarm is not None:
            self.alarms.append(alarm)


def test_a_gap_is_one_alarm_and_its_buckets_are_counted() -> None:
    log = StageLog()
    reader = Reader(log)
    log.begin()
    reader.add(log.record(10, part(10, 1)))
    log.begin()
    reader.add(log.record(15, fresh=True, missing="a"))
    reader.add(log.record(16, missing="a"))
    reader.add(log.record(17, missing="a"))
    reader.add(log.record(20, part(18, 5)))
    (alarm,) = reader.alarms
    assert (alarm.kind, alarm.stream, alarm.bucket, alarm.written_ms) == ("gap", "s", 11, 77)
    assert "buckets 11..17 (times 1000 to 1700 ms)" in alarm.text
    assert reader.book.lost == 7


def test_only_stages_have_gaps() -> None:
    log = StageLog()
    reader = Reader(log)
    log.begin()
    reader.add(
        replace(log.record(5, fresh=True, missing="a"), positions=(InputPosition("t", 0, 1, 1),))
    )
    branch = replace(log.record(9, missing="a"), kind=BoundaryKind.TENTATIVE, branch=(0, 1), base=5)
    reader.add(branch)
    reader.add(log.record(12, fresh=True, missing="a", epoch=55))
    assert (reader.alarms, reader.book.lost) == ([], 0)


def test_a_gap_after_a_snapshot_begins_where_it_does() -> None:
    before = forgetful()
    log = before.from_snapshot()
    reader = Reader(log)
    snapshot = before.log_state.snapshot(before.offset)
    reader.see(snapshot, Outcome(accepted=False, reason="log_snapshot", replica=""))
    reader.see(snapshot, Outcome(accepted=True, reason="adopted", replica=""))
    reader.add(log.record(15, fresh=True, missing="a"))
    (alarm,) = reader.alarms
    assert (alarm.bucket, reader.book.lost) == (11, 5)
