"""Times, dates, decimals and UUIDs: exact, or rejected with the reason."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.codec import logical_types
from anabranch.codec.edge import Decoder
from anabranch.codec.record_schema import RecordSchema, from_avro
from anabranch.protocol.errors import RejectionReason
from harness.avro_schemas import (
    array_of,
    decimal_of,
    enum_of,
    field,
    fixed_of,
    logical,
    map_of,
    record_of,
)

FIELDS: list[dict[str, Any]] = [
    field("ms", logical("timestamp-millis"), default=0),
    field("us", logical("timestamp-micros"), default=0),
    field("day", logical("date", "int"), default=0),
    field("price", decimal_of(4, 2), default="\0"),
    field("id", ["null", logical("uuid", "string")], default=None),
    field("list", array_of(map_of(["null", "double"])), default=[]),
]
MORE: list[dict[str, Any]] = [
    field("local", logical("local-timestamp-millis"), default=0),
    field("symbol", enum_of("E", "A", "B"), default="A"),
    field("other", enum_of("O", "A", "B", default="B"), default="A"),
    field("fixed", fixed_of("F", 3), default="abc"),
    field("union", ["int", "string"], default=3),
]
RECORD = from_avro({"type": "record", "name": "r", "fields": FIELDS + MORE}, "r")
UUID = "123e4567-e89b-12d3-a456-42661417400F"


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("ms", "2026-05-01T14:00:00Z", datetime(2026, 5, 1, 14, tzinfo=UTC)),
        ("ms", "2026-05-01t16:00:00.25+02:00", datetime(2026, 5, 1, 14, 0, 0, 250_000, tzinfo=UTC)),
        ("ms", "1969-12-31 23:59:59.999000000Z", datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC)),
        ("ms", "2026-05-01T14:00Z", datetime(2026, 5, 1, 14, tzinfo=UTC)),
        ("ms", "2026-05-01T16:00:00+0200", datetime(2026, 5, 1, 14, tzinfo=UTC)),
        ("ms", "2026-05-01T16:00:00,5+02", datetime(2026, 5, 1, 14, 0, 0, 500_000, UTC)),
        ("us", "2026-05-01T14:00:00.000001z", datetime(2026, 5, 1, 14, 0, 0, 1, tzinfo=UTC)),
        ("us", "0001-01-01T00:00:00Z", datetime(1, 1, 1, tzinfo=UTC)),
        ("us", "9999-12-31T23:59:59.999999Z", datetime.max.replace(tzinfo=UTC)),
        ("day", "2024-02-29", date(2024, 2, 29)),
        ("day", "0001-01-01", date.min),
        ("price", "12.34", Decimal("12.34")),
        ("price", "-99.99", Decimal("-99.99")),
        ("price", "1.5000", Decimal("1.50")),
        ("price", "12e-1", Decimal("1.20")),
        ("price", "1E+1", Decimal("10.00")),
        ("price", "-0", Decimal("0.00")),
        ("id", UUID, UUID),
        ("local", "2026-05-01T14:00:00.25", datetime(2026, 5, 1, 14, 0, 0, 250_000)),  # noqa: DTZ001
        ("local", "2026-05-01 14:00", datetime(2026, 5, 1, 14)),  # noqa: DTZ001
        ("symbol", "B", "B"),
        ("other", "C", "B"),
        ("fixed", "YWJj", b"abc"),
        ("union", {"member_string": "x"}, {"member_int": None, "member_string": "x"}),
    ],
)
def test_what_is_exact_is_taken(field: str, text: str, value: object) -> None:
    found = Decoder(RECORD, "json").decode([json.dumps({field: text}).encode()])
    assert (found.table.column(field).to_pylist(), found.rejected) == ([value], [])


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("ms", 5, "wrong_type"),
        ("ms", None, "wrong_type"),
        ("ms", "2026-05-01", "wrong_type"),
        ("ms", "2026-05-01T14:00:00", "wrong_type"),
        ("ms", "2026-05-01T14:00.5Z", "wrong_type"),
        ("ms", "2026-05-01T14:00:00+2", "wrong_type"),
        ("ms", "٢026-05-01T14:00:00Z", "wrong_type"),
        ("ms", "2026-05-01T14:00:00.0001Z", "out_of_range"),
        ("us", "2026-05-01T14:00:00.0000001Z", "out_of_range"),
        ("us", "2026-02-30T14:00:00Z", "out_of_range"),
        ("us", "2026-05-01T24:00:01Z", "out_of_range"),
        ("us", "2026-05-01T14:00:00+25:00", "out_of_range"),
        ("us", "0001-01-01T00:00:00+00:01", "out_of_range"),
        ("us", "9999-12-31T23:59:59-00:01", "out_of_range"),
        ("day", "2026-5-1", "wrong_type"),
        ("day", "20260501", "wrong_type"),
        ("day", "2026-02-30", "out_of_range"),
        ("day", "0000-01-01", "out_of_range"),
        ("price", 1.5, "wrong_type"),
        ("price", "", "wrong_type"),
        ("price", "1,5", "wrong_type"),
        ("price", ".5", "wrong_type"),
        ("price", "NaN", "wrong_type"),
        ("price", "1" * 101, "wrong_type"),
        ("price", "1e9999", "wrong_type"),
        ("price", "1e999", "out_of_range"),
        ("price", "1e-999", "out_of_range"),
        ("price", "100", "out_of_range"),
        ("price", "0.001", "out_of_range"),
        ("id", UUID[1:], "wrong_type"),
        ("id", UUID + "\n", "wrong_type"),
        ("id", 7, "wrong_type"),
        ("local", "2026-05-01T14:00:00Z", "wrong_type"),
        ("local", "2026-05-01T14:00:00.0001", "out_of_range"),
        ("symbol", "C", "wrong_type"),
        ("other", 7, "wrong_type"),
        ("fixed", "YWI=", "out_of_range"),
        ("fixed", "\u00e9", "wrong_type"),
        ("fixed", 7, "wrong_type"),
        ("union", {"member_int": "x"}, "wrong_type"),
        ("list", {}, "wrong_type"),
        ("list", [{"a": "x"}], "wrong_type"),
    ],
)
def test_what_is_not_is_rejected_and_its_place_named(field: str, value: Any, reason: str) -> None:
    good = json.dumps({"day": "2026-05-01"}).encode()
    found = Decoder(RECORD, "json").decode([good, json.dumps({field: value}).encode(), good])
    assert [(index, error.reason) for index, error in found.rejected] == [
        (1, RejectionReason(reason))
    ]
    assert f"at `$.{field}" in str(found.rejected[0][1])
    assert found.table.num_rows == 2


def avro(record: RecordSchema, **values: Any) -> bytes:
    """Return a value written as the plain types below the logical ones."""
    plain = [
        {**f, "type": f["type"]["type"]}
        if isinstance(f["type"], dict) and f["type"]["type"] not in ("array", "map")
        else f
        for f in record.avro["fields"]
    ]
    body = io.BytesIO()
    row = {"ms": 0, "us": 0, "day": 0, "price": b"\0", "id": None, "list": [], **values}
    schema = record_of(*plain)
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), row)
    return b"\0\0\0\0\1" + body.getvalue()


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("ms", -62_135_596_800_001, "out_of_range"),
        ("ms", 253_402_300_800_000, "out_of_range"),
        ("ms", 2**63 - 1, "out_of_range"),
        ("us", 253_402_300_800_000_000, "out_of_range"),
        ("us", -(2**63), "out_of_range"),
        ("day", 2_932_897, "out_of_range"),
        ("day", -719_163, "out_of_range"),
        ("price", (10_000).to_bytes(2, "big"), "out_of_range"),
        ("price", (-10_000).to_bytes(20, "big", signed=True), "out_of_range"),
        ("price", b"", "not_avro"),
        ("id", UUID[1:], "wrong_type"),
        ("id", UUID + "\n", "wrong_type"),
    ],
)
def test_avro_that_is_none_of_its_type_is_rejected(
    field: str, value: Any, reason: str, flat: bool
) -> None:
    fields = FIELDS[:-1] if flat else FIELDS
    record = from_avro(record_of(*fields), "r")
    good = avro(record, ms=-62_135_596_800_000, us=-1, day=2_932_896, price=b"\0\0\xff", id=UUID)
    found = Decoder(record, "avro").decode([good, avro(record, **{field: value}), good])
    assert [(index, error.reason) for index, error in found.rejected] == [
        (1, RejectionReason(reason))
    ]
    assert found.table.num_rows == 2
    row = found.table.to_pylist()[0]
    assert (row["ms"], row["day"]) == (datetime(1, 1, 1, tzinfo=UTC), date.max)
    assert (row["price"], row["id"]) == (Decimal("2.55"), UUID)


@given(st.integers(-(10**38) + 1, 10**38 - 1))
def test_bytes_of_a_decimal_are_as_short_as_they_can_be(number: int) -> None:
    data = logical_types.bytes_of_unscaled(number)
    assert logical_types.unscaled_of(data, 38, 0) == number
    assert len(data) == 1 or int.from_bytes(data[1:], "big", signed=True) != number


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_time_that_is_shown_reads_as_itself(time: datetime) -> None:
    micros = logical_types.timestamp_of(time.isoformat(timespec="microseconds"), "timestamp-micros")
    text = logical_types.text_of_timestamp(micros)
    assert datetime.fromisoformat(text) == time
    assert logical_types.timestamp_of(text, "timestamp-micros") == micros


def test_defaults_that_have_parts_are_those_of_json_too() -> None:
    inner = record_of(field("a", ["null", "int"]), field("b", "int", default=2), name="I")
    fields = [
        field("in", inner, default={"a": None}),
        field("list", array_of("I"), default=[{"a": None, "b": 1}]),
        field("map", map_of("int"), default={"k": 1}),
        field("none", ["null", "I"], default=None),
    ]
    record = from_avro(record_of(*fields), "r")
    found = Decoder(record, "json").decode([b"{}", b"{}"])
    assert found.table.to_pylist() == 2 * [
        {
            "in": {"a": None, "b": 2},
            "list": [{"a": None, "b": 1}],
            "map": [("k", 1)],
            "none": None,
        }
    ]
