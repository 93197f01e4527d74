"""Movements of tasks: the log state of a contract's ledger that says which participant runs a task,
and at what price.

Theory of operation. A movement begins when its buyer writes ``Started`` into the contract's ledger,
with the seller's signed answer, and ends with ``Ended``. Before it has started either side may
write ``Withdrawn``. Both sides read one log, so its order decides: of ``Started`` and ``Withdrawn``
the first counts, and the side that wrote the second one reads that. The buyer runs the task until
``Started`` is in the log, the seller until ``Ended`` is; each stops only when it has read that the
other runs it. So a message that is lost, or a participant that dies, leaves no task without a
runner.

A seller that sells a task on does not run it. With ``Placed`` it names the node that is to run the
task; until then that is the seller's own. Its buyer does not see the contract of the resale. It
moves the task to that node, or passes the name on to the participant from which it has the task.

The states of a movement; what is not in the table is rejected:
    (nothing)  --started-->    running
    (nothing)  --withdrawn-->  void
    running    --placed-->     running
    running    --ended-->      over

Invariants:
    FM1  a movement is started once, by the buyer, at a price of the contract's bound and with the
        seller's signed answer.
    FM2  a movement that was withdrawn never runs; one that runs is not withdrawn.
    FM3  a task runs under one movement of a contract at a time.
    FM4  the seller says where a task runs, and each of its statements counts once, in their order;
        it may not name a node of the buyer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice
from typing import ClassVar, Final

from anabranch.protocol.federation.contracts import Contract
from anabranch.protocol.federation.offers import OfferAnswer, ReturnRequest, TaskOffer
from anabranch.protocol.federation.statements import Signature, Verify, is_signed
from anabranch.protocol.identifiers import is_name

NODES_MAX: Final = 16
"""Maximum number of different nodes that a movement names: bounds the memory of its readers."""


class MovementState(StrEnum):
    """State of a movement that its ledger names."""

    RUNNING = "running"
    VOID = "void"
    OVER = "over"


class EndReason(StrEnum):
    """Reason for which a movement ended."""

    RECALLED = "recalled"
    RETURNED = "returned"
    SILENT = "silent"
    """End because the other side gave no sign of life."""
    WRONG = "wrong"
    """End because an audit found wrong results or loads."""
    CONTRACT_ENDS = "contract ends"


@dataclass(frozen=True, slots=True)
class Started:
    """Statement of the buyer that the seller runs a task from now on. ``answer``: the seller's
    acceptance, with its signature. ``at_ms``: time, for people.
    """

    SIGNED_AS: ClassVar[str] = "movement started"

    contract_id: str
    movement_id: str
    by: str
    at_ms: int
    task: str
    answer: OfferAnswer
    signature: Signature


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """Statement of a party that a movement which has not started never will."""

    SIGNED_AS: ClassVar[str] = "movement withdrawn"

    contract_id: str
    movement_id: str
    by: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Ended:
    """Statement of a party that the buyer runs the task again from now on."""

    SIGNED_AS: ClassVar[str] = "movement ended"

    contract_id: str
    movement_id: str
    by: str
    at_ms: int
    why: EndReason


@dataclass(frozen=True, slots=True)
class Placed:
    """Statement of the seller on which node the task of a movement that runs is to run from now on.
    ``number``: number of the statement about the movement, from 1 on.
    """

    SIGNED_AS: ClassVar[str] = "movement placed"

    contract_id: str
    movement_id: str
    by: str
    at_ms: int
    number: int
    node: str


MovementEntry = Started | Withdrawn | Ended
"""Entry that changes which participant runs a task."""

TRANSITIONS: Final[
    dict[tuple[MovementState | None, type[MovementEntry | Placed]], MovementState]
] = {
    (None, Started): MovementState.RUNNING,
    (None, Withdrawn): MovementState.VOID,
    (MovementState.RUNNING, Placed): MovementState.RUNNING,
    (MovementState.RUNNING, Ended): MovementState.OVER,
}
"""A pair that is not here is rejected."""


def is_news(movement: Movement | None, entry: MovementEntry | Placed) -> bool:
    """Return whether ``entry`` could change ``movement``, as its ledger has it now; None: the
    ledger has no such movement. Whoever wrote it again would be rejected.
    """
    return (None if movement is None else movement.state, type(entry)) in TRANSITIONS


@dataclass(frozen=True, slots=True)
class Movement:
    """One task that has moved, or was to."""

    movement_id: str
    state: MovementState
    task: str = ""
    units: int = 0
    price: int = 0
    version: int = 0
    started_ms: int = 0
    ended_ms: int = 0
    ended_by: str = ""
    why: EndReason | None = None
    nodes: tuple[str, ...] = ()
    """Nodes that the seller has named, each once."""
    node: str = ""
    """Node that the seller has named last; empty: the seller's own, none was named."""
    placed: int = 0
    """The number of the last word about it (FM4)."""


_DIGITS_MAX: Final = 18
"""Maximum number of digits in an offer's number, which is a time in ms: it must fit into 64 bits.
"""


def movement_id(contract_id: str, number: int, task: str) -> str:
    """Return the id of the movement of a task in an offer: unique in the federation."""
    return f"{contract_id}:{number}/{task}"


def offer_number(name: str, contract_id: str) -> int:
    """Return the number of the offer that a movement with this id comes from; 0 if it is no id of a
    movement under that contract.
    """
    number = name.removeprefix(f"{contract_id}:").partition("/")[0]
    is_number = number.isascii() and number.isdecimal() and len(number) <= _DIGITS_MAX
    return int(number) if is_number else 0


@dataclass(frozen=True, slots=True)
class Prepare:
    """To the buyer's shell: get the task ready at the seller, then say ``ready``."""

    movement_id: str
    contract_id: str
    task: str
    seller: str


@dataclass(frozen=True, slots=True)
class BringHome:
    """Command to the buyer's service: prepare the task to run here again, then report it ready."""

    movement_id: str
    task: str


@dataclass(frozen=True, slots=True)
class Claim:
    """To the buyer's shell: write ``Started`` with the seller's answer, whose signature the
    shell has kept.
    """

    movement_id: str
    task: str
    answer: OfferAnswer


Command = (
    TaskOffer
    | OfferAnswer
    | ReturnRequest
    | Prepare
    | BringHome
    | Claim
    | Withdrawn
    | Ended
    | Placed
)
"""Messages are to be signed and sent, entries to be signed and written into the contract's
ledger.
"""


class MovementLog:
    """The log state of one contract's ledger. Not thread-safe. After a crash: replay."""

    def __init__(self, contract: Contract, verify: Verify) -> None:
        self._versions = {contract.version: contract}
        self._verify = verify
        self._movements: dict[str, Movement] = {}
        self._runs: dict[str, str] = {}

    def __iter__(self) -> Iterator[Movement]:
        return iter(self._movements.values())

    def __len__(self) -> int:
        return len(self._movements)

    def __getitem__(self, name: str) -> Movement:
        return self._movements[name]

    def renewed(self, contract: Contract) -> None:
        """Note a further version that both have signed. Movements keep the one under which they
        began.
        """
        self._versions[contract.version] = contract

    def contract(self, version: int) -> Contract:
        """Return the text of a version."""
        return self._versions[version]

    def find(self, name: str) -> Movement | None:
        """Return a movement by its id."""
        return self._movements.get(name)

    def add(self, entry: MovementEntry | Placed, appended_ms: int) -> str:
        """Count an entry, in the order of the log. Return why it does not count, or an empty text.

        The entry's own signature is checked before: this checks what it says. ``appended_ms`` is
        the log's time of it: a movement lasts from the log's time of its start to that of its end,
        since the times that the two sides write are their own.
        """
        before = self._movements.get(entry.movement_id)
        after = TRANSITIONS.get((None if before is None else before.state, type(entry)))
        some = next(iter(self._versions.values()))
        if entry.contract_id != some.contract_id or some.party(entry.by) is None:
            return "not by a party of the contract"
        if after is None:
            return "no such movement" if before is None else f"the movement is {before.state}"
        if isinstance(entry, Placed):
            assert before is not None, "it runs"  # noqa: S101 - the table says so
            return self._placed(entry, before)
        is_own = entry.movement_id.startswith(f"{entry.contract_id}:")
        if isinstance(entry, Withdrawn) and not is_own:
            # Ids are unique in the federation: whoever has both contracts would take it for the
            # movement that runs under the other one.
            return "the movement is of another contract"
        objection = self._objection(entry) if isinstance(entry, Started) else ""
        if not objection:
            self._movements[entry.movement_id] = self._moved(entry, after, appended_ms)
        return objection

    def _placed(self, entry: Placed, movement: Movement) -> str:
        """Note the node that the seller names (FM4). Return why the entry does not count, or an
        empty text.
        """
        contract = self._versions[movement.version]
        participant, _, number = entry.node.partition(".")
        if entry.by != contract.seller:
            return "where a task runs is its seller's word"
        if entry.number != movement.placed + 1:
            return "another word of the seller's is the next"
        if not (is_name(participant) and number.isascii() and number.isdecimal()):
            return "it names no node"
        if participant == contract.buyer:
            return "a seller names no node of its buyer's"
        nodes = tuple(dict.fromkeys((*movement.nodes, entry.node)))
        if len(nodes) > NODES_MAX:
            return "it names too many nodes"
        self._movements[entry.movement_id] = replace(
            movement, nodes=nodes, node=entry.node, placed=entry.number
        )
        return ""

    def _moved(self, entry: MovementEntry, state: MovementState, appended_ms: int) -> Movement:
        if isinstance(entry, Started):
            self._runs[entry.task] = entry.movement_id
            return _begun(entry, state, appended_ms)
        if isinstance(entry, Withdrawn):
            return Movement(entry.movement_id, state)
        running = self._movements[entry.movement_id]
        del self._runs[running.task]
        return replace(running, state=state, ended_ms=appended_ms, ended_by=entry.by, why=entry.why)

    def _objection(self, entry: Started) -> str:
        """Return why a movement may not start; empty: it may (FM1, FM3)."""
        answer = entry.answer
        contract = self._versions.get(answer.version)
        if contract is None or answer.contract_id != contract.contract_id:
            return "the answer is under another contract"
        if entry.by != contract.buyer or answer.seller != contract.seller:
            return "a movement is started by its buyer, on the seller's answer"
        if not is_signed(answer, contract.seller, entry.signature, self._verify):
            return "the answer is not signed by the seller"
        tasks = [task for task in answer.tasks if task.name == entry.task]
        if len(tasks) != 1 or entry.movement_id != movement_id(
            contract.contract_id, answer.number, entry.task
        ):
            return "the answer does not take this task"
        if (
            not contract.floor <= tasks[0].price <= contract.fixed_price
            or tasks[0].units < 1
            or entry.task not in contract.tasks
        ):
            return "the answer is out of the contract's bound"
        return "the task runs under another movement" if entry.task in self._runs else ""


class Unfinished:
    """Movements of one contract with which a process is not done. A ledger keeps all for ever, so a
    process that goes through them time and again would take longer and longer. Not thread-safe.
    """

    def __init__(self) -> None:
        self._seen = 0
        self._names: dict[str, None] = {}

    def of(self, movements: MovementLog) -> list[Movement]:
        """Return them as they are now. Void ones are left out: nothing becomes of them.

        ``movements``: always the same ones, to which further ones are added.
        """
        if len(movements) > self._seen:
            new = islice(movements, self._seen, None)
            self._names |= {
                each.movement_id: None for each in new if each.state is not MovementState.VOID
            }
            self._seen = len(movements)
        return [movements[name] for name in self._names]

    def done(self, name: str) -> None:
        """Leave a movement out from now on. Idempotent."""
        self._names.pop(name, None)


def _begun(entry: Started, state: MovementState, at_ms: int) -> Movement:
    accepted = next(task for task in entry.answer.tasks if task.name == entry.task)
    return Movement(
        entry.movement_id,
        state,
        entry.task,
        accepted.units,
        accepted.price,
        entry.answer.version,
        at_ms,
    )
