"""Processing nodes of a run: what runs on each, and that each gets only its share of a core.

A node stands for a small machine. Only nodes are held: the broker, ingestion, delivery, the
manager, the feeder and the receiver take what they need of the other cores.

Java compiles what batches need in its first minutes, which a node of a third of a core would do for
several times as long. So all run freely at first: while they start, while they drain the backlog,
and for the first ``FREE_S`` by the clock. From then on nodes are held, and answers are judged by
the clock.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ruamel.yaml import YAML

from benchmarks.held_cores import CGROUPS, HeldGroup, Spent
from demo.deployment import DeploymentError, Row

FREE_S: Final = 60
"""Seconds by the clock before nodes are held."""
_SHARD_BY: Final = {"roads": ["dir"], "accounts": ["vid"]}
"""Key of each stage's shards. A road is an expressway and direction, so either column divides
roads; by direction two shards have the same number of them, but for half an expressway. A balance
is a car's.
"""


@dataclass(frozen=True, slots=True)
class Placement:
    """Shards of each stage, and replicas of each node."""

    shards: Mapping[str, int]
    nodes: Mapping[str, Sequence[str]]


_ROADS: Final = {"local.0": ["roads.0.0"], "local.1": ["roads.1.0"]}
PLACEMENTS: Final = {
    1: Placement({}, {"local.0": ["roads.0", "accounts.0"]}),
    2: Placement({}, {"local.0": ["roads.0"], "local.1": ["accounts.0"]}),
    3: Placement({"roads": 2}, {**_ROADS, "local.2": ["accounts.0", "roads.0"]}),
    4: Placement(
        {"roads": 2, "accounts": 2},
        {
            **_ROADS,
            "local.2": ["accounts.0.0", "roads.0"],
            "local.3": ["accounts.1.0", "accounts.0"],
        },
    ),
}
"""Placements by number of nodes. A stage with shards has a union of them, under its own name, for
its output.
"""


@dataclass(frozen=True, slots=True)
class Nodes:
    """Nodes that a run shall have."""

    number: int
    cores: float | None = None
    """Cores of each; None: as many as it gets."""

    @property
    def placement(self) -> Placement:
        """Return what runs on each node."""
        return PLACEMENTS[self.number]

    @property
    def free_s(self) -> int:
        """Seconds by the clock before the nodes are held; 0 if they are not."""
        return 0 if self.cores is None else FREE_S

    def in_words(self) -> str:
        """Return the nodes, for the claim."""
        nodes = f"{self.number} node{'s' if self.number > 1 else ''}"
        return nodes if self.cores is None else f"{nodes} of {self.cores:g} cores"

    def prepare(self, pipeline: Path) -> None:
        """Write the shards and the nodes into a copy of the example's file."""
        yaml = YAML()
        document = yaml.load(pipeline)
        for stage, shards in self.placement.shards.items():
            document["stages"][stage] |= {"shards": shards, "shard_by": _SHARD_BY[stage]}
        document["nodes"] = {node: list(runs) for node, runs in self.placement.nodes.items()}
        yaml.dump(document, pipeline)


@dataclass(frozen=True, slots=True)
class Held:
    """Processor time of each node while it was held."""

    seconds: float
    nodes: Mapping[str, Spent]

    def facts(self) -> dict[str, object]:
        """Return the processor times, as facts of the claim."""
        spent = self.nodes.items()
        return {
            "nodes_held_s": round(self.seconds, 1),
            "node_cpu_s_per_s": {node: round(each.cpu_s / self.seconds, 3) for node, each in spent},
            "node_share_of_100_ms_that_ended_without_cpu": {
                node: round(each.stopped / max(1, each.periods), 2) for node, each in spent
            },
        }


class NodeHolder:
    """Groups of the processes of each node. They are made at once, so that a run that cannot hold
    its nodes does not begin.
    """

    def __init__(self, nodes: Nodes | None, root: Path = CGROUPS) -> None:
        """Make the groups, which are empty; none if ``nodes`` are not to be held.

        Raises:
            HoldError: they cannot be made.
        """
        self._groups: dict[str, HeldGroup] = {}
        self._pids: dict[str, int] = {}
        self._begun_s = 0.0
        self._before: dict[str, Spent] = {}
        self.held: Held | None = None
        """Processor time of the nodes; None if none was held."""
        if nodes is None or nodes.cores is None:
            return
        for node in nodes.placement.nodes:
            name = f"linear-road-{os.getpid()}-{node}"
            self._groups[node] = HeldGroup(name, nodes.cores, root)

    def find(self, status: Callable[[], Iterable[Row]]) -> None:
        """Find the nodes among the processes of a deployment, of which ``status`` returns the rows.

        Raises:
            DeploymentError: one is missing.
        """
        if not self._groups:
            return
        found = {row.name: row.pid for row in status() if row.service == "processing"}
        for node in self._groups:
            pid = found.get(node)
            if pid is None:
                raise DeploymentError(f"anabranch status shows no process of the node {node}")
            self._pids[node] = pid

    def hold(self) -> None:
        """Hold the nodes, with all that they have started, from now on. Idempotent."""
        if self._before:
            return
        for node, group in self._groups.items():
            group.add_tree(self._pids[node])
        self._begun_s = time.monotonic()
        self._before = self._spent()

    def measure(self) -> None:
        """Measure the processor time of the nodes until now as that of the run."""
        if self._before:
            spent = self._spent()
            nodes = {node: spent[node].since(before) for node, before in self._before.items()}
            self.held = Held(time.monotonic() - self._begun_s, nodes)

    def release(self) -> None:
        """Let the nodes run freely again, so that they stop in order."""
        for group in self._groups.values():
            group.release()

    def remove(self) -> None:
        """Remove the groups.

        Raises:
            HoldError: a process of a node is left.
        """
        for group in self._groups.values():
            group.remove()

    def _spent(self) -> dict[str, Spent]:
        return {node: group.spent() for node, group in self._groups.items()}
