"""Protobuf as a format of users' values (``formats.Format``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.codec.read_only import ReadOnlyFormat, required

if TYPE_CHECKING:
    from anabranch.codec.framing import SchemaOf
    from anabranch.codec.json_records import ExtraFields
    from anabranch.codec.protobuf_records import ProtobufDecoder
    from anabranch.codec.record_schema import RecordSchema


class ProtobufFormat(ReadOnlyFormat):
    """Messages in Confluent framing, with the path of their type in their schema."""

    name: Final = "protobuf"
    has_extra_fields: Final = False
    schema_kind: Final = "PROTOBUF"

    def decoder(
        self, record: RecordSchema, _: ExtraFields, schema_of: SchemaOf | None, /
    ) -> ProtobufDecoder:
        """See ``protobuf_records``."""
        from anabranch.codec.protobuf_records import ProtobufDecoder

        return ProtobufDecoder(record, required(schema_of, self.name))
