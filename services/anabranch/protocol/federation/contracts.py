"""Bounded-price contracts: what two participants sign before any load moves (the Bounded-Price
Mechanism, NSDI 2004).

Theory of operation. A contract has a direction: the buyer may hand load to the seller and pays for
it. The price of each movement may be anything between ``fixed_price - delta`` and ``fixed_price``;
delta 0 is a fixed price. A contract bounds the price of load that moves. It obliges nobody to take
load. Both sign the same bytes. A new version replaces the one before, from the moment at which both
have signed it; load that moved under an older version keeps the terms under which it moved. Nobody
but the two knows a contract. Names of tasks are of the whole federation (``owner.task``): a task
that is sold on keeps its own.

A contract's states and what changes them; what is not in the table is rejected:
    proposed   --signed by both-->      active
    proposed   --withdrawn-->           ended
    active     --suspended-->           suspended     no new load moves; what has moved continues
    active     --notice-->              ending        no new load moves; what has moved comes home
                                                      within the drain time
    suspended  --resumed-->             active
    suspended  --notice-->              ending
    any of these but proposed, past its end --expired--> ended

Invariants:
    FC1  load may move only under a contract that is valid, signed by both, in its time, not
        suspended and not ending.
    FC2  one id has one buyer and one seller for ever, and one text for each version: the first that
        both signed.
    FC3  a version counts only if it is the next one, so that a record that is written again changes
        nothing.
    FC4  only the two parties change a contract, and each only what is its right.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final

from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.identifiers import checked_name
from anabranch.protocol.stage.owners_checkpoint import Transfer

PRICE_MICRO_MAX: Final = 10**12
"""Maximum price of a unit and second, in micro-units: above it a sum over a year no longer fits the
64 bits in which other systems hold micro-units.
"""

TASKS_MAX: Final = 1_000
"""Maximum number of tasks in one contract: bounds what a reader holds of a foreign record."""

TIME_MS_MAX: Final = 2**53
"""Maximum time in a contract, in ms: beyond it a JSON reader rounds."""

PARTS_PER_MILLION: Final = 1_000_000


class Side(StrEnum):
    """Side of a contract."""

    BUYER = "buyer"
    """Side that hands load over, and pays."""
    SELLER = "seller"
    """Side that runs load, and is paid."""


@dataclass(frozen=True, slots=True)
class LoadUnit:
    """Unit of load: this many parts per million of what the reference does in a second."""

    reference: str
    share_ppm: int


@dataclass(frozen=True, slots=True)
class MoveClauses:
    """Clauses on a movement."""

    transfer: Transfer
    """Way in which the seller's node gets the state: as the pipeline file says of each task, else
    nobody trades it (FZ3).
    """
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class QualityClauses:
    """Clauses on the quality that the seller promises of a task that it runs."""

    delay_ms_max: int


@dataclass(frozen=True, slots=True)
class EndClauses:
    """Terms of an end before a contract's time: notice, then time in which load comes home."""

    notice_ms: int
    drain_ms: int


@dataclass(frozen=True, slots=True)
class PenaltyClauses:
    """Penalties: for a violation, and for each second in which the seller does not run what it
    accepted.
    """

    violation_micro: int
    silent_micro_per_s: int


@dataclass(frozen=True, slots=True)
class AuditClauses:
    """Terms by which running load is metered, compared and settled."""

    meter_ms: int
    """Length of a metering interval, in ms."""
    tolerance_ppm: int
    """Maximum difference of the two meters, in parts per million."""
    sample_ppm: int
    """Share of the buckets that is computed again, in parts per million."""
    settle_ms: int
    """Length of a settlement period: a multiple of the metering interval."""


@dataclass(frozen=True, slots=True)
class Contract:
    """One version of a contract. Times are in milliseconds since 1970, prices in micro-units
    per unit of load and second.
    """

    SIGNED_AS: ClassVar[str] = "bounded price contract"

    contract_id: str
    version: int
    buyer: str
    seller: str
    valid_from_ms: int
    valid_to_ms: int
    fixed_price: int
    delta: int
    unit: LoadUnit
    tasks: tuple[str, ...]
    min_hold_ms: int
    moving: MoveClauses
    quality: QualityClauses
    ending: EndClauses
    penalty: PenaltyClauses
    audit: AuditClauses

    @property
    def floor(self) -> int:
        """Lowest price inside the bound."""
        return self.fixed_price - self.delta

    @property
    def ends_after_ms(self) -> int:
        """Return the time from a notice until nothing is owed any more, in ms."""
        return self.ending.notice_ms + self.ending.drain_ms

    def is_version_of(self, other: object) -> bool:
        """Return whether the text has the terms that all versions of a contract share (FC2)."""
        return isinstance(other, Contract) and (self.buyer, self.seller) == (
            other.buyer,
            other.seller,
        )

    def party(self, participant: str) -> Side | None:
        """Return the side of the contract that ``participant`` is on; None if neither."""
        return {self.buyer: Side.BUYER, self.seller: Side.SELLER}.get(participant)


def defects(contract: Contract) -> Iterator[str]:
    """Return the defects of a contract's text. Signatures are not checked here."""
    yield from _names(contract)
    yield from _amounts(contract)
    yield from _clauses(contract)


def _names(contract: Contract) -> Iterator[str]:
    for kind, name in (
        ("contract", contract.contract_id),
        ("buyer", contract.buyer),
        ("seller", contract.seller),
    ):
        try:
            checked_name(kind, name)
        except ConfigurationError as error:
            yield str(error)
    if contract.buyer == contract.seller:
        yield "buyer and seller are the same participant"
    if not contract.tasks:
        yield "tasks: names none, so nothing may move"
    if len(contract.tasks) > TASKS_MAX:
        yield f"tasks: {len(contract.tasks)} names, at most {TASKS_MAX}"
    if list(contract.tasks) != sorted(set(contract.tasks)):
        yield "tasks: not sorted, or a name stands twice"
    if not contract.unit.reference:
        yield "unit: names no reference"


def _amounts(contract: Contract) -> Iterator[str]:
    if contract.version < 1:
        yield f"version: {contract.version}; the first is 1"
    if not 0 <= contract.valid_from_ms < contract.valid_to_ms <= TIME_MS_MAX:
        yield (
            f"valid from {contract.valid_from_ms} to {contract.valid_to_ms}: not a time that begins"
            " and ends"
        )
    if not 0 < contract.fixed_price <= PRICE_MICRO_MAX:
        yield f"fixed_price: {contract.fixed_price}, not within 1 and {PRICE_MICRO_MAX}"
    if not 0 <= contract.delta <= contract.fixed_price:
        yield (
            f"delta: {contract.delta}, not within 0 and the fixed price: a price below nothing pays"
            " for giving load away"
        )
    if not 0 < contract.unit.share_ppm <= PARTS_PER_MILLION:
        yield f"unit: {contract.unit.share_ppm} parts per million of the reference"


def _clauses(contract: Contract) -> Iterator[str]:
    positive = {
        "moving.deadline_ms": contract.moving.deadline_ms,
        "audit.meter_ms": contract.audit.meter_ms,
    }
    positive["audit.settle_ms"] = contract.audit.settle_ms
    yield from (
        f"{name}: {value}, not above 0"
        for name, value in positive.items()
        if not 0 < value <= TIME_MS_MAX
    )
    times = {
        "min_hold_ms": contract.min_hold_ms,
        "quality.delay_ms_max": contract.quality.delay_ms_max,
        "ending.notice_ms": contract.ending.notice_ms,
        "ending.drain_ms": contract.ending.drain_ms,
    }
    yield from (
        f"{name}: {value}, not a length of time"
        for name, value in times.items()
        if not 0 <= value <= TIME_MS_MAX
    )
    shares = {
        "audit.tolerance_ppm": contract.audit.tolerance_ppm,
        "audit.sample_ppm": contract.audit.sample_ppm,
    }
    yield from (
        f"{name}: {value}, not parts per million"
        for name, value in shares.items()
        if not 0 <= value <= PARTS_PER_MILLION
    )
    amounts = {
        "violation_micro": contract.penalty.violation_micro,
        "silent_micro_per_s": contract.penalty.silent_micro_per_s,
    }
    yield from (
        f"penalty.{name}: {value}, not an amount"
        for name, value in amounts.items()
        if not 0 <= value <= PRICE_MICRO_MAX
    )
    if contract.audit.meter_ms > 0 and contract.audit.settle_ms % contract.audit.meter_ms:
        yield (
            f"audit.settle_ms: {contract.audit.settle_ms} is no multiple of meter_ms,"
            f" {contract.audit.meter_ms}"
        )
