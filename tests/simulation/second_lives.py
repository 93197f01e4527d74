"""Deletion and creation of a pipeline's topics in the middle of a run. What lies elsewhere stays:
the disks of replicas, the index, and the topics that the fault spares.

The run is judged by its second life alone. What the first one left behind is there for the services
to mistake for their own.
"""

from __future__ import annotations

from typing import Final

from anabranch.adapters.memory.log import LocalEventLog
from anabranch.adapters.memory.partition import Record
from anabranch.pipeline.control_topics import control_topics
from anabranch.pipeline.model import Pipeline
from anabranch.ports import TopicPartition
from simulation.history import History
from simulation.network import Network
from simulation.options import Options
from simulation.pipeline_file import create_topics

ALL_BUT_INPUTS: Final = 0
"""A reset of another machine: all topics go but those that users write."""
STREAMS: Final = 1
"""Topics that a person deletes by hand: boundary logs, blocks and dead letters. Control topics,
progress and outputs stay.
"""
STOPPED_LATE_MS: Final = (200, 900, 1_600, 2_300, 3_000, 4_000)
"""When processes of the earlier life send heartbeats in the second one, in ms from its beginning.
"""
STREAMS_OF_STAGES: Final = 2
"""The same topics of stages alone. Sources continue."""


def delete(log: LocalEventLog, pipeline: Pipeline, options: Options, extent: int) -> list[str]:
    """Delete topics of the pipeline, then create those that ``anabranch up`` creates. Return the
    names of the deleted ones.
    """
    names = pipeline.topic_names
    inputs = {f"in.{source}" for source in options.sources}
    streams = [
        stream
        for stream in pipeline.streams()
        if extent == STREAMS or stream not in options.streams
    ]
    gone = {
        topic
        for stream in streams
        for topic in (
            names.boundaries(stream),
            *(names.blocks(stream, writer) for writer in pipeline.stream_writers(stream)),
        )
    }
    if extent == STREAMS:
        gone |= {f"{topic}.rejected" for topic in inputs}
    if extent == ALL_BUT_INPUTS:
        gone = {*log.topics} - inputs
    admin = log.admin()
    deleted = sorted(gone & {*log.topics})
    admin.delete_topics(deleted)
    create_topics(admin, pipeline, options)
    return deleted


def last_heartbeats(log: LocalEventLog, pipeline: Pipeline) -> list[tuple[TopicPartition, Record]]:
    """Return the newest record of each service's control topic, which is a heartbeat mostly."""
    partitions = [
        (at, log.partition(at))
        for topic, speaker in control_topics(pipeline).items()
        for at in [TopicPartition(topic, 0)]
        if not speaker.is_manager
    ]
    return [
        (at, partition.at(partition.end - 1))
        for at, partition in partitions
        if partition.end > partition.start
    ]


def forget(network: Network, history: History, topics: list[str]) -> None:
    """Forget what the checkers know of deleted topics, and what processes did before."""
    for known in (network.visible_ms, network.trimmed, network.spoilt):
        for place in [place for place in known if place[0] in topics]:
            del known[place]
    history.begin_anew(topics)
