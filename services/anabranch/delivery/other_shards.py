"""What one shard of an output needs to know of the others: where all begin, and whether the output
has as many shards as it had.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.delivery import read_back
from anabranch.ports import TopicPartition
from anabranch.protocol.edge.delivery import ALL_NUMBERS, had_another_number
from anabranch.protocol.edge.handover import strangers_of
from anabranch.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from anabranch.pipeline.model import Output, Pipeline
    from anabranch.ports import EventLog, LogAdmin
    from anabranch.protocol.control.records import DeliveryProgress


def check_partitions(admin: LogAdmin, output: Output, partitions: int) -> int:
    """How many partitions the topic of rejected results has. ``partitions``: of the corrected one.

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


def check_strangers(log: EventLog, admin: LogAdmin, pipeline: Pipeline, output: Output) -> None:
    """Raises ConfigurationError where there is progress of a process that ``output`` has not with
    its shards as they are.
    """
    names = pipeline.topic_names
    topics = {names.progress(each): each for each in strangers_of(output.name, output.numbers)}
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
    """Return what the first shard has recorded in the stream's ``life`` of where all begin; None:
    nothing yet.
    """
    topic = pipeline.topic_names.progress(output.processes()[0])
    return read_back.last_progress(log, topic, output.name, life, waiting)
