"""Values as ``columns`` has them, written as Avro by fastavro, one at a time: records of sources
that are sent, and the nested columns of outputs (``avro_columns`` writes plain columns in bulk).
"""

from __future__ import annotations

import io
import struct
import uuid
from collections.abc import Callable
from typing import Any

import fastavro

from anabranch.codec.avro_schema import Type, is_tagged, tag, wire
from anabranch.codec.field_types import Field
from anabranch.codec.logical_types import bytes_of_unscaled
from anabranch.protocol.errors import LocalProtocolError

Write = Callable[[Any], bytes]
_Convert = Callable[[Any], Any]
"""Converter of a field's value to what fastavro writes by ``wire``."""


def writer_of(written: Type, field: Field) -> Write:
    """Return a function that writes a value of ``field`` as ``written``, which describes it.

    The function raises LocalProtocolError where null stands and may not.
    """
    schema, convert = fastavro.parse_schema(wire(written)), _convert(written, field)

    def write(value: Any) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, convert(value))
        return out.getvalue()

    return write


def _convert(written: Type, field: Field) -> _Convert:
    if written.kind == "union":
        return _union(written, field)
    convert = _plain(written, field)

    def convert_value(value: Any) -> Any:
        if value is None:
            raise LocalProtocolError(
                f"column {field.name} holds null, which its schema says it does not"
            )
        return convert(value)

    return convert_value


def _union(written: Type, field: Field) -> _Convert:
    branches = [index for index, each in enumerate(written.inner) if each.kind != "null"]
    if field.is_union:
        pairs = list(zip(branches, field.inner, strict=True))
    else:  # the widest of several numbers holds all values
        kinds = {written.inner[index].kind: index for index in branches}
        pairs = [(kinds.get(field.kind, branches[0]), field)]
    converts = [
        (index, tag(written, index, None)["name"], _convert(written.inner[index], each))
        for index, each in pairs
    ]

    def convert_value(value: Any) -> Any:
        if value is None and field.nullable:
            return None
        for part, (index, name, convert) in zip(
            value if field.is_union and value is not None else [value], converts, strict=False
        ):
            if part is not None or not field.is_union:
                made = convert(part)
                return (name, {f"b{index}": made}) if is_tagged(written) else made
        raise LocalProtocolError(f"column {field.name} is a union that holds none of its types")

    return convert_value


def _plain(written: Type, field: Field) -> _Convert:
    """Return the converter of a value that is not null."""
    if field.logical == "duration":
        return lambda value: struct.pack("<3I", *value)
    if written.kind == "record":
        parts = [
            (f"f{index}", _convert(*pair))
            for index, pair in enumerate(zip(written.inner, field.inner, strict=True))
        ]
        return lambda values: {
            name: convert(value) for (name, convert), value in zip(parts, values, strict=True)
        }
    if written.kind in ("array", "map"):
        return _items(_convert(written.inner[0], field.inner[0]), written.kind)
    if written.kind == "enum":
        return written.symbols.index
    if field.kind == "decimal":
        return lambda value: bytes_of_unscaled(value, written.size)
    if field.kind == "uuid" and field.size:
        return lambda value: uuid.UUID(value).bytes
    is_millis = field.kind in ("timestamp-millis", "local-timestamp-millis")
    return (lambda value: value // 1_000) if is_millis else (lambda value: value)


def _items(item: _Convert, kind: str) -> _Convert:
    if kind == "array":
        return lambda values: [item(value) for value in values]
    return lambda pairs: {key: item(value) for key, value in pairs}
