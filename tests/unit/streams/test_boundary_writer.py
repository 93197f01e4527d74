"""Appending to a boundary log whose answers cannot be trusted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.log import (
    FailingOperation,
    LocalEventLog,
    LocalLogReader,
    LocalLogWriter,
)
from anabranch.codec import boundary_records
from anabranch.codec.catalog import TopicSettings
from anabranch.ports import Chunk, TopicPartition
from anabranch.protocol.errors import (
    ConfigurationError,
    Fenced,
    LocalProtocolError,
    Unavailable,
)
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.records import (
    BoundaryRecord,
    BranchEnded,
    EpochStarted,
    LogEntry,
    Recomputed,
)
from anabranch.streams.boundary_writer import BoundaryWriter

AT = TopicPartition("p.s.boundaries", 0)
Make = Callable[..., BoundaryWriter]


@pytest.fixture
def log() -> LocalEventLog:
    log = LocalEventLog(VirtualClock())
    log.admin().create([TopicSettings(AT.topic, 1)])
    return log


@pytest.fixture
def make(log: LocalEventLog) -> Iterator[Make]:
    made: list[BoundaryWriter] = []

    def make(replica: str = "0", version: int = 1) -> BoundaryWriter:
        entropy = SeededEntropy(len(made))
        made.append(
            BoundaryWriter(
                log,
                AT.topic,
                ["0", "1"],
                EpochStarted(replica, "plan", entropy.token(), schema="columns", version=version),
                log.clock,
            )
        )
        return made[-1]

    yield make
    for writer in made:
        writer.close()
        writer.close()


def record(
    writer: BoundaryWriter, batch: int, closed: int, *, prev: BatchId | None = None
) -> BoundaryRecord:
    return BoundaryRecord(
        writer.replica,
        writer.epoch,
        BatchId(f"l{writer.epoch}", batch),
        prev or writer.tip(),
        closed,
    )


def entries(log: LocalEventLog) -> list[LogEntry]:
    reader = log.reader()
    reader.assign({AT: 0})
    return [
        boundary_records.decode(v, h)
        for c in reader.fetch(1_000, 0)
        for v, h in zip(c.values, c.headers, strict=True)
    ]


def test_all_is_read_before_the_epoch_begins_that_ends_the_one_before(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = make()
    old.start()
    for batch in range(5):
        old.append(record(old, batch, batch + 1))
    new, known = make(), list[int]()
    send = LocalLogWriter.send

    def sending(writer: LocalLogWriter, *arguments: Any, **named: Any) -> None:
        known.append(new.log_state.closed("0"))
        send(writer, *arguments, **named)

    monkeypatch.setattr(LocalLogWriter, "send", sending)
    new.start()
    assert known == [5]


def test_a_replica_whose_version_is_superseded_ends_and_one_that_starts_says_what_to_write(
    make: Make,
) -> None:
    old, new = make("0"), make("1", version=2)
    old.start()
    old.append(record(old, 0, 3))
    new.start()
    new.append(record(new, 0, 3))
    with pytest.raises(Fenced, match="superseded"):
        old.append(record(old, 1, 4))
    with pytest.raises(
        ConfigurationError,
        match=r"version 2 makes this stream after bucket 3, .*version: 3` to go back on purpose",
    ):
        make("0").start()
    assert make("0", version=2).start() > 0


def test_an_epoch_is_the_offset_of_its_record(make: Make) -> None:
    first = make()
    assert (first.start(), first.epoch, first.tip()) == (0, 0, None)
    first.append(record(first, 0, 4))
    second = make()
    assert second.start() == 2
    assert (second.log_state.upto, second.tip()) == (4, BatchId("l0", 0))
    assert (second.log_state.fingerprint("0"), second.log_state.schema()) == ("plan", "columns")


@pytest.mark.parametrize("applied", [0, 1])
def test_an_unknown_outcome_of_a_record_is_settled_by_reading(
    log: LocalEventLog, make: Make, applied: int
) -> None:
    writer = make()
    writer.start()
    writer.append(record(writer, 0, 1))
    log.fail_next(FailingOperation.FLUSH, applied=applied, topic=AT.topic)
    begun_ms = log.clock.monotonic_ms()
    writer.append(record(writer, 1, 2))
    assert log.clock.monotonic_ms() - begun_ms < 1_500, "a record that is lost is not waited for"
    writer.append(record(writer, 2, 3))
    assert writer.log_state.upto == 3
    assert len(entries(log)) == 4, "once each"


@pytest.mark.parametrize("applied", [0, 1])
def test_an_unknown_outcome_of_an_epoch_is_settled_by_reading(
    log: LocalEventLog, make: Make, applied: int
) -> None:
    log.fail_next(FailingOperation.FLUSH, applied=applied, topic=AT.topic)
    writer = make()
    assert writer.start() == 0
    writer.append(record(writer, 0, 1))
    assert writer.log_state.upto == 1


def test_a_long_log_is_read_to_its_end_however_long_it_takes(
    log: LocalEventLog, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading takes longer than an epoch is waited for: it is not begun again, and not given up."""
    first = make()
    first.start()
    for batch in range(200):
        first.append(record(first, batch, batch))
    fetch = LocalLogReader.fetch

    def slow(reader: LocalLogReader, records_max: int, wait_ms: int) -> list[Chunk]:
        log.clock.sleep_ms(2_000)
        return fetch(reader, min(records_max, 2), wait_ms)

    second = make()
    with monkeypatch.context() as patched:
        patched.setattr(LocalLogReader, "fetch", slow)
        assert second.start() == 201
    assert sum(isinstance(entry, EpochStarted) for entry in entries(log)) == 2
    second.append(record(second, 0, 1_000))


def test_a_log_that_is_not_there_for_a_while_is_asked_again(log: LocalEventLog, make: Make) -> None:
    writer = make()
    for _ in range(3):
        log.fail_next(FailingOperation.FLUSH, applied=0, error=Unavailable, topic=AT.topic)
    assert writer.start() == 0
    assert log.clock.monotonic_ms() >= 3 * 200


def test_a_log_that_rejects_for_good_is_an_error(log: LocalEventLog, make: Make) -> None:
    writer = make()
    for _ in range(10):
        log.fail_next(FailingOperation.FLUSH, applied=0, error=Unavailable, topic=AT.topic)
    with pytest.raises(Unavailable):
        writer.start()


@pytest.mark.parametrize("started", [False, True])
def test_a_record_that_never_comes_to_stand_in_the_log_is_an_error(
    log: LocalEventLog, make: Make, started: bool
) -> None:
    writer = make()
    if started:
        writer.start()
    for _ in range(20):
        log.fail_next(FailingOperation.FLUSH, applied=0, topic=AT.topic)
    with pytest.raises(Unavailable, match="not in the log after"):
        writer.append(record(writer, 0, 1)) if started else writer.start()


def test_a_record_that_was_lost_and_sent_again_counts_once_also_when_both_came(
    log: LocalEventLog, make: Make
) -> None:
    """The first copy comes in late, when the second was accepted already."""
    writer = make()
    writer.start()
    log.fail_next(FailingOperation.FLUSH, applied=0, topic=AT.topic)
    late = record(writer, 0, 5)
    writer.append(late)
    value, headers = boundary_records.encode(late)
    other = log.writer()
    other.send(AT, value, headers=headers)
    other.flush()
    writer.append(record(writer, 1, 6))
    assert (writer.log_state.upto, writer.tip()) == (6, BatchId("l0", 1))


class TestFenced:
    def test_by_a_newer_process_before_anything_is_written(self, make: Make) -> None:
        older, newer = make(), make()
        older.start()
        newer.start()
        with pytest.raises(Fenced, match="ended by epoch 1"):
            older.append(record(older, 0, 1))
        newer.append(record(newer, 0, 2))
        assert (newer.log_state.upto, newer.tip()) == (2, BatchId("l1", 0)), (
            "what the older one wrote does not count"
        )

    def test_before_the_epoch_is_read_to_its_end(
        self, log: LocalEventLog, make: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        older, newer = make(), make()
        read_to_end = older._reader.read_to_end

        def overtaken() -> None:
            newer.start()
            read_to_end()

        monkeypatch.setattr(older._reader, "read_to_end", overtaken)
        with pytest.raises(Fenced):
            older.start()


def test_recomputed_blocks_are_seen_in_the_log(make: Make, log: LocalEventLog) -> None:
    writer = make()
    writer.start()
    writer.append_other(Recomputed("0", writer.epoch, ()))
    assert entries(log)[-1] == Recomputed("0", writer.epoch, (), writer._started.token)
    with pytest.raises(LocalProtocolError, match="epoch 7"):
        writer.append_other(Recomputed("0", 7, ()))


@pytest.mark.parametrize("applied", [0, None])
def test_the_end_of_a_branch_of_which_no_answer_came(
    log: LocalEventLog, make: Make, applied: int | None
) -> None:
    writer = make()
    writer.start()
    log.fail_next(FailingOperation.FLUSH, applied=applied, topic=AT.topic)
    ended = BranchEnded("0", writer.epoch, 1)
    writer.append_other(ended)
    assert writer.log_state.ended_branch("0") == ended.branch
    assert entries(log)[-1] == replace(ended, token=writer._started.token)


def test_who_is_fenced_recomputes_nothing(make: Make) -> None:
    writer, newer = make(), make()
    writer.start()
    newer.start()
    with pytest.raises(Fenced):
        writer.append_other(Recomputed("0", writer.epoch, ()))


class TestUnderWay:
    """A record that is sent and awaited later."""

    @pytest.mark.parametrize("applied", [0, None, "whole"])
    def test_it_counts_when_it_is_seen_accepted(
        self, log: LocalEventLog, make: Make, applied: int | str | None
    ) -> None:
        writer = make()
        writer.start()
        assert writer.await_accepted() is None
        first = record(writer, 1, 4)
        writer.send(first)
        first = replace(first, token=writer._started.token)
        assert writer.tip() is None
        if not isinstance(applied, str):
            log.fail_next(FailingOperation.FLUSH, applied=applied, topic=AT.topic)
        assert writer.await_accepted() == first
        assert (writer.tip(), writer.log_state.closed("0")) == (first.id, 4)
        assert writer.await_accepted() is None
        writer.append(record(writer, 2, 5))
        assert writer.log_state.closed("0") == 5
