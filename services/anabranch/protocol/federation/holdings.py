"""The tasks that an agent knows: where each runs, what has been promised, and what may be done with
it.

Theory of operation. A task is the participant's own, or came under a movement of a contract in
which it is the seller. It may leave under a movement of an own contract, also one that came: that
is a resale. A ledger (``movements``) decides what becomes of a task, except for the agent's own
steps: offering it, and asking for its return. The table below holds all transitions; ``came`` is
the movement under which a task is here, ``went`` the one under which it left.

Invariants:
    FH1  a task is in exactly one place of the table, or not known.
    FH2  what was promised, is offered or is on its way counts as load here until a ledger says that
        another runs it.
    FH3  a task moves no sooner than the minimum hold after it last moved.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from anabranch.protocol.errors import LocalProtocolError
from anabranch.protocol.federation.load_average import LoadAverage
from anabranch.protocol.federation.movements import EndReason


class TaskPlace(Enum):
    """Place of a task."""

    PROMISED = "promised"
    """Place of an accepted task, which comes when its buyer's ledger entry says so."""
    HERE = "here"
    OFFERED = "offered"
    """Place of a task that runs here and is part of the outstanding offer."""
    LEAVING = "leaving"
    """Place of a task that runs here and that a seller has accepted and prepares."""
    AWAY = "away"
    """Place of a task that a seller runs."""
    COMING = "coming"
    """Place of a task that a seller runs and that is being prepared here."""
    RETURNING = "returning"
    """Place of a task that runs here and that its buyer was asked to take back."""


class TaskEvent(Enum):
    """Event in the life of a task."""

    TAKEN = "taken"
    """The movement ``came`` has started."""
    LAPSED = "lapsed"
    """The movement ``came`` was withdrawn."""
    GONE = "gone"
    """The movement ``came`` has ended."""
    OFFERED = "offered"
    REJECTED = "rejected"
    """The offer was rejected, did not name it, or was not answered."""
    ACCEPTED = "accepted"
    LEFT = "left"
    """The movement ``went`` has started."""
    STAYED = "stayed"
    """The movement ``went`` was withdrawn."""
    RECALLED = "recalled"
    KEPT = "kept"
    """A task that was to return stays where it runs."""
    BACK = "back"
    """The movement ``went`` has ended."""
    UNWANTED = "unwanted"
    """The task costs more than it is paid, and its buyer gets the request to take it back."""


TRANSITIONS: Final[dict[tuple[TaskPlace, TaskEvent], TaskPlace | None]] = {
    (TaskPlace.PROMISED, TaskEvent.TAKEN): TaskPlace.HERE,
    (TaskPlace.PROMISED, TaskEvent.LAPSED): None,
    (TaskPlace.HERE, TaskEvent.OFFERED): TaskPlace.OFFERED,
    (TaskPlace.HERE, TaskEvent.UNWANTED): TaskPlace.RETURNING,
    (TaskPlace.HERE, TaskEvent.GONE): None,
    (TaskPlace.OFFERED, TaskEvent.REJECTED): TaskPlace.HERE,
    (TaskPlace.OFFERED, TaskEvent.ACCEPTED): TaskPlace.LEAVING,
    (TaskPlace.OFFERED, TaskEvent.GONE): None,
    (TaskPlace.LEAVING, TaskEvent.LEFT): TaskPlace.AWAY,
    (TaskPlace.LEAVING, TaskEvent.STAYED): TaskPlace.HERE,
    (TaskPlace.LEAVING, TaskEvent.GONE): None,
    (TaskPlace.AWAY, TaskEvent.RECALLED): TaskPlace.COMING,
    (TaskPlace.AWAY, TaskEvent.BACK): TaskPlace.HERE,
    (TaskPlace.AWAY, TaskEvent.GONE): None,
    (TaskPlace.COMING, TaskEvent.KEPT): TaskPlace.AWAY,
    (TaskPlace.COMING, TaskEvent.BACK): TaskPlace.HERE,
    (TaskPlace.COMING, TaskEvent.GONE): None,
    (TaskPlace.RETURNING, TaskEvent.KEPT): TaskPlace.HERE,
    (TaskPlace.RETURNING, TaskEvent.GONE): None,
}
"""Place after an event; None if the task is forgotten. A pair that is missing is a bug of this
process.
"""


@dataclass(frozen=True, slots=True)
class Term:
    """Movement as one side sees it."""

    movement_id: str
    contract_id: str
    price: int
    min_hold_ms: int


@dataclass(slots=True)
class Holding:
    """Task with the agent's knowledge of it. Durations and times are of this process's clock."""

    name: str
    load: LoadAverage
    place: TaskPlace
    came: Term | None = None
    went: Term | None = None
    since_ms: int = 0
    """Time at which the task came to this place, in ms."""
    hold_until_ms: int = 0
    """Time until which the task stays where it is, in ms (FH3)."""
    request_ms: int = 0
    """Time at which the buyer last got the request to take the task back, in ms."""
    unpaid_ms: int | None = None
    """Time since which it has cost more than it is paid, in ms; None: it does not."""
    failed: EndReason | None = None
    """Failure of the participant to which the task was sold, as the shell sees it; None: none."""

    @property
    def is_load(self) -> bool:
        """Whether it counts as load here (FH2)."""
        return self.place is not TaskPlace.AWAY


@dataclass(slots=True)
class Holdings:
    """Table of the tasks that an agent knows: after a crash its own, and those in the ledgers."""

    tasks: dict[str, Holding] = field(default_factory=dict)
    besides: dict[str, int] = field(default_factory=dict)
    """Load that runs here and is not traded, in units: it moves under a movement contract."""

    def level(self) -> int:
        """Return the units of load that are here or promised (FH2)."""
        traded = sum(holding.load.units for holding in self.tasks.values() if holding.is_load)
        return traded + sum(self.besides.values())

    def at(self, *places: TaskPlace) -> list[Holding]:
        """Return the tasks in one of these places, in the order in which they became known."""
        return [holding for holding in self.tasks.values() if holding.place in places]

    def apply_event(self, holding: Holding, event: TaskEvent, now_ms: int) -> None:
        """Move a task to its next place, by the table.

        Raises:
            LocalProtocolError: the table has no such row.
        """
        if (holding.place, event) not in TRANSITIONS:
            raise LocalProtocolError(
                f"task {holding.name} is {holding.place.value}: it cannot be {event.value}"
            )
        after = TRANSITIONS[holding.place, event]
        if after is None:
            del self.tasks[holding.name]
            return
        holding.place = after
        holding.since_ms = now_ms
        holding.request_ms = now_ms
        if event in {TaskEvent.TAKEN, TaskEvent.LEFT, TaskEvent.BACK}:
            term = holding.came if event is TaskEvent.TAKEN else holding.went
            holding.hold_until_ms = now_ms + (term.min_hold_ms if term else 0)
        if event in {TaskEvent.STAYED, TaskEvent.BACK}:
            holding.went = None

    def by_movement(self, movement_id: str) -> Holding | None:
        """Return the task that came or went under a movement."""
        for holding in self.tasks.values():
            if any(
                term is not None and term.movement_id == movement_id
                for term in (holding.came, holding.went)
            ):
                return holding
        return None
