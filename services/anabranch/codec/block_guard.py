"""Validation of blocks before and after Arrow decodes them: another participant may have written
them.

The Arrow library trusts its input in three ways that a reader cannot afford. It unpacks compressed
bodies of any size (a block of 5 KB became 160 MB), it believes offsets until somebody looks (one
outside the data ends the process, or asks for gigabytes), and it has types whose items take no
bytes, so that no length bounds their number. Our writers use none of it, so:

    BG1 A block is one schema and record batches, not compressed, without dictionaries, and nothing
        after them.
    BG2 Every type in it takes bytes for each of its items.
    BG3 It has at most BLOCK_ROWS_MAX rows, and every offset and text in it is checked once.

The messages are walked by hand (Arrow's format: a continuation mark, the length of the head, the
head as a flat buffer, the body): the library has no way to ask these questions without unpacking.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final

import pyarrow as pa

from anabranch.protocol.errors import RemoteProtocolError
from anabranch.protocol.limits import BLOCK_ROWS_MAX, RECORD_DEPTH_MAX

_CONTINUATION: Final = 0xFFFFFFFF
_SCHEMA: Final = 1
_RECORD_BATCH: Final = 3
_MESSAGE_KIND = 1
_MESSAGE_HEADER = 2
_MESSAGE_BODY_BYTES = 3
_MESSAGE_METADATA = 4
_BATCH_COMPRESSION: Final = 3
_MESSAGES_MAX: Final = 1_024
"""Our writers make two; each costs a step here."""


def check_stream(value: bytes) -> None:
    """Check the messages of an Arrow stream (BG1).

    Raises:
        RemoteProtocolError: it is torn, or has what no block has.
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
        is_bounded = _is_bounded(table.schema)
        table.validate(full=True)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise RemoteProtocolError(
            f"a block whose data contradict themselves: {str(error)[:300]}"
        ) from error
    if not is_bounded:
        raise RemoteProtocolError(
            "a block has a column of a type that takes no bytes, or is nested too deep"
        )


def _past_schema(value: bytes) -> int:
    kind, _, body_bytes, at = _message(value, 0)
    if kind != _SCHEMA or body_bytes:
        raise RemoteProtocolError("a block does not begin with a schema")
    return at


def _past_batch(value: bytes, at: int) -> tuple[int, bool]:
    """(where the message at ``at`` ends, whether it was one and not the end)."""
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
    """(kind, where its header is, length of its body, where its body begins) of the message
    at ``at``.
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
def _is_bounded(schema: pa.Schema) -> bool:
    return all(_takes_bytes(field.type, RECORD_DEPTH_MAX) for field in schema)


def _takes_bytes(kind: pa.DataType, depth: int) -> bool:
    if depth == 0:
        return False
    if pa.types.is_fixed_size_list(kind):
        return kind.list_size > 0 and _takes_bytes(kind.value_type, depth - 1)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _takes_bytes(kind.value_type, depth - 1)
    if pa.types.is_map(kind):
        return _takes_bytes(kind.key_type, depth - 1) and _takes_bytes(kind.item_type, depth - 1)
    if pa.types.is_struct(kind):
        return kind.num_fields > 0 and all(_takes_bytes(field.type, depth - 1) for field in kind)
    if pa.types.is_fixed_size_binary(kind):
        return bool(kind.byte_width > 0)
    plain = (
        pa.types.is_boolean,
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_decimal,
        pa.types.is_temporal,
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_binary,
        pa.types.is_large_binary,
    )
    return any(is_one(kind) for is_one in plain)
