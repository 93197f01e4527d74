"""Participants who do what they must not, and records that nobody should believe.

One of the parties may be dishonest: its agent or its node, with its own key. A stranger may
write anything anywhere, with a key that counts as the stranger's alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from typing_extensions import override

from anabranch.adapters.memory.log import LocalEventLog
from anabranch.adapters.memory.partition import Partition, Record
from anabranch.adapters.signing import SigningKey
from anabranch.agent.metering import Meter
from anabranch.agent.service import AgentService
from anabranch.codec import federation_records
from anabranch.ports import TopicPartition
from anabranch.protocol.errors import RemoteProtocolError
from anabranch.protocol.federation.contracts import Contract
from anabranch.protocol.federation.ledger import Metered, Settled
from anabranch.protocol.federation.movements import (
    Claim,
    Command,
    Ended,
    EndReason,
    MovementState,
    Placed,
    Started,
    Withdrawn,
)
from anabranch.protocol.federation.offers import AcceptedTask, OfferAnswer, TaskOffer
from anabranch.protocol.federation.statements import Signature, Statement
from simulation.options import ON_NEW, ON_THIRD

NEVER_STARTS: Final = "north never starts"
BLAMES: Final = "north blames"
ASKS_TOO_MUCH: Final = "south asks too much"
CLAIMS_TOO_MUCH: Final = "south claims too much"
MAKES_NOTHING: Final = "south makes nothing"
AGENTS: Final = (NEVER_STARTS, BLAMES, ASKS_TOO_MUCH, CLAIMS_TOO_MUCH)
"""Agents: one never writes that a movement has begun, one ends each for a silence that was none,
one answers with a price above the buyer's highest, one measures three times as much as ran.
"""
COMPUTES_WRONG: Final = "south computes wrong"
LEAVES_OUT: Final = "south leaves out"
SPOILS: Final = (COMPUTES_WRONG, LEAVES_OUT)
"""Nodes that run the stage, and make other rows of it, or only a few."""
WEST_COMPUTES_WRONG: Final = "west computes wrong"
SPOILT_BY: Final = {COMPUTES_WRONG: ON_NEW, LEAVES_OUT: ON_NEW, WEST_COMPUTES_WRONG: ON_THIRD}
"""Suffix of the names of their processes."""
AUDITOR_CHOOSES: Final = "auditor chooses"
"""It blames a seller for buckets that it has picked."""
MAKES_UP_EPOCHS: Final = "south makes up epochs"
"""Its node's heartbeats name an epoch above all that the log will ever have."""
KINDS: Final = (*AGENTS, MAKES_NOTHING, *SPOILS, AUDITOR_CHOOSES)
"""And a node that begins the stage, is heard, and makes nothing."""
NAMES_NOBODY: Final = "south names a node of nobody"
NAMES_THE_OWNER: Final = "west names the owner's node"
"""Also claims what that has made, and withdraws what runs under other contracts."""
WEST_MAKES_NOTHING: Final = "west makes nothing"
OF_RESALES: Final = (NAMES_NOBODY, NAMES_THE_OWNER, WEST_MAKES_NOTHING, WEST_COMPUTES_WRONG)
"""Kinds of dishonesty that need a stage which may be resold."""
MAKING_NOTHING: Final = {MAKES_NOTHING: ON_NEW, WEST_MAKES_NOTHING: ON_THIRD}
NAMED: Final = {NAMES_NOBODY: "nobody.0", NAMES_THE_OWNER: "north.0"}
_BLAMES_AFTER_MS: Final = 2_600
_CLAIMS: Final = 3


class DishonestAgent(AgentService):
    """An agent that is one of ``AGENTS``, or of ``NAMED``, by ``kind``."""

    kind = ""

    def start(self) -> None:
        """See ``AgentService``."""
        super().start()
        if self.kind == CLAIMS_TOO_MUCH:
            assert self._ledgers is not None
            ledgers: Any = _Overclaiming(self._ledgers.write)
            self._meter = Meter(self._participant, ledgers, self._context.clock)

    def step(self) -> None:
        """See ``AgentService``."""
        super().step()
        if self.kind == BLAMES:
            self._blame()
        if self.kind in NAMED:
            self._name(NAMED[self.kind])
        if self.kind == NAMES_THE_OWNER:
            self._withdraw_others()

    @override
    def _perform(self, commands: list[Command]) -> None:
        found: list[Command] = []
        for command in commands:
            if isinstance(command, Claim) and self.kind == NEVER_STARTS:
                continue
            if isinstance(command, Placed) and self.kind in NAMED:
                continue
            if isinstance(command, OfferAnswer) and self.kind == ASKS_TOO_MUCH:
                command = self._dearer(command)  # noqa: PLW2901
            found.append(command)
        super()._perform(found)

    def _dearer(self, answer: OfferAnswer) -> OfferAnswer:
        """Above what the contract allows."""
        contract = self.agent._standing.partners[answer.contract_id].contract
        tasks = tuple(replace(task, price=contract.fixed_price + 1) for task in answer.tasks)
        return replace(answer, tasks=tasks)

    def _name(self, node: str) -> None:
        """Name a node as the place of each task that it has taken, and count the violations."""
        assert self._reader is not None
        assert self._ledgers is not None
        assert self._stages is not None
        for logs in self._stages.workloads().values():
            logs.allowed |= {node}
        for name, contract in self._reader.contracts.items():
            ledger, booked = contract.ledger, contract.booked
            if ledger is None or booked is None or booked.contract.seller != self._participant:
                continue
            for movement in ledger.movements:
                if movement.state is MovementState.RUNNING and not movement.placed:
                    ids = name, movement.movement_id, self._participant
                    self._ledgers.write(Placed(*ids, self._now_ms(), 1, node))

    def _withdraw_others(self) -> None:
        """Write into the logs of its contracts that movements of others are withdrawn."""
        assert self._reader is not None
        assert self._ledgers is not None
        contracts = self._reader.contracts
        ran = [
            (name, movement.movement_id)
            for name, contract in contracts.items()
            for movement in (() if contract.ledger is None else contract.ledger.movements)
        ]
        for name, contract in contracts.items():
            booked = contract.booked
            if booked is None or booked.contract.party(self._participant) is None:
                continue
            for movement in (each for other, each in ran if other != name):
                ids = name, movement, self._participant
                self._ledgers.write(Withdrawn(*ids, self._now_ms()))

    def _blame(self) -> None:
        assert self._reader is not None
        assert self._ledgers is not None
        now_ms = self._now_ms()
        for name, contract in self._reader.contracts.items():
            for movement in contract.ledger.movements if contract.ledger is not None else ():
                if (
                    movement.state is MovementState.RUNNING
                    and now_ms - movement.started_ms >= _BLAMES_AFTER_MS
                ):
                    self._ledgers.write(
                        Ended(
                            name, movement.movement_id, self._participant, now_ms, EndReason.SILENT
                        )
                    )


class _Overclaiming:
    """Writes a multiple of what was measured."""

    def __init__(self, write: Callable[[Metered], bool]) -> None:
        self._write = write

    def write(self, entry: Metered) -> bool:
        """See ``LedgerWriter``."""
        return self._write(replace(entry, units=entry.units * _CLAIMS))


class Forger:
    """A stranger who writes in the names of others, and repeats what they wrote."""

    def __init__(
        self,
        log: LocalEventLog,
        contract: Contract,
        topics: tuple[str, str],
        key: SigningKey,
        reached: Callable[[str], None],
    ) -> None:
        """``topics``: of the contract, and of its offers."""
        self._log, self._text = log, contract
        self._contract_topic, self._offers_topic = topics
        self._key = key
        self._reached = reached

    def forge(self, value: int, now_ms: int) -> list[str]:
        """One of the records below, by ``value``; the topics that have something new."""
        entries = list(self._statements(self._contract_topic))
        started = next((each for each in reversed(entries) if isinstance(each, Started)), None)
        name = "none" if started is None else started.movement_id
        contract_id = self._text.contract_id
        buyer, seller = self._text.buyer, self._text.seller
        slot = now_ms // self._text.audit.meter_ms - 1
        period = slot * self._text.audit.meter_ms // self._text.audit.settle_ms - 2
        forged: tuple[Statement, ...] = (
            Ended(contract_id, name, buyer, now_ms, EndReason.RECALLED),
            Ended(contract_id, name, seller, now_ms, EndReason.RETURNED),
            Ended(contract_id, name, self._key.participant, now_ms, EndReason.SILENT),
            Withdrawn(contract_id, f"{contract_id}:{now_ms}/{self._text.tasks[0]}", buyer, now_ms),
            Placed(contract_id, name, seller, now_ms, 1, "west.0"),
            Placed(contract_id, name, self._key.participant, now_ms, 1, "west.0"),
            Metered(contract_id, name, seller, slot, 10**6),
            Metered(contract_id, name, buyer, slot, 0),
            Metered(contract_id, name, self._key.participant, slot, 0),
            Settled(contract_id, seller, period, 10**9),
        )
        kinds = len(forged) + 3
        choice = value % kinds
        if choice < len(forged):
            self._reached("forged in a ledger")
            self._write(self._contract_topic, forged[choice], now_ms)
            return [self._contract_topic]
        self._reached("repeated in a ledger, or among offers")
        topic = self._contract_topic if choice == len(forged) else self._offers_topic
        self._repeat(topic, now_ms, 2 if choice == kinds - 1 else 100)
        return [topic]

    def answer(self, value: bytes | None, now_ms: int) -> bool:
        """In the seller's name, that it takes all of an offer that has just come; whether
        ``value`` was one.
        """
        offer = _statement(value)
        if not isinstance(offer, TaskOffer) or offer.buyer != self._text.buyer:
            return False
        tasks = tuple(
            AcceptedTask(task.name, task.units, self._text.fixed_price - self._text.delta)
            for task in offer.tasks
        )
        answer = OfferAnswer(
            offer.contract_id, offer.version, self._text.seller, offer.number, tasks
        )
        self._reached("forged answer")
        self._write(self._offers_topic, answer, now_ms)
        return True

    def _write(self, topic: str, statement: Statement, now_ms: int) -> None:
        """With the stranger's signature, in the name of whom the statement names."""
        mine = self._key.sign(statement)
        named = str(getattr(statement, "by", "") or getattr(statement, "seller", ""))
        signature = Signature(named, mine.key_id, mine.value)
        value = federation_records.encode(statement, signature)
        self._partition(topic).append(Record(value, None, (), now_ms))

    def _repeat(self, topic: str, now_ms: int, most: int) -> None:
        """Append the last records again, in order."""
        partition = self._partition(topic)
        values = [
            partition.at(offset).value
            for offset in range(max(partition.start, partition.end - most), partition.end)
        ]
        for value in values:
            partition.append(Record(value, None, (), now_ms))

    def _statements(self, topic: str) -> list[object]:
        partition = self._partition(topic)
        return [
            _statement(partition.at(offset).value)
            for offset in range(partition.start, partition.end)
        ]

    def _partition(self, topic: str) -> Partition:
        return self._log.partition(TopicPartition(topic, 0))


def _statement(value: bytes | None) -> object:
    try:
        return federation_records.decode(value).statement
    except RemoteProtocolError:
        return None
