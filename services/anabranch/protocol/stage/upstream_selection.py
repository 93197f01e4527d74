"""Selection of the replica of an input stream whose tentative buckets are used: DPC's
condition-action table (its upstream switching).

Theory of operation. Stable buckets are the same at every replica, so a reader takes them from
whichever is there first: nothing is selected, and no background source of corrections either (the
rows of the published table that are about one are not needed). Tentative buckets differ: each
replica made its own from what it had. So a reader stays with one replica as long as that one is as
good as any, and changes only to a better one. Only a replica that has closed the wanted bucket
tentatively can be chosen; one that has, but is silent now, is still better than nothing, because
its buckets are in the log whether or not it lives.

Invariants:
    US1 the choice depends on the arguments only; equally good replicas never displace the current
        one.
    US2 the chosen replica offers the bucket; None only if no replica does.
    US3 the table is complete: exactly one row decides (``TABLE``, first match).
    US4 an input awaits corrections while the branch of one of its replicas runs and is not
        corrected (BL19): what the input has made stable so far is not all. Its log says so, not its
        replicas, so a replica that is dead, or never ends its branch, delays no reader.
    US5 tentative buckets of an input are waited for only while one of its replicas says that it has
        a branch, and never of an input that is complete for ever, or whose log is not read yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from anabranch.protocol.control.records import ReplicaState
from anabranch.protocol.limits import BUCKET_MAX
from anabranch.protocol.log.boundary_log import LogState

STABLE = ReplicaState.STABLE
UP_FAILURE = ReplicaState.UP_FAILURE
STABILIZATION = ReplicaState.STABILIZATION
FAILURE = ReplicaState.FAILURE


class SelectionAction(Enum):
    """Action of a row of the table."""

    KEEP = "keep the current one"
    CHANGE = "change to the one of that state"
    NONE = "nobody"


@dataclass(frozen=True, slots=True)
class SelectionCase:
    """Row of the table. Matches if ``state`` is that of the current replica (KEEP), or of some
    replica (CHANGE), among those that offer the bucket.
    """

    number: int
    state: ReplicaState
    action: SelectionAction


TABLE: Final = (
    SelectionCase(1, STABLE, SelectionAction.KEEP),
    SelectionCase(2, STABLE, SelectionAction.CHANGE),
    SelectionCase(3, UP_FAILURE, SelectionAction.KEEP),
    SelectionCase(4, UP_FAILURE, SelectionAction.CHANGE),
    SelectionCase(5, STABILIZATION, SelectionAction.KEEP),
    SelectionCase(6, STABILIZATION, SelectionAction.CHANGE),
    SelectionCase(7, FAILURE, SelectionAction.KEEP),
    SelectionCase(8, FAILURE, SelectionAction.CHANGE),
)
NOBODY: Final = SelectionCase(9, FAILURE, SelectionAction.NONE)


def decide(
    current: str | None,
    states: Mapping[str, ReplicaState],
    offers: Mapping[str, int],
    bucket: int = 1,
) -> tuple[SelectionCase, str | None]:
    """Return the row that decides, and the chosen replica. ``offers``: last bucket that each
    replica has closed tentatively; see ``choose``.
    """
    able = [replica for replica, upto in offers.items() if upto >= bucket]
    for row in TABLE:
        those = [r for r in able if states.get(r, FAILURE) is row.state]
        if row.action is SelectionAction.KEEP:
            if current is not None and current in those:
                return row, current
        elif those:
            return row, min(those, key=lambda r: (-offers[r], r))
    return NOBODY, None


def choose(
    current: str | None,
    states: Mapping[str, ReplicaState],
    offers: Mapping[str, int],
    bucket: int = 1,
) -> str | None:
    """Return the replica from which to take tentative bucket ``bucket`` of an input; None if none
    offers it.

    ``current``: replica from which the bucket before was taken. Among equally good replicas the one
    that offers most is chosen, then the lowest id.
    """
    return decide(current, states, offers, bucket)[1]


def works_on_tentative(states: Mapping[str, ReplicaState], upto: int) -> bool:
    """Return whether tentative buckets of an input are worth a short wait (US5). ``upto``: last
    bucket that is complete on it.
    """
    has_branch = UP_FAILURE in states.values() or STABILIZATION in states.values()
    return has_branch and upto < BUCKET_MAX


def awaits_corrections(log_state: LogState) -> bool:
    """Return whether a branch of a replica of the input is running and not corrected (US4)."""
    return any(map(log_state.awaits_correction, log_state.writers))
