"""Notices: what a stream holds in place of rows that are larger than ROW_BYTES_MAX.

A stage must not end for ever because its function made one row that no reader can hold. So the
writer of a stream replaces such a row by a *notice* of the same bucket and event time, with the
row's size, its hash and the beginning of its columns. A notice is part of the bucket as rows are:
parts of the boundary log name it (``Part.is_rejected``), digests cover it, replicas make the same
one. Readers of streams leave it out; delivery writes it to the topic of rejected results, under the
id of the row that it replaces.

Whether a row is too large depends on the row alone, not on its batch: Arrow writes a single row
without the offsets, texts and bitmaps of its neighbours.
"""

from __future__ import annotations

import json
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.codec import blocks
from anabranch.codec.blocks import EVENT_TIME, encode_block, pieces, row_hashes
from anabranch.codec.columns import stored
from anabranch.protocol.limits import DEAD_LETTER_CUT_BYTES

SIZE: Final = "anabranch_rejected_bytes"
"""Column: size of the row as a block, in bytes."""
DIGEST: Final = "anabranch_rejected_digest"
"""Column: the row's hash (``row_hashes``), as hexadecimal digits."""
BEGINNING: Final = "anabranch_rejected_row"
"""Column: the beginning of the row, a JSON object. Columns with floating-point numbers and nested
ones are left out, so that all replicas write the same text.
"""
NOTICE_SCHEMA: Final = pa.schema(
    [
        pa.field(SIZE, pa.int64()),
        pa.field(DIGEST, pa.string()),
        pa.field(BEGINNING, pa.string()),
        pa.field(EVENT_TIME, pa.int64()),
    ]
)

_VALUE_CHARACTERS_MAX: Final = 1_024
"""Maximum length of a text in a notice, in characters; longer ones are truncated."""


def are_notices(schema: pa.Schema) -> bool:
    """Return whether the rows of a table with ``schema`` are notices."""
    return bool(schema.equals(NOTICE_SCHEMA))


def separated(table: pa.Table) -> tuple[pa.Table, pa.Table | None]:
    """Return the rows of ``table`` that a stream can hold, in their order, and notices of the
    others; None if there are none.
    """
    if not _may_be_too_large(table):
        return table, None
    rejected = []
    # Slices between rejected rows, not single pieces: a block has one record batch for each.
    kept, kept_to, at = [], 0, 0
    for piece in pieces(table):
        if piece.num_rows == 1 and _may_be_too_large(piece):
            size_bytes = _size_bytes(piece)
            if size_bytes > blocks.ROW_BYTES_MAX:
                rejected.append(_notice(piece, size_bytes))
                kept.append(table.slice(kept_to, at - kept_to))
                kept_to = at + 1
        at += piece.num_rows
    if not rejected:
        return table, None
    return pa.concat_tables([*kept, table.slice(kept_to)]), pa.concat_tables(rejected)


def notices_of(table: pa.Table) -> pa.Table:
    """Return the notices of all rows of ``table``, in their order: no output can hold them."""
    rows = (table.slice(at, 1) for at in range(table.num_rows))
    return pa.concat_tables(
        [NOTICE_SCHEMA.empty_table(), *(_notice(row, _size_bytes(row)) for row in rows)]
    )


def _size_bytes(row: pa.Table) -> int:
    """Return the size of ``row`` as a block of its own, in bytes. A copy is measured: of a slice
    Arrow writes short buffers whole, with the rows behind it, which differ between replicas.
    """
    return len(encode_block(row.take(pa.array([0]))))


def _may_be_too_large(table: pa.Table) -> bool:
    """Return whether ``table`` as a block may exceed ROW_BYTES_MAX. The schema and the padding of
    the columns never take half of it.
    """
    return bool(table.nbytes > blocks.ROW_BYTES_MAX // 2)


def _notice(row: pa.Table, size_bytes: int) -> pa.Table:
    """Return the notice of ``row``, which takes ``size_bytes``."""
    values: list[list[object]] = [
        [size_bytes],
        [f"{int(row_hashes(row)[0]):016x}"],
        [_beginning(row)],
        row.column(EVENT_TIME).to_pylist(),
    ]
    return pa.table(
        [pa.array(v, field.type) for v, field in zip(values, NOTICE_SCHEMA, strict=True)],
        schema=NOTICE_SCHEMA,
    )


def _beginning(row: pa.Table) -> str:
    """Return the first columns of ``row`` as JSON, as many as a dead letter holds in any topic."""
    shown: dict[str, object] = {}
    size_bytes = len("{}")
    for field in row.schema:
        if field.name == EVENT_TIME or _is_left_out(field.type):
            continue
        value = _value(row.column(field.name).combine_chunks())
        size_bytes += len(json.dumps({field.name: value}, ensure_ascii=False).encode())
        if size_bytes > DEAD_LETTER_CUT_BYTES:
            break
        shown[field.name] = value
    return json.dumps(shown, ensure_ascii=False)


def _is_left_out(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_nested(kind))


def _value(column: pa.Array) -> object:
    """Return the only value of ``column`` as JSON can carry it: a binary value as hexadecimal
    digits, a date as days and a timestamp as microseconds since 1970, any other by its text.
    """
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        # Truncated in Arrow: the whole text would be copied to Python.
        return pc.utf8_slice_codeunits(column, 0, _VALUE_CHARACTERS_MAX)[0].as_py()
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        found = pc.binary_slice(column, 0, _VALUE_CHARACTERS_MAX // 2)[0].as_py()
        return None if found is None else found.hex()
    found = column[0].as_py() if pa.types.is_decimal(kind) else stored(column)[0]
    return found if found is None or isinstance(found, (int, bool)) else str(found)
