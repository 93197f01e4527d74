"""A node that runs one replica of a stage, or has none: what it does about moves, as ``processing.node`` and ``processing.hosting`` do."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, Protocol

from anabranch.local.move import Moving
from anabranch.pipeline.model import Pipeline
from anabranch.protocol.control import Move
from anabranch.protocol.errors import AnabranchError, ConfigurationError, Fenced, Outvoted, Unavailable
from anabranch.protocol.limits import PLACEMENT_LOOK_MS
from anabranch.protocol.placement import AfterEnd, after_end, goes_on
from anabranch.runtime.placement import PlacementReader
from anabranch.runtime.service import ServiceContext, ServiceStatus
from simulation.network import Network, Port, SimulatedLog
from simulation.side_ports import SimulatedClock
from simulation.stage_replica import SimulatedReplica
from simulation.workload import BASE_MS

_ROUND_MS: Final = 100
_AGAIN_MS: Final = 500
_WARM_MS: Final = 1_000
_TRIES: Final = 30


class Watch(Protocol):
    """Who is told what a node does."""

    def begins(self, node: str, epoch: int) -> None:
        """The replica has taken over on the node."""

    def ends(self, node: str, epoch: int, error: Exception | None) -> None:
        """The node lets a replica go that had begun; ``error``: of what it ended, None: by the node's own will."""


class SimulatedNode:
    """One process of a node. See ``runtime.service.Service``."""

    def __init__(
        self,
        context: ServiceContext,
        port: Port,
        node: str,
        label: str,
        make: Callable[[], SimulatedReplica],
        watch: Watch,
        rng: random.Random,
    ) -> None:
        self.status = ServiceStatus()
        self._context, self._port, self._node, self._label, self._make, self._watch, self._rng = (
            context,
            port,
            node,
            label,
            make,
            watch,
            rng,
        )
        self._placement: PlacementReader | None = None
        self._next_ms = 0
        self.replica: SimulatedReplica | None = None

    def start(self) -> None:
        """Read all moves."""
        self._placement = PlacementReader(
            self._context.log, self._context.pipeline.topic_names.placement(), self._context.pipeline.places()
        )
        self._placement.read_to_end()

    def step(self) -> None:
        """One round: start what has come, look after what is here."""
        self._look()
        if self.replica is None:
            if self._is_here():
                self._begin()
            else:
                self._context.clock.sleep_ms(_ROUND_MS)
        elif not self._is_here() and not goes_on(has_begun=self.replica.epoch >= 0, is_passive=False):
            self._let_go(None)
        else:
            try:
                self.replica.step()
            except AnabranchError as error:
                self._over(error)

    def stop(self) -> None:
        """Its threads end with the process."""

    def _look(self) -> None:
        now_ms = self._context.clock.monotonic_ms()
        if now_ms >= self._next_ms and self._placement is not None:
            self._next_ms = now_ms + PLACEMENT_LOOK_MS
            self._placement.poll()

    def _is_here(self) -> bool:
        return self._placement is not None and self._placement.places.node_of(self._label) == self._node

    def _has_left(self) -> bool:
        """Asked by a replica that stands by."""
        self._look()
        return not self._is_here()

    def _begin(self) -> None:
        assert self._placement is not None, "started"
        move: Move | None = self._placement.places.last_move(self._label)
        self.replica = self._make()
        self._port.struck("its replica has just begun")  # a log may be trimmed before it has read its first record
        try:
            if move is not None and not self.replica.stand_by(move.epoch, self._rng.randrange(_WARM_MS), self._has_left):
                self._let_go(None)
                return
            self.replica.start()
            self._watch.begins(self._node, self.replica.epoch)
        except AnabranchError as error:
            self._over(error)

    def _over(self, error: AnabranchError) -> None:
        assert self._placement is not None, "started"
        try:
            self._placement.read_to_end()
        except Unavailable:
            self._port.network.history.reached("moves not read at an end")
        is_fenced = isinstance(error, Fenced) and not isinstance(error, Outvoted)
        match after_end(has_place=self._is_here(), is_fenced=is_fenced):
            case AfterEnd.GONE:
                self._let_go(error)
            case AfterEnd.AGAIN if not self._is_here():  # as a hosted replica is started again: without asking where its place is
                self._let_go(error)
                self._context.clock.sleep_ms(_AGAIN_MS)
                self._begin()
            case _:
                raise error

    def _let_go(self, error: Exception | None) -> None:
        replica, self.replica = self.replica, None
        self._port.network.history.reached("replica left its node")
        if replica is not None and replica.epoch >= 0:
            self._watch.ends(self._node, replica.epoch, error)
        self._port.network.scheduler.end_threads(self._port.process)


def move(network: Network, port: Port, pipeline: Pipeline, label: str, node: str) -> None:
    """Start an operator who moves a replica, and gives the command again where it is not known whether the move is written."""
    command = Moving(SimulatedLog(port), pipeline, label, node, SimulatedClock(port, BASE_MS))

    def act() -> None:
        for _ in range(_TRIES):
            try:
                command.do()
            except ConfigurationError as error:
                network.history.reached("move rejected: " + ("under way" if "on its way" in str(error) else "it is there"))
                return
            except AnabranchError:
                network.history.reached("move given again")
                command_clock.sleep_ms(_AGAIN_MS)
            else:
                network.history.reached("move written")
                return

    command_clock = SimulatedClock(port, BASE_MS)
    network.scheduler.spawn(port.process, act, 0)
