"""The internal topics of a pipeline with the settings that they must have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from anabranch.codec.catalog import BROKERS_OWN, TopicSettings, topic_settings
from anabranch.pipeline.control_topics import control_topics

if TYPE_CHECKING:
    from anabranch.pipeline.model import Pipeline


def internal_topics(
    pipeline: Pipeline, replication: int = BROKERS_OWN
) -> Iterator[tuple[str, TopicSettings]]:
    """Yield (kind, settings) of each internal topic: streams, control, alarms, progress.
    ``replication``: as of ``topic_settings``.
    """
    names = pipeline.topic_names
    for stream in pipeline.streams():
        yield (
            "boundaries",
            topic_settings("boundaries", names.boundaries(stream), replication=replication),
        )
        for replica in pipeline.stream_writers(stream):
            yield (
                "blocks",
                topic_settings(
                    "blocks", names.blocks(stream, replica), pipeline.partitions, replication
                ),
            )
    for topic, speaker in control_topics(pipeline).items():
        if not speaker.is_manager:
            yield "control", topic_settings("control", topic, replication=replication)
    yield "manager", topic_settings("manager", names.manager(), replication=replication)
    yield "fences", topic_settings("fences", names.fences(), replication=replication)
    yield "placement", topic_settings("placement", names.placement(), replication=replication)
    yield "alarms", topic_settings("alarms", names.alarms(), replication=replication)
    for output in pipeline.outputs.values():
        for process in (*output.earlier_processes(), *output.processes()):
            yield (
                "progress",
                topic_settings("progress", names.progress(process), replication=replication),
            )
        if output.live is not None:
            yield (
                "live_progress",
                topic_settings(
                    "live_progress", names.live_progress(output.name), replication=replication
                ),
            )
