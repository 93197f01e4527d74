"""Neighbours of a replica: its peers and the writers of its inputs, by the control topics."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from anabranch.protocol.control.failure_detector import FailureDetector
from anabranch.protocol.stage.scheduling import CorrectionGate
from anabranch.streams.fences import FenceWatch
from anabranch.streams.heartbeats import ReplicaControl

if TYPE_CHECKING:
    from anabranch.process.frame import ServiceContext
    from anabranch.processing.input_followers import InputFollowers
    from anabranch.processing.replica_identity import ReplicaIdentity
    from anabranch.protocol.control.records import ControlRecord


class Neighbours:
    """Knowledge of one replica about other processes. The replica's thread calls ``poll``; other
    threads ask ``control`` under the lock of the inputs.
    """

    def __init__(
        self,
        context: ServiceContext,
        own: ReplicaIdentity,
        inputs: InputFollowers,
        listener: Callable[[ControlRecord], None],
    ) -> None:
        """Open the control topics. ``listener`` is called with every record.

        Raises:
            Unavailable: a topic does not exist, or the broker does not answer.
        """
        pipeline, stage = context.pipeline, own.stage_name
        self._listener = listener
        detector = FailureDetector.of_replicas(
            {stream: pipeline.stream_writers(stream) for stream in (stage, *own.reads)}
        )
        self.gate = CorrectionGate(stage, own.replica, detector)
        """Gate that lets one replica of the stage correct at a time."""
        self.fences = FenceWatch(context.log, pipeline, stage, own.replica)
        """Watch for fences against this process."""
        self.control = ReplicaControl(
            inputs.bound.open_control(),
            context.clock,
            self.gate,
            detector,
            self._receive,
            inputs.changed,
        )
        """Answers about inputs and peers, for the replica's decisions."""

    def _receive(self, entry: ControlRecord) -> None:
        """Check a record of a control topic for a fence, then pass it on."""
        self.fences.receive(entry)
        self._listener(entry)

    def poll(self) -> None:
        """Read and apply new control records.

        Raises:
            Outvoted: one is a proven fence against this process.
        """
        self.control.poll()

    def close(self) -> None:
        """Close the control topics. Idempotent."""
        self.control.close()
