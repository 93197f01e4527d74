"""Agent of a participant: connects ``protocol.federation.agent`` with topics, logs and nodes.

Theory of operation. This module decides nothing about a task. It passes measurements, messages and
ledger entries to the state machine, and signs and sends the commands that it returns. The oracle
(``agent.oracle``) does the same for movement contracts. Each round compares where every stage runs
with the agent's table (``protocol.federation.stage_moves``). If they differ, the service appends a
move to the log of moves, and the nodes carry it out, as for an operator; of a hosted stage it
states in the ledger where it must run. So each step of a movement may be lost, or interrupted by a
crash of either side, and the next round continues from the logs.

A new process reads the ledgers from their beginnings and derives the same tasks at the same places.
If a log has lost its first records, nothing moves under its contract until a person has restored
it, and all others continue. It forgets the offers that it had sent and received: offers expire, and
a stage whose movement no party started returns home.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from anabranch.adapters.key_files import key_of_environment
from anabranch.adapters.signing import SigningKey
from anabranch.agent.conversations import Conversations
from anabranch.agent.figures import AgentMetrics
from anabranch.agent.metering import Meter
from anabranch.agent.oracle import Oracle
from anabranch.agent.stages import TradedStages
from anabranch.federation.ledger_writer import LedgerWriter
from anabranch.federation.log_reader import FederationReader
from anabranch.pipeline.file import hosted_pipelines
from anabranch.pipeline.model import AgentPolicy, Federation
from anabranch.pipeline.topic_names import FederationTopics
from anabranch.process.frame import ServiceContext, ServiceStatus
from anabranch.protocol.errors import ConfigurationError, Unavailable
from anabranch.protocol.federation.agent import Agent
from anabranch.protocol.federation.contract_log import ContractStatement
from anabranch.protocol.federation.holdings import TaskPlace
from anabranch.protocol.federation.movements import (
    Claim,
    Command,
    Ended,
    MovementEntry,
    Placed,
    Prepare,
    Started,
    Withdrawn,
    is_news,
)
from anabranch.protocol.federation.offers import OfferAnswer, ReturnRequest, TaskOffer
from anabranch.protocol.federation.oracle import tasks_of
from anabranch.protocol.federation.stage_moves import reason_against, task_of, unexplained
from anabranch.protocol.federation.standing import AgentRules
from anabranch.protocol.federation.statements import Signature
from anabranch.protocol.federation.steady_time import SteadyTime
from anabranch.protocol.federation.stream_contracts import StreamContract
from anabranch.protocol.federation.stream_signers import wanted_words
from anabranch.protocol.federation.suggestions import replaced, takes_up

if TYPE_CHECKING:
    from anabranch.pipeline.model import Pipeline
    from anabranch.process.settings import ServiceSettings

_POLL_MS: Final = 100
"""Timeout for polling messages, in ms."""
_LOOK_EVERY_MS: Final = 5_000
"""Interval between checks for new contracts, in ms: each asks the broker for the names of all
topics.
"""
_MEASURE_EVERY_MS: Final = 1_000
"""Interval between measurements of load, in ms."""
_ANSWERS_KEPT: Final = 1_000
"""Maximum number of answers whose signatures are kept: each is needed until its movement
has begun.
"""


def build(settings: ServiceSettings, context: ServiceContext) -> AgentService:
    """Build the agent of the participant that the pipeline file names.

    Raises:
        ConfigurationError: the file names no agent, the key is missing or cannot be used, or the
            file of a hosted pipeline is wrong.
    """
    federation = context.pipeline.federation
    if federation is None or federation.agent is None:
        raise ConfigurationError(
            f"{settings.pipeline}: there is no agent; add `agent` to the section `federation`"
        )
    key = key_of_environment(federation.participant)
    if key is None:
        raise ConfigurationError(
            f"an agent signs its messages: name the key of {federation.participant} in"
            " ANABRANCH_SIGNING_KEY_FILE (anabranch keys new)"
        )
    return AgentService(context, federation, federation.agent, key, hosted_pipelines(federation))


class AgentService:
    """Service of one agent. Not thread-safe."""

    def __init__(
        self,
        context: ServiceContext,
        federation: Federation,
        policy: AgentPolicy,
        key: SigningKey,
        hosted: dict[str, Pipeline],
    ) -> None:
        """Prepare the agent; no broker is contacted yet. ``hosted``: pipelines of other owners
        whose stages may run here.
        """
        self.status = ServiceStatus()
        self._context = context
        self._federation = federation
        self._key = key
        self._participant = federation.participant
        self._hosted = hosted
        self._policy = policy
        self._topics = FederationTopics(federation.name)
        rules = AgentRules(
            offer_every_ms=policy.offer_every_ms,
            ttl_ms=policy.answer_within_ms,
            rest_ms=policy.rest_ms,
            backoff_ms=policy.backoff_ms,
            margin_permille=policy.margin_permille,
            recall_permille=policy.recall_permille,
        )
        self.agent = Agent(self._participant, policy.cost(), rules)
        self._news: list[ContractStatement] = []
        """Valid statements since the last round."""
        self._answers: OrderedDict[tuple[str, int], Signature] = OrderedDict()
        self._knows_contracts = False
        """Whether the agent knows all contracts as the logs that were read have them."""
        self._left_alone: dict[str, str] = {}
        """Reason why this participant does not trade under a contract, by contract."""
        self._left_at_partner: dict[str, str] = {}
        """Reason why an own task stays at a partner's node and is not traded, by task."""
        self._stages: TradedStages | None = None
        self._reader: FederationReader | None = None
        self._talk: Conversations | None = None
        self._ledgers: LedgerWriter | None = None
        self._meter: Meter | None = None
        self._oracle: Oracle | None = None
        self._replaced: dict[str, str] = {}
        """Contract that has taken each one's place, by contract, while the old one lasts."""
        self._look_next_ms = self._measure_next_ms = 0
        self._time = SteadyTime()
        self._figures = AgentMetrics(context.registry, context.pipeline.name)

    # ---------------------------------------------------------------- life

    def start(self) -> None:
        """Read the logs to their ends and derive the agent's state from them.

        Raises:
            Unavailable: the broker does not answer, or a topic is missing.
        """
        context, log = self._context, self._context.log
        self._reader = reader = FederationReader(
            log, self._topics, self._federation.auditor, self._news.append
        )
        reader.read_to_end()
        self._ledgers = LedgerWriter(context, self._topics, self._key)
        self._stages = TradedStages(context, self._participant, self._hosted)
        self._meter = Meter(self._participant, self._ledgers, context.clock)
        self._oracle = Oracle(
            context,
            self._policy.backoff_ms,
            self._hosted,
            self.agent,
            self._stages,
            self._ledgers,
        )
        for stage in self._stages.names:
            self.agent.owns(task_of(context.pipeline.name, stage), 0)
        self._learn_contracts(reader)
        self._talk = Conversations(log, self._topics, self._key, reader.verify, context.clock)
        # A log that is left out may have had entries before its damaged record.
        entries = [
            news
            for news in self._news
            if isinstance(news, (Started, Withdrawn, Ended))
            and news.contract_id in reader.contracts
        ]
        self._news.clear()
        # A resold stage was bought first: ledgers with this participant as the seller come first.
        entries.sort(key=lambda entry: self._is_buyer(entry.contract_id))
        for entry in entries:
            self._perform(self.agent.recorded(entry, self._recorded_ms(reader, entry)))
        self._leave_at_partners(reader, self._stages)
        context.logger.info(
            "ledgers_read",
            contracts=len(reader.contracts),
            entries=len(entries),
            tasks={
                name: holding.place.value for name, holding in self.agent.holdings.tasks.items()
            },
        )

    def _leave_at_partners(self, reader: FederationReader, stages: TradedStages) -> None:
        """Stop trading the stages that must stay at partners' nodes, since a log is left out."""
        named = {
            task
            for each in reader.every.values()
            if each.booked is not None
            for task in tasks_of(each.booked.contract)
        }
        for topic, why in reader.left_out.items():
            self._context.logger.warning("log_left_out", topic=topic, why=why)
        unread = ", ".join(reader.left_out)
        for task in unexplained(stages.at_partners(), named, reader.left_out):
            self.agent.reserves(task)
            self._left_at_partner[task] = (
                f"no contract that can be read says why it is there, and {unread} cannot be read:"
                " anabranch move takes it home"
            )

    def step(self) -> None:
        """Run one round: read what is new, send what is due, place stages, and measure."""
        reader = self._reader
        talk = self._talk
        stages = self._stages
        meter = self._meter
        assert reader is not None, "started"  # noqa: S101 - step is called after start
        assert talk is not None, "started"  # noqa: S101
        assert stages is not None, "started"  # noqa: S101
        oracle = self._oracle
        ledgers = self._ledgers
        assert ledgers is not None, "started"  # noqa: S101
        assert meter is not None, "started"  # noqa: S101
        assert oracle is not None, "started"  # noqa: S101
        try:
            self._read_ledgers(reader)
            for signed in talk.poll(_POLL_MS):
                self._on_message(signed.statement, signed.signature)
            stages.poll()
            self.status.waiting_for = stages.waits_for(reader.waits_for)
        except Unavailable as error:
            self.status.waiting_for = str(error)
        self._measure(stages, oracle)
        oracle.step(reader.streams, self._now_ms())
        self._take_up_suggestions(reader, ledgers)
        self._perform(self.agent.tick(self._now_ms()))
        for command in stages.settle(self.agent, reader.contracts, self._now_ms()):
            self._perform([command])
        meter.measure(reader.contracts, stages.workloads())
        for contract in reader.contracts.values():
            ledgers.suspend(contract)
        self._report(reader, talk)

    def stop(self) -> None:
        """Close the topics. Idempotent."""
        for closable in (
            self._talk,
            self._ledgers,
            self._stages,
            self._reader,
        ):
            if closable is not None:
                closable.close()
        self._talk = None
        self._ledgers = None
        self._stages = None
        self._reader = None

    def _now_ms(self) -> int:
        """Return the agent's time, by which it waits, a wall clock that never runs backwards."""
        clock = self._context.clock
        return self._time.at(clock.now_ms(), clock.monotonic_ms())

    def _recorded_ms(self, reader: FederationReader, entry: MovementEntry) -> int:
        """Return when an entry that is read at the start was recorded, by the agent's time: a
        restart begins no minimum hold anew. How long ago it was follows from the log's own times.
        """
        log, now_ms = reader.contracts[entry.contract_id], self._now_ms()
        movement = None if log.ledger is None else log.ledger.movements.find(entry.movement_id)
        if movement is None or isinstance(entry, Withdrawn):
            return now_ms
        at_ms = movement.started_ms if isinstance(entry, Started) else movement.ended_ms
        return now_ms - (log.now_ms - at_ms)

    # ---------------------------------------------------------------- what is new

    def _read_ledgers(self, reader: FederationReader) -> None:
        """Read new records of contracts and keys, and pass movements' entries to the agent."""
        now_ms = self._context.clock.monotonic_ms()
        if now_ms >= self._look_next_ms:
            self._look_next_ms = now_ms + _LOOK_EVERY_MS
            reader.look()
            # A statement about signers counts from its time, by the broker's clock.
            self._knows_contracts = False
        if reader.poll(0):
            self._knows_contracts = False
        if not self._knows_contracts:
            self._learn_contracts(reader)
            self._knows_contracts = True
        news, self._news[:] = list(self._news), []
        for entry in news:
            if isinstance(entry, (Started, Withdrawn, Ended)):
                self._context.logger.info(
                    "recorded",
                    what=type(entry).__name__.lower(),
                    movement=entry.movement_id,
                    by=entry.by,
                )
                self._perform(self.agent.recorded(entry, self._now_ms()))

    def _learn_contracts(self, reader: FederationReader) -> None:
        """Tell the agent the current state of the contracts under which it trades."""
        assert self._stages is not None, "started"  # noqa: S101
        unnamed = self._unnamed(reader)
        for name, log in reader.contracts.items():
            booked = log.booked
            if booked is None or log.ledger is None:
                continue
            contract = booked.contract
            if contract.party(self._participant) is None:
                continue
            reason = reason_against(
                contract,
                self._participant,
                self._stages.for_partners,
                self._stages.hosted_tasks,
                unnamed,
                self._stages.by_checkpoint,
            )
            if reason:
                if self._left_alone.get(name) != reason:
                    self._left_alone[name] = reason
                    self._context.logger.warning("contract_left_alone", contract=name, why=reason)
                self.agent.leaves_alone(booked)
                continue
            self._left_alone.pop(name, None)
            self.agent.knows(booked)
            if self._talk is not None:
                self._talk.follow(name)
            if contract.seller == self._participant:
                for task in contract.tasks:
                    self._stages.host(task)

    def _unnamed(self, reader: FederationReader) -> set[tuple[str, str]]:
        """Return partner and task where the pipeline file lets the partner run a published stage
        whose results it may not sign yet.
        """
        pipeline, now_ms = self._context.pipeline, self._context.clock.now_ms()
        words = wanted_words(
            self._participant, pipeline.name, pipeline.other_signers(), reader.signers, now_ms
        )
        return {
            (word.signer, task_of(pipeline.name, word.stream))
            for word in words
            if not word.is_withdrawn
        }

    def _is_buyer(self, contract_id: str) -> bool:
        """Return whether this participant is the buyer under a contract."""
        assert self._reader is not None, "started"  # noqa: S101
        booked = self._reader.contracts[contract_id].booked
        return booked is not None and booked.contract.buyer == self._participant

    def _on_message(
        self, statement: TaskOffer | OfferAnswer | ReturnRequest, signature: Signature
    ) -> None:
        """Pass a message of another party to the agent."""
        now_ms = self._now_ms()
        if isinstance(statement, TaskOffer):
            self._perform(self.agent.offered(statement, now_ms))
        elif isinstance(statement, OfferAnswer):
            commands = self.agent.answered(statement, now_ms)
            # The ledger needs the signature of an answer that this agent relies on. Of others none
            # is kept: a seller could send so many that those of other sellers are forgotten.
            if any(isinstance(command, Prepare) for command in commands):
                self._answers[statement.contract_id, statement.number] = signature
                while len(self._answers) > _ANSWERS_KEPT:
                    self._answers.popitem(last=False)
            self._perform(commands)
        else:
            self._perform(self.agent.return_requested(statement, now_ms))

    def _measure(self, stages: TradedStages, oracle: Oracle) -> None:
        """Measure the loads of all followed tasks, if it is time."""
        now_ms = self._context.clock.monotonic_ms()
        if now_ms < self._measure_next_ms:
            return
        self._measure_next_ms = now_ms + _MEASURE_EVERY_MS
        loads = {
            task: units
            for task, logs in stages.workloads().items()
            if (units := logs.workload.load()) is not None
        }
        for task, units in loads.items():
            self.agent.measured(task, units)
        oracle.measure(loads)

    def _take_up_suggestions(self, reader: FederationReader, ledgers: LedgerWriter) -> None:
        """Sign suggested contracts, and give notice of those that they replace, as the owner's rule
        says. Notices carry the wall clock: readers reject statements dated far from the log's time.
        """
        streams, now_ms = reader.streams, self._context.clock.now_ms()
        allowed = self._policy.take_up
        for word in takes_up(streams, self._participant, allowed, now_ms):
            if ledgers.write(word):
                what = "contract_signed" if isinstance(word, StreamContract) else "notice_given"
                self._context.logger.info(what, contract=word.contract_id)
        self._replaced = replaced(streams, self._participant, allowed, now_ms)

    # ---------------------------------------------------------------- messages out

    def _perform(self, commands: list[Command]) -> None:
        """Send or write what the agent commands. ``Prepare`` and ``BringHome`` need no action:
        where a stage must run follows from its place.
        """
        assert self._ledgers is not None, "started"  # noqa: S101
        for command in commands:
            if isinstance(command, (TaskOffer, OfferAnswer, ReturnRequest)):
                self._context.logger.info(
                    "message_sent",
                    what=type(command).__name__.lower(),
                    contract=command.contract_id,
                    detail=_summary(command),
                )
                if self._talk is not None:
                    self._talk.send(command)
            elif isinstance(command, Claim):
                self._claim(command)
            elif isinstance(command, (Withdrawn, Ended)) and self._is_news(command):
                self._ledgers.write(command)
            elif isinstance(command, Placed) and self._ledgers.write(command):
                self._context.logger.info(
                    "says_where", movement=command.movement_id, node=command.node
                )

    def _claim(self, claim: Claim) -> None:
        """Write the start of a movement into the ledger, with the signed answer that it accepts."""
        assert self._ledgers is not None, "started"  # noqa: S101
        answer = claim.answer
        signature = self._answers.get((answer.contract_id, answer.number))
        if signature is None:
            return  # the answer is too old: the movement is withdrawn at its deadline
        entry = Started(
            answer.contract_id,
            claim.movement_id,
            self._participant,
            self._now_ms(),
            claim.task,
            answer,
            signature,
        )
        self._ledgers.write(entry)

    def _is_news(self, entry: MovementEntry) -> bool:
        """Return whether ``entry`` would change the current state of the ledger."""
        assert self._reader is not None, "started"  # noqa: S101
        ledger = self._reader.contracts[entry.contract_id].ledger
        movement = None if ledger is None else ledger.movements.find(entry.movement_id)
        return is_news(movement, entry)

    # ---------------------------------------------------------------- what it shows

    def _report(self, reader: FederationReader, talk: Conversations) -> None:
        """Update the status and the metrics."""
        holdings = self.agent.holdings
        ignored: Counter[str] = reader.ignored + talk.ignored
        self.status.detail = {
            "federation": self._federation.name,
            "phase": self.agent.phase.value,
            "load_units": holdings.level(),
            "capacity_units": self._policy.capacity_units,
            "tasks": {
                name: {"place": holding.place.value, "units": holding.load.units}
                for name, holding in holdings.tasks.items()
            },
            "left_alone": self._left_alone
            | ({} if self._oracle is None else self._oracle.left_alone),
            "left_at_seller": self._left_at_partner
            | ({} if self._stages is None else self._stages.left_at_seller),
            "replaced": self._replaced,
            "plans": {} if self._oracle is None else self._oracle.detail,
            "ignored": dict(ignored),
            "counters": asdict(self.agent.counters),
        }
        self._figures.show(
            self.agent, {place: len(holdings.at(place)) for place in TaskPlace}, ignored
        )


def _summary(statement: TaskOffer | OfferAnswer | ReturnRequest) -> str:
    """Return the content of a message, for people who read the log."""
    if isinstance(statement, TaskOffer):
        tasks = (f"{t.name}: {t.units} units, up to {t.reserve_price}" for t in statement.tasks)
        return "; ".join(tasks)
    if isinstance(statement, OfferAnswer):
        return (
            "; ".join(f"{t.name}: {t.units} units at {t.price}" for t in statement.tasks)
            or statement.reason
        )
    return statement.movement_id
