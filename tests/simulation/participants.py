"""A run of a federation: beside the services of the buyer's pipeline the sellers' nodes for it, and
of all participants the agent and the contract broker, as they are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from typing_extensions import override

from anabranch.adapters.memory.log import LocalEventLog
from anabranch.agent import service as agent_service
from anabranch.agent import stage_logs
from anabranch.agent import stages as agent_stages
from anabranch.agent.oracle import Oracle
from anabranch.agent.service import AgentService
from anabranch.agent.stages import TradedStages
from anabranch.auditor import service as auditor_service
from anabranch.auditor.service import AuditorService
from anabranch.contract_broker import service as broker_service
from anabranch.contract_broker.service import ContractBroker
from anabranch.federation import ledger_writer
from anabranch.federation.log_reader import FederationReader
from anabranch.pipeline.internal_topics import internal_topics
from anabranch.pipeline.topic_names import FederationTopics
from anabranch.ports import TopicPartition
from anabranch.process.frame import Service
from anabranch.protocol.federation import auditing
from anabranch.protocol.federation.contract_log import LoadLog
from anabranch.protocol.federation.holdings import Holding, TaskPlace
from anabranch.protocol.federation.ledger import Ledger, Posting
from anabranch.protocol.federation.movements import MovementState
from harness.federations import FederationWorld
from simulation import auditors, market_faults
from simulation.auditors import NumbersDisk
from simulation.dishonest import (
    AUDITOR_CHOOSES,
    LEAVES_OUT,
    MAKES_UP_EPOCHS,
    MAKING_NOTHING,
    SPOILT_BY,
    DishonestAgent,
    Forger,
)
from simulation.faults import Fault
from simulation.market import (
    AUDITOR,
    BUYER,
    FEDERATION,
    SELLER,
    STRANGER,
    MarketOptions,
    sellers_pipeline,
)
from simulation.network import Port
from simulation.options import NAME, ON_NEW
from simulation.scheduler import Process
from simulation.side_ports import SimulatedClock
from simulation.sold_stage import SoldStage
from simulation.world import Run, World, keys

_OWN: Final = f"{SELLER}.own"
_SILENT_MS: Final = 2_500
"""In place of LONG_SILENT_MS, at an agent: a run is short."""
_CALM_UNITS: Final = 5
"""Load of a seller's own, in units."""
_TERM_MS: Final = 2_500
"""For so long a number of an auditor counts."""


@dataclass(frozen=True)
class Reader:
    """Contract's topic as one process has read it."""

    name: str
    contract_id: str
    postings: list[Posting]
    balances: dict[str, int]
    movements: dict[str, tuple[int, int | None]]
    """Price, and when it ended, in the log's time."""


class LoadedAgent(AgentService):
    """An agent of a seller that has load of its own, which it cannot sell."""

    own_units: Callable[[], int] = staticmethod(lambda: 0)

    def start(self) -> None:
        """See ``AgentService``."""
        self.agent.owns(_OWN, self.own_units())
        super().start()

    @override
    def _measure(self, stages: TradedStages, oracle: Oracle) -> None:
        super()._measure(stages, oracle)
        self.agent.measured(_OWN, self.own_units())


class DishonestLoadedAgent(LoadedAgent, DishonestAgent):
    """Both."""


Readers = AgentService | ContractBroker


class FederatedWorld(World):
    """Builds a run and runs it. Use once."""

    MOVING = SoldStage
    options: MarketOptions

    def __init__(self, options: MarketOptions, faults: list[Fault] | None = None) -> None:
        """``faults``: instead of those of the seed."""
        chosen = market_faults.draw(options, keys(options)) if faults is None else faults
        super().__init__(options, chosen)
        self._pipelines = {name: sellers_pipeline(options, name) for name in options.traders}
        self._pipelines[BUYER] = self.pipeline
        self._keys = {name: options.key(name) for name in (*options.traders, STRANGER, AUDITOR)}
        self._numbers = NumbersDisk()
        self._topics = names = FederationTopics(FEDERATION)
        self._forgers = [
            Forger(
                self.log,
                text,
                (names.contract(text.contract_id), names.offers(text.contract_id)),
                self._keys[STRANGER],
                self.history.reached,
            )
            for text in options.contracts()
        ]
        self._answers_due = 0
        """Number of next offers that get a forged answer at once."""
        self.readers: list[Reader] = []
        """When all was done."""
        self._prepare(self.log)

    def _prepare(self, log: LocalEventLog) -> None:
        """Topics, keys, and contracts that both sides have signed."""
        admin = log.admin()
        for name, pipeline in self._pipelines.items():
            if name != BUYER:
                admin.create([settings for _, settings in internal_topics(pipeline, 1)])
        book = FederationWorld(log, FEDERATION, self._keys)
        for name in self._pipelines:
            book.make("catalog", book.topics.catalog(name))
        for text in self.options.contracts():
            book.open(text.contract_id)
            book.make("offers", book.topics.offers(text.contract_id))
            for party in (text.buyer, text.seller):
                book.say(party, text)

    def run(self) -> Run:
        """See ``World.run``."""
        with hurried_agents():
            return super().run()

    # ---------------------------------------------------------------- the end

    def _is_complete(self) -> bool:
        """And: all is settled, nothing is on its way, and the stage is home where it has load."""
        return (
            super()._is_complete()
            and all(map(self._is_calm, self.options.traders))
            and self._is_revealed()
        )

    def _is_revealed(self) -> bool:
        """All numbers of movements that are over."""
        if not self.options.auditor:
            return True
        service = self.runs[f"auditor/{self.options.auditor}"].service
        if not isinstance(service, AuditorService) or service._reader is None:
            return False
        ledgers = [contract.ledger for contract in service._reader.contracts.values()]
        return all(
            not service._numbers.of(movement.movement_id)
            for ledger in ledgers
            if ledger is not None
            for movement in ledger.movements
            if movement.state is MovementState.OVER
        )

    def _is_calm(self, participant: str) -> bool:
        agent = self.runs[f"agent/{participant}"].service
        broker = self.runs[f"contract_broker/{participant}"].service
        if not isinstance(agent, AgentService) or not isinstance(broker, ContractBroker):
            return False
        logs = [*contract_logs(agent), *contract_logs(broker)]
        return (
            len(logs) == 2 * len(self.options.contracts())
            and all(map(_is_settled, logs))
            and all(_is_at_rest(holding) for holding in agent.agent.holdings.tasks.values())
        )

    def _look_for_leaks(self) -> None:
        super()._look_for_leaks()
        for key, runs in self.runs.items():
            service = runs.service
            for contract in contract_logs(service) if isinstance(service, Readers) else ():
                if contract.ledger is not None:
                    self.readers.append(_seen_by(key, contract.contract_id, contract.ledger))

    # ---------------------------------------------------------------- who is not to be believed

    def _spoil(self, process: Process, port: Port) -> None:
        """Let a node of a dishonest seller not do what it is paid for, or those of all sellers make
        up what they claim to hold.
        """
        if process.key.endswith(tuple(self.options.new_nodes)):
            port.link.claims = self.options.claims
        kind = self.options.dishonest
        port.link.makes_up_epochs = kind == MAKES_UP_EPOCHS and process.key.endswith(ON_NEW)
        where = MAKING_NOTHING.get(kind) or SPOILT_BY.get(kind)
        if where is None or not process.key.endswith(where):
            return
        port.link.makes_nothing |= kind in MAKING_NOTHING
        port.link.leaves_out |= kind == LEAVES_OUT
        port.link.makes_wrong_rows |= kind in SPOILT_BY and kind != LEAVES_OUT

    def _strike(self, fault: Fault) -> None:
        if fault.kind == "disk" and fault.target.startswith("auditor/"):
            self._numbers.lose()
        if fault.kind not in market_faults.STRANGERS_KINDS:
            super()._strike(fault)
            return
        self.history.reached(f"fault {fault.kind}")
        self.history.add(self.scheduler.now_ms, "world", "fault", *fault)
        if fault.kind == "forged answer":
            self._answers_due += 1
        else:
            forger = self._forgers[fault.value % len(self._forgers)]
            self.network.wake(set(forger.forge(fault.value, self.log.clock.now_ms())))

    def _appended(self, at: TopicPartition, offset: int, value: bytes | None) -> None:
        super()._appended(at, offset, value)
        for text, forger in zip(self.options.contracts(), self._forgers, strict=True):
            if (
                self._answers_due
                and at.topic == self._topics.offers(text.contract_id)
                and forger.answer(value, self.log.clock.now_ms())
            ):
                self._answers_due -= 1

    # ---------------------------------------------------------------- processes

    def _build(self, process: Process, port: Port, clock: SimulatedClock) -> Service:
        service, name = process.key.split("/")
        if service == "auditor":
            return self._auditor(process, port, clock)
        if service not in ("agent", "contract_broker"):
            self._spoil(process, port)
            return super()._build(process, port, clock)
        pipeline, key = self._pipelines[name], self._keys[name]
        federation = pipeline.federation
        assert federation is not None
        assert federation.agent is not None
        context = replace(self._context(process, port, clock), pipeline=pipeline)
        if service == "contract_broker":
            return ContractBroker(context, federation, key)
        hosted = {} if name == BUYER else {NAME: self.pipeline}
        make: type[AgentService] = AgentService
        if self.options.is_resale and name == SELLER:
            is_honest = not self.options.dishonest.startswith(name)
            make = LoadedAgent if is_honest else DishonestLoadedAgent
        elif self.options.dishonest.startswith(name):
            make = DishonestAgent
        made = make(context, federation, federation.agent, key, hosted)
        if isinstance(made, DishonestAgent):
            made.kind = self.options.dishonest
        if isinstance(made, LoadedAgent):
            made.own_units = self._own_units
        return made

    def _own_units(self) -> int:
        """Return the seller's own load now."""
        begins, ends, units = self.options.sellers_rush
        bucket = self.scheduler.now_ms // self.options.bucket_ms
        return units if begins <= bucket < ends else _CALM_UNITS

    def _auditor(self, process: Process, port: Port, clock: SimulatedClock) -> AuditorService:
        assert self.pipeline.federation is not None
        return auditors.build(
            self._context(process, port, clock),
            self.pipeline.federation,
            port,
            self.options,
            self._numbers,
            picks=self.options.dishonest == AUDITOR_CHOOSES,
        )


def _seen_by(key: str, contract_id: str, ledger: Ledger) -> Reader:
    movements = {
        each.movement_id: (
            each.price,
            each.ended_ms if each.state is MovementState.OVER else None,
        )
        for each in ledger.movements
        if each.state is not MovementState.VOID
    }
    return Reader(key, contract_id, list(ledger.postings), ledger.balances(), movements)


def contract_logs(service: Readers) -> list[LoadLog]:
    """Return the contracts as a service knows them; none while it is about to read."""
    reader: FederationReader | None = service._reader
    return [] if reader is None else list(reader.contracts.values())


def _is_settled(contract: LoadLog) -> bool:
    ledger = contract.ledger
    return ledger is not None and not ledger.unsettled()


def _is_at_rest(holding: Holding) -> bool:
    """Whether nothing is to become of a task: it is home, or is paid nothing for no load."""
    is_idle = not holding.load.units and holding.place is TaskPlace.AWAY
    return is_idle or (
        holding.place is TaskPlace.HERE and (holding.came is None or not holding.load.units)
    )


@contextlib.contextmanager
def hurried_agents() -> Iterator[None]:
    """Within it waits of agents, brokers and auditors are short."""
    changed: tuple[tuple[Any, str, int], ...] = (
        (agent_service, "_MEASURE_EVERY_MS", 300),
        (agent_service, "_LOOK_EVERY_MS", 2_000),
        (broker_service, "_LOOK_EVERY_MS", 2_000),
        (agent_stages, "_AGAIN_MS", 800),
        (ledger_writer, "_AGAIN_MS", 1_000),
        (stage_logs, "LONG_SILENT_MS", _SILENT_MS),
        (auditor_service, "_LOOK_EVERY_MS", 2_000),
        (auditing, "TERM_MS", _TERM_MS),
    )
    before = [vars(module)[name] for module, name, _ in changed]
    for module, name, value in changed:
        vars(module)[name] = value
    try:
        yield
    finally:
        for (module, name, _), value in zip(changed, before, strict=True):
            vars(module)[name] = value
