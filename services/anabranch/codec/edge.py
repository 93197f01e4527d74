"""Users' records to Arrow and back: where the outside meets the pipeline.

``Decoder`` takes many values at once; what cannot be used comes back with the reason, and never
disturbs its neighbours. ``Encoder`` does the other direction for delivery. How a value is written
is its format's business (``formats``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from anabranch.codec.formats import FORMATS
from anabranch.codec.framing import Register, SchemaOf, framed
from anabranch.codec.guards import Rejected, admit
from anabranch.codec.json_records import ExtraFields
from anabranch.codec.record_schema import RecordSchema
from anabranch.codec.subject_names import record_name
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.limits import RECORD_BYTES_MAX


@dataclass(frozen=True, slots=True)
class Decoded:
    """Result of decoding some values: the accepted rows and the rejections."""

    table: pa.Table
    """Accepted records, in order, with the columns of the record alone."""
    rows: list[int] | None
    """Index among the values of each row of the table; None if all values were accepted."""
    rejected: Rejected
    """Pairs (index, reason) of the values that were rejected, ascending."""
    size_bytes: int
    """Total size of the values, in bytes."""


class Decoder:
    """Decoder of the values of a source's topics.

    Args:
        record: Record that each value is.
        format: Format of the values, one of ``FORMATS``.
        extra_fields: Treatment of fields that the record does not have, if the format allows them.
        schema_of: Function that asks the schema registry; None: there is none.
        bytes_max: Size of the largest value.

    Raises:
        ConfigurationError: at creation, if an older version of the record cannot be read as the
            newest.
    """

    def __init__(
        self,
        record: RecordSchema,
        format: str,  # noqa: A002  (the word of the pipeline file)
        extra_fields: ExtraFields = "ignore",
        schema_of: SchemaOf | None = None,
        bytes_max: int = RECORD_BYTES_MAX,
    ) -> None:
        self._bytes_max = bytes_max
        self._inner = FORMATS[format].decoder(record, extra_fields, schema_of)
        self._takes_schema_ids = FORMATS[format].schema_kind is not None

    def decode(
        self, values: Sequence[bytes | None], schema_ids: Sequence[bytes | None] | None = None
    ) -> Decoded:
        """Decode every value to a row or a rejection.

        Args:
            values: Values of records.
            schema_ids: Header of each record that names its schema (``framing``); None: there is
                none.

        Raises:
            AnabranchError: as ``schema_of``, for want of an answer. Nothing else, whatever the
                values are.
        """
        admitted, places, not_admitted, size_bytes = admit(values, self._bytes_max)
        if schema_ids is not None and self._takes_schema_ids:
            places = list(range(len(values))) if places is None else places
            admitted, wrong = framed(admitted, [schema_ids[place] for place in places])
            not_admitted = [*not_admitted, *((places[index], error) for index, error in wrong)]
            wrongs = {index for index, _ in wrong}
            places = [place for index, place in enumerate(places) if index not in wrongs]
        table, rejected = self._inner.decode(admitted)
        if places is None and not rejected:
            return Decoded(table, None, [], size_bytes)
        if places is None:
            places = list(range(len(values)))
        bad = {index for index, _ in rejected}
        rows = [place for index, place in enumerate(places) if index not in bad]
        both = sorted(
            [*not_admitted, *((places[index], error) for index, error in rejected)],
            key=lambda entry: entry[0],
        )
        return Decoded(table, rows, both, size_bytes)


@dataclass(frozen=True, slots=True)
class Key:
    """Columns and format of the keys of an output's records."""

    columns: Sequence[str] = ()
    """Names of the key's columns; empty if records have no key."""
    format: str = "json"
    """Format of the key, one of ``FORMATS``."""
    register: Register | None = None
    """Function that registers a schema, called once; None: there is no registry."""


_NO_KEY: Final = Key()


class Encoder:
    """Encoder of rows for an output topic: ``columns`` make the value, and the columns named in
    ``key`` make the key, in its own format.

    Args:
        columns: Columns of the value; ``event_time`` only if it is among them.
        format: Format of the values, one of ``FORMATS``.
        key: Columns and format of the key. Its record is named after ``name``.
        name: Name of the record, for formats in which it has one.
        register: Function that registers a schema, called once; None: there is no registry.

    Raises:
        ConfigurationError: at creation, if a key column is none of ``columns``, a column's type
            does not fit the format, or the registry rejects the schema.
    """

    def __init__(
        self,
        columns: pa.Schema,
        format: str,  # noqa: A002
        key: Key = _NO_KEY,
        *,
        name: str = "record",
        register: Register | None = None,
    ) -> None:
        missing = [column for column in key.columns if column not in columns.names]
        if missing:
            raise ConfigurationError(
                f"key column {missing[0]} is not a column of the output; there are"
                f" {', '.join(columns.names)}"
            )
        self._keys = (
            FORMATS[key.format].encoder(
                pa.schema([columns.field(column) for column in key.columns]),
                record_name(name, "key"),
                key.register,
            )
            if key.columns
            else None
        )
        self._values = FORMATS[format].encoder(columns, name, register)

    def keys(self, table: pa.Table) -> list[bytes | None]:
        """Return the key of each row; ``table`` may have more columns."""
        if self._keys is None:
            return [None] * table.num_rows
        return list(self._keys.encode(table))

    def values(self, table: pa.Table) -> list[bytes]:
        """Return the value of each row; ``table`` may have more columns."""
        return self._values.encode(table)
