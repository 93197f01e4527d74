"""Movement contracts: several plans of one query across a pair of participants, and what each costs
(CIDR 2003).

Theory of operation. The query is one or more stages of the receiver's pipeline that read a stream
of the sender. A plan says which of these stages run on the sender's node, and has the terms of a
content contract: for which stream the receiver pays, by what and how much. All plans give the same
results. The first is the plain one: the whole query runs at home, and the receiver pays for the
sender's stream. In any other the receiver pays for the results of a stage that the sender runs.

All plans are in one text that both sign, so that both have agreed to each plan before it is ever
active, and one log holds which plan was active when (``plan_switching``). A period is charged under
one plan alone (``plan_ledger``).

Invariants:
    MC1  the first plan has no stage at the sender, each other has some, and no two have the same.
    MC2  what is paid under a plan is a stream that the sender makes under it.
    MC3  all versions of a contract have the same parties, periods and plans; only prices, rates and
         times change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.federation.content_contracts import (
    ContentContract,
    Payment,
    StreamSides,
    Tier,
    content_defects,
)
from anabranch.protocol.federation.contracts import TIME_MS_MAX
from anabranch.protocol.identifiers import checked_name

PLANS_MAX: Final = 8
"""Maximum number of plans of one contract: bounds what a reader holds of a foreign record."""

STAGES_MAX: Final = 16
"""Maximum number of stages of one plan, for the same reason."""

GAIN_PERMILLE_MAX: Final = 10_000
"""A plan that must be ten times better: more would never be."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One of them, with the terms of its content contract."""

    at_sender: tuple[str, ...]
    """Stages of the receiver's pipeline, sorted, that run on the sender's node; the others run at
    home.
    """
    pipeline: str
    """Pipeline of the stream that is paid for: the sender's under the plain plan, else the
    receiver's.
    """
    stream: str
    """Its name there."""
    payment: Payment
    tiers: tuple[Tier, ...]
    delay_ms_max: int
    rate_max: int


@dataclass(frozen=True, slots=True)
class MovementContract(StreamSides):
    """One version of a contract. ``plans[0]`` is the plain one."""

    SIGNED_AS: ClassVar[str] = "movement contract"

    contract_id: str
    version: int
    sender: str
    """Has the stream that the query reads, may run the query, and is paid."""
    receiver: str
    """Has the query in its pipeline, and pays."""
    pipeline: str
    """Pipeline of the receiver."""
    bucket_ms: int
    """Width of the buckets of both pipelines."""
    valid_from_ms: int
    valid_to_ms: int
    plans: tuple[Plan, ...]
    settle_ms: int
    notice_ms: int
    proposal_ms: int
    """A proposal can be agreed to for so long."""
    deadline_ms: int
    """A switch that both have agreed to may take so long."""
    min_hold_ms: int
    """A plan stays for so long before another one is proposed."""
    gain_permille: int
    """Oracles propose and agree only to what is better by so much, so that noise does not
    switch plans.
    """

    @property
    def delay_ms_max(self) -> int:
        """The longest of all plans."""
        return max(plan.delay_ms_max for plan in self.plans)

    @property
    def query(self) -> tuple[str, ...]:
        """All stages that move under it, sorted."""
        return tuple(sorted({stage for plan in self.plans for stage in plan.at_sender}))

    def is_version_of(self, other: MovementContract) -> bool:
        """Whether it has what all versions of a contract have in common (MC3)."""
        return _constant(self) == _constant(other)

    @property
    def plan_count(self) -> int:
        """Return the number of plans, which is the same for all versions."""
        return len(self.plans)

    def content(self, plan: int) -> ContentContract:
        """Return the content contract of a plan."""
        terms = self.plans[plan]
        return ContentContract(
            self.contract_id,
            self.version,
            self.sender,
            self.receiver,
            f"{self.sender}.{terms.stream}",
            terms.pipeline,
            self.bucket_ms,
            self.valid_from_ms,
            self.valid_to_ms,
            terms.payment,
            terms.tiers,
            terms.delay_ms_max,
            terms.rate_max,
            self.settle_ms,
            self.notice_ms,
        )


def _constant(text: MovementContract) -> tuple[object, ...]:
    plans = [(each.at_sender, each.pipeline, each.stream, each.delay_ms_max) for each in text.plans]
    return text.sender, text.receiver, text.pipeline, text.bucket_ms, text.settle_ms, plans


def plan_defects(contract: MovementContract) -> Iterator[str]:
    """Return the defects of a contract's text."""
    if not 1 < len(contract.plans) <= PLANS_MAX:
        yield f"plans: {len(contract.plans)}, not between 2 and {PLANS_MAX}"
        return
    yield from _names(contract)
    yield from _times(contract)
    if contract.plans[0].at_sender:
        yield "plans: the first is the plain one, with no stage at the sender"
    if len({plan.at_sender for plan in contract.plans}) < len(contract.plans):
        yield "plans: two have the same stages at the sender"
    for number, plan in enumerate(contract.plans):
        yield from (f"plan {number}: {each}" for each in _stages(plan))
        is_made_for_it = plan.pipeline == contract.pipeline and plan.stream in plan.at_sender
        if number and not is_made_for_it:
            yield (
                f"plan {number}: {plan.pipeline}.{plan.stream} is paid, which is not the result of"
                f" a stage at the sender: {', '.join(plan.at_sender) or 'it has none'}"
            )
        if not number and plan.pipeline == contract.pipeline:
            yield f"plan 0: {plan.stream} is not a stream of {contract.sender}'s pipeline"
        yield from (f"plan {number}: {each}" for each in content_defects(contract.content(number)))


def _names(contract: MovementContract) -> Iterator[str]:
    for kind, name in (
        ("pipeline", contract.pipeline),
        *(("stage", stage) for stage in contract.query),
    ):
        try:
            checked_name(kind, name)
        except ConfigurationError as error:
            yield str(error)


def _times(contract: MovementContract) -> Iterator[str]:
    positive = {"proposal_ms": contract.proposal_ms, "deadline_ms": contract.deadline_ms}
    for name, value in positive.items():
        if not 0 < value <= TIME_MS_MAX:
            yield f"{name}: {value}, not above 0"
    if not 0 <= contract.min_hold_ms <= TIME_MS_MAX:
        yield f"min_hold_ms: {contract.min_hold_ms}, not a length of time"
    if not 0 <= contract.gain_permille <= GAIN_PERMILLE_MAX:
        yield f"gain_permille: {contract.gain_permille}, not within 0 and {GAIN_PERMILLE_MAX}"


def _stages(plan: Plan) -> Iterator[str]:
    if len(plan.at_sender) > STAGES_MAX:
        yield f"at_sender: {len(plan.at_sender)} stages, at most {STAGES_MAX}"
    if list(plan.at_sender) != sorted(set(plan.at_sender)):
        yield "at_sender: not sorted, or a stage stands twice"
