"""Which node runs which replicas?

Theory of operation. A node is one process with one Spark application, which runs replicas of many stages (Borealis' and Medusa's node). Where the
pipeline file says nothing, replica i of each stage of participant P runs on node ``P.i``: all stages of a participant share one node, and what is
there twice is there on two nodes. The file may name nodes and what runs on them; what it does not name keeps its place. Processes of a passive
stage are placed like replicas.

Invariants:
    N1  Each replica has exactly one node.
    N2  No node has two replicas of one stage: a node takes along what runs on it when it dies.
    N3  The stages of a node have one participant.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PlacedStage:
    """What of a stage decides about its places."""

    name: str
    participant: str
    processes: tuple[str, ...]
    """Ids of its replicas, or of the processes that are one replica."""

    def labels(self) -> list[str]:
        """``STAGE.REPLICA`` of each."""
        return [f"{self.name}.{process}" for process in self.processes]


@dataclass(frozen=True, slots=True)
class Misplaced:
    """What is wrong with the place of a replica."""

    node: str
    label: str
    text: str


def place(stages: Sequence[PlacedStage], named: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """The replicas of each node as ``STAGE.REPLICA``, in the order of ``stages`` (N1).

    Args:
        stages: All of the pipeline, each after those that it reads.
        named: What the file says: replicas of each node, without mistakes (``misplaced``).
    """
    places = {label: node for node, labels in named.items() for label in labels}
    nodes: dict[str, list[str]] = {}
    for stage in stages:
        for process, label in zip(stage.processes, stage.labels(), strict=True):
            nodes.setdefault(places.get(label, f"{stage.participant}.{process}"), []).append(label)
    return nodes


def misplaced(stages: Sequence[PlacedStage], named: Mapping[str, Sequence[str]]) -> Iterator[Misplaced]:
    """What keeps ``named`` from being carried out."""
    owner = {label: stage for stage in stages for label in stage.labels()}
    seen: dict[str, str] = {}
    for node, labels in named.items():
        for label in labels:
            if label not in owner:
                yield Misplaced(node, label, f"there is no replica {label}; there are {', '.join(owner)}")
            elif label in seen:
                yield Misplaced(node, label, f"{label} is on node {seen[label]} already; a replica runs on one node")
            else:
                seen[label] = node
    whole = {node: [label for label in labels if label in owner] for node, labels in named.items()}
    for node, labels in place(stages, whole).items():
        first: dict[str, str] = {}
        for label in labels:
            stage = owner[label]
            if stage.name in first:
                text = (
                    f"{first[stage.name]} and {label} are replicas of one stage, which a node that dies would take along; use another node"
                )
                yield Misplaced(node, label, text)
            elif stage.participant != owner[labels[0]].participant:
                text = (
                    f"{label} is a stage of {stage.participant}, {labels[0]} of {owner[labels[0]].participant}; a node has one participant"
                )
                yield Misplaced(node, label, text)
            first.setdefault(stage.name, label)
