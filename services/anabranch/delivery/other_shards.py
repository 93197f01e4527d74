"""What one shard of an output needs to know of the others: where all begin, and whether the output
has as many shards as it had.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.delivery import read_back
from anabranch.ports import TopicPartition
from anabranch.protocol.edge.shards import another_number, strangers
from anabranch.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from anabranch.pipeline.model import Output, Pipeline
    from anabranch.ports import EventLog, LogAdmin
    from anabranch.protocol.control.records import DeliveryProgress


def check_partitions(admin: LogAdmin, output: Output, partitions: int) -> None:
    """Raises ConfigurationError where a shard has no partition of a topic of ``output``, whose
    corrected one has ``partitions``.
    """
    if output.shards == 1:
        return
    needs = f"output {output.name}: it has {output.shards} shards, and each needs a partition of"
    if partitions < output.shards:
        raise ConfigurationError(
            f"{needs} topic {output.corrected.topic}, which has {partitions}: write shards:"
            f" {partitions} at most, or deliver to a topic that has more"
        )
    rejected = admin.partitions([output.rejected])[output.rejected]
    if rejected < output.shards:
        raise ConfigurationError(
            f"{needs} topic {output.rejected}, which has {rejected}: if the output had another"
            " number when it ran before, put that number of `shards` back; else give the topic"
            f" {output.shards} partitions"
        )


def check_strangers(log: EventLog, admin: LogAdmin, pipeline: Pipeline, output: Output) -> None:
    """Raises ConfigurationError where there is progress of a process that ``output`` has not with
    its shards as they are.
    """
    names = pipeline.topic_names
    topics = {names.progress(each): each for each in strangers(output.name, output.shards)}
    there = admin.partitions(list(topics))
    if not there:
        return
    reader = log.reader(committed=False, headers=False)
    try:
        for topic in sorted(there):
            first, end = reader.offsets(TopicPartition(topic, 0))
            if end > first:
                raise ConfigurationError(
                    f"{another_number(f'output {output.name}', output.shards)}: there is"
                    f" progress of {topics[topic]}: put that number of `shards` back, or"
                    " deliver to a new topic, under a new output name"
                )
    finally:
        reader.close()


def beginning(
    log: EventLog, pipeline: Pipeline, output: Output, waiting: read_back.Waiting
) -> DeliveryProgress | None:
    """What the first shard has recorded of where all begin; None: nothing yet."""
    topic = pipeline.topic_names.progress(output.processes()[0])
    return read_back.last_progress(log, topic, output.name, waiting)
