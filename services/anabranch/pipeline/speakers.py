"""The control topics of a pipeline, and who writes each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.pipeline.topic_names import TopicNames
from anabranch.protocol.control.failure_detector import MANAGER_SERVICE, REPLICA_SERVICE
from anabranch.protocol.control.speaking import Speaker
from anabranch.protocol.stage.standby import STANDBY_SERVICE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from anabranch.pipeline.model import Pipeline

_SILENT: Final = frozenset({MANAGER_SERVICE, "contract_broker", "agent"})
"""The manager has a topic of its own; nobody waits for the broker and the agent, so nobody
listens.
"""


def speakers(pipeline: Pipeline) -> dict[str, Speaker]:
    """By topic: one for each replica and each other process, the last one the manager's."""
    names = pipeline.topic_names
    found = {}
    nodes = pipeline.nodes()
    for service, name in pipeline.processes():
        if service == REPLICA_SERVICE:
            for label in nodes[name]:
                stage, _, process = label.rpartition(".")
                replicas = pipeline.stages[stage].replica_ids()
                replica = process if process in replicas else replicas[0]
                beats = frozenset(
                    {(REPLICA_SERVICE, stage, replica), (STANDBY_SERVICE, stage, process)}
                )
                found[names.control(service, label)] = Speaker(
                    beats, f"{service}.{label}", frozenset({(stage, replica)})
                )
        elif service not in _SILENT:
            found[names.control(service, name)] = Speaker(
                frozenset({(service, name, "0")}), f"{service}.{name}"
            )
    found[names.manager()] = Speaker(
        frozenset({(MANAGER_SERVICE, pipeline.name, "0")}), is_manager=True
    )
    return found


def bound_speakers(pipeline: Pipeline, streams: Iterable[str]) -> dict[str, Speaker]:
    """By topic of other pipelines: the replicas that make those of ``streams`` that are bound."""
    found = {}
    for binding in (pipeline.bindings[s] for s in streams if s in pipeline.bindings):
        for replica in binding.replica_ids():
            topic = TopicNames(binding.pipeline).control(
                REPLICA_SERVICE, f"{binding.stream}.{replica}"
            )
            beats = frozenset({(REPLICA_SERVICE, binding.stream, replica)})
            found[topic] = Speaker(beats, known_as=binding.name)
    return found
