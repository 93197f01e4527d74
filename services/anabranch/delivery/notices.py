"""Headers of notices: records in the topic of rejected results that stand for rows which were too
large for the stage's stream (``codec.rejected_rows``), or which the output cannot write.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

REASON_HEADER: Final = "anabranch-reason"
"""Header: reason for the rejection."""
TRUNCATED_HEADER: Final = "anabranch-truncated"
"""Header of a truncated record: size of the whole record (key, value, headers) in bytes, or of the
row in whose place it is.
"""
DIGEST_HEADER: Final = "anabranch-row-digest"
"""Header: hash of the row in whose place a notice is, as hexadecimal digits. The last header of a
notice.
"""
ROW_TOO_LARGE: Final = b"row_too_large"
"""Reason: the stage's stream could not hold the row."""
NOT_WRITABLE: Final = b"not_writable"
"""Reason: a column of the row has no form in the output's format, or a key column is missing."""


def notice_headers(size_bytes: int, digest: str, reason: bytes) -> list[tuple[str, bytes]]:
    """Return the headers of the notice of a row that took ``size_bytes`` and has ``digest``."""
    return [
        (REASON_HEADER, reason),
        (TRUNCATED_HEADER, b"%d" % size_bytes),
        (DIGEST_HEADER, digest.encode()),
    ]


def is_counted(headers: Sequence[tuple[str, bytes]]) -> bool:
    """Return whether the stage has counted the row in whose place a record with ``headers`` is."""
    return headers[-1][0] == DIGEST_HEADER and dict(headers)[REASON_HEADER] == ROW_TOO_LARGE


def rejected_bytes(headers: Sequence[tuple[str, bytes]]) -> int | None:
    """Return the size of the row in whose place a record with ``headers`` is, in bytes; None if
    the record is a result.
    """
    return int(dict(headers)[TRUNCATED_HEADER]) if headers[-1][0] == DIGEST_HEADER else None
