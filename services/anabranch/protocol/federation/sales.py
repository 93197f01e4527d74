"""Sales of tasks as their buyer watches over them: on which node a task should run now, whether its
seller has failed, and when the ledger gets the end.

Theory of operation. The buyer of load compares in each round what the boundary logs of a task show
with the ledger under which it was sold (``stage_moves`` has the single rules). A seller that has
failed loses the task at once: it is moved home, before anything is proved. The proof may only be
measured once the task is at home. So the buyer waits for it as long as a movement may take; then
the movement ends without it, if the task has stayed for its minimum hold.

Once the task is at home its logs say nothing about the seller any more. So a failure is remembered
until the movement is over. A new process does not remember it; it finds the task at home, and
judges the seller by the ledger.

A participant that has sold on a task of another owner does not decide alone where it runs. If the
owner, or a party between them, has called the task back, the seller's node has not failed because
it does not run the task.

Invariants:
    SO1  while it is not known where a sold task runs, nothing is decided: it stays where it is, and
         no seller is blamed.
    SO2  a seller fails only while it has the task; where its node does not run the task, only if
         this participant's own buyer, if it has one, wants the task here.
    SO3  a failure that was found stays until the movement is over or the task leaves anew, whatever
         the logs show meanwhile.
    SO4  a movement whose seller has failed ends only when no node of the seller runs the task, and
         the ledger proves the failure, or both the deadline of a movement and the minimum hold are
         over.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from anabranch.protocol.federation.contract_log import LoadLog
from anabranch.protocol.federation.holdings import Holding, TaskPlace, Term
from anabranch.protocol.federation.ledger import Ledger
from anabranch.protocol.federation.movements import EndReason, Movement, MovementState
from anabranch.protocol.federation.stage_moves import (
    failure,
    is_ready,
    may_end,
    named_node,
    node_of,
    nodes_of,
    wanted_node,
)


@dataclass(frozen=True, slots=True)
class SeenTask:
    """Observations in the boundary logs of a task, which can be read."""

    runs_on: str
    """Node on which the newest epoch of the task began; empty if none did."""
    is_silent: bool = False
    """Whether that node shows no sign of life."""
    waits_ms: int = 0
    """Waiting time of the oldest bucket that the node has not computed, in ms."""


@dataclass(frozen=True, slots=True)
class Sale:
    """Sale under which a task leaves, or has left."""

    name: str
    """Id of the movement."""
    ledger: Ledger
    log_now_ms: int
    """Time of the ledger's newest record."""
    movement: Movement | None
    """State of the movement; None if it has not started."""
    partner: str
    """Node on which the task must run."""
    nodes: frozenset[str]
    """Nodes whose work on the stage is metered as the seller's (FZ4)."""

    @classmethod
    def of(cls, went: Term, contract: LoadLog, allowed: Collection[str]) -> Sale:
        """Return the sale ``went`` under a contract that both have signed. ``allowed``: partners'
        nodes on which the owner lets the task run.
        """
        assert contract.booked is not None, "it moved under it"  # noqa: S101
        assert contract.ledger is not None, "both have signed it"  # noqa: S101
        seller, ledger = contract.booked.contract.seller, contract.ledger
        movement = ledger.movements.find(went.movement_id)
        return cls(
            went.movement_id,
            ledger,
            contract.now_ms,
            movement,
            named_node(movement, seller, allowed),
            frozenset({node_of(seller)})
            if movement is None
            else nodes_of(movement, seller, allowed),
        )

    @property
    def refused_node(self) -> str:
        """Node that the seller names although the owner's file does not let it run the task; empty
        if there is none.
        """
        named = "" if self.movement is None else self.movement.node
        return "" if named == self.partner else named


@dataclass(frozen=True, slots=True)
class Settled:
    """Decision about one task."""

    node: str
    """Node on which the task should run now."""
    failed: EndReason | None = None
    """Failure of its seller, if it was sold."""
    is_news: bool = False
    """Whether the failure was found just now."""
    is_ready: bool = False
    """Whether the ledger gets the movement (FZ2)."""
    is_ended: bool = False
    """Whether the ledger gets the end of the movement because of the failure (SO4)."""


def running_movement(term: Term, contracts: Mapping[str, LoadLog]) -> Movement | None:
    """Return the movement of ``term``; None if it is not running by the records read so far."""
    ledger = contracts[term.contract_id].ledger
    movement = None if ledger is None else ledger.movements.find(term.movement_id)
    is_running = movement is not None and movement.state is MovementState.RUNNING
    return movement if is_running else None


def is_wanted_here(came: Term | None, contracts: Mapping[str, LoadLog], participant: str) -> bool:
    """Return whether a task runs wherever ``participant`` moves it: it is an own one, or the party
    from which it came wants it here.
    """
    if came is None:
        return True
    movement = running_movement(came, contracts)
    return movement is not None and movement.node in ("", node_of(participant))


class Sales:
    """Sellers of one participant's tasks that have failed. Not thread-safe."""

    def __init__(self) -> None:
        self._failed: dict[str, tuple[EndReason, int]] = {}
        """Failure and the time at which it was found, by movement (SO3)."""

    def settle(
        self,
        holding: Holding,
        home: str,
        sale: Sale | None,
        seen: SeenTask | None,
        now_ms: int,
        *,
        is_wanted: bool,
    ) -> Settled | None:
        """Decide about one task; None: nothing (SO1).

        Args:
            holding: The task, in the agent's table.
            home: Node of this participant that runs the task.
            sale: Sale of the task; None if it is not sold.
            seen: Observations of the task; None while its logs cannot be read.
            now_ms: Time of the agent.
            is_wanted: Whether this participant decides where it runs (``is_wanted_here``).
        """
        if seen is None:
            return None
        if sale is None:
            return Settled(wanted_node(holding.place, home, "", has_failed=False))
        had_failed = sale.name in self._failed
        why = self._failure(holding, sale, seen, now_ms, is_wanted=is_wanted)
        node = wanted_node(holding.place, home, sale.partner, has_failed=why is not None)
        if why is None:
            ready = is_ready(holding.place, seen.runs_on, home, sale.partner)
            return Settled(node, is_ready=ready)
        is_ended = seen.runs_on not in sale.nodes and self._may_end(holding, sale, now_ms)
        return Settled(node, why, is_news=not had_failed, is_ended=is_ended)

    def keep(self, movements: Collection[str]) -> None:
        """Forget the failures of all movements but these."""
        self._failed = {name: each for name, each in self._failed.items() if name in movements}

    def _failure(
        self,
        holding: Holding,
        sale: Sale,
        seen: SeenTask,
        now_ms: int,
        *,
        is_wanted: bool,
    ) -> EndReason | None:
        """Return why a sold task was taken home, or must be; None if its seller has not failed
        (SO2, SO3).
        """
        name, movement = sale.name, sale.movement
        if holding.place is TaskPlace.LEAVING or movement is None:
            self._failed.pop(name, None)
            return None
        is_there = seen.runs_on in sale.nodes
        is_judged = holding.place is TaskPlace.AWAY and (is_there or is_wanted)
        if name not in self._failed and is_judged:
            is_silent = seen.is_silent if is_there else sale.ledger.is_silent(movement, now_ms)
            why = failure(
                sale.ledger,
                movement,
                is_heard=not is_silent,
                waits_ms=seen.waits_ms if is_there else 0,
            )
            if why is not None:
                self._failed[name] = why, now_ms
        return self._failed[name][0] if name in self._failed else None

    def _may_end(self, holding: Holding, sale: Sale, now_ms: int) -> bool:
        """Return whether the movement of a failed seller ends, with a proof in the ledger or
        without (SO4).
        """
        ledger, (why, found_ms) = sale.ledger, self._failed[sale.name]
        movement = ledger.movements[sale.name]
        deadline_ms = found_ms + ledger.movements.contract(movement.version).moving.deadline_ms
        return now_ms >= max(holding.hold_until_ms, deadline_ms) or any(
            may_end(ledger, movement, why, at_ms) for at_ms in (sale.log_now_ms, now_ms)
        )
