"""Users' records as Avro: Confluent framing (0, four bytes of schema id, body) or single object (C3
01, eight of fingerprint, body).

Both framings are read, record by record as they come; ``avro_encoding`` writes the first. Without a
registry ids are fixed: each version of a record has its own (``record_schema``). With one the ids
are the registry's: one request gives each schema, which never changes. A record written with
another schema is read as the newest version by Avro's rules (``avro_resolution``). NaN and infinity
are rejected, as in JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from fastavro.schema import fingerprint, to_parsing_canonical_form

from anabranch.codec import avro_schema
from anabranch.codec.avro_columns import Rows, plan, read_fields
from anabranch.codec.avro_guard import MalformedError, TooDeepError, TooManyItemsError
from anabranch.codec.avro_resolution import MismatchError, resolve, sources_of
from anabranch.codec.columns import column_of
from anabranch.codec.field_types import names_of
from anabranch.codec.guards import Rejected
from anabranch.codec.record_schema import RecordSchema
from anabranch.protocol.errors import (
    ConfigurationError,
    RecordRejected,
    RejectionReason,
    UnknownSchema,
)
from anabranch.protocol.limits import RECORD_ITEMS_MAX

SCHEMA_IDS_MAX: Final = 1_000
"""Different ids of a registry in the records of one source, those that it does not have included:
more than the versions of any record. Whoever may write the topic can make up no end of them.
"""
_CONFLUENT_BYTES: Final = 5
_SINGLE_OBJECT_BYTES: Final = 10


def fingerprint_of(record: RecordSchema) -> str:
    """CRC-64 of a record's canonical form, as 16 hexadecimal digits: the same for schemas that say
    the same of the columns.
    """
    return str(fingerprint(to_parsing_canonical_form(record.avro), "CRC-64-AVRO"))


class _Version:
    """One schema that a record may have been written with, and what reads it as the newest.

    Attributes:
        label: The schema, for messages.
        schema_id: Its id in Confluent framing.
        confluent: First bytes of a value in Confluent framing; None: another schema has the id.
        single_object: The same of a single object; None: its fingerprint is not known.
        read: Reads one record.
        sources: For each field of the newest version, its index here; None: the default.
        bulk: How to read many at once; None: one by one.
    """

    def __init__(
        self, label: str, schema_id: int, writer: avro_schema.Type, wanted: RecordSchema
    ) -> None:
        self.label, self.schema_id = label, schema_id
        self.confluent: bytes | None = b"\0" + schema_id.to_bytes(4, "big")
        self.single_object: bytes | None = None
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
    made = _Version(f"{written.name} v{written.version}", written.schema_id, writer, wanted)
    made.single_object = b"\xc3\x01" + bytes.fromhex(fingerprint_of(written))
    if not is_numbered:
        made.confluent = None
    return made


def _of_registry(text: str, schema_id: int, wanted: RecordSchema) -> _Version:
    label = f"{wanted.name} with schema id {schema_id}"
    try:
        writer = avro_schema.parse(text)
    except ConfigurationError as error:
        raise ConfigurationError(f"{label}: {error}") from None
    return _Version(label, schema_id, writer, wanted)


class AvroDecoder:
    """Decodes the records of one schema and its older versions."""

    def __init__(self, record: RecordSchema, schema_of: Callable[[int], str] | None = None) -> None:
        """``schema_of``: the ids in Confluent framing are those of a registry, which it asks."""
        self._record = record
        self._schema = record.arrow_schema()
        self._schema_of = schema_of
        self._versions = [
            _of_file(written, record, is_numbered=schema_of is None)
            for written in (record, *record.older)
        ]
        self._unusable: dict[bytes, str] = {}
        """Confluent framing -> why records with it are rejected. For good: a schema never
        changes.
        """
        self._not_there: dict[bytes, str] = {}
        """The same of those whose schema the registry did not have when it was asked last."""
        self._usual: tuple[bytes | None, int] = (self._versions[0].confluent, 0)
        """The framing that most records have, and the number of its version."""

    def _learn(self, values: Sequence[bytes], schema_of: Callable[[int], str]) -> None:
        """Get the schemas of ``values`` that are not known yet. That there is none, or one that
        cannot be read as the record, is no error: records that were written with it are rejected.
        One that the registry does not have is asked for again with every batch; whoever gives
        ``schema_of`` decides how often the registry is.
        """
        known = {version.confluent for version in self._versions} | self._unusable.keys()
        framings = {value[:_CONFLUENT_BYTES] for value in values if not value[0]} - known
        found = sorted(framing for framing in framings if len(framing) == _CONFLUENT_BYTES)
        new = [framing for framing in found if framing not in self._not_there]
        asked = len(known) + len(self._not_there)
        left = max(0, SCHEMA_IDS_MAX + len(self._record.older) + 1 - asked)
        # The registry may have learned those that it did not have.
        for framing in [*(each for each in found if each in self._not_there), *new[:left]]:
            schema_id = int.from_bytes(framing[1:], "big")
            try:
                version = _of_registry(schema_of(schema_id), schema_id, self._record)
            except UnknownSchema as error:
                self._not_there[framing] = "; ".join(str(error).splitlines())
                continue
            except ConfigurationError as error:
                self._unusable[framing] = "; ".join(str(error).splitlines())
            else:
                self._usual = (framing, len(self._versions))
                self._versions.append(version)
            self._not_there.pop(framing, None)

    def decode(self, values: Sequence[bytes]) -> tuple[pa.Table, Rejected]:
        """The records of ``values``, in order, without those that are rejected. Values passed
        ``guards.admit``.

        Raises:
            AnabranchError: as ``schema_of``, for want of an answer; then nothing is decoded.
        """
        if self._schema_of is not None:
            self._learn(values, self._schema_of)
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
        """(the records that can be used, which they are) of one version."""
        rows = Rows(values)
        rows.skip(headers)
        table = self._resolve(version, read_fields(rows, version.bulk or ()), len(values))
        return table if rows.good.all() else table.filter(pa.array(rows.good)), rows.good

    def _singly(self, version: _Version, values: Sequence[bytes], headers: Any) -> tuple[Any, Any]:
        """As ``_bulk``, where fields are nested."""
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
        """The table of rows that ``decode_one`` gave."""
        columns = zip(*rows, strict=True) if rows else [()] * len(self._schema)
        return pa.Table.from_arrays(
            [
                column_of(list(column), field)
                for column, field in zip(columns, self._record.fields, strict=True)
            ],
            schema=self._schema,
        )

    def decode_one(self, value: bytes) -> list[Any]:
        """The values of one record, field by field, as ``columns`` takes them: the same as
        ``decode``, in the plainest way.

        Raises:
            RecordRejected: it cannot be used.
        """
        version, at = self._header(value)
        return _read(version, value, at)

    def rejection(self, value: bytes) -> RecordRejected:
        """Why ``decode`` rejects ``value``."""
        try:
            self.decode_one(value)
        except RecordRejected as error:
            return error
        return RecordRejected(RejectionReason.NOT_AVRO, "the bytes do not fit the schema")

    def _header(self, value: bytes) -> tuple[_Version, int]:
        for version in self._versions:
            if version.confluent is not None and value.startswith(version.confluent):
                return version, _CONFLUENT_BYTES
            if version.single_object is not None and value.startswith(version.single_object):
                return version, _SINGLE_OBJECT_BYTES
        if value[:1] == b"\0" and len(value) >= _CONFLUENT_BYTES:
            raise RecordRejected(RejectionReason.UNKNOWN_SCHEMA, self._unknown(value))
        if value[:2] == b"\xc3\x01" and len(value) >= _SINGLE_OBJECT_BYTES:
            raise RecordRejected(
                RejectionReason.UNKNOWN_SCHEMA,
                f"schema fingerprint {value[2:10].hex()} is not known",
            )
        raise RecordRejected(
            RejectionReason.NOT_AVRO, "neither Confluent framing (00) nor a single object (C3 01)"
        )

    def _unknown(self, value: bytes) -> str:
        """Why the schema id of ``value`` is of no use."""
        schema_id = int.from_bytes(value[1:5], "big")
        if self._schema_of is None:
            known = ", ".join(str(version.schema_id) for version in self._versions)
            return f"schema id {schema_id} is not known; {self._record.name} has {known}"
        why = {**self._unusable, **self._not_there}.get(
            value[:_CONFLUENT_BYTES],
            f"there were {SCHEMA_IDS_MAX} others, more than this source looks up",
        )
        return f"schema id {schema_id}: {why}"

    def _framing(self, values: Sequence[bytes]) -> tuple[Any, Any]:
        """(number of the version or -1, bytes of framing) of each value."""
        usual, number = self._usual
        # A list is faster, and nearly always all of it is needed.
        if usual is not None and all([value.startswith(usual) for value in values]):  # noqa: C419
            return (
                np.full(len(values), number, dtype=np.int16),
                np.full(len(values), _CONFLUENT_BYTES),
            )
        which = np.full(len(values), -1, dtype=np.int16)
        headers = np.zeros(len(values), dtype=np.int64)
        marks = {
            version.confluent: (number, _CONFLUENT_BYTES)
            for number, version in reversed(list(enumerate(self._versions)))
            if version.confluent is not None
        }
        marks |= {
            version.single_object: (number, _SINGLE_OBJECT_BYTES)
            for number, version in reversed(list(enumerate(self._versions)))
            if version.single_object is not None
        }
        for index, value in enumerate(values):
            found = marks.get(
                value[: _CONFLUENT_BYTES if value[:1] == b"\0" else _SINGLE_OBJECT_BYTES]
            )
            if found is not None:
                which[index], headers[index] = found
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
    """The values of one record of ``version``, which begins at ``at``.

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
