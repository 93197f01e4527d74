"""Checks of a user's record before it is decoded, and the report of a rejected one.

Sizes are checked first, so that a decoder never sees more than RECORD_BYTES_MAX; nothing here reads
the value itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from anabranch.protocol.errors import RecordRejected, RejectionReason
from anabranch.protocol.limits import RECORD_BYTES_MAX

Rejected = list[tuple[int, RecordRejected]]


class Admission(NamedTuple):
    """Values that may be decoded, and the rejections of the others."""

    values: list[bytes]
    rows: list[int] | None
    """Indexes of the admitted values among all; None if all were admitted."""
    rejected: Rejected
    size_bytes: int
    """Total size of the values, the rejected ones included, in bytes."""


def rejection(value: bytes | None, bytes_max: int = RECORD_BYTES_MAX) -> RecordRejected | None:
    """Return why ``value`` must not be decoded; None if it may be."""
    if value is None:
        return RecordRejected(RejectionReason.NULL_VALUE, "the record has no value")
    if not value:
        return RecordRejected(RejectionReason.EMPTY_VALUE, "the record's value is empty")
    if len(value) > bytes_max:
        return RecordRejected(
            RejectionReason.TOO_LARGE,
            f"the record has {len(value)} bytes; at most {bytes_max} are allowed (max_record)",
        )
    return None


def admit(values: Sequence[bytes | None], bytes_max: int = RECORD_BYTES_MAX) -> Admission:
    """Sort ``values`` by size alone into those that may be decoded and rejections."""
    try:
        lengths = np.fromiter(map(len, values), np.int64, len(values))  # type: ignore[arg-type]
    except TypeError:
        lengths = np.fromiter((len(value or b"") for value in values), np.int64, len(values))
    size_bytes = int(lengths.sum())
    if not len(lengths) or (lengths.min() > 0 and lengths.max() <= bytes_max):
        return Admission(list(values), None, [], size_bytes)  # type: ignore[arg-type]
    admitted: list[bytes] = []
    rows: list[int] = []
    rejected: Rejected = []
    for index, value in enumerate(values):
        error = rejection(value, bytes_max)
        if error is None:
            admitted.append(value)  # type: ignore[arg-type]
            rows.append(index)
        else:
            rejected.append((index, error))
    return Admission(admitted, rows, rejected, size_bytes)
