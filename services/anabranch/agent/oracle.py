"""Oracle of a participant: connects ``protocol.federation.oracle`` with logs and nodes.

Theory of operation. Each round it reads, for each movement contract of its participant, the
contract's log, on which nodes the query's stages run by their boundary logs, and the load of the
stages and streams. The rules derive from that what it states and, at the receiver, where each stage
must run. Stages that move under such a contract are not traded: the agent counts them as load that
is here or not, and no contract for load moves them.

A crash loses only averages: a new process states nothing until it has measured again, and continues
from the logs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from anabranch.protocol.federation.contract_book import ContractState
from anabranch.protocol.federation.contracts import Side
from anabranch.protocol.federation.load_average import LoadAverage
from anabranch.protocol.federation.oracle import (
    Observed,
    SenderStage,
    SenderWatch,
    at_sender,
    load_here,
    profits,
    reason_against_plans,
    says,
    stays_at_sender,
    tasks_of,
)
from anabranch.protocol.federation.plan_switching import PlanSwitch, SwitchState
from anabranch.protocol.federation.stage_moves import node_of, task_of
from anabranch.protocol.federation.standing import AgentRules

if TYPE_CHECKING:
    from anabranch.agent.stage_logs import StageLogs
    from anabranch.agent.stages import TradedStages
    from anabranch.federation.ledger_writer import LedgerWriter
    from anabranch.pipeline.model import Pipeline
    from anabranch.process.frame import ServiceContext
    from anabranch.protocol.federation.agent import Agent
    from anabranch.protocol.federation.contract_log import StreamLog
    from anabranch.protocol.federation.stream_contracts import StreamContract
    from anabranch.protocol.federation.stream_ledger import StreamLedger

_WEIGHT_PPM: Final = AgentRules().weight_ppm
"""Weight of a measurement in the average, in ppm: the same as for traded load."""


@dataclass(slots=True)
class _Query:
    """Stages of one contract, with their measurements."""

    contract: StreamContract
    """Any version of the contract: all have the same plans."""
    owner: Pipeline
    """Pipeline of the stages."""
    stages: TradedStages
    """Stages of the participant, with their logs."""
    loads: dict[str, LoadAverage] = field(default_factory=dict)
    """Average load of each stage."""
    rates: dict[int, LoadAverage] = field(default_factory=dict)
    """Average rate of the stream that each plan pays for."""
    watch: SenderWatch = field(default_factory=SenderWatch)
    """Watch over the sender's node, at the receiver."""

    def logs(self, stage: str) -> StageLogs | None:
        """Return the logs of a stage; None while they cannot be read."""
        return self.stages.known_logs(task_of(self.contract.pipeline, stage))

    def add_measurements(self, loads: Mapping[str, int]) -> None:
        """Add the measurements since the last call. ``loads``: by task."""
        for stage in self.contract.query:
            units = loads.get(task_of(self.contract.pipeline, stage))
            if units is not None:
                self.loads[stage] = _mean(self.loads.get(stage), units)
        for number in range(len(self.contract.plans)):
            reader, stream = self._paid(number)
            logs = self.logs(reader)
            rate = None if logs is None else logs.rate(stream)
            if rate is not None:
                self.rates[number] = _mean(self.rates.get(number), rate)

    def units(self, stage: str) -> int:
        """Return the load of a stage; 0 if it was not measured yet."""
        return self.loads[stage].units if stage in self.loads else 0

    def has_all(self) -> bool:
        """Return whether everything that a profit needs is measured."""
        contract = self.contract
        return len(self.loads) == len(contract.query) and len(self.rates) == len(contract.plans)

    def _paid(self, number: int) -> tuple[str, str]:
        """Return the stage whose logs contain the stream that a plan pays for, and the stream's
        name.
        """
        plan = self.contract.plans[number]
        if number:
            return plan.stream, plan.stream
        return next(
            (stage, name)
            for stage in self.contract.query
            for name in self.owner.inputs(stage)
            if (found := self.owner.bindings.get(name)) is not None
            and (found.pipeline, found.stream) == (plan.pipeline, plan.stream)
        )


class Oracle:
    """Oracle of one participant, for all of its movement contracts. Not thread-safe."""

    def __init__(
        self,
        context: ServiceContext,
        backoff_ms: int,
        hosted: Mapping[str, Pipeline],
        agent: Agent,
        stages: TradedStages,
        ledgers: LedgerWriter,
    ) -> None:
        """Prepare the oracle; no broker is contacted yet.

        Args:
            context: The context of the process.
            backoff_ms: Time, in ms, for which a rejected plan is not proposed again.
            hosted: Pipelines of other owners whose stages may run here.
            agent: The agent of the same participant.
            stages: The participant's own stages, which the oracle moves, and hosted ones.
            ledgers: The writer of its statements.
        """
        self._context, self._backoff_ms = context, backoff_ms
        self._agent, self._stages = agent, stages
        self._ledgers = ledgers
        self._pipelines = {**hosted, context.pipeline.name: context.pipeline}
        self._queries: dict[str, _Query] = {}
        self._reserved: dict[str, str] = {}
        """Contract under which each reserved own task moves."""
        self.left_alone: dict[str, str] = {}
        """Reason why a contract is not followed here, by contract."""
        self.detail: dict[str, object] = {}
        """Status of the contracts that are followed."""

    def measure(self, loads: Mapping[str, int]) -> None:
        """Add ``loads``, the loads of the followed tasks since the last call."""
        for query in self._queries.values():
            query.add_measurements(loads)

    def step(self, contracts: Mapping[str, StreamLog], now_ms: int) -> None:
        """Run one round over all contracts."""
        self.detail = {}
        for name, log in contracts.items():
            ledger = log.ledger
            if ledger is None or not ledger.contract.has_switches:
                continue
            if ledger.contract.party(self._agent.participant) is None:
                continue
            reason = self._reason(log, ledger.switch, now_ms)
            if not reason:
                self.left_alone.pop(name, None)
                self._follow(ledger, now_ms)
            elif self.left_alone.get(name) != reason:
                self.left_alone[name] = reason
                self._context.logger.warning("contract_left_alone", contract=name, why=reason)

    # ---------------------------------------------------------------- which contracts

    def _reason(self, log: StreamLog, switch: PlanSwitch, now_ms: int) -> str:
        """Return why a contract is not followed; empty if it is."""
        contract, booked = switch.contract, log.booked
        owner = self._pipelines.get(contract.pipeline)
        federation = None if owner is None else owner.federation
        reason = reason_against_plans(
            contract,
            {} if federation is None else federation.partners,
            [] if owner is None else _foreign(owner, contract.query),
            "" if owner is None else owner.name,
            [] if owner is None else owner.by_checkpoint(),
        )
        if reason or not self._is_own(contract):
            return reason
        is_over = booked is None or booked.state_at(now_ms) is ContractState.ENDED
        if is_over or switch.state is SwitchState.CANCELLED:
            return self._released(contract, "the contract is over")
        for task in tasks_of(contract):
            by = self._reserved.get(task, contract.contract_id)
            if by != contract.contract_id:
                return f"{task} moves under {by}"
            if task not in self._stages.workloads():
                return f"{task} reads a stream on another cluster, so nobody else runs it"
            if not self._agent.reserves(task):
                return f"{task} is traded under a contract for load until it is home"
            self._reserved[task] = contract.contract_id
        return ""

    def _is_own(self, contract: StreamContract) -> bool:
        """Return whether this participant is the contract's receiver, which owns the stages."""
        return contract.party(self._agent.participant) is Side.BUYER

    def _released(self, contract: StreamContract, why: str) -> str:
        """Return the stages of an ended contract to trade, once they run at home. Return
        ``why``.
        """
        query = self._queries.get(contract.contract_id)
        for stage, task in zip(contract.query, tasks_of(contract), strict=True):
            mine = self._reserved.get(task) == contract.contract_id
            if mine and self._stages.settle_at(stage, ""):
                del self._reserved[task]
                self._agent.runs_besides(task, 0)
                self._agent.owns(task, 0 if query is None else query.units(stage))
        return why

    # ---------------------------------------------------------------- one contract

    def _follow(self, ledger: StreamLedger, now_ms: int) -> None:
        """Run one round of a contract: place its stages, compute the profits, and write a
        statement.
        """
        switch, agent = ledger.switch, self._agent
        contract = switch.contract
        query = self._queries.get(contract.contract_id) or self._open_query(contract)
        may_switch = ledger.is_in_force(now_ms)
        has_moved = has_failed = False
        if self._is_own(contract):
            has_failed = may_switch and self._has_failed(switch, query)
            wanted = at_sender(switch, may_switch=may_switch and not has_failed)
            has_moved = self._place_stages(contract, wanted)
        side = Side.BUYER if self._is_own(contract) else Side.SELLER
        here = load_here(switch, side, may_switch=may_switch)
        for stage, task in zip(contract.query, tasks_of(contract), strict=True):
            agent.runs_besides(task, query.units(stage) if stage in here else 0)
        found = None
        if query.has_all():
            cost, level = agent.costs_besides(tasks_of(contract))
            loads = {stage: load.units for stage, load in query.loads.items()}
            rates = [query.rates[number].units for number in range(len(contract.plans))]
            found = profits(contract, side, rates, loads, cost, level)
        seen = Observed(found, has_moved=has_moved, has_failed=has_failed)
        word = says(
            agent.participant,
            switch,
            seen,
            now_ms,
            may_switch=may_switch,
            backoff_ms=self._backoff_ms,
        )
        if word is not None and self._ledgers.write(word):
            self._context.logger.info(
                "plan_word",
                contract=contract.contract_id,
                word=word.word.value,
                plan=word.plan,
                profits=found,
            )
        self.detail[contract.contract_id] = {
            "plan": switch.plan,
            "state": switch.state_at(now_ms).value,
            "profits": found,
            "runs_on": {
                stage: "" if (logs := query.logs(stage)) is None else logs.runs_on
                for stage in contract.query
            },
        }

    def _open_query(self, contract: StreamContract) -> _Query:
        """Follow the logs of a contract's stages."""
        owner = self._pipelines[contract.pipeline]
        for task in tasks_of(contract):
            self._stages.host(task)
        query = self._queries[contract.contract_id] = _Query(contract, owner, self._stages)
        return query

    def _place_stages(self, contract: StreamContract, wanted: Collection[str]) -> bool:
        """Move each own stage of a query to where it must run. Return whether all run there."""
        settled = [
            self._stages.settle_at(stage, contract.sender if stage in wanted else "")
            for stage in contract.query
        ]
        return all(settled)

    def _has_failed(self, switch: PlanSwitch, query: _Query) -> bool:
        """Return whether the sender's node fails to run what the active plan assigns to it."""
        contract, node = switch.contract, node_of(switch.contract.sender)
        stages = [
            None
            if (logs := query.logs(stage)) is None
            else SenderStage(logs.runs_on == node, logs.is_silent(), logs.waits_ms())
            for stage in stays_at_sender(switch, may_switch=True)
        ]
        had_failed = query.watch.has_failed
        query.watch.look(switch, stages, self._context.clock.monotonic_ms())
        if query.watch.has_failed and not had_failed:
            self._context.logger.warning(
                "sender_failed", contract=contract.contract_id, node=node, plan=switch.plan
            )
        return query.watch.has_failed


def _foreign(owner: Pipeline, query: Collection[str]) -> list[tuple[str, str]]:
    """Return the streams of other pipelines that the stages of ``query`` read on this cluster."""
    named = {stream for stage in query if stage in owner.stages for stream in owner.inputs(stage)}
    return [
        (each.pipeline, each.stream)
        for name, each in owner.bindings.items()
        if name in named and not each.cluster
    ]


def _mean(before: LoadAverage | None, units: int) -> LoadAverage:
    """Return the average with ``units`` added."""
    return LoadAverage.of(units) if before is None else before.measured(units, _WEIGHT_PPM)
