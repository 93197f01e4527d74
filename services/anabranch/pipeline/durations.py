"""Durations as people write them in files (``250ms``, ``3s``, ``1m``, ``2h``): always with a unit,
parsed to whole milliseconds; and durations and times as commands show them.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

DURATION_MS_MAX: Final = 366 * 24 * 3_600_000
"""Longest duration, in ms: a year. A longer one is a typing mistake, and sums of durations stay far
from overflow.
"""

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_OTHER_NAMES: Final = (
    ("ms", "msec msecs millis millisecond milliseconds"),
    ("s", "sec secs second seconds"),
    ("m", "min mins minute minutes"),
    ("h", "hr hrs hour hours"),
    ("d", "day days"),
)
_UNIT_OF: Final = {name: unit for unit, names in _OTHER_NAMES for name in (unit, *names.split(" "))}
"""Unit by each name that people write for it, in lower case."""
_TEXT = re.compile(r"\s*([0-9]{1,15})(?:\.([0-9]{1,9}))?\s*([a-zA-Z]+)\s*\Z")


def parse_ms(value: object, low_ms: int = 0, high_ms: int | None = None) -> int:
    """Return the duration that ``value`` states, in ms, from ``low_ms`` to ``high_ms``.

    Raises:
        ValueError: ``value`` is no such duration; the message says how to write one.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        examples = " or ".join(
            f'"{text}"' for text in (f"{value}ms", f"{value}s") if _is_valid(text, low_ms, high_ms)
        )
        how = f"for example {examples}" if examples else f"a duration, {_bounds(low_ms, high_ms)}"
        raise ValueError(f"{value} has no unit; write {how}")
    match = _TEXT.match(value) if isinstance(value, str) else None
    if match is None:
        what = "an empty value" if value is None else repr(value)
        raise ValueError(
            f"{what} is not a duration; write a number and a unit, for example 250ms, 3s, 1m, 2h"
        )
    whole, fraction, unit = match.groups()
    if unit not in _UNITS_MS:
        meant = f"{value}"[: match.start(3)].strip() + _UNIT_OF.get(unit.lower(), "")
        raise ValueError(
            f"{value!r} has the unknown unit {unit!r}; "
            + (
                f"write {meant}"
                if unit.lower() in _UNIT_OF
                else f"use one of {', '.join(_UNITS_MS)}"
            )
        )
    scale = len(fraction or "")
    scaled: int = 10**scale
    milliseconds, rest = divmod(int(whole + (fraction or "")) * _UNITS_MS[unit], scaled)
    if rest:
        raise ValueError(f"{value!r} is not a whole number of milliseconds; write one")
    if milliseconds > DURATION_MS_MAX:
        raise ValueError(f"{value!r} is more than a year; write 366d or less")
    if milliseconds < low_ms or (high_ms is not None and milliseconds > high_ms):
        raise ValueError(f"{value!r} is out of range; use {_bounds(low_ms, high_ms)}")
    return milliseconds


def _is_valid(text: str, low_ms: int, high_ms: int | None) -> bool:
    """Return whether ``text`` is a duration from ``low_ms`` to ``high_ms``."""
    try:
        parse_ms(text, low_ms, high_ms)
    except ValueError:
        return False
    return True


def _bounds(low_ms: int, high_ms: int | None) -> str:
    """Return the bounds of a duration, for a message."""
    if high_ms is None:
        return f"at least {format_ms(low_ms)}"
    return f"from {format_ms(low_ms)} to {format_ms(high_ms)}"


def format_ms(duration_ms: int) -> str:
    """Return the shortest text that ``parse_ms`` reads back as ``duration_ms``."""
    for unit in ("d", "h", "m", "s"):
        if duration_ms and duration_ms % _UNITS_MS[unit] == 0:
            return f"{duration_ms // _UNITS_MS[unit]}{unit}"
    return f"{duration_ms}ms"


_READABLE: Final = ((1_000, 1, "ms"), (100_000, 1_000, "s"), (7_200_000, 60_000, "min"))
"""(duration in ms below which the unit is used, the unit in ms, the unit)."""
# From here on days are shown instead of hours.
_DAYS_FROM_MS: Final = 172_800_000
_SIMULATED_BELOW_MS: Final = 10**11
"""Event time in ms below which it is taken for simulated time, which counts from zero: on the clock
it would be in 1973 or earlier.
"""


def readable_ms(duration_ms: float) -> str:
    """Return a duration, rounded, in the unit that people would use: ``250 ms``, ``3.4 s``, ``12
    min``, ``7.5 h``, ``88 d``. The dashboard's page shows the same (``dashboard/assets/words.js``).
    """
    size_ms = abs(duration_ms)
    for below_ms, unit_ms, unit in _READABLE:
        if size_ms < below_ms:
            digits = 1 if unit == "s" else 0
            return f"{duration_ms / unit_ms:.{digits}f} {unit}"
    if size_ms < _DAYS_FROM_MS:
        return f"{duration_ms / _UNITS_MS['h']:.1f} h"
    return f"{duration_ms / _UNITS_MS['d']:.0f} d"


def time_in_words(moment_ms: object) -> str:
    """Return an event time as UTC to the millisecond. Simulated time is shown in seconds, anything
    that is no time as a dash.
    """
    if not isinstance(moment_ms, int):
        return "-"
    if moment_ms < _SIMULATED_BELOW_MS:
        return f"{moment_ms / 1_000:g} s"
    try:
        return datetime.fromtimestamp(moment_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    except (ValueError, OverflowError, OSError):
        return str(moment_ms)
