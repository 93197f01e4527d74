"""Tests of the guard before decoding: bytes that claim more than they have, or mean nothing, are
rejected.
"""

from __future__ import annotations

import struct
from typing import Any

import pytest

from anabranch.codec.avro_guard import (
    MalformedError,
    TooDeepError,
    TooManyItemsError,
    compile_guard,
)
from anabranch.codec.avro_schema import of_notation
from anabranch.protocol import limits
from harness.avro_schemas import array_of, enum_of, field, fixed_of, map_of, record_of

ENUM = enum_of("e", "u", "v")
NULLS = array_of("null")
CHAIN: dict[str, Any] = record_of(field("a", ["null", "r"]))


def check(schema: object, data: bytes, items_max: int = 100) -> None:
    compile_guard(of_notation(schema))(b"xy" + data, 2, items_max)


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        ("long", b"\x82\x80\x00"),
        ("long", b"\xff" * 9 + b"\x7f"),
        ("int", b"\x80\x01"),
        ("int", b"\xff\xff\xff\xff\x0f"),
        ("null", b""),
        ("boolean", b"\1"),
        ("float", b"abcd"),
        ("double", b"abcdefgh"),
        ("bytes", b"\0"),
        ("string", b"\x80\x02" + b"x" * 128),
        (fixed_of("f", 3), b"abc"),
        (ENUM, b"\2"),
        (["null", "long"], b"\0"),
        (["null", "long"], b"\2\7"),
        (array_of("long"), b"\x03\x04\x02\x04\x02\x06\x00"),
        (map_of("long"), b"\2\2k\7\0"),
        (NULLS, b"\xc8\x01\0"),
        (CHAIN, b"\2" * 15 + b"\0"),
        (array_of(CHAIN), b"\x04" + (b"\2" * 15 + b"\0") * 2 + b"\0"),
    ],
)
def test_what_fits_passes(schema: object, data: bytes) -> None:
    check(schema, data)


@pytest.mark.parametrize(
    ("data", "schema", "says"),
    [
        (b"", "long", "end within a value"),
        (b"\x80", "long", "end within a value"),
        (b"\x80" * 11, "long", "more than ten bytes"),
        (b"\x80\x80\x80\x80\x10", "int", "does not fit an int"),
        (b"\x04a", "string", "claims 1 bytes more than there are"),
        (b"\x01", "bytes", "a length of -1"),
        (b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", "bytes", "bytes more than there are"),
        (b"\x02", "boolean", "not a boolean"),
        (b"", "boolean", "end within"),
        (b"abc", "float", "claims 1 bytes"),
        (struct.pack("<f", 1.0), "double", "claims 4 bytes"),
        (b"\x04", ["null", "long"], "branch 2 of a union of 2"),
        (b"\x01", ["null", "long"], "branch -1"),
        (b"\x04", ENUM, "symbol 2 of an enum of 2"),
        (b"\x01", ENUM, "symbol -1 of an enum of 2"),
        (b"\x02\x02\0x", array_of("long"), "1 bytes too many"),
        (b"\x01\x04\x02\0", array_of("long"), "a block of 1 bytes that claims 2"),
        (b"\x02\x03", map_of("null"), "a length of -2"),
    ],
)
def test_bytes_that_do_not_fit_are_malformed(data: bytes, schema: object, says: str) -> None:
    with pytest.raises(MalformedError, match=says):
        check(schema, data)


@pytest.mark.parametrize(
    "data",
    [
        b"\xca\x01\0",
        b"\xc9\x01\0\0",
        b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\0",
    ],
)
@pytest.mark.parametrize("item", ["null", "long"])
def test_items_are_counted_before_any_is_read(data: bytes, item: str) -> None:
    with pytest.raises(TooManyItemsError):
        check(array_of(item), data)


def test_a_record_contains_itself_only_so_often() -> None:
    for levels in (limits.RECORD_DEPTH_MAX, 10**6):
        with pytest.raises(TooDeepError):
            check(CHAIN, b"\2" * levels + b"\0")
