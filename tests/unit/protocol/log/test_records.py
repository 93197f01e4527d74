"""The values of a boundary log agree with the schemas that they are written by, field for field."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from anabranch.protocol.log import records

SCHEMAS = Path(__file__).parents[4] / "schemas" / "records"


def fields_of(schema: dict[str, object], names: dict[str, list[str]]) -> None:
    """Collect the field names of every record in an Avro schema, by record name."""
    if schema.get("type") == "record":
        fields = schema["fields"]
        assert isinstance(fields, list)
        names[str(schema["name"])] = [str(f["name"]) for f in fields]
        for f in fields:
            collect(f["type"], names)
    for key in ("items", "type"):
        if isinstance(schema.get(key), dict | list):
            collect(schema[key], names)


def collect(kind: object, names: dict[str, list[str]]) -> None:
    """``fields_of`` for any type."""
    for one in kind if isinstance(kind, list) else [kind]:
        if isinstance(one, dict):
            fields_of(one, names)


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        (records.EpochStarted, "epoch_started"),
        (records.BoundaryRecord, "boundary_record"),
        (records.LogSnapshot, "log_snapshot"),
    ],
)
def test_a_record_has_the_fields_of_its_schema(value: type, schema: str) -> None:
    names: dict[str, list[str]] = {}
    fields_of(json.loads((SCHEMAS / schema / "v1.avsc").read_text()), names)
    assert [f.name for f in dataclasses.fields(value)] == names[schema]


def test_records_are_values() -> None:
    part = records.Part(1, 0, "a", 1, 0, 1, 2, 3)
    assert part == records.Part(1, 0, "a", 1, 0, 1, 2, 3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        part.rows = 5  # type: ignore[misc]
