"""Validation of blocks before and after Arrow decodes them: another participant may have written
them.

The Arrow library trusts its input in three ways that a reader cannot afford. It unpacks compressed
bodies of any size (a block of 5 KB became 160 MB), it believes offsets until somebody looks (one
outside the data ends the process, or asks for gigabytes), and it has types whose items take no
bytes, so that no length bounds their number. It also has types that it cannot sort or cast, or only
some of their values. Our writers use none of it, so:

    BG1 A block is one schema and record batches, not compressed, without dictionaries, and nothing
        after them.
    BG2 No two columns have one name, and every type is one that a stream's columns can have: each
        of its items takes bytes, and each of its values can be hashed, sorted and delivered.
    BG3 It has at most BLOCK_ROWS_MAX rows, and every offset and text in it is checked once.
    BG4 The rows of a part have an event time each, within the part's bucket.

The messages are walked by hand (Arrow's format: a continuation mark, the length of the head, the
head as a flat buffer, the body): the library has no way to ask these questions without unpacking.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.protocol.errors import RemoteProtocolError
from anabranch.protocol.limits import BLOCK_ROWS_MAX, RECORD_DEPTH_MAX

EVENT_TIME: Final = "event_time"
_CONTINUATION: Final = 0xFFFFFFFF
_SCHEMA: Final = 1
_RECORD_BATCH: Final = 3
_MESSAGE_KIND = 1
_MESSAGE_HEADER = 2
_MESSAGE_BODY_BYTES = 3
_MESSAGE_METADATA = 4
_BATCH_COMPRESSION: Final = 3
_MESSAGES_MAX: Final = 1_024
"""Maximum number of Arrow messages in a block. Writers of this project write two, and each costs a
step of the check.
"""


def check_stream(value: bytes) -> None:
    """Check the messages of an Arrow stream (BG1).

    Raises:
        RemoteProtocolError: the stream is torn, or has parts that blocks do not have.
    """
    try:
        at = _past_schema(value)
        for _ in range(_MESSAGES_MAX):
            at, going_on = _past_batch(value, at)
            if not going_on:
                break
        else:
            raise RemoteProtocolError(f"a block of more than {_MESSAGES_MAX} messages")
    except struct.error as error:
        raise RemoteProtocolError("a block is a torn Arrow stream") from error
    if at != len(value):
        raise RemoteProtocolError("a block has something after its end")


def check_table(table: pa.Table) -> None:
    """Check the rows of a stream (BG2, BG3).

    Raises:
        RemoteProtocolError: more rows or another type than a block may have, or data that
            contradict themselves.
    """
    if table.num_rows > BLOCK_ROWS_MAX:
        raise RemoteProtocolError(f"a block of {table.num_rows} rows")
    try:
        fault = _fault_of(table.schema)
        table.validate(full=True)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise RemoteProtocolError(
            f"a block whose data contradict themselves: {str(error)[:300]}"
        ) from error
    if fault:
        raise RemoteProtocolError(f"a block has {fault}")


def check_columns(schema: pa.Schema) -> None:
    """Check the columns that a stream is said to have (BG2).

    Raises:
        RemoteProtocolError: no block may have them.
    """
    fault = _fault_of(schema)
    if fault:
        raise RemoteProtocolError(f"a stream has {fault}")


def check_rows(table: pa.Table, bucket: int, width_ms: int) -> None:
    """Check that all rows of a part belong to its bucket (BG4).

    Raises:
        RemoteProtocolError: one is not, or has no event time.
    """
    if EVENT_TIME not in table.column_names:
        raise RemoteProtocolError(f"rows without a column {EVENT_TIME}")
    times = table.column(EVENT_TIME)
    if times.type != pa.int64() or times.null_count:
        raise RemoteProtocolError(f"rows whose {EVENT_TIME} is not a number of ms")
    if table.num_rows:
        found = pc.min_max(times).as_py()
        if found["min"] <= (bucket - 1) * width_ms or found["max"] > bucket * width_ms:
            raise RemoteProtocolError(
                f"bucket {bucket} holds a row of another bucket: its rows are from"
                f" {found['min']} to {found['max']} ms"
            )


def _past_schema(value: bytes) -> int:
    kind, _, body_bytes, at = _message(value, 0)
    if kind != _SCHEMA or body_bytes:
        raise RemoteProtocolError("a block does not begin with a schema")
    return at


def _past_batch(value: bytes, at: int) -> tuple[int, bool]:
    """Return the end of the message at ``at``, and whether it is a message rather than the end of
    the stream.
    """
    if at == len(value):  # Arrow takes this for the end, too
        return at, False
    if struct.unpack_from("<II", value, at) == (_CONTINUATION, 0):
        return at + 8, False
    kind, header, body_bytes, at = _message(value, at)
    if kind != _RECORD_BATCH:
        raise RemoteProtocolError(f"a block has a message of kind {kind}")
    if _field(value, header, _BATCH_COMPRESSION):
        raise RemoteProtocolError("a block is compressed")
    return at + body_bytes, True


def _message(value: bytes, at: int) -> tuple[int, int, int, int]:
    """Return the kind of the message at ``at``, the position of its header, the length of its body,
    and the position of its body.
    """
    mark, length = struct.unpack_from("<Ii", value, at)
    start = at + 8
    if mark != _CONTINUATION or not 0 < length <= len(value) - start:
        raise RemoteProtocolError(
            "a block is a torn Arrow stream, or of a version that no writer has"
        )
    root = start + _unsigned(value, start)
    if _field(value, root, _MESSAGE_METADATA):
        raise RemoteProtocolError(
            "a message of a block has metadata"
        )  # the old way to say that it is compressed
    kind_at, header_at, body_at = (
        _field(value, root, which)
        for which in (_MESSAGE_KIND, _MESSAGE_HEADER, _MESSAGE_BODY_BYTES)
    )
    kind = value[kind_at] if 0 < kind_at < len(value) else 0
    header = header_at + _unsigned(value, header_at) if header_at else 0
    body_bytes = int(struct.unpack_from("<q", value, body_at)[0]) if body_at else 0
    if not 0 <= body_bytes <= len(value) - start - length:
        raise RemoteProtocolError("a block is a torn Arrow stream")
    return kind, header, body_bytes, start + length


def _field(value: bytes, table: int, which: int) -> int:
    """Return the position of field ``which`` of the flat buffer's table at ``table``; 0 if the
    field has its default.
    """
    layout = table - int(struct.unpack_from("<i", value, table)[0])
    if layout < 0:
        raise RemoteProtocolError("a block is a torn Arrow stream")
    slot = 4 + 2 * which
    if slot + 2 > struct.unpack_from("<H", value, layout)[0]:
        return 0
    offset = int(struct.unpack_from("<H", value, layout + slot)[0])
    return table + offset if offset else 0


def _unsigned(value: bytes, at: int) -> int:
    return int(struct.unpack_from("<I", value, at)[0])


@lru_cache(maxsize=64)
def _fault_of(schema: pa.Schema) -> str:
    """Return what is wrong with a block's columns (BG2); empty if nothing is."""
    names = schema.names
    if len(set(names)) < len(names):
        return "two columns of one name"
    wrong = (field for field in schema if not _is_usual(field.type, RECORD_DEPTH_MAX))
    return next((f"a column of type {str(field.type)[:100]}" for field in wrong), "")


def _is_usual(kind: pa.DataType, depth: int) -> bool:
    """Return whether a stream's column may have the type ``kind``, ``depth`` levels deep."""
    if depth == 0:
        return False
    if pa.types.is_fixed_size_list(kind):
        return kind.list_size > 0 and _is_usual(kind.value_type, depth - 1)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _is_usual(kind.value_type, depth - 1)
    if pa.types.is_map(kind):
        return _is_usual(kind.key_type, depth - 1) and _is_usual(kind.item_type, depth - 1)
    if pa.types.is_struct(kind):
        return kind.num_fields > 0 and all(_is_usual(field.type, depth - 1) for field in kind)
    if pa.types.is_fixed_size_binary(kind):
        return bool(kind.byte_width > 0)
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return bool(kind.unit == "us")
    plain = (
        pa.types.is_boolean,
        pa.types.is_signed_integer,
        pa.types.is_float32,
        pa.types.is_float64,
        pa.types.is_decimal,
        pa.types.is_date32,
        pa.types.is_time,
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_binary,
        pa.types.is_large_binary,
    )
    return any(is_one(kind) for is_one in plain)
