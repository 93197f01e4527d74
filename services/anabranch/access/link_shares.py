"""Quotas by which the streams that cross a link share its rate (``protocol.control.link_shares``).

Kafka's quotas are rates, not weights, over ten seconds. A quota holds at each broker.

Only readers of blocks have a client id of their own (``KafkaSettings.of_stream``). These quotas
never delay boundary logs, heartbeats and questions to the broker: they are few bytes, and a process
that gets them late takes the other side for failed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from anabranch.pipeline.document import guess
from anabranch.pipeline.model import Pipeline
from anabranch.protocol.control.link_shares import least_share, shares_of
from anabranch.protocol.errors import ConfigurationError

_UNITS: Final = {"k": 1024, "m": 1024 * 1024, "g": 1024 * 1024 * 1024}
_RATE: Final = re.compile(r"([1-9][0-9]{0,5})([kmg])")
_WEIGHT: Final = re.compile(r"([^=]+)=([1-9][0-9]{0,3})")


@dataclass(frozen=True, slots=True)
class LinkShare:
    """Share of one stream in the link: the quota of the readers of its blocks."""

    client_id: str
    weight: int
    bytes_per_s: int


def link_shares(
    pipeline: Pipeline, cluster: str, rate: str, weights: Sequence[str]
) -> list[LinkShare]:
    """Return the shares of all streams that ``pipeline`` reads on a cluster, in the file's order.

    Args:
        pipeline: Pipeline whose processes read.
        cluster: Name of another owner's cluster; empty: the pipeline's own.
        rate: Bytes per second of the link, as ``40m``.
        weights: Weights as ``STREAM=N``; every other stream has 1.

    Raises:
        ConfigurationError: not a rate, not a weight, an unknown stream, or a share that is too
            small.
    """
    known = dict.fromkeys((*pipeline.streams(), *pipeline.bindings))
    streams = [stream for stream in known if pipeline.cluster_of(stream) == cluster]
    given = _weights(weights, streams)
    by_stream = {stream: given.get(stream, 1) for stream in streams}
    found = [
        LinkShare(pipeline.topic_names.block_reader_id(stream), by_stream[stream], bytes_per_s)
        for stream, bytes_per_s in shares_of(_bytes_per_s(rate), by_stream).items()
    ]
    least = least_share(pipeline.partitions)
    for share in found:
        if share.bytes_per_s < least:
            raise ConfigurationError(
                f"--link {rate}: {share.client_id} gets {share.bytes_per_s} bytes per second, and"
                f" one answer of the broker may have {least}: give the stream a larger weight, or"
                " let fewer streams cross the link"
            )
    return found


def _bytes_per_s(rate: str) -> int:
    found = _RATE.fullmatch(rate)
    if found is None:
        raise ConfigurationError(
            f"--link {rate!r} is no rate in bytes per second; write for example 800k, 40m or 1g"
        )
    return int(found[1]) * _UNITS[found[2]]


def _weights(weights: Sequence[str], streams: Sequence[str]) -> dict[str, int]:
    """Return the weight of each stream that has one."""
    found: dict[str, int] = {}
    for text in weights:
        match = _WEIGHT.fullmatch(text)
        if match is None:
            raise ConfigurationError(f"--weight {text!r}: write STREAM=N, N from 1 to 9999")
        stream = match[1]
        if stream not in streams:
            raise ConfigurationError(f"--weight {text}: {guess(stream, list(streams))}")
        if stream in found:
            raise ConfigurationError(f"--weight {text}: {stream} has a weight already")
        found[stream] = int(match[2])
    return found
