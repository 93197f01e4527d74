"""Origins of the records in an output's topics: the output's own, and those of other outputs. Reads
them from the broker; ``protocol.edge.origins`` decides what follows.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from anabranch.ports import TopicPartition
from anabranch.protocol.edge.origins import Origin, other_outputs, shared_topic
from anabranch.streams.stream_life import life_of

if TYPE_CHECKING:
    from anabranch.pipeline.model import Output, Pipeline
    from anabranch.ports import EventLog


def own_origin(log: EventLog, pipeline: Pipeline, output: Output) -> Origin:
    """Return the origin of the records that ``output`` writes now.

    Raises:
        Unavailable: its stream has no boundary topic yet, or the broker does not answer.
    """
    life = life_of(log, pipeline.topic_names.boundaries(output.stage))
    return Origin(pipeline.name, output.name, life)


def refuse_shared(log: EventLog, own: Origin, topic: str, found: Collection[Origin]) -> None:
    """Refuse to begin on ``topic``, in which records of the origins ``found`` are (ON3).

    Another output whose progress was never recorded, or is deleted, cannot continue what it
    delivered, so it is no obstacle.

    Raises:
        ConfigurationError: one of the origins is another output that may still deliver.
        Unavailable: the broker does not answer.
    """
    for other in other_outputs(own, found):
        if _has_progress(log, other):
            raise shared_topic(own, topic, other)


def _has_progress(log: EventLog, other: Origin) -> bool:
    """Return whether any progress topic of ``other`` holds a record."""
    admin = log.admin()
    try:
        topics = [
            topic
            for topic in admin.named(f"{other.pipeline}.{other.output}.")
            if topic.endswith(".progress")
        ]
    finally:
        admin.close()
    reader = log.reader(committed=False, headers=False)
    try:
        offsets = [reader.offsets(TopicPartition(topic, 0)) for topic in topics]
    finally:
        reader.close()
    return any(end > start for start, end in offsets)
