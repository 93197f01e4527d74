"""Formats of users' values, by the names that a pipeline file uses.

A format is a module and an entry in ``FORMATS``. Readers of pipeline files, decoders of sources,
``anabranch produce`` and encoders of outputs use that table, and none of them knows a format by its
name. A format imports Arrow with its first codec, so the client and the commands that only read the
file do without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from anabranch.codec.avro_format import AvroFormat
from anabranch.codec.json_format import JsonFormat
from anabranch.codec.json_schema_format import JsonSchemaFormat
from anabranch.codec.protobuf_format import ProtobufFormat

if TYPE_CHECKING:
    import pyarrow as pa

    from anabranch.codec.framing import Register, SchemaOf
    from anabranch.codec.guards import Rejected
    from anabranch.codec.json_records import ExtraFields
    from anabranch.codec.record_schema import RecordSchema
    from anabranch.codec.writer_schema import SchemaKind


class ValueDecoder(Protocol):
    """Decoder of the values of one record schema."""

    def decode(self, values: Sequence[bytes], /) -> tuple[pa.Table, Rejected]:
        """Return the records of ``values``, in order, and (index, why) of each that is none,
        ascending. Values passed ``guards.admit``.
        """


class ValueEncoder(Protocol):
    """Encoder of the rows of one output."""

    def encode(self, table: pa.Table, /) -> list[bytes]:
        """Return one value per row. ``table`` has at least the columns that make the value."""


class Format(Protocol):
    """Factory of one format's codecs. A format without schemas in a registry ignores ``schema_of``
    and ``register``, which are None where there is no registry.
    """

    @property
    def has_extra_fields(self) -> bool:
        """Whether a value may have fields that its record has not."""

    @property
    def schema_kind(self) -> SchemaKind | None:
        """Kind of the schemas of a registry that its values name; None: they name none."""

    @property
    def is_written(self) -> bool:
        """Whether outputs may have it, and ``anabranch produce``."""

    @property
    def needs_registry(self) -> bool:
        """Whether nothing can be read without a registry."""

    def decoder(
        self, record: RecordSchema, extra_fields: ExtraFields, schema_of: SchemaOf | None, /
    ) -> ValueDecoder:
        """Return the decoder of a source's values.

        Raises:
            ConfigurationError: an older version of the record cannot be read as the newest, or
                there is no registry and the format needs one.
        """

    def encoder(self, columns: pa.Schema, name: str, register: Register | None, /) -> ValueEncoder:
        """Return the encoder of the values of the output ``name``.

        Raises:
            ConfigurationError: a column has a name or type that the format does not have, or the
                registry rejects the schema.
        """

    def from_json(
        self, record: RecordSchema, register: Register | None, /
    ) -> Callable[[Sequence[bytes]], list[bytes]]:
        """Return a function that encodes checked JSON records as values of a source.

        Raises:
            ConfigurationError: the registry rejects the schema.
        """


FORMATS: Final[dict[str, Format]] = {
    "json": JsonFormat(),
    "avro": AvroFormat(),
    "json_schema": JsonSchemaFormat(),
    "protobuf": ProtobufFormat(),
}
