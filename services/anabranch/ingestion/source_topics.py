"""Check of a source's topics, once at start: existence, settings, number of partitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from anabranch.codec.catalog import BROKERS_OWN, topic_settings
from anabranch.codec.topic_rules import kept_ms, wrong_for_rejected
from anabranch.protocol.edge.handover import unexpected_processes
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.limits import MESSAGE_BYTES_DEFAULT, RECORD_BYTES_ON_BROKER_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anabranch.pipeline.model import Pipeline, Source
    from anabranch.ports import LogAdmin

DEAD_LETTER_ROOM_BYTES: Final = 64 * 1024
"""Size by which a dead-letter topic's record limit must exceed the input's, in bytes: room for the
headers with the reason, and for compression that works worse than the producer's.
"""


class InputError(ConfigurationError):
    """Raised when one of the user's input topics is missing or has wrong settings."""


@dataclass(frozen=True, slots=True)
class SourceTopics:
    """Facts about the topics of one source, as ``check`` found them on the broker."""

    inputs: dict[str, int]
    """Number of partitions of each input topic."""
    blocks: int
    """Number of partitions of the topic of blocks."""
    dead_letter: int
    """Number of partitions of the dead-letter topic."""
    unknown_streams: tuple[str, ...] = ()
    """Streams that the source would have with another number of shards, and whose log exists."""
    rejected_kept_ms: int | None = None
    """Retention of the dead-letter topic, in ms; None: unbounded."""


def check(admin: LogAdmin, pipeline: Pipeline, source: Source, stream: str) -> SourceTopics:
    """Check all topics that the writer of ``stream`` needs. Creates the dead-letter topic if it is
    missing.

    Raises:
        ConfigurationError: a topic is missing or has wrong settings; the text says how to mend it.
        InputError: an input topic is missing or has wrong settings.
        Unavailable: the broker did not answer.
    """
    names = pipeline.topic_names
    blocks = names.blocks(stream, "0")
    logs = [names.boundaries(each) for each in source.streams()]
    others = {
        names.boundaries(each): each for each in unexpected_processes(source.name, source.numbers)
    }
    found = admin.partitions([*source.topics, blocks, *logs, source.dead_letter, *others])
    missing = [topic for topic in source.topics if topic not in found]
    if missing:
        raise InputError(
            f"source {source.name}: topic {missing[0]} does not exist: create it, or correct its"
            " name under 'topics'"
        )
    missing = [topic for topic in (blocks, *logs) if topic not in found]
    if missing:
        raise ConfigurationError(
            f"source {source.name}: internal topic {missing[0]} does not exist: 'anabranch topics'"
            " creates it"
        )
    partitions = max(found[topic] for topic in source.topics)
    if partitions < max(source.numbers):
        raise InputError(
            f"source {source.name}: it has {max(source.numbers)} shards, but its topics have at"
            f" most {partitions} partitions, and a shard without one would never close a bucket:"
            f" write shards: {partitions}, or give {source.topics[0]} more partitions"
        )
    settings = {topic: admin.settings(topic) for topic in source.topics}
    _check_timestamps(source, settings)
    largest = max(
        int(values.get("max.message.bytes", MESSAGE_BYTES_DEFAULT)) for values in settings.values()
    )
    dead_letter = _dead_letter(admin, source, found, largest)
    return SourceTopics(
        {topic: found[topic] for topic in source.topics},
        found[blocks],
        dead_letter,
        tuple(name for topic, name in others.items() if topic in found),
        kept_ms(admin.settings(source.dead_letter)),
    )


def _check_timestamps(source: Source, settings: Mapping[str, Mapping[str, str]]) -> None:
    """Check that the timestamps of the input topics are of the clock that event times need."""
    rule = source.event_time
    if rule.field is not None:
        return
    wanted = "LogAppendTime" if rule.is_arrival else "CreateTime"
    for topic, values in settings.items():
        found = values.get("message.timestamp.type", "none" if rule.is_arrival else wanted)
        if found == wanted:
            continue
        if rule.is_arrival:
            raise InputError(
                f"source {source.name}: 'event_time: arrival' needs"
                f" message.timestamp.type=LogAppendTime on topic {topic}; it has {found}, the"
                " producer's clock: alter the topic, write event_time: {timestamp: create}, or name"
                " a time field"
            )
        raise InputError(
            f"source {source.name}: 'event_time: {{timestamp: create}}' needs"
            f" message.timestamp.type=CreateTime on topic {topic}; it has {found}, the broker's"
            " clock: alter the topic, or write event_time: arrival"
        )


def _dead_letter(admin: LogAdmin, source: Source, found: dict[str, int], largest: int) -> int:
    """Check the dead-letter topic, or create it, and return its number of partitions. ``largest``
    is the size limit of the input's records, in bytes.
    """
    topic = source.dead_letter
    # Larger dead letters are truncated, so the topic need not take more than this.
    needed = min(largest + DEAD_LETTER_ROOM_BYTES, RECORD_BYTES_ON_BROKER_MAX)
    if topic not in found:
        admin.create([topic_settings("dead_letters", topic, replication=BROKERS_OWN)])
        return admin.partitions([topic])[topic]
    applied = admin.settings(topic)
    if wrong := wrong_for_rejected(topic, applied):
        raise ConfigurationError(f"source {source.name}: dead-letter {wrong}")
    accepted = int(applied.get("max.message.bytes", MESSAGE_BYTES_DEFAULT))
    if accepted < needed:
        raise ConfigurationError(
            f"source {source.name}: dead-letter topic {topic} takes records of {accepted} bytes,"
            f" but the input has up to {largest}, and headers are added: set"
            f" max.message.bytes={needed} on {topic}"
        )
    return found[topic]
