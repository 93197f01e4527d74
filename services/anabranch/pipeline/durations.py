"""Durations as people write them: ``250ms``, ``3s``, ``1m``, ``2h``. Always with a unit,
always whole milliseconds inside.
"""

from __future__ import annotations

import re
from typing import Final

DURATION_MS_MAX: Final = 366 * 24 * 3_600_000
"""A year: anything longer is a slip of the pen, and sums of durations stay far from overflow."""

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_TEXT = re.compile(r"\s*([0-9]{1,15})(?:\.([0-9]{1,9}))?\s*([a-zA-Z]+)\s*\Z")


def parse_ms(value: object) -> int:
    """Milliseconds of a duration.

    Raises:
        ValueError: with what is wrong and how to write it.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise ValueError(f'{value} has no unit; write for example "{value}ms" or "{value}s"')
    match = _TEXT.match(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(
            f"{value!r} is not a duration; write a number and a unit, for example 250ms, 3s, 1m, 2h"
        )
    whole, fraction, unit = match.groups()
    if unit not in _UNITS_MS:
        raise ValueError(
            f"{value!r} has the unknown unit {unit!r}; use one of {', '.join(_UNITS_MS)}"
        )
    scale = len(fraction or "")
    scaled: int = 10**scale
    milliseconds, rest = divmod(int(whole + (fraction or "")) * _UNITS_MS[unit], scaled)
    if rest:
        raise ValueError(f"{value!r} is not a whole number of milliseconds")
    if milliseconds > DURATION_MS_MAX:
        raise ValueError(f"{value!r} is more than a year")
    return milliseconds


def format_ms(duration_ms: int) -> str:
    """The shortest text that ``parse_ms`` reads back as ``duration_ms``."""
    for unit in ("d", "h", "m", "s"):
        if duration_ms and duration_ms % _UNITS_MS[unit] == 0:
            return f"{duration_ms // _UNITS_MS[unit]}{unit}"
    return f"{duration_ms}ms"
