"""A node that runs one replica of a stage, or has none: what it does about moves, as
``processing.node`` and ``processing.hosting`` do.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, Protocol

from anabranch.operating.move import Moving
from anabranch.pipeline.model import Pipeline
from anabranch.processing.node import PLACEMENT_LOOK_MS
from anabranch.protocol.control.placement import AfterEnd, after_end, goes_on
from anabranch.protocol.errors import AnabranchError, ConfigurationError, Fenced, Outvoted
from anabranch.runtime.placement import PlacementReader, runs_on
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

    label: str
    """The replica that it may run."""

    def begins(self, node: str, epoch: int) -> None:
        """The replica has become the primary on the node."""

    def ends(self, node: str, epoch: int, error: Exception | None) -> None:
        """The node lets a replica go that had begun; ``error``: of what it ended, None: by
        the node's own will.
        """


class SimulatedNode:
    """One process of a node. See ``runtime.service.Service``."""

    def __init__(
        self,
        context: ServiceContext,
        port: Port,
        node: str,
        watch: Watch,
        rng: random.Random,
        make: Callable[[], SimulatedReplica],
        excuse: Callable[[Exception], None],
    ) -> None:
        """``make``: a new replica; ``excuse``: told what one died of that is started again."""
        self.status = ServiceStatus()
        self._context = context
        self._port = port
        self._node = node
        self._watch = watch
        self._rng = rng
        self._label = watch.label
        self._make = make
        self._excuse = excuse
        self._placement: PlacementReader | None = None
        self._next_ms = 0
        self._is_kept = False
        """It runs here, and its place is elsewhere."""
        self.replica: SimulatedReplica | None = None

    def start(self) -> None:
        """Read all moves."""
        pipeline = self._context.pipeline
        self._placement = PlacementReader(
            self._context.log, pipeline.topic_names.placement(), pipeline.places()
        )
        self._placement.read_to_end()
        self._is_kept = (
            self._label in self._placement.places.moved_away(self._node) and self._goes_on()
        )

    def step(self) -> None:
        """One round: start what has come, look after what is here."""
        self._look()
        self._is_kept = self._is_kept and not self._is_here()
        if self.replica is None:
            if self._is_here() or self._is_kept:
                self._begin()
            else:
                self._context.clock.sleep_ms(_ROUND_MS)
            return
        if not self._is_here() and not self._is_kept:
            self._is_kept = self._goes_on()
            if not self._is_kept:
                self._let_go(None)
                return
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
        return (
            self._placement is not None
            and self._placement.places.node_of(self._label) == self._node
        )

    def _has_left(self) -> bool:
        """Asked by a replica that stands by."""
        self._look()
        return not self._is_here()

    def _runs_on(self) -> str:
        stage, _, replica = self._label.partition(".")
        return runs_on(self._context.log, self._context.pipeline, stage, replica)

    def _goes_on(self) -> bool:
        return goes_on(runs_here=self._runs_on() == self._node, is_passive=False, is_removed=False)

    def _begin(self) -> None:
        assert self._placement is not None, "started"
        self.replica = self._make()
        self._port.struck(
            "its replica has just begun"
        )  # a log may be trimmed before it has read its first record
        try:
            warm_ms, has_place = self._rng.randrange(_WARM_MS), self._is_here()
            was_moved = self._placement.places.was_moved(self._label)
            if was_moved and not self.replica.stand_by(
                warm_ms, has_place=has_place, leaves=self._has_left
            ):
                self._let_go(None)
                return
            self.replica.start()
            self._watch.begins(self._node, self.replica.epoch)
        except AnabranchError as error:
            self._over(error)

    def _over(self, error: AnabranchError) -> None:
        assert self._placement is not None, "started"
        found = ""
        try:
            self._placement.read_to_end()
            found = self._runs_on()
        except AnabranchError:
            self._port.network.history.reached("logs not read at an end")
        is_fenced = isinstance(error, Fenced) and not isinstance(error, Outvoted)
        match after_end(
            has_place=self._is_here(), is_fenced=is_fenced, runs_on=found, node=self._node
        ):
            case AfterEnd.END_NODE:
                raise error
            case AfterEnd.GONE:
                self._is_kept = False
                self._let_go(error)
            case AfterEnd.AGAIN:
                self._excuse(error)
                self._let_go(error)
                self._context.clock.sleep_ms(_AGAIN_MS)
                self._begin()

    def _let_go(self, error: Exception | None) -> None:
        replica, self.replica = self.replica, None
        self._port.network.history.reached("replica left its node")
        if replica is not None and replica.epoch >= 0:
            self._watch.ends(self._node, replica.epoch, error)
        self._port.network.scheduler.end_threads(self._port.process)


def move(network: Network, port: Port, pipeline: Pipeline, label: str, node: str) -> None:
    """Start an operator who moves a replica, and gives the command again where it is not
    known whether the move is written.
    """
    command = Moving(SimulatedLog(port), pipeline, label, node, SimulatedClock(port, BASE_MS))

    def act() -> None:
        for _ in range(_TRIES):
            try:
                command.do()
            except ConfigurationError as error:
                network.history.reached(
                    "move rejected: "
                    + ("under way" if "on its way" in str(error) else "it is there")
                )
                return
            except AnabranchError:
                network.history.reached("move given again")
                command_clock.sleep_ms(_AGAIN_MS)
            else:
                network.history.reached("move written")
                return

    command_clock = SimulatedClock(port, BASE_MS)
    network.scheduler.spawn(port.process, act, 0)
