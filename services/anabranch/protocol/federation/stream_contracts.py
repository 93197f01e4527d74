"""Contracts for streams: the price of a stream, its terms, and the plans of a query on which sender
and receiver have agreed (CIDR 2003).

Theory of operation. A contract is between the sender and the receiver of a stream. The receiver
pays; in contracts for load the participant that hands over the load pays. A *plan* has the terms:
which stream is paid for, and how. The receiver pays by the message, up to a rate, or by
subscription. The price depends on how much of the stream came in time: a plan has tiers, from the
highest availability to the lowest, and the tier that was reached gives the price; below the last
one nothing is due. Both are read in the stream's boundary log (``arrivals``): a message is a row of
a stable bucket, availability the share of the buckets of a period that came in time. So a stream
without rows is available, and one that stands still is not. Sums are whole numbers, in thousandths
of a micro-unit as in the ledger.

A contract with one plan is Medusa's *content contract*. One with several is its *movement
contract*: they are plans of one query, which is one or more stages of the receiver's pipeline that
read the sender's stream. A plan says which of these stages run on the sender's node. All plans give
the same results. The first is the plain one: the whole query runs at home, and the receiver pays
for the sender's stream. Under any other the receiver pays for the results of a stage that the
sender runs. All plans are in one text that both sign, so both have agreed to each plan before it is
ever active (``plan_switching``), and a period is charged under one plan alone (``stream_ledger``).

A *suggested contract* informs a receiver that it can have the stream elsewhere. It changes nothing
by itself; a receiver that accepts it signs a contract with the new sender, and gives the old one
notice.

Invariants:
    FQ1  less availability never costs more.
    FQ2  what is due is exact.
    FQ3  a suggestion is worth taking only for its addressee, while it is open, for the same stream,
        and if it costs less and promises at least as much.
    FQ4  no more messages are due than the plan's rate allows, whatever was sent.
    FQ5  all versions of a contract have the same parties, periods and plans, with the same streams
        and delays; only prices, rates and times change.
    MC1  the first plan has no stage at the sender, each other has some, and no two have the same.
    MC2  what is paid under a plan is a stream that the sender makes under it.
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
"""Maximum number of price tiers of one plan: bounds what a reader holds of a foreign record."""

PLANS_MAX: Final = 8
"""Maximum number of plans of one contract, for the same reason."""

STAGES_MAX: Final = 16
"""Maximum number of stages of one plan, for the same reason."""

RATE_MAX: Final = 10**9
"""Messages in a second: what is due for a period stays below forty digits."""

GAIN_PERMILLE_MAX: Final = 10_000
"""A plan that must be ten times better: more would never be."""

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


@dataclass(frozen=True, slots=True)
class PeriodDelivery:
    """Delivery of a stream in a stretch of time."""

    length_ms: int
    messages: int
    """Number of messages that arrived in time."""
    buckets_in_time: int
    buckets: int
    """Number of all buckets of the stretch."""

    @property
    def availability_ppm(self) -> int:
        """Share of the buckets that came in time, in parts per million; 0 of no bucket."""
        return self.buckets and self.buckets_in_time * PARTS_PER_MILLION // self.buckets


@dataclass(frozen=True, slots=True)
class StreamTerms:
    """Terms for a stream, and where the stages run that make it."""

    at_sender: tuple[str, ...]
    """Stages of the receiver's pipeline, sorted, that run on the sender's node; the others run at
    home.
    """
    pipeline: str
    """Pipeline of the stream that is paid for: the sender's under the first plan, else the
    receiver's.
    """
    stream: str
    """Name of the stream in that pipeline: the two name its boundary log."""
    payment: Payment
    tiers: tuple[Tier, ...]
    delay_ms_max: int
    """Time after the end of a bucket in which it, and its messages, come in time, in ms."""
    rate_max: int
    """Maximum number of messages per second that are paid (FQ4)."""

    def due_nano(self, delivered: PeriodDelivery) -> int:
        """Return what the receiver owes for a stretch of time, in nano-units (FQ1, FQ2, FQ4)."""
        price = next(
            (
                tier.price_micro
                for tier in self.tiers
                if delivered.availability_ppm >= tier.availability_ppm
            ),
            0,
        )
        if self.payment is Payment.SECOND:
            return price * delivered.length_ms
        allowed = self.rate_max * delivered.length_ms // _MS_PER_S
        return price * min(delivered.messages, allowed) * NANO_PER_MICRO

    def micro_per_s(self, messages: int) -> int:
        """Return what the receiver owes for a second with this number of messages, if all arrive in
        time.
        """
        return self.due_nano(PeriodDelivery(_MS_PER_S, messages, 1, 1)) // NANO_PER_MICRO


@dataclass(frozen=True, slots=True)
class StreamContract:
    """One version of a contract. ``plans[0]`` is the plain plan, and the only one of a content
    contract, whose text has no ``pipeline`` and zeros for all that is about switching.
    """

    SIGNED_AS: ClassVar[str] = "stream contract"

    contract_id: str
    version: int
    sender: str
    """Has the stream that the receiver reads, may run the query, and is paid."""
    receiver: str
    """Has the query in its pipeline, and pays."""
    bucket_ms: int
    """Width of the buckets of all streams."""
    valid_from_ms: int
    valid_to_ms: int
    plans: tuple[StreamTerms, ...]
    settle_ms: int
    """Length of a period: a whole number of buckets."""
    notice_ms: int
    """Time from a notice to the end of the contract, in ms."""
    pipeline: str = ""
    """Pipeline of the receiver that has the query."""
    proposal_ms: int = 0
    """Time in which a proposal can be agreed to, in ms."""
    deadline_ms: int = 0
    """Maximum duration of a switch that both have agreed to, in ms."""
    min_hold_ms: int = 0
    """Minimum time for which a plan stays active before another is proposed, in ms."""
    gain_permille: int = 0
    """Minimum gain for which an oracle proposes or agrees to a plan, per mille: noise must not
    switch plans.
    """

    @property
    def buyer(self) -> str:
        """Participant that pays."""
        return self.receiver

    @property
    def seller(self) -> str:
        """Participant that is paid."""
        return self.sender

    @property
    def ends_after_ms(self) -> int:
        """Time from a notice until nothing is owed any more, in ms."""
        return self.notice_ms

    @property
    def delay_ms_max(self) -> int:
        """The longest delay of all plans, in ms."""
        return max(plan.delay_ms_max for plan in self.plans)

    @property
    def query(self) -> tuple[str, ...]:
        """Stages that any plan has at the sender, sorted: those that may move."""
        return tuple(sorted({stage for plan in self.plans for stage in plan.at_sender}))

    @property
    def has_switches(self) -> bool:
        """Whether it is a movement contract."""
        return len(self.plans) > 1

    def is_version_of(self, other: object) -> bool:
        """Return whether it has what all versions of a contract have in common (FQ5)."""
        return isinstance(other, StreamContract) and _constant(self) == _constant(other)

    def party(self, participant: str) -> Side | None:
        """Return the side on which ``participant`` is; None if it is on none."""
        return {self.receiver: Side.BUYER, self.sender: Side.SELLER}.get(participant)


def _constant(text: StreamContract) -> tuple[object, ...]:
    plans = [(each.at_sender, each.pipeline, each.stream, each.delay_ms_max) for each in text.plans]
    return text.sender, text.receiver, text.pipeline, text.bucket_ms, text.settle_ms, plans


@dataclass(frozen=True, slots=True)
class SuggestedContract:
    """To ``receiver``: you can have the stream of this contract by those terms."""

    SIGNED_AS: ClassVar[str] = "suggested contract"

    contract_id: str
    """Id of the contract that the suggested one would replace."""
    by: str
    receiver: str
    terms: StreamContract
    """A contract with one plan."""
    open_until_ms: int


def stream_defects(contract: StreamContract) -> Iterator[str]:
    """Yield the defects of a contract's text."""
    yield from _wrong_names(
        ("contract", contract.contract_id),
        ("sender", contract.sender),
        ("receiver", contract.receiver),
    )
    if contract.sender == contract.receiver:
        yield "sender and receiver are the same participant"
    if contract.version < 1:
        yield f"version: {contract.version}; the first is 1"
    yield from _time_defects(contract)
    if not 0 < len(contract.plans) <= PLANS_MAX:
        yield f"plans: {len(contract.plans)}, not between 1 and {PLANS_MAX}"
        return
    for number, plan in enumerate(contract.plans):
        yield from (f"plan {number}: {each}" for each in _plan_defects(plan))
    yield from _switch_defects(contract) if contract.has_switches else _needless(contract)


def _wrong_names(*named: tuple[str, str]) -> Iterator[str]:
    for kind, name in named:
        try:
            checked_name(kind, name)
        except ConfigurationError as error:
            yield str(error)


def _time_defects(contract: StreamContract) -> Iterator[str]:
    if not 0 <= contract.valid_from_ms < contract.valid_to_ms <= TIME_MS_MAX:
        yield (
            f"valid from {contract.valid_from_ms} to {contract.valid_to_ms}: not a time that begins"
            " and ends"
        )
    positive = {"bucket_ms": contract.bucket_ms, "settle_ms": contract.settle_ms}
    wrong = [name for name, value in positive.items() if not 0 < value <= TIME_MS_MAX]
    yield from (f"{name}: {positive[name]}, not above 0" for name in wrong)
    if not 0 <= contract.notice_ms <= TIME_MS_MAX:
        yield f"notice_ms: {contract.notice_ms}, not a length of time"
    if not wrong and contract.settle_ms % contract.bucket_ms:
        yield (
            f"settle_ms: {contract.settle_ms} is no multiple of the bucket, {contract.bucket_ms}"
        )


def _plan_defects(plan: StreamTerms) -> Iterator[str]:
    yield from _wrong_names(
        ("pipeline", plan.pipeline),
        ("stream", plan.stream),
        *(("stage", stage) for stage in plan.at_sender),
    )
    if len(plan.at_sender) > STAGES_MAX:
        yield f"at_sender: {len(plan.at_sender)} stages, at most {STAGES_MAX}"
    if list(plan.at_sender) != sorted(set(plan.at_sender)):
        yield "at_sender: not sorted, or a stage stands twice"
    if not 0 < plan.delay_ms_max <= TIME_MS_MAX:
        yield f"delay_ms_max: {plan.delay_ms_max}, not above 0"
    if not 0 < plan.rate_max <= RATE_MAX:
        yield f"rate_max: {plan.rate_max}, not within 1 and {RATE_MAX}"
    yield from _tier_defects(plan.tiers)


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


def _switch_defects(contract: StreamContract) -> Iterator[str]:
    """Yield the defects of the plans between which a movement contract switches (MC1, MC2)."""
    yield from _wrong_names(("pipeline", contract.pipeline))
    plain, *others = contract.plans
    if plain.at_sender:
        yield "plans: the first is the plain one, with no stage at the sender"
    if plain.pipeline == contract.pipeline:
        yield f"plan 0: {plain.stream} is not a stream of {contract.sender}'s pipeline"
    if len({plan.at_sender for plan in contract.plans}) < len(contract.plans):
        yield "plans: two have the same stages at the sender"
    for number, plan in enumerate(others, 1):
        if plan.pipeline != contract.pipeline or plan.stream not in plan.at_sender:
            yield (
                f"plan {number}: {plan.pipeline}.{plan.stream} is paid, which is not the result of"
                f" a stage at the sender: {', '.join(plan.at_sender) or 'it has none'}"
            )
    for name in ("proposal_ms", "deadline_ms"):
        if not 0 < getattr(contract, name) <= TIME_MS_MAX:
            yield f"{name}: {getattr(contract, name)}, not above 0"
    if not 0 <= contract.min_hold_ms <= TIME_MS_MAX:
        yield f"min_hold_ms: {contract.min_hold_ms}, not a length of time"
    if not 0 <= contract.gain_permille <= GAIN_PERMILLE_MAX:
        yield f"gain_permille: {contract.gain_permille}, not within 0 and {GAIN_PERMILLE_MAX}"


def _needless(contract: StreamContract) -> Iterator[str]:
    """Yield the defects of a contract with a single plan that sets terms of switching between
    plans: without a second plan they have no effect.
    """
    if contract.query:
        yield "plans: the only one has a stage at the sender, and none that it could run under"
    for name in ("pipeline", "proposal_ms", "deadline_ms", "min_hold_ms", "gain_permille"):
        if getattr(contract, name):
            yield f"{name}: {getattr(contract, name)}, and there is no other plan to switch to"


def is_worth_taking(
    suggested: SuggestedContract,
    current: StreamContract,
    receiver: str,
    usual: PeriodDelivery,
    now_ms: int,
) -> bool:
    """Return whether to have the stream elsewhere is better, by what usually comes (FQ3)."""
    terms = suggested.terms
    if (
        not suggested.receiver == receiver == terms.receiver
        or suggested.contract_id != current.contract_id
        or now_ms >= suggested.open_until_ms
        or next(stream_defects(terms), None) is not None
    ):
        return False
    other, own = terms.plans[0], current.plans[0]
    promises_less = (
        other.stream != own.stream
        or other.delay_ms_max > own.delay_ms_max
        or other.tiers[0].availability_ppm < own.tiers[0].availability_ppm
    )
    return not promises_less and other.due_nano(usual) < own.due_nano(usual)
