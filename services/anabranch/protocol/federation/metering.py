"""Metering of load: how much ran, for how long, and the amount due for it.

Theory of operation. Time is cut into slots of the contract's metering interval, counted from 1970;
a settlement period is a whole number of slots. Seller and buyer each write what they measured in
each slot in which a movement ran. The amount due for a slot is price x units x time; with the time
in milliseconds it is exact, in thousandths of a micro-unit.

The units that count for a slot:
    both measured, within the tolerance   the seller's
    both measured, further apart          the smaller, and it is a dispute
    only the buyer measured               the buyer's
    only the seller measured              the seller's, but no more than what was agreed and the
                                          tolerance: a buyer that does not measure pays all the same
    neither side measured                 none

Invariants:
    FB1  what is due is exact, and the same for all readers of the ledger.
    FB2  each millisecond of a movement belongs to one slot and one period.
    FB3  by a claim alone a seller gets no more than what was agreed and the tolerance.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from anabranch.protocol.federation.contracts import PARTS_PER_MILLION, AuditClauses

# Amounts in the ledger are in thousandths of a micro-unit.
NANO_PER_MICRO: Final = 1_000


class Reading(NamedTuple):
    """Measurements of the two sides in a slot, in units of load; None if a side has none yet."""

    seller: int | None = None
    buyer: int | None = None


def within(claimed: int, measured: int, tolerance_ppm: int) -> bool:
    """Return whether two measurements of one load are equal within the tolerance."""
    return abs(claimed - measured) * PARTS_PER_MILLION <= measured * tolerance_ppm


def is_dispute(reading: Reading, tolerance_ppm: int) -> bool:
    """Return whether both sides have measured, with different results."""
    return (
        reading.seller is not None
        and reading.buyer is not None
        and not within(reading.seller, reading.buyer, tolerance_ppm)
    )


def counted(reading: Reading, agreed_units: int, tolerance_ppm: int) -> int:
    """Return the units that count: the table above (FB3)."""
    if reading.seller is None:
        return reading.buyer or 0
    if reading.buyer is None:
        return min(
            reading.seller, agreed_units * (PARTS_PER_MILLION + tolerance_ppm) // PARTS_PER_MILLION
        )
    return (
        min(reading.seller, reading.buyer) if is_dispute(reading, tolerance_ppm) else reading.seller
    )


def overlap_ms(slot: int, meter_ms: int, started_ms: int, ended_ms: int | None) -> int:
    """Return how long a movement ran within a slot, in ms (FB2)."""
    first, last = slot * meter_ms, (slot + 1) * meter_ms
    return max(0, min(last, last if ended_ms is None else ended_ms) - max(first, started_ms))


def period_of(slot: int, clauses: AuditClauses) -> int:
    """Return the settlement period of a slot."""
    return slot * clauses.meter_ms // clauses.settle_ms


def period_end_ms(period: int, clauses: AuditClauses) -> int:
    """Return the end of a period, in ms."""
    return (period + 1) * clauses.settle_ms


def due_nano(price: int, units: int, ran_ms: int) -> int:
    """Price x units x time (FB1): micro-units per unit and second, units, milliseconds."""
    return price * units * ran_ms
