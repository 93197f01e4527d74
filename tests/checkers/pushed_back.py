"""A source whose readers are too far behind reads nothing until they have caught up (IN10)."""

from __future__ import annotations

from collections.abc import Iterable


def check(
    source: str, moments: Iterable[tuple[int, bool, int]], kept_max: int, look_ms: int
) -> list[str]:
    """Blocks that a source has written although it should read nothing.

    Args:
        source: Its name.
        moments: (time, whether it wrote a block then, blocks that its readers could be done with
            after that), by time.
        kept_max: From so many on it reads nothing, until half of them are gone.
        look_ms: So long it may take until it knows, and until what it had read is written.
    """
    full_since_ms: int | None = None
    is_pushed_back = False
    for at_ms, is_written, kept in moments:
        if full_since_ms is not None and at_ms - full_since_ms > look_ms:
            is_pushed_back = True
        if is_written and is_pushed_back:
            found = f"{kept} of its blocks are kept, and were {kept_max} at {full_since_ms} ms"
            return [f"{source}: writes at {at_ms} ms, though {found}"]
        if kept <= kept_max // 2:
            is_pushed_back = False
        if kept < kept_max and not is_pushed_back:
            full_since_ms = None
        elif full_since_ms is None:
            full_since_ms = at_ms
    return []
