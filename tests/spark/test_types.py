"""Logical and nested types through a stage, on real Spark: from records in both formats to records
in both formats.
"""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from anabranch.codec.avro_encoding import AvroEncoder
from anabranch.codec.avro_records import AvroDecoder
from anabranch.codec.edge import Decoder, Encoder, Key
from anabranch.codec.record_schema import from_avro
from anabranch.pipeline.file import load
from harness.stages import Feed, Output, RunningStage, create_topics, write_pipeline

pytestmark = pytest.mark.integration

FUNCTIONS = """
from pyspark.sql import functions as F

def typed(a):
    types = "; ".join(f"{field.name} {field.dataType.simpleString()}" for field in a.schema)
    return a.select(
        F.lit(types).alias("types"),
        F.expr("at + INTERVAL 1 MICROSECOND").alias("at"),
        F.date_add("day", 1).alias("day"),
        (F.col("price") * 2).cast("decimal(12,2)").alias("price"),
        "id",
        F.transform("prices", lambda price: price + 1).alias("prices"),
        F.map_concat(F.create_map(F.lit("z"), F.array(F.lit(9))), F.col("counts")).alias("counts"),
        F.struct(F.upper("place.name").alias("name"), F.size("prices").alias("n")).alias("place"),
        "event_time",
    )
"""
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
FIELDS: list[dict[str, Any]] = [
    {"name": "time", "type": "long"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "price", "type": ["null", PRICE]},
    {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
    {"name": "prices", "type": {"type": "array", "items": PRICE}},
    {"name": "counts", "type": {"type": "map", "values": {"type": "array", "items": "int"}}},
    {
        "name": "place",
        "type": [
            "null",
            {"type": "record", "name": "p", "fields": [{"name": "name", "type": "string"}]},
        ],
    },
]
RECORD = {"type": "record", "name": "reading", "fields": FIELDS}
UUID = "123e4567-e89b-12d3-a456-426614174000"
SEEN = (
    "time bigint; at timestamp; day date; price decimal(10,2); id string; prices"
    " array<decimal(10,2)>; counts map<string,array<int>>; place struct<name:string>; event_time"
    " timestamp"
)
WIDTH_MS = 100


def rows(bucket: int) -> list[dict[str, Any]]:
    """Return the rows of one bucket, as another library reads them."""
    return [
        {
            "time": bucket * WIDTH_MS - number,
            "at": datetime(1969, 12, 31, 23, 59, 59, 999_999 - number, tzinfo=UTC),
            "day": date(2024, 2, 28 + number),
            "price": Decimal(f"-{bucket}.0{number}") if number else None,
            "id": UUID,
            "prices": [Decimal("0.99")] * number,
            "counts": {"b": [bucket], "a": []},
            "place": {"name": "roof"} if number else None,
        }
        for number in (0, 1)
    ]


def in_json(row: dict[str, Any]) -> bytes:
    return json.dumps(
        row,
        default=lambda value: str(value) if isinstance(value, Decimal) else value.isoformat(),
    ).encode()


def in_avro(row: dict[str, Any]) -> bytes:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(RECORD), row)
    return b"\0\0\0\0\1" + body.getvalue()


def expected(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "types": SEEN,
        "at": row["at"].replace(microsecond=row["at"].microsecond + 1)
        if row["at"].microsecond < 999_999
        else datetime(1970, 1, 1, tzinfo=UTC),
        "day": date(2024, 2, 29) if row["day"].day == 28 else date(2024, 3, 1),
        "price": None if row["price"] is None else row["price"] * 2,
        "id": UUID,
        "prices": [price + 1 for price in row["prices"]],
        "counts": [*sorted(row["counts"].items()), ("z", [9])],
        "place": {"name": "ROOF" if row["place"] else None, "n": len(row["prices"])},
    }


def test_a_stage_sees_the_types_and_outputs_have_them(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    stages = "s:\n  reads: [a]\n  participant: north\n  transform: MODULE:typed\n"
    pipeline = write_pipeline(tmp_path, topic_prefix, FUNCTIONS, stages=stages)
    (tmp_path / "reading.avsc").write_text(json.dumps(RECORD))
    pipeline = load(pipeline.path)
    create_topics(kafka, pipeline)
    feed, output = Feed(kafka, pipeline, "a"), Output(kafka, pipeline, "s")
    record = pipeline.sources["a"].record
    try:
        with RunningStage(pipeline, "s.0", kafka, tmp_path / "state") as stage:
            made: list[tuple[str, Any]] = [("json", in_json), ("avro", in_avro)]
            for bucket, (form, encode) in enumerate(made, 1):
                found = Decoder(record, form).decode([encode(row) for row in rows(bucket)])
                assert found.rejected == []
                feed.append(found.table.append_column("event_time", found.table["time"]), bucket)

            output.wait_closed(len(made), stage)
        tables = [table for _, table in output.tables(1, len(made))]
    finally:
        output.close()
        feed.close()
    results = pa.concat_tables(tables).sort_by([("event_time", "ascending")])
    wanted = [expected(row) for bucket in (1, 2) for row in reversed(rows(bucket))]
    columns = results.drop_columns(["event_time"])
    encoder = Encoder(columns.schema, "json", Key(["at", "counts"]))
    keys, values = encoder.keys(columns), encoder.values(columns)
    assert [json.loads(value) for value in values] == [as_json(row) for row in wanted]
    assert [json.loads(key or b"") for key in keys] == [
        {name: as_json(row)[name] for name in ("at", "counts")} for row in wanted
    ]
    avro = AvroEncoder(columns.schema, "out")
    again, _ = AvroDecoder(from_avro(avro.avro, "out")).decode(avro.encode(columns))
    assert again.to_pylist() == wanted


def as_json(row: dict[str, Any]) -> dict[str, Any]:
    return row | {
        "at": row["at"].isoformat(timespec="microseconds").removesuffix("+00:00") + "Z",
        "day": row["day"].isoformat(),
        "price": None if row["price"] is None else f"{row['price']:.2f}",
        "prices": [f"{price:.2f}" for price in row["prices"]],
        "counts": dict(row["counts"]),
    }
