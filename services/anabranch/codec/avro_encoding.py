"""Rows of Arrow as Avro in Confluent framing (0, four bytes of schema id, body)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from anabranch.codec import avro_schema
from anabranch.codec.avro_columns import write_rows
from anabranch.codec.avro_writing import writer_of
from anabranch.codec.columns import micros, stored
from anabranch.codec.field_types import LOGICAL, NAME, Field
from anabranch.codec.logical_types import PRECISION_MAX
from anabranch.codec.subject_names import record_name
from anabranch.protocol.errors import ConfigurationError, LocalProtocolError


class AvroEncoder:
    """Encoder of the rows of an Arrow schema. ``avro`` is the Avro schema of the records, for users
    and registries.

    Timestamps are timestamp-micros, dates date, decimals decimal on bytes; a column that may be
    null is a union with null. The pairs of a map are in the order of their keys.

    Raises:
        ConfigurationError: at creation, if a column has a name or type that Avro does not have.
    """

    def __init__(self, columns: pa.Schema, name: str, schema_id: int = 1) -> None:
        if len(set(columns.names)) != len(columns.names) or not columns.names:
            raise ConfigurationError(
                "columns without names of their own cannot become an Avro record:"
                f" {', '.join(columns.names) or 'none'}"
            )
        self._fields = [_field(column, column.name) for column in columns]
        record = record_name(name)
        self.avro: dict[str, Any] = {
            "type": "record",
            "name": record,
            "schema_id": schema_id,
            "fields": [_described(field, record) for field in self._fields],
        }
        self._prefix = b"\0" + schema_id.to_bytes(4, "big")

    def encode(self, table: pa.Table) -> list[bytes]:
        """Return one value per row. ``table`` has at least the columns.

        Raises:
            LocalProtocolError: null stands in a column that is not nullable.
        """
        columns = []
        for field in self._fields:
            column = table.column(field.name)
            values = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
            if values.null_count and not field.nullable:
                raise LocalProtocolError(
                    f"column {field.name} holds null, which its schema says it does not"
                )
            columns.append((*_plain(values, field), field.nullable))
        return write_rows(columns, self._prefix)


_PLAIN: Final = (
    (lambda kind: pa.types.is_timestamp(kind) and kind.tz is not None, "timestamp-micros"),
    (pa.types.is_timestamp, "local-timestamp-micros"),
    (pa.types.is_date32, "date"),
    (lambda kind: pa.types.is_integer(kind) and _is_int(kind), "int"),
    (pa.types.is_integer, "long"),
    (pa.types.is_float64, "double"),
    (pa.types.is_floating, "float"),
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_string, "string"),
    (pa.types.is_large_string, "string"),
    (pa.types.is_binary, "bytes"),
    (pa.types.is_large_binary, "bytes"),
)
"""Pairs (test of an Arrow type, Avro type); the first test that holds decides."""


def _is_int(kind: pa.DataType) -> bool:
    return bool(kind.bit_width < 32 or kind == pa.int32())


def _field(column: pa.Field, path: str) -> Field:
    """Return the Avro field of a column."""
    kind, name = column.type, column.name
    if not NAME.match(name):
        raise ConfigurationError(
            f"column {name!r} has no name that Avro allows; rename it in the stage"
        )
    which = next((which for is_one, which in _PLAIN if is_one(kind)), None)
    if which is not None:
        return Field(name, which, column.nullable, null_first=True)
    if pa.types.is_decimal(kind) and kind.precision <= PRECISION_MAX and kind.scale >= 0:
        sizes = {"precision": kind.precision, "scale": kind.scale}
        return Field(name, "decimal", column.nullable, null_first=True, **sizes)
    inner: list[Field] = []
    if pa.types.is_struct(kind):
        which = "record"
        inner = [
            _field(kind.field(i), f"{path}.{kind.field(i).name}") for i in range(kind.num_fields)
        ]
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        which, inner = "array", [_field(kind.value_field.with_name(name), f"{path}[]")]
    elif pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        which, inner = "map", [_field(kind.item_field.with_name(name), f"{path}[]")]
    if which is None or not inner:
        raise ConfigurationError(
            f"column {path} of type {kind} cannot become Avro; use format: json, or make other"
            " columns of it in the stage"
        )
    return Field(name, which, column.nullable, null_first=True, inner=tuple(inner))


def _described(field: Field, space: str) -> dict[str, Any]:
    """Return ``field`` in Avro's JSON notation, within the record whose full name is ``space``."""
    raw = {"name": field.name, "type": _type(field, space)}
    return raw | {"default": None} if field.nullable else raw


def _type(field: Field, space: str) -> Any:
    """Return the Avro type of ``field``. A record is named after its column, in the namespace of
    the record around it, so no two have the same full name.
    """
    plain: Any = field.kind
    if field.kind == "record":
        inner = [_described(each, f"{space}.{field.name}") for each in field.inner]
        plain = {"type": "record", "name": field.name, "namespace": space, "fields": inner}
    elif field.kind == "array":
        plain = {"type": "array", "items": _type(field.inner[0], space)}
    elif field.kind == "map":
        plain = {"type": "map", "values": _type(field.inner[0], space)}
    elif field.kind == "decimal":
        plain = {
            "type": "bytes",
            "logicalType": "decimal",
            "precision": field.precision,
            "scale": field.scale,
        }
    elif field.kind in LOGICAL:
        plain = {"type": LOGICAL[field.kind], "logicalType": field.kind}
    return ["null", plain] if field.nullable else plain


def _plain(values: pa.Array, field: Field) -> tuple[pa.Array, str]:
    """Return the values of a column as ``write_rows`` takes them, and their Avro type."""
    if field.is_nested:
        present = replace(field, nullable=False)
        write = writer_of(avro_schema.of_notation(_type(present, "")), present)
        encoded = [None if value is None else write(value) for value in stored(values)]
        return pa.array(encoded, pa.binary()), "encoded"
    if pa.types.is_timestamp(values.type):
        return micros(values), "long"
    if pa.types.is_date32(values.type):
        return values.cast(pa.int32()), "int"
    return values, field.kind
