"""Which node runs which replicas?

Theory of operation. A node is one process with one Spark application, which runs replicas of many stages (Borealis' and Medusa's node). Where the
pipeline file says nothing, replica i of each stage of participant P runs on node ``P.i``: all stages of a participant share one node, and what is
there twice is there on two nodes. The file may name nodes and what runs on them; what it does not name keeps its place. Processes of a passive
stage are placed like replicas.

An operator moves a replica by a record in a log that every node reads. All log state it to the same places, so nobody hands anything out.
The node to which a replica comes lets it stand by beside the one that runs (``protocol.standby``). Once it is up to date it begins an
epoch, which ends the other one as a restart would have (rule 1). A node that is told to go on where a replica has left goes on until then,
and not again.

==============================  ==================================  =====================================================
what ended a replica here       the node has its place              the node has not
==============================  ==================================  =====================================================
it was fenced                   END_NODE: two have this name        GONE: it runs where its place is
anything else                   AGAIN, after a while                GONE: who has its place hears that it is silent
==============================  ==================================  =====================================================

Invariants:
    PC1 Each replica has exactly one node.
    PC2 No node has two replicas of one stage: a node takes along what runs on it when it dies.
    PC3 The stages of a node have one participant.
    PC4 Who has read the same records knows the same places. A move that would break PC1 to PC3 counts for nobody; nor does one to where the
        replica
        is: a move that is said twice is one move.
    PC5 Only the node that has a replica's place starts it. What runs elsewhere goes on until it ends, of whatever: so a move that cannot
        come to its end takes nothing away.
    PC6 A move is under way until the replica begins an epoch after the one that it had when the move was asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from anabranch.protocol.control import Move


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
    """The replicas of each node as ``STAGE.REPLICA``, in the order of ``stages`` (PC1). A node may have none.

    Args:
        stages: All of the pipeline, each after those that it reads.
        named: What the file says: replicas of each node, without mistakes (``misplaced``).
    """
    places = {label: node for node, labels in named.items() for label in labels}
    nodes: dict[str, list[str]] = {node: [] for node, labels in named.items() if not labels}
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
    owners = {stage.participant for stage in stages}
    for node, labels in place(stages, whole).items():
        if not named.get(node, [node]) and not labels and _owner_by_name(node) not in owners:
            text = f"it runs nothing, so its name says whose it is: call it PARTICIPANT.{node}, with one of {', '.join(sorted(owners))}"
            yield Misplaced(node, "", text)
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


def _owner_by_name(node: str) -> str:
    return node.partition(".")[0]


class Places:
    """Where replicas are, by the pipeline file and the moves since."""

    def __init__(self, stages: Sequence[PlacedStage], named: Mapping[str, Sequence[str]]) -> None:
        """As ``place`` has them, before any move."""
        self._stages = {label: stage for stage in stages for label in stage.labels()}
        nodes = place(stages, named)
        self._owners = {node: self._stages[labels[0]].participant if labels else _owner_by_name(node) for node, labels in nodes.items()}
        places = {label: node for node, labels in nodes.items() for label in labels}
        self._node = {label: places[label] for label in self._stages}
        self._moves: dict[str, Move] = {}
        self._from: dict[str, str] = {}

    def rejected(self, label: str, node: str) -> str:
        """Why the replica ``label`` cannot be moved to ``node``; empty: it can (PC1 to PC3)."""
        if label not in self._node:
            return f"there is no replica {label}; there are {', '.join(self._node)}"
        if node not in self._owners:
            return f"there is no node {node}; there are {', '.join(self._owners)}; the pipeline file names others under `nodes`"
        if self._node[label] == node:
            return f"{label} is on node {node}"
        stage = self._stages[label]
        if self._owners[node] != stage.participant:
            return f"{label} is a stage of {stage.participant}, node {node} is of {self._owners[node]}; a node has one participant"
        beside = next((each for each in stage.labels() if self._node[each] == node), None)
        if beside is not None:
            return f"node {node} has {beside}, and a node that dies would take both replicas along; move {beside} away first, or use another node"
        return ""

    def moved(self, move: Move) -> bool:
        """A record of the log, each in its turn; whether it counts (PC4)."""
        label = f"{move.stage}.{move.replica}"
        if self.rejected(label, move.node):
            return False
        self._from[label], self._node[label], self._moves[label] = self._node[label], move.node, move
        return True

    def owner_of(self, node: str) -> str:
        """The participant whose replicas may run on a node (PC3)."""
        return self._owners[node]

    def node_of(self, label: str) -> str:
        """The node that has the place of a replica."""
        return self._node[label]

    def of_node(self, node: str) -> list[str]:
        """The replicas that have their place on ``node``."""
        return [label for label, place in self._node.items() if place == node]

    def last_move(self, label: str) -> Move | None:
        """By which the replica came where its place is; None: it is where it was at first."""
        return self._moves.get(label)

    def came_from(self, label: str) -> str | None:
        """The place before the last move."""
        return self._from.get(label)

    def is_under_way(self, label: str, epoch: int) -> bool:
        """Whether the replica, whose newest epoch is ``epoch``, has yet to begin where its place is (PC6)."""
        move = self._moves.get(label)
        return move is not None and 0 <= epoch <= move.epoch


class AfterEnd(Enum):
    """What a node does about a replica that has ended."""

    AGAIN = auto()
    GONE = auto()
    END_NODE = auto()


def goes_on(*, has_begun: bool, is_passive: bool) -> bool:
    """Whether a replica that runs here, and has its place elsewhere by now, goes on (PC5): it has an epoch, which the other node is to end.

    A process of a passive stage need not: another one stands by.
    """
    return has_begun and not is_passive


def after_end(*, has_place: bool, is_fenced: bool) -> AfterEnd:
    """As the table says (PC5). ``has_place``: this node has the replica's place, by all that stands in the log now."""
    if not has_place:
        return AfterEnd.GONE
    return AfterEnd.END_NODE if is_fenced else AfterEnd.AGAIN
