"""Conformance suite of the transactions of ``EventLog``."""

from __future__ import annotations

import pytest

from anabranch.ports import RecordPosition
from anabranch.protocol.errors import Fenced, LocalProtocolError, Unavailable
from anabranch.protocol.limits import MIB
from harness.event_logs import Rig, read, values
from harness.waiting import wait_until


def test_a_transaction_shows_nothing_before_its_commit(rig: Rig) -> None:
    (at,) = rig.topic()
    writer = rig.log.transactional_writer(f"{rig.prefix}.w")
    writer.begin()
    writer.send(at, b"0")
    assert writer.flush() == [RecordPosition(at, 0)]
    committed, all_of_it = rig.reader({at: 0}), rig.reader({at: 0}, committed=False)
    assert values(read(all_of_it, 1)) == [b"0"]
    assert committed.fetch(10, 500) == []
    assert committed.offsets(at) == (0, 0)
    assert all_of_it.offsets(at)[1] == 1
    assert (committed.ends([at], 10_000), all_of_it.ends([at], 10_000)) == ({at: 0}, {at: 1})
    writer.send(at, b"1")
    assert writer.commit() == [RecordPosition(at, 1)]
    writer.close()
    assert values(read(committed, 2)) == [b"0", b"1"]
    wait_until(lambda: committed.offsets(at) == (0, 3), 20, "the marker's offset")


def test_assigned_anew_before_the_end_of_a_transaction_the_position_gets_past_it(rig: Rig) -> None:
    """No reader sees the marker that ends a transaction: the position is the one from before the
    assignment, and no record would move it.
    """
    at, other = rig.topic(partitions=2)
    writer = rig.log.transactional_writer(f"{rig.prefix}.w")
    writer.begin()
    writer.send(at, b"0")
    writer.commit()
    writer.close()
    reader = rig.reader({at: 0})
    assert values(read(reader, 1)) == [b"0"]

    def at_the_end() -> bool:
        assert reader.fetch(10, 100) == []
        return reader.position(at) == 2

    wait_until(at_the_end, 20, "the position behind the transaction")
    reader.assign({at: 1, other: 0})
    assert reader.fetch(10, 500) == []
    wait_until(at_the_end, 20, "the same position after an assignment")


def test_an_open_transaction_holds_back_what_comes_after_it(rig: Rig) -> None:
    (at,) = rig.topic()
    writer = rig.log.transactional_writer(f"{rig.prefix}.w")
    writer.begin()
    writer.send(at, b"in")
    writer.flush()
    rig.write(at, b"after")
    reader = rig.reader({at: 0})
    assert reader.fetch(10, 500) == []
    writer.commit()
    writer.close()
    assert values(read(reader, 2)) == [b"in", b"after"]


def test_aborted_records_are_hidden_and_passed(rig: Rig) -> None:
    (at,) = rig.topic()
    writer = rig.log.transactional_writer(f"{rig.prefix}.w")
    writer.begin()
    for n in range(3):
        writer.send(at, b"aborted %d" % n)
    writer.flush()
    writer.abort()
    reader = rig.reader({at: 0})

    def passed() -> bool:
        assert reader.fetch(10, 200) == []
        return reader.position(at) == 4

    wait_until(passed, 20, "the position behind three aborted records and the marker")
    writer.begin()
    writer.send(at, b"kept")
    assert writer.commit() == [RecordPosition(at, 4)]
    writer.close()
    chunks = read(reader, 1)
    assert values(chunks) == [b"kept"]
    assert chunks[0].offsets == [4]
    wait_until(
        lambda: (reader.fetch(10, 100), reader.position(at))[1] == 6,
        20,
        "the position behind the commit's marker",
    )
    assert values(read(rig.reader({at: 0}, committed=False), 4)) == [
        b"aborted 0",
        b"aborted 1",
        b"aborted 2",
        b"kept",
    ]


def test_a_commit_covers_all_partitions_and_topics(rig: Rig) -> None:
    a, b = rig.topic("a"), rig.topic("b", partitions=2)
    writer = rig.log.transactional_writer(f"{rig.prefix}.w")
    writer.begin()
    for at in (*a, *b):
        writer.send(at, at.topic.encode())
    assert writer.commit() == [RecordPosition(at, 0) for at in (*a, *b)]
    writer.close()
    assert len(values(read(rig.reader(dict.fromkeys((*a, *b), 0)), 3))) == 3


def test_an_empty_transaction_commits_and_aborts(rig: Rig) -> None:
    writer = rig.log.transactional_writer(f"{rig.prefix}.w")
    writer.begin()
    assert writer.commit() == []
    writer.begin()
    writer.abort()
    writer.close()


def test_a_newer_writer_fences_the_older_and_aborts_its_transaction(rig: Rig) -> None:
    (at,) = rig.topic()
    older = rig.log.transactional_writer(f"{rig.prefix}.w")
    older.begin()
    older.send(at, b"zombie")
    older.flush()
    newer = rig.log.transactional_writer(f"{rig.prefix}.w")
    newer.begin()
    newer.send(at, b"alive")
    newer.commit()
    with pytest.raises(Fenced):
        older.commit()
    with pytest.raises(Fenced):  # and stays so
        older.send(at, b"zombie again")
    older.close()
    newer.begin()  # the end of the older one did the newer one no harm
    newer.send(at, b"still alive")
    newer.commit()
    newer.close()
    assert values(read(rig.reader({at: 0}), 2)) == [b"alive", b"still alive"]


def test_a_fenced_writer_cannot_send(rig: Rig) -> None:
    (at,) = rig.topic()
    older = rig.log.transactional_writer(f"{rig.prefix}.w")
    older.begin()
    newer = rig.log.transactional_writer(f"{rig.prefix}.w")
    older.send(at, b"zombie")
    with pytest.raises(Fenced):
        older.commit()
    older.close()
    newer.close()
    reader = rig.reader({at: 0})
    assert reader.fetch(10, 300) == []


def test_other_ids_are_not_fenced(rig: Rig) -> None:
    (at,) = rig.topic()
    one, two = (rig.log.transactional_writer(f"{rig.prefix}.{name}") for name in ("one", "two"))
    for writer in (one, two):
        writer.begin()
        writer.send(at, b"v")
        writer.commit()
        writer.close()
    assert len(values(read(rig.reader({at: 0}), 2))) == 2


def test_closing_a_writer_ends_its_transaction(rig: Rig) -> None:
    (at,) = rig.topic()
    writer = rig.log.transactional_writer(f"{rig.prefix}.w")
    writer.begin()
    writer.send(at, b"given up")
    writer.flush()
    writer.close()
    rig.write(at, b"after")
    assert values(read(rig.reader({at: 0}), 1)) == [b"after"]


def test_a_record_rejected_in_a_transaction_can_be_aborted(rig: Rig) -> None:
    (at,) = rig.topic()
    writer = rig.log.transactional_writer(f"{rig.prefix}.w")
    writer.begin()
    writer.send(at, b"with it")
    writer.send(at, bytes(20 * MIB))
    with pytest.raises(Unavailable):
        writer.commit()
    writer.abort()
    writer.begin()
    writer.send(at, b"next")
    writer.commit()
    writer.close()
    assert values(read(rig.reader({at: 0}), 1)) == [b"next"]


@pytest.mark.parametrize("call", ["commit", "abort", "begin twice"])
def test_transaction_calls_out_of_order_are_bugs(rig: Rig, call: str) -> None:
    writer = rig.log.transactional_writer(f"{rig.prefix}.w")
    if call == "begin twice":
        writer.begin()
    with pytest.raises(LocalProtocolError):
        {"commit": writer.commit, "abort": writer.abort, "begin twice": writer.begin}[call]()
    writer.close()
