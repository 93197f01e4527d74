"""Formats that sources have and outputs do not."""

from __future__ import annotations

import pyarrow as pa
import pytest

from anabranch.codec.read_only import ReadOnlyFormat, required
from anabranch.codec.record_schema import from_avro
from anabranch.protocol.errors import ConfigurationError
from harness.registries import alone

RECORD = from_avro({"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]}, "r")


class Form(ReadOnlyFormat):
    name = "runes"


def test_it_is_not_written() -> None:
    form = Form()
    assert (form.is_written, form.needs_registry) == (False, True)
    with pytest.raises(ConfigurationError, match="output out: format runes is only for sources"):
        form.encoder(pa.schema([("a", pa.int32())]), "out", None)
    with pytest.raises(ConfigurationError, match="record r is of format runes, which is only read"):
        form.from_json(RECORD, None)


def test_what_is_required_is_given_back() -> None:
    with pytest.raises(ConfigurationError, match="format runes needs the registry"):
        required(None, "runes")
    assert required(alone, "x") is alone  # type: ignore[arg-type]
