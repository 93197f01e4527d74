"""Made-up rows are records of their schema."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

from anabranch.codec.edge import Decoder
from anabranch.codec.field_types import KINDS
from anabranch.codec.record_schema import from_avro
from anabranch.operating.made_rows import rows
from anabranch.pipeline.model import EventTime, Source


def source() -> Source:
    fields: list[dict[str, object]] = [{"name": "at", "type": "long"}]
    fields += [{"name": kind, "type": kind} for kind in KINDS]
    fields += [{"name": f"maybe_{kind}", "type": ["null", kind]} for kind in KINDS]
    more: dict[str, Any] = {
        "millis": {"type": "long", "logicalType": "timestamp-millis"},
        "micros": {"type": "long", "logicalType": "timestamp-micros"},
        "date": {"type": "int", "logicalType": "date"},
        "price": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 4},
        "uuid": {"type": "string", "logicalType": "uuid"},
        "list": {"type": "array", "items": "int"},
        "map": {"type": "map", "values": ["null", "double"]},
        "local": {"type": "long", "logicalType": "local-timestamp-millis"},
        "time": {"type": "int", "logicalType": "time-millis"},
        "symbol": {"type": "enum", "name": "symbol", "symbols": ["A", "B", "C"]},
        "fixed": {"type": "fixed", "name": "fixed", "size": 3},
        "id": {"type": "fixed", "name": "id", "size": 16, "logicalType": "uuid"},
        "lasts": {"type": "fixed", "name": "lasts", "size": 12, "logicalType": "duration"},
        "union": ["int", "string", "boolean"],
        "inner": {"type": "record", "name": "inner", "fields": [{"name": "a", "type": "int"}]},
    }
    fields += [{"name": name, "type": kind} for name, kind in more.items()]
    record = from_avro({"type": "record", "name": "every", "fields": fields}, "every")
    return Source(
        name="s", topics=["t"], record=record, event_time=EventTime(field="at"), dead_letter="d"
    )


def test_every_row_is_a_record_of_the_schema() -> None:
    values = [json.dumps({"at": 1, **row}).encode() for row in islice(rows(source(), 7), 500)]
    decoded = Decoder(source().record, "json").decode(values)
    assert decoded.rejected == []
    for name in decoded.table.column_names[1:]:
        assert len(set(map(repr, decoded.table[name].to_pylist()))) > 1, name
    for kind in KINDS:
        assert 0 < decoded.table[f"maybe_{kind}"].null_count < 250, kind


def test_a_seed_makes_the_same_rows_again_and_another_seed_others() -> None:
    first, again, other = (list(islice(rows(source(), seed), 5)) for seed in (1, 1, 2))
    assert first == again != other
