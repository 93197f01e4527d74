"""Faults of the log in memory. What it has in common with Kafka is tested in tests/conformance."""

from __future__ import annotations

import pytest

from anabranch.adapters.memory.clock import VirtualClock
from anabranch.adapters.memory.log import FailingOperation, LocalEventLog
from anabranch.codec.catalog import TopicSettings
from anabranch.ports import TopicPartition
from anabranch.protocol.errors import (
    DataMissing,
    OutcomeUnknown,
)

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


@pytest.fixture
def log() -> LocalEventLog:
    made = LocalEventLog(VirtualClock())
    made.admin().create([TopicSettings("a", 1), TopicSettings("b", 1)])
    return made


def values(
    log: LocalEventLog, at: TopicPartition = A, *, committed: bool = True
) -> list[bytes | None]:
    reader = log.reader(committed=committed)
    reader.assign({at: 0})
    return [value for chunk in reader.fetch(1_000, 0) for value in chunk.values]


@pytest.mark.parametrize(
    ("applied", "written"), [(None, [b"0", b"1", b"2"]), (0, []), (2, [b"0", b"1"])]
)
def test_a_flush_of_unknown_outcome(
    log: LocalEventLog, applied: int | None, written: list[bytes]
) -> None:
    log.fail_next(FailingOperation.FLUSH, applied=applied)
    writer = log.writer()
    for n in range(3):
        writer.send(A, b"%d" % n)
    with pytest.raises(OutcomeUnknown):
        writer.flush()
    assert values(log) == written
    with pytest.raises(OutcomeUnknown):  # of no more use
        writer.send(A, b"more")
    writer.close()
    fresh = log.writer()
    fresh.send(A, b"after")
    assert fresh.flush()[0].offset == len(written)


def test_a_fault_of_a_commit_waits_for_a_transaction_on_its_topic(log: LocalEventLog) -> None:
    log.fail_next(FailingOperation.COMMIT, topic=A.topic)
    writer = log.transactional_writer("w")
    for _ in range(2):
        writer.begin()
        writer.send(B, b"0")
        writer.commit()
    writer.begin()
    writer.send(A, b"0")
    with pytest.raises(OutcomeUnknown):
        writer.commit()


@pytest.mark.parametrize(("applied", "seen"), [(None, [b"0"]), (0, [])])
def test_a_commit_of_unknown_outcome(
    log: LocalEventLog, applied: int | None, seen: list[bytes]
) -> None:
    log.fail_next(FailingOperation.COMMIT, applied=applied)
    writer = log.transactional_writer("w")
    writer.begin()
    writer.send(A, b"0")
    with pytest.raises(OutcomeUnknown):
        writer.commit()
    with pytest.raises(OutcomeUnknown):
        writer.begin()
    writer.close()
    log.transactional_writer("w").close()  # settles it: committed if it was, else aborted
    assert values(log) == seen
    assert values(log, committed=False) == [b"0"]


def test_an_abort_of_unknown_outcome_is_settled_by_the_next_writer(log: LocalEventLog) -> None:
    log.fail_next(FailingOperation.ABORT, applied=0)
    writer = log.transactional_writer("w")
    writer.begin()
    writer.send(A, b"0")
    writer.flush()
    with pytest.raises(OutcomeUnknown):
        writer.abort()
    plain = log.writer()
    plain.send(A, b"behind it")
    plain.flush()
    assert values(log) == []
    log.transactional_writer("w")
    assert values(log) == [b"behind it"]


def test_a_log_that_lost_its_end_is_missing_data(log: LocalEventLog) -> None:
    writer = log.writer()
    for n in range(3):
        writer.send(A, b"%d" % n)
    writer.flush()
    reader = log.reader()
    reader.assign({A: 0})
    reader.fetch(10, 0)
    log.cut(A, 1)
    with pytest.raises(DataMissing):
        reader.fetch(10, 0)


def test_a_long_partition_does_not_starve_another(log: LocalEventLog) -> None:
    writer = log.writer()
    for _ in range(100):
        writer.send(A, b"a")
    writer.send(B, b"b")
    writer.flush()
    reader = log.reader()
    reader.assign({A: 0, B: 0})
    seen = {chunk.at for _ in range(2) for chunk in reader.fetch(10, 0)}
    assert seen == {A, B}
