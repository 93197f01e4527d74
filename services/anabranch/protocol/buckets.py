"""Buckets: how serialisation time is cut.

Theory of operation. Bucket ``n`` of a stream of bucket width ``w`` holds the tuples with ``(n - 1) * w < stime <= n * w``. The *upper*
bound belongs to the bucket, so that a window which ends at the bound lies in the bucket that the bound closes. Bucket 0 holds
``stime <= 0`` only at 0 itself; user time starts at 1 ms.

Invariants:
    B1  every stime in [1, STIME_MS_MAX] is in exactly one bucket, ``bucket_of``.
    B2  ``bound_ms(bucket_of(s)) - width < s <= bound_ms(bucket_of(s))``.
    B3  ``closed_by(low)`` is the last bucket that no tuple with ``stime >= low`` can be in.
"""

from __future__ import annotations


def bucket_of(stime_ms: int, width_ms: int) -> int:
    """The bucket that a tuple of ``stime_ms`` is in."""
    return -(-stime_ms // width_ms)


def bound_ms(bucket: int, width_ms: int) -> int:
    """The largest stime in ``bucket``, which is its boundary."""
    return bucket * width_ms


def closed_by(low_mark_ms: int, width_ms: int) -> int:
    """The last bucket that is complete when every later tuple has ``stime >= low_mark_ms`` (a tuple *at* the mark may still come)."""
    return -(-low_mark_ms // width_ms) - 1
