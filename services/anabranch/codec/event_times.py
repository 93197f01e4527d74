"""Event times of whole columns, in ms: from numbers in a unit, timestamps, or texts in ISO 8601."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.codec.iso_times import clock_offsets, milliseconds
from anabranch.codec.logical_types import zone_of
from anabranch.codec.time_units import wrong_unit
from anabranch.protocol.errors import RecordRejected, RejectionReason
from anabranch.protocol.limits import EVENT_TIME_MS_MAX

Times = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_PER_MS: Final = {"ns": (1_000_000, 1), "us": (1_000, 1), "ms": (1, 1), "s": (1, 1_000)}
"""Divisor and factor that convert each unit to ms."""
_LONG_MAX: Final = 2**63 - 1
_MICROS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Timed:
    """Event times of a table's rows."""

    event_time_ms: Times
    """Event time of each row, in ms; 0 for a row without a usable one."""
    bad: Mask | None
    """Mask of the rows without a usable event time; None if every row has one."""


def column_at(table: pa.Table, path: str) -> pa.ChunkedArray:
    """Return the column of the name ``path``, or of a part of a nested one: ``payload.ts_ms``."""
    if path in table.column_names:
        return table.column(path)
    name, *parts = path.split(".")
    return reduce(pc.struct_field, parts, table.column(name))


def times_of(column: pa.ChunkedArray, unit: str, zone: str | None = None) -> Timed:
    """Return the event time of each value.

    Integers, timestamps and texts are rounded down to ms, floats to the nearest ms.

    Args:
        column: Numbers, timestamps or texts.
        unit: Unit of numbers: ``s``, ``ms``, ``us`` or ``ns``. It is ``us`` for timestamps, and
            without meaning for texts.
        zone: Zone of timestamps and texts that have none; None: such a text has no event time.
    """
    if pa.types.is_string(column.type):
        texts = column.combine_chunks()
        column, unit = milliseconds(texts, None if zone is None else zone_of(zone)), "ms"
    elif pa.types.is_timestamp(column.type):
        has_zone = column.type.tz is not None
        column = column.cast(pa.int64())
        if not has_zone and zone is not None:
            column = _in_utc(column.combine_chunks(), zone)
    return _from_numbers(column, unit)


def _in_utc(micros: pa.Array, zone: str) -> pa.Array:
    """Return the microseconds since 1970 at which the clocks of ``zone`` show each of the times
    ``micros``.
    """
    seconds = np.floor_divide(pc.fill_null(micros, 0).to_numpy(), _MICROS)
    offsets = clock_offsets(pa.array(seconds), zone_of(zone))
    return pc.subtract(micros, pc.multiply(offsets, _MICROS))


def _from_numbers(column: Any, unit: str) -> Timed:
    missing: Mask | None = None
    if column.null_count:
        missing = np.asarray(column.is_null())
        column = column.fill_null(0)
    values = column.to_numpy()
    if values.dtype.kind == "f":
        values = values.astype(np.float64, copy=False)
    divisor, factor = _PER_MS[unit]
    # Compared in the unit of the field, before any multiplication, which could overflow; NaN fails
    # both comparisons.
    usable: Mask = (values >= divisor / factor) & (
        values < min((EVENT_TIME_MS_MAX + 1) * divisor // factor, _LONG_MAX)
    )
    if missing is not None:
        usable &= ~missing
    all_usable = bool(usable.all())
    if not all_usable:
        values = np.where(usable, values, 0)
    if values.dtype.kind == "f":
        event_time = np.minimum(
            np.rint(values * factor / divisor).astype(np.int64), EVENT_TIME_MS_MAX
        )
    else:
        event_time = values.astype(np.int64, copy=False)
        event_time = (
            event_time // divisor
            if divisor != 1
            else event_time * factor
            if factor != 1
            else event_time
        )
    return Timed(event_time, None if all_usable else ~usable)


def unusable(
    value: object, name: str, *, has_zone: bool = False, unit: str | None = None
) -> RecordRejected:
    """Return the reason why ``value``, read from ``name``, cannot be an event time.

    Args:
        value: Value from a record.
        name: Name of the value, for the message.
        has_zone: Whether texts may leave out their zone.
        unit: Unit of numbers; None: unknown.
    """
    if value is None:
        return RecordRejected(
            RejectionReason.NO_EVENT_TIME, f"{name} is null: the record has no time"
        )
    if isinstance(value, float) and value != value:  # noqa: PLR0124 - NaN
        return RecordRejected(RejectionReason.NOT_FINITE, f"{name} is not a number")
    if (
        isinstance(value, str)
        and milliseconds(pa.array([value]), zone_of("UTC"))[0].as_py() is None
    ):
        return RecordRejected(
            RejectionReason.WRONG_TYPE,
            f"{name} is {value[:_TEXT_MAX]!r}: no time such as 2026-05-01T14:00:00Z",
        )
    if (
        isinstance(value, str)
        and not has_zone
        and milliseconds(pa.array([value]))[0].as_py() is None
    ):
        return RecordRejected(
            RejectionReason.WRONG_TYPE,
            f"{name} is {value!r}, without a zone: name that of all such texts, event_time:"
            " {field: ..., zone: Europe/Berlin}",
        )
    shown = value.isoformat() if isinstance(value, datetime) else repr(value)
    hint = ""
    if unit is not None and isinstance(value, int | float) and math.isfinite(value):
        divisor, factor = _PER_MS[unit]
        hint = wrong_unit(int(value) * factor // divisor, unit)
    return RecordRejected(
        RejectionReason.OUT_OF_RANGE,
        f"{name} is {shown}: not between 1 ms after 1970 and the end of the year 9999"
        f"{'; ' if hint else ''}{hint}",
    )


_TEXT_MAX: Final = 60
"""Maximum length of a text that a message shows, in characters."""
