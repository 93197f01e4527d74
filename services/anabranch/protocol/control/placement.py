"""Placement of replicas on nodes, and when a replica or process that has ended is started
again.

Theory of operation. A node is one process with one Spark application, which runs replicas of many
stages (Borealis' and Medusa's node). By default, replica i of each stage of participant P runs on
node ``P.i``: all stages of a participant share one node, and a second replica is on a second node.
The file may name nodes and what runs on them; a replica that it does not name keeps its default
place. Processes of a passive stage are placed like replicas.

An operator or an agent moves a replica by a record in a log that every node reads. All nodes
compute the same places from it, so no process assigns anything. A *partner's node* is a node of the
pipeline that another participant runs, under a contract (``protocol.federation``): the file places
nothing there, and only the stages that it names may be moved there.

A replica's boundary log says which node runs it: the node on which its newest epoch began. The
node to which it is moved lets it stand by beside that one (``protocol.stage.standby``). Once it is
up to date it begins an epoch, which ends the other one as a restart would have (rule 1). So these
two logs are the whole state of a move, and either node may die at any point of it.

What a node does about a replica that has ended is the table ``AFTER_END``; nothing else is
remembered of it.

Anything that ends may be started again, since all that matters is in Kafka and in checkpoints. What
ends soon after its start waits longer each time, so that one that cannot run costs little; one that
ran for a while starts again after the first delay (``Backoff``). The processes that a supervisor
starts wait by the same rule.

All stages of a node share its engine, and one that takes all memory ends it for the others, again
and again. After one crash no single replica can be blamed, because several had a batch running.
After the second, only the replicas that ran both times are suspects.

Invariants:
    PC1 Each replica has exactly one node.
    PC2 No node has two replicas of one stage: a node takes along what runs on it when it dies.
    PC3 The stages of a node have one participant. On a partner's node run those that the file lets
        go there, and no others.
    PC4 Nodes that have read the same records know the same places. A move that would break PC1 to
        PC3 has no effect; nor has one to where the replica is: a move that is written twice is one
        move.
    PC5 A node starts a replica that has its place there, or that began its newest epoch there: so a
        move that cannot come to its end takes nothing away. One that was removed, and a process of
        a passive stage, for which another one stands by, ends where its place is no more.
    PC6 A move is under way until the replica begins an epoch where its place is, or until it is
        withdrawn: by a record that moves it to where it runs, with the reason. The node that it
        leaves may withdraw it; an agent does if that node or the new one is a partner's.
    PC7 A move that names the node from which it moves the replica counts only while that node has
        the place. So of two processes that decide from the same places, only one changes them.
    PC8 A process uses its right to begin an epoch just before it appends the record. A node that
        lets a replica go by the end of its log withdraws that right first. Only the first of the
        two succeeds, so no process is stopped that begins just then. The node decides again when
        it has read the record (PC5); or a newer epoch of another node fences the process.
    PC9 A node begins a replica without a look at whether another one runs it only if the log of
        moves never named the replica, and only once: a replica that ends may have been fenced.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from anabranch.protocol.control.records import Move


@dataclass(frozen=True, slots=True)
class PlacedStage:
    """Properties of a stage that decide about its places."""

    name: str
    participant: str
    processes: tuple[str, ...]
    """Ids of its replicas, or of the processes that are one replica."""

    parent: str = ""
    """Stage beside whose replicas its own are placed, where the file does not name them; empty:
    none.
    """

    def labels(self) -> list[str]:
        """Return the label ``STAGE.REPLICA`` of each replica."""
        return [f"{self.name}.{process}" for process in self.processes]


@dataclass(frozen=True, slots=True)
class Misplaced:
    """Defect in the place of a replica."""

    node: str
    label: str
    text: str


def place(
    stages: Sequence[PlacedStage], named: Mapping[str, Sequence[str]]
) -> dict[str, list[str]]:
    """Return the replicas of each node as ``STAGE.REPLICA``, in the order of ``stages`` (PC1). A
    node may have none.

    Args:
        stages: All stages of the pipeline, each after those that it reads and after its parent.
        named: Replicas of each node as the pipeline file names them, without mistakes
            (``misplaced``).
    """
    places = {label: node for node, labels in named.items() for label in labels}
    nodes: dict[str, list[str]] = {node: [] for node, labels in named.items() if not labels}
    for stage in stages:
        for process, label in zip(stage.processes, stage.labels(), strict=True):
            beside = places.get(f"{stage.parent}.{process}", f"{stage.participant}.{process}")
            node = places[label] = places.get(label, beside)
            nodes.setdefault(node, []).append(label)
    return nodes


def misplaced(
    stages: Sequence[PlacedStage], named: Mapping[str, Sequence[str]]
) -> Iterator[Misplaced]:
    """Yield the reasons why ``named`` cannot be carried out."""
    owner = {label: stage for stage in stages for label in stage.labels()}
    seen: dict[str, str] = {}
    for node, labels in named.items():
        for label in labels:
            if label not in owner:
                yield Misplaced(
                    node, label, f"there is no replica {label}; there are {', '.join(owner)}"
                )
            elif label in seen:
                yield Misplaced(
                    node,
                    label,
                    f"{label} is on node {seen[label]} already; a replica runs on one node",
                )
            else:
                seen[label] = node
    whole = {node: [label for label in labels if label in owner] for node, labels in named.items()}
    owners = {stage.participant for stage in stages}
    for node, labels in place(stages, whole).items():
        if not named.get(node, [node]) and not labels and _owner_by_name(node) not in owners:
            text = (
                f"it runs nothing, so its name says whose it is: call it PARTICIPANT.{node}, with"
                f" one of {', '.join(sorted(owners))}"
            )
            yield Misplaced(node, "", text)
        first: dict[str, str] = {}
        for label in labels:
            stage = owner[label]
            if stage.name in first:
                text = (
                    f"{first[stage.name]} and {label} are replicas of one stage, which a node that"
                    " dies would take along; use another node"
                )
                yield Misplaced(node, label, text)
            elif stage.participant != owner[labels[0]].participant:
                text = (
                    f"{label} is a stage of {stage.participant}, {labels[0]} of"
                    f" {owner[labels[0]].participant}; a node has one participant"
                )
                yield Misplaced(node, label, text)
            first.setdefault(stage.name, label)


def _owner_by_name(node: str) -> str:
    return node.partition(".")[0]


class Places:
    """Places of replicas, by the pipeline file and the moves since."""

    def __init__(
        self,
        stages: Sequence[PlacedStage],
        named: Mapping[str, Sequence[str]],
        partners: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        """Start with the places that ``place`` returns, before any move. ``partners``: stages that
        may be moved to each partner's node.
        """
        self._partners = dict(partners or {})
        self._stages = {label: stage for stage in stages for label in stage.labels()}
        nodes = place(stages, named)
        self._owners = {
            node: self._stages[labels[0]].participant if labels else _owner_by_name(node)
            for node, labels in nodes.items()
        } | {node: _owner_by_name(node) for node in self._partners}
        places = {label: node for node, labels in nodes.items() for label in labels}
        self._node = {label: places[label] for label in self._stages}
        self._moved: set[str] = set()
        self._withdrawn: dict[str, str] = {}

    def rejected(self, label: str, node: str) -> str:
        """Return why the replica ``label`` cannot be moved to ``node``; empty if it can (PC1 to
        PC3). An empty ``node`` removes the replica.
        """
        if label not in self._node:
            return f"there is no replica {label}; there are {', '.join(self._node)}"
        if not node:
            return self._not_removed(label)
        if node not in self._owners:
            return (
                f"there is no node {node}; there are {', '.join(self._owners)}; the pipeline file"
                " names others under `nodes`"
            )
        if self._node[label] == node:
            return f"{label} is on node {node}"
        stage = self._stages[label]
        if node in self._partners and stage.name not in self._partners[node]:
            return (
                f"node {node} is {self._owners[node]}'s, and the pipeline file does not let"
                f" {stage.name} go there: federation.partners"
            )
        if not self._may_run(stage, node):
            return (
                f"{label} is a stage of {stage.participant}, node {node} is of"
                f" {self._owners[node]}; a node has one participant"
            )
        beside = next((each for each in stage.labels() if self._node[each] == node), None)
        if beside is not None:
            return (
                f"node {node} has {beside}, and a node that dies would take both replicas along;"
                f" move {beside} away first, or use another node"
            )
        return ""

    def _not_removed(self, label: str) -> str:
        if not self._node[label]:
            return f"{label} is removed"
        others = [
            each for each in self._stages[label].labels() if each != label and self._node[each]
        ]
        return (
            ""
            if others
            else f"it is the last replica of {self._stages[label].name}, and a stage needs one"
        )

    def moved(self, move: Move) -> bool:
        """Take the next record of the log. Return whether it counts (PC4)."""
        label = f"{move.stage}.{move.replica}"
        if self.rejected(label, move.node):
            return False
        if move.only_from not in ("", self._node[label]):
            return False
        self._moved.add(label)
        self._node[label] = move.node
        self._withdrawn[label] = move.withdrawn
        return True

    def _may_run(self, stage: PlacedStage, node: str) -> bool:
        if node in self._partners:
            return stage.name in self._partners[node]
        return self._owners[node] == stage.participant

    def labels(self) -> list[str]:
        """Return all replicas."""
        return list(self._node)

    def nodes(self) -> list[str]:
        """Return all nodes, partners' nodes too."""
        return list(self._owners)

    def owner_of(self, node: str) -> str:
        """Return the participant that runs a node."""
        return self._owners[node]

    def is_run_by(self, node: str, participant: str) -> bool:
        """Return whether ``participant`` runs a node; False for a node that the file does not
        name.
        """
        return self._owners.get(node) == participant

    def is_partners(self, node: str) -> bool:
        """Return whether another participant runs this node, under a contract."""
        return node in self._partners

    def may_come(self, node: str) -> set[str]:
        """Return the stages whose replicas may run on a node (PC3)."""
        return {stage.name for stage in self._stages.values() if self._may_run(stage, node)}

    def node_of(self, label: str) -> str:
        """Return the node that has the place of a replica; empty if it is removed."""
        return self._node[label]

    def of_node(self, node: str) -> list[str]:
        """Return the replicas that have their place on ``node``."""
        return [label for label, place in self._node.items() if place == node]

    def withdrawn(self, label: str) -> str:
        """Return why the last move of a replica was withdrawn (``protocol.stage.transfer``, TR5);
        empty: it was not.
        """
        return self._withdrawn.get(label, "")

    def withdrawable(self, label: str, node: str) -> str:
        """Return the node to which a replica moves from ``node``, if that one may withdraw the move
        (PC6); else an empty text.
        """
        target = self._node[label]
        if target in ("", node) or self.is_partners(target) or self.is_partners(node):
            return ""
        return target

    def was_moved(self, label: str) -> bool:
        """Return whether the replica may have begun on a node that the pipeline file does not
        name.
        """
        return label in self._moved

    def may_run_elsewhere(self, label: str, restarts: int) -> bool:
        """Return whether another node may be running the replica (PC9). ``restarts``: how often
        this process has started it again.
        """
        return restarts > 0 or label in self._moved

    def moved_away(self, node: str) -> list[str]:
        """Return the replicas that were moved, have their place elsewhere, and may yet run on
        ``node``.
        """
        return [
            label
            for label, place in self._node.items()
            if label in self._moved and place != node and self._may_run(self._stages[label], node)
        ]

    def is_under_way(self, label: str, runs_on: str) -> bool:
        """Return whether the replica has yet to begin on the node of its place (PC6). ``runs_on``:
        node of its newest epoch; empty if it is not known.
        """
        return (
            label in self._moved
            and runs_on not in ("", self._node[label])
            and self._node[label] != ""
        )


class AfterMove(Enum):
    """Action of a node on a replica whose place is elsewhere."""

    STAY = auto()
    STOP = auto()
    STOP_UNLESS_IT_BEGINS = auto()
    """Stop it if the right of its process to begin an epoch can be withdrawn (PC8)."""


def after_move(
    *, runs_here: bool, is_passive: bool, is_removed: bool, has_process: bool
) -> AfterMove:
    """Return the action of a node on a replica whose place is elsewhere (PC5). ``runs_here``:
    whether its newest epoch began on this node. ``has_process``: whether a process of it runs
    there, which may begin another one.
    """
    if is_passive or is_removed:
        return AfterMove.STOP
    if runs_here:
        return AfterMove.STAY
    return AfterMove.STOP_UNLESS_IT_BEGINS if has_process else AfterMove.STOP


@dataclass(slots=True)
class BeginRight:
    """Right of one process of a replica to begin an epoch (PC8). It is used or withdrawn, once and
    for good.
    """

    _is_used: bool = False
    _is_withdrawn: bool = False

    def use(self) -> bool:
        """Use the right. Return False if it was withdrawn."""
        self._is_used = not self._is_withdrawn
        return self._is_used

    def withdraw(self) -> bool:
        """Withdraw the right. Return False if it was used."""
        self._is_withdrawn = not self._is_used
        return self._is_withdrawn


def has_left(runs_on: str, node: str, *, has_place: bool) -> bool:
    """Return whether ``node`` must not begin an epoch of a replica, because another node has begun
    one and has its place (PC5). ``runs_on``: node of the newest epoch in the boundary log, read to
    its end. Otherwise a node that restarts while a replica moves away would take it back.
    """
    return not has_place and runs_on not in ("", node)


class AfterEnd(Enum):
    """Action of a node on a replica that has ended."""

    AGAIN = auto()
    GONE = auto()
    END_NODE = auto()


class Began(Enum):
    """Place where the newest epoch of a replica began, as one node sees it."""

    HERE = auto()
    ELSEWHERE = auto()
    UNKNOWN = auto()


AFTER_END: Final[Mapping[tuple[Began, bool], tuple[AfterEnd, AfterEnd]]] = {
    # where it began, the node has its place: if it was fenced, if anything else ended it
    (Began.HERE, True): (AfterEnd.END_NODE, AfterEnd.AGAIN),  # fenced: two nodes have this name
    (Began.HERE, False): (AfterEnd.END_NODE, AfterEnd.AGAIN),  # nobody else has it yet
    (Began.ELSEWHERE, True): (AfterEnd.AGAIN, AfterEnd.AGAIN),  # it stands by
    (Began.ELSEWHERE, False): (AfterEnd.GONE, AfterEnd.GONE),
    (Began.UNKNOWN, True): (AfterEnd.END_NODE, AfterEnd.AGAIN),
    (Began.UNKNOWN, False): (AfterEnd.GONE, AfterEnd.GONE),
}


def after_end(*, has_place: bool, is_fenced: bool, runs_on: str, node: str) -> AfterEnd:
    """Return the action of ``node``. ``has_place`` is by the whole log of moves; ``runs_on`` by the
    boundary log, empty if that is not known.
    """
    began = Began.UNKNOWN if not runs_on else Began.HERE if runs_on == node else Began.ELSEWHERE
    of_fenced, of_others = AFTER_END[began, has_place]
    return of_fenced if is_fenced else of_others


START_MS_MAX: Final = 600_000
"""Duration of a start, in ms, after which it counts as over even if a service is not ready yet,
because that one waits for a partner or a broker: the others have been at work for long.
"""


def ends_deployment(*, was_ready: bool, running_ms: int) -> bool:
    """Return whether an error of one service (a file, function or setting that cannot be right)
    ends the whole deployment. It does so only during the start, when a person is waiting for the
    result; later it ends that service alone.

    ``was_ready``: all services have been, at the same time. ``running_ms``: since the start.
    """
    return not was_ready and running_ms < START_MS_MAX


RESTART_FIRST_MS: Final = 500
RESTART_MAX_MS: Final = 30_000
STAGE_FAILED_DELAY_MAX_MS: Final = 60_000
"""A function that fails will most likely fail again: the log and the machine get more rest."""

SPARE_AT_ONCE: Final = 3
"""Number of ends in a row after which a spare process takes the place at once. Faults from outside
rarely come more often before a process is healthy again; one that ends of what it begins with does,
and its pauses grow from then on as without a spare process.
"""

SPARE_AGAIN_MS: Final = 2_000
"""Pause until another spare process is started, in ms. Its start needs a processor for a second,
when the service that has just begun needs it to catch up.
"""

HEALTHY_AFTER_MS: Final = 60_000
"""Time after which a process or replica that ran counts as healthy, in ms: its next start has the
first delay.
"""


@dataclass(slots=True)
class Backoff:
    """Growing delays of one process, or one replica on a node: doubled at each end before it was
    healthy. Times are monotonic ms.
    """

    failures: int = 0

    def after_end(self, ran_ms: int, *, of_function: bool = False, has_spare: bool = False) -> int:
        """Return the pause in ms after the end of a process that had been ready for ``ran_ms``.
        ``of_function``: whether a stage's function ended it. ``has_spare``: whether a spare process
        can take its place, which costs the machine nothing: the first times at once.
        """
        delay_max_ms = STAGE_FAILED_DELAY_MAX_MS if of_function else RESTART_MAX_MS
        if ran_ms >= HEALTHY_AFTER_MS:
            self.failures = 0
        doublings = self.failures - (SPARE_AT_ONCE if has_spare else 0)
        self.failures += 1
        return 0 if doublings < 0 else min(delay_max_ms, RESTART_FIRST_MS << min(doublings, 16))


ENGINE_ENDS_MAX: Final = 4
"""Maximum number of ends of a node's engine that are kept: the last ones say enough."""
ENGINE_ENDS_TOGETHER_MS: Final = 30 * 60_000
"""An end that is longer ago has nothing to do with this one."""


@dataclass(frozen=True, slots=True)
class EngineEnd:
    """An end of a node's engine: when, and the replicas of which a batch ran."""

    at_ms: int
    during: tuple[str, ...]


def remembered(ends: Iterable[EngineEnd], newest: EngineEnd) -> tuple[EngineEnd, ...]:
    """Return the ends that are kept after ``newest``, which is the last of them."""
    near = [end for end in ends if 0 <= newest.at_ms - end.at_ms <= ENGINE_ENDS_TOGETHER_MS]
    return (*near, newest)[-ENGINE_ENDS_MAX:]


def suspects(ends: Sequence[EngineEnd]) -> tuple[str, ...]:
    """Return the replicas of which a batch ran at each of ``ends``, if there are at least two;
    sorted.
    """
    if len(ends) < 2:
        return ()
    return tuple(sorted(set.intersection(*(set(end.during) for end in ends))))
