"""Agents under virtual time: messages that are lost, late and repeated, ledgers that are read late,
participants that die and come back, loads that change.

The agents and the ledgers are those of ``protocol.federation``. What is made up here is what lies
around them: a network, the log behind each ledger, and the shells, which move a task by making a
copy where it goes to, and drop the old copy when the ledger says that the other runs it. All that
chance decides comes from one seed.
"""

from __future__ import annotations

import hashlib
import heapq
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from anabranch.protocol.federation.agent import Agent
from anabranch.protocol.federation.contract_book import BookedContract, ContractState
from anabranch.protocol.federation.contracts import Contract
from anabranch.protocol.federation.holdings import TaskPlace
from anabranch.protocol.federation.ledger import Ledger, LedgerEntry, Metered, Settled
from anabranch.protocol.federation.movements import (
    BringHome,
    Claim,
    Command,
    Ended,
    MovementEntry,
    MovementState,
    Prepare,
    Started,
    Withdrawn,
)
from anabranch.protocol.federation.offers import OfferAnswer, ReturnRequest, TaskOffer
from anabranch.protocol.federation.statements import Signature, Statement, signed_bytes

AUDITOR: Final = "broker"
TICK_MS: Final = 100
MEASURE_MS: Final = 1_000

RUNS: Final = frozenset({TaskPlace.HERE, TaskPlace.OFFERED, TaskPlace.LEAVING, TaskPlace.RETURNING})
"""Places at which a participant runs a task."""


def signature(statement: Statement, participant: str) -> Signature:
    """Return a stand-in for a signature: of these bytes, by this participant."""
    return Signature(
        participant, "1", hashlib.sha512(participant.encode() + signed_bytes(statement)).digest()
    )


def verify(given: Signature, message: bytes) -> bool:
    """Check a stand-in for a signature."""
    return given.value == hashlib.sha512(given.participant.encode() + message).digest()


@dataclass(frozen=True)
class Faults:
    """How bad it is, drawn from ``seed``. Shares are of messages."""

    seed: int = 1
    lost: float = 0.0
    repeated: float = 0.0
    late_ms: int = 50
    read_late_ms: int = 50
    move_ms: int = 1_500
    moves_fail: float = 0.0
    crashes_per_h: float = 0.0
    down_ms: int = 8_000
    until_ms: int = 10**12
    """From here on nothing goes wrong."""


@dataclass(frozen=True)
class Task:
    """Task of a participant; ``units`` is its load at a time."""

    name: str
    owner: str
    units: Callable[[int], int]


class Exchange:
    """All participants."""

    def __init__(
        self,
        agents: Callable[[str], Agent],
        tasks: Iterable[Task],
        contracts: Iterable[Contract],
        faults: Faults | None = None,
        tick_ms: int = TICK_MS,
    ) -> None:
        """``agents`` makes one for a participant, without contracts and tasks. ``tick_ms``
        divides ``MEASURE_MS``.
        """
        self.now_ms = 0
        self.tasks = {task.name: task for task in tasks}
        self.contracts = {each.contract_id: each for each in contracts}
        self.ledgers = {
            name: Ledger(each, verify, AUDITOR) for name, each in self.contracts.items()
        }
        self.counted: dict[str, list[MovementEntry]] = {name: [] for name in self.contracts}
        names = {task.owner for task in self.tasks.values()} | {
            party for c in self.contracts.values() for party in (c.buyer, c.seller)
        }
        self.agents = {name: agents(name) for name in sorted(names)}
        self.copies: dict[str, set[str]] = {name: set() for name in self.agents}
        self.down_until: dict[str, int] = {}
        self.messages = 0
        self.starts: list[tuple[int, str]] = []
        """When which task was handed over."""
        self.excess: list[str] = []
        """Violations that were seen."""
        self._make = agents
        self._tick_ms = tick_ms
        self._faults = faults or Faults()
        self._chance = random.Random(self._faults.seed)
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0
        self._read: dict[tuple[str, str], int] = {}
        """Participant and contract -> how many counted entries it has read."""
        self._life: dict[str, int] = dict.fromkeys(self.agents, 0)
        for name in self.agents:
            self._begin(name)

    # ---------------------------------------------------------------- time

    def run(self, until_ms: int) -> None:
        """Until a time."""
        next_ms = self.now_ms
        while self.now_ms < until_ms:
            if self._queue and self._queue[0][0] <= next_ms:
                at_ms, _, action = heapq.heappop(self._queue)
                self.now_ms = max(self.now_ms, at_ms)
                action()
                continue
            self.now_ms = next_ms
            self._tick()
            next_ms += self._tick_ms

    def _later(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._queue, (self.now_ms + delay_ms, self._number, action))

    def _tick(self) -> None:
        for name in self.agents:
            if self.now_ms >= self.down_until.get(name, -1):
                if self.down_until.pop(name, None) is not None:
                    self._begin(name)
                self._do(name, self.agents[name].tick(self.now_ms))
        if self.now_ms % MEASURE_MS == 0:
            self._measure()
            self._meter()
        calm = self.now_ms >= self._faults.until_ms
        if (
            not calm
            and self._chance.random()
            < self._faults.crashes_per_h * self._tick_ms / 3_600_000 * len(self.agents)
        ):
            self.crash(self._chance.choice(sorted(self.agents)))
        self._check()

    # ---------------------------------------------------------------- participants

    def is_up(self, name: str) -> bool:
        """Whether a participant lives."""
        return name not in self.down_until

    def crash(self, name: str) -> None:
        """Crash a participant, which forgets everything and restarts."""
        self.down_until[name] = self.now_ms + self._faults.down_ms
        self.copies[name] = set()
        self._life[name] += 1

    def _begin(self, name: str) -> None:
        """Start or restart a participant from its ledgers, those in which it is the seller
        first.
        """
        agent = self.agents[name] = self._make(name)
        mine = [each for each in self.contracts.values() if each.party(name) is not None]
        for contract in mine:
            agent.knows(
                BookedContract(contract, (contract.buyer, contract.seller), ContractState.ACTIVE)
            )
        for task in self.tasks.values():
            if task.owner == name:
                agent.owns(task.name, task.units(self.now_ms))
        for contract in sorted(mine, key=lambda each: each.buyer == name):
            entries = self.counted[contract.contract_id]
            self._read[name, contract.contract_id] = len(entries)
            for entry in entries:
                self._do(name, agent.recorded(entry, self.now_ms))
        self.copies[name] = {task.name for task in agent.holdings.at(*RUNS)}

    def _do(self, name: str, commands: Iterable[Command]) -> None:
        life = self._life[name]
        for command in commands:
            match command:
                case TaskOffer():
                    self._send(
                        self.contracts[command.contract_id].seller,
                        lambda agent, c=command: agent.offered(c, self.now_ms),  # type: ignore[misc]
                    )
                case OfferAnswer():
                    self._send(
                        self.contracts[command.contract_id].buyer,
                        lambda agent, c=command: agent.answered(c, self.now_ms),  # type: ignore[misc]
                    )
                case ReturnRequest():
                    self._send(
                        self.contracts[command.contract_id].buyer,
                        lambda agent, c=command: agent.return_requested(c, self.now_ms),  # type: ignore[misc]
                    )
                case Prepare():
                    self._move(command.seller, name, life, command.movement_id, command.task)
                case BringHome():
                    self._move(name, name, life, command.movement_id, command.task)
                case Claim():
                    contract_id = command.answer.contract_id
                    by = signature(command.answer, command.answer.seller)
                    self._append(
                        Started(
                            contract_id,
                            command.movement_id,
                            name,
                            self.now_ms,
                            command.task,
                            command.answer,
                            by,
                        )
                    )
                case Withdrawn() | Ended():
                    self._append(command)

    # ---------------------------------------------------------------- messages, movements, ledgers

    def _send(self, to: str, deliver: Callable[[Agent], list[Command]]) -> None:
        faults, calm = self._faults, self.now_ms >= self._faults.until_ms
        self.messages += 1
        times = 0 if not calm and self._chance.random() < faults.lost else 1
        times += not calm and self._chance.random() < faults.repeated

        def arrive() -> None:
            if self.is_up(to):
                self._do(to, deliver(self.agents[to]))

        for _ in range(times):
            self._later(5 + self._chance.randrange(50 if calm else faults.late_ms), arrive)

    def _move(self, to: str, buyer: str, life: int, movement: str, task: str) -> None:
        """Let a copy of the task get ready at ``to``, and the buyer see it, if both live
        that long.
        """
        there = self._life[to]
        fails = (
            self.now_ms < self._faults.until_ms and self._chance.random() < self._faults.moves_fail
        )
        if fails:
            return

        def ready() -> None:
            if (
                self._life[to] == there
                and self._life[buyer] == life
                and self.is_up(to)
                and self.is_up(buyer)
            ):
                if self.agents[to].holdings.tasks.get(task) is not None:
                    self.copies[to].add(task)
                self._do(buyer, self.agents[buyer].ready(movement, self.now_ms))

        self._later(self._faults.move_ms, ready)

    def _append(self, entry: LedgerEntry) -> None:
        ledger = self.ledgers[entry.contract_id]
        if ledger.add(entry, self.now_ms) or not isinstance(entry, Started | Withdrawn | Ended):
            return
        self.counted[entry.contract_id].append(entry)
        if isinstance(entry, Started):
            self.starts.append((self.now_ms, entry.task))
        contract = self.contracts[entry.contract_id]
        for name in (contract.buyer, contract.seller):
            self._later(
                self._chance.randrange(1, self._faults.read_late_ms + 1),
                lambda n=name, c=entry.contract_id: self._reads(n, c),  # type: ignore[misc]
            )

    def _reads(self, name: str, contract_id: str) -> None:
        """All that is new to it, in the order of the log."""
        if not self.is_up(name):
            return
        while self._read[name, contract_id] < len(self.counted[contract_id]):
            entry = self.counted[contract_id][self._read[name, contract_id]]
            self._read[name, contract_id] += 1
            self._do(name, self.agents[name].recorded(entry, self.now_ms))
            task = self._task_of(entry)
            if task is not None:
                holding = self.agents[name].holdings.tasks.get(task)
                if holding is not None and holding.place in RUNS:
                    self.copies[name].add(task)
                elif holding is None or holding.place is TaskPlace.AWAY:
                    self.copies[name].discard(task)

    def _task_of(self, entry: MovementEntry) -> str | None:
        return entry.movement_id.partition("/")[2] or None

    # ---------------------------------------------------------------- measuring and paying

    def _measure(self) -> None:
        for name, agent in self.agents.items():
            if self.is_up(name):
                for task in list(agent.holdings.tasks):
                    agent.measured(task, self.tasks[task].units(self.now_ms))

    def _meter(self) -> None:
        """Meter the slot before the last one, once all of it is read."""
        for name, ledger in self.ledgers.items():
            contract = self.contracts[name]
            slot = self.now_ms // contract.audit.meter_ms - 1
            for movement in list(ledger.movements):
                if movement.state is MovementState.VOID or (
                    movement.state is MovementState.OVER and movement.ended_ms < self.now_ms - 2_000
                ):
                    continue
                units = self.tasks[movement.task].units(slot * contract.audit.meter_ms)
                for party in (contract.buyer, contract.seller):
                    if self.is_up(party):
                        self._append(Metered(name, movement.movement_id, party, slot, units))
            period = self.now_ms // contract.audit.settle_ms - 2
            if period > ledger.settled:
                for each in range(ledger.settled + 1, period + 1):
                    self._append(Settled(name, contract.seller, each, ledger.due(each)))

    # ---------------------------------------------------------------- what is looked at

    def runner(self, task: str) -> str:
        """Return the participant that runs a task by the ledgers."""
        at = self.tasks[task].owner
        seen = {at}
        while True:
            for name, ledger in self.ledgers.items():
                contract = self.contracts[name]
                runs = contract.buyer == at and any(
                    m.task == task and m.state is MovementState.RUNNING for m in ledger.movements
                )
                if runs and contract.seller not in seen:
                    at = contract.seller
                    seen.add(at)
                    break
            else:
                return at

    def level(self, name: str) -> int:
        """Return the load that a participant really runs."""
        return sum(self.tasks[task].units(self.now_ms) for task in self.copies[name])

    def _check(self) -> None:
        """Check that no task is lost: without a copy although its runner is alive."""
        running = set().union(*self.copies.values())
        for task in self.tasks.keys() - running:
            at = self.runner(task)
            if self.is_up(at) and all(
                self._read[at, name] == len(self.counted[name])
                for name, c in self.contracts.items()
                if c.party(at)
            ):
                self.excess.append(f"{self.now_ms}: {task} has no runner; it should be {at}")
