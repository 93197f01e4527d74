"""Results that are larger than the output topic takes: they go to a topic of their own, as
they are, and say why.
"""

from __future__ import annotations

from typing import Final

from anabranch.delivery.rendering import Records
from anabranch.ports import LogWriter, TopicPartition
from anabranch.protocol.limits import DEAD_LETTER_CUT_BYTES, DEAD_LETTER_CUT_MORE_BYTES

TOPIC_HEADER: Final = "anabranch-topic"
"""The topic that rejected it."""
REASON_HEADER: Final = "anabranch-reason"
TRUNCATED_HEADER: Final = "anabranch-truncated"
"""Of one that was cut: how many bytes key, value and headers of the whole result have."""


def send(
    writer: LogWriter, at: TopicPartition, rejected_by: str, records: Records, *, is_cut: bool
) -> None:
    """Queue ``records`` for ``at``, with their ids; with ``is_cut`` only so much of key
    and value as any topic takes.
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
