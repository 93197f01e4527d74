"""Stages that a participant trades, its own and hosted ones: where each runs, where it should run,
and the statements that the ledgers need.

Theory of operation. The same rules place both kinds (``protocol.federation.stage_moves``), and
decide whether the seller of a sold one has failed (``protocol.federation.sales``). For an own stage
this module writes a move into the pipeline's log of moves. For a hosted stage the seller states in
the ledger under which it came where it must run, and the buyer follows that: so a stage that was
resold several times is moved by its owner, which sees only one contract of the chain.

A crash loses nothing: where a stage must run follows from the agent's table, which follows from the
ledgers, and is compared with the log of moves, or with the ledger, in each round.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Final

from anabranch.agent.stage_logs import StageLogs
from anabranch.codec import control_records
from anabranch.ports import TopicPartition
from anabranch.process.crash_points import crash_point
from anabranch.protocol.control.records import Move
from anabranch.protocol.errors import OutcomeUnknown, Unavailable
from anabranch.protocol.federation.holdings import Holding, TaskPlace, Term
from anabranch.protocol.federation.movements import Command
from anabranch.protocol.federation.sales import (
    Sale,
    Sales,
    SeenTask,
    Settled,
    is_wanted_here,
    running_movement,
)
from anabranch.protocol.federation.stage_moves import node_of, placing, stage_of, task_of
from anabranch.streams.followed_logs import FollowedLogs
from anabranch.streams.placement import PlacementReader

if TYPE_CHECKING:
    from anabranch.pipeline.model import Pipeline
    from anabranch.process.frame import ServiceContext
    from anabranch.protocol.federation.agent import Agent
    from anabranch.protocol.federation.contract_log import LoadLog

_AGAIN_MS: Final = 2_000
"""Time, in ms, after which a move that is not in the log yet is written again."""


class TradedStages:
    """Traded stages of one participant. Not thread-safe."""

    def __init__(
        self, context: ServiceContext, participant: str, hosted: Mapping[str, Pipeline]
    ) -> None:
        """Open the log of moves. ``hosted``: pipelines of other owners whose stages may run here.

        Raises:
            Unavailable: the log does not exist, or the broker does not answer.
        """
        pipeline = context.pipeline
        self._context = context
        self._pipeline = pipeline
        self._participant = participant
        self._hosted = hosted
        self.names = [
            stage.name
            for stage in pipeline.stages.values()
            if stage.participant == participant and not pipeline.reads_elsewhere(stage.name)
        ]
        self._logs = FollowedLogs(
            self._new_logs,
            context.clock,
            context.logger,
            is_others=lambda task: stage_of(task)[0] != pipeline.name,
        )
        """Logs of own stages and of followed hosted ones, by task."""
        for stage in self.names:
            self.host(task_of(pipeline.name, stage))
        self._at = TopicPartition(pipeline.topic_names.placement(), 0)
        self._placement = PlacementReader(context.log, self._at.topic, pipeline.places())
        self._placement.read_to_end()
        self._homes = {stage: pipeline.places().node_of(f"{stage}.0") for stage in self.names}
        self._moved_ms: dict[str, int] = {}
        self._sales = Sales()
        self.left_at_seller: dict[str, str] = {}
        """Reason why a task does not run where its seller states, by task."""
        self.for_partners = self._for_partners()
        """Tasks that each partner may run: own ones and, by their owners' files, hosted ones."""
        self.hosted_tasks = {
            task_of(each.name, stage)
            for each in hosted.values()
            if each.federation is not None
            for stage in each.federation.partners.get(participant, ())
        }
        """Stages of other owners that may run here, by both files."""
        self.by_checkpoint = {
            task_of(each.name, stage)
            for each in (pipeline, *hosted.values())
            for stage in each.by_checkpoint()
        }
        """Tasks whose state comes from their owner's checkpoint, by their owners' files."""

    def workloads(self) -> Mapping[str, StageLogs]:
        """Return the logs of own stages and of followed hosted ones, by task. Logs that lost
        records are replaced by others, which begin anew: do not keep them.
        """
        return self._logs.every

    def known_logs(self, task: str) -> StageLogs | None:
        """Return the logs of a task; None while they cannot be read, so that it is not known where
        it runs.
        """
        return self._logs.known(task)

    def waits_for(self, other: str | None) -> str | None:
        """Return ``other``, a reason to wait, and the tasks whose logs cannot be read now, with the
        reasons, for ``status``. None if there is none.
        """
        return self._logs.waits_for(other)

    def at_partners(self) -> list[str]:
        """Return the own tasks that have their places at partners' nodes."""
        places = self._placement.places
        return [
            task_of(self._pipeline.name, stage)
            for stage in self.names
            if places.is_partners(places.node_of(f"{stage}.0"))
        ]

    def _for_partners(self) -> dict[str, set[str]]:
        """Return the content of ``for_partners``."""
        found: dict[str, set[str]] = {}
        for pipeline in (self._pipeline, *self._hosted.values()):
            partners = {} if pipeline.federation is None else pipeline.federation.partners
            for partner, stages in partners.items():
                if partner != self._participant:
                    allowed = (
                        stages
                        if pipeline is self._pipeline
                        else set(stages).intersection(partners.get(self._participant, ()))
                    )
                    found.setdefault(partner, set()).update(
                        task_of(pipeline.name, stage) for stage in allowed
                    )
        return found

    def host(self, task: str) -> None:
        """Follow the logs of a stage, of another owner or an own one. Idempotent."""
        self._logs.follow(task)

    def _new_logs(self, task: str) -> StageLogs:
        """Prepare the followers of the logs of ``task``."""
        name, stage = stage_of(task)
        is_own = name == self._pipeline.name
        pipeline = self._pipeline if is_own else self._hosted[name]
        # Only a participant that may sell it must know whether the node that runs it lives.
        may_sell = is_own or any(task in tasks for tasks in self.for_partners.values())
        return StageLogs(
            self._context.log, self._context.clock, pipeline, stage, with_heartbeats=may_sell
        )

    def poll(self) -> None:
        """Read the available records, without waiting. A stage whose logs cannot be read holds up
        no other one (``waits_for``).

        Raises:
            Unavailable: the log of moves cannot be read now.
            ConfigurationError: buckets of an own stream have another width than the file says.
        """
        self._placement.poll()
        places = self._placement.places
        for stage in self.names:
            node = places.node_of(f"{stage}.0")
            if node and not places.is_partners(node):
                self._homes[stage] = node  # an operator may move it between own nodes
        self._logs.poll()

    def settle(self, agent: Agent, contracts: Mapping[str, LoadLog], now_ms: int) -> list[Command]:
        """Move each stage to where it must run. Return the statements that the ledgers need."""
        commands: list[Command] = []
        refused, self.left_at_seller = self.left_at_seller, {}
        running = set[str]()
        for task, followed in self._logs.every.items():
            holding = agent.holdings.tasks.get(task)
            if holding is None or holding.place is TaskPlace.PROMISED:
                continue  # not here, or it moves under a movement contract (``agent.oracle``)
            sale, logs = None, self._logs.known(task)
            if holding.went is not None:
                contract = contracts[holding.went.contract_id]
                sale = Sale.of(holding.went, contract, followed.allowed)
                running.add(sale.name)
                self._report_refused(task, sale, refused)
            seen = None if logs is None else _seen(logs)
            is_wanted = is_wanted_here(holding.came, contracts, self._participant)
            settled = self._sales.settle(
                holding, self._home(holding), sale, seen, now_ms, is_wanted=is_wanted
            )
            if settled is None:
                continue
            holding.failed = settled.failed
            if sale is not None:
                commands += self._statements(agent, sale, settled, now_ms)
            if holding.came is None:
                self._place(stage_of(task)[1], settled.node)
            else:
                commands += self._state_place(holding.came, contracts, settled.node)
        self._sales.keep(running)
        return commands

    def _statements(self, agent: Agent, sale: Sale, settled: Settled, now_ms: int) -> list[Command]:
        """Return the statements about a sale, and log a failure of its seller that is news."""
        if settled.failed is not None and settled.is_news:
            self._context.logger.warning(
                "seller_failed", movement=sale.name, node=sale.partner, why=settled.failed.value
            )
        if settled.failed is not None and settled.is_ended:
            return agent.failed(sale.name, settled.failed, now_ms)
        return agent.ready(sale.name, now_ms) if settled.is_ready else []

    def _home(self, holding: Holding) -> str:
        """Return the node of this participant that runs the task."""
        if holding.came is not None:
            return node_of(self._participant)
        return self._homes[stage_of(holding.name)[1]]

    def _report_refused(self, task: str, sale: Sale, before: Mapping[str, str]) -> None:
        """Note when a seller names a node that the owner's file does not allow to run ``task``; log
        it if it is not in ``before``.
        """
        if not sale.refused_node:
            return
        why = f"its seller names {sale.refused_node}, which may not run it: federation.partners"
        self.left_at_seller[task] = why
        if before.get(task) != why:
            self._context.logger.warning("left_at_seller", task=task, node=sale.partner, why=why)

    def _state_place(
        self, came: Term, contracts: Mapping[str, LoadLog], wanted: str
    ) -> list[Command]:
        """Return the statement where a hosted stage must run, unless its ledger has it."""
        movement = running_movement(came, contracts)
        entry = (
            None
            if movement is None
            else placing(
                movement,
                came.contract_id,
                self._participant,
                wanted,
                self._context.clock.now_ms(),
            )
        )
        return [] if entry is None else [entry]

    def settle_at(self, stage: str, partner: str) -> bool:
        """Move a stage that is not traded to the node of participant ``partner``, or home if that
        is empty. Return whether it runs there.
        """
        node = node_of(partner) if partner else self._homes[stage]
        self._place(stage, node)
        logs = self.known_logs(task_of(self._pipeline.name, stage))
        return logs is not None and logs.runs_on == node

    def _place(self, stage: str, node: str) -> None:
        """Write a move of a stage to ``node``, unless it has that place already, or a move was
        written less than _AGAIN_MS ago.
        """
        label, places = f"{stage}.0", self._placement.places
        now_ms = self._context.clock.monotonic_ms()
        if not places.node_of(label) or places.node_of(label) == node:
            return  # a stage without a place was removed by an operator: leave it so
        if places.rejected(label, node):
            self._context.logger.warning(
                "not_moved", stage=label, node=node, why=places.rejected(label, node)
            )
            return
        if now_ms - self._moved_ms.get(label, -_AGAIN_MS) < _AGAIN_MS:
            return
        self._moved_ms[label] = now_ms
        crash_point("agent.move_due")
        move = Move(stage, "0", node, self._context.clock.now_ms())
        try:
            with closing(self._context.log.writer()) as writer:
                writer.send(self._at, control_records.encode(move), control_records.key_of(move))
                writer.flush()
        except (OutcomeUnknown, Unavailable) as error:
            self._context.logger.warning("move_delayed", stage=label, node=node, error=str(error))
            return
        crash_point("agent.move_written")
        self._context.logger.info("moves", stage=label, to=node)

    def close(self) -> None:
        """Close the logs. Idempotent."""
        self._logs.close()
        self._placement.close()


def _seen(logs: StageLogs) -> SeenTask:
    """Return the observations in the logs of a task."""
    return SeenTask(logs.runs_on, logs.is_silent(), logs.waits_ms())
