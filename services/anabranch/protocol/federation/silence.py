"""Silence of sellers: whether one works, by the measurements of both sides.

Theory of operation. A seller that works measures what it made, slot by slot. One that is dead
measures nothing. One that is there and makes nothing may measure nothing, too, or measure zeros, so
that it seems to be alive: then its buyer has measured zeros of the same slots. A slot of which the
seller says zero and the buyer nothing yet proves nothing. That a stage had nothing to do looks the
same in a ledger; so zeros cost a seller no more than one violation, and only after the delay that
it has promised.

A seller that works is late with what it measures, too: it may make a bucket as late as it has
promised, and a slot is measured when its end was read. All that counts for it, else a buyer could
convict any seller at any time.

Invariants:
    FI1  a seller is silent that has measured nothing for ``patience_ms``.
    FI2  a seller is idle of which both sides, or the buyer alone, have measured nothing but zeros
        for ``patience_ms``; a buyer cannot make one idle that measured more than zero.
"""

from __future__ import annotations

from typing import Final

from anabranch.protocol.federation.contracts import Contract
from anabranch.protocol.federation.metering import Reading
from anabranch.protocol.federation.movements import Movement

SILENT_SLOTS: Final = 2
"""Number of metering slots by which a seller's results may be late in addition to the delay that it
has promised.
"""

MEASURED_AFTER_MS: Final = 2_000
"""Delay from the end of a slot to its measurement, in ms: by then the end of the movement is read,
if it ended in the slot.
"""


def promised_ms(contract: Contract) -> int:
    """Return how long a seller may produce nothing of available input before its buyer takes the
    task home, in ms.
    """
    return contract.quality.delay_ms_max + SILENT_SLOTS * contract.audit.meter_ms


def patience_ms(contract: Contract) -> int:
    """Return how long a ledger may show no production of a seller before that counts as a failure,
    in ms: the promised time, plus the time until it is measured.
    """
    return promised_ms(contract) + MEASURED_AFTER_MS


class SellerSilence:
    """Silence of the sellers in one contract's ledger. Not thread-safe. After a crash: replay."""

    def __init__(self) -> None:
        self._measured_ms: dict[str, int] = {}
        """Movement -> end of the last slot that its seller measured."""
        self._worked_ms: dict[str, int] = {}
        """Movement -> end of the last slot in which it worked, by either side's measurement."""
        self._open: dict[str, set[int]] = {}
        """Movement -> ends of the slots of which the seller says zero and the buyer nothing."""

    def measured(self, movement_id: str, end_ms: int, reading: Reading) -> None:
        """Record the measurements of both sides by now in the slot that ends at ``end_ms``."""
        is_open = self._open.setdefault(movement_id, set())
        if reading.seller is not None:
            _raise(self._measured_ms, movement_id, end_ms)
        if reading.seller or reading.buyer:
            _raise(self._worked_ms, movement_id, end_ms)
            is_open.discard(end_ms)
        elif reading.buyer is None:
            is_open.add(end_ms)
        else:
            is_open.discard(end_ms)

    def settled(self, end_ms: int) -> None:
        """Close the slots up to ``end_ms`` for measurements: the seller's zeros stand."""
        for movement_id, ends in self._open.items():
            for each in [each for each in ends if each <= end_ms]:
                _raise(self._worked_ms, movement_id, each)
                ends.discard(each)

    def silent_ms(self, movement: Movement, at_ms: int) -> int:
        """Return how long the seller had measured nothing at a time of the log, in ms."""
        return at_ms - max(movement.started_ms, self._measured_ms.get(movement.movement_id, 0))

    def is_silent(self, movement: Movement, contract: Contract, at_ms: int) -> bool:
        """Return whether the seller has measured nothing for too long (FI1)."""
        return self.silent_ms(movement, at_ms) > patience_ms(contract)

    def is_idle(self, movement: Movement, contract: Contract, at_ms: int) -> bool:
        """Return whether the seller has made nothing for too long (FI2)."""
        name = movement.movement_id
        worked_ms = max(movement.started_ms, self._worked_ms.get(name, 0))
        unanswered = [end_ms for end_ms in self._open.get(name, ()) if end_ms > worked_ms]
        return min(unanswered, default=at_ms) - worked_ms > patience_ms(contract)


def _raise(ends: dict[str, int], movement_id: str, end_ms: int) -> None:
    ends[movement_id] = max(ends.get(movement_id, 0), end_ms)
