"""Shares of a link: the rates that the streams which cross it get.

Theory of operation. A broker delays its answers to a client that has fetched more than its rate
over the last seconds. So the rate of the link is divided by weights once and for all, and no stream
can use what another one leaves. Each answer of a broker may have up to RANGE_PARTITION_BYTES of
each partition. A stream with less than one answer a second would wait for seconds in every batch,
so such a share is none.

Invariants:
    LI1 the shares together are no more than the rate of the link, and less by fewer bytes than
        there are streams.
    LI2 a stream with a larger weight gets no less than another, and one with an equal weight gets
        as much; a share is its weight's part of the rate, to the byte.
    LI3 a share is enough for an answer a second, or the link is not divided.
"""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.protocol.limits import RANGE_PARTITION_BYTES


def shares_of(bytes_per_s: int, weights: Mapping[str, int]) -> dict[str, int]:
    """Return the rate of each stream in bytes per second, by its weight (LI1, LI2).

    Args:
        bytes_per_s: Rate of the link.
        weights: Weight of each stream, at least 1.
    """
    total = sum(weights.values())
    return {stream: bytes_per_s * weight // total for stream, weight in weights.items()}


def least_share(partitions: int) -> int:
    """Return the smallest share of a stream of so many ``partitions``, in bytes a second (LI3)."""
    return partitions * RANGE_PARTITION_BYTES
