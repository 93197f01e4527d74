"""The corrected topic against the answer: every record once, with its own id, in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

Row = tuple[object, ...]


class Delivered(NamedTuple):
    """One record of the corrected topic, as a committed reader sees it."""

    partition: int
    offset: int
    bucket: int
    position: int
    row: Row


def check(delivered: Sequence[Delivered], answer: Mapping[int, Sequence[Row]]) -> list[str]:
    """Return what is wrong with ``delivered``, in words. Ids must ascend in each partition, after a
    torn transaction, too: it is whole or missing in a partition, and what is missing is written
    before anything that follows it.

    Args:
        delivered: In log order within each partition.
        answer: The rows of every bucket that must be there, in canonical order; buckets without
            rows may be left out.
    """
    wrong: list[str] = []
    seen: dict[tuple[int, int], Delivered] = {}
    last: dict[int, Delivered] = {}
    for each in delivered:
        ident = (each.bucket, each.position)
        name = f"{each.bucket}.{each.position} at {each.partition}:{each.offset}"
        if ident in seen:
            wrong.append(
                f"duplicate: {name} stands at {seen[ident].partition}:{seen[ident].offset} too"
            )
        seen.setdefault(ident, each)
        rows = answer.get(each.bucket, ())
        if each.position >= len(rows):
            wrong.append(f"invented: {name} is {each.row}")
        elif rows[each.position] != each.row:
            wrong.append(f"wrong: {name} is {each.row}, not {rows[each.position]}")
        before = last.get(each.partition)
        if before is not None and (before.bucket, before.position) > ident:
            wrong.append(f"order: {name} after {before.bucket}.{before.position}")
        last[each.partition] = each
    missing = [
        f"{bucket}.{position}"
        for bucket, rows in answer.items()
        for position in range(len(rows))
        if (bucket, position) not in seen
    ]
    if missing:
        wrong.append(f"missing: {', '.join(missing[:20])} ({len(missing)} rows)")
    return wrong
