"""Buckets: how event time is cut.

Theory of operation. Bucket ``n`` of a stream of bucket width ``w`` holds the rows with ``(n - 1) *
w < event_time <= n * w``. The *upper* bound belongs to the bucket, so that a window which ends at
the bound lies in the bucket that the bound closes. Bucket 0 holds ``event_time <= 0`` only at 0
itself; user time starts at 1 ms.

Invariants:
    BU1 every event time in [1, EVENT_TIME_MS_MAX] is in exactly one bucket, ``bucket_of``.
    BU2 ``bound_ms(bucket_of(s)) - width < s <= bound_ms(bucket_of(s))``.
    BU3 ``closed_by(low)`` is the last bucket that no row with ``event_time >= low`` can be in.
"""

from __future__ import annotations


def bucket_of(event_time_ms: int, width_ms: int) -> int:
    """The bucket that a tuple of ``event_time_ms`` is in."""
    return -(-event_time_ms // width_ms)


def bound_ms(bucket: int, width_ms: int) -> int:
    """The largest event time in ``bucket``, which is its boundary."""
    return bucket * width_ms


def closed_by(low_mark_ms: int, width_ms: int) -> int:
    """The last bucket that is complete when every later row has ``event_time >= low_mark_ms``
    (a row *at* the mark may still come).
    """
    return -(-low_mark_ms // width_ms) - 1


def buckets_of(span_ms: int, width_ms: int) -> int:
    """A span of time in whole buckets, rounded up."""
    return -(-span_ms // width_ms)
