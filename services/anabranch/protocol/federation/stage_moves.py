"""Stages as tasks of the market: under which contracts a stage may move to a partner, and on which
node it should run now.

Theory of operation. A task is a stage that its owner and its seller both have in a pipeline file:
no code moves between owners. Each participant runs at most one node for a partner's pipeline. The
node on which a stage should run follows from its place in the agent's table (``holdings``), and
from nothing else. So an agent that starts again after a crash decides for the same node, and writes
a move that was lost again.

The place of a task decides on which node it should run; the boundary log shows which node runs it;
the ledger decides which participant is paid:
    leaving, away   the partner's node: it stands by, becomes the primary, runs
    all others      home: a node of one's own
    away, failed    home, at once: the ledger gets the end when it has the proof, or when the stage
                    need not stay any more
A seller has *failed* if its node sends no heartbeats, if it does not process available input for
longer than the contract allows, or if the ledger convicts it: by an audit, or by disputed
measurements.

A participant that runs a task of a partner may sell it on, by the same table. Only the owner moves
the task. So a participant that has a task under a movement states in the ledger of that movement on
which node it should run (``movements.Placed``). Its buyer does the same, up to the owner, and each
sees its own two contracts alone. The partner's node is the one that the movement names, if the
owner's file lets a partner run the task there. If the owner takes a task away from the node to
which it was sold on, that node has not failed.

Invariants:
    FZ1  a task without a contract that lets it move is on a node of its owner's (but FZ5); no node
         is named to it that the owner's file does not let run it.
    FZ2  a buyer says that a movement has started only when the partner's node runs the stage, and
         that it has ended only when that one does not any more.
    FZ3  a participant does not trade under a contract whose load it cannot measure, whose tasks it
         does not have in a file, or which says otherwise than the file how their state travels; and
         sells no task whose results readers would ignore, because the partner that would run it may
         not sign them yet.
    FZ4  work on a movement's task is metered for the seller's own node, and for those partners'
         nodes that the seller has named; for no other.
    FZ5  while a log is left out, a task of one's own that a partner's node runs, and that no
         contract names which can be read, stays there and is not traded: what is left out may say
         why it is there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from anabranch.protocol.federation.contracts import Contract
from anabranch.protocol.federation.holdings import TaskPlace
from anabranch.protocol.federation.ledger import DISPUTES_MAX, Ledger
from anabranch.protocol.federation.movements import (
    NODES_MAX,
    EndReason,
    Movement,
    MovementState,
    Placed,
)
from anabranch.protocol.federation.silence import promised_ms
from anabranch.protocol.federation.workload import ROW_PER_SECOND
from anabranch.protocol.stage.owners_checkpoint import Transfer

_AT_PARTNER: Final = frozenset({TaskPlace.LEAVING, TaskPlace.AWAY})


def task_of(pipeline: str, stage: str) -> str:
    """Return the name of a stage in contracts, which is unique in the federation."""
    return f"{pipeline}.{stage}"


def stage_of(task: str) -> tuple[str, str]:
    """Return the pipeline and the stage of ``task``, the inverse of ``task_of``."""
    pipeline, _, stage = task.partition(".")
    return pipeline, stage


def node_of(partner: str) -> str:
    """Return the node that a participant runs for the pipeline of another one."""
    return f"{partner}.0"


def partners_nodes(partners: Mapping[str, Collection[str]], stage: str) -> frozenset[str]:
    """Return the partners' nodes on which a stage may run. ``partners`` are those of the owner's
    file.
    """
    return frozenset(node_of(partner) for partner, stages in partners.items() if stage in stages)


def nodes_of(movement: Movement, seller: str, allowed: Collection[str]) -> frozenset[str]:
    """Return the nodes whose work on the task of ``movement`` is metered, and so paid (FZ4).

    Args:
        movement: Movement of the task, with the nodes that the seller has named so far.
        seller: Participant that sells the work.
        allowed: Partners' nodes on which the owner lets the task run (``partners_nodes``).
    """
    return frozenset({node_of(seller), *(node for node in movement.nodes if node in allowed)})


def named_node(movement: Movement | None, seller: str, allowed: Collection[str]) -> str:
    """Return the node on which the task of ``movement`` should run: the one that the seller has
    named last, or the seller's own if it has named none or one that is not ``allowed`` (FZ1).
    """
    is_usable = movement is not None and movement.node in allowed
    return movement.node if movement is not None and is_usable else node_of(seller)


def placing(
    movement: Movement, contract_id: str, seller: str, wanted: str, at_ms: int
) -> Placed | None:
    """Return the record by which the seller of a task moves it to the node ``wanted``; None if the
    task is there, is not running, or the movement names its maximum number of nodes.
    """
    before = movement.node or node_of(seller)
    is_full = wanted not in movement.nodes and len(movement.nodes) == NODES_MAX
    if movement.state is not MovementState.RUNNING or wanted == before or is_full:
        return None
    return Placed(contract_id, movement.movement_id, seller, at_ms, movement.placed + 1, wanted)


def reason_against(
    contract: Contract,
    participant: str,
    partners: Mapping[str, Collection[str]],
    hosted: Collection[str],
    unnamed: Collection[tuple[str, str]] = (),
    by_checkpoint: Collection[str] = (),
) -> str:
    """Return why ``participant`` does not trade under a contract; empty if it does (FZ3).

    Args:
        contract: Contract of the participant.
        participant: Participant that decides.
        partners: Tasks that each partner may run: its own, and those of others that may come
            here.
        hosted: Tasks of others that the participant may run.
        unnamed: Partner and task, where readers would ignore what the partner signs as the task's
            results, because the participant has not named it.
        by_checkpoint: Tasks whose state comes from their owner's checkpoint, by the files here.
    """
    if contract.unit != ROW_PER_SECOND:
        unit = f"{contract.unit.share_ppm} ppm of {contract.unit.reference}"
        return f"its unit is {unit}; load is measured in {ROW_PER_SECOND.reference}"
    if contract.buyer == participant:
        allowed = partners.get(contract.seller, ())
        strange = sorted(set(contract.tasks) - set(allowed))
        if strange:
            return f"{contract.seller} may not run {', '.join(strange)}"
        ignored = sorted(task for task in contract.tasks if (contract.seller, task) in unnamed)
        if ignored:
            return (
                f"readers would ignore what {contract.seller} signs as {', '.join(ignored)}: run"
                " anabranch keys signers"
            )
    elif strange := sorted(set(contract.tasks) - set(hosted)):
        return f"no file here has {', '.join(strange)}"
    return _transfer_differs(contract, by_checkpoint)


def _transfer_differs(contract: Contract, by_checkpoint: Collection[str]) -> str:
    """Return for which tasks a contract and the pipeline files differ about their state; empty: for
    none. ``by_checkpoint``: as of ``reason_against``.
    """
    clause = contract.moving.transfer
    is_checkpoint = clause is Transfer.CHECKPOINT
    others = sorted(task for task in contract.tasks if (task in by_checkpoint) != is_checkpoint)
    if not others:
        return ""
    other = Transfer.REBUILD if is_checkpoint else Transfer.CHECKPOINT
    return (
        f"it says moving.transfer: {clause}, and the pipeline file here says transfer: {other} of"
        f" {', '.join(others)}"
    )


def unexplained(
    at_partners: Collection[str], named: Collection[str], left_out: Collection[str]
) -> list[str]:
    """Return the own tasks that stay at the partners' nodes that run them, untraded (FZ5).

    Args:
        at_partners: Own tasks that have their places at partners' nodes.
        named: Tasks that the contracts name which can be read.
        left_out: Topics of the logs that cannot be read.
    """
    return sorted(set(at_partners) - set(named)) if left_out else []


def wanted_node(place: TaskPlace, home: str, partner: str, *, has_failed: bool) -> str:
    """Return the node for a task (FZ1). ``partner`` is the node of the participant to which it was
    sold, which may have failed.
    """
    if place not in _AT_PARTNER or (place is TaskPlace.AWAY and has_failed):
        return home
    return partner


def failure(
    ledger: Ledger, movement: Movement, *, is_heard: bool, waits_ms: int
) -> EndReason | None:
    """Return how the seller of a running movement has failed; None if it has not.

    Args:
        ledger: Ledger of the movement's contract.
        movement: Movement whose task the seller's node runs.
        is_heard: True while heartbeats of that node arrive.
        waits_ms: Waiting time of the oldest bucket that the node has not computed, in ms.
    """
    name, contract = movement.movement_id, ledger.movements.contract(movement.version)
    if ledger.is_wrong(name) or ledger.disputed(name) >= DISPUTES_MAX:
        return EndReason.WRONG
    return EndReason.SILENT if not is_heard or waits_ms > promised_ms(contract) else None


def may_end(ledger: Ledger, movement: Movement, why: EndReason, at_ms: int) -> bool:
    """Return whether the ledger proves a failure, so that the buyer ends the movement for free."""
    if why is EndReason.SILENT:
        return ledger.is_silent(movement, at_ms)
    return ledger.is_wrong(movement.movement_id)


def is_ready(place: TaskPlace, runs_on: str, home: str, partner: str) -> bool:
    """Return whether to write a movement into the ledger (FZ2). ``runs_on``: node of the task, by
    the boundary log.
    """
    if place is TaskPlace.LEAVING:
        return runs_on == partner
    return place is TaskPlace.COMING and runs_on == home
