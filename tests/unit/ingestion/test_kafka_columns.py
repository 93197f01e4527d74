"""``ingestion.kafka_columns``: parts of the Kafka record as columns."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from anabranch.codec.edge import Decoded, Decoder
from anabranch.codec.field_types import Field
from anabranch.codec.framing import KEY_SCHEMA_ID
from anabranch.codec.record_schema import from_avro
from anabranch.ingestion.batches import HEARTBEAT, Batch, judge
from anabranch.ingestion.kafka_columns import KafkaColumns
from anabranch.pipeline.model import EventTime, KafkaColumn, Source
from anabranch.ports import Chunk, Headers, TopicPartition
from anabranch.protocol.edge.ingestion import EventTimeLimits
from anabranch.protocol.limits import EVENT_TIME_MS_MAX
from harness.registries import alone
from harness.sources import pipeline, report

KEY = from_avro(
    {"type": "record", "name": "k", "fields": [{"name": "id", "type": "long", "alias": "ID"}]}, "k"
)
EVERY = (
    KafkaColumn(field=Field("k", "string", nullable=True), part="key"),
    KafkaColumn(field=Field("h", "string", nullable=True), part="header", header="h"),
    KafkaColumn(field=Field("sent", "timestamp-millis", nullable=True), part="timestamp"),
    KafkaColumn(field=Field("part", "int"), part="partition"),
    KafkaColumn(field=Field("at", "long"), part="offset"),
    KafkaColumn(field=Field("of", "string"), part="topic"),
)
RAW = (
    KafkaColumn(field=Field("k", "bytes", nullable=True), part="key"),
    KafkaColumn(field=Field("h", "bytes", nullable=True), part="header", header="h"),
)
DECODED = (
    KafkaColumn(
        field=Field("k", "record", nullable=True, inner=KEY.fields), part="key", record=KEY
    ),
)


def chunk(partition: int, *records: tuple[bytes | None, bytes | None, Headers, int]) -> Chunk:
    values, keys, headers, stamps = zip(*records, strict=True)
    return Chunk(
        TopicPartition("t", partition),
        [10 + i for i in range(len(records))],
        list(values),
        list(keys),
        list(stamps),
        list(headers),
    )


def source(columns: tuple[KafkaColumn, ...], **more: Any) -> Source:
    return pipeline("p", columns=columns, **more).sources["reports"]


def added(one: Source, *chunks: Chunk) -> tuple[Batch, Decoded]:
    batch = Batch.of(chunks)
    decoded = Decoder(one.record, one.format).decode(batch.values())
    return batch, KafkaColumns(one).add(batch, decoded)


def test_each_part_is_a_column() -> None:
    one = source(EVERY)
    _, decoded = added(
        one,
        chunk(0, (report(1), b"a", [("h", b"1"), ("x", None), ("h", b"2")], 5)),
        chunk(1, (report(2), None, (), -1), (report(3), b"\xc3\xa9", [("h", None)], 7)),
    )
    assert decoded.table.schema == one.rows.arrow_schema()
    assert decoded.table.select(["k", "h", "sent", "part", "at", "of"]).to_pylist() == [
        {
            "k": "a",
            "h": "2",
            "sent": datetime(1970, 1, 1, 0, 0, 0, 5_000, UTC),
            "part": 0,
            "at": 10,
            "of": "t",
        },
        {"k": None, "h": None, "sent": None, "part": 1, "at": 10, "of": "t"},
        {
            "k": "\u00e9",
            "h": None,
            "sent": datetime(1970, 1, 1, 0, 0, 0, 7_000, UTC),
            "part": 1,
            "at": 11,
            "of": "t",
        },
    ]
    assert (decoded.rows, decoded.rejected) == (None, [])


def test_bytes_stay_bytes() -> None:
    _, decoded = added(source(RAW), chunk(0, (report(1), b"\xff", [("h", b"\xfe")], 5)))
    assert decoded.table.select(["k", "h"]).to_pylist() == [{"k": b"\xff", "h": b"\xfe"}]


def test_a_column_that_cannot_be_made_rejects_its_record_alone() -> None:
    one = source(EVERY)
    beat = (None, None, [(HEARTBEAT, b"1")], 5)
    batch, decoded = added(
        one,
        chunk(
            0,
            (report(1, 1), b"a", (), 5),
            beat,
            (b"{", b"a", (), 5),
            (report(2, 2), b"\xff", [("h", b"\xff")], 5),
            (report(3, 3), b"a", [("h", b"\xff")], 5),
            (report(4, 4), b"a", (), EVENT_TIME_MS_MAX + 1),
            (report(5, 5), b"b", (), 5),
        ),
    )
    assert decoded.table.select(["car", "k"]).to_pylist() == [
        {"car": 1, "k": "a"},
        {"car": 5, "k": "b"},
    ]
    limits = EventTimeLimits(late_upto_ms=0, ahead_above_ms=9_000)
    judged = judge(batch, decoded, one, limits, 100)
    assert [(number, why.reason.value) for number, why in judged.rejected] == [
        (2, "not_json"),
        (3, "wrong_type"),
        (4, "wrong_type"),
        (5, "out_of_range"),
    ]
    assert "the key is not UTF-8" in str(judged.rejected[1][1])
    assert "the header h is not UTF-8" in str(judged.rejected[2][1])
    assert judged.table.column("at").to_pylist() == [10, 16]


def test_keys_are_decoded_by_a_schema() -> None:
    _, decoded = added(
        source(DECODED),
        chunk(
            0,
            (report(1, 1), b'{"ID":7}', (), 5),
            (report(2, 2), None, (), 5),
            (report(3, 3), b"{", (), 5),
            (report(4, 4), b"", (), 5),
            (report(5, 5), b'{"ID":8,"more":1}', (), 5),
        ),
    )
    assert decoded.table.select(["car", "k"]).to_pylist() == [
        {"car": 1, "k": {"id": 7}},
        {"car": 2, "k": None},
        {"car": 5, "k": {"id": 8}},
    ]
    assert [(index, str(why)[:8], why.reason.value) for index, why in decoded.rejected] == [
        (2, "the key:", "not_json"),
        (3, "the key:", "empty_value"),
    ]
    assert decoded.rows == [0, 1, 4]


def test_the_schema_of_a_key_may_stand_in_a_header() -> None:
    text = alone(json.dumps({"type": "record", "name": "k", "fields": KEY.avro["fields"]}))
    (column,) = DECODED
    one = source((column.model_copy(update={"format": "avro"}),))
    framing = b"\0\0\0\0\7"
    batch = Batch.of(
        [
            chunk(
                0,
                (report(1), b"\4", [(KEY_SCHEMA_ID, framing)], 0),
                (report(2), framing + b"\6", (), 0),
                (report(3), b"\4", [(KEY_SCHEMA_ID, b"x")], 0),
            )
        ]
    )
    decoded = Decoder(one.record, one.format).decode(batch.values())
    found = KafkaColumns(one, lambda _: lambda _: text).add(batch, decoded)
    assert found.table.column("k").to_pylist() == [{"id": 2}, {"id": 3}]
    ((row, why),) = found.rejected
    assert (row, "the key: the header of its schema has 1 bytes" in str(why)) == (2, True)


def test_without_keys_a_decoded_column_is_null() -> None:
    _, decoded = added(source(DECODED), chunk(0, (report(1), None, (), 5)))
    assert decoded.table.column("k").to_pylist() == [None]


def test_without_columns_nothing_changes() -> None:
    one = source(())
    batch = Batch.of([chunk(0, (report(1), b"a", (), 5))])
    decoded = Decoder(one.record, one.format).decode(batch.values())
    assert KafkaColumns(one).add(batch, decoded) is decoded


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (EventTime(field="sent", unit="us", is_text=True), [5, 6]),
        (EventTime(field="at", unit="s"), [10_000, 11_000]),
        (EventTime(field="h", unit="us", is_text=True), [1_000, 2_000]),
        (EventTime(field=None, of_producer=True), [5, 6]),
    ],
)
def test_an_event_time_may_be_any_of_them(rule: EventTime, expected: list[int]) -> None:
    one = source(EVERY, event_time=rule)
    batch, decoded = added(
        one,
        chunk(
            0,
            (report(1), b"a", [("h", b"1970-01-01T00:00:01Z")], 5),
            (report(1), b"a", [("h", b"1970-01-01T00:00:02Z")], 6),
        ),
    )
    judged = judge(batch, decoded, one, EventTimeLimits(late_upto_ms=0, ahead_above_ms=99_999), 100)
    assert judged.table.column("event_time").to_pylist() == expected


def test_a_producer_without_a_clock_is_rejected() -> None:
    one = source((), event_time=EventTime(field=None, of_producer=True))
    batch, decoded = added(
        one, chunk(0, (report(1), b"a", (), -1), (b"{", b"a", (), 9), (report(1), b"a", (), 7))
    )
    judged = judge(batch, decoded, one, EventTimeLimits(late_upto_ms=0, ahead_above_ms=99_999), 100)
    assert judged.table.column("event_time").to_pylist() == [7]
    assert "the producer's timestamp is -1" in str(judged.rejected[0][1])


def test_the_fields_of_rows_are_those_of_the_record_and_the_columns() -> None:
    one = source(EVERY)
    assert one.rows.arrow_schema().names == [
        *one.record.arrow_schema().names,
        *["k", "h", "sent", "part", "at", "of"],
    ]
    assert one.rows.arrow_schema().field("sent").type == pa.timestamp("us", "UTC")
    assert one.needs_timestamps
    assert not source(RAW).needs_timestamps
