"""Meter of moved stages: measures their load slot by slot and writes it into the ledgers
(``protocol.federation.slot_figures``).

A crash loses the slots that were not observed entirely: for those the other side's figure counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from anabranch.protocol.federation.contract_log import LoadLog
from anabranch.protocol.federation.contracts import Side
from anabranch.protocol.federation.ledger import Ledger, Metered
from anabranch.protocol.federation.movements import Movement, MovementState, Unfinished
from anabranch.protocol.federation.slot_figures import SlotStep, first_slot, slot_figure

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
        contract, name = ledger.movements.contract(movement.version), movement.movement_id
        begun_ms, meter_ms = self._begun_ms[contract_id], contract.audit.meter_ms
        first = self._next.get(name, first_slot(movement, meter_ms, begun_ms))
        for slot in range(first, first + _SLOTS_AT_ONCE):
            self._next[name] = slot
            found = slot_figure(
                slot,
                movement,
                contract,
                logs.workload,
                logs.allowed,
                self._clock.now_ms(),
                is_seller=is_seller,
            )
            match found.step:
                case SlotStep.DONE:
                    return True
                case SlotStep.WAIT:
                    return False
                case SlotStep.STATE:
                    entry = Metered(contract_id, name, self._participant, slot, found.units)
                    if not self._ledgers.write(entry):
                        return False  # its outcome is unknown: it is written again, before the next
                case SlotStep.SKIP:
                    pass
        return False
