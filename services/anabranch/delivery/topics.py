"""The topics that delivery writes: those for users, and that of its own progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anabranch.codec.catalog import TopicSettings
from anabranch.pipeline.model import Sink
from anabranch.ports import LogAdmin
from anabranch.protocol.errors import ConfigurationError


def prepare(
    admin: LogAdmin, output: str, sink: Sink, topic: TopicSettings, ours: Sequence[TopicSettings]
) -> tuple[int, Mapping[str, str]]:
    """Make what is missing. It does not try to create topics that are there: on a broker with ACLs
    delivery may not make topics (``pipeline.access``).

    Args:
        admin: Of the log.
        output: Its name, for messages.
        sink: What the pipeline file says of the user's topic.
        topic: The user's topic, as it is made if it is not there.
        ours: Where delivery keeps how far it is, and what the user's topic does not take.

    Returns:
        Partitions and settings of the user's topic.

    Raises:
        ConfigurationError: it has another number of partitions than the pipeline file says.
    """
    existing = admin.partitions([topic.name, *(settings.name for settings in ours)])
    admin.create([settings for settings in (*ours, topic) if settings.name not in existing])
    count = admin.partitions([topic.name])[topic.name]
    if sink.partitions is not None and sink.partitions != count:
        raise ConfigurationError(
            f"output {output}: topic {topic.name} has {count} partitions, the file says"
            f" {sink.partitions}"
        )
    return count, admin.settings(topic.name)
