"""Writer of rejected results: records larger than the output topic takes go unchanged to a topic of
their own, with the reason in headers; so do the notices of rows that were too large for the stage's
stream, or that the output cannot write (``codec.rejected_rows``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.delivery.notices import (
    DIGEST_HEADER,
    REASON_HEADER,
    TRUNCATED_HEADER,
    rejected_bytes,
)
from anabranch.ports import LogWriter, TopicPartition
from anabranch.protocol.errors import RecordTooLarge
from anabranch.protocol.limits import DEAD_LETTER_CUT_BYTES, DEAD_LETTER_CUT_MORE_BYTES

if TYPE_CHECKING:
    from anabranch.delivery.rendering import Records

TOPIC_HEADER: Final = "anabranch-topic"
"""Header: name of the topic that rejected the record."""


def check_no_notices(records: Records) -> None:
    """Check that ``records`` are results: a notice never goes to the output topic.

    Raises:
        RecordTooLarge: one is a notice.
    """
    if any(headers[-1][0] == DIGEST_HEADER for headers in records.headers):
        raise RecordTooLarge("a row was too large for the stage's stream, or cannot be written")


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
