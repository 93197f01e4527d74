"""A replica that is moved in a run: the operator, the two nodes, and what must never be seen
of them.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Mapping
from operator import itemgetter
from typing import Final

from anabranch.pipeline.model import Pipeline
from anabranch.protocol.control.placement import Places
from anabranch.protocol.errors import Fenced
from anabranch.protocol.stage import transfer
from anabranch.streams.placement import PlacementReader
from simulation import nodes, workload
from simulation.disk import Machine
from simulation.faults import Fault
from simulation.network import Link, Network, Port
from simulation.nodes import SimulatedNode
from simulation.options import ON_NEW, Options
from simulation.scenarios import SCALED, SPLIT
from simulation.scheduler import Process
from simulation.stage_replica import SimulatedReplica
from simulation.striking import Runs

BEHIND_MS: Final = 600
"""In place of ``MOVED_BEHIND_MS``: a run is short."""
_SHARED_CHANCE: Final = 0.75
_SHARED_BESIDE_STORE_CHANCE: Final = 0.3
_REHEARSAL_ROUNDS: Final = 40
"""Number of rounds of a node, each of a tenth of a second or more, after which a rehearsal beside a
replica has ended, and one has begun on an idle node.
"""
_CHANGES_MAX: Final = 3
"""Maximum changes of its node by one move: there; and, if one node was late or overtaken, back and
there again.
"""


def _shared_chance(options: Options) -> float:
    """Return how often both nodes have one state directory: always where a node is lost for good
    and there is no store, as nothing could be recovered.
    """
    if options.has_store:
        return _SHARED_BESIDE_STORE_CHANCE
    is_lost = options.scenario == SCALED or options.recovers_in_parallel
    return 1 if is_lost else _SHARED_CHANCE


def replica_of(runs: Runs) -> SimulatedReplica | None:
    """Which the current run of a service is, or has; None: it has none."""
    service = runs.service.replica if isinstance(runs.service, SimulatedNode) else runs.service
    return service if isinstance(service, SimulatedReplica) else None


def same(key: str, options: Options) -> list[str]:
    """Return the services that may run the same replica as ``key``, or end its stream."""
    service, _, name = key.partition("/")
    if options.changes and service == "ingestion":
        return [f"ingestion/{each}" for each in options.streams_of(name.partition(".")[0])]
    if options.output_changes and service == "delivery":
        return [f"delivery/{each}" for of in options.outputs for each in of.every_process]
    passive = [
        f"processing/{stage.name}.{process}"
        for stage in options.stages
        for process in range(stage.replicas)
        if stage.ha == "passive" and key.startswith(f"processing/{stage.name}.")
    ]
    if passive:
        return passive
    moved = f"processing/{options.moved}"
    several = [moved, *(moved + new for new in options.new_nodes)]
    if options.scenario == SPLIT:
        # Each may run a half, and end the stream of the shard.
        stage = options.stages[0]
        several += [f"processing/{stage.name}.{number}" for number in range(1, stage.replicas)]
    return several if key in several else [key]


class Moving:
    """See ``nodes.Watch``."""

    def __init__(
        self,
        options: Options,
        pipeline: Pipeline,
        network: Network,
        runs: Mapping[str, Runs],
        machines: dict[str, Machine],
        unexpected: list[str],
        closed: Mapping[tuple[str, str], int],
        epochs: Mapping[tuple[str, str], int],
    ) -> None:
        """Prepare the moves. ``closed``, ``epochs``: of each writer, as its log has them now."""
        self._options = options
        self._pipeline = pipeline
        self._network = network
        self._unexpected = unexpected
        self._closed, self._epochs = closed, epochs
        self.label = options.moved
        self.labels: tuple[str, ...] = (self.label,)
        stage, _, replica = self.label.partition(".")
        self._writer = stage, replica
        self.old, self.new = pipeline.places().node_of(self.label), options.new_nodes[ON_NEW]
        self._keys = {self.old: f"processing/{self.label}"}
        for new, node in options.new_nodes.items():
            self._keys[node] = f"processing/{self.label}{new}"
        if (
            options.federation is None  # owners share nothing
            and random.Random(f"{options.seed}/shared").random() < _shared_chance(options)
        ):  # all these nodes have one state directory
            machines |= dict.fromkeys(self._keys.values(), machines[self._keys[self.old]])
        self._runs = {node: runs[key] for node, key in self._keys.items()}
        self._machines = machines
        self._begun: list[tuple[str, int]] = []
        """In their order: (node, epoch)."""
        self._newest_seen: dict[str, int] = {}
        """Newest epoch in the log when a process of each node last looked, to begin there."""
        self._moves = self._moved_ms = 0
        self._rehearsals: Counter[tuple[str, str]] = Counter()
        """Number of the last rounds of each node in which something was wrong with rehearsals."""
        self.is_undisturbed = False
        """Nothing strikes in this run, and the nodes have a directory or a store in common."""

    def has(self, key: str) -> bool:
        """Return whether a service is a process of one of the nodes."""
        return key in self._keys.values()

    def node_of(self, key: str) -> str:
        """Return the node that a service is a process of."""
        return next(node for node, its in self._keys.items() if its == key)

    def move(self, fault: Fault) -> None:
        """Move the replica there or back, as an operator; in some commands the record is lost, or
        its outcome unknown.
        """
        self._moves += 1
        self._moved_ms = self._network.scheduler.now_ms
        port = Port(
            self._network,
            Process(f"operator/{self.label}", self._moves),
            Link(self._options.latency_max_ms),
        )
        port.link.planned = [[], [("lost", 0)], [("applied", 0)]][fault.value // 2 % 3]
        nodes.move(
            self._network,
            port,
            self._pipeline,
            self.label,
            self.old if fault.value % 2 else self.new,
        )

    def looks(self, node: str) -> None:
        """Note which epoch the log shows to a process of the node."""
        self._newest_seen[node] = self._epochs.get(self._writer, -1)

    def begins(self, node: str, epoch: int, *, has_place: bool) -> None:
        """Note that the replica is the primary on the node; if it ran elsewhere, only with
        something to start from, and only where its place is. An epoch of its own, of a process
        that did not come so far as to be the primary, may have ended the other one.
        """
        self._add(node, "begins", epoch)
        runs_on, in_epoch = max(self._begun, key=itemgetter(1), default=(node, -1))
        if runs_on != node and not has_place and self._newest_seen[node] == in_epoch:
            self._unexpected.append(
                f"moves: {node} takes {self.label} back, which {runs_on} began in epoch"
                f" {in_epoch}, the newest that {node} saw"
            )
        self._begun.append((node, epoch))
        others = [
            replica
            for other, runs in self._runs.items()
            if other != node and not runs.is_dead and (replica := replica_of(runs)) is not None
        ]
        timelines = self._machines[self._keys[node]].timelines
        closed_ms = self._closed.get(self._writer, 0) * self._options.bucket_ms - workload.BASE_MS
        if (
            any(other.epoch >= 0 for other in others)
            and timelines[max(timelines)].start_batch < 0
            and closed_ms > BEHIND_MS
            and self._pipeline.stages[self._writer[0]].ha != "upstream_backup"  # it needs nothing
        ):
            self._unexpected.append(
                f"moves: {node} begins {self.label} with nothing to go on from, while it runs"
                " elsewhere"
            )

    def ends(self, node: str, epoch: int, error: Exception | None) -> None:
        """Note that the node lets go of the replica, which had begun: another one has it, or it
        failed.
        """
        self._add(node, "lets go", epoch, type(error).__name__)
        if (error is None or isinstance(error, Fenced)) and self._epochs.get(
            self._writer, -1
        ) <= epoch:
            self._unexpected.append(
                f"moves: {node} let {self.label} go in epoch {epoch}, and no other node has begun"
            )

    def is_over(self) -> bool:
        """Return whether the replica runs where its place is alone: it has moved, or the move was
        withdrawn. A replica that is lost with its nodes waits for an operator.
        """
        return self._running() == [self._place()] or self.is_lost(*self._writer)

    def _running(self) -> list[str]:
        """Return the nodes on which a process of the replica is the primary, or was."""
        return [
            node
            for node, runs in self._runs.items()
            if not runs.is_dead and (replica := replica_of(runs)) is not None and replica.epoch >= 0
        ]

    def is_lost(self, stage: str, replica: str) -> bool:
        """Whether nobody may run the replica before an operator moves it: the node of its place is
        gone for good, and the one on which it began last (PC5).
        """
        if (stage, replica) != self._writer:
            return False
        begun = max(self._begun, key=itemgetter(1), default=(self.old, -1))[0]
        return all(self._runs[node].is_dead for node in (self._place(), begun))

    def _place(self) -> str:
        return self._places().node_of(self.label)

    def _places(self) -> Places:
        reader = PlacementReader(
            self._network.log, self._pipeline.topic_names.placement(), self._pipeline.places()
        )
        reader.read_to_end()
        return reader.places

    def stalled(self, node: str, reason: str) -> None:
        """Judge that the node withdraws the move: the other one must have had time."""
        self._add(node, "withdraws", reason)
        self._network.history.reached("move withdrawn")
        since_ms = self._network.scheduler.now_ms - self._moved_ms
        if since_ms < transfer.MOVE_STALLED_MS or self.is_undisturbed:
            self._unexpected.append(
                f"moves: {node} withdraws the move of {self.label} after {since_ms} ms: {reason}"
            )

    def rehearses(self, node: str, *, beside: bool, lacking: bool) -> None:
        """Judge a rehearsal by the rounds of the node: it makes room for a replica soon, and does
        not begin much too late.
        """
        for what, is_so in (("beside a replica", beside), ("never", lacking)):
            rounds = self._rehearsals[node, what] + 1 if is_so else 0
            self._rehearsals[node, what] = rounds
            if self._options.is_scaled and rounds == _REHEARSAL_ROUNDS:
                self._unexpected.append(f"rehearsals: {node} rehearses {what}")

    def check(self) -> None:
        """At the end of the run."""
        changes = sum(one[0] != other[0] for one, other in itertools.pairwise(self._begun))
        if changes > _CHANGES_MAX * self._moves:
            self._unexpected.append(
                f"moves: {self._moves} moves, and the replica changed its node {changes} times:"
                f" {self._begun}"
            )

    def _add(self, node: str, what: str, *facts: str | int) -> None:
        self._network.history.add(self._network.scheduler.now_ms, node, what, self.label, *facts)
