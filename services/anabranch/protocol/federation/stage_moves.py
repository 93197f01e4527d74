"""A stage as a task of the market: under which contracts it may move, and to which node it belongs
now.

Theory of operation. A task is a stage that its owner and its seller both have in a pipeline file:
no code moves between owners. Each participant runs at most one node for a partner's pipeline. Where
a stage is to run follows from its place in the agent's table (``holdings``), and from nothing else:
whoever comes back after a crash comes to the same node, and a move that was lost is written again.

The place of a task decides its node, the boundary log who runs it, the ledger who is paid:
    leaving, away   the partner's node: it stands by, becomes the primary, runs
    all others      a node of the owner's
    away, silent    a node of the owner's, at once: the ledger is told when the seller's silence is
                    proven there

Invariants:
    FZ1  a task without a contract that lets it move is on a node of its owner's.
    FZ2  a buyer says that a movement has started only when the partner's node runs the stage, and
         that it has ended only when a node of its own does, or the seller is silent.
    FZ3  nobody trades under a contract whose load it cannot measure, or whose tasks it does not
         have in a file.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from anabranch.protocol.federation.contracts import Contract
from anabranch.protocol.federation.holdings import Place
from anabranch.protocol.federation.workload import ROW_PER_SECOND

_AT_PARTNER: Final = frozenset({Place.LEAVING, Place.AWAY})


def task_of(pipeline: str, stage: str) -> str:
    """The name of a stage in contracts: one in the federation."""
    return f"{pipeline}.{stage}"


def stage_of(task: str) -> tuple[str, str]:
    """(pipeline, stage) of a task."""
    pipeline, _, stage = task.partition(".")
    return pipeline, stage


def node_of(partner: str) -> str:
    """The node that a participant runs for the pipeline of another one."""
    return f"{partner}.0"


def reason_against(
    contract: Contract,
    participant: str,
    partners: Mapping[str, Collection[str]],
    hosted: Collection[str],
) -> str:
    """Why ``participant`` does not trade under a contract; empty: it does (FZ3).

    Args:
        contract: One of its own.
        participant: Who asks.
        partners: Its own tasks that each partner may run.
        hosted: Tasks of others that it may run.
    """
    if contract.unit != ROW_PER_SECOND:
        unit = f"{contract.unit.share_ppm} ppm of {contract.unit.reference}"
        return f"its unit is {unit}; load is measured in {ROW_PER_SECOND.reference}"
    if contract.buyer == participant:
        allowed = partners.get(contract.seller, ())
        strange = sorted(set(contract.tasks) - set(allowed))
        return f"{contract.seller} may not run {', '.join(strange)}" if strange else ""
    strange = sorted(set(contract.tasks) - set(hosted))
    return f"no file here has {', '.join(strange)}" if strange else ""


def wanted_node(place: Place, home: str, partner: str, *, is_silent: bool) -> str:
    """Where a task of one's own is to run (FZ1). ``partner``: the node of whoever it was sold to;
    ``is_silent``: nothing is heard from there.
    """
    if place not in _AT_PARTNER or (place is Place.AWAY and is_silent):
        return home
    return partner


def is_ready(place: Place, runs_on: str, home: str, partner: str) -> bool:
    """Whether the ledger is to be told of a movement (FZ2). ``runs_on``: by the boundary log."""
    if place is Place.LEAVING:
        return runs_on == partner
    return place is Place.COMING and runs_on == home
