"""Control topics of a pipeline, and the processes that write each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.pipeline.topic_names import TopicNames
from anabranch.protocol.control.failure_detector import (
    DELIVERY_SERVICE,
    MANAGER_SERVICE,
    REPLICA_SERVICE,
    STANDBY_SERVICE,
)
from anabranch.protocol.control.records import Speaker

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from anabranch.pipeline.model import Pipeline

_WITHOUT_CONTROL_TOPIC: Final = frozenset({MANAGER_SERVICE, "contract_broker", "agent"})
"""Services without a control topic. The manager has topics of its own; no process waits for the
contract broker or the agent, so none would read theirs.
"""


def control_topics(pipeline: Pipeline) -> dict[str, Speaker]:
    """Return the writers of all control topics, by topic: one topic for each replica and each other
    process, and for the reports of each node where the pipeline is scaled; the last two are the
    manager's.
    """
    found = {topic: speaker for _, _, topic, speaker in _processes(pipeline)}
    names = pipeline.topic_names
    found |= node_report_topics(pipeline)
    found[names.manager()] = Speaker(
        frozenset({(MANAGER_SERVICE, pipeline.name, "0")}),
        trims=True,
        logs={stream: names.boundaries(stream) for stream in pipeline.streams()},
    )
    return found | fence_topic(pipeline)


def stage_control_topics(pipeline: Pipeline, stage: str) -> dict[str, Speaker]:
    """Return the control topics of the processes that may run a replica of ``stage``."""
    return {
        topic: speaker
        for service, name, topic, speaker in _processes(pipeline)
        if (service, name) == (REPLICA_SERVICE, stage)
    }


def neighbour_control_topics(pipeline: Pipeline, stage: str) -> dict[str, Speaker]:
    """Return the control topics that a replica of ``stage`` reads: those of its peers, of the
    writers of its inputs, of the readers of its stream, which may request blocks of it, and of the
    manager.

    It ignores the other topics: nothing in them changes what it does, and each would wake it twice
    a second.
    """
    reads = pipeline.inputs(stage)
    names = pipeline.topic_names
    neighbours = {
        (REPLICA_SERVICE, stage),
        *((REPLICA_SERVICE if name in pipeline.stages else "ingestion", name) for name in reads),
        *((REPLICA_SERVICE, name) for name in pipeline.readers(stage)),
        *(("delivery", name) for name, of in pipeline.deliveries().items() if of.stage == stage),
    }
    found = {
        topic: speaker
        for service, name, topic, speaker in _processes(pipeline)
        if (service, name) in neighbours
    }
    found[names.manager()] = control_topics(pipeline)[names.manager()]
    return found | fence_topic(pipeline) | bound_control_topics(pipeline, reads)


def reader_control_topics(pipeline: Pipeline, source: str) -> dict[str, Speaker]:
    """Return the control topics of the processes that read the stream ``source`` of a source, which
    may request blocks of it.
    """
    readers = set(pipeline.readers(source))
    return {
        topic: speaker
        for service, name, topic, speaker in _processes(pipeline)
        if service == REPLICA_SERVICE and name in readers
    }


def _processes(pipeline: Pipeline) -> Iterator[tuple[str, str, str, Speaker]]:
    """Yield (service, name, topic, speaker) of each process with a control topic, except the
    manager. The name of a replica's process is its stage's.
    """
    names, nodes = pipeline.topic_names, pipeline.nodes()
    for service, name in pipeline.processes():
        if service == REPLICA_SERVICE:
            for label in nodes[name]:
                stage, _, process = label.rpartition(".")
                replicas = pipeline.stages[stage].replica_ids()
                replica = process if process in replicas else replicas[0]
                heartbeats = frozenset(
                    {(REPLICA_SERVICE, stage, replica), (STANDBY_SERVICE, stage, process)}
                )
                speaker = Speaker(
                    heartbeats,
                    f"{service}.{label}",
                    frozenset({(stage, replica)}),
                    logs={stage: names.boundaries(stage)},
                )
                yield service, stage, names.control(service, label), speaker
        elif service not in _WITHOUT_CONTROL_TOPIC:
            output = pipeline.deliveries().get(name) if service == DELIVERY_SERVICE else None
            stream = name if output is None else output.stage
            speaker = Speaker(
                frozenset({(service, name, "0")}),
                f"{service}.{name}",
                frozenset() if output is not None else frozenset({(name, "0")}),
                logs={name: names.boundaries(stream)},
            )
            yield service, name, names.control(service, name), speaker


def node_report_topics(pipeline: Pipeline) -> dict[str, Speaker]:
    """Return the topics on which nodes report their load; none where nothing scales."""
    return {
        pipeline.topic_names.node_reports(node): Speaker(frozenset(), reports=node)
        for node in pipeline.reporting_nodes()
    }


def fence_topic(pipeline: Pipeline) -> dict[str, Speaker]:
    """Return the topic of fences alone. It is the only control topic that a process reads from its
    beginning.
    """
    names = pipeline.topic_names
    logs = {stage: names.boundaries(stage) for stage in pipeline.stages}
    return {names.fences(): Speaker(frozenset(), fences=True, logs=logs)}


def bound_control_topics(
    pipeline: Pipeline, streams: Iterable[str], cluster: str = ""
) -> dict[str, Speaker]:
    """Return the control topics of other pipelines that replicas write of which this one reads a
    stream of ``streams`` on ``cluster``; empty: on its own cluster.
    """
    found = {}
    for binding in (pipeline.bindings[s] for s in streams if s in pipeline.bindings):
        if binding.cluster != cluster:
            continue
        for replica in binding.replica_ids():
            names = TopicNames(binding.pipeline)
            topic = names.control(REPLICA_SERVICE, f"{binding.stream}.{replica}")
            heartbeats = frozenset({(REPLICA_SERVICE, binding.stream, replica)})
            logs = {binding.stream: names.boundaries(binding.stream)}
            found[topic] = Speaker(heartbeats, known_as=binding.name, logs=logs)
    return found
