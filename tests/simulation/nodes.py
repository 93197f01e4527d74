"""A node that runs one replica of a stage, and of its halves, or has none: the real one
(``processing.node``), and notes of what it does about moves, for the checkers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, Protocol

from pydantic import PrivateAttr
from typing_extensions import override

from anabranch.operating.move import MoveCommand
from anabranch.pipeline.model import Pipeline
from anabranch.ports import StartingEngine
from anabranch.process.frame import ServiceContext
from anabranch.processing.hosting import HostedReplica
from anabranch.processing.node import Machinery, Node
from anabranch.protocol.control.placement import AfterEnd, Places
from anabranch.protocol.errors import AnabranchError, ConfigurationError
from simulation.engine import SimulatedEngine
from simulation.network import Network, Port, SimulatedLog
from simulation.side_ports import SimulatedClock
from simulation.stage_replica import NodeDisks, SimulatedReplica
from simulation.workload import BASE_MS

_AGAIN_MS: Final = 500
_TRIES: Final = 30


class Watch(Protocol):
    """Listener for what a node does."""

    label: str
    """The replica that it may run, and that is judged."""
    labels: tuple[str, ...]
    """All replicas that it may run: besides those of the same stage and of its halves."""

    def looks(self, node: str) -> None:
        """Note that a process of the node is about to read the replica's log, to begin there."""

    def begins(self, node: str, epoch: int, *, has_place: bool) -> None:
        """Note that the replica is the primary on the node. ``has_place``: whether this was its
        place, as far as the node knew.
        """

    def ends(self, node: str, epoch: int, error: Exception | None) -> None:
        """Note that the node lets go of a replica that had begun. ``error``: what ended it, None:
        by the node's own decision.
        """

    def stalled(self, node: str, reason: str) -> None:
        """Note that the node is about to withdraw the move of the replica."""

    def rehearses(self, node: str, *, beside: bool, lacking: bool) -> None:
        """Note, in each round of the node, whether it rehearses stages ``beside`` a replica, or
        rehearses none (``lacking``) although it is idle and could.
        """


class FewPlaces(Places):
    """Places of which a node looks after few: other replicas are processes of their own."""

    def __init__(self, of: Pipeline, labels: tuple[str, ...]) -> None:
        super().__init__(of.placed_stages(), of.named_nodes, of.partner_nodes)
        self._labels = labels

    def of_node(self, node: str) -> list[str]:
        """See ``Places``."""
        return [label for label in super().of_node(node) if label in self._labels]

    def moved_away(self, node: str) -> list[str]:
        """See ``Places``."""
        return [label for label in super().moved_away(node) if label in self._labels]


class FewPlacesPipeline(Pipeline):
    """Pipeline as a node sees it that looks after few replicas."""

    _labels: tuple[str, ...] = PrivateAttr(())

    def places(self) -> FewPlaces:
        """See ``Pipeline``."""
        return FewPlaces(self, self._labels)


class SimulatedNode(Node):
    """One process of a node. See ``process.frame.Service``."""

    def __init__(
        self,
        context: ServiceContext,
        port: Port,
        node: str,
        watch: Watch,
        engine: SimulatedEngine,
        disks: NodeDisks,
        excuse: Callable[[Exception], None],
    ) -> None:
        """``excuse``: told what a replica died of that is started again."""
        pipeline = FewPlacesPipeline.model_construct(**dict(context.pipeline))
        pipeline._labels = watch.labels
        super().__init__(
            context.settings.model_copy(update={"name": node}),
            replace(context, pipeline=pipeline),
            Machinery(lambda *_: StartingEngine(lambda: engine), lambda *_: disks),
        )
        self._port = port
        self._watch = watch
        self._excuse = excuse
        self._judged_engine, self._node_disks = engine, disks
        self._is_ending = False
        self._begun: dict[str, HostedSimulatedReplica] = {}
        """Newest process of each replica that it has begun, whether it still runs or not."""

    @property
    def replica(self) -> SimulatedReplica | None:
        """The replica that is judged, if it runs here; None: it does not."""
        return self.running.get(self._watch.label)

    @property
    def running(self) -> dict[str, SimulatedReplica]:
        """Replicas that run here, by label."""
        return {
            label: self._begun[label]
            for label, hosted in self._hosted.items()
            if hosted._thread is not None and label in self._begun
        }

    def ended_by(self, error: Exception) -> SimulatedReplica | None:
        """Return the replica that ``error`` ended; of others that which is judged, if it has begun
        here.
        """
        found = (each for each in self._begun.values() if each.died_of is error)
        return next(found, self._begun.get(self._watch.label))

    def stop(self) -> None:
        """See ``Node``."""
        self._is_ending = True
        super().stop()

    @override
    def _keep_warm(self) -> None:
        super()._keep_warm()
        rehearses = self._idle is not None
        self._watch.rehearses(
            self._node,
            beside=rehearses and bool(self._hosted),
            lacking=not rehearses and not self._hosted and bool(self._rehearsed),
        )

    @override
    def _build_in_engine(
        self, context: ServiceContext, *, may_run_elsewhere: bool, has_place: bool
    ) -> SimulatedReplica:
        # a log may be trimmed before it has read its first record
        self._port.struck("its replica has just begun")
        label = context.settings.name
        made = self._begun[label] = HostedSimulatedReplica(
            context,
            self._judged_engine,
            self._node_disks,
            self._node,
            port=self._port,
            may_run_elsewhere=may_run_elsewhere,
            has_place=has_place,
        )
        if label == self._watch.label:
            made.looks = lambda: self._watch.looks(self._node)
            made.begun = lambda epoch: self._watch.begins(self._node, epoch, has_place=has_place)
            made.let_go = self._let_go
        return made

    def _let_go(self, replica: SimulatedReplica) -> None:
        self._port.alive()  # a killed process lets nothing go
        if self._is_ending:
            return
        self._port.network.history.reached("replica left its node")
        if replica.epoch >= 0:
            self._watch.ends(self._node, replica.epoch, replica.died_of)

    @override
    def _withdraw(self, label: str, reason: str) -> None:
        if label == self._watch.label:
            self._watch.stalled(self._node, reason)
        super()._withdraw(label, reason)

    @override
    def _leave(self, label: str, hosted: HostedReplica, places: Places) -> None:
        if label in self._begun and self._begun[label].stands_by:
            self._port.network.history.reached("move taken back")
        super()._leave(label, hosted, places)

    @override
    def _after_end(self, label: str, is_fenced: bool) -> AfterEnd:
        answer = super()._after_end(label, is_fenced)
        made = self._begun.get(label)
        if answer is AfterEnd.AGAIN and made is not None and made.died_of is not None:
            self._excuse(made.died_of)
        return answer


class HostedSimulatedReplica(SimulatedReplica):
    """A replica that tells its node when it has stopped."""

    let_go: Callable[[SimulatedReplica], None] = staticmethod(lambda _: None)

    def stop(self) -> None:
        """See ``StageReplica``."""
        is_first = not self._ended
        super().stop()
        if is_first:
            self.let_go(self)


def move(network: Network, port: Port, pipeline: Pipeline, label: str, node: str) -> None:
    """Start an operator who moves a replica, and gives the command again where it is not
    known whether the move is written.
    """
    command = MoveCommand(SimulatedLog(port), pipeline, label, node, SimulatedClock(port, BASE_MS))

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
