"""Figures that one side of a contract states of a movement: which slots it measures, when, and what
it says of each.

Theory of operation. Both sides read the logs of the stage and measure slot by slot
(``protocol.federation.workload``). A side that has followed a contract only since some moment, as
after a restart, begins with the slot of that moment, and has no figure of one that it did not
follow whole: the other side's counts then (``protocol.federation.metering``).

A seller that made nothing in a slot says nothing of it, which counts as silence
(``protocol.federation.silence``): a zero would look like a stage that had nothing to do. Its buyer
says zero, which is what it pays for.

Invariants:
    SM1 the slots of a movement are measured in their order, each once, from the one in which it
        began, or this side began to follow it, to the one in which it ended.
    SM2 a slot is measured only when its end is read, and all buckets in it are closed: no later
        record can change its figure.
    SM3 a side states no figure of a slot that it did not follow whole, or in which the movement did
        not run.
    SM4 a seller states a figure only of slots in which one of the movement's nodes closed a
        bucket, a buyer also of the others.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum, auto
from typing import NamedTuple

from anabranch.protocol.federation.contracts import Contract
from anabranch.protocol.federation.metering import overlap_ms
from anabranch.protocol.federation.movements import Movement, MovementState
from anabranch.protocol.federation.silence import MEASURED_AFTER_MS
from anabranch.protocol.federation.stage_moves import nodes_of
from anabranch.protocol.federation.workload import Workload


class SlotStep(Enum):
    """Decision about a slot."""

    STATE = auto()
    """Write the figure, then take the next slot."""
    SKIP = auto()
    """There is nothing to state: take the next slot."""
    WAIT = auto()
    """It cannot be measured yet."""
    DONE = auto()
    """Neither it nor a later one belongs to the movement."""


class SlotFigure(NamedTuple):
    """Decision about a slot."""

    step: SlotStep
    units: int = 0
    """Load that ran, in units; 0 unless it is to be stated."""


def first_slot(movement: Movement, meter_ms: int, followed_ms: int) -> int:
    """Return the first slot to measure (SM1). ``followed_ms``: time in the contract's log from
    which this side has followed it.
    """
    return max(movement.started_ms, followed_ms) // meter_ms


def slot_figure(
    slot: int,
    movement: Movement,
    contract: Contract,
    workload: Workload,
    allowed: Collection[str],
    now_ms: int,
    *,
    is_seller: bool,
) -> SlotFigure:
    """Decide about ``slot`` of ``movement``.

    Args:
        slot: Number of the slot.
        movement: Movement of a task, running or over.
        contract: Contract under which it runs.
        workload: Workload of the task's stage, as this side has followed it.
        allowed: Partners' nodes on which the owner lets the task run.
        now_ms: Wall clock time.
        is_seller: Whether this side is the seller.
    """
    meter_ms, is_over = contract.audit.meter_ms, movement.state is MovementState.OVER
    if is_over and slot * meter_ms >= movement.ended_ms:
        return SlotFigure(SlotStep.DONE)
    if (slot + 1) * meter_ms + MEASURED_AFTER_MS > now_ms or not workload.is_over(slot, meter_ms):
        return SlotFigure(SlotStep.WAIT)
    ended_ms = movement.ended_ms if is_over else None
    ran_ms = overlap_ms(slot, meter_ms, movement.started_ms, ended_ms)
    nodes = nodes_of(movement, contract.seller, allowed)
    units = workload.units(slot, meter_ms, nodes, ran_ms)
    if units is None or not ran_ms:
        return SlotFigure(SlotStep.SKIP)
    if is_seller and not workload.has_made(slot, meter_ms, nodes):
        return SlotFigure(SlotStep.SKIP)
    return SlotFigure(SlotStep.STATE, units)
