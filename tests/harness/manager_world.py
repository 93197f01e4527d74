"""A stage of two replicas with an output on a log in memory, and managers that look after it."""

from __future__ import annotations

from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.consistency_manager.service import ConsistencyManager, build
from anabranch.pipeline.model import Pipeline
from anabranch.ports import Clock, Entropy, EventLog, Index
from anabranch.protocol.control.records import Heartbeat
from anabranch.streams.heartbeats import HeartbeatSender
from harness import outputs
from harness.outputs import Replica, create_topics


def started_manager(
    log: EventLog, of: Pipeline, clock: Clock, entropy: Entropy, index: Index | None = None
) -> ConsistencyManager:
    made = outputs.context(log, of, clock, entropy, "consistency_manager", of.name, index)
    manager = build(made.settings, made)
    manager.start()
    return manager


class ManagerWorld:
    """The stage is ``totals`` of the pipeline ``p``, its output ``out``."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.log = LocalEventLog(self.clock)
        self.pipeline = outputs.pipeline("p", replicas=2)
        create_topics(self.log, self.pipeline)
        self.replicas = [
            Replica(self.log, self.pipeline, self.clock, SeededEntropy(n), str(n)) for n in (0, 1)
        ]
        self._sender = HeartbeatSender(self.log, "p.control.delivery.out", self.clock)
        self.started = 0

    def manager(self, pipeline: Pipeline | None = None) -> ConsistencyManager:
        """Another one, started; ``pipeline``: the file that it has, if not the same."""
        self.started += 1
        entropy = SeededEntropy(10 + self.started)
        return started_manager(self.log, pipeline or self.pipeline, self.clock, entropy)

    def passed(self, bucket: int, delivered: int) -> None:
        """Delivery says that it holds everything up to ``bucket`` for good, and has delivered
        up to ``delivered``.
        """
        self._sender.send(
            Heartbeat("delivery", "out", "0", -1, "running", delivered, 0, checkpoint_bucket=bucket)
        )
