"""JSON as a format of users' values (``formats.Format``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from anabranch.codec.framing import Register, SchemaOf
    from anabranch.codec.json_records import ExtraFields, JsonDecoder, JsonEncoder
    from anabranch.codec.record_schema import RecordSchema


class JsonFormat:
    """JSON format of users' values. JSON objects name their fields, so no schema is registered."""

    has_extra_fields: Final = True
    schema_kind: Final = None
    is_written: Final = True
    needs_registry: Final = False

    def decoder(
        self, record: RecordSchema, extra_fields: ExtraFields, _: SchemaOf | None, /
    ) -> JsonDecoder:
        """See ``json_records``."""
        from anabranch.codec.json_records import JsonDecoder

        return JsonDecoder(record, extra_fields)

    def encoder(self, columns: pa.Schema, _name: str, _: Register | None, /) -> JsonEncoder:
        """See ``json_records``."""
        from anabranch.codec.json_records import JsonEncoder

        return JsonEncoder(columns)

    def from_json(
        self, _record: RecordSchema, _: Register | None, /
    ) -> Callable[[Sequence[bytes]], list[bytes]]:
        """Return a function that leaves the records as they are."""
        return list
