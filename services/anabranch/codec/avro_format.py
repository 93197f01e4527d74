"""Avro as a format of users' values (``formats.Format``)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from anabranch.codec.avro_encoding import AvroEncoder
    from anabranch.codec.avro_records import AvroDecoder
    from anabranch.codec.framing import Register, SchemaOf
    from anabranch.codec.json_records import ExtraFields
    from anabranch.codec.record_schema import RecordSchema


class AvroFormat:
    """Avro format of users' values. Values are written in Confluent framing: with the schema id of
    the registry if there is one, else with that of the schema's file or of the output's schema.
    """

    has_extra_fields: Final = False
    schema_kind: Final = "AVRO"
    is_written: Final = True
    needs_registry: Final = False

    def decoder(
        self, record: RecordSchema, _: ExtraFields, schema_of: SchemaOf | None, /
    ) -> AvroDecoder:
        """See ``avro_records``."""
        from anabranch.codec.avro_records import AvroDecoder

        return AvroDecoder(record, schema_of)

    def encoder(self, columns: pa.Schema, name: str, register: Register | None, /) -> AvroEncoder:
        """See ``avro_encoding``."""
        from anabranch.codec.avro_encoding import AvroEncoder

        encoder = AvroEncoder(columns, name)
        if register is None:
            return encoder
        return AvroEncoder(columns, name, register(_text(encoder.avro)))

    def from_json(
        self, record: RecordSchema, register: Register | None, /
    ) -> Callable[[Sequence[bytes]], list[bytes]]:
        """Return a function that encodes the records with the newest version of ``record``."""
        from anabranch.codec import avro_schema
        from anabranch.codec.avro_writing import writer_of
        from anabranch.codec.columns import stored
        from anabranch.codec.field_types import Field
        from anabranch.codec.json_records import JsonDecoder

        schema_id = record.schema_id if register is None else register(_text(record.avro))
        prefix = b"\0" + schema_id.to_bytes(4, "big")
        decode = JsonDecoder(record).decode
        whole = Field(record.name, "record", inner=record.fields)
        write = writer_of(avro_schema.of_notation(record.avro), whole)

        def values(texts: Sequence[bytes]) -> list[bytes]:
            columns = [stored(each.combine_chunks()) for each in decode(texts)[0].columns]
            return [prefix + write(row) for row in zip(*columns, strict=True)]

        return values


def _text(avro: dict[str, Any]) -> str:
    """Return a schema as it is sent to a registry: without ids, since a registry assigns its
    own.
    """
    return json.dumps({key: value for key, value in avro.items() if key != "schema_id"})
