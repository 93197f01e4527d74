"""The envelope of CloudEvents is a record like any other, with the schema of docs/types.md."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from anabranch.codec.edge import Decoder
from anabranch.codec.record_schema import from_avro

PAGE = Path(__file__).parents[2] / "docs/types.md"
EVENT = {
    "specversion": "1.0",
    "id": "17",
    "source": "/roof",
    "type": "example.reading",
    "datacontenttype": "application/json",
    "time": "2026-05-01T14:00:00.250Z",
    "data": {"celsius": 21.5},
}


@pytest.fixture
def decoder() -> Decoder:
    shown = re.search(
        r"`event\.avsc`.*?```json\n(.*?)```", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    assert shown is not None
    return Decoder(from_avro(json.loads(shown[1]), "event"), "json")


def test_a_structured_event_is_a_record(decoder: Decoder) -> None:
    (row,) = decoder.decode([json.dumps(EVENT).encode()]).table.to_pylist()
    assert (row["id"], row["source"], row["data"]) == ("17", "/roof", {"celsius": 21.5})
    assert row["time"].isoformat() == "2026-05-01T14:00:00.250000+00:00"


def test_one_without_the_time_is_none(decoder: Decoder) -> None:
    timeless = {name: value for name, value in EVENT.items() if name != "time"}
    found = decoder.decode([json.dumps(timeless).encode()])
    assert [error.reason.value for _, error in found.rejected] == ["missing_field"]
