"""Tests of what no block may have, each made with the library's own writer or by changing its
bytes.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from anabranch.codec import block_guard
from anabranch.codec.blocks import decode_block, encode_block, schema_text, stream_schema
from anabranch.protocol.errors import RemoteProtocolError
from anabranch.protocol.limits import BLOCK_ROWS_MAX


def stream(*tables: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(
        sink, tables[0].schema, options=pa.ipc.IpcWriteOptions(**options)
    ) as writer:
        for table in tables:
            writer.write_table(table)
    return bytes(sink.getvalue())


ROWS = pa.table({"text": ["abc", "def", None], "number": [1, 2, 3]})
GOOD = encode_block(ROWS)


def column(kind: pa.DataType) -> pa.Table:
    return pa.table({"x": pa.array([], kind)})


def test_what_our_writers_make_is_taken() -> None:
    assert decode_block(GOOD).equals(ROWS)
    assert decode_block(GOOD[:-8]).equals(ROWS)
    assert decode_block(stream(ROWS, ROWS)).num_rows == 6
    kinds = [
        pa.int8(),
        pa.float64(),
        pa.bool_(),
        pa.string(),
        pa.large_string(),
        pa.binary(),
        pa.large_binary(),
        pa.decimal128(10, 2),
        pa.date32(),
        pa.time64("ns"),
        pa.duration("us"),
        pa.timestamp("us", "UTC"),
        pa.list_(pa.int32()),
        pa.large_list(pa.string()),
        pa.list_(pa.int8(), 3),
        pa.binary(4),
        pa.map_(pa.string(), pa.struct([("a", pa.int8()), ("b", pa.list_(pa.float32()))])),
    ]
    for kind in kinds:
        assert decode_block(encode_block(column(kind))).num_rows == 0


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_compressed(codec: str) -> None:
    zeros = pa.table({"x": np.zeros(BLOCK_ROWS_MAX, np.int64)})
    with pytest.raises(RemoteProtocolError, match="compressed"):
        decode_block(stream(zeros, compression=codec))


def nested(depth: int) -> pa.DataType:
    return pa.int8() if depth == 0 else pa.list_(nested(depth - 1))


@pytest.mark.parametrize(
    "kind",
    [
        pa.null(),
        pa.list_(pa.null()),
        pa.struct([]),
        pa.list_(pa.struct([])),
        pa.list_(pa.int8(), 0),
        pa.binary(0),
        pa.map_(pa.int8(), pa.null()),
        pa.list_(pa.null(), 2),
        pa.run_end_encoded(pa.int32(), pa.int64()),
        nested(40),
        # Arrow hashes, sorts or casts these not at all, or not all of their values.
        pa.float16(),
        pa.uint64(),
        pa.timestamp("s"),
        pa.timestamp("ns"),
        pa.list_(pa.duration("s")),
        pa.month_day_nano_interval(),
    ],
    ids=str,
)
def test_types_that_nothing_bounds_or_that_no_stream_has(kind: pa.DataType) -> None:
    with pytest.raises(RemoteProtocolError, match="type"):
        block_guard.check_table(pa.table({"x": pa.array([], kind)}))
    with pytest.raises(RemoteProtocolError, match="type"):
        stream_schema(schema_text(pa.schema([("x", kind)])))


def test_two_columns_of_one_name() -> None:
    twice = pa.table([pa.array([1]), pa.array([2])], ["x", "x"])
    with pytest.raises(RemoteProtocolError, match="one name"):
        decode_block(encode_block(twice))
    with pytest.raises(RemoteProtocolError, match="one name"):
        stream_schema(schema_text(twice.schema))
    assert stream_schema(schema_text(ROWS.schema)) == ROWS.schema


@pytest.mark.parametrize(
    ("times", "fault"),
    [
        (pa.array([], pa.int64()), ""),
        (pa.array([751, 1_000]), ""),
        (pa.array([750, 1_000]), "another bucket"),
        (pa.array([751, 1_001]), "another bucket"),
        (pa.array([751, None]), "not a number of ms"),
        (pa.array([751.0]), "not a number of ms"),
        (pa.array(["751"]), "not a number of ms"),
    ],
)
def test_bg4_rows_are_of_their_bucket(times: pa.Array, fault: str) -> None:
    table = pa.table({"event_time": times})
    if not fault:
        block_guard.check_rows(table, 4, 250)
        return
    with pytest.raises(RemoteProtocolError, match=fault):
        block_guard.check_rows(table, 4, 250)


def test_bg4_rows_have_an_event_time() -> None:
    with pytest.raises(RemoteProtocolError, match="without a column event_time"):
        block_guard.check_rows(ROWS, 4, 250)


def test_dictionaries() -> None:
    with pytest.raises(RemoteProtocolError, match="kind 2"):
        decode_block(stream(pa.table({"x": pa.array(["a", "b"]).dictionary_encode()})))


def test_too_many_rows() -> None:
    with pytest.raises(RemoteProtocolError, match="rows"):
        decode_block(encode_block(pa.table({"x": np.zeros(BLOCK_ROWS_MAX + 1, np.int8)})))


def test_offsets_outside_the_data_and_broken_texts() -> None:
    offsets = np.array([0, 3, 6, 6], np.int32).tobytes()
    at = GOOD.index(offsets)
    for wrong in ([0, 2**30, 6, 6], [0, 3, 2**30, 6], [6, 3, 0, 6], [0, -3, 6, 6]):
        with pytest.raises(RemoteProtocolError, match="contradict"):
            decode_block(
                GOOD[:at] + np.array(wrong, np.int32).tobytes() + GOOD[at + len(offsets) :]
            )
    with pytest.raises(RemoteProtocolError, match="contradict"):
        decode_block(GOOD.replace(b"abcdef", b"abc\xff\xfef"))


def test_nothing_after_the_end() -> None:
    with pytest.raises(RemoteProtocolError, match="after its end"):
        decode_block(GOOD + b"x")
    with pytest.raises(RemoteProtocolError):
        decode_block(GOOD + GOOD)


def test_too_many_messages() -> None:
    with pytest.raises(RemoteProtocolError, match="messages"):
        decode_block(stream(*[ROWS.slice(0, 1)] * 1_100))


def test_metadata_of_a_message() -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, ROWS.schema) as writer:
        writer.write_batch(
            ROWS.to_batches()[0], custom_metadata={"ARROW:experimental_compression": "lz4"}
        )
    with pytest.raises(RemoteProtocolError, match="metadata"):
        decode_block(bytes(sink.getvalue()))


def test_a_file_or_an_old_version() -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, ROWS.schema) as writer:
        writer.write_table(ROWS)
    for value in (
        bytes(sink.getvalue()),
        stream(ROWS, use_legacy_format=True),
        b"",
        b"\xff" * 4,
        b"\xff" * 8,
        GOOD[8:],
    ):
        with pytest.raises(RemoteProtocolError):
            decode_block(value)


def test_two_schemas_or_none() -> None:
    length = 8 + struct.unpack_from("<i", GOOD, 4)[0]
    for value in (GOOD[:length] + GOOD, GOOD[length:]):
        with pytest.raises(RemoteProtocolError):
            decode_block(value)


def message(head: bytes, body: bytes = b"") -> bytes:
    return struct.pack("<Ii", 0xFFFFFFFF, len(head)) + head + body


def test_heads_that_point_elsewhere() -> None:
    """Flat buffers whose layouts lie before their beginning or behind their end."""
    for head in (
        struct.pack("<Ii", 4, 1_000),  # the layout is before the block
        struct.pack("<Ii", 4, -1_000),  # and behind it
        struct.pack("<IiHHHHHH", 4, -4, 12, 8, 0, 60_000, 0, 0),  # the kind is behind it
        struct.pack("<IiHHHHHHq", 4, -4, 14, 8, 0, 0, 0, 16, -1),  # a body of less than nothing
    ):
        with pytest.raises(RemoteProtocolError):
            block_guard.check_stream(message(head))


def test_every_torn_block_and_every_changed_byte_of_its_heads() -> None:
    """Nothing but the documented error, whatever is left of a block."""
    schema_only = 8 + struct.unpack_from("<i", GOOD, 4)[0]
    for length in range(len(GOOD) - 8):
        if length == schema_only:  # a block without rows: whoever counts them misses them
            assert decode_block(GOOD[:length]).num_rows == 0
            continue
        with pytest.raises(RemoteProtocolError):
            decode_block(GOOD[:length])
    for place in range(len(GOOD)):
        for change in (1, 0x80, 0xFF):
            spoilt = bytearray(GOOD)
            spoilt[place] ^= change
            try:
                assert decode_block(bytes(spoilt)).num_rows <= 2**16
            except RemoteProtocolError:
                continue
