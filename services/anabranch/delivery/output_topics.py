"""Creation and check of the topics that delivery writes: the users' and its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anabranch.codec.catalog import TopicSettings
from anabranch.pipeline.model import Sink
from anabranch.ports import LogAdmin
from anabranch.protocol.errors import ConfigurationError


def prepare(
    admin: LogAdmin, output: str, sink: Sink, topic: TopicSettings, ours: Sequence[TopicSettings]
) -> tuple[int, Mapping[str, str]]:
    """Create the missing topics. Sends no request for existing ones: on a broker with ACLs delivery
    may not create topics (``access.pipeline_acls``).

    Args:
        admin: Administration of the log.
        output: Name of the output, for messages.
        sink: The pipeline file's entry for the user's topic.
        topic: Settings with which the user's topic is created if it is missing.
        ours: Settings of the topics for delivery's progress and for rejected results.

    Returns:
        Number of partitions and settings of the user's topic.

    Raises:
        ConfigurationError: the user's topic has another number of partitions than the file says.
    """
    existing = admin.partitions([topic.name, *(settings.name for settings in ours)])
    admin.create([settings for settings in (*ours, topic) if settings.name not in existing])
    count = admin.partitions([topic.name])[topic.name]
    if sink.partitions is not None and sink.partitions != count:
        raise ConfigurationError(
            f"output {output}: topic {topic.name} has {count} partitions, but the pipeline"
            f" file says {sink.partitions}: correct the file, or change the topic"
        )
    return count, admin.settings(topic.name)
