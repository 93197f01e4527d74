"""The control topics of a pipeline, and who writes each."""

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

_SILENT: Final = frozenset({MANAGER_SERVICE, "contract_broker", "agent"})
"""The manager has topics of its own; nobody waits for the broker and the agent, so nobody
listens.
"""


def speakers(pipeline: Pipeline) -> dict[str, Speaker]:
    """By topic: one for each replica and each other process, the last two the manager's."""
    found = {topic: speaker for _, _, topic, speaker in _processes(pipeline)}
    names = pipeline.topic_names
    found[names.manager()] = Speaker(
        frozenset({(MANAGER_SERVICE, pipeline.name, "0")}),
        trims=True,
        logs={stream: names.boundaries(stream) for stream in pipeline.streams()},
    )
    return found | fence_speakers(pipeline)


def stage_speakers(pipeline: Pipeline, stage: str) -> dict[str, Speaker]:
    """By topic: the processes that may run a replica of ``stage``."""
    return {
        topic: speaker
        for service, name, topic, speaker in _processes(pipeline)
        if (service, name) == (REPLICA_SERVICE, stage)
    }


def neighbours_of(pipeline: Pipeline, stage: str) -> dict[str, Speaker]:
    """By topic: whom a replica of ``stage`` needs to hear. These are its peers, who makes its
    inputs, who reads its stream and may ask for blocks of it, and the manager.

    The others' words change nothing for it, and each of them would wake it twice a second.
    """
    reads = pipeline.inputs(stage)
    names = pipeline.topic_names
    near = {
        (REPLICA_SERVICE, stage),
        *((REPLICA_SERVICE if name in pipeline.stages else "ingestion", name) for name in reads),
        *((REPLICA_SERVICE, name) for name in pipeline.readers(stage)),
        *(("delivery", name) for name, of in pipeline.deliveries().items() if of.stage == stage),
    }
    found = {
        topic: speaker
        for service, name, topic, speaker in _processes(pipeline)
        if (service, name) in near
    }
    found[names.manager()] = speakers(pipeline)[names.manager()]
    return found | fence_speakers(pipeline) | bound_speakers(pipeline, reads)


def _processes(pipeline: Pipeline) -> Iterator[tuple[str, str, str, Speaker]]:
    """(service, name, topic, speaker) of each process that others listen to, but the manager; the
    name of a replica's process is its stage's.
    """
    names, nodes = pipeline.topic_names, pipeline.nodes()
    for service, name in pipeline.processes():
        if service == REPLICA_SERVICE:
            for label in nodes[name]:
                stage, _, process = label.rpartition(".")
                replicas = pipeline.stages[stage].replica_ids()
                replica = process if process in replicas else replicas[0]
                beats = frozenset(
                    {(REPLICA_SERVICE, stage, replica), (STANDBY_SERVICE, stage, process)}
                )
                speaker = Speaker(
                    beats,
                    f"{service}.{label}",
                    frozenset({(stage, replica)}),
                    logs={stage: names.boundaries(stage)},
                )
                yield service, stage, names.control(service, label), speaker
        elif service not in _SILENT:
            output = pipeline.deliveries().get(name) if service == DELIVERY_SERVICE else None
            stream = name if output is None else output.stage
            speaker = Speaker(
                frozenset({(service, name, "0")}),
                f"{service}.{name}",
                logs={name: names.boundaries(stream)},
            )
            yield service, name, names.control(service, name), speaker


def fence_speakers(pipeline: Pipeline) -> dict[str, Speaker]:
    """The topic of fences alone, which is all that a process reads from its beginning."""
    names = pipeline.topic_names
    logs = {stage: names.boundaries(stage) for stage in pipeline.stages}
    return {names.fences(): Speaker(frozenset(), fences=True, logs=logs)}


def bound_speakers(
    pipeline: Pipeline, streams: Iterable[str], cluster: str = ""
) -> dict[str, Speaker]:
    """By topic of other pipelines: the replicas that make those of ``streams`` that are bound, and
    on ``cluster``; empty: on the own one.
    """
    found = {}
    for binding in (pipeline.bindings[s] for s in streams if s in pipeline.bindings):
        if binding.cluster != cluster:
            continue
        for replica in binding.replica_ids():
            names = TopicNames(binding.pipeline)
            topic = names.control(REPLICA_SERVICE, f"{binding.stream}.{replica}")
            beats = frozenset({(REPLICA_SERVICE, binding.stream, replica)})
            logs = {binding.stream: names.boundaries(binding.stream)}
            found[topic] = Speaker(beats, known_as=binding.name, logs=logs)
    return found
