"""Streams against the terms of an offer, as Spark and the logs tell their columns."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from anabranch.codec.blocks import EVENT_TIME
from anabranch.codec.record_schema import parse
from anabranch.pipeline.model import OfferedStage, Stage
from anabranch.pipeline.offer_columns import not_as_offered, offered_inputs
from anabranch.pipeline.offers import types_of
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.federation.offered_stages import Terms

CAR = parse(
    '{"type": "record", "name": "car", "fields": [{"name": "speed", "type": "long"},'
    ' {"name": "tags", "type": {"type": "array", "items": "string"}}]}',
    "car",
)
TAGS = pa.list_(pa.field("element", pa.string(), nullable=False))
TIME = pa.field(EVENT_TIME, pa.int64())
OWN = Stage(name="own", participant="north", reads=["a"], transform=["stages:f"])
OFFERED = Stage(
    name="slow",
    participant="south",
    reads=["a"],
    transform=[],
    offered=OfferedStage(
        name="counts",
        terms=Terms(1, {"cars": types_of(CAR)}, types_of(CAR), {}, 9),
        reads={"cars": CAR},
        gives=CAR,
        path=Path("south.offers.json"),
    ),
)


def schema(*more: pa.Field, speed: pa.DataType | None = None) -> pa.Schema:
    return pa.schema([("speed", speed or pa.int64()), ("tags", TAGS), *more, TIME])


def test_the_function_sees_no_other_columns_than_the_terms_name() -> None:
    there = schema(pa.field("secret", pa.string()))
    assert offered_inputs(OFFERED, {"a": there})["a"].names == ["speed", "tags", EVENT_TIME]
    assert offered_inputs(OWN, {"a": there})["a"] == there


def test_an_input_with_other_columns_is_rejected() -> None:
    with pytest.raises(ConfigurationError, match="a cannot be the input cars of south/counts") as e:
        offered_inputs(OFFERED, {"a": pa.schema([("speed", pa.int32()), TIME])})
    assert "its column speed is int32; int64 is wanted; it has no column tags" in str(e.value)


def test_what_it_gives_is_what_the_terms_say() -> None:
    assert not_as_offered(OFFERED, schema()) == ""
    assert not_as_offered(OFFERED, schema(pa.field("n", pa.int64()), speed=pa.int32())) == (
        "it does not give what the offer says: its column speed is int32; int64 is wanted;"
        " it has a column n more"
    )
