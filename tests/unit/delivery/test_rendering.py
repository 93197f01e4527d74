"""Rows of buckets in canonical order, whatever their columns."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from anabranch.codec.blocks import by_columns, canonical_sort
from anabranch.delivery.rendering import Ordered, Records, in_order, only_rows
from anabranch.protocol.edge.delivery import Slice

OLD = pa.schema([("n", pa.int64()), ("event_time", pa.int64())])
NEW = pa.schema([("n", pa.int64()), ("more", pa.string()), ("event_time", pa.int64())])


def old(*rows: tuple[int, int]) -> pa.Table:
    return pa.Table.from_pylist([{"n": n, "event_time": event_time} for n, event_time in rows], OLD)


def new(*rows: tuple[int, int]) -> pa.Table:
    return pa.Table.from_pylist(
        [{"n": n, "more": "x", "event_time": event_time} for n, event_time in rows], NEW
    )


def shown(found: list[Ordered]) -> list[tuple[list[tuple[int, int, int]], bool, list[int]]]:
    return [
        (
            [(s.bucket, s.start, s.stop) for s in each.slices],
            "more" in each.table.column_names,
            each.table.column("n").to_pylist(),
        )
        for each in found
    ]


def test_buckets_of_the_same_columns_are_one_table() -> None:
    found = in_order([(1, old((2, 9), (1, 3))), (4, old((3, 31)))])
    assert shown(found) == [([(1, 0, 2), (4, 0, 1)], False, [1, 2, 3])]
    assert in_order([]) == []


def test_where_the_columns_change_another_table_begins() -> None:
    found = in_order(
        [(1, old((1, 3))), (2, old((2, 11))), (3, new((3, 21))), (5, new((5, 41), (4, 41)))]
    )
    assert shown(found) == [
        ([(1, 0, 1), (2, 0, 1)], False, [1, 2]),
        ([(3, 0, 1), (5, 0, 2)], True, [3, 4, 5]),
    ]


def test_a_bucket_of_both_columns_stays_in_the_order_of_its_time() -> None:
    """It was open when the function changed."""
    found = in_order(
        [
            (1, old((1, 3))),
            *((2, t) for t in by_columns([new((4, 14), (2, 12)), old((3, 13), (5, 15), (6, 15))])),
        ]
    )
    assert shown(found) == [
        ([(1, 0, 1)], False, [1]),
        ([(2, 0, 1)], True, [2]),
        ([(2, 1, 2)], False, [3]),
        ([(2, 2, 3)], True, [4]),
        ([(2, 3, 5)], False, [5, 6]),
    ]
    assert shown(only_rows(found, 2, 5)) == [
        ([(2, 1, 2)], False, [3]),
        ([(2, 2, 3)], True, [4]),
        ([(2, 3, 4)], False, [5]),
    ]


@pytest.mark.parametrize("seed", range(20))
def test_neither_the_order_of_the_parts_nor_other_buckets_matter(seed: int) -> None:
    """Else a process that goes on in the middle of a bucket, or reads it from another
    replica, would take other rows for written.
    """
    chance = random.Random(seed)
    parts = [
        (old if chance.random() < 0.5 else new)(
            *(
                (chance.randrange(3), chance.randrange(11, 14))
                for _ in range(chance.randrange(1, 4))
            )
        )
        for _ in range(5)
    ]
    alone = in_order([(2, table) for table in by_columns(parts)])
    chance.shuffle(parts)
    again = in_order(
        [(1, new((7, 1))), *((2, table) for table in by_columns(parts)), (3, old((8, 21)))]
    )

    def rows(some: list[Ordered]) -> list[tuple[int, int, str]]:
        return [
            (s.bucket, p, str(each.table.slice(i, 1).to_pylist()))
            for each in some
            for i, (s, p) in enumerate(_ids(each))
        ]

    assert [row for row in rows(again) if row[0] == 2] == rows(alone)
    assert [position for _, position, _ in rows(alone)] == list(
        range(sum(part.num_rows for part in parts))
    )
    for each in alone:
        assert each.table.equals(canonical_sort(each.table))


def _ids(each: Ordered) -> list[tuple[Slice, int]]:
    return [(s, position) for s in each.slices for position in range(s.start, s.stop)]


def test_records_are_put_together_in_order() -> None:
    one, two = Records([None], [b"a"], [[]], [0]), Records([None], [b"b"], [[]], [1])
    assert Records.joined([one, two]) == Records([None, None], [b"a", b"b"], [[], []], [0, 1])
    assert Records.joined([one]) is one
