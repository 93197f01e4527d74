"""A compacted live topic at the end of the work: the newest record of every key is its last
stable value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Row = tuple[object, ...]

_STABLE = ("insertion", "undo")
"""An undo gives a key its last stable value back. It stays the newest record where the bucket that
was shown is given up, or has no row of the key in the end.
"""


def check(
    newest: Mapping[object, tuple[str, Row | None]],
    answer: Mapping[int, Sequence[Row]],
    key_index: int,
) -> list[str]:
    """Return what is wrong, in words.

    Args:
        newest: By key: (kind, row) of its last record.
        answer: The stable rows of every bucket, in canonical order.
        key_index: Where a row has its key.
    """
    last: dict[object, Row] = {}
    for bucket in sorted(answer):
        for row in answer[bucket]:
            last[row[key_index]] = row
    wrong = [f"upsert: key {key} is missing" for key in last if key not in newest]
    for key, (kind, value) in newest.items():
        if key not in last:
            if value is not None:
                wrong.append(f"upsert: nobody has key {key}, it is {value}")
        elif kind not in _STABLE or value != last[key]:
            wrong.append(
                f"upsert: key {key} is {kind} {value}, its last stable value is {last[key]}"
            )
    return wrong
