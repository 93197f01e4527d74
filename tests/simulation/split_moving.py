"""A shard that is split in a run: who wants it, the nodes that run it and its halves, and when the
split has come to its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override

from anabranch.operating.split import SplitCommand
from anabranch.protocol.errors import AnabranchError, ConfigurationError
from anabranch.protocol.limits import BUCKET_MAX
from simulation import halves, split_log
from simulation.faults import SPLIT, Fault
from simulation.moving import Moving
from simulation.network import Link, Port, SimulatedLog
from simulation.nodes import SimulatedNode
from simulation.scheduler import Process
from simulation.side_ports import SimulatedClock
from simulation.workload import BASE_MS

if TYPE_CHECKING:
    from simulation.stage_replica import SimulatedReplica

_AGAIN_MS: Final = 500
_TRIES: Final = 30


class SplitMoving(Moving):
    """See ``nodes.Watch``. The shard may move, too, where the manager decides."""

    def __init__(self, *known: Any) -> None:
        """See ``Moving``."""
        super().__init__(*known)
        stage = self._options.stages[0]
        self._shard = stage.name
        self._halves = [half.name for half in halves.of(stage)]
        numbers = range(stage.replicas)
        self.labels = tuple(f"{s}.{n}" for s in (self._shard, *self._halves) for n in numbers)
        places, runs = self._pipeline.places(), known[3]
        for number in numbers[1:]:
            label = f"{self._shard}.{number}"
            self._keys[places.node_of(label)] = f"processing/{label}"
        self._runs = {node: runs[key] for node, key in self._keys.items()}

    @override
    def move(self, fault: Fault) -> None:
        """Want the split as an operator, in some commands with a half on the node of the pool; in
        some the record is lost, or its outcome unknown. Or move the shard itself.
        """
        if fault.kind != SPLIT:
            super().move(fault)
            return
        self._moves += 1
        network = self._network
        port = Port(
            network,
            Process(f"operator/{self._shard}", self._moves),
            Link(self._options.latency_max_ms),
        )
        port.link.planned = [[], [], [("lost", 0)], [("applied", 0)]][fault.value // 2 % 4]
        clock = SimulatedClock(port, BASE_MS)
        node = self.new if fault.value % 2 else ""
        command = SplitCommand(SimulatedLog(port), self._pipeline, self._shard, node, clock)

        def act() -> None:
            for _ in range(_TRIES):
                try:
                    command.do()
                except ConfigurationError:
                    network.history.reached("split rejected")
                    return
                except AnabranchError:
                    network.history.reached("split given again")
                    clock.sleep_ms(_AGAIN_MS)
                else:
                    network.history.reached("split given")
                    return

        network.scheduler.spawn(port.process, act, 0)

    @override
    def begins(self, node: str, epoch: int, *, has_place: bool) -> None:
        self._add(node, "begins", epoch)

    @override
    def ends(self, node: str, epoch: int, error: Exception | None) -> None:
        self._add(node, "lets go", epoch, type(error).__name__)

    @override
    def stalled(self, node: str, reason: str) -> None:
        self._add(node, "withdraws", reason)

    @override
    def is_lost(self, stage: str, replica: str) -> bool:
        """Whether nobody needs the results of a replica to come: it is of a half that does not
        run, or whose node never comes back, or of the shard after its end.
        """
        if stage == self._shard:
            return self._has_ended()
        is_half = stage in self._halves
        return is_half and (not self._halves_run() or self._is_on_dead_node(f"{stage}.{replica}"))

    @override
    def is_over(self) -> bool:
        """Return whether no attempt is open, a confirmed one has ended the shard, and each half
        runs that should, on one node, without a branch.
        """
        attempts = self._attempts()
        if attempts and attempts[-1].answer is None:
            return False
        if self._halves_run() and not self._has_ended():
            return False
        running = [
            (label, replica)
            for runs in self._runs.values()
            if not runs.is_dead and isinstance(runs.service, SimulatedNode)
            for label, replica in runs.service.running.items()
        ]
        return all(
            self._is_settled(label, [each for of, each in running if of == label])
            or self._is_on_dead_node(label)
            for label in self.labels
        )

    def _is_on_dead_node(self, label: str) -> bool:
        """Return whether the node of a replica never comes back: it waits for an operator."""
        return self._runs[self._places().node_of(label)].is_dead

    def _is_settled(self, label: str, running: list[SimulatedReplica]) -> bool:
        stage, _, _ = label.rpartition(".")
        if stage in self._halves and not self._halves_run():
            return not running
        if stage == self._shard and self._has_ended():
            return all(each.split.is_over for each in running)
        return len(running) == 1 and (running[0].is_stable or running[0].stands_by)

    @override
    def check(self) -> None:
        """Do nothing: the split is judged by what is in the logs (``split_checks``)."""

    def _halves_run(self) -> bool:
        attempts = self._attempts()
        return bool(attempts) and (attempts[-1].answer is None or attempts[-1].is_confirmed)

    def _has_ended(self) -> bool:
        return any(
            stream == self._shard and closed == BUCKET_MAX
            for (stream, _), closed in self._closed.items()
        )

    def _attempts(self) -> list[split_log.Attempt]:
        topic = self._pipeline.topic_names.placement()
        return split_log.attempts(split_log.steps(self._network.log, topic, self._shard))
