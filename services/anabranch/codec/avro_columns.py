"""Avro's binary encoding of many records at once, by numpy: every field of all records in one go.

Reading is for records of plain values, with or without null; ``plan`` decides which are. It keeps a
cursor per record. A record whose bytes do not fit is marked and its cursor parked at its end; the
others are not disturbed, so one bad record costs nothing but itself. It accepts exactly what
``avro_resolution.resolve`` accepts, and gives the same values.

Writing works out the size of every field of every record, and from that where each goes, then
writes field by field.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.codec.avro_schema import Type
from anabranch.codec.columns import column_of, unscaled
from anabranch.codec.field_types import INT_MAX, INT_MIN, LOGICAL, Field
from anabranch.codec.logical_types import (
    DAYS_MAX,
    DAYS_MIN,
    INSTANTS,
    MICROS_MAX,
    MICROS_MIN,
    UUID_PATTERN,
    bytes_of_unscaled,
)

_Bytes = npt.NDArray[np.uint8]
_Longs = npt.NDArray[np.int64]
_Marks = npt.NDArray[np.bool_]

# Zero bytes after the last record: a field of a torn record is read past its end before that is
# noticed, by ten bytes at most.
_PADDING: Final = 16
_FIXED_BYTES: Final = {"float": 4, "double": 8, "fixed": 0}


class EncodedRecords:
    """Avro-encoded records, one after the other, with a read position in each."""

    def __init__(self, values: Sequence[bytes]) -> None:
        lengths = np.fromiter(map(len, values), dtype=np.int64, count=len(values))
        self.data: _Bytes = np.frombuffer(b"".join([*values, bytes(_PADDING)]), dtype=np.uint8)
        self.ends: _Longs = np.cumsum(lengths)
        self.at: _Longs = self.ends - lengths
        self.good: _Marks = np.ones(len(values), dtype=np.bool_)

    def select(self, rows: npt.NDArray[np.intp]) -> EncodedRecords:
        """Return a view of the records ``rows`` alone: the same bytes, with read positions of its
        own.
        """
        part = object.__new__(EncodedRecords)
        part.data = self.data
        part.ends = self.ends[rows]
        part.at = self.at[rows]
        part.good = self.good[rows]
        return part

    def put_back(self, rows: npt.NDArray[np.intp], part: EncodedRecords) -> None:
        """Take over the read positions of ``part``, which ``select(rows)`` returned."""
        self.at[rows], self.good[rows] = part.at, part.good

    def require(self, holds: _Marks) -> None:
        """Mark as broken the records for which ``holds`` is false, and move their read positions to
        their ends.
        """
        self.good &= holds
        self.at = np.where(self.good, self.at, self.ends)

    def skip(self, length: int | _Longs) -> None:
        """Move each read position by ``length`` bytes. A record that ends before is marked as
        broken.
        """
        fits = (self.ends - self.at >= length) & (np.asarray(length) >= 0)
        self.at = np.where(fits, self.at + length, self.ends)
        self.good &= fits

    def longs(self) -> _Longs:
        """Read the next zigzag integer of each record."""
        at = self.at
        byte = self.data[at]
        value = (byte & 0x7F).astype(np.uint64)
        at = at + 1
        rows = np.flatnonzero(byte & 0x80)
        for shift in range(7, 70, 7):
            if not len(rows):
                break
            byte = self.data[at[rows]]
            value[rows] |= (byte & np.uint8(0x7F)).astype(np.uint64) << np.uint64(shift)
            at[rows] += 1
            rows = rows[(byte & 0x80) != 0]
        at[rows] = self.data.size  # more than ten bytes
        fits = at <= self.ends
        self.at = np.where(fits, at, self.ends)
        self.good &= fits
        return ((value >> np.uint64(1)) ^ (np.uint64(0) - (value & np.uint64(1)))).view(np.int64)

    def fixed(self, width: int) -> _Bytes:
        """Read the next ``width`` bytes of each record, as rows of a matrix. Rows of broken records
        have no meaning.
        """
        at = self.at
        self.skip(width)
        matrix: _Bytes = self.data[at[:, None] + np.arange(width)]
        return matrix

    def slices(self) -> tuple[_Longs, _Longs]:
        """Read past the next length-prefixed bytes of each record. Return where they start, and
        their lengths; a broken record has length 0.
        """
        length = self.longs()
        start = self.at
        self.skip(length)
        return start, np.where(self.good, length, 0)

    def gather(self, start: _Longs, length: _Longs) -> tuple[_Longs, _Bytes]:
        """Copy the slices of all records together. Return the offset of each in the copy, and the
        copy.
        """
        offsets = np.zeros(len(length) + 1, dtype=np.int64)
        np.cumsum(length, out=offsets[1:])
        index = np.repeat(start - offsets[:-1], length) + np.arange(offsets[-1])
        return offsets, self.data[index]


@dataclass(frozen=True, slots=True)
class Written:
    """Field of the writer's records, and how the reader takes it.

    Attributes:
        kind: The writer's type, without null.
        field: Type in which it is read, before widening; None: it is skipped.
        null: Index of null in its union; None: it is no union.
        may_be_null: Whether the reader has a place for null.
    """

    kind: Type
    field: Field | None
    null: int | None
    may_be_null: bool


_WIDER: Final = {
    ("int", "long"),
    ("int", "float"),
    ("int", "double"),
    ("long", "double"),
    ("float", "double"),
}
"""Pairs (writer's type, reader's type) of promotions that Arrow and Python make alike."""


def plan(
    writer: Type, fields: Sequence[Field], sources: Sequence[int | None]
) -> list[Written] | None:
    """Return how to read the records of ``writer`` in bulk. Return None if they have nested fields,
    or values that must be converted one by one.

    Args:
        writer: The record.
        fields: Fields of the reader's record.
        sources: Index of the writer's field for each of them; None: the default.
    """
    found = list[Written]()
    for index, kind in enumerate(writer.inner):
        null = None
        if kind.kind == "union":
            kinds = [each.kind for each in kind.inner]
            if len(kinds) != 2 or "null" not in kinds:
                return None
            null = kinds.index("null")
            kind = kind.inner[1 - null]  # noqa: PLW2901
        if kind.kind in ("record", "array", "map", "union", "null"):
            return None
        wanted = next((fields[at] for at, each in enumerate(sources) if each == index), None)
        field = wanted and _read_as(kind, wanted)
        if wanted is not None and field is None:
            return None
        found.append(Written(kind, field, null, wanted is None or wanted.nullable))
    return found


def _read_as(kind: Type, wanted: Field) -> Field | None:
    """Return the field as which a value of the writer's type ``kind`` is read in bulk, for the
    reader's field ``wanted``; None if that is not possible. The two types were resolved before.
    """
    if wanted.is_nested or wanted.logical:
        return None
    if wanted.symbols:
        known = [each if each in wanted.symbols else wanted.symbol_default for each in kind.symbols]
        return Field("", "string", symbols=tuple(known))
    if wanted.kind == "decimal":
        return replace(wanted, size=kind.size)
    if wanted.meaning:
        is_same = kind.kind == LOGICAL[wanted.kind] and wanted.size == kind.size
        is_wider = kind.logical.endswith("millis") and wanted.kind.endswith("micros")
        if not is_same or (kind.logical not in ("", wanted.kind) and not is_wider):
            return None
        return Field("", kind.logical or wanted.kind)
    is_same = kind.kind == wanted.kind and not kind.size
    return Field("", kind.kind) if is_same or (kind.kind, wanted.kind) in _WIDER else None


def read_fields(rows: EncodedRecords, written: Sequence[Written]) -> list[pa.Array | None]:
    """Read the column of each field; None for a field that is skipped.

    Afterwards ``rows.good`` tells which records are whole. For the others the columns hold
    arbitrary values.
    """
    columns = [_read_written(rows, each) for each in written]
    rows.require(rows.at == rows.ends)
    return columns


def _read_written(rows: EncodedRecords, written: Written) -> pa.Array | None:
    if written.null is None:
        return _read_or_skip(rows, written)
    branch = rows.longs()
    rows.require((branch == 0) | (branch == 1))
    is_null = (branch == written.null) | ~rows.good
    if not written.may_be_null:
        rows.require(~is_null)
    present = np.flatnonzero(~is_null)
    if len(present) == len(is_null):
        return _read_or_skip(rows, written)
    part = rows.select(present)
    values = _read_or_skip(part, written)
    rows.put_back(present, part)
    index = np.cumsum(~is_null) - 1
    return None if values is None else values.take(pa.array(index, mask=is_null))


def _read_or_skip(rows: EncodedRecords, written: Written) -> pa.Array | None:
    if written.field is not None and written.field.symbols:
        return _symbols(rows, written.field.symbols)
    if written.field is not None:
        return _read(rows, written.field)
    kind = written.kind.kind
    if kind in ("string", "bytes"):
        rows.slices()
    elif kind in ("int", "long", "boolean"):
        _read(rows, Field("", kind))
    elif kind == "enum":
        _symbols(rows, written.kind.symbols)
    else:
        rows.skip(written.kind.size or _FIXED_BYTES[kind])
    return None


def _symbols(rows: EncodedRecords, symbols: tuple[str, ...]) -> pa.Array:
    """Return the enum symbol at the index that each record has. An empty symbol counts as none."""
    index = rows.longs()
    fits = (index >= 0) & (index < len(symbols))
    texts = pa.array([*symbols, ""], pa.string())
    column = texts.take(pa.array(np.where(fits, index, len(symbols))))
    rows.require(pc.not_equal(column, "").to_numpy(zero_copy_only=False))
    return column


def _read(rows: EncodedRecords, field: Field) -> pa.Array:
    kind = field.kind
    if kind in (*INSTANTS, "date"):
        return _times(rows, field)
    if kind == "decimal":
        return _decimals(rows, field)
    if kind == "uuid":
        column = _read(rows, Field("", "string"))
        fits = pc.match_substring_regex(column, UUID_PATTERN)
        rows.require(fits.to_numpy(zero_copy_only=False))
        return column
    if kind in ("int", "long"):
        value = rows.longs()
        if kind == "long":
            return pa.array(value)
        rows.require((value >= INT_MIN) & (value <= INT_MAX))
        return pa.array(value.astype(np.int32))
    if kind in ("float", "double"):
        number = rows.fixed(4 if kind == "float" else 8).view("<f4" if kind == "float" else "<f8")[
            :, 0
        ]
        rows.require(np.isfinite(number))
        return pa.array(number)
    if kind == "boolean":
        byte = rows.fixed(1)[:, 0]
        rows.require(byte <= 1)
        return pa.array(byte == 1)
    start, length = rows.slices()
    column = _slices(
        rows, start, length, pa.large_string() if kind == "string" else pa.large_binary()
    )
    if kind == "string" and not _is_text(column):
        texts = np.fromiter(
            (_is_utf8(item) for item in column.cast(pa.large_binary()).to_pylist()),
            dtype=np.bool_,
            count=len(length),
        )
        rows.require(texts)
        column = _slices(rows, start, np.where(texts, length, 0), pa.large_string())
    return column.cast(pa.string() if kind == "string" else pa.binary())


def _times(rows: EncodedRecords, field: Field) -> pa.Array:
    value = rows.longs()
    per = 1_000 if field.kind.endswith("millis") else 1
    low, high = (DAYS_MIN, DAYS_MAX) if field.kind == "date" else (MICROS_MIN, MICROS_MAX)
    fits = (value >= -(-low // per)) & (value <= high // per)
    rows.require(fits)
    whole = np.where(fits, value, 0) * per
    return pa.array(whole.astype(np.int32) if field.kind == "date" else whole).cast(
        field.arrow_type()
    )


def _decimals(rows: EncodedRecords, field: Field) -> pa.Array:
    if field.size:
        start, length = rows.at, np.full(len(rows.at), field.size, dtype=np.int64)
        rows.skip(field.size)
        length = np.where(rows.good, length, 0)
    else:
        start, length = rows.slices()
    rows.require(length > 0)
    raw = _slices(rows, start, length, pa.large_binary()).to_pylist()
    found = [int.from_bytes(each, "big", signed=True) for each in raw]
    end = 10**field.precision
    fits = np.fromiter((-end < each < end for each in found), np.bool_, len(found))
    rows.require(fits)
    return column_of([each if -end < each < end else 0 for each in found], field)


def _slices(rows: EncodedRecords, start: _Longs, length: _Longs, kind: pa.DataType) -> pa.Array:
    offsets, data = rows.gather(start, length)
    return pa.Array.from_buffers(
        kind, len(length), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def _is_text(column: pa.Array) -> bool:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _is_utf8(item: bytes) -> bool:
    try:
        item.decode()
    except UnicodeDecodeError:
        return False
    return True


# -- writing
# --------------------------------------------------------------------------------------------------


def write_rows(columns: Sequence[tuple[pa.Array, str, bool]], prefix: bytes) -> list[bytes]:
    """Return one encoded record per row, each with ``prefix`` before it.

    ``columns`` are (values without chunks, kind, nullable). Null is the first branch of a nullable
    column. Values of the kind ``encoded`` are bytes of Avro already.
    """
    count = len(columns[0][0])
    pieces: list[_Piece] = [
        _Fixed(
            np.tile(np.frombuffer(prefix, dtype=np.uint8), (count, 1)), np.full(count, len(prefix))
        )
    ]
    for values, kind, nullable in columns:
        present = values.is_valid().to_numpy(zero_copy_only=False)
        if nullable:
            pieces.append(
                _Fixed(
                    np.where(present, np.uint8(2), np.uint8(0))[:, None],
                    np.ones(count, dtype=np.int64),
                )
            )
        pieces += _pieces(values, kind, present)
    sizes = np.sum([piece.sizes for piece in pieces], axis=0, dtype=np.int64)
    ends = np.cumsum(sizes)
    at: _Longs = ends - sizes
    out = np.zeros(int(ends[-1]) if count else 0, dtype=np.uint8)
    for piece in pieces:
        piece.write(out, at)
        at = at + piece.sizes
    raw = out.tobytes()
    bounds = [0, *ends.tolist()]
    return [raw[first:last] for first, last in pairwise(bounds)]


class _Fixed:
    """Bytes of bounded length to write for each row: the first ``sizes[i]`` bytes of row ``i`` of a
    matrix.
    """

    def __init__(self, matrix: _Bytes, sizes: Any) -> None:
        self.matrix = matrix
        self.sizes: _Longs = sizes

    def write(self, out: _Bytes, at: _Longs) -> None:
        """Write the bytes of each row at its position in ``out``."""
        least = int(self.sizes.min()) if len(self.sizes) else 0
        for index in range(self.matrix.shape[1]):
            if index < least:
                out[at + index] = self.matrix[:, index]
            else:
                rows = np.flatnonzero(self.sizes > index)
                out[at[rows] + index] = self.matrix[rows, index]


class _Slices:
    """Bytes of any length to write for each row, one row's after the other's in ``data``."""

    def __init__(self, data: _Bytes, sizes: _Longs) -> None:
        self.data = data
        self.sizes = sizes

    def write(self, out: _Bytes, at: _Longs) -> None:
        """Write the bytes of each row at its position in ``out``."""
        before = np.cumsum(self.sizes) - self.sizes
        out[np.repeat(at - before, self.sizes) + np.arange(len(self.data))] = self.data


_Piece = _Fixed | _Slices


def _pieces(values: pa.Array, kind: str, present: _Marks) -> list[_Piece]:
    widths = present.astype(np.int64)
    if kind in ("int", "long"):
        return [_longs(values.cast(pa.int64()).fill_null(0).to_numpy(), present)]
    if kind in ("float", "double"):
        dtype = "<f4" if kind == "float" else "<f8"
        number = np.ascontiguousarray(values.fill_null(0.0).to_numpy().astype(dtype))
        width = 4 if kind == "float" else 8
        return [_Fixed(number.view(np.uint8).reshape(len(number), width), widths * width)]
    if kind == "boolean":
        return [
            _Fixed(
                values.fill_null(False).to_numpy(zero_copy_only=False).astype(np.uint8)[:, None],
                widths,
            )
        ]
    if kind == "decimal":
        values = pa.array(
            [None if each is None else bytes_of_unscaled(each) for each in unscaled(values)],
            pa.binary(),
        )
    plain = values.cast(pa.large_binary()).fill_null(b"")
    _, offset_buffer, data_buffer = plain.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=np.int64)[
        plain.offset : plain.offset + len(plain) + 1
    ]
    data = (
        np.frombuffer(data_buffer, dtype=np.uint8)
        if data_buffer is not None
        else np.zeros(0, dtype=np.uint8)
    )
    lengths = np.diff(offsets)
    body = _Slices(data[offsets[0] : offsets[-1]], lengths)
    return [body] if kind == "encoded" else [_longs(lengths, present), body]


def _longs(values: _Longs, present: _Marks) -> _Fixed:
    """Encode ``values`` as zigzag integers; no bytes for a row that is not present."""
    rest = ((values << 1) ^ (values >> 63)).view(np.uint64)
    columns: list[Any] = []
    sizes = np.ones(len(values), dtype=np.int64)
    while True:
        more = rest > 0x7F
        columns.append(
            ((rest & np.uint64(0x7F)) | np.where(more, np.uint64(0x80), np.uint64(0))).astype(
                np.uint8
            )
        )
        if not more.any():
            break
        sizes += more
        rest = rest >> np.uint64(7)
    return _Fixed(np.stack(columns, axis=1), np.where(present, sizes, 0))
