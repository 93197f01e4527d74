from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from anabranch.codec import json_alike
from anabranch.codec.json_alike import AlikeDecoder
from anabranch.codec.json_records import JsonDecoder
from anabranch.codec.record_schema import from_avro

RECORD = from_avro(
    {
        "type": "record",
        "name": "r",
        "fields": [
            {"name": "i", "type": "int"},
            {"name": "l", "type": "long"},
            {"name": "f", "type": "float"},
            {"name": "d", "type": "double"},
            {"name": "b", "type": "boolean"},
            {"name": "s", "type": "string"},
            {"name": "n", "type": ["null", "long"]},
            {"name": "t", "type": ["null", "string"]},
        ],
    },
    "r",
)
GOOD: dict[str, str] = {
    "i": "1",
    "l": "-20",
    "f": "0.5",
    "d": "2.5e3",
    "b": "true",
    "s": '"x"',
    "n": "7",
    "t": "null",
}


@pytest.fixture(autouse=True)
def _however_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_alike, "_WORTH", 1)


def written(**change: str) -> bytes:
    return b"{%s}" % ",".join(f'"{k}":{v}' for k, v in {**GOOD, **change}.items()).encode()


def alike(*values: bytes, ignores_others: bool = True) -> list[dict[str, Any]] | None:
    """What the short way gives, which must be what the decoder of single records gives."""
    columns = AlikeDecoder(RECORD.fields, ignores_others).decode(values)
    if columns is None:
        return None
    table = pa.Table.from_arrays(columns, schema=RECORD.arrow_schema())
    table.validate(full=True)
    one_by_one = JsonDecoder(RECORD, "ignore" if ignores_others else "reject")
    one_by_one._alike._can = False
    expected = [one_by_one.decode([value]) for value in values]
    assert not any(rejected for _, rejected in expected)
    rows = [row for found, _ in expected for row in found.to_pylist()]
    assert repr(table.to_pylist()) == repr(rows)  # tells 0.0 from -0.0
    return rows


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"i": "0", "l": "9223372036854775807", "n": "null"},
        {"i": "-2147483648", "l": "-9223372036854775808", "n": "-1"},
        {"f": "3.4028234663852886e38", "d": "1.7976931348623157e308"},
        {"f": "-0.0", "d": "-0e0"},
        {"f": "7", "d": "123456789012345678901234567890"},
        {"d": "5e-324", "f": "1E+2"},
        {"b": "false", "s": '""', "t": '""'},
        {"s": '"ü €"', "t": '"null"'},
        {"s": '"}"', "t": '"{:[]"'},
    ],
)
def test_values_that_leave_no_choice(change: dict[str, str]) -> None:
    assert alike(written(), written(**change), written()) is not None


@pytest.mark.parametrize(
    "change",
    [
        *({"i": text} for text in ("1.0", "1e2", "+1", "01", "-0", "-01", "0x1F", "2147483648")),
        *(
            {"i": text}
            for text in ("true", "null", '"1"', "", " 1", "1 ", "1_0", "-", "\u0661", "NaN")
        ),
        *({"l": text} for text in ("9223372036854775808", "00", "1" * 400)),
        *({"d": text} for text in ("NaN", "Infinity", "-inf", "1e400", "1.", ".5", "1e", "01.5")),
        *({"d": text} for text in ("+1", "-0", "null", '"1"', "0x1p3", "1f", "1,5")),
        *({"f": text} for text in ("3.5e38", "-1e39", "nan")),
        *({"b": text} for text in ("1", "True", "null", '"true"', "truefalse")),
        *({"s": text} for text in ('"a', 'a"', '"', "null", '"a"b"', '"a,b"', r'"\n"', '"a" ')),
        {"s": '"\t"'},
        {"s": '"\r"'},
        {"s": '"\x00"'},
        {"n": '"null"'},
        {"n": "nul"},
        {"s": '"x","s":"y"'},
        {"s": '"x","other":1'},
    ],
)
def test_what_is_decided_one_by_one(change: dict[str, str]) -> None:
    assert alike(written(), written(**change), written()) is None


@pytest.mark.parametrize(
    "values",
    [
        (written() + b"\n", written()),
        (written() + b"\n" + written(), b" "),
        (written() + written(), written()),
        (b"\xef\xbb\xbf" + written(), written()),
        (written()[:-1], written()[:-1] + b"}}"),
        (written(s='"\xff"').replace("\xff".encode(), b"\xff"), written()),
        (written(), written()[1:]),
        (written(), b"{" + written()),
        (b"{}", b"{}"),
        (b"[1]", b"[1]"),
        (b"{", b"{"),
        (written(), b"{}"),
    ],
)
def test_records_that_run_into_each_other_or_are_none(values: tuple[bytes, ...]) -> None:
    assert alike(*values) is None


def test_spaces_and_the_order_of_fields_are_those_of_whoever_writes() -> None:
    values = {**GOOD, "other": '"y"', "more": "4"}
    spaced = b"{" + ", ".join(f'"{k}": {values[k]}' for k in reversed(values)).encode() + b"}"
    row = {name: value for name, value in json.loads(spaced).items() if name in GOOD}
    assert alike(spaced, spaced) == [row, row]
    assert alike(spaced, spaced, ignores_others=False) is None


@pytest.mark.parametrize("other", ["[1]", "1.5", "true", "null", '"a\\n"', "{}"])
def test_other_fields_are_texts_and_whole_numbers(other: str) -> None:
    assert alike(written(other=other), written(other=other)) is None


@pytest.mark.parametrize(("first", "second"), [("1", "01"), ("1", '"x"'), ('"x"', "1")])
def test_other_fields_are_looked_at_too(first: str, second: str) -> None:
    assert alike(written(other=first), written(other=second)) is None


def test_a_field_must_be_there_though_it_has_a_default() -> None:
    record = from_avro(
        {"type": "record", "name": "r", "fields": [{"name": "i", "type": "int", "default": 1}]}, "r"
    )
    assert AlikeDecoder(record.fields, True).decode([b'{"j":1}']) is None
    assert AlikeDecoder(record.fields, True).decode([b'{"i":1}']) is not None


def test_another_writer_is_learnt() -> None:
    decoder = AlikeDecoder(RECORD.fields, True)
    spaced = written().replace(b":", b" : ")
    for value in (written(), spaced, written()):
        assert decoder.decode([value, value]) is not None


def test_nested_fields_are_never_tried() -> None:
    record = from_avro(
        {
            "type": "record",
            "name": "r",
            "fields": [{"name": "a", "type": {"type": "array", "items": "int"}}],
        },
        "r",
    )
    assert AlikeDecoder(record.fields, True).decode([b'{"a":1}']) is None


def test_a_few_records_are_not_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_alike, "_WORTH", 3)
    decoder = AlikeDecoder(RECORD.fields, True)
    assert decoder.decode([written()] * 2) is None
    assert decoder.decode([written()] * 3) is not None


def test_records_that_are_never_alike_are_tried_less_and_less() -> None:
    decoder = AlikeDecoder(RECORD.fields, True)
    tried = 0
    for _ in range(1_000):
        tried += not decoder._left
        assert decoder.decode([b"{}"]) is None
    assert tried < 25
    while decoder._left:
        assert decoder.decode([written()]) is None
    assert decoder.decode([written()]) is not None
    assert decoder.decode([written()]) is not None


def test_the_decoder_of_json_takes_the_short_way_where_it_leads_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    many = [written(i=str(number)) for number in range(20_000)]
    decoder = JsonDecoder(RECORD)
    with monkeypatch.context() as patch:
        patch.setattr(JsonDecoder, "_piece", pytest.fail)
        table, rejected = decoder.decode(many)
    assert (table.column("i").to_pylist(), rejected) == (list(range(20_000)), [])
    many[17_000] = written(i="x")
    table, rejected = decoder.decode(many)
    assert table.num_rows == 19_999
    assert [index for index, _ in rejected] == [17_000]
    table.validate(full=True)
