"""Content contracts: who pays for a stream, and what for (CIDR 2003).

Theory of operation. A content contract is between the sender and the receiver of one stream; the
receiver pays, other than for load, where the one pays who hands it over. It pays by the message or
by subscription. The price depends on how much of the stream came in time: the contract has tiers,
from the highest availability to the lowest, and the tier that was reached gives the price; below
the last one nothing is due. A *suggested contract* informs a receiver that it can have the stream
elsewhere. It changes nothing by itself; whoever takes it up signs a content contract with the new
sender, and gives the old one notice. Sums are whole numbers, in thousandths of a micro-unit as in
the ledger.

Invariants:
    FQ1  less availability never costs more.
    FQ2  what is due is exact, and nothing is due out of the contract's time.
    FQ3  a suggestion is worth taking only to whom it was made, while it is open, for the same
        stream, and if it costs less and promises at least as much.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final

from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.federation.contracts import PARTS_PER_MILLION, PRICE_MICRO_MAX, TIME_MS_MAX
from anabranch.protocol.federation.metering import NANO_PER_MICRO
from anabranch.protocol.identifiers import checked_name

TIERS_MAX: Final = 16
"""Of one contract: bounds what a reader holds of a foreign record."""


class Payment(StrEnum):
    """What the price is for."""

    MESSAGE = "message"
    """Each message that came in time."""
    SECOND = "second"
    """Each second of the subscription."""


@dataclass(frozen=True, slots=True)
class Tier:
    """From this availability on, this price."""

    availability_ppm: int
    price_micro: int


@dataclass(frozen=True, slots=True)
class ContentContract:
    """One version of a contract for a stream. ``options`` are agreements that no rule reads,
    as sorted ``name=value``.
    """

    SIGNED_AS: ClassVar[str] = "content contract"

    contract_id: str
    version: int
    sender: str
    receiver: str
    stream: str
    valid_from_ms: int
    valid_to_ms: int
    payment: Payment
    tiers: tuple[Tier, ...]
    delay_ms_max: int
    """A message that comes later did not come in time."""
    options: tuple[str, ...] = ()

    def price(self, availability_ppm: int) -> int:
        """Of a message or second, at the availability that was reached (FQ1)."""
        return next(
            (tier.price_micro for tier in self.tiers if availability_ppm >= tier.availability_ppm),
            0,
        )


@dataclass(frozen=True, slots=True)
class SuggestedContract:
    """To ``receiver``: you can have the stream of this contract by those terms."""

    SIGNED_AS: ClassVar[str] = "suggested contract"

    suggested_by: str
    receiver: str
    instead_of: str
    """Id of the content contract that it would replace."""
    terms: ContentContract
    open_until_ms: int


@dataclass(frozen=True, slots=True)
class Delivered:
    """What came of a stream in a stretch of time."""

    from_ms: int
    to_ms: int
    in_time: int
    """Messages."""
    expected: int


def content_defects(contract: ContentContract) -> Iterator[str]:
    """What is wrong with the text of a contract."""
    for kind, name in (
        ("contract", contract.contract_id),
        ("sender", contract.sender),
        ("receiver", contract.receiver),
    ):
        try:
            checked_name(kind, name)
        except ConfigurationError as error:
            yield str(error)
    if contract.sender == contract.receiver:
        yield "sender and receiver are the same participant"
    if contract.version < 1:
        yield f"version: {contract.version}; the first is 1"
    if not contract.stream.startswith(f"{contract.sender}."):
        yield f"stream: {contract.stream!r} is not a stream of {contract.sender}"
    if not 0 <= contract.valid_from_ms < contract.valid_to_ms <= TIME_MS_MAX:
        yield (
            f"valid from {contract.valid_from_ms} to {contract.valid_to_ms}: not a time that begins"
            " and ends"
        )
    if not 0 < contract.delay_ms_max <= TIME_MS_MAX:
        yield f"delay_ms_max: {contract.delay_ms_max}, not above 0"
    if list(contract.options) != sorted(set(contract.options)):
        yield "options: not sorted, or one stands twice"
    yield from _tier_defects(contract.tiers)


def _tier_defects(tiers: tuple[Tier, ...]) -> Iterator[str]:
    if not 0 < len(tiers) <= TIERS_MAX:
        yield f"tiers: {len(tiers)}, not between 1 and {TIERS_MAX}"
    for tier in tiers:
        if (
            not 0 <= tier.availability_ppm <= PARTS_PER_MILLION
            or not 0 < tier.price_micro <= PRICE_MICRO_MAX
        ):
            yield f"tiers: {tier.price_micro} from {tier.availability_ppm} parts per million on"
    levels, prices = [tier.availability_ppm for tier in tiers], [tier.price_micro for tier in tiers]
    if levels != sorted(set(levels), reverse=True) or prices != sorted(prices, reverse=True):
        yield (
            "tiers: they go from the highest availability to the lowest, and none costs more than"
            " the one before"
        )


def availability_ppm(delivered: Delivered) -> int:
    """The share of the messages that came in time; of nothing that was expected all came."""
    return (
        PARTS_PER_MILLION
        if not delivered.expected
        else min(PARTS_PER_MILLION, delivered.in_time * PARTS_PER_MILLION // delivered.expected)
    )


def content_due_nano(contract: ContentContract, delivered: Delivered) -> int:
    """What the receiver owes for a stretch of time that lies within the contract's (FQ2)."""
    if not contract.valid_from_ms <= delivered.from_ms <= delivered.to_ms <= contract.valid_to_ms:
        return 0
    price = contract.price(availability_ppm(delivered))
    if contract.payment is Payment.MESSAGE:
        return price * delivered.in_time * NANO_PER_MICRO
    return price * (delivered.to_ms - delivered.from_ms)


def is_worth_taking(
    suggested: SuggestedContract,
    current: ContentContract,
    receiver: str,
    usual: Delivered,
    now_ms: int,
) -> bool:
    """Whether to have the stream elsewhere is better, by what usually comes (FQ3)."""
    terms = suggested.terms
    is_meant = (
        suggested.receiver == receiver == terms.receiver
        and suggested.instead_of == current.contract_id
    )
    if (
        not is_meant
        or now_ms >= suggested.open_until_ms
        or next(content_defects(terms), None) is not None
    ):
        return False
    if (
        _entity(terms.stream) != _entity(current.stream)
        or terms.delay_ms_max > current.delay_ms_max
    ):
        return False
    if terms.tiers[0].availability_ppm < current.tiers[0].availability_ppm:
        return False
    return _rate(terms, usual) < _rate(current, usual)


def _entity(stream: str) -> str:
    """The name behind that of the participant."""
    return stream.partition(".")[2]


def _rate(contract: ContentContract, usual: Delivered) -> int:
    """What it would cost by what usually comes, whenever that was."""
    price = contract.price(availability_ppm(usual))
    units = (
        usual.in_time * NANO_PER_MICRO
        if contract.payment is Payment.MESSAGE
        else usual.to_ms - usual.from_ms
    )
    return price * units
