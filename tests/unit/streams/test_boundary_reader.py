"""Following a boundary log in memory."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from anabranch.adapters.memory.clock import VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.codec import boundary_records
from anabranch.codec.catalog import TopicSettings
from anabranch.ports import TopicPartition
from anabranch.protocol.errors import ConfigurationError, DataMissing
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.boundary_log import Outcome
from anabranch.protocol.log.records import (
    BoundaryKind,
    BoundaryRecord,
    EpochStarted,
    LogEntry,
    LogSnapshot,
)
from anabranch.streams.boundary_reader import BoundaryReader, ExpectedStream

AT = TopicPartition("p.s.boundaries", 0)
STARTED = EpochStarted("0", "f", "t")


def record(batch: int, closed: int, *, epoch: int = 0, replica: str = "0") -> BoundaryRecord:
    return BoundaryRecord(
        replica, epoch, BatchId("l", batch), BatchId("l", batch - 1) if batch else None, closed
    )


@pytest.fixture
def log() -> LocalEventLog:
    log = LocalEventLog(VirtualClock())
    log.admin().create([TopicSettings(AT.topic, 1)])
    return log


@pytest.fixture
def reader(log: LocalEventLog) -> Iterator[BoundaryReader]:
    reader = BoundaryReader(log, AT.topic, ["0", "1"])
    yield reader
    reader.close()
    reader.close()


def append(log: LocalEventLog, *entries: LogEntry | bytes | None) -> None:
    writer = log.writer()
    for entry in entries:
        value, headers = (
            boundary_records.encode(entry) if isinstance(entry, LogEntry) else (entry, ())
        )
        writer.send(AT, value, headers=headers)
    writer.flush()
    writer.close()


def test_a_stream_with_buckets_of_another_width_is_rejected(log: LocalEventLog) -> None:
    append(log, replace(STARTED, bucket_ms=250), record(0, 3))
    BoundaryReader(log, AT.topic, ["0"], expected=ExpectedStream(bucket_ms=250)).read_to_end()
    with pytest.raises(ConfigurationError, match="`bucket: 250ms`"):
        BoundaryReader(log, AT.topic, ["0"], expected=ExpectedStream(bucket_ms=500)).read_to_end()


def test_what_is_read_is_applied_and_counted(log: LocalEventLog, reader: BoundaryReader) -> None:
    append(
        log,
        STARTED,
        record(0, 3),
        record(1, 5),
        record(1, 5),
        record(2, 9, epoch=7),
        record(0, 4, replica="2"),
    )
    assert reader.poll(0) == 6
    assert reader.log_state.upto == 5
    assert reader.counts == {
        "epoch": 1,
        "accepted": 2,
        "known": 1,
        "fenced": 1,
        "unknown_writer": 1,
    }
    assert reader.offset_next == 6
    assert reader.poll(0) == 0


@pytest.mark.parametrize("value", [None, b"", b"\xc3\x01garbage", b"{}"])
def test_what_cannot_be_decoded_is_counted_and_passed_by(
    log: LocalEventLog, reader: BoundaryReader, value: bytes | None
) -> None:
    append(log, STARTED, value, record(0, 3))
    reader.read_to_end()
    assert reader.log_state.upto == 3
    assert reader.counts == {"epoch": 1, "undecodable": 1, "accepted": 1}


def log_lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [
        (entry.levelname, entry.getMessage())
        for entry in caplog.records
        if entry.name == "anabranch.boundaries"
    ]


def test_why_a_record_is_rejected_is_logged(
    log: LocalEventLog, reader: BoundaryReader, caplog: pytest.LogCaptureFixture
) -> None:
    """Rejections that restarts and repeated writes cause are not logged as warnings."""
    caplog.set_level(logging.DEBUG, "anabranch.boundaries")
    append(
        log,
        STARTED,
        record(0, 3),
        record(0, 3),
        record(1, 4, epoch=7),
        record(5, 6),
        record(0, 4, replica="x" * 60),
        b"{}",
    )
    reader.poll(0)
    place = f"{AT.topic} offset"
    assert log_lines(caplog)[:4] == [
        ("DEBUG", f"a boundary record is rejected: known; writer '0', {place} 2, number 1"),
        ("INFO", f"a boundary record is rejected: fenced; writer '0', {place} 3, number 1"),
        ("WARNING", f"a boundary record is rejected: off_chain; writer '0', {place} 4, number 1"),
        (
            "WARNING",
            (
                f"a boundary record is rejected: unknown_writer; writer '{'x' * 60}', {place} 5,"
                " number 1"
            ),
        ),
    ]
    level, text = log_lines(caplog)[4]
    assert (level, text.startswith("a boundary record is rejected: undecodable (")) == (
        "WARNING",
        True,
    )


def test_many_rejected_records_are_few_lines(
    log: LocalEventLog, reader: BoundaryReader, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever may write to the topic may give any number of names."""
    append(
        log,
        *(record(0, 4, replica=f"other{number}") for number in range(1_234)),
        *(b"{" for _ in range(20)),
    )
    reader.read_to_end()
    found = [text.split(": ", 1)[1] for _, text in log_lines(caplog)]
    assert [(text.split(" ")[0].strip(";"), text.rsplit(" ", 1)[1]) for text in found] == [
        *(("unknown_writer", count) for count in ("1", "10", "100", "1000")),
        *(("undecodable", count) for count in ("1", "10")),
    ]


def test_branches_are_applied_and_what_does_not_count_of_them_is_counted_by_reason(
    log: LocalEventLog, reader: BoundaryReader
) -> None:
    def tentative(batch: int, counter: int, base: int | None = None) -> BoundaryRecord:
        return replace(
            record(batch, batch + 5), kind=BoundaryKind.TENTATIVE, branch=(0, counter), base=base
        )

    torn = boundary_records.encode(tentative(9, 9))[0][:-3]
    append(
        log,
        STARTED,
        record(0, 3),
        tentative(1, 2, 3),
        tentative(1, 2, 3),
        tentative(2, 2),
        tentative(4, 2),
        tentative(5, 1),
        tentative(5, 3),
        torn,
    )
    reader.poll(0)
    assert (
        reader.log_state.upto,
        reader.log_state.tentative_upto("0"),
        reader.log_state.past_upto,
    ) == (3, 7, 7)
    assert reader.counts == {
        "epoch": 1,
        "accepted": 1,
        "tentative": 2,
        "known": 1,
        "off_chain": 1,
        "older_branch": 1,
        "no_base": 1,
        "undecodable": 1,
    }


def test_read_to_end_reads_all_that_was_there_when_it_was_called(
    log: LocalEventLog, reader: BoundaryReader
) -> None:
    reader.read_to_end()
    append(log, STARTED, *(record(n, n) for n in range(5_000)))
    reader.read_to_end()
    assert reader.log_state.upto == 4_999


def test_a_listener_hears_every_record_after_it_was_applied_under_the_lock(
    log: LocalEventLog,
) -> None:
    heard: list[tuple[int, str, int]] = []
    lock = threading.Lock()

    def listener(offset: int, _entry: LogEntry, outcome: Outcome) -> None:
        heard.append((offset, outcome.reason, following.log_state.upto))

    class Watched:
        def __enter__(self) -> None:
            lock.acquire()

        def __exit__(self, *_: object) -> None:
            heard.append((-1, "applied", following.log_state.upto))
            lock.release()

    following = BoundaryReader(log, AT.topic, ["0"], listener=listener, lock=Watched())
    append(log, STARTED, record(0, 2))
    following.read_to_end()
    assert heard == [(-1, "applied", 0), (0, "epoch", 0), (-1, "applied", 2), (1, "accepted", 2)]
    following.close()


@pytest.mark.parametrize("polls", [True, False])
def test_a_log_whose_beginning_nothing_sums_up_cannot_be_read(
    log: LocalEventLog, polls: bool
) -> None:
    append(log, STARTED, record(0, 1), LogSnapshot(0, 0), LogSnapshot(3, 0))
    log.trim(AT, 1)
    reader = BoundaryReader(log, AT.topic, ["0"])
    with pytest.raises(
        DataMissing, match=r"p.s.boundaries: its first records are deleted, .* Restore the topic"
    ):
        reader.poll(0) if polls else reader.read_to_end()
    assert reader.counts == {}
    reader.close()


@pytest.mark.parametrize("polls", [True, False])
def test_an_empty_log_that_does_not_begin_at_its_beginning_cannot_be_read(
    log: LocalEventLog, polls: bool
) -> None:
    append(log, STARTED)
    log.trim(AT, 1)
    reader = BoundaryReader(log, AT.topic, ["0"])
    with pytest.raises(DataMissing, match="Restore the topic"):
        reader.poll(0) if polls else reader.read_to_end()
    reader.close()


def test_an_emptied_log_of_another_owner_counts_as_missing(log: LocalEventLog) -> None:
    append(log, STARTED)
    log.trim(AT, 1)
    reader = BoundaryReader(log, AT.topic, ["0"], expected=ExpectedStream(needs_start=False))
    reader.read_to_end()
    assert "its first records are deleted" in reader.refused
    reader.close()


def test_a_trimmed_log_is_read_from_its_first_snapshot_on(log: LocalEventLog) -> None:
    append(log, STARTED, record(0, 1), record(1, 4))
    first = BoundaryReader(log, AT.topic, ["0"])
    first.read_to_end()
    append(log, record(2, 6), first.log_state.snapshot(3), record(3, 7))
    log.trim(AT, 2)
    heard: list[tuple[int, str, int]] = []
    entered: list[int] = []

    class Counted:
        def __enter__(self) -> None:
            entered.append(1)

        def __exit__(self, *_: object) -> None:
            pass

    second = BoundaryReader(
        log,
        AT.topic,
        ["0"],
        listener=lambda offset, _entry, outcome: heard.append(
            (offset, outcome.reason, second.log_state.upto)
        ),
        lock=Counted(),
    )
    log_state = second.log_state
    second.read_to_end()
    first.read_to_end()
    assert heard == [(4, "adopted", 4), (3, "accepted", 6), (5, "accepted", 7)]
    assert second.log_state is log_state, "who holds it sees what it is now"
    assert log_state.snapshot(6) == first.log_state.snapshot(6)
    assert second.counts == {"adopted": 1, "accepted": 2}
    assert first.counts["log_snapshot"] == 1
    assert len(entered) >= 3
    first.close()
    second.close()


def test_the_listener_is_given_the_logs_time_of_what_was_read_from_there_on(
    log: LocalEventLog,
) -> None:
    """The times of records before the log snapshot are unknown."""
    assert isinstance(log.clock, VirtualClock)
    first = BoundaryReader(log, AT.topic, ["0"])
    begin_ms = log.clock.now_ms()
    for entry in (STARTED, record(0, 3), record(1, 5)):
        append(log, entry)
        log.clock.advance(10)
    times = list[int | None]()
    first.listen(lambda *_: times.append(first.appended_ms))
    first.read_to_end()
    assert times == [begin_ms, begin_ms + 10, begin_ms + 20]
    append(log, record(2, 6), first.log_state.snapshot(3), record(3, 7))
    log.trim(AT, 2)
    later = BoundaryReader(log, AT.topic, ["0"])
    times.clear()
    later.listen(lambda *_: times.append(later.appended_ms))
    later.read_to_end()
    assert times == [None, None, log.clock.now_ms()]


def test_who_is_overtaken_by_trimming_ends(log: LocalEventLog, reader: BoundaryReader) -> None:
    append(log, STARTED, record(0, 1))
    log.trim(AT, 1)
    with pytest.raises(DataMissing):
        reader.poll(0)


def test_a_log_that_lost_its_end_is_missing_data(
    log: LocalEventLog, reader: BoundaryReader
) -> None:
    append(log, STARTED, record(0, 1))
    reader.read_to_end()
    log.cut(AT, 1)
    with pytest.raises(DataMissing):
        reader.poll(0)
