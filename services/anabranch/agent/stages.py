"""The stages of one's own: where each runs, where it should run, and the statements that the ledger
needs.

A crash loses nothing: where a stage is to run follows from the agent's table, which follows from
the ledgers, and is compared with the log of moves again.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Final

from anabranch.agent.stage_logs import StageLogs
from anabranch.codec import control_records
from anabranch.ports import TopicPartition
from anabranch.protocol.control.records import Move
from anabranch.protocol.errors import OutcomeUnknown, Unavailable
from anabranch.protocol.federation.holdings import Holding, Place
from anabranch.protocol.federation.movements import Command, Why
from anabranch.protocol.federation.stage_moves import (
    failure,
    is_ready,
    may_end,
    node_of,
    task_of,
    wanted_node,
)
from anabranch.runtime.crash_points import crash_point
from anabranch.runtime.placement import PlacementReader

if TYPE_CHECKING:
    from anabranch.protocol.federation.agent import Agent
    from anabranch.protocol.federation.contract_log import ContractLog
    from anabranch.runtime.service import ServiceContext

_AGAIN_MS: Final = 2_000
"""A move that is not in the log by then is written again."""


class OwnStages:
    """Of one participant's pipeline. Not thread-safe."""

    def __init__(self, context: ServiceContext, participant: str) -> None:
        """Open the log of moves.

        Raises:
            Unavailable: there is none, or no answer.
        """
        pipeline = context.pipeline
        self._context = context
        self._pipeline = pipeline
        self._participant = participant
        self.names = [
            stage.name
            for stage in pipeline.stages.values()
            if stage.participant == participant and not pipeline.reads_elsewhere(stage.name)
        ]
        self._logs = {
            task_of(pipeline.name, stage): StageLogs(
                context.log, context.clock, pipeline, stage, hears=True
            )
            for stage in self.names
        }
        self._at = TopicPartition(pipeline.topic_names.placement(), 0)
        self._placement = PlacementReader(context.log, self._at.topic, pipeline.places())
        self._placement.read_to_end()
        self._homes = {stage: pipeline.places().node_of(f"{stage}.0") for stage in self.names}
        self._moved_ms: dict[str, int] = {}
        self._fled: dict[str, tuple[Why, int]] = {}
        """Movements whose stage was taken home because its seller had failed: how, and when."""

    def workloads(self) -> dict[str, StageLogs]:
        """By task."""
        return self._logs

    def for_partners(self) -> dict[str, list[str]]:
        """The tasks that each partner may run."""
        federation = self._pipeline.federation
        partners = {} if federation is None else federation.partners
        return {
            partner: [task_of(self._pipeline.name, stage) for stage in stages]
            for partner, stages in partners.items()
        }

    def poll(self) -> None:
        """Take what is there, without waiting.

        Raises:
            Unavailable: a topic is not there yet, or there is no answer.
        """
        self._placement.poll()
        places = self._placement.places
        for stage in self.names:
            node = places.node_of(f"{stage}.0")
            if node and not places.is_partners(node):
                self._homes[stage] = node  # an operator may move it between nodes of one's own
        for logs in self._logs.values():
            logs.poll()

    def settle(
        self, agent: Agent, contracts: Mapping[str, ContractLog], now_ms: int
    ) -> list[Command]:
        """Set right where each stage is to run; the statements that the ledgers need."""
        commands: list[Command] = []
        running = set()
        for stage in self.names:
            task = task_of(self._pipeline.name, stage)
            holding, logs = agent.holdings.tasks.get(task), self._logs[task]
            if holding is None:
                continue  # it moves under a movement contract (``agent.oracle``)
            home = self._homes[stage]
            partner = ""
            why = None
            if holding.went is not None:
                term = holding.went
                contract = contracts[term.contract_id]
                assert contract.booked is not None, "it moved under it"  # noqa: S101
                partner = node_of(contract.booked.contract.seller)
                running.add(term.movement_id)
                why = self._failure(holding, logs, contract, partner, now_ms)
                if why is not None:
                    if logs.runs_on != partner and self._may_end(holding, why, contract, now_ms):
                        commands += agent.failed(term.movement_id, why, now_ms)
                elif is_ready(holding.place, logs.runs_on, home, partner):
                    commands += agent.ready(term.movement_id, now_ms)
            wanted = wanted_node(holding.place, home, partner, has_failed=why is not None)
            self._place(stage, wanted)
        self._fled = {name: found for name, found in self._fled.items() if name in running}
        return commands

    def _failure(
        self, holding: Holding, logs: StageLogs, contract: ContractLog, partner: str, now_ms: int
    ) -> Why | None:
        """Why it was taken home, or is to be. Who has taken it home does not bring it back:
        whoever is heard then is a node of its own.
        """
        assert holding.went is not None, "the caller looked"  # noqa: S101
        name, ledger = holding.went.movement_id, contract.ledger
        movement = None if ledger is None else ledger.movements.find(name)
        if holding.place is Place.LEAVING or ledger is None or movement is None:
            self._fled.pop(name, None)
            return None
        if name not in self._fled and holding.place is Place.AWAY:
            is_there = logs.runs_on == partner
            why = failure(
                ledger,
                movement,
                is_heard=not (logs.is_silent() if is_there else ledger.is_silent(movement, now_ms)),
                waits_ms=logs.waits_ms() if is_there else 0,
            )
            if why is not None:
                self._fled[name] = why, now_ms
                self._context.logger.warning(
                    "seller_failed", movement=name, node=partner, why=why.value
                )
        return self._fled[name][0] if name in self._fled else None

    def _may_end(self, holding: Holding, why: Why, contract: ContractLog, now_ms: int) -> bool:
        """Whether the ledger has proof of the failure. It is waited for as long as a movement may
        take: what proves it may be measured only once the stage is home. Then the end is free, if
        the stage has stayed long enough.
        """
        assert holding.went is not None, "the caller looked"  # noqa: S101
        assert contract.ledger is not None, "it moved under it"  # noqa: S101
        ledger, (_, fled_ms) = contract.ledger, self._fled[holding.went.movement_id]
        movement = ledger.movements[holding.went.movement_id]
        deadline_ms = fled_ms + ledger.movements.contract(movement.version).moving.deadline_ms
        return now_ms >= max(holding.hold_until_ms, deadline_ms) or any(
            may_end(ledger, movement, why, at_ms) for at_ms in (contract.now_ms, now_ms)
        )

    def settle_at(self, stage: str, partner: str) -> bool:
        """Set right where a stage runs that is not traded: on the node of this participant, or at
        home if that is none; whether it runs there.
        """
        node = node_of(partner) if partner else self._homes[stage]
        self._place(stage, node)
        return self._logs[task_of(self._pipeline.name, stage)].runs_on == node

    def _place(self, stage: str, node: str) -> None:
        """Write a move, unless the place is that, or one was written a moment ago."""
        label, places = f"{stage}.0", self._placement.places
        now_ms = self._context.clock.monotonic_ms()
        if not places.node_of(label) or places.node_of(label) == node:
            return  # what an operator has removed is the operator's
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
        """Idempotent."""
        for logs in self._logs.values():
            logs.close()
        self._placement.close()
