"""``codec.change_events``: what becomes of Debezium's events, in JSON and Avro."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from anabranch.codec.change_events import ChangeDecoder, PayloadDecoder
from anabranch.codec.change_schema import SOURCE_TIME
from anabranch.codec.record_schema import RecordSchema, from_avro
from harness.avro_schemas import array_of, field, map_of, record_of
from harness.debezium import avro, avro_schema, bare, envelope, history, with_schema
from harness.registries import alone

ROW = from_avro(
    record_of(
        field("id", "long"),
        field("name", "string"),
        field("city", ["null", "string"], default=None),
        name="customer",
    ),
    "customer",
)
ENVELOPE = from_avro(avro_schema(), "customers")
START_MS = 1_777_644_000_000
ADA = {"id": 1, "name": "Ada", "city": "London"}
EXPECTED = [
    (1, "Ada", "London", "r", 0),
    (2, "Grace", None, "r", 0),
    (1, "Ada", "Turin", "u", 10_000),
    (2, "Grace", None, "d", 20_000),
    (3, "Alan", "Wilmslow", "c", 30_000),
    (3, "A. Turing", "Wilmslow", "u", 30_000),
]
ROWS = [(*row[:4], START_MS + row[4]) for row in EXPECTED]


def rows_of(decoder: ChangeDecoder, values: list[bytes | None]) -> tuple[list[Any], list[Any]]:
    decoded = decoder.decode(values)
    assert decoded.table.column_names == ["id", "name", "city", "op", SOURCE_TIME]
    decoded.table.validate(full=True)
    rows = list(range(decoded.table.num_rows)) if decoded.rows is None else decoded.rows
    assert len(rows) == decoded.table.num_rows
    found = [tuple(row.values()) for row in decoded.table.to_pylist()]
    return list(zip(rows, found, strict=True)), [
        (index, why.reason.value) for index, why in decoded.rejected
    ]


@pytest.mark.parametrize(
    ("record", "format_", "write"),
    [
        (ROW, "json", bare),
        (ROW, "json", with_schema),
        (ENVELOPE, "json", bare),
        (ENVELOPE, "json", with_schema),
        (ENVELOPE, "avro", avro),
    ],
)
def test_a_row_comes_out_of_its_envelope_and_tombstones_are_nothing(
    record: RecordSchema, format_: str, write: Callable[[dict[str, Any]], bytes]
) -> None:
    values = list[bytes | None]()
    for _, payload, has_tombstone in history(START_MS):
        values += [write(payload), *([None] if has_tombstone else [])]
    rows, rejected = rows_of(ChangeDecoder(record, format_), values)
    assert [row for _, row in rows] == ROWS
    assert [index for index, _ in rows] == [0, 1, 2, 3, 5, 6]
    assert rejected == []
    rows, rejected = rows_of(ChangeDecoder(record, format_), [each for each in values if each])
    assert ([row for _, row in rows], rejected) == (ROWS, [])


def test_values_with_and_without_schema_may_be_mixed_with_bad_ones() -> None:
    good = [payload for _, payload, _ in history(START_MS)]
    values = [
        with_schema(good[0]),
        bare(good[1]),
        b"{",
        b'{"schema":1,"payload":{}}',
        None,
        with_schema(good[2]),
        b"",
        bare(good[3]),
        b'{"id":1,"name":"Ada"}',
    ]
    rows, rejected = rows_of(ChangeDecoder(ROW, "json"), values)
    assert rows == [(0, ROWS[0]), (1, ROWS[1]), (5, ROWS[2]), (7, ROWS[3])]
    assert rejected == [
        (2, "not_json"),
        (3, "missing_field"),
        (6, "empty_value"),
        (8, "missing_field"),
    ]


def test_of_a_delete_the_key_is_enough() -> None:
    values: list[bytes | None] = [
        bare(envelope("d", START_MS, {"id": 1}, None)),
        bare(envelope("d", START_MS, {"id": 1, "name": None, "city": None}, None)),
    ]
    rows, rejected = rows_of(ChangeDecoder(ROW, "json"), values)
    row = (1, None, None, "d", START_MS)
    assert (rows, rejected) == ([(0, row), (1, row)], [])


def test_a_change_without_its_row_is_rejected_and_says_why() -> None:
    truncated = envelope("t", START_MS, None, None)
    del truncated["before"], truncated["after"]
    values: list[bytes | None] = [
        bare(truncated),
        bare(envelope("c", START_MS, None, ADA)),
        bare(envelope("d", START_MS, None, None)),
        bare(envelope("c", START_MS, None, {"id": 1})),
    ]
    decoded = ChangeDecoder(ROW, "json").decode(values)
    assert decoded.rows == [1]
    assert [(index, why.reason.value) for index, why in decoded.rejected] == [
        (0, "missing_field"),
        (2, "missing_field"),
        (3, "missing_field"),
    ]
    assert "op is 't' and there is no row `after`" in str(decoded.rejected[0][1])
    assert "REPLICA IDENTITY FULL" in str(decoded.rejected[1][1])


def test_an_envelope_without_a_time_gives_no_time() -> None:
    schema = avro_schema()
    schema["fields"] = [field for field in schema["fields"] if field["name"] != "source"]
    decoded = ChangeDecoder(from_avro(schema, "customers"), "json").decode(
        [bare(envelope("c", START_MS, None, ADA))]
    )
    assert decoded.table.to_pylist() == [{**ADA, "op": "c"}]


def test_nested_columns_come_out_as_they_are() -> None:
    record = from_avro(
        record_of(
            field("tags", array_of("string")),
            field("more", map_of("int")),
            field("at", record_of(field("x", "double"), name="p")),
        ),
        "r",
    )
    row = {"tags": ["a"], "more": {"k": 1}, "at": {"x": 0.5}}
    values: list[bytes | None] = [
        bare(envelope("c", 1, None, row)),
        bare(envelope("d", 1, row, None)),
    ]
    decoded = ChangeDecoder(record, "json").decode(values)
    expected = {"tags": ["a"], "more": [("k", 1)], "at": {"x": 0.5}, SOURCE_TIME: 1}
    assert decoded.table.to_pylist() == [{**expected, "op": "c"}, {**expected, "op": "d"}]
    assert decoded.rejected == []


def test_keys_have_a_payload_too() -> None:
    record = from_avro(record_of(field("id", "long"), name="k"), "k")
    wrapped = json.dumps({"schema": {"type": "struct"}, "payload": {"id": 1}}).encode()
    found = PayloadDecoder(record, "json").decode([wrapped, b'{"id":2}', wrapped])
    assert found.table.to_pylist() == [{"id": 1}, {"id": 2}, {"id": 1}]
    assert found.size_bytes == 2 * len(wrapped) + 8
    decoder = PayloadDecoder(record, "json")
    assert [decoder.decode([wrapped]).rows for _ in range(2)] == [None, None]


def test_schema_ids_go_with_their_values() -> None:
    value = avro(envelope("c", 5, None, ADA))
    header = b"\0" + (1).to_bytes(4, "big")
    found = PayloadDecoder(ENVELOPE, "avro").decode([value, value[5:]], [None, header])
    assert [row["op"] for row in found.table.to_pylist()] == ["c", "c"]
    ids: list[bytes | None] = [None, None]
    mixed = PayloadDecoder(ROW, "json").decode(
        [b'{"payload":{"id":1,"name":"a"}}', b'{"id":2,"name":"b"}'], ids
    )
    assert [row["id"] for row in mixed.table.to_pylist()] == [1, 2]


def test_json_with_a_schema_of_a_registry_is_never_wrapped() -> None:
    """With its schema in a header a value is JSON from its first byte on."""
    decoder = ChangeDecoder(ROW, "json_schema", lambda _: alone("{}"))
    good, wrapped = (write(envelope("c", START_MS, None, ADA)) for write in (bare, with_schema))
    decoded = decoder.decode([good, wrapped], [b"\0\0\0\0\1"] * 2)
    assert decoded.table.num_rows == 1
    assert [(index, why.reason.value) for index, why in decoded.rejected] == [(1, "missing_field")]
