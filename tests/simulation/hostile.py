"""Records that nobody should have written, in a boundary log beside those of its writers.
Every reader must reject them, and go on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pyarrow.compute as pc

from anabranch.codec import boundary_records
from anabranch.codec.blocks import decode_block, encode_block
from anabranch.protocol.errors import RemoteProtocolError
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.records import (
    BoundaryKind,
    BoundaryRecord,
    BranchEnded,
    EpochStarted,
    LogEntry,
)

AGAIN: Final = 24
"""The ``choice`` that gives a record which is there already, once more: the last but one of its
writer, where there is one. All below it are of 8 kinds, by their remainder.
"""
_AHEAD: Final = 3
"""Number of buckets behind the last one that a forged record claims to close: a reader that accepts
it loses rows.
"""
_NOBODY: Final = BatchId("forged", 0)


def forged(values: Mapping[int, bytes | None], choice: int) -> bytes | None:
    """Return a record that looks like those of a log, ``values`` by offset, and must not count;
    None if the log is empty.
    """
    begun: dict[str, int] = {}
    newest: dict[tuple[str, BoundaryKind], BoundaryRecord] = {}
    before: dict[tuple[str, BoundaryKind], BoundaryRecord] = {}
    for offset, value in values.items():
        try:
            entry = boundary_records.decode(value)
        except RemoteProtocolError:
            continue
        if isinstance(entry, EpochStarted):
            begun[entry.replica] = offset
        elif isinstance(entry, BoundaryRecord) and entry.epoch == begun.get(entry.replica):
            key = entry.replica, entry.kind
            before[key], newest[key] = newest.get(key, entry), entry
    if choice == AGAIN:
        newest = before
    alike = [record for record in newest.values() if record.epoch == begun[record.replica]]
    if not alike:
        return None
    if choice == AGAIN:
        return boundary_records.encode(alike[0])[0]
    if choice % 8 == 4:  # of an older branch, if there is a newer one
        alike = [record for record in alike if record.kind is BoundaryKind.TENTATIVE] or alike
    record = alike[choice % len(alike)]
    return (
        _torn(list(values.values())[-1], choice)
        if choice % 8 in (0, 1)
        else boundary_records.encode(_forged(record, choice))[0]
    )


def _torn(value: bytes | None, choice: int) -> bytes:
    """Bytes that are no record: the beginning of one, or one of an unknown schema."""
    value = value or b""
    return (
        value[: choice + 1]
        if choice % 8 == 0
        else bytes([*value[:2], value[2] ^ 0xFF, *value[3:]])
        if len(value) > 3
        else b"?"
    )


def _forged(record: BoundaryRecord, choice: int) -> LogEntry:
    """``record`` again, as another one that closes more and has nothing in it; or the end of a
    branch before all others.
    """
    if choice % 8 == 5:
        return BranchEnded(record.replica, record.epoch, 0)
    more = replace(
        record,
        id=BatchId("forged", 1 + choice),
        prev=_NOBODY,
        closed=record.closed + _AHEAD,
        parts=(),
        positions=(),
    )
    if choice % 8 == 2:
        return replace(more, replica="nobody")
    if choice % 8 == 3 and record.epoch > 0:
        return replace(
            more,
            epoch=record.epoch - 1,
            prev=record.id,
            branch=None if record.branch is None else (record.epoch - 1, record.branch[1]),
        )
    if record.kind is BoundaryKind.STABLE or record.branch is None:
        return (
            more
            if choice % 8 < 6
            else replace(
                more, kind=BoundaryKind.TENTATIVE, branch=(record.epoch, 1_000_000), base=None
            )
        )
    epoch, counter = record.branch
    if choice % 8 == 4:
        return replace(more, branch=(epoch, counter - 1), base=None)  # of an older branch
    return replace(more, base=None)  # off the branch's chain


def other_rows(block: bytes | None) -> bytes:
    """Return a block of as many rows with other numbers; of a segment, other bytes."""
    try:
        table = decode_block(block)
    except RemoteProtocolError:
        return bytes(octet ^ 0xFF for octet in block or b"")
    column = table.schema.get_field_index("v")
    return encode_block(
        table.set_column(column, table.schema.field(column), pc.add(table.column(column), 1))
    )
