"""Change events of Debezium to rows: what stands in the table, instead of an envelope around it.

An envelope has the row ``before`` and ``after`` a change, ``op``, which says what changed, and
``source`` with the time of the change in the database. A row is ``after``, of a delete ``before``.
Kafka Connect's JSON converter puts one more object around each value, with ``schema`` and
``payload``, unless it is told not to. Tombstones, which follow deletes for compaction, say nothing
that the delete has not said.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.codec.change_schema import OP, SOURCE_TIME, change_schema
from anabranch.codec.edge import Decoded, Decoder
from anabranch.codec.field_types import Field
from anabranch.codec.formats import FORMATS
from anabranch.codec.record_schema import RecordSchema
from anabranch.protocol.errors import RecordRejected, RejectionReason
from anabranch.protocol.limits import RECORD_BYTES_MAX

if TYPE_CHECKING:
    from anabranch.codec.framing import SchemaOf

_DELETE: Final = "d"
_WRAPPED: Final = re.compile(rb'\s*\{\s*"(?:schema|payload)"\s*:')
"""Beginning of a value that Connect's JSON converter wrote with its schema. The fields of an
envelope have other names.
"""


class PayloadDecoder:
    """Decoder of values that may be wrapped in the object that Kafka Connect's JSON converter
    writes around each value.
    """

    def __init__(
        self,
        record: RecordSchema,
        format_: str,
        schema_of: SchemaOf | None = None,
        bytes_max: int = RECORD_BYTES_MAX,
    ) -> None:
        """Prepare the decoder; arguments as for ``Decoder``. Fields that the record does not have
        are ignored.
        """
        self._schema = record.arrow_schema()
        self._plain = Decoder(record, format_, "ignore", schema_of, bytes_max)
        payload = Field("payload", "record", inner=record.fields)
        self._wrapping = replace(record, fields=(payload,), older=())
        self._format, self._bytes_max = format_, bytes_max
        form = FORMATS[format_]
        # Converters that have a registry put the schema there.
        self._may_wrap = form.has_extra_fields and form.schema_kind is None
        self._wrapped: Decoder | None = None

    def decode(
        self, values: Sequence[bytes | None], schema_ids: Sequence[bytes | None] | None = None
    ) -> Decoded:
        """Decode every value to a row or a rejection, as ``Decoder.decode`` does."""
        wraps = enumerate(values if self._may_wrap else [])
        places = [i for i, value in wraps if value and _WRAPPED.match(value)]
        if not places:
            return self._plain.decode(values, schema_ids)
        if self._wrapped is None:
            self._wrapped = Decoder(self._wrapping, self._format, bytes_max=self._bytes_max)
        inside = self._wrapped.decode([values[place] for place in places])
        table = self._unwrapped(inside.table)
        rejected = [(places[index], why) for index, why in inside.rejected]
        if len(places) == len(values):
            return Decoded(table, inside.rows, rejected, inside.size_bytes)
        wrapped = set(places)
        others = [place for place in range(len(values)) if place not in wrapped]
        plain = self._plain.decode(
            [values[place] for place in others],
            None if schema_ids is None else [schema_ids[place] for place in others],
        )
        rows = [*_rows(plain, others), *_rows(inside, places)]
        order = sorted(range(len(rows)), key=rows.__getitem__)
        return Decoded(
            pa.concat_tables([plain.table, table]).take(pa.array(order, pa.int64())),
            [rows[index] for index in order],
            sorted(
                [*rejected, *((others[index], why) for index, why in plain.rejected)],
                key=lambda each: each[0],
            ),
            plain.size_bytes + inside.size_bytes,
        )

    def _unwrapped(self, table: pa.Table) -> pa.Table:
        payload = table.column("payload")
        parts = [pc.struct_field(payload, [index]) for index in range(len(self._schema))]
        return pa.Table.from_arrays(parts, schema=self._schema)


class ChangeDecoder:
    """Decoder of the change events of one table. Tombstones become neither rows nor rejections."""

    def __init__(
        self,
        record: RecordSchema,
        format_: str,
        schema_of: SchemaOf | None = None,
        bytes_max: int = RECORD_BYTES_MAX,
    ) -> None:
        """Prepare the decoder. ``record`` is the envelope or the row; the other arguments are as
        for ``Decoder``.

        Raises:
            ConfigurationError: As ``change_schema`` and ``Decoder``.
        """
        schema = change_schema(record)
        self._decoder = PayloadDecoder(schema.envelope, format_, schema_of, bytes_max)
        self._schema = schema.rows.arrow_schema()
        if schema.has_time:
            self._schema = self._schema.append(pa.field(SOURCE_TIME, pa.int64()))
        self._has_time = schema.has_time

    def decode(
        self, values: Sequence[bytes | None], schema_ids: Sequence[bytes | None] | None = None
    ) -> Decoded:
        """Decode every value but tombstones to a row or a rejection. The table has the columns of a
        row, ``op``, and SOURCE_TIME if the envelope has that time.
        """
        found = self._decoder.decode(values, schema_ids)
        rejected = [
            (index, why)
            for index, why in found.rejected
            if why.reason is not RejectionReason.NULL_VALUE
        ]
        table = found.table
        op = table.column(OP)
        is_delete = pc.equal(op, _DELETE)
        before, after = table.column("before"), table.column("after")
        missing = pc.if_else(is_delete, before.is_null(), after.is_null())
        columns = [
            pc.if_else(is_delete, pc.struct_field(before, [i]), pc.struct_field(after, [i]))
            for i in range(self._schema.get_field_index(OP))
        ]
        if self._has_time:
            columns = [*columns, op, pc.struct_field(table.column("source"), "ts_ms")]
        else:
            columns = [*columns, op]
        rows = pa.Table.from_arrays(columns, schema=self._schema)
        if not pc.any(missing).as_py():
            return Decoded(rows, found.rows, rejected, found.size_bytes)
        places = _rows(found, range(len(values)))
        bad = pc.indices_nonzero(missing.combine_chunks()).to_pylist()
        rejected += [(places[row], _without_row(op[row].as_py())) for row in bad]
        return Decoded(
            rows.filter(pc.invert(missing)),
            [place for row, place in enumerate(places) if row not in set(bad)],
            sorted(rejected, key=lambda each: each[0]),
            found.size_bytes,
        )


def _rows(decoded: Decoded, places: Sequence[int]) -> list[int]:
    """Return the position among all values of each decoded row. ``places``: the positions of the
    values that were decoded.
    """
    rows = range(decoded.table.num_rows) if decoded.rows is None else decoded.rows
    return [places[row] for row in rows]


def _without_row(op: str) -> RecordRejected:
    if op == _DELETE:
        return RecordRejected(
            RejectionReason.MISSING_FIELD,
            "a delete without the row `before`: let the database log it (PostgreSQL: ALTER TABLE"
            " ... REPLICA IDENTITY FULL)",
        )
    return RecordRejected(
        RejectionReason.MISSING_FIELD,
        f"op is {op!r} and there is no row `after`: a truncation or message cannot become a row",
    )
