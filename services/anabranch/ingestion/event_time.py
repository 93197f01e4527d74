"""Event times from the timestamps of Kafka's records (IN17)."""

from __future__ import annotations

import numpy as np

from anabranch.codec.event_times import Timed, Times
from anabranch.protocol.limits import EVENT_TIME_MS_MAX


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


def from_producers(timestamps_ms: Times) -> Timed:
    """Return producers' timestamps as event times; rows without a usable one are bad."""
    usable = (timestamps_ms >= 1) & (timestamps_ms <= EVENT_TIME_MS_MAX)
    if usable.all():
        return Timed(timestamps_ms, None)
    return Timed(np.where(usable, timestamps_ms, 0), ~usable)
