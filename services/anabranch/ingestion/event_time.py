"""Event time of whole columns: from a field of the record, or from the broker's timestamp."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.protocol.errors import RecordRejected, RejectionReason
from anabranch.protocol.limits import EVENT_TIME_MS_MAX

Times = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_PER_MS: Final = {"us": (1_000, 1), "ms": (1, 1), "s": (1, 1_000)}
"""Unit -> (divisor, factor) from the unit to ms."""


@dataclass(frozen=True, slots=True)
class Timed:
    """Event times of a table's rows."""

    event_time_ms: Times
    """Event time of each row, in ms; 0 for a row without a usable one."""
    bad: Mask | None
    """Mask of the rows without a usable event time; None if every row has one."""


def from_field(table: pa.Table, field: str, unit: str) -> Timed:
    """Return each row's event time, converted from column ``field``. ``unit`` is ``us`` for a
    timestamp column. Rounds integers down to ms, and floats to the nearest ms.
    """
    column = table.column(field)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    missing: Mask | None = None
    if column.null_count:
        missing = column.is_null().to_numpy()
        column = column.fill_null(0)
    values = column.to_numpy()
    if values.dtype.kind == "f":
        values = values.astype(np.float64, copy=False)
    divisor, factor = _PER_MS[unit]
    # Compared in the unit of the field, before any multiplication, which could overflow; NaN fails
    # both comparisons.
    usable: Mask = (values >= divisor / factor) & (
        values < (EVENT_TIME_MS_MAX + 1) * divisor // factor
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


def arrivals(timestamps_ms: Times, last_ms: int, ahead_above_ms: int) -> Times:
    """Return the arrival times, in ms, of consecutive records of one partition (IN17); 0 for those
    without a usable timestamp. ``last_ms`` is the arrival of the record before them; later
    timestamps than ``ahead_above_ms`` count as that.
    """
    usable = (timestamps_ms >= 1) & (timestamps_ms <= EVENT_TIME_MS_MAX)
    counted = np.where(usable, np.minimum(timestamps_ms, ahead_above_ms), 0)
    grown = np.maximum(np.maximum.accumulate(counted), last_ms)
    return grown if usable.all() else np.where(usable, grown, 0)


def from_arrivals(arrivals_ms: Times) -> Timed:
    """Return arrival times as event times; rows whose arrival is 0 are bad."""
    bad = arrivals_ms == 0
    return Timed(arrivals_ms, bad if bad.any() else None)


def unusable(value: object, name: str) -> RecordRejected:
    """Return the reason why ``value``, read from ``name``, cannot be an event time."""
    if value is None:
        return RecordRejected(
            RejectionReason.NO_EVENT_TIME, f"{name} is null: the record has no time"
        )
    if isinstance(value, float) and value != value:  # noqa: PLR0124 - NaN
        return RecordRejected(RejectionReason.NOT_FINITE, f"{name} is not a number")
    shown = value.isoformat() if isinstance(value, datetime) else repr(value)
    return RecordRejected(
        RejectionReason.OUT_OF_RANGE,
        f"{name} is {shown}: not between 1 ms after 1970 and the end of the year 9999",
    )
