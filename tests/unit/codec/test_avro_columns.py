from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from anabranch.codec.avro_columns import EncodedRecords, Written, plan, read_fields, write_rows
from anabranch.codec.avro_schema import of_notation
from anabranch.codec.field_types import Field
from anabranch.codec.record_schema import from_avro
from harness.avro_schemas import array_of, field, logical, record_of


def plain(kind: str) -> Written:
    return Written(of_notation(kind), Field("", kind), None, may_be_null=True)


def test_a_torn_record_is_parked_and_the_others_go_on() -> None:
    rows = EncodedRecords([b"\x02\x04", b"\x80", b"\x06\x08"])
    columns = read_fields(rows, [plain("long"), plain("long")])
    assert rows.good.tolist() == [True, False, True]
    assert [column is not None and column.to_pylist()[::2] for column in columns] == [
        [1, 3],
        [2, 4],
    ]
    assert rows.at.tolist() == rows.ends.tolist()


def test_cursors_of_some_records_move_alone() -> None:
    rows = EncodedRecords([b"\x02\x04", b"\x06\x08"])
    some = np.array([1])
    part = rows.select(some)
    assert part.longs().tolist() == [3]
    rows.put_back(some, part)
    assert rows.longs().tolist() == [1, 4]


def test_a_length_that_goes_beyond_its_record_takes_nothing_of_the_next() -> None:
    rows = EncodedRecords([b"\x06ab", b"\x04cd"])
    column = read_fields(rows, [plain("bytes")])[0]
    assert rows.good.tolist() == [False, True]
    assert column is not None
    assert column.to_pylist() == [b"", b"cd"]


def test_rows_are_written_with_their_prefix() -> None:
    values = write_rows(
        [(pa.array([1, None, -300]), "long", True), (pa.array(["a", "", "bcd"]), "string", False)],
        b"\0\1",
    )
    assert values == [b"\0\1\x02\x02\x02a", b"\0\1\0\0", b"\0\1\x02\xd7\x04\x06bcd"]


def test_a_slice_of_an_array_is_written_from_its_own_bytes() -> None:
    column = pa.array(["zz", "a", None, "b"]).slice(1)
    assert write_rows([(column, "string", True)], b"") == [b"\x02\x02a", b"\0", b"\x02\x02b"]


TEXT = logical("uuid", "string")


@pytest.mark.parametrize(
    ("written", "wanted", "is_bulk"),
    [
        ("int", "int", True),
        ("int", "double", True),
        ("long", "double", True),
        ("long", "float", False),
        (["null", "int"], "int", True),
        (["int", "null"], ["null", "long"], True),
        (["int"], "int", False),
        (["int", "long"], "long", False),
        ("bytes", "string", False),
        (TEXT, TEXT, True),
        (TEXT, "string", True),
        ("string", TEXT, True),
        (array_of("int"), array_of("int"), False),
        (logical("timestamp-micros"), logical("timestamp-millis"), False),
        (logical("timestamp-nanos"), logical("timestamp-micros"), False),
        (logical("timestamp-nanos"), logical("timestamp-nanos"), False),
        ("int", logical("timestamp-micros"), False),
        ("int", ["int", "string"], False),
    ],
)
def test_plain_values_are_read_in_bulk(written: Any, wanted: Any, is_bulk: bool) -> None:
    reader = from_avro(record_of(field("a", wanted)), "r")
    writer = of_notation(record_of(field("a", written)))
    assert (plan(writer, reader.fields, [0]) is not None) is is_bulk
