"""Detection of event times that were read in a wrong unit, such as times in 1970 where seconds were
read as milliseconds.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

_UNITS: Final = ("ns", "us", "ms", "s")
"""Units of numbers, each a thousand times as long as the one before."""
_STEP: Final = 1_000
_USUAL_MS: Final = (946_684_800_000, 4_102_444_800_000)
"""Range of usual event times, the years 2000 to 2099, in ms. A time outside, which a power of a
thousand moves into the range, has the wrong unit. Simulated times that begin at 0 do not move into
it.
"""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def wrong_unit(time_ms: int, unit: str | None) -> str:
    """Return what is wrong with an event time if its unit is; empty: nothing is, or another thing.

    Args:
        time_ms: The event time, in ms, as it was read.
        unit: Unit in which it was read; None: its type tells.
    """
    if _is_usual(time_ms):
        return ""
    # Two steps up would take simulated times of the first hour for the present.
    meant = {1: time_ms * _STEP, **{-n: time_ms // _STEP**n for n in (1, 2, 3)}}
    usual = [steps for steps, each in meant.items() if _is_usual(each)]
    return _sentence(time_ms, unit, usual[0], meant[usual[0]]) if usual else ""


def _is_usual(time_ms: int) -> bool:
    first, end = _USUAL_MS
    return first <= time_ms < end


def _sentence(time_ms: int, unit: str | None, steps: int, meant_ms: int) -> str:
    read = f"event times are about {_shown(time_ms)}"
    if unit is None:
        return f"{read}: the producer writes another unit than the field's type says"
    place = _UNITS.index(unit) + steps
    if not 0 <= place < len(_UNITS):
        return f"{read}: {unit} is not the unit of the field"
    return f"{read}; with unit: {_UNITS[place]} they would be about {_shown(meant_ms)}"


def _shown(time_ms: int) -> str:
    """Return a time to the minute as text; the number itself beyond the calendar."""
    try:
        return (_EPOCH + timedelta(milliseconds=time_ms)).strftime("%Y-%m-%dT%H:%MZ")
    except OverflowError:
        return f"{time_ms} ms"
