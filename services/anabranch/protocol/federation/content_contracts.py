"""Content contracts: who pays for a stream, and what for (CIDR 2003).

Theory of operation. A content contract is between the sender and the receiver of one stream; the
receiver pays, other than for load, where the one pays who hands it over. It pays by the message, up
to a rate, or by subscription. The price depends on how much of the stream came in time: the
contract has tiers, from the highest availability to the lowest, and the tier that was reached gives
the price; below the last one nothing is due. Both are read in the stream's boundary log
(``arrivals``): a message is a row of a stable bucket, availability the share of the buckets of a
period that came in time. So a stream without rows is available, and one that stands still is not.
Sums are whole numbers, in thousandths of a micro-unit as in the ledger.

A *suggested contract* informs a receiver that it can have the stream elsewhere. It changes nothing
by itself; whoever takes it up signs a content contract with the new sender, and gives the old one
notice.

Invariants:
    FQ1  less availability never costs more.
    FQ2  what is due is exact, and nothing is due out of the contract's time.
    FQ3  a suggestion is worth taking only to whom it was made, while it is open, for the same
        stream, and if it costs less and promises at least as much.
    FQ4  no more messages are due than the contract's rate allows, whatever was sent.
    FQ5  all versions of a contract have the same parties, stream, periods and delay.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final

from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.federation.contracts import (
    PARTS_PER_MILLION,
    PRICE_MICRO_MAX,
    TIME_MS_MAX,
    Side,
)
from anabranch.protocol.federation.metering import NANO_PER_MICRO
from anabranch.protocol.identifiers import checked_name

TIERS_MAX: Final = 16
"""Maximum number of price tiers of one contract: bounds what a reader holds of a foreign record."""

RATE_MAX: Final = 10**9
"""Messages in a second: what is due for a period stays below forty digits."""

_MS_PER_S: Final = 1_000


class Payment(StrEnum):
    """Unit that the price is for."""

    MESSAGE = "message"
    """Each message that came in time."""
    SECOND = "second"
    """Each second of the subscription."""


@dataclass(frozen=True, slots=True)
class Tier:
    """Price from a level of availability on."""

    availability_ppm: int
    price_micro: int


class StreamSides:
    """The sides of a contract under which streams are paid for, by the names of all contracts."""

    __slots__ = ()

    sender: str
    receiver: str
    notice_ms: int

    @property
    def buyer(self) -> str:
        """Return the participant that pays."""
        return self.receiver

    @property
    def seller(self) -> str:
        """Return the participant that is paid."""
        return self.sender

    @property
    def ends_after_ms(self) -> int:
        """Return the time from a notice until nothing is owed any more, in ms."""
        return self.notice_ms

    def party(self, participant: str) -> Side | None:
        """Which side ``participant`` is on, if any."""
        return {self.receiver: Side.BUYER, self.sender: Side.SELLER}.get(participant)


@dataclass(frozen=True, slots=True)
class ContentContract(StreamSides):
    """One version of a contract for a stream."""

    SIGNED_AS: ClassVar[str] = "content contract"

    contract_id: str
    version: int
    sender: str
    receiver: str
    stream: str
    """``SENDER.NAME``."""
    pipeline: str
    """Pipeline of the sender in which the stream has this name: the two name its boundary log."""
    bucket_ms: int
    """Width of the stream's buckets."""
    valid_from_ms: int
    valid_to_ms: int
    payment: Payment
    tiers: tuple[Tier, ...]
    delay_ms_max: int
    """A bucket that comes later after its end did not come in time, nor did its messages."""
    rate_max: int
    """Maximum number of messages per second that are paid (FQ4)."""
    settle_ms: int
    """Length of a period: a whole number of buckets."""
    notice_ms: int
    """Time from a notice to the end of the contract, in ms."""

    @property
    def entity(self) -> str:
        """Return the stream's name in its pipeline."""
        return _entity(self.stream)

    def is_version_of(self, other: ContentContract) -> bool:
        """Whether it has what all versions of a contract have in common (FQ5)."""
        return _constant(self) == _constant(other)

    @property
    def plan_count(self) -> int:
        """A contract for a stream has only one (``plan_contracts``)."""
        return 1

    def content(self, plan: int) -> ContentContract:
        """Return the terms of a plan."""
        del plan
        return self

    def price(self, availability_ppm: int) -> int:
        """Return the price of a message or second at the availability that was reached (FQ1)."""
        return next(
            (tier.price_micro for tier in self.tiers if availability_ppm >= tier.availability_ppm),
            0,
        )


def _constant(text: ContentContract) -> tuple[object, ...]:
    parties, stream = (text.sender, text.receiver), (text.stream, text.pipeline, text.bucket_ms)
    return parties, stream, text.delay_ms_max, text.settle_ms


@dataclass(frozen=True, slots=True)
class SuggestedContract:
    """To ``receiver``: you can have the stream of this contract by those terms."""

    SIGNED_AS: ClassVar[str] = "suggested contract"

    contract_id: str
    """Id of the contract that the suggested one would replace."""
    by: str
    receiver: str
    terms: ContentContract
    open_until_ms: int


@dataclass(frozen=True, slots=True)
class Delivered:
    """Delivery of a stream in a stretch of time."""

    from_ms: int
    to_ms: int
    messages: int
    """Number of messages that arrived in time."""
    buckets_in_time: int
    buckets: int
    """All of the stretch."""


def content_defects(contract: ContentContract) -> Iterator[str]:
    """Return the defects of a contract's text."""
    for kind, name in (
        ("contract", contract.contract_id),
        ("sender", contract.sender),
        ("receiver", contract.receiver),
        ("pipeline", contract.pipeline),
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
    else:
        try:
            checked_name("stream", contract.entity)
        except ConfigurationError as error:
            yield str(error)
    yield from _amount_defects(contract)
    yield from _tier_defects(contract.tiers)


def _amount_defects(contract: ContentContract) -> Iterator[str]:
    if not 0 <= contract.valid_from_ms < contract.valid_to_ms <= TIME_MS_MAX:
        yield (
            f"valid from {contract.valid_from_ms} to {contract.valid_to_ms}: not a time that begins"
            " and ends"
        )
    positive = {
        "delay_ms_max": contract.delay_ms_max,
        "bucket_ms": contract.bucket_ms,
        "settle_ms": contract.settle_ms,
    }
    wrong = [name for name, value in positive.items() if not 0 < value <= TIME_MS_MAX]
    yield from (f"{name}: {positive[name]}, not above 0" for name in wrong)
    if not 0 <= contract.notice_ms <= TIME_MS_MAX:
        yield f"notice_ms: {contract.notice_ms}, not a length of time"
    if not 0 < contract.rate_max <= RATE_MAX:
        yield f"rate_max: {contract.rate_max}, not within 1 and {RATE_MAX}"
    if not wrong and contract.settle_ms % contract.bucket_ms:
        yield (
            f"settle_ms: {contract.settle_ms} is no multiple of the bucket, {contract.bucket_ms}"
        )


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
    """Return the share of the buckets that came in time."""
    return (
        delivered.buckets_in_time * PARTS_PER_MILLION // delivered.buckets
        if delivered.buckets
        else 0
    )


def content_due_nano(contract: ContentContract, delivered: Delivered) -> int:
    """Return what the receiver owes for a stretch of time within the contract's, in nano-units
    (FQ2).
    """
    if not contract.valid_from_ms <= delivered.from_ms <= delivered.to_ms <= contract.valid_to_ms:
        return 0
    return _cost(contract, delivered)


def micro_per_s(contract: ContentContract, messages: int) -> int:
    """Return what the receiver owes for a second with this number of messages, if all arrive in
    time.
    """
    second = Delivered(0, _MS_PER_S, messages, 1, 1)
    return _cost(contract, second) // NANO_PER_MICRO


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
        and suggested.contract_id == current.contract_id
    )
    if (
        not is_meant
        or now_ms >= suggested.open_until_ms
        or next(content_defects(terms), None) is not None
    ):
        return False
    if terms.entity != current.entity or terms.delay_ms_max > current.delay_ms_max:
        return False
    if terms.tiers[0].availability_ppm < current.tiers[0].availability_ppm:
        return False
    return _cost(terms, usual) < _cost(current, usual)


def _entity(stream: str) -> str:
    """Return the name behind that of the participant."""
    return stream.partition(".")[2]


def _cost(contract: ContentContract, delivered: Delivered) -> int:
    """Return the cost by the contract's terms, whenever the delivery was (FQ4)."""
    price = contract.price(availability_ppm(delivered))
    length_ms = delivered.to_ms - delivered.from_ms
    if contract.payment is Payment.SECOND:
        return price * length_ms
    allowed = contract.rate_max * length_ms // _MS_PER_S
    return price * min(delivered.messages, allowed) * NANO_PER_MICRO
