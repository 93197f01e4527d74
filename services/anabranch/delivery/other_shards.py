"""Facts that one shard of an output reads about the others: where all begin, and whether the number
of shards has changed unannounced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.delivery import read_back
from anabranch.ports import TopicPartition
from anabranch.protocol.edge.delivery import ALL_NUMBERS, had_another_number
from anabranch.protocol.edge.handover import unexpected_processes
from anabranch.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from anabranch.pipeline.model import Output, Pipeline
    from anabranch.ports import EventLog, LogAdmin
    from anabranch.protocol.control.records import DeliveryProgress


def check_partitions(admin: LogAdmin, output: Output, partitions: int) -> int:
    """Check that every shard has a partition of both topics. ``partitions`` is the number of the
    corrected topic's; return that of the topic of rejected results.

    Raises:
        ConfigurationError: a shard has no partition of one of them.
    """
    most = max(output.numbers)
    if partitions < most:
        raise ConfigurationError(
            f"output {output.name}: {most} shards, and each needs a partition of topic"
            f" {output.corrected.topic}, which has {partitions}: write shards: {partitions} at"
            " most, or deliver to a topic that has more"
        )
    rejected = admin.partitions([output.rejected])[output.rejected]
    if rejected < output.shards:
        raise ConfigurationError(
            f"output {output.name}: {output.shards} shards, and each needs a partition of topic"
            f" {output.rejected}, which has {rejected}: if it had another number when it ran"
            f" before, {ALL_NUMBERS}; then 'anabranch topics --create' gives that topic"
            f" {output.shards} partitions"
        )
    return rejected


def check_unknown_progress(
    log: EventLog, admin: LogAdmin, pipeline: Pipeline, output: Output
) -> None:
    """Check that no process has recorded progress that ``output`` has only with another number of
    shards.

    Raises:
        ConfigurationError: one has: the number of shards has changed.
    """
    names = pipeline.topic_names
    topics = {
        names.progress(each): each for each in unexpected_processes(output.name, output.numbers)
    }
    there = admin.partitions(list(topics))
    if not there:
        return
    reader = log.reader(committed=False, headers=False)
    try:
        for topic in sorted(there):
            first, end = reader.offsets(TopicPartition(topic, 0))
            if end > first:
                what = f"there is progress of {topics[topic]}"
                raise had_another_number(output.name, output.shards, what)
    finally:
        reader.close()


def beginning(
    log: EventLog, pipeline: Pipeline, output: Output, life: str, waiting: read_back.Waiting
) -> DeliveryProgress | None:
    """Return the first shard's record, in this ``life`` of the stream, of where all shards begin.
    None: there is none yet.
    """
    topic = pipeline.topic_names.progress(output.processes()[0])
    return read_back.last_progress(log, topic, output.name, life, waiting)
