"""Stages that a participant trades, its own and hosted ones: where each runs, where it should run,
and the statements that the ledgers need.

Theory of operation. The same rules place both kinds (``protocol.federation.stage_moves``). For an
own stage this module writes a move into the pipeline's log of moves. For a hosted stage the seller
states in the ledger under which it came where it must run, and the buyer follows that: so a stage
that was resold several times is moved by its owner, which sees only one contract of the chain.

A crash loses nothing: where a stage must run follows from the agent's table, which follows from the
ledgers, and is compared with the log of moves, or with the ledger, in each round.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Final, NamedTuple

from anabranch.agent.stage_logs import StageLogs
from anabranch.codec import control_records
from anabranch.ports import TopicPartition
from anabranch.process.crash_points import crash_point
from anabranch.protocol.control.records import Move
from anabranch.protocol.errors import OutcomeUnknown, Unavailable
from anabranch.protocol.federation.holdings import Holding, TaskPlace, Term
from anabranch.protocol.federation.ledger import Ledger
from anabranch.protocol.federation.movements import Command, EndReason, Movement, MovementState
from anabranch.protocol.federation.stage_moves import (
    failure,
    is_ready,
    may_end,
    named_node,
    node_of,
    nodes_of,
    placing,
    stage_of,
    task_of,
    wanted_node,
)
from anabranch.streams.followed_logs import FollowedLogs
from anabranch.streams.placement import PlacementReader

if TYPE_CHECKING:
    from anabranch.pipeline.model import Pipeline
    from anabranch.process.frame import ServiceContext
    from anabranch.protocol.federation.agent import Agent
    from anabranch.protocol.federation.contract_log import LoadLog

_AGAIN_MS: Final = 2_000
"""Time, in ms, after which a move that is not in the log yet is written again."""


class _Sale(NamedTuple):
    """Sale under which a task leaves, or has left."""

    name: str
    """Id of the movement."""
    contract: LoadLog
    ledger: Ledger
    movement: Movement | None
    """State of the movement; None if it has not started."""
    partner: str
    """Node on which the task must run."""
    nodes: frozenset[str]
    """Nodes whose work on the stage is metered as the seller's (FZ4)."""


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
        self._recalled: dict[str, tuple[EndReason, int]] = {}
        """Reason and time of failure of each movement whose stage was taken home because its seller
        failed.
        """
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

    @property
    def waits_for(self) -> str | None:
        """Tasks whose logs cannot be read now, with the reasons, for ``status``; None: all can."""
        return self._logs.waits_for

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
        running = set[str]()
        self.left_at_seller = {
            task: why
            for task, why in self.left_at_seller.items()
            if task in agent.holdings.tasks and agent.holdings.tasks[task].went is not None
        }
        for task in self._logs.every:
            holding = agent.holdings.tasks.get(task)
            if holding is None or holding.place is TaskPlace.PROMISED:
                continue  # not here, or it moves under a movement contract (``agent.oracle``)
            logs = self._logs.known(task)
            if logs is None:  # where it runs is not known: it stays where it is
                running |= set() if holding.went is None else {holding.went.movement_id}
                continue
            home, partner = self._home(holding), ""
            holding.failed = None
            if holding.went is not None:
                sale = self._sale(holding.went, contracts, logs)
                partner = sale.partner
                running.add(sale.name)
                self._note_refused_node(task, sale)
                why = holding.failed = self._failure(holding, logs, sale, contracts, now_ms)
                if why is not None:
                    is_away = logs.runs_on not in sale.nodes
                    if is_away and self._may_end(holding, why, sale, now_ms):
                        commands += agent.failed(sale.name, why, now_ms)
                elif is_ready(holding.place, logs.runs_on, home, partner):
                    commands += agent.ready(sale.name, now_ms)
            wanted = wanted_node(
                holding.place, home, partner, has_failed=holding.failed is not None
            )
            if holding.came is None:
                self._place(stage_of(task)[1], wanted)
            else:
                commands += self._state_place(holding.came, contracts, wanted)
        self._recalled = {name: found for name, found in self._recalled.items() if name in running}
        return commands

    def _home(self, holding: Holding) -> str:
        """Return the node of this participant that runs the task."""
        if holding.came is not None:
            return node_of(self._participant)
        return self._homes[stage_of(holding.name)[1]]

    def _sale(self, went: Term, contracts: Mapping[str, LoadLog], logs: StageLogs) -> _Sale:
        """Collect the facts about the sale of a task."""
        contract = contracts[went.contract_id]
        assert contract.booked is not None, "it moved under it"  # noqa: S101
        assert contract.ledger is not None, "both have signed it"  # noqa: S101
        seller, ledger = contract.booked.contract.seller, contract.ledger
        movement = ledger.movements.find(went.movement_id)
        nodes = frozenset({node_of(seller)})
        if movement is not None:
            nodes = nodes_of(movement, seller, logs.allowed)
        partner = named_node(movement, seller, logs.allowed)
        return _Sale(went.movement_id, contract, ledger, movement, partner, nodes)

    def _note_refused_node(self, task: str, sale: _Sale) -> None:
        """Note when a seller names a node that the owner's file does not allow to run ``task``."""
        named = "" if sale.movement is None else sale.movement.node
        if named in ("", sale.partner):
            self.left_at_seller.pop(task, None)
            return
        why = f"its seller names {named}, which may not run it: federation.partners"
        if self.left_at_seller.get(task) != why:
            self.left_at_seller[task] = why
            self._context.logger.warning("left_at_seller", task=task, node=sale.partner, why=why)

    def _failure(
        self,
        holding: Holding,
        logs: StageLogs,
        sale: _Sale,
        contracts: Mapping[str, LoadLog],
        now_ms: int,
    ) -> EndReason | None:
        """Return why a sold stage was taken home, or must be; None if its seller has not failed.

        A recalled stage stays at home: whichever node is alive then is an own one. If another party
        has taken the stage, that is no failure of the buyer's seller.
        """
        name, movement = sale.name, sale.movement
        if holding.place is TaskPlace.LEAVING or movement is None:
            self._recalled.pop(name, None)
            return None
        is_there = logs.runs_on in sale.nodes
        is_own = is_there or holding.came is None or self._belongs_home(holding.came, contracts)
        if name not in self._recalled and holding.place is TaskPlace.AWAY and is_own:
            why = failure(
                sale.ledger,
                movement,
                is_heard=not (
                    logs.is_silent() if is_there else sale.ledger.is_silent(movement, now_ms)
                ),
                waits_ms=logs.waits_ms() if is_there else 0,
            )
            if why is not None:
                self._recalled[name] = why, now_ms
                self._context.logger.warning(
                    "seller_failed", movement=name, node=sale.partner, why=why.value
                )
        return self._recalled[name][0] if name in self._recalled else None

    def _belongs_home(self, came: Term, contracts: Mapping[str, LoadLog]) -> bool:
        """Return whether a hosted stage must run here by the statements so far."""
        movement = _movement(came, contracts)
        return movement is not None and movement.node in ("", node_of(self._participant))

    def _state_place(
        self, came: Term, contracts: Mapping[str, LoadLog], wanted: str
    ) -> list[Command]:
        """Return the statement where a hosted stage must run, unless its ledger has it."""
        movement = _movement(came, contracts)
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

    def _may_end(self, holding: Holding, why: EndReason, sale: _Sale, now_ms: int) -> bool:
        """Return whether the ledger proves the failure. The proof may only be measured once the
        stage is home, so it is waited for as long as a movement may take. After that the end needs
        no proof, if the stage has stayed long enough.
        """
        ledger, (_, fled_ms) = sale.ledger, self._recalled[sale.name]
        movement = ledger.movements[sale.name]
        deadline_ms = fled_ms + ledger.movements.contract(movement.version).moving.deadline_ms
        return now_ms >= max(holding.hold_until_ms, deadline_ms) or any(
            may_end(ledger, movement, why, at_ms) for at_ms in (sale.contract.now_ms, now_ms)
        )

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


def _movement(term: Term, contracts: Mapping[str, LoadLog]) -> Movement | None:
    """Return the movement of ``term``; None if it is not running by the records read so far."""
    ledger = contracts[term.contract_id].ledger
    movement = None if ledger is None else ledger.movements.find(term.movement_id)
    is_running = movement is not None and movement.state is MovementState.RUNNING
    return movement if is_running else None
