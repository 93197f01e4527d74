"""The oracle of a participant: wiring of ``protocol.federation.oracle`` to logs and nodes.

Theory of operation. Each round it looks at each movement contract of its participant: what the
contract's log says, where the stages of the query run by their boundary logs, and what they and the
streams have for load. From that follows what it says, and, at the receiver, where each stage is to
run. Stages that move under such a contract are not traded: the agent has them as load that is here
or not, and no contract for load moves them.

A crash loses only averages: a new process says nothing until it has measured again, and goes on
from what the logs say.
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
    from anabranch.agent.ledger_writer import LedgerWriter
    from anabranch.agent.stage_logs import StageLogs
    from anabranch.agent.stages import TradedStages
    from anabranch.pipeline.model import Pipeline
    from anabranch.process.frame import ServiceContext
    from anabranch.protocol.federation.agent import Agent
    from anabranch.protocol.federation.plan_contracts import MovementContract
    from anabranch.protocol.federation.plan_ledger import PlanLog

_WEIGHT_PPM: Final = AgentRules().weight_ppm
"""Of a measurement in the average: the same as for load that is traded."""


@dataclass(slots=True)
class _Query:
    """The stages of one contract, and what was measured of them."""

    contract: MovementContract
    """Any version: all have the same plans."""
    owner: Pipeline
    """Of the stages."""
    logs: dict[str, StageLogs]
    """By stage."""
    loads: dict[str, LoadAverage] = field(default_factory=dict)
    """By stage."""
    rates: dict[int, LoadAverage] = field(default_factory=dict)
    """Plan -> of the stream that is paid for under it."""
    watch: SenderWatch = field(default_factory=SenderWatch)
    """Of the receiver's."""

    def measured(self, loads: Mapping[str, int]) -> None:
        """Take what came since the last call. ``loads``: by task."""
        for stage in self.contract.query:
            units = loads.get(task_of(self.contract.pipeline, stage))
            if units is not None:
                self.loads[stage] = _mean(self.loads.get(stage), units)
        for number in range(self.contract.plan_count):
            reader, stream = self._paid(number)
            rate = self.logs[reader].rate(stream)
            if rate is not None:
                self.rates[number] = _mean(self.rates.get(number), rate)

    def units(self, stage: str) -> int:
        """The load of a stage; 0: it was not measured yet."""
        return self.loads[stage].units if stage in self.loads else 0

    def has_all(self) -> bool:
        """Whether all is measured that a profit needs."""
        contract = self.contract
        return len(self.loads) == len(contract.query) and len(self.rates) == contract.plan_count

    def _paid(self, number: int) -> tuple[str, str]:
        """The stage in whose logs the stream is that is paid for under a plan, and its name."""
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
    """Of one participant, under all of its movement contracts. Not thread-safe."""

    def __init__(
        self,
        context: ServiceContext,
        backoff_ms: int,
        hosted: Mapping[str, Pipeline],
        agent: Agent,
        stages: TradedStages,
        ledgers: LedgerWriter,
    ) -> None:
        """Nothing is contacted yet.

        Args:
            context: Of the process.
            backoff_ms: So long a plan that came to nothing is not proposed again.
            hosted: Pipelines of others whose stages may run here.
            agent: Of the same participant.
            stages: Its own, which it moves, and those of others that it follows.
            ledgers: Into which it writes what it says.
        """
        self._context, self._backoff_ms = context, backoff_ms
        self._agent, self._stages = agent, stages
        self._ledgers = ledgers
        self._pipelines = {**hosted, context.pipeline.name: context.pipeline}
        self._queries: dict[str, _Query] = {}
        self._reserved: dict[str, str] = {}
        """Own task -> the contract under which it moves."""
        self.left_alone: dict[str, str] = {}
        """Contracts that are not followed here, and why."""
        self.detail: dict[str, object] = {}
        """What it shows of those that are."""

    def measure(self, loads: Mapping[str, int]) -> None:
        """``loads``: what the tasks that are followed had to do since the last call."""
        for query in self._queries.values():
            query.measured(loads)

    def step(self, contracts: Mapping[str, PlanLog], now_ms: int) -> None:
        """One round over all contracts."""
        self.detail = {}
        for name, log in contracts.items():
            ledger = log.ledger
            if ledger is None or ledger.contract.party(self._agent.participant) is None:
                continue
            reason = self._reason(log, ledger.switch, now_ms)
            if not reason:
                self.left_alone.pop(name, None)
                self._follow(log, ledger.switch, now_ms)
            elif self.left_alone.get(name) != reason:
                self.left_alone[name] = reason
                self._context.logger.warning("contract_left_alone", contract=name, why=reason)

    # ---------------------------------------------------------------- which contracts

    def _reason(self, log: PlanLog, switch: PlanSwitch, now_ms: int) -> str:
        """Why a contract is not followed; empty: it is."""
        contract, booked = switch.contract, log.booked
        owner = self._pipelines.get(contract.pipeline)
        federation = None if owner is None else owner.federation
        reason = reason_against_plans(
            contract,
            {} if federation is None else federation.partners,
            [] if owner is None else _foreign(owner, contract.query),
            "" if owner is None else owner.name,
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

    def _is_own(self, contract: MovementContract) -> bool:
        return contract.party(self._agent.participant) is Side.BUYER

    def _released(self, contract: MovementContract, why: str) -> str:
        """Its stages may be traded again, once they are home."""
        query = self._queries.get(contract.contract_id)
        for stage, task in zip(contract.query, tasks_of(contract), strict=True):
            mine = self._reserved.get(task) == contract.contract_id
            if mine and self._stages.settle_at(stage, ""):
                del self._reserved[task]
                self._agent.runs_besides(task, 0)
                self._agent.owns(task, 0 if query is None else query.units(stage))
        return why

    # ---------------------------------------------------------------- one contract

    def _follow(self, log: PlanLog, switch: PlanSwitch, now_ms: int) -> None:
        contract, agent = switch.contract, self._agent
        query = self._queries.get(contract.contract_id) or self._opened(contract)
        may_switch = log.is_in_force(now_ms)
        has_moved = has_failed = False
        if self._is_own(contract):
            has_failed = may_switch and self._has_failed(switch, query)
            wanted = at_sender(switch, may_switch=may_switch and not has_failed)
            has_moved = self._settle(contract, wanted)
        side = Side.BUYER if self._is_own(contract) else Side.SELLER
        here = load_here(switch, side, may_switch=may_switch)
        for stage, task in zip(contract.query, tasks_of(contract), strict=True):
            agent.runs_besides(task, query.units(stage) if stage in here else 0)
        found = None
        if query.has_all():
            cost, level = agent.costs_besides(tasks_of(contract))
            loads = {stage: load.units for stage, load in query.loads.items()}
            rates = [query.rates[number].units for number in range(contract.plan_count)]
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
            "runs_on": {stage: logs.runs_on for stage, logs in query.logs.items()},
        }

    def _opened(self, contract: MovementContract) -> _Query:
        owner = self._pipelines[contract.pipeline]
        logs = {}
        for stage, task in zip(contract.query, tasks_of(contract), strict=True):
            if not self._is_own(contract):
                self._stages.host(task)
            logs[stage] = self._stages.workloads()[task]
        query = self._queries[contract.contract_id] = _Query(contract, owner, logs)
        return query

    def _settle(self, contract: MovementContract, wanted: Collection[str]) -> bool:
        """Set right where the own stages of a query run; whether all run there."""
        settled = [
            self._stages.settle_at(stage, contract.sender if stage in wanted else "")
            for stage in contract.query
        ]
        return all(settled)

    def _has_failed(self, switch: PlanSwitch, query: _Query) -> bool:
        """Whether the sender's node does not run what it has to by the active plan."""
        contract, node = switch.contract, node_of(switch.contract.sender)
        stages = [
            SenderStage(logs.runs_on == node, logs.is_silent(), logs.waits_ms())
            for stage in stays_at_sender(switch, may_switch=True)
            for logs in (query.logs[stage],)
        ]
        had_failed = query.watch.has_failed
        query.watch.look(switch, stages, self._context.clock.monotonic_ms())
        if query.watch.has_failed and not had_failed:
            self._context.logger.warning(
                "sender_failed", contract=contract.contract_id, node=node, plan=switch.plan
            )
        return query.watch.has_failed


def _foreign(owner: Pipeline, query: Collection[str]) -> list[tuple[str, str]]:
    """The streams of other pipelines that these stages read on this cluster."""
    named = {stream for stage in query if stage in owner.stages for stream in owner.inputs(stage)}
    return [
        (each.pipeline, each.stream)
        for name, each in owner.bindings.items()
        if name in named and not each.cluster
    ]


def _mean(before: LoadAverage | None, units: int) -> LoadAverage:
    return LoadAverage.of(units) if before is None else before.measured(units, _WEIGHT_PPM)
