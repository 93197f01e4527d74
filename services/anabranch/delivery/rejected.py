"""Writer of rejected results: records larger than the output topic takes go unchanged to a topic of
their own, with the reason in headers; so do the notices of rows that were too large for the stage's
stream (``codec.rejected_rows``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.ports import LogWriter, TopicPartition
from anabranch.protocol.errors import RecordTooLarge
from anabranch.protocol.limits import DEAD_LETTER_CUT_BYTES, DEAD_LETTER_CUT_MORE_BYTES

if TYPE_CHECKING:
    from anabranch.delivery.rendering import Records, Written

TOPIC_HEADER: Final = "anabranch-topic"
"""Header: name of the topic that rejected the record."""
REASON_HEADER: Final = "anabranch-reason"
"""Header: reason for the rejection."""
TRUNCATED_HEADER: Final = "anabranch-truncated"
"""Header of a truncated record: size of the whole record (key, value, headers) in bytes, or of the
row that was too large for the stream.
"""
DIGEST_HEADER: Final = "anabranch-row-digest"
"""Header: hash of the row that was too large for the stream, as hexadecimal digits. The last header
of a notice.
"""
ROW_TOO_LARGE: Final = b"row_too_large"
"""Reason: the stage's stream could not hold the row."""


def notice_headers(size_bytes: int, digest: str) -> Written:
    """Return the headers of the notice of a row that took ``size_bytes`` and has ``digest``."""
    return [
        (REASON_HEADER, ROW_TOO_LARGE),
        (TRUNCATED_HEADER, b"%d" % size_bytes),
        (DIGEST_HEADER, digest.encode()),
    ]


def rejected_bytes(headers: Written) -> int | None:
    """Return the size of the row in whose place a record with ``headers`` is, in bytes; None if
    the record is a result.
    """
    return int(dict(headers)[TRUNCATED_HEADER]) if headers[-1][0] == DIGEST_HEADER else None


def check_no_notices(records: Records) -> None:
    """Check that ``records`` are results: a notice never goes to the output topic.

    Raises:
        RecordTooLarge: one is a notice.
    """
    if any(headers[-1][0] == DIGEST_HEADER for headers in records.headers):
        raise RecordTooLarge("a row was too large for the stage's stream")


def send(
    writer: LogWriter, at: TopicPartition, rejected_by: str, records: Records, *, is_cut: bool
) -> None:
    """Send ``records``, which topic ``rejected_by`` rejected, to ``at``. With ``is_cut``, truncates
    key and value so that any topic takes them.
    """
    for key, value, headers, size in zip(
        records.keys, records.values, records.headers, records.sizes(), strict=True
    ):
        more = [(TOPIC_HEADER, rejected_by.encode())]
        if rejected_bytes(headers) is None:  # a notice has them
            more.append((REASON_HEADER, b"too_large"))
            if is_cut:
                more.append((TRUNCATED_HEADER, b"%d" % size))
        if is_cut:
            writer.send(
                at,
                value[:DEAD_LETTER_CUT_BYTES],
                key and key[:DEAD_LETTER_CUT_MORE_BYTES],
                [*headers, *more],
            )
        else:
            writer.send(at, value, key, [*headers, *more])
