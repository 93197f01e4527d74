"""Messages between the buyer and the seller of capacity, and the checks by which they count.

Theory of operation. A buyer offers tasks to one seller at a time, each with the highest price it
would pay (its reserve price). The seller answers with the tasks that it takes and a price for each;
an empty answer is a rejection. No answer within the time to live is a rejection, too. Messages may
be lost, late, repeated or forged, so nothing depends on one arriving: what counts is decided by the
order of the contract's ledger (``movements``). Lengths of time are in messages, moments are not:
clocks differ.

Invariants:
    FO1  an offer is taken up only if it names a contract and version under which load may move, its
         buyer, tasks of the contract's set, and prices of its bound, and if it is newer than the
         last one under that contract.
    FO2  an answer is taken up only if it names the outstanding offer, tasks in it, and prices
        within the bound and the reserve price.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from anabranch.protocol.federation.contract_book import BookedContract
from anabranch.protocol.federation.contracts import Contract

OFFERED_TASKS_MAX: Final = 256
"""Maximum number of tasks in one offer: bounds what an answer costs the seller."""

UNITS_MAX: Final = 10**9
"""Maximum load of one task, in units. With the highest price and a period of a year a debt stays
below 10^32, which Python holds and the ledger's records write as text.
"""


@dataclass(frozen=True, slots=True)
class OfferedTask:
    """Task that a buyer offers: its load as the buyer measures it, and the highest price that the
    buyer would pay for a unit and second.
    """

    name: str
    units: int
    reserve_price: int


@dataclass(frozen=True, slots=True)
class TaskOffer:
    """Offer of a buyer to hand tasks over. ``number`` grows with each offer under a contract."""

    SIGNED_AS: ClassVar[str] = "offer"

    contract_id: str
    version: int
    buyer: str
    number: int
    ttl_ms: int
    tasks: tuple[OfferedTask, ...]


@dataclass(frozen=True, slots=True)
class AcceptedTask:
    """Task that the seller takes, and its price."""

    name: str
    units: int
    price: int


@dataclass(frozen=True, slots=True)
class OfferAnswer:
    """Answer of the seller to an offer; one without tasks is a rejection, with its reason."""

    SIGNED_AS: ClassVar[str] = "answer"

    contract_id: str
    version: int
    seller: str
    number: int
    tasks: tuple[AcceptedTask, ...]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ReturnRequest:
    """Request of the seller that the buyer takes a task back."""

    SIGNED_AS: ClassVar[str] = "return request"

    contract_id: str
    movement_id: str
    seller: str


def objection_to_offer(
    offer: TaskOffer, booked: BookedContract | None, number_before: int, now_ms: int
) -> str:
    """Return why an offer is not considered; empty if it is (FO1)."""
    if booked is None or booked.contract.buyer != offer.buyer:
        return "no such contract"
    contract = booked.contract
    if offer.version != contract.version:
        return f"version {offer.version} of the contract is not the present one, {contract.version}"
    if not booked.may_move(now_ms):
        return f"the contract is {booked.state_at(now_ms)}"
    if offer.number <= number_before:
        return "an older offer"
    if not 0 < len(offer.tasks) <= OFFERED_TASKS_MAX or offer.ttl_ms < 1:
        return "an offer has a time to live and at least one task"
    if len({task.name for task in offer.tasks}) < len(offer.tasks):
        return "a task stands twice"
    return next((text for task in offer.tasks if (text := _objection_to_task(task, contract))), "")


def _objection_to_task(task: OfferedTask, contract: Contract) -> str:
    if task.name not in contract.tasks:
        return f"{task.name} is not a task of the contract"
    if not 0 < task.units <= UNITS_MAX:
        return f"{task.name} has {task.units} units of load"
    if not contract.floor <= task.reserve_price <= contract.fixed_price:
        return f"the price of {task.name} is out of the contract's bound"
    return ""


def accepted_tasks(
    answer: OfferAnswer, offer: TaskOffer, contract: Contract
) -> tuple[AcceptedTask, ...] | None:
    """Return the accepted tasks of an answer; None if it is not an answer to this offer (FO2). One
    wrong task makes the whole answer a rejection.
    """
    named = (answer.contract_id, answer.version, answer.seller, answer.number)
    if named != (offer.contract_id, offer.version, contract.seller, offer.number):
        return None
    offered: Mapping[str, OfferedTask] = {task.name: task for task in offer.tasks}
    names = [task.name for task in answer.tasks]
    right = len(set(names)) == len(names) and all(
        _is_within(task, offered.get(task.name), contract) for task in answer.tasks
    )
    return answer.tasks if right else ()


def _is_within(task: AcceptedTask, offered: OfferedTask | None, contract: Contract) -> bool:
    if offered is None or task.units != offered.units:
        return False
    return contract.floor <= task.price <= offered.reserve_price
