"""JSON with schemas of a registry as a format of users' values (``formats.Format``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.codec.read_only import ReadOnlyFormat, required

if TYPE_CHECKING:
    from anabranch.codec.framing import SchemaOf
    from anabranch.codec.json_records import ExtraFields
    from anabranch.codec.json_schema_records import JsonSchemaDecoder
    from anabranch.codec.record_schema import RecordSchema


class JsonSchemaFormat(ReadOnlyFormat):
    """Format of JSON objects in Confluent framing, as serializers with a registry write them."""

    name: Final = "json_schema"
    has_extra_fields: Final = True
    schema_kind: Final = "JSON"

    def decoder(
        self, record: RecordSchema, extra_fields: ExtraFields, schema_of: SchemaOf | None, /
    ) -> JsonSchemaDecoder:
        """See ``json_schema_records``."""
        from anabranch.codec.json_schema_records import JsonSchemaDecoder

        return JsonSchemaDecoder(record, extra_fields, required(schema_of, self.name))
