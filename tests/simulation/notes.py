"""A column of text in the results of stages, in the scenario ``too large``: some rows are larger
than a stream holds. In their place are notices (``codec.rejected_rows``), and which rows these are
follows from the row.

In the answer, and in what is read of a run, a notice is the row that it stands for, with
NOTICE_ADDS in its value.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from demo.live_checker import INSERTION, TENTATIVE, UNDO, LiveRecord

if TYPE_CHECKING:
    from simulation.workload import Buckets, Row

NOTE: Final = "note"
FIELD: Final = pa.field(NOTE, pa.string())
ROW_BYTES_MAX: Final = 8_192
"""Limit of a run in place of ROW_BYTES_MAX, in bytes. A block without rows takes far less."""
BLOCK_BYTES_MAX: Final = 2_048
"""Limit of a run in place of BLOCK_BYTES_MAX, in bytes: less, as for real."""
NOTICE_ADDS: Final = 1_000_000_000
"""Number that is added to the value of a row that a notice stands for."""
_KEYS_END: Final = 8
"""Number that is above all keys."""
_PADDED_BYTES: Final = 8
"""Size in bytes to which Arrow pads texts: those that differ by as much take different sizes, by
which notices are sorted.
"""
_REJECTED_EACH: Final = 5
"""Number of rows of which one is too large."""
_SHOWN_CHARACTERS: Final = 1_024
_COLUMNS: Final = frozenset(
    {
        "anabranch_rejected_bytes",
        "anabranch_rejected_digest",
        "anabranch_rejected_row",
        "event_time",
    }
)
_HEADERS: Final = ("anabranch-reason", "anabranch-truncated", "anabranch-row-digest")
_DIGEST_CHARACTERS: Final = 16


def text(row: Row) -> str:
    """Return the column's value. It depends on what of a row is the same whatever is missing. Of
    two rows of one time the one with the larger id and key has more characters.
    """
    if not _is_too_large(row):
        return "n" * (1 + row[1] % 3)
    return "x" * (ROW_BYTES_MAX + _PADDED_BYTES * (_KEYS_END * max(0, row[1]) + row[2]))


def array(rows: Sequence[Row]) -> pa.Array:
    """Return the column for ``rows``."""
    return pa.array([text(row) for row in rows], FIELD.type)


def _is_too_large(row: Row) -> bool:
    return (row[1] + row[2]) % _REJECTED_EACH == 0


def marked(data: Buckets) -> Buckets:
    """Return what a stage's stream holds where its function makes ``data``: notices in place of
    rows that are too large, before the rows of the same time.
    """
    return {
        bucket: sorted((_notice(row) if _is_too_large(row) else row for row in rows), key=_place)
        for bucket, rows in data.items()
    }


def _place(row: Row) -> tuple[object, ...]:
    """Return the place of a row in the canonical order: notices have no other columns than their
    size, which grows with id and key.
    """
    return row[0], not is_notice(row), row


def _notice(row: Row) -> Row:
    return row[0], row[1], row[2], row[3] + NOTICE_ADDS


def is_notice(row: Sequence[object]) -> bool:
    """Return whether ``row``, of the answer or as a reader of a stream gets it, is a notice."""
    return int(str(row[3])) >= NOTICE_ADDS


def readable(rows: Iterable[Row]) -> list[Row]:
    """Return the rows of a stream that its readers get."""
    return [row for row in rows if not is_notice(row)]


def rows_of(table: pa.Table) -> list[Row] | None:
    """Return the notices of a block; None if it holds none."""
    if set(table.column_names) != _COLUMNS:
        return None
    found = []
    for each in table.to_pylist():
        shown = json.loads(each["anabranch_rejected_row"])
        row = each["event_time"], shown["id"], shown["key"], shown["v"]
        found.append(_notice(row))
    return found


def wrong(headers: Mapping[str, bytes], value: Mapping[str, object]) -> str:
    """Return what is wrong with a notice among the rejected results; empty: nothing."""
    reason, size, digest = (headers.get(name, b"").decode() for name in _HEADERS)
    if reason != "row_too_large" or int(size or 0) <= ROW_BYTES_MAX:
        return f"a notice of {size} bytes, of which a stream takes {ROW_BYTES_MAX}: {reason}"
    if len(digest) != _DIGEST_CHARACTERS:
        return f"a notice with digest {digest!r}"
    beginning = value.get(NOTE)
    return "" if beginning == "x" * _SHOWN_CHARACTERS else f"a notice that begins {beginning!r}"


def without_notices(
    records: Iterable[LiveRecord],
    answer: Mapping[int, Sequence[tuple[object, ...]]],
    offered: Mapping[tuple[int, tuple[int, int]], Sequence[tuple[object, ...]]],
) -> list[LiveRecord]:
    """Return the records of a live topic, which leaves notices out, numbered as if there were none:
    each bucket from 0 on.

    Args:
        records: Of the topic.
        answer: The rows of every stable bucket in canonical order, with notices.
        offered: Those of every bucket that a branch has closed, by (bucket, branch), in any order.
    """
    found = []
    for record in records:
        if record.ident is None or record.kind not in (INSERTION, TENTATIVE, UNDO):
            found.append(record)
            continue
        bucket, position = record.ident
        if record.kind == UNDO:
            found.append(record._replace(ident=_last_of_a_row(record.ident, answer)))
            continue
        rows: Sequence[tuple[object, ...]] = answer.get(bucket, ())
        if record.kind == TENTATIVE:
            made = offered.get((bucket, record.branch or (-1, -1)), ())
            rows = sorted(made, key=lambda row: (row[0], not is_notice(row), row))
        before = sum(map(is_notice, rows[:position]))
        found.append(record._replace(ident=(bucket, position - before)))
    return found


def _last_of_a_row(
    ident: tuple[int, int], answer: Mapping[int, Sequence[tuple[object, ...]]]
) -> tuple[int, int] | None:
    """Return the id, as if there were no notices, of the last row up to ``ident``."""
    for bucket in sorted((each for each in answer if each <= ident[0]), reverse=True):
        rows = answer[bucket] if bucket < ident[0] else answer[bucket][: ident[1] + 1]
        if count := sum(not is_notice(row) for row in rows):
            return bucket, count - 1
    return None
