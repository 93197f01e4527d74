"""Rows that no reader can hold are replaced by notices, which depend on the row alone."""

from __future__ import annotations

import json
from bisect import bisect
from datetime import UTC, date, datetime, time
from decimal import Decimal

import pyarrow as pa
import pytest

from anabranch.codec import blocks
from anabranch.codec.blocks import encode_block, row_hashes
from anabranch.codec.rejected_rows import (
    BEGINNING,
    DIGEST,
    NOTICE_SCHEMA,
    SIZE,
    are_notices,
    notices_of,
    separated,
)
from anabranch.protocol.limits import DEAD_LETTER_CUT_BYTES

SCHEMA = pa.schema(
    [
        ("key", pa.int64()),
        ("note", pa.string()),
        ("mean", pa.float64()),
        ("tags", pa.list_(pa.string())),
        ("event_time", pa.int64()),
    ]
)
ROW_BYTES = 20_000


@pytest.fixture(autouse=True)
def _small_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "ROW_BYTES_MAX", ROW_BYTES)
    monkeypatch.setattr(blocks, "BLOCK_BYTES_MAX", ROW_BYTES // 10)


def table(*sizes: int | None, first: int = 0) -> pa.Table:
    """Return a row for each of ``sizes``, the length of its text; None: the text is null."""
    return pa.Table.from_pylist(
        [
            {
                "key": first + n,
                "note": None if size is None else "é" + "x" * (size - 1),
                "mean": n / 3,
                "tags": ["a"] * (n % 3),
                "event_time": 100 + n,
            }
            for n, size in enumerate(sizes)
        ],
        SCHEMA,
    )


def test_what_fits_stays_as_it_is() -> None:
    for some in (table(), table(3, None), table(*[1_000] * 50)):
        assert separated(some) == (some, None)
    assert not are_notices(SCHEMA)


def test_the_rows_between_two_that_are_too_large_are_one_record_batch() -> None:
    """A block has a record batch for each chunk, whose description takes more than a short row."""
    some = table(*[5] * 40, 2 * ROW_BYTES, *[5] * 40)
    kept, _ = separated(some)
    assert [len(chunk) for chunk in kept.column("key").chunks if len(chunk)] == [40, 40]


def test_rows_that_are_too_large_become_notices_and_the_others_go_on() -> None:
    some = table(5, 2 * ROW_BYTES, None, 3 * ROW_BYTES, 7)
    kept, notices = separated(some)
    assert kept.equals(pa.concat_tables([some.slice(0, 1), some.slice(2, 1), some.slice(4, 1)]))
    assert notices is not None
    assert are_notices(notices.schema)
    assert notices.column("event_time").to_pylist() == [101, 103]
    for place, row in ((0, some.slice(1, 1)), (1, some.slice(3, 1))):
        (found,) = notices.slice(place, 1).to_pylist()
        assert (
            found[SIZE]
            == len(encode_block(pa.Table.from_pylist(row.to_pylist(), SCHEMA)))
            > ROW_BYTES
        )
        assert int(found[DIGEST], 16) == row_hashes(row)[0]
        assert json.loads(found[BEGINNING]) == {
            "key": row.column("key")[0].as_py(),
            "note": "é" + "x" * 1_023,
        }


def test_all_rows_may_be_too_large() -> None:
    kept, notices = separated(table(2 * ROW_BYTES))
    assert (kept.num_rows, kept.schema, notices is None) == (0, SCHEMA, False)


def test_rows_of_any_size_become_notices_where_no_output_can_hold_them() -> None:
    some = table(5, 2 * ROW_BYTES, None)
    rows = notices_of(some).to_pylist()
    assert [int(row[DIGEST], 16) for row in rows] == list(row_hashes(some))
    assert [row["event_time"] for row in rows] == [100, 101, 102]
    assert notices_of(some.slice(0, 0)).equals(NOTICE_SCHEMA.empty_table())


def test_the_largest_row_is_kept_and_one_byte_more_is_not() -> None:
    length = bisect(range(ROW_BYTES), ROW_BYTES, key=lambda size: len(encode_block(table(size))))
    assert len(encode_block(table(length - 1))) <= ROW_BYTES < len(encode_block(table(length)))
    assert separated(table(length - 1))[1] is None
    assert separated(table(length))[1] is not None


@pytest.mark.parametrize("length", range(ROW_BYTES - 1_600, ROW_BYTES - 900, 50))
def test_the_batch_of_a_row_does_not_matter(length: int) -> None:
    """Two replicas, whose batches differ, must write the same. A neighbour's null gives the whole
    column a bitmap.
    """
    row = table(length, first=1)
    alone = separated(row)
    together = pa.concat_tables([table(None, 3, length - 7), row, table(None)]).combine_chunks()
    kept, notices = separated(together)
    assert (notices is None) == (alone[1] is None)
    if notices is None:
        assert kept.num_rows == 5
    else:
        assert (
            notices.filter(pa.array([t == 100 for t in notices.column("event_time").to_pylist()]))
            == alone[1]
        )


def test_the_rows_behind_it_in_memory_do_not_matter() -> None:
    """Arrow writes a short buffer whole, though a slice has only a part of it."""
    some = table(*[ROW_BYTES, None, 3, ROW_BYTES] * 2)
    alone = [pa.Table.from_pylist([row], SCHEMA) for row in some.to_pylist()]
    expected = pa.concat_tables(map(notices_of, alone))
    assert notices_of(some).column(SIZE).to_pylist() == expected.column(SIZE).to_pylist()
    assert notices_of(some).equals(expected)
    _, notices = separated(some)
    assert notices == expected.take(pa.array([0, 3, 4, 7]))


def test_values_of_every_type_are_shown() -> None:
    raw = b"\xff" * ROW_BYTES
    row = pa.table(
        {
            "raw": pa.array([raw], pa.binary()),
            "large": pa.array(["y" * 2_000], pa.large_string()),
            "price": pa.array([Decimal("1.50")], pa.decimal128(10, 2)),
            "no_price": pa.array([None], pa.decimal128(10, 2)),
            "flag": [True],
            "day": [date(1970, 1, 3)],
            "clock": [time(1, 2, 3)],
            "at": pa.array([datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)], pa.timestamp("us", "UTC")),
            "no_raw": pa.array([None], pa.large_binary()),
            "event_time": [7],
        }
    )
    _, notices = separated(row)
    assert notices is not None
    assert json.loads(notices.column(BEGINNING)[0].as_py()) == {
        "raw": "ff" * 512,
        "large": "y" * 1_024,
        "price": "1.50",
        "no_price": None,
        "flag": True,
        "day": 2,
        "clock": "01:02:03",
        "at": 1_000_000,
        "no_raw": None,
    }


def test_a_notice_fits_any_topic() -> None:
    row = pa.table({f"c{n}": ["ß" * 1_100] for n in range(40)} | {"event_time": [7]})
    _, notices = separated(row)
    assert notices is not None
    assert notices.schema.equals(NOTICE_SCHEMA)
    text = notices.column(BEGINNING)[0].as_py()
    assert DEAD_LETTER_CUT_BYTES - 4_096 < len(text.encode()) <= DEAD_LETTER_CUT_BYTES
    assert list(json.loads(text)) == [f"c{n}" for n in range(len(json.loads(text)))]
