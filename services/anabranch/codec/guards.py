"""What is looked at before a user's record is decoded, and how a refused one is told about.

Sizes are checked first, so that a decoder never sees more than RECORD_BYTES_MAX; nothing here reads the value itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.protocol.errors import RecordRejected, RejectionReason
from anabranch.protocol.limits import RECORD_BYTES_MAX

Rejected = list[tuple[int, RecordRejected]]


def refusal(value: bytes | None) -> RecordRejected | None:
    """Why ``value`` is not decoded at all; None: it may be."""
    if value is None:
        return RecordRejected(RejectionReason.NULL_VALUE, "the record has no value")
    if not value:
        return RecordRejected(RejectionReason.EMPTY_VALUE, "the record's value is empty")
    if len(value) > RECORD_BYTES_MAX:
        return RecordRejected(RejectionReason.TOO_LARGE, f"the record has {len(value)} bytes; at most {RECORD_BYTES_MAX} are allowed")
    return None


def admit(values: Sequence[bytes | None]) -> tuple[list[bytes], list[int] | None, Rejected]:
    """The values that may be decoded, their indexes (None: all), and the others with the reason."""
    try:
        lengths = list(map(len, values))  # type: ignore[arg-type]
    except TypeError:
        lengths = [0]
    if not lengths or (min(lengths) > 0 and max(lengths) <= RECORD_BYTES_MAX):
        return list(values), None, []  # type: ignore[arg-type]
    admitted: list[bytes] = []
    rows: list[int] = []
    rejected: Rejected = []
    for index, value in enumerate(values):
        error = refusal(value)
        if error is None:
            admitted.append(value)  # type: ignore[arg-type]
            rows.append(index)
        else:
            rejected.append((index, error))
    return admitted, rows, rejected
