"""Topics of a pipeline: the list of those it needs, and their creation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from anabranch.codec.catalog import BROKERS_OWN, TopicSettings, topic_settings
from anabranch.codec.topic_rules import differences, of_users
from anabranch.pipeline.internal_topics import internal_topics
from anabranch.pipeline.model import Pipeline
from anabranch.ports import EventLog, LogAdmin
from anabranch.protocol.errors import ConfigurationError, Unavailable

Owner = Literal["input", "output", "internal"]

_KEPT_FOR_EVER: Final = {"retention.ms": "-1"}
"""Setting of all topics on the embedded broker. Timestamps of records may be years old, and a
trial run must not lose them.
"""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that a pipeline needs."""

    kind: str
    owner: Owner
    """Owner of the topic's content: users write an ``input`` and read an ``output``; services alone
    use an ``internal`` topic.
    """
    settings: TopicSettings
    partitions_pinned: bool
    """Whether an existing topic with another number of partitions is an error."""


def topics_of(
    pipeline: Pipeline, *, replication: int | None = None, embedded: bool = False
) -> list[Topic]:
    """Return all topics of ``pipeline``, each name once.

    ``replication`` is the number of copies of each. None means one on the ``embedded`` broker, else
    the cluster's default.
    """
    found: dict[str, Topic] = {}
    copies = replication if replication is not None else 1 if embedded else BROKERS_OWN

    def add(
        kind: str,
        owner: Owner,
        name: str,
        partitions: int | None = None,
        *,
        pinned: bool = True,
        config: Mapping[str, str] | None = None,
    ) -> None:
        own = {**(_KEPT_FOR_EVER if embedded else {}), **(config or {})}
        settings = topic_settings(kind, name, partitions, copies, own)
        found.setdefault(name, Topic(kind, owner, settings, pinned))

    for source in pipeline.sources.values():
        for topic in source.topics:
            add(
                "arrivals" if source.event_time.is_arrival else "input",
                "input",
                topic,
                max(pipeline.partitions, source.shards),
                pinned=False,
                config=source.topic_config,
            )
    for source in pipeline.sources.values():
        add("dead_letters", "output", source.dead_letter, pinned=False)
    for kind, settings in internal_topics(pipeline, copies):
        found.setdefault(settings.name, Topic(kind, "internal", settings, partitions_pinned=True))
    for output in pipeline.outputs.values():
        # A key's partition depends on the number of partitions, so a number in the file is binding.
        add(
            "output",
            "output",
            output.corrected.topic,
            output.partitions_wanted(pipeline.partitions),
            pinned=output.corrected.partitions is not None,
            config=output.corrected.topic_config,
        )
        add("rejected", "output", output.rejected, output.shards, pinned=False)
        if output.live is not None:
            wanted = output.live.partitions
            kind = "live_upsert" if output.live.upsert else "live"
            add(
                kind,
                "output",
                output.live.topic,
                wanted or pipeline.partitions,
                pinned=wanted is not None,
                config=output.live.topic_config,
            )
    return list(found.values())


def prepare(
    log: EventLog, topics: Iterable[Topic], *, create_inputs: bool, say: Callable[[str], None]
) -> list[str]:
    """Create missing topics, and missing partitions for rejected results. Return the names of new
    topics. Passes ``say`` each setting of an existing topic that guarantees too little, with what
    to do.

    Raises:
        ConfigurationError: an input topic is missing and ``create_inputs`` is false, or a number of
            partitions is wrong.
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
                    f"input topic {wanted.name} does not exist on this broker; create it, or have"
                    f" its producer create it (kafka-topics.sh --create --topic {wanted.name}"
                    f" --partitions {wanted.partitions} ...)"
                )
            elif actual is not None and topic.partitions_pinned and actual != wanted.partitions:
                mistakes.append(
                    f"topic {wanted.name} has {actual} partitions, the pipeline needs"
                    f" {wanted.partitions}; write that number into the pipeline file, or delete the"
                    " topic and lose what is in it"
                )
        if mistakes:
            raise ConfigurationError("\n".join(mistakes))
        theirs = [
            topic.settings
            for topic in topics
            if topic.owner != "internal" and topic.settings.name in existing
        ]
        ours = [topic.settings for topic in topics if topic.settings not in theirs]
        for narrow in _too_narrow(topics, existing):
            admin.grow(narrow.name, narrow.partitions)
        for difference in [*admin.create(ours), *_of_users(admin, theirs, existing)]:
            say(f"note: {difference}")
    finally:
        admin.close()
    return [topic.settings.name for topic in topics if topic.settings.name not in existing]


def _too_narrow(topics: Iterable[Topic], existing: Mapping[str, int]) -> Iterator[TopicSettings]:
    """Yield the topics of rejected results that have fewer partitions than the output has
    shards.
    """
    for topic in topics:
        wanted = topic.settings
        if (
            topic.kind == "rejected"
            and existing.get(wanted.name, wanted.partitions) < wanted.partitions
        ):
            yield wanted


def _of_users(
    admin: LogAdmin, topics: Iterable[TopicSettings], existing: Mapping[str, int]
) -> Iterator[str]:
    """Yield a note for each setting of the users' existing ``topics`` that can lose records, and
    for each topic whose settings cannot be read.
    """
    for topic in topics:
        wanted = of_users(topic, existing[topic.name])
        try:
            applied = admin.settings(topic.name)
        except Unavailable as error:
            yield f"the settings of topic {topic.name} could not be read: {error}"
        else:
            yield from differences(wanted, wanted.partitions, None, applied)
