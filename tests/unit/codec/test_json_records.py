from __future__ import annotations

import datetime as dt
import decimal
import json

import pyarrow as pa
import pytest

from anabranch.codec.json_records import JsonDecoder, JsonEncoder
from anabranch.codec.record_schema import from_avro
from anabranch.protocol.errors import ConfigurationError, RejectionReason
from harness.avro_schemas import field, record_of

RECORD = from_avro(
    record_of(
        field("class", "long"),
        field("i", "int"),
        field("f", "float", default=1.5),
        field("d", "double"),
        field("b", "boolean"),
        field("s", "string"),
        field("y", "bytes", default="\u00ff"),
        field("n", ["null", "int"], default=None),
        field("m", ["null", "string"]),
    ),
    "r",
)
GOOD = {"class": 1, "i": 2, "f": 0.5, "d": 2.5, "b": True, "s": "x", "y": "AAE=", "n": 7, "m": None}
ROW = {**GOOD, "y": b"\0\1"}


def decoded(*values: bytes) -> tuple[list[dict[str, object]], list[tuple[int, RejectionReason]]]:
    table, rejected = JsonDecoder(RECORD, "reject").decode(values)
    assert table.schema == RECORD.arrow_schema()
    table.validate(full=True)
    return table.to_pylist(), [(index, error.reason) for index, error in rejected]


def text(**change: object) -> bytes:
    return json.dumps({**GOOD, **change}).encode()


def without(name: str) -> bytes:
    return json.dumps({key: value for key, value in GOOD.items() if key != name}).encode()


def raw(name: str, value: str) -> bytes:
    """Return a record in which one value is written as ``value``."""
    return json.dumps({**GOOD, name: "@@"}).replace('"@@"', value).encode()


@pytest.mark.parametrize(
    ("value", "row"),
    [
        (text(), ROW),
        (b" \n\t" + text() + b"\r\n ", ROW),
        (json.dumps(GOOD, indent=2).encode(), ROW),
        (without("f"), {**ROW, "f": 1.5}),
        (without("y"), {**ROW, "y": b"\xff"}),
        (without("n"), {**ROW, "n": None}),
        (text(n=None), {**ROW, "n": None}),
        (text(m="\u00e9\U0001f600"), {**ROW, "m": "\u00e9\U0001f600"}),
        (raw("s", r'"\u0000\ud83d\ude00"'), {**ROW, "s": "\0\U0001f600"}),
        (raw("d", "3"), {**ROW, "d": 3.0}),
        (raw("d", "1E2"), {**ROW, "d": 100.0}),
        (raw("d", "-0.0"), {**ROW, "d": -0.0}),
        (raw("d", str(10**40)), {**ROW, "d": 1e40}),
        (raw("d", "1e-400"), {**ROW, "d": 0.0}),
        (raw("d", "1.7976931348623157e308"), {**ROW, "d": 1.7976931348623157e308}),
        (raw("f", "3.4028234663852886e38"), {**ROW, "f": 3.4028234663852886e38}),
        (raw("i", "-2147483648"), {**ROW, "i": -(2**31)}),
        (raw("class", "9223372036854775807"), {**ROW, "class": 2**63 - 1}),
        (raw("class", "-9223372036854775808"), {**ROW, "class": -(2**63)}),
        (raw("i", '5, "i": 6'), {**ROW, "i": 6}),
    ],
)
def test_a_record_that_fits_becomes_a_row(value: bytes, row: dict[str, object]) -> None:
    assert decoded(value) == ([row], [])


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"{", "not_json"),
        (b" ", "not_json"),
        (text()[:-1], "not_json"),
        (text() + text(), "not_json"),
        (text() + b"x", "not_json"),
        (text() + b"\0", "not_json"),
        (b"\xef\xbb\xbf" + text(), "not_json"),
        (text().decode().encode("utf-16"), "not_json"),
        (raw("s", '"\xff"').decode().encode("latin-1"), "not_json"),
        (raw("s", '"a\nb"'), "not_json"),
        (raw("s", r'"\ud800"'), "not_json"),
        (raw("s", r'"\x"'), "not_json"),
        (raw("i", "01"), "not_json"),
        (raw("i", "+1"), "not_json"),
        (raw("d", ".5"), "not_json"),
        (raw("s", "'x'"), "not_json"),
        (text().replace(b"{", b"{,", 1), "not_json"),
        (b"[" * 100_000, "too_deep"),
        (b"[" * 10_000, "too_deep"),
        # With very many brackets the reason is a rough one.
        (raw("i", "[" + "[]," * 20_001 + "1]"), "wrong_type"),
        (raw("i", "1") + b"[]" * 20_001, "not_json"),
        (raw("s", "[" * 20 + "]" * 20), "too_deep"),
        (raw("zzz", '{"a":' * 20 + "1" + "}" * 20), "too_deep"),
        (raw("d", "NaN"), "not_finite"),
        (raw("d", "-Infinity"), "not_finite"),
        (raw("f", "Infinity"), "not_finite"),
        (raw("f", '"NaN"'), "not_finite"),
        (raw("d", '"-Infinity"'), "not_finite"),
        (b"null", "wrong_type"),
        (b"[]", "wrong_type"),
        (b"[" + text() + b"]", "wrong_type"),
        (b"7", "wrong_type"),
        (b'"x"', "wrong_type"),
        (raw("i", "1.0"), "wrong_type"),
        (raw("i", "1e2"), "wrong_type"),
        (raw("i", "true"), "wrong_type"),
        (raw("i", '"1"'), "wrong_type"),
        (raw("i", "null"), "wrong_type"),
        (raw("i", "[1]"), "wrong_type"),
        (raw("b", "1"), "wrong_type"),
        (raw("b", "null"), "wrong_type"),
        (raw("d", '"1"'), "wrong_type"),
        (raw("d", "false"), "wrong_type"),
        (raw("s", "1"), "wrong_type"),
        (raw("s", "null"), "wrong_type"),
        (raw("y", '"!"'), "wrong_type"),
        (raw("y", "[1]"), "wrong_type"),
        (raw("m", "{}"), "wrong_type"),
        (raw("i", "2147483648"), "out_of_range"),
        (raw("n", "-2147483649"), "out_of_range"),
        (raw("class", "9223372036854775808"), "out_of_range"),
        (raw("class", str(10**30)), "out_of_range"),
        (raw("class", "1" * 5_000), "out_of_range"),
        (raw("d", "1e400"), "out_of_range"),
        (raw("d", "1" + "0" * 400), "out_of_range"),
        (raw("f", "3.5e38"), "out_of_range"),
        (raw("f", "-1e300"), "out_of_range"),
        (without("i"), "missing_field"),
        (without("m"), "missing_field"),
        (b"{}", "missing_field"),
        (text(more=1), "extra_field"),
        (text(I=1), "extra_field"),
        (json.dumps({**GOOD, "f0": 1}).encode(), "extra_field"),
    ],
)
def test_a_record_that_does_not_fit_is_rejected_with_its_reason(value: bytes, reason: str) -> None:
    assert decoded(value) == ([], [(0, RejectionReason(reason))])


@pytest.mark.parametrize("extra", ["1", '"x"', "null", "[[{}]]", '{"i": 7}', "[" * 90 + "]" * 90])
def test_fields_that_the_record_has_not_are_ignored(extra: str) -> None:
    value = text().removesuffix(b"}") + b', "more": ' + extra.encode() + b', "I": 0}'
    table, rejected = JsonDecoder(RECORD).decode([value])
    assert (table.to_pylist(), rejected) == ([ROW], [])


@pytest.mark.parametrize("extra", ["", "tru", "01", '"', "[", "[}", "NaN", "[" * 100_000])
def test_what_is_ignored_is_json_in_form(extra: str) -> None:
    value = text().removesuffix(b"}") + b', "more": ' + extra.encode() + b"}"
    table, rejected = JsonDecoder(RECORD).decode([value, text()])
    assert (table.to_pylist(), [index for index, _ in rejected]) == ([ROW], [0])


def test_an_ignored_field_is_not_the_reason() -> None:
    _, rejected = JsonDecoder(RECORD).decode([without("i")[:-1] + b', "more": 1}'])
    assert [error.reason for _, error in rejected] == [RejectionReason.MISSING_FIELD]


def test_no_records_are_an_empty_table() -> None:
    assert decoded() == ([], [])


def test_rows_become_compact_objects_in_the_order_of_the_columns() -> None:
    table = pa.table(
        {
            "class": pa.array([1, None]),
            "t": pa.array([1_500_999, -1], pa.timestamp("us", "UTC")),
            "d": pa.array([0.5, float("nan")]),
            "s": ["\u00e9\n", ""],
            "y": [b"\0\1", None],
            "day": [dt.date(2024, 2, 29), None],
            "n": [decimal.Decimal("1.50"), None],
            "l": [[1, 2], []],
            "o": [{"a": 1}, None],
            "left": [1, 2],
        }
    )
    encoder = JsonEncoder(table.schema.remove(9))
    assert [value.decode() for value in encoder.encode(table)] == [
        '{"class":1,"t":"1970-01-01T00:00:01.500999Z","d":0.5,"s":"\u00e9\\n","y":"AAE=","day":"2024-02-29","n":"1.50","l":[1,2],"o":{"a":1}}',
        '{"class":null,"t":"1969-12-31T23:59:59.999999Z","d":"NaN","s":"","y":null,"day":null,"n":null,"l":[],"o":null}',
    ]
    assert encoder.encode(table.slice(0, 0)) == []


@pytest.mark.parametrize(
    ("unit", "number"), [("s", 2), ("ms", 2_000), ("us", 2_000_000), ("ns", 2_000_000_000)]
)
def test_timestamps_of_all_units_are_written_alike(unit: str, number: int) -> None:
    for zone, end in ((None, ""), ("UTC", "Z"), ("Europe/Paris", "Z")):
        table = pa.table({"t": pa.array([number, None], pa.timestamp(unit, zone))})
        assert JsonEncoder(table.schema).encode(table) == [
            b'{"t":"1970-01-01T00:00:02.000000%s"}' % end.encode(),
            b'{"t":null}',
        ]


def test_columns_have_names_of_their_own() -> None:
    with pytest.raises(ConfigurationError, match="same name"):
        JsonEncoder(pa.schema([("a", pa.int32()), ("a", pa.int32())]))


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_a_duration_of_any_unit_is_a_text(unit: str) -> None:
    """An interval in SQL has nanoseconds; a duration in Python has microseconds."""
    took = pa.array([60_000_000_000, None], pa.duration("ns")).cast(pa.duration(unit))
    table = pa.table({"took": took})
    assert JsonEncoder(table.schema).encode(table) == [b'{"took":"PT60S"}', b'{"took":null}']


def test_a_map_whose_keys_json_does_not_have_is_no_column_of_an_output() -> None:
    kind = pa.list_(pa.map_(pa.float64(), pa.int64()))
    with pytest.raises(ConfigurationError, match="column a has a map whose keys are double"):
        JsonEncoder(pa.schema([("a", kind)]))
    JsonEncoder(pa.schema([("a", pa.map_(pa.int32(), pa.map_(pa.string(), pa.int64())))]))


ALIASED = from_avro(
    record_of(
        field("at", "long", alias="@timestamp"),
        field("device", "string", alias="device-id"),
        field("day", "string", alias="Date Time"),
        field("size", ["null", "int"], default=None, alias="gr\u00f6\u00dfe"),
        field("event", "string", alias="event_time"),
        field("id", "int"),
        field("id_upper", "int", alias="ID"),
        field("inner", record_of(field("a", "int", alias="a b"), name="i")),
    ),
    "r",
)
SENT = {
    "@timestamp": 1,
    "device-id": "d",
    "Date Time": "x",
    "gr\u00f6\u00dfe": 5,
    "event_time": "e",
    "id": 1,
    "ID": 2,
    "inner": {"a b": 3},
}


def test_a_field_is_called_by_its_alias() -> None:
    table, rejected = JsonDecoder(ALIASED, "reject").decode(
        [json.dumps(SENT).encode(), json.dumps(SENT, ensure_ascii=False).encode()]
    )
    row = {
        "at": 1,
        "device": "d",
        "day": "x",
        "size": 5,
        "event": "e",
        "id": 1,
        "id_upper": 2,
        "inner": {"a": 3},
    }
    assert (table.to_pylist(), rejected) == ([row, row], [])


@pytest.mark.parametrize(
    ("change", "reason", "words"),
    [
        ({"at": 1}, "extra_field", "at"),
        ({"device-id": None}, "wrong_type", "device-id"),
        ({"@timestamp": 2**63}, "out_of_range", "@timestamp"),
        ({"inner": {"a": 3}}, "missing_field", "a b"),
    ],
)
def test_a_field_with_an_alias_is_called_by_nothing_else(
    change: dict[str, object], reason: str, words: str
) -> None:
    value = json.dumps({**SENT, **change}).encode()
    if reason == "missing_field":
        _, [(_, error)] = JsonDecoder(ALIASED).decode([value])
    else:
        _, [(_, error)] = JsonDecoder(ALIASED, "reject").decode([value])
    assert error.reason == reason
    assert words in str(error)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"\xef\xbb\xbf" + text(), "begins with a byte order mark"),
        (b"[" + text() + b"," + text() + b"]", "an array of 2 at the top"),
        (b"[]", "an array of 0 at the top"),
        (
            text() + b"\n" + text() + b"\n",
            f"more follows the first JSON value, at character {len(text()) + 1}",
        ),
    ],
)
def test_a_value_of_other_than_one_object_is_rejected_with_that_reason(
    value: bytes, words: str
) -> None:
    _, [(_, error)] = JsonDecoder(RECORD).decode([value])
    assert words in str(error)


def test_numbers_are_written_short_and_those_that_json_lacks_as_texts() -> None:
    numbers = [0.1, 1 / 3, 16777216.0, None, float("nan"), float("inf"), float("-inf")]
    table = pa.table(
        {
            "h": pa.array([1.5, 0.25, 2.0, None, *numbers[4:]], pa.float16()),
            "f": pa.array(numbers, pa.float32()),
            "d": pa.array(numbers, pa.float64()),
            "l": pa.array([[number] for number in numbers], pa.list_(pa.float32())),
        }
    )
    assert [value.decode() for value in JsonEncoder(table.schema).encode(table)] == [
        '{"h":1.5,"f":0.1,"d":0.1,"l":[0.1]}',
        '{"h":0.25,"f":0.33333334,"d":0.3333333333333333,"l":[0.33333334]}',
        '{"h":2.0,"f":16777216.0,"d":16777216.0,"l":[16777216.0]}',
        '{"h":null,"f":null,"d":null,"l":[null]}',
        '{"h":"NaN","f":"NaN","d":"NaN","l":["NaN"]}',
        '{"h":"Infinity","f":"Infinity","d":"Infinity","l":["Infinity"]}',
        '{"h":"-Infinity","f":"-Infinity","d":"-Infinity","l":["-Infinity"]}',
    ]
