"""Users' records to Arrow and back: where the outside meets the pipeline.

``Decoder`` takes many values at once; what cannot be used comes back with the reason, and never
disturbs its neighbours. ``Encoder`` does the other direction for delivery. Formats:
``json_records``, ``avro_records``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from anabranch.codec.avro_encoding import AvroEncoder
from anabranch.codec.avro_records import AvroDecoder
from anabranch.codec.guards import Rejected, admit
from anabranch.codec.json_records import ExtraFields, JsonDecoder, JsonEncoder
from anabranch.codec.record_schema import RecordSchema
from anabranch.protocol.errors import ConfigurationError

Format = Literal["json", "avro"]


@dataclass(frozen=True, slots=True)
class Decoded:
    """What some values held."""

    table: pa.Table
    """Accepted records in order: the record's columns, nothing more."""
    rows: list[int] | None
    """Index into the values of each row of the table; None: all were accepted."""
    rejected: Rejected
    """(index, why) of each value that cannot be used, ascending."""
    size_bytes: int
    """Of all values."""


class Decoder:
    """Decodes the values of a source's topics.

    Args:
        record: What each value is.
        format: How it is written.
        extra_fields: What becomes of fields of JSON that the record has not.
        has_registry: The schema ids of Avro in Confluent framing are those of a registry, which is
            asked by who calls this, for what ``avro`` does not know.

    Raises:
        ConfigurationError: at creation, if an older version of the record cannot be read as the
            newest.
    """

    def __init__(
        self,
        record: RecordSchema,
        format: Format,  # noqa: A002  (the word of the pipeline file)
        extra_fields: ExtraFields = "ignore",
        *,
        has_registry: bool = False,
    ) -> None:
        self._inner: JsonDecoder | AvroDecoder = (
            JsonDecoder(record, extra_fields)
            if format == "json"
            else AvroDecoder(record, has_registry=has_registry)
        )

    @property
    def avro(self) -> AvroDecoder | None:
        """What learns schemas from a registry; None for JSON."""
        return self._inner if isinstance(self._inner, AvroDecoder) else None

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """Every value becomes a row or a rejection. Raises nothing, whatever the values are."""
        admitted, places, not_admitted, size_bytes = admit(values)
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


class Encoder:
    """Encodes rows for an output topic: ``columns`` make the value, those named in ``key`` the key
    as a compact JSON object.

    Args:
        columns: What becomes the value; ``event_time`` only if it is among them.
        format: Of the value.
        key: Columns of the key; without any, records have no key.
        name: Of the Avro record.
        schema_id: In the Confluent framing.

    Raises:
        ConfigurationError: at creation, if a key column is none of ``columns``, or a column's type
            does not fit the format.
    """

    def __init__(
        self,
        columns: pa.Schema,
        format: Format,  # noqa: A002
        key: Sequence[str] = (),
        *,
        name: str = "record",
        schema_id: int = 1,
    ) -> None:
        missing = [column for column in key if column not in columns.names]
        if missing:
            raise ConfigurationError(
                f"key column {missing[0]} is not a column of the output; there are"
                f" {', '.join(columns.names)}"
            )
        self._values: JsonEncoder | AvroEncoder = (
            JsonEncoder(columns) if format == "json" else AvroEncoder(columns, name, schema_id)
        )
        self._keys = (
            JsonEncoder(pa.schema([columns.field(column) for column in key])) if key else None
        )

    @property
    def avro(self) -> dict[str, Any] | None:
        """The Avro schema of the values; None for JSON."""
        return self._values.avro if isinstance(self._values, AvroEncoder) else None

    def encode(self, table: pa.Table) -> tuple[list[bytes | None], list[bytes]]:
        """(keys, values), one of each per row; ``table`` may have more columns."""
        values = self._values.encode(table)
        keys: list[bytes | None] = (
            [None] * len(values) if self._keys is None else list(self._keys.encode(table))
        )
        return keys, values
