"""Users' records as Avro: Confluent framing (0, four bytes of schema id, body) or single object (C3
01, eight of fingerprint, body).

Both framings are read, record by record as they come; ``avro_encoding`` writes the first. Without a
registry ids are fixed: each version of a record has its own (``record_schema``). With one the ids
are the registry's: one request gives each schema, which never changes. A record written with
another schema is read as the newest version by Avro's rules (``avro_resolution``). NaN and infinity
are rejected, as in JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from fastavro.schema import fingerprint, to_parsing_canonical_form

from anabranch.codec import avro_schema
from anabranch.codec.avro_columns import EncodedRecords, plan, read_fields
from anabranch.codec.avro_guard import MalformedError, TooDeepError, TooManyItemsError
from anabranch.codec.avro_resolution import MismatchError, resolve, sources_of
from anabranch.codec.columns import column_of
from anabranch.codec.field_types import names_of
from anabranch.codec.framing import (
    GUID_BYTES,
    ID_BYTES,
    LearnedSchemas,
    SchemaOf,
    framing_of,
    key_of,
)
from anabranch.codec.guards import Rejected
from anabranch.codec.record_schema import RecordSchema
from anabranch.codec.writer_schema import SchemaKey, WriterSchema, shown_key
from anabranch.protocol.errors import ConfigurationError, RecordRejected, RejectionReason
from anabranch.protocol.limits import RECORD_ITEMS_MAX

_SINGLE_OBJECT_BYTES: Final = 10
_FRAMING_BYTES: Final = {b"\0": ID_BYTES, b"\1": GUID_BYTES, b"\xc3": _SINGLE_OBJECT_BYTES}
"""Length of the framing in front of a record, in bytes, by the framing's first byte."""


def fingerprint_of(record: RecordSchema) -> str:
    """Return the CRC-64 of a record schema's canonical form, as 16 hexadecimal digits. Schemas that
    describe the same columns have the same fingerprint.
    """
    return str(fingerprint(to_parsing_canonical_form(record.avro), "CRC-64-AVRO"))


class _Version:
    """Schema with which a record may have been written, and the reader that resolves it to the
    newest version.

    Attributes:
        label: The schema, for messages.
        schema_id: Its id without a registry.
        framings: First bytes of a value that was written with it.
        read: Reads one record.
        sources: For each field of the newest version, its index here; None: the default.
        bulk: How to read many at once; None: one by one.
    """

    def __init__(
        self, label: str, writer: avro_schema.Type, wanted: RecordSchema, framings: list[bytes]
    ) -> None:
        self.label, self.framings = label, framings
        try:
            self.read = resolve(writer, names_of(wanted.avro), wanted.fields)
        except MismatchError as error:
            raise ConfigurationError(
                f"record {wanted.name} v{wanted.version} cannot read {label}: {error}"
            ) from None
        self.sources = sources_of(writer, wanted.fields)
        self.bulk = plan(writer, wanted.fields, self.sources)


def _of_file(written: RecordSchema, wanted: RecordSchema, *, is_numbered: bool) -> _Version:
    """Return a version of a record's file. ``is_numbered``: its id is the one in Confluent
    framing.
    """
    writer = avro_schema.of_notation(written.avro)
    framings = [b"\xc3\x01" + bytes.fromhex(fingerprint_of(written))]
    if is_numbered:
        framings.append(b"\0" + written.schema_id.to_bytes(4, "big"))
    return _Version(f"{written.name} v{written.version}", writer, wanted, framings)


class AvroDecoder:
    """Decoder of the records of one schema and of its older versions."""

    def __init__(self, record: RecordSchema, schema_of: SchemaOf | None = None) -> None:
        """Compile the versions of ``record``. ``schema_of``: lookup in a registry, whose ids
        Confluent framings then have; None: the ids are those of the schema files.
        """
        self._record = record
        self._schema = record.arrow_schema()
        self._learned = None if schema_of is None else LearnedSchemas(schema_of, self._of_registry)
        self._versions: list[_Version] = []
        self._numbers: dict[bytes, int] = {}
        """Number of the version that a framing names."""
        for written in (record, *record.older):
            self._add(_of_file(written, record, is_numbered=schema_of is None))
        self._usual = self._versions[0].framings[-1]
        """Framing of the last version learned, which most records have."""

    def _add(self, version: _Version) -> None:
        for framing in version.framings:
            # Of two versions that say the same the newer one reads.
            self._numbers.setdefault(framing, len(self._versions))
        self._versions.append(version)

    def _of_registry(self, key: SchemaKey, schema: WriterSchema) -> _Version:
        """Return the version for ``schema``. Raises ConfigurationError if the record cannot be read
        from it.
        """
        label = f"{self._record.name} with {shown_key(key)}"
        try:
            writer = avro_schema.of_parts(schema)
        except ConfigurationError as error:
            raise ConfigurationError(f"{label}: {error}") from None
        return _Version(label, writer, self._record, [])

    def _learn(self, values: Sequence[bytes], learned: LearnedSchemas[_Version]) -> None:
        """Look up the schemas of ``values`` that are not known yet."""
        framings = {framing_of(value) for value in values} - {b""}
        for framing in learned.learn(framings):
            version = learned.usable[framing]
            version.framings.append(framing)
            self._usual = framing
            self._add(version)

    def decode(self, values: Sequence[bytes]) -> tuple[pa.Table, Rejected]:
        """Return the records of ``values``, in order, without those that are rejected. Values
        passed ``guards.admit``.

        Raises:
            AnabranchError: as ``schema_of``, for want of an answer; then nothing is decoded.
        """
        if self._learned is not None:
            self._learn(values, self._learned)
        which, headers = self._framing(values)
        tables: list[pa.Table] = []
        places: list[Any] = []
        good = np.zeros(len(values), dtype=np.bool_)
        for number in np.unique(which).tolist():
            if number < 0:
                continue
            version, mine = self._versions[number], np.flatnonzero(which == number)
            own = [values[index] for index in mine.tolist()] if len(mine) < len(values) else values
            table, fits = (self._bulk if version.bulk else self._singly)(
                version, own, headers[mine]
            )
            good[mine] = fits
            tables.append(table)
            places.append(mine[fits])
        table = pa.concat_tables(tables) if tables else self._schema.empty_table()
        if len(tables) > 1:
            table = table.take(pa.array(np.argsort(np.concatenate(places))))
        return table, [
            (index, self.rejection(values[index])) for index in np.flatnonzero(~good).tolist()
        ]

    def _bulk(self, version: _Version, values: Sequence[bytes], headers: Any) -> tuple[Any, Any]:
        """Return (the records that can be used, which they are) of one version."""
        rows = EncodedRecords(values)
        rows.skip(headers)
        table = self._resolve(version, read_fields(rows, version.bulk or ()), len(values))
        return table if rows.good.all() else table.filter(pa.array(rows.good)), rows.good

    def _singly(self, version: _Version, values: Sequence[bytes], headers: Any) -> tuple[Any, Any]:
        """Decode the values one by one, where fields are nested. Returns what ``_bulk`` returns."""
        good = np.zeros(len(values), dtype=np.bool_)
        found = []
        for index, (value, at) in enumerate(zip(values, headers.tolist(), strict=True)):
            try:
                found.append(_read(version, value, at))
                good[index] = True
            except RecordRejected:
                continue  # ``rejection`` says why
        return self.table(found), good

    def table(self, rows: Sequence[Sequence[Any]]) -> pa.Table:
        """Return the table of rows that ``decode_one`` gave."""
        columns = zip(*rows, strict=True) if rows else [()] * len(self._schema)
        return pa.Table.from_arrays(
            [
                column_of(list(column), field)
                for column, field in zip(columns, self._record.fields, strict=True)
            ],
            schema=self._schema,
        )

    def decode_one(self, value: bytes) -> list[Any]:
        """Return the values of one record, field by field, as ``columns`` takes them: the same as
        ``decode``, in the plainest way.

        Raises:
            RecordRejected: it cannot be used.
        """
        version, at = self._header(value)
        return _read(version, value, at)

    def rejection(self, value: bytes) -> RecordRejected:
        """Return why ``decode`` rejects ``value``."""
        try:
            self.decode_one(value)
        except RecordRejected as error:
            return error
        return RecordRejected(RejectionReason.NOT_AVRO, "the bytes do not fit the schema")

    def _header(self, value: bytes) -> tuple[_Version, int]:
        framing = value[: _FRAMING_BYTES.get(value[:1], 0)]
        number = self._numbers.get(framing)
        if number is not None:
            return self._versions[number], len(framing)
        if self._is_bare(value):
            raise RecordRejected(
                RejectionReason.NOT_AVRO,
                f"the bytes are {self._versions[0].label} without framing; the producer must write"
                " Confluent framing (00 and the schema id first), or single objects (C3 01)",
            )
        if framing_of(value):
            raise RecordRejected(RejectionReason.UNKNOWN_SCHEMA, self._unknown(framing))
        if value[:2] == b"\xc3\x01" and len(value) >= _SINGLE_OBJECT_BYTES:
            raise RecordRejected(
                RejectionReason.UNKNOWN_SCHEMA,
                f"schema fingerprint {value[2:10].hex()} is not known",
            )
        raise RecordRejected(
            RejectionReason.NOT_AVRO, "neither Confluent framing (00) nor a single object (C3 01)"
        )

    def _is_bare(self, value: bytes) -> bool:
        """Return whether the whole of ``value`` is one record without framing. Any byte may begin a
        record, so an unknown framing does not tell.
        """
        try:
            _read(self._versions[0], value, 0)
        except RecordRejected:
            return False
        return True

    def _unknown(self, framing: bytes) -> str:
        """Return why no record can be read with the schema that ``framing`` names."""
        if self._learned is not None:
            return self._learned.why_not(framing)
        known = ", ".join(str(each.schema_id) for each in (self._record, *self._record.older))
        return f"{shown_key(key_of(framing))} is not known; {self._record.name} has {known}"

    def _framing(self, values: Sequence[bytes]) -> tuple[Any, Any]:
        """Return, for each value, the number of its version (-1: none) and the length of its
        framing.
        """
        usual = self._usual
        # A list is faster, and nearly always all of it is needed.
        if all([value.startswith(usual) for value in values]):  # noqa: C419
            return (
                np.full(len(values), self._numbers[usual], dtype=np.int16),
                np.full(len(values), len(usual)),
            )
        which = np.full(len(values), -1, dtype=np.int16)
        headers = np.zeros(len(values), dtype=np.int64)
        for index, value in enumerate(values):
            size = _FRAMING_BYTES.get(value[:1], 0)
            number = self._numbers.get(value[:size])
            if number is not None:
                which[index], headers[index] = number, size
        return which, headers

    def _resolve(self, version: _Version, columns: list[pa.Array | None], count: int) -> pa.Table:
        resolved = []
        for source, field, wanted in zip(
            version.sources, self._record.fields, self._schema, strict=True
        ):
            column = None if source is None else columns[source]
            if column is None:
                resolved.append(column_of([field.default] * count, field))
            else:
                resolved.append(
                    column if column.type == wanted.type else column.cast(wanted.type, safe=False)
                )
        return pa.Table.from_arrays(resolved, schema=self._schema)


def _read(version: _Version, value: bytes, at: int) -> list[Any]:
    """Return the values of one record of ``version``, which begins at ``at``.

    Raises:
        RecordRejected: it cannot be used.
    """
    try:
        return list(version.read(value, at))
    except TooManyItemsError as error:
        raise RecordRejected(
            RejectionReason.TOO_LARGE,
            f"more items in arrays and maps than {RECORD_ITEMS_MAX}",
        ) from error
    except TooDeepError as error:
        raise RecordRejected(RejectionReason.TOO_DEEP, str(error)) from error
    except MalformedError as error:
        raise RecordRejected(RejectionReason.NOT_AVRO, f"not {version.label}: {error}") from error
