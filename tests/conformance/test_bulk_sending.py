"""Sending many records at once in a transaction: the same records as by sending each."""

from __future__ import annotations

import pytest

from anabranch.ports import Headers
from anabranch.protocol.errors import Fenced, LocalProtocolError
from harness.event_logs import Rig, read, values


def test_many_records_arrive_in_order_with_keys_and_headers(rig: Rig) -> None:
    places = rig.topic(partitions=3)
    writer = rig.log.transactional_writer(f"{rig.prefix}.w")
    count = 5_000
    partitions = [n % 2 for n in range(count)]
    headers: list[Headers] = [[("h", b"%d" % n)] for n in range(count)]
    writer.begin()
    writer.send_many(
        places[0].topic,
        partitions,
        [b"%d" % n for n in range(count)],
        [b"k" if n % 3 else None for n in range(count)],
        headers,
    )
    writer.send(places[2], b"single")
    writer.send_many(places[0].topic, [], [], [], [])
    last = dict(sorted(writer.commit()))
    assert last == {places[0]: count // 2 - 1, places[1]: count // 2 - 1, places[2]: 0}
    writer.begin()
    writer.send_many(places[0].topic, [1], [b"x"], [None], [()])
    assert dict(writer.commit()) == {
        places[1]: count // 2 + 1
    }  # the end of the transaction took a place
    writer.begin()
    writer.send_many(places[0].topic, [1], [b"never"], [None], [()])
    writer.abort()
    writer.close()
    chunks = read(rig.reader({places[0]: 0}), count // 2)
    assert values(chunks) == [b"%d" % n for n in range(0, count, 2)]
    assert [key for chunk in chunks for key in chunk.keys] == [
        b"k" if n % 3 else None for n in range(0, count, 2)
    ]
    assert [list(each) for chunk in chunks for each in chunk.headers] == [
        [("h", b"%d" % n)] for n in range(0, count, 2)
    ]


def test_a_fenced_writer_learns_it_from_bulk_sending_too(rig: Rig) -> None:
    (at,) = rig.topic()
    old = rig.log.transactional_writer(f"{rig.prefix}.w")
    new = rig.log.transactional_writer(f"{rig.prefix}.w")

    def use_old() -> None:
        old.begin()
        old.send_many(at.topic, [0] * 10, [b"x"] * 10, [None] * 10, [()] * 10)
        old.commit()

    with pytest.raises(Fenced):
        use_old()
    old.close()
    new.close()


def test_bulk_sending_needs_a_transaction(rig: Rig) -> None:
    (at,) = rig.topic()
    writer = rig.log.transactional_writer(f"{rig.prefix}.w")

    def without_begin() -> None:
        writer.send_many(at.topic, [0], [b"x"], [None], [()])
        writer.commit()

    with pytest.raises(LocalProtocolError):
        without_begin()
    writer.close()
