"""Writer of rejected results: records larger than the output topic takes go unchanged to a topic of
their own, with the reason in headers.
"""

from __future__ import annotations

from typing import Final

from anabranch.delivery.rendering import Records
from anabranch.ports import LogWriter, TopicPartition
from anabranch.protocol.limits import DEAD_LETTER_CUT_BYTES, DEAD_LETTER_CUT_MORE_BYTES

TOPIC_HEADER: Final = "anabranch-topic"
"""Header: name of the topic that rejected the record."""
REASON_HEADER: Final = "anabranch-reason"
"""Header: reason for the rejection."""
TRUNCATED_HEADER: Final = "anabranch-truncated"
"""Header of a truncated record: size of the whole record (key, value, headers), in bytes."""


def send(
    writer: LogWriter, at: TopicPartition, rejected_by: str, records: Records, *, is_cut: bool
) -> None:
    """Send ``records``, which topic ``rejected_by`` rejected, to ``at``. With ``is_cut``, truncates
    key and value so that any topic takes them.
    """
    for key, value, headers, size in zip(
        records.keys, records.values, records.headers, records.sizes(), strict=True
    ):
        more = [(TOPIC_HEADER, rejected_by.encode()), (REASON_HEADER, b"too_large")]
        if is_cut:
            more.append((TRUNCATED_HEADER, b"%d" % size))
            writer.send(
                at,
                value[:DEAD_LETTER_CUT_BYTES],
                key and key[:DEAD_LETTER_CUT_MORE_BYTES],
                [*headers, *more],
            )
        else:
            writer.send(at, value, key, [*headers, *more])
