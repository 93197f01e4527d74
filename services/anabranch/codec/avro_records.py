"""Users' records as Avro: Confluent framing (0, four bytes of schema id, body) or single object (C3
01, eight of fingerprint, body).

Both framings are read, record by record as they come; Confluent framing is written, which every
tool knows. Ids are fixed: each version of a record says its own (``record_schema``), so no registry
is asked. A record written with an older version is read as the newest: fields by name, defaults for
new ones, numbers widened. NaN and infinity are rejected, as in JSON.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from fastavro.schema import fingerprint, to_parsing_canonical_form

from anabranch.codec.avro_binary import PRIMITIVES, MalformedError, Reader
from anabranch.codec.avro_columns import Rows, read_fields, write_rows
from anabranch.codec.guards import Rejected
from anabranch.codec.json_records import values_of
from anabranch.codec.record_schema import Field, RecordSchema
from anabranch.protocol.errors import (
    ConfigurationError,
    LocalProtocolError,
    RecordRejected,
    RejectionReason,
)

_CONFLUENT_BYTES: Final = 5
_SINGLE_OBJECT_BYTES: Final = 10
_WIDER: Final = {("int", "long"), ("int", "double"), ("long", "double"), ("float", "double")}


class _Version:
    """One version that a record may have been written with, and how its fields become those
    of the newest.
    """

    def __init__(self, written: RecordSchema, wanted: RecordSchema) -> None:
        self.schema = written
        self.confluent = b"\0" + written.schema_id.to_bytes(4, "big")
        self.single_object = b"\xc3\x01" + bytes.fromhex(
            fingerprint(to_parsing_canonical_form(written.avro), "CRC-64-AVRO")
        )
        self.fields = [(field, _null_first(written, field)) for field in written.fields]
        self.sources: list[int | None] = []
        """For each field of the newest version: its index here; None: the default."""
        for field in wanted.fields:
            older = written.field(field.name)
            self.sources.append(None if older is None else written.fields.index(older))
            if older is None and not field.has_default:
                problem = f"field {field.name} is new and has no default"
            elif (
                older is not None
                and older.kind != field.kind
                and (older.kind, field.kind) not in _WIDER
            ):
                problem = f"field {field.name} was {older.kind} and cannot become {field.kind}"
            elif older is not None and older.nullable and not field.nullable:
                problem = f"field {field.name} could be null and now cannot"
            else:
                continue
            raise ConfigurationError(
                f"record {wanted.name} v{wanted.version} cannot read v{written.version}: {problem}"
            )


def _null_first(record: RecordSchema, field: Field) -> bool:
    union = next(raw["type"] for raw in record.avro["fields"] if raw["name"] == field.name)
    return isinstance(union, list) and union[0] == "null"


class AvroDecoder:
    """Decodes the records of one schema and its older versions."""

    def __init__(self, record: RecordSchema) -> None:
        self._record = record
        self._schema = record.arrow_schema()
        self._versions = [_Version(written, record) for written in (record, *record.older)]

    def decode(self, values: Sequence[bytes]) -> tuple[pa.Table, Rejected]:
        """The records of ``values``, in order, without those that are rejected. Values passed
        ``guards.admit``.
        """
        which, headers = self._framing(values)
        tables: list[pa.Table] = []
        places: list[Any] = []
        good = np.zeros(len(values), dtype=np.bool_)
        for number, version in enumerate(self._versions):
            mine = np.flatnonzero(which == number)
            if not len(mine):
                continue
            rows = Rows(
                [values[index] for index in mine.tolist()] if len(mine) < len(values) else values
            )
            rows.skip(headers[mine])
            columns = read_fields(rows, version.fields)
            table = self._resolve(version, columns)
            good[mine] = rows.good
            tables.append(table if rows.good.all() else table.filter(pa.array(rows.good)))
            places.append(mine[rows.good])
        table = pa.concat_tables(tables) if tables else self._schema.empty_table()
        if len(tables) > 1:
            table = table.take(pa.array(np.argsort(np.concatenate(places))))
        return table, [
            (index, self.rejection(values[index])) for index in np.flatnonzero(~good).tolist()
        ]

    def decode_one(self, value: bytes) -> list[Any]:
        """The values of one record, field by field: the same as ``decode``, told in the plainest
        way.

        Raises:
            RecordRejected: it cannot be used.
        """
        version, at = self._header(value)
        reader = Reader(value, at, 0)
        found: list[Any] = []
        try:
            for field, null_first in version.fields:
                if field.nullable:
                    branch = reader.read_long()
                    if branch not in (0, 1):
                        raise MalformedError(f"field {field.name}: branch {branch} of a union of 2")  # noqa: TRY301
                    if (branch == 0) == null_first:
                        found.append(None)
                        continue
                number = PRIMITIVES[field.kind](reader)
                if field.kind in ("float", "double") and not math.isfinite(number):
                    raise RecordRejected(
                        RejectionReason.NOT_FINITE, f"field {field.name} is {number}"
                    )
                found.append(number)
            reader.end()
        except MalformedError as error:
            raise RecordRejected(
                RejectionReason.NOT_AVRO,
                f"not {version.schema.name} v{version.schema.version}: {error}",
            ) from error
        result: list[Any] = []
        for source, field in zip(version.sources, self._record.fields, strict=True):
            item: Any = field.default if source is None else found[source]
            result.append(float(item) if field.kind == "double" and item is not None else item)
        return result

    def rejection(self, value: bytes) -> RecordRejected:
        """Why ``decode`` rejects ``value``."""
        try:
            self.decode_one(value)
        except RecordRejected as error:
            return error
        return RecordRejected(RejectionReason.NOT_AVRO, "the bytes do not fit the schema")

    def _header(self, value: bytes) -> tuple[_Version, int]:
        for version in self._versions:
            if value.startswith(version.confluent):
                return version, _CONFLUENT_BYTES
            if value.startswith(version.single_object):
                return version, _SINGLE_OBJECT_BYTES
        if value[:1] == b"\0" and len(value) >= _CONFLUENT_BYTES:
            known = ", ".join(str(version.schema.schema_id) for version in self._versions)
            text = (
                f"schema id {int.from_bytes(value[1:5], 'big')} is not known; {self._record.name}"
                f" has {known}"
            )
            raise RecordRejected(RejectionReason.UNKNOWN_SCHEMA, text)
        if value[:2] == b"\xc3\x01" and len(value) >= _SINGLE_OBJECT_BYTES:
            raise RecordRejected(
                RejectionReason.UNKNOWN_SCHEMA,
                f"schema fingerprint {value[2:10].hex()} is not known",
            )
        raise RecordRejected(
            RejectionReason.NOT_AVRO, "neither Confluent framing (00) nor a single object (C3 01)"
        )

    def _framing(self, values: Sequence[bytes]) -> tuple[Any, Any]:
        """(number of the version or -1, bytes of framing) of each value."""
        newest = self._versions[0].confluent
        if all([value.startswith(newest) for value in values]):  # noqa: C419  (a list is faster, and nearly always all of it is needed)
            return np.zeros(len(values), dtype=np.int8), np.full(len(values), _CONFLUENT_BYTES)
        which = np.full(len(values), -1, dtype=np.int8)
        headers = np.zeros(len(values), dtype=np.int64)
        marks = {
            version.confluent: (number, _CONFLUENT_BYTES)
            for number, version in reversed(list(enumerate(self._versions)))
        }
        marks |= {
            version.single_object: (number, _SINGLE_OBJECT_BYTES)
            for number, version in reversed(list(enumerate(self._versions)))
        }
        for index, value in enumerate(values):
            found = marks.get(
                value[: _CONFLUENT_BYTES if value[:1] == b"\0" else _SINGLE_OBJECT_BYTES]
            )
            if found is not None:
                which[index], headers[index] = found
        return which, headers

    def _resolve(self, version: _Version, columns: list[pa.Array]) -> pa.Table:
        count = len(columns[0])
        resolved = []
        for source, field, wanted in zip(
            version.sources, self._record.fields, self._schema, strict=True
        ):
            if source is None:
                resolved.append(pa.repeat(pa.scalar(field.default, wanted.type), count))
            else:
                column = columns[source]
                resolved.append(
                    column if column.type == wanted.type else column.cast(wanted.type, safe=False)
                )
        return pa.Table.from_arrays(resolved, schema=self._schema)


class AvroEncoder:
    """Encodes rows of an Arrow schema in Confluent framing; ``avro`` is the schema that says how,
    for users and registries.

    Timestamps become ``long`` with logical type timestamp-millis, dates ``int`` with date, decimals
    texts; a column that may be null is a union with null.
    """

    def __init__(self, columns: pa.Schema, name: str, schema_id: int) -> None:
        self._kinds: list[tuple[str, str, bool]] = []
        fields: list[dict[str, Any]] = []
        if len(set(columns.names)) != len(columns.names) or not columns.names:
            raise ConfigurationError(
                "columns without names of their own cannot become an Avro record:"
                f" {', '.join(columns.names) or 'none'}"
            )
        for field in columns:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", field.name):
                raise ConfigurationError(
                    f"column {field.name!r} has no name that Avro allows; rename it in the stage"
                )
            kind, avro = _avro_type(field)
            self._kinds.append((field.name, kind, field.nullable))
            raw: dict[str, Any] = {
                "name": field.name,
                "type": ["null", avro] if field.nullable else avro,
            }
            fields.append(raw | {"default": None} if field.nullable else raw)
        record = re.sub(r"[^A-Za-z0-9_]", "_", name)
        self.avro: dict[str, Any] = {
            "type": "record",
            "name": record,
            "schema_id": schema_id,
            "fields": fields,
        }
        self._prefix = b"\0" + schema_id.to_bytes(4, "big")

    def encode(self, table: pa.Table) -> list[bytes]:
        """One value per row. ``table`` has at least the columns.

        Raises:
            LocalProtocolError: null stands in a column that is not nullable.
        """
        columns = [
            (_plain(table.column(name)), kind, nullable) for name, kind, nullable in self._kinds
        ]
        for (values, _, nullable), (name, _, _) in zip(columns, self._kinds, strict=True):
            if values.null_count and not nullable:
                raise LocalProtocolError(
                    f"column {name} holds null, which its schema says it does not"
                )
        return write_rows(columns, self._prefix)


def _avro_type(field: pa.Field) -> tuple[str, Any]:
    """(kind, Avro type) of a column."""
    kind = field.type
    if pa.types.is_timestamp(kind):
        return "long", {"type": "long", "logicalType": "timestamp-millis"}
    if pa.types.is_date32(kind):
        return "int", {"type": "int", "logicalType": "date"}
    if pa.types.is_integer(kind):
        name = "int" if kind.bit_width < 32 or kind == pa.int32() else "long"
    elif pa.types.is_floating(kind):
        name = "double" if kind == pa.float64() else "float"
    elif pa.types.is_boolean(kind):
        name = "boolean"
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_decimal(kind):
        name = "string"
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        name = "bytes"
    else:
        raise ConfigurationError(
            f"column {field.name} of type {kind} cannot become Avro; use format: json, or make"
            " plain columns of it in the stage"
        )
    return name, name


def _plain(column: pa.ChunkedArray) -> pa.Array:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    elif pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    elif pa.types.is_decimal(column.type):
        return pa.array(
            [None if value is None else str(value) for value in values_of(column)], pa.string()
        )
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
