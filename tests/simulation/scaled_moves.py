"""Judgement of the moves that the manager decides (``scaled``), and a count of what was seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from typing_extensions import override

from anabranch.codec import control_records
from anabranch.ports import TopicPartition
from anabranch.protocol.control.records import Move, NodeReport
from anabranch.protocol.stage import transfer
from checkers import scaling as checker
from simulation.committed import is_committed
from simulation.moving import Moving
from simulation.scaled import ABOVE_PERMILLE, FOR_MS, LATE_MS, NODE_LOST_MS, REST_MS

if TYPE_CHECKING:
    from collections.abc import Iterator

_SETTLED_MS: Final = 1_500
"""Time from the begin of a replica until its first batches have run, in ms."""


class ScaledMoving(Moving):
    """See ``nodes.Watch``; nobody commands the moves."""

    @override
    def is_lost(self, stage: str, replica: str) -> bool:
        """Whether both nodes are gone for good: else the scaler moves the replica to the other."""
        return (stage, replica) == self._writer and all(
            runs.is_dead for runs in self._runs.values()
        )

    @override
    def is_over(self) -> bool:
        """Return whether the replica runs alone where the checker's own reading has its place, and
        has done so for a while: it forgets what it has read with its first batches.
        """
        known = self._known()
        began_ms = max((at_ms for at_ms, _ in known.begun), default=0)
        cold_ms = max(stage.cold_ms for stage in self._options.stages)
        is_settled = self._network.scheduler.now_ms - began_ms >= _SETTLED_MS + cold_ms
        return self.is_lost(*self._writer) or (
            is_settled and self._running() == [checker.place(known)]
        )

    @override
    def stalled(self, node: str, reason: str) -> None:
        self._add(node, "withdraws", reason)
        self._network.history.reached("move withdrawn")
        since_ms = self._network.scheduler.now_ms - self._known().moves[-1].at_ms
        if since_ms < transfer.MOVE_STALLED_MS:
            self._unexpected.append(
                f"scaling: {node} withdraws the move of {self.label} after {since_ms} ms: {reason}"
            )

    @override
    def check(self) -> None:
        known = self._known()
        for cause in {move.cause for move in known.moves} - {""}:
            self._network.history.reached(f"scaled for {cause}")
        self._unexpected += [f"scaling: {line}" for line in checker.check(known)]

    def _known(self) -> checker.Scaled:
        names = self._pipeline.topic_names
        moves = [
            checker.Moved(at_ms, move.node, move.only_from, move.cause, bool(move.withdrawn))
            for at_ms, move in self._records(names.placement())
            if isinstance(move, Move) and (move.stage, move.replica) == self._writer
        ]
        reports = {
            node: [
                checker.Reported(
                    at_ms,
                    next((x.busy_permille for x in report.replicas if x.leads), None),
                    next((x.behind for x in report.replicas if x.leads), 0)
                    * self._options.bucket_ms,
                    any(x.is_cold for x in report.replicas),
                )
                for at_ms, report in self._records(names.node_reports(node))
                if isinstance(report, NodeReport)
            ]
            for node in (self.old, self.new)
        }
        begun = [
            (event.at_ms, event.who)
            for event in self._network.history.events
            if event.what == "begins" and event.who in (self.old, self.new)
        ]
        return checker.Scaled(
            self.old,
            [self.new],
            moves,
            reports,
            begun,
            ABOVE_PERMILLE,
            FOR_MS,
            REST_MS,
            NODE_LOST_MS,
            LATE_MS,
        )

    def _records(self, topic: str) -> Iterator[tuple[int, object]]:
        """Yield (time, entry) of what stands in a topic."""
        partition = self._network.log.partition(TopicPartition(topic, 0))
        times = {
            event.facts[2]: event.at_ms
            for event in self._network.history.events
            if event.what == "append" and event.facts[0] == topic
        }
        for offset in range(partition.start, partition.end):
            record = partition.at(offset)
            if is_committed(record):
                yield times.get(offset, 0), control_records.decode(record.value)
