"""Reader of the catalogs of a federation's participants, and of the keys by which entries count."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing
from typing import Final

from anabranch.codec import federation_records
from anabranch.pipeline.topic_names import FederationTopics
from anabranch.ports import Chunk, EventLog
from anabranch.protocol.errors import RemoteProtocolError
from anabranch.protocol.federation.lookup import Lookup, RecordFormat
from anabranch.streams.key_reader import UNREADABLE, KeyReader, TopicLogs, is_dated

UNDATED: Final = "a topic without message.timestamp.type=LogAppendTime"
"""Reason why no entry counts in a catalog whose topic takes timestamps from the writer: it could
date entries back to before its key was revoked.
"""


def read_catalogs(
    log: EventLog, topics: FederationTopics, formats: Collection[RecordFormat]
) -> Lookup:
    """Read all present entries of the catalogs. ``formats``: the record formats that ``Lookup``
    compares.

    Raises:
        Unavailable: the broker does not answer, or no record arrives before a log's end.
    """
    with (
        closing(log.admin()) as admin,
        closing(KeyReader(log, topics)) as keys,
        # Each entry counts by itself: nothing follows from those that are deleted.
        closing(TopicLogs(log, wants_all=False)) as logs,
    ):
        lookup = Lookup(keys.keys, keys.verify, formats)
        found: dict[str, list[str]] = {"keys": [], "catalog": []}
        for topic in admin.named(f"{topics.federation}."):
            kind, participant = topics.owner_of(topic)
            if kind == "catalog" and not is_dated(admin, topic):
                lookup.reject(participant, UNDATED)
            elif kind in found:
                found[kind].append(topic)
        keys.follow(found["keys"])
        logs.add(found["catalog"])

        def poll(wait_ms: int) -> None:
            """Take the entries that are read next."""
            chunks = logs.fetch(wait_ms)
            if chunks:
                keys.read_to_end()  # entries may be signed by keys that are as new
            for chunk in chunks:
                _take(lookup, topics.owner_of(chunk.at.topic)[1], chunk)

        logs.read_to_end(poll)
        return lookup


def _take(lookup: Lookup, participant: str, chunk: Chunk) -> None:
    """Add the entries of ``chunk`` to ``lookup``."""
    for value, time_ms in zip(chunk.values, chunk.timestamps_ms, strict=True):
        try:
            entry, signature = federation_records.decode_catalog(value)
        except RemoteProtocolError:
            lookup.reject(participant, UNREADABLE)
        else:
            lookup.add(participant, entry, signature, time_ms)
