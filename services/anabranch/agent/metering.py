"""Meter of moved stages: measures their load slot by slot and writes it into the ledgers. The
seller states what its node processed, the buyer what the seller's node processed. For a resold
stage that is each node which its seller named and which the owner's file allows.

A crash loses the slots that were not observed entirely: for those the other side's figure counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from anabranch.protocol.federation.contract_log import LoadLog
from anabranch.protocol.federation.contracts import Side
from anabranch.protocol.federation.ledger import Ledger, Metered
from anabranch.protocol.federation.metering import overlap_ms
from anabranch.protocol.federation.movements import Movement, MovementState, Unfinished
from anabranch.protocol.federation.silence import MEASURED_AFTER_MS
from anabranch.protocol.federation.stage_moves import nodes_of

if TYPE_CHECKING:
    from anabranch.agent.stage_logs import StageLogs
    from anabranch.federation.ledger_writer import LedgerWriter
    from anabranch.ports import Clock

_SLOTS_AT_ONCE: Final = 20
"""Maximum number of slots of a movement that one round measures."""


class Meter:
    """Meter of one participant. Not thread-safe."""

    def __init__(self, participant: str, ledgers: LedgerWriter, clock: Clock) -> None:
        self._participant = participant
        self._ledgers = ledgers
        self._clock = clock
        self._begun_ms: dict[str, int] = {}
        """Time in each contract's log from which this process has followed it."""
        self._next: dict[str, int] = {}
        """Next slot to measure, by movement."""
        self._unfinished: defaultdict[str, Unfinished] = defaultdict(Unfinished)
        """Movements that are not measured to their ends, by contract."""

    def measure(self, contracts: Mapping[str, LoadLog], stages: Mapping[str, StageLogs]) -> None:
        """Write the figures of the slots that are over and not measured yet."""
        for log in contracts.values():
            booked, ledger = log.booked, log.ledger
            if booked is None or ledger is None:
                continue
            side = booked.contract.party(self._participant)
            if side is None:
                continue
            self._begun_ms.setdefault(log.contract_id, log.now_ms)
            unfinished = self._unfinished[log.contract_id]
            for movement in unfinished.of(ledger.movements):
                logs = stages.get(movement.task)
                if (
                    logs is not None
                    and self._movement(log.contract_id, ledger, movement, logs, side is Side.SELLER)
                ) or (logs is None and movement.state is MovementState.OVER):
                    unfinished.done(movement.movement_id)
                    self._next.pop(movement.movement_id, None)

    def _movement(
        self, contract_id: str, ledger: Ledger, movement: Movement, logs: StageLogs, is_seller: bool
    ) -> bool:
        """Write the figures of one movement's slots. Return whether there are no further ones."""
        contract = ledger.movements.contract(movement.version)
        meter_ms, name = contract.audit.meter_ms, movement.movement_id
        is_over = movement.state is MovementState.OVER
        first = self._next.get(
            name, max(movement.started_ms, self._begun_ms[contract_id]) // meter_ms
        )
        for slot in range(first, first + _SLOTS_AT_ONCE):
            self._next[name] = slot
            if is_over and slot * meter_ms >= movement.ended_ms:
                return True
            if (slot + 1) * meter_ms + MEASURED_AFTER_MS > self._clock.now_ms():
                return False
            if not logs.workload.is_over(slot, meter_ms):
                return False
            ran_ms = overlap_ms(
                slot, meter_ms, movement.started_ms, movement.ended_ms if is_over else None
            )
            nodes = nodes_of(movement, contract.seller, logs.allowed)
            units = logs.workload.units(slot, meter_ms, nodes, ran_ms)
            # A seller that processed nothing states nothing, which counts as silence; its buyer
            # states zero.
            says = logs.workload.has_made(slot, meter_ms, nodes) or not is_seller
            if units is None or not says or not ran_ms:
                continue
            if not self._ledgers.write(Metered(contract_id, name, self._participant, slot, units)):
                return False  # its outcome is unknown: it is written again, before the next one
        return False
