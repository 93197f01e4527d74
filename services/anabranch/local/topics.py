"""The topics of a pipeline: which there must be, and making them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Literal

from anabranch.codec.catalog import TopicSettings, topic_settings
from anabranch.pipeline.model import Pipeline
from anabranch.ports import EventLog
from anabranch.protocol.errors import ConfigurationError

Owner = Literal["input", "output", "internal"]

_KEPT_FOR_EVER: Final = {"retention.ms": "-1"}
"""On the embedded broker: the records' own times may be years ago, and a try-out must not lose them."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic, and whose it is: ``input`` the user writes, ``output`` the user reads. ``partitions_pinned``: another number is an error."""

    kind: str
    owner: Owner
    settings: TopicSettings
    partitions_pinned: bool


def topics_of(pipeline: Pipeline, *, replication: int = 1, embedded: bool = False) -> list[Topic]:
    """All topics of ``pipeline``; inputs, then internal ones, then outputs. Each name once."""
    found: dict[str, Topic] = {}

    def add(kind: str, owner: Owner, name: str, partitions: int | None = None, *, pinned: bool = True) -> None:
        kept = _KEPT_FOR_EVER if embedded and owner != "internal" else {}
        settings = topic_settings(kind, name, partitions, replication, kept)
        found.setdefault(name, Topic(kind, owner, settings, pinned))

    names = pipeline.topic_names
    for source in pipeline.sources.values():
        for topic in source.topics:
            add("arrivals" if source.stime.field is None else "input", "input", topic, pipeline.partitions, pinned=False)
    for source in pipeline.sources.values():
        add("dead_letters", "output", source.dead_letter, pinned=False)
    for stream in pipeline.streams():
        add("boundaries", "internal", names.boundaries(stream))
        for replica in pipeline.stream_writers(stream):
            add("blocks", "internal", names.blocks(stream, replica), pipeline.partitions)
    add("control", "internal", names.control())
    add("alarms", "internal", names.alarms())
    for output in pipeline.outputs.values():
        add("progress", "internal", names.progress(output.name))
        # Where a key goes depends on the number of partitions, so a number in the file is binding.
        wanted = output.corrected.partitions
        add("output", "output", output.corrected.topic, wanted or pipeline.partitions, pinned=wanted is not None)
        if output.live is not None:
            wanted = output.live.partitions
            add("live_progress", "internal", names.live_progress(output.name))
            kind = "live_upsert" if output.live.upsert else "live"
            add(kind, "output", output.live.topic, wanted or pipeline.partitions, pinned=wanted is not None)
    return list(found.values())


def prepare(log: EventLog, topics: Iterable[Topic], *, create_inputs: bool, say: Callable[[str], None]) -> list[str]:
    """Create the topics that are missing; their names. What differs on existing ones without harm is said.

    Raises:
        ConfigurationError: an input topic is missing and ``create_inputs`` is false, or a number of partitions is wrong.
        Unavailable: the broker does not answer.
    """
    topics = list(topics)
    admin = log.admin()
    try:
        existing = admin.partitions([topic.settings.name for topic in topics])
        mistakes = []
        for topic in topics:
            wanted = topic.settings
            actual = existing.get(wanted.name)
            if actual is None and topic.owner == "input" and not create_inputs:
                mistakes.append(
                    f"input topic {wanted.name} does not exist on this broker; create it, or have its producer create it "
                    f"(kafka-topics.sh --create --topic {wanted.name} --partitions {wanted.partitions} ...)"
                )
            elif actual is not None and topic.partitions_pinned and actual != wanted.partitions:
                mistakes.append(
                    f"topic {wanted.name} has {actual} partitions, the pipeline needs {wanted.partitions}; "
                    f"write that number into the pipeline file, or delete the topic and lose what is in it"
                )
        if mistakes:
            raise ConfigurationError("\n".join(mistakes))
        # Settings of users' existing topics are the users' business; services check what they rely on.
        ours = [topic.settings for topic in topics if topic.owner == "internal" or topic.settings.name not in existing]
        for difference in admin.create(ours):
            say(f"note: {difference}")
    finally:
        admin.close()
    return [topic.settings.name for topic in topics if topic.settings.name not in existing]
