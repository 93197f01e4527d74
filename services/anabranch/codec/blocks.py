"""Blocks: many rows of one bucket as one Kafka record, in Arrow IPC.

A row that is larger than a block is a block alone, and a block that is larger than a record may be
stands in several records that follow each other, its *segments*: so a row may have any size up to
ROW_BYTES_MAX.

A block's table has the record's columns and, last, ``event_time`` (int64, ms). Its headers say
which bucket, writer, epoch and attempt it belongs to and its number within the attempt (rule 7).

The digest of a bucket is the sum modulo 2**64 of a 64-bit hash of each row, so it does not depend
on order, partition or batching. A floating-point column enters only as null / NaN / number, because
sums of floats depend on the order of addition. The hash is written out here, in numpy, because it
must be the same for every version of every library: it is compared between replicas and kept in the
log.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.codec.block_guard import EVENT_TIME as _EVENT_TIME
from anabranch.codec.block_guard import check_columns, check_stream, check_table
from anabranch.codec.columns import stored
from anabranch.protocol.errors import RemoteProtocolError
from anabranch.protocol.limits import BLOCK_ROWS_MAX, MIB

BLOCK_BYTES_MAX: Final = 4 * MIB
"""Maximum size of a block as a Kafka record before compression, in bytes; a larger one is split.
Below the topics' ``max.message.bytes``.
"""

ROW_BYTES_MAX: Final = 64 * MIB
"""Maximum size of a row of a stream, as a block of its own. Spark, and all readers of the row, hold
it several times over. A notice stands in place of a larger one (``codec.rejected_rows``).
"""
_SEGMENT_BYTES_MAX: Final = 2 * BLOCK_BYTES_MAX
"""Maximum size of a record's value, in bytes. A block of BLOCK_BYTES_MAX fits, with its schema of
at most SCHEMA_BYTES_MAX of text. Well below the topics' ``max.message.bytes``.
"""

EVENT_TIME: Final = _EVENT_TIME
_U64 = np.uint64
_GOLDEN: Final = _U64(0x9E3779B97F4A7C15)
_PRIME: Final = _U64(0x100000001B3)
_PRIME_INVERSE: Final = _U64(pow(0x100000001B3, -1, 1 << 64))
_NULL: Final = _U64(0xD6E8FEB86659FD93)
_ALIKE_MAX: Final = 64
"""Length in bytes up to which texts of equal length are hashed position by position."""
_TEXT_BYTES: Final = 128 * 1024
"""Amount of text that is hashed at once, in bytes, in whole rows. Hashing needs about 20 times as
much memory, which stays in the processor's cache.
"""
_HEADER = struct.Struct(">qqI")

IntArray = np.ndarray[tuple[int, ...], np.dtype[np.uint64]]


@dataclass(frozen=True, slots=True)
class BlockHeaders:
    """Content of the only header that each record of a block has. The header's key is ``b``, or
    ``c`` for a segment that another one follows.
    """

    bucket: int
    epoch: int
    number: int
    replica: str
    attempt: str
    is_continued: bool = False
    """Whether the block continues in another segment: the record of the attempt with the next
    number.
    """

    def encode(self) -> list[tuple[str, bytes]]:
        """Return the Kafka headers: a single one that packs all values, since every header costs a
        reader time.
        """
        return [
            (
                "c" if self.is_continued else "b",
                _HEADER.pack(self.bucket, self.epoch, self.number)
                + f"{self.attempt}/{self.replica}".encode(),
            )
        ]

    @classmethod
    def decode(cls, headers: Sequence[tuple[str, bytes | None]]) -> Self:
        """Return the headers of a block.

        Raises:
            RemoteProtocolError: the headers are not those of a block.
        """
        for key, value in headers:
            if key in {"b", "c"} and value is not None and len(value) > _HEADER.size:
                bucket, epoch, number = _HEADER.unpack_from(value)
                attempt, slash, replica = (
                    value[_HEADER.size :].decode("ascii", "replace").partition("/")
                )
                if slash:
                    return cls(
                        bucket=bucket,
                        epoch=epoch,
                        number=number,
                        replica=replica,
                        attempt=attempt,
                        is_continued=key == "c",
                    )
        message = "a record in a block topic has no block header"
        raise RemoteProtocolError(message)


def encode_block(table: pa.Table) -> bytes:
    """Return ``table`` as an Arrow IPC stream of one batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def decode_block(value: bytes | None, *, is_own: bool = False) -> pa.Table:
    """Return the table of a block. With ``is_own`` it is not validated, since its writer is
    trusted.

    Raises:
        RemoteProtocolError: ``value`` is too large, not an Arrow stream, or one that is no block
            (``block_guard``).
    """
    if value is None or len(value) > ROW_BYTES_MAX:
        message = "a block is empty or too large"
        raise RemoteProtocolError(message)
    if not is_own:
        check_stream(value)
    try:
        table = pa.ipc.open_stream(pa.py_buffer(value)).read_all()
    except (pa.ArrowException, OSError, EOFError, ValueError, TypeError) as error:
        message = f"a block is not an Arrow stream: {error}"
        raise RemoteProtocolError(message) from error
    if not is_own:
        check_table(table)
    return table


def segments(block: bytes) -> list[bytes]:
    """Cut an encoded block into the values of the Kafka records that hold it."""
    if len(block) <= _SEGMENT_BYTES_MAX:
        return [block]
    return [
        block[start : start + _SEGMENT_BYTES_MAX]
        for start in range(0, len(block), _SEGMENT_BYTES_MAX)
    ]


def schema_text(schema: pa.Schema) -> str:
    """Return ``schema`` as text, for an ``EpochStarted`` record."""
    return base64.b64encode(schema.remove_metadata().serialize().to_pybytes()).decode("ascii")


def schema_from_text(text: str) -> pa.Schema:
    """Return the schema that ``schema_text`` wrote.

    Raises:
        RemoteProtocolError: ``text`` is not one.
    """
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))
        len(schema.names)  # decodes them: not every name is text
    except (pa.ArrowException, OSError, EOFError, ValueError) as error:
        message = f"not the schema of a stream: {error}"
        raise RemoteProtocolError(message) from error
    return schema


def stream_schema(text: str) -> pa.Schema:
    """Return the schema of a stream that another participant may have written (``block_guard``).

    Raises:
        RemoteProtocolError: ``text`` is not the schema of a stream.
    """
    schema = schema_from_text(text)
    check_columns(schema)
    return schema


def pieces(table: pa.Table) -> list[pa.Table]:
    """Cut ``table`` into pieces that each fit a block: at most BLOCK_ROWS_MAX rows and
    BLOCK_BYTES_MAX bytes. A row that is larger than a block is a piece of its own.
    """
    rows = table.num_rows
    if rows == 0:
        return []
    each = min(BLOCK_ROWS_MAX, max(1, rows * BLOCK_BYTES_MAX // max(1, table.nbytes)))
    if rows <= each:
        return [table]
    return [piece for start in range(0, rows, each) for piece in _halves(table.slice(start, each))]


def _halves(table: pa.Table) -> list[pa.Table]:
    """Halve ``table`` until no piece of more than one row exceeds BLOCK_BYTES_MAX. Sizes may be
    skewed, so the mean size of a row would not do.
    """
    rows = table.num_rows
    if rows == 1 or table.nbytes <= BLOCK_BYTES_MAX:
        return [table]
    return [*_halves(table.slice(0, rows // 2)), *_halves(table.slice(rows // 2))]


def split_by_bucket(table: pa.Table, width_ms: int) -> list[tuple[int, pa.Table]]:
    """Split ``table`` by bucket, in ascending order; rows of one bucket keep their order."""
    if table.num_rows == 0:
        return []
    event_time = table.column(EVENT_TIME).to_numpy()
    buckets = -(-event_time // width_ms)
    if buckets[0] == buckets[-1] and (buckets == buckets[0]).all():
        return [(int(buckets[0]), table)]
    if not (buckets[1:] >= buckets[:-1]).all():
        order = np.argsort(buckets, kind="stable")
        table, buckets = table.take(pa.array(order)), buckets[order]
    table = table.combine_chunks()
    cuts = [0, *(np.flatnonzero(buckets[1:] != buckets[:-1]) + 1).tolist(), table.num_rows]
    return [(int(buckets[a]), table.slice(a, b - a)) for a, b in pairwise(cuts)]


def mix(x: IntArray) -> IntArray:
    """Mix the bits of ``x`` by the finaliser of splitmix64."""
    x = (x ^ (x >> _U64(30))) * _U64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> _U64(27))) * _U64(0x94D049BB133111EB)
    return x ^ (x >> _U64(31))


def _hash_bytes(column: pa.Array) -> IntArray:
    """Return a polynomial hash of each value of a binary or text column, over all bytes at once."""
    column = column.cast(pa.large_binary())
    _, offset_buffer, data_buffer = column.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=np.int64)[
        column.offset : column.offset + len(column) + 1
    ]
    lengths = np.diff(offsets)
    result: IntArray = lengths.astype(np.uint64)
    total = int(offsets[-1] - offsets[0])
    if 0 < total <= _ALIKE_MAX * len(lengths) and (lengths == lengths[0]).all():
        return result + _hash_alike(
            np.frombuffer(data_buffer, dtype=np.uint8)[offsets[0] : offsets[-1]].reshape(
                len(lengths), -1
            )
        )
    if total:
        octets = np.frombuffer(data_buffer, dtype=np.uint8)
        start = 0
        while start < len(lengths):
            stop = max(
                start + 1,
                int(np.searchsorted(offsets, offsets[start] + _TEXT_BYTES, side="right")) - 1,
            )
            filled = lengths[start:stop] > 0
            if lengths[start] > _TEXT_BYTES:
                result[start] += _hash_long(octets[offsets[start] : offsets[stop]])
            elif filled.any():
                result[start:stop][filled] += _hash_texts(
                    octets[offsets[start] : offsets[stop]], lengths[start:stop][filled]
                )
            start = stop
    return result


def _hash_texts(
    octets: np.ndarray[tuple[int], np.dtype[np.uint8]],
    lengths: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> IntArray:
    """Return the sums of ``_hash_bytes`` for values that stand in ``octets`` one after the other;
    none of them is empty.

    Each octet counts with the power of its position among all; what this is too much for a value
    is the same for all its octets, and is taken out of their sum.
    """
    starts = np.cumsum(lengths) - lengths
    powers, inverses = _powers(_TEXT_BYTES)
    sums: IntArray = np.add.reduceat(
        (octets.astype(np.uint64) + _U64(1)) * powers[: len(octets)], starts
    )
    sums *= inverses[starts]
    return sums


def _hash_long(octets: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> np.uint64:
    """Return the hash of ``_hash_bytes`` for one long value, in as little memory as _TEXT_BYTES of
    text take.
    """
    powers, _ = _powers(_TEXT_BYTES)
    total, before = _U64(0), _U64(1)
    with np.errstate(over="ignore"):
        for start in range(0, len(octets), _TEXT_BYTES):
            some = octets[start : start + _TEXT_BYTES].astype(np.uint64) + _U64(1)
            total += before * (some * powers[: len(some)]).sum(dtype=np.uint64)
            before *= powers[-1]
    return total


@lru_cache(maxsize=1)
def _powers(count: int) -> tuple[IntArray, IntArray]:
    """Return the powers 1 to ``count`` of the prime, and the powers 0 to ``count - 1`` of its
    inverse.
    """
    powers: IntArray = np.cumprod(np.full(count, _PRIME), dtype=np.uint64)
    inverses: IntArray = np.cumprod(np.full(count, _PRIME_INVERSE), dtype=np.uint64)
    inverses *= _PRIME
    return powers, inverses


def _hash_alike(octets: np.ndarray[tuple[int, int], np.dtype[np.uint8]]) -> IntArray:
    """Return the hashes of ``_hash_bytes`` for values of equal length, such as names and codes:
    computed position by position, without an index.
    """
    sums = np.zeros(len(octets), dtype=np.uint64)
    power = _U64(1)
    for column in octets.T:
        power *= _PRIME
        sums += (column.astype(np.uint64) + _U64(1)) * power
    return sums


def _hash_column(column: pa.Array) -> IntArray:
    kind = column.type
    if pa.types.is_floating(kind):
        nan = pc.fill_null(pc.is_nan(column), fill_value=False)
        values: IntArray = nan.to_numpy(zero_copy_only=False).astype(np.uint64)
    elif pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        filled = (
            column.fill_null(False if pa.types.is_boolean(kind) else 0)
            if column.null_count
            else column
        )
        values = filled.to_numpy(zero_copy_only=False).astype(np.int64).view(np.uint64)
    elif pa.types.is_temporal(kind):
        values = _temporal(column)
    elif (
        pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_large_binary(kind)
    ):
        values = _hash_bytes(
            column.fill_null(b"" if "binary" in str(kind) else "") if column.null_count else column
        )
    else:  # nested or decimal: rare, one value at a time
        words = [(word or "").encode() for word in _words(column)[0]]
        values = np.array([zlib.crc32(w) | (zlib.adler32(w) << 32) for w in words], dtype=np.uint64)
    if column.null_count:
        values = np.where(column.is_null().to_numpy(zero_copy_only=False), _NULL, values)
    return values


def _exact(value: object) -> object:
    """Return a nested value without its floating-point numbers, which the digest leaves out within
    a list as in a column of their own.
    """
    if isinstance(value, float):
        return "nan" if value != value else "number"  # noqa: PLR0124 - not a number
    if isinstance(value, (list, tuple)):
        return [_exact(each) for each in value]
    return value


def _words(column: pa.Array) -> tuple[list[str | None], list[str | None]]:
    """Return two texts of each nested or decimal value: one without its floating-point numbers, and
    one with them.

    Texts are made of values that do not depend on a library's version: times are numbers, and the
    pairs of a map are in the order of their keys.
    """
    values = column.to_pylist() if pa.types.is_decimal(column.type) else stored(column)
    return (
        [None if value is None else repr(_exact(value)) for value in values],
        [None if value is None else repr(value) for value in values],
    )


def _temporal(column: pa.Array) -> IntArray:
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us"))
    whole = column.cast(
        pa.int32() if pa.types.is_date32(kind) or pa.types.is_time32(kind) else pa.int64()
    )
    values: IntArray = (
        whole.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64).view(np.uint64)
    )
    return values


def row_hashes(table: pa.Table) -> IntArray:
    """Return the 64-bit hash of each row, column by column in the table's order."""
    state = np.full(table.num_rows, _GOLDEN, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for column in table.combine_chunks().columns:
            if column.num_chunks:
                chunk = (
                    column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
                )
                state = mix(state * _GOLDEN + _hash_column(chunk))
    return state


def digests(tables: Sequence[pa.Table]) -> list[int]:
    """Return the digest of each of ``tables``. Tables of one schema are hashed together."""
    filled = [t for t in tables if t.num_rows]
    if not filled:
        return [0] * len(tables)
    if not all(t.schema.equals(filled[0].schema) for t in filled):
        return [digest(t) for t in tables]
    hashes = row_hashes(pa.concat_tables(filled))
    starts = np.cumsum([0, *(t.num_rows for t in filled[:-1])])
    with np.errstate(over="ignore"):
        sums = iter(np.add.reduceat(hashes, starts).tolist())
    return [int(next(sums)) if t.num_rows else 0 for t in tables]


def digest(table: pa.Table) -> int:
    """Return the digest of ``table``: the sum of its rows' hashes modulo 2**64."""
    return digests([table])[0]


def by_columns(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """Return ``tables`` put together where they have the same columns: mostly one; more where a
    stage's function has changed in between.

    The order of what comes back does not depend on the order of ``tables``.
    """
    if all(table.schema.equals(tables[0].schema) for table in tables):
        return [pa.concat_tables(tables)] if tables else []
    alike: dict[str, list[pa.Table]] = {}
    for table in tables:
        alike.setdefault(
            table.schema.to_string(show_field_metadata=False, show_schema_metadata=False), []
        ).append(table)
    return [pa.concat_tables(alike[columns]) for columns in sorted(alike)]


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def canonical_sort(table: pa.Table) -> pa.Table:
    """Return ``table`` in the canonical order of a bucket (``canonical_order``)."""
    return table if table.num_rows < 2 else table.take(canonical_order(table))


def canonical_order(table: pa.Table) -> pa.Array:
    """Return the positions of the rows of ``table`` in the canonical order of a bucket: event time,
    then the columns that are neither nested nor floats, then nested ones, then floats; nulls first.

    Nested columns (lists, maps, structs) are sorted by their text without floats, and in the end
    with them; of two zeros the negative one comes first. So rows that tie are equal in every bit
    that Python shows. Where the tables of ``by_columns`` have different columns, rows of the first
    one come first within one event time.
    """
    names = [EVENT_TIME]
    nested = list[str]()
    last = list[str]()
    signs = list[str]()
    keys = table
    for position, field in enumerate(table.schema):
        if pa.types.is_nested(field.type):
            for group, words in zip(
                (nested, last), _words(_whole(table.column(position))), strict=True
            ):
                group.append(f"\0{len(keys.schema)}")  # no name that a user has
                keys = keys.append_column(group[-1], pa.array(words, pa.string()))
        elif pa.types.is_floating(field.type):
            last.append(field.name)
            column = table.column(position)
            if pc.any(pc.equal(column, 0.0)).as_py():  # Arrow holds 0.0 and -0.0 to be equal
                signs.append(f"\0{len(keys.schema)}")
                positive = ~np.signbit(_whole(column).to_numpy(zero_copy_only=False))
                keys = keys.append_column(signs[-1], pa.array(positive))
        elif field.name != EVENT_TIME:
            names.append(field.name)
    names += [*nested, *last, *signs]
    return pc.sort_indices(keys, sort_keys=[(n, "ascending", "at_start") for n in names])
