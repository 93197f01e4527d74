"""Times in ISO 8601 as programs send them, by whole columns, for event times.

A text is a date and a time of day, with a zone: ``2026-05-01T14:00:00.25Z``. Programs also write
small letters or a space, ``14:00Z`` without seconds, ``+0200`` and ``+02``, a comma before the
fraction, and up to nine digits of it; they are all read. Digits beyond the millisecond are cut off,
never rounded up: a time must not come into a later bucket than the one it lies in.

A text without a zone is read only if the caller names one. Where clocks are put back, an hour comes
twice, and the first one is meant; what lies in the hour that is left out is no time.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_FORM: Final = (
    r"^(?P<day>[0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ](?P<minute>[0-9]{2}:[0-9]{2})"
    r"(?:(?P<second>:[0-9]{2})(?:[.,](?P<fraction>[0-9]{1,9}))?)?"
    r"(?P<zone>[Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)?$"
)
_QUARTER_S: Final = 900
"""Step in which zones' offsets are looked up, in s: within a quarter of an hour on the clock a zone
has one offset.
"""
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - what a clock on the wall shows
_NEVER: Final = np.iinfo(np.int64).min
"""Offset that stands for a time which the clocks of the zone never show."""


def milliseconds(texts: pa.Array, zone: tzinfo | None = None) -> pa.Array:
    """Return the ms since 1970 of each text; null for a null or a text that is no time. ``zone`` is
    that of texts without a zone of their own; with None such a text is no time.

    ``zone`` is that of texts which name none; None: they are no times.
    """
    parts = pc.extract_regex(texts, _FORM)
    day, minute, second, fraction, named = (
        pc.struct_field(parts, name) for name in ("day", "minute", "second", "fraction", "zone")
    )
    second = pc.if_else(pc.equal(second, ""), ":00", second)
    seconds = _clock_seconds(pc.binary_join_element_wise(day, "T", minute, second, ""))
    offsets = _offsets(seconds, named, zone)
    fraction = pc.utf8_slice_codeunits(pc.utf8_rpad(fraction, 3, "0"), 0, 3).cast(pa.int64())
    return pc.add(pc.multiply(pc.subtract(seconds, offsets), 1_000), fraction)


def clock_offsets(seconds: pa.Array, zone: tzinfo) -> pa.Array:
    """Return by how many seconds the clocks of ``zone`` are ahead of UTC when they show each of
    ``seconds`` since 1970; null where they never show it.
    """
    quarters = np.floor_divide(pc.fill_null(seconds, 0).to_numpy(), _QUARTER_S)
    unique, inverse = np.unique(quarters, return_inverse=True)
    own = np.fromiter((_offset_at(zone, int(each)) for each in unique), np.int64, len(unique))
    found = own[inverse]
    return pa.array(found, pa.int64(), mask=found == _NEVER)


def _clock_seconds(whole: pa.Array) -> pa.Array:
    """Return the seconds from 1970 to each date and time of day; null where there is no such date
    or time.
    """
    try:
        return whole.cast(pa.timestamp("s")).cast(pa.int64())
    except pa.ArrowInvalid:
        if len(whole) == 1:
            return pa.nulls(1, pa.int64())
        half = len(whole) // 2
        return pa.concat_arrays(
            [_clock_seconds(whole.slice(0, half)), _clock_seconds(whole.slice(half))]
        )


def _offsets(seconds: pa.Array, named: pa.Array, zone: tzinfo | None) -> pa.Array:
    """Return by how many seconds each text's clock is ahead of UTC; null where the text has no
    zone, or its clock never shows the time.
    """
    names = pc.dictionary_encode(pc.fill_null(named, "Z"))
    known = names.dictionary.to_pylist()
    offsets = pc.take(pa.array(map(_offset_of, known), pa.int64()), names.indices)
    if zone is None or "" not in known:
        return offsets
    is_nameless = pc.equal(pc.fill_null(named, "Z"), "")
    return pc.if_else(is_nameless, clock_offsets(seconds, zone), offsets)


def _offset_of(name: str) -> int | None:
    """Return by how many seconds a zone such as ``Z``, ``+02`` or ``-0530`` is ahead of UTC."""
    if name in ("Z", "z"):
        return 0
    hours, minutes = int(name[1:3] or 24), int(name[3:].lstrip(":") or 0)
    if hours >= 24 or minutes >= 60:
        return None
    return (1 if name[0] == "+" else -1) * (hours * 3_600 + minutes * 60)


def _offset_at(zone: tzinfo, quarter: int) -> int:
    """Return the s by which ``zone`` is ahead of UTC in a quarter of an hour on its clocks."""
    try:
        local = _EPOCH + timedelta(seconds=quarter * _QUARTER_S)
        aware = local.replace(tzinfo=zone)
        shown = aware.astimezone(UTC).astimezone(zone).replace(tzinfo=None)
    except OverflowError:
        return _NEVER
    offset: Any = aware.utcoffset()
    return int(offset.total_seconds()) if shown == local else _NEVER
