"""Move a replica to another node: write down its new place, and see that it begins there (``protocol.placement``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.codec import control_records
from anabranch.ports import Clock, EventLog, TopicPartition
from anabranch.protocol.control import Move
from anabranch.protocol.errors import ConfigurationError, OutcomeUnknown, Unavailable
from anabranch.runtime.boundary_reader import BoundaryReader
from anabranch.runtime.placement import PlacementReader

if TYPE_CHECKING:
    from anabranch.pipeline.model import Pipeline

_POLL_MS: Final = 100


class Moving:
    """One such command. Nothing is written before ``do``; after a crash within it the command may be given again."""

    def __init__(self, log: EventLog, pipeline: Pipeline, label: str, node: str, clock: Clock) -> None:
        """``label``: ``STAGE.REPLICA``. Nothing is contacted yet."""
        self._log, self._pipeline, self._label, self._node, self._clock = log, pipeline, label, node, clock
        self._at = TopicPartition(pipeline.topic_names.placement(), 0)
        self._epoch_before = -1
        self.is_done = False
        """There is nothing to wait for: it was taken back to where it still runs, or its stage is ``passive``, or nobody has ever run it."""

    def do(self) -> str:
        """Write the move down; the node that runs the replica until the other one has taken over.

        Raises:
            ConfigurationError: it cannot be moved there, or the move before is still under way.
            Unavailable: the broker does not answer, or a topic does not exist: whether the move was written is not known.
        """
        places = self._pipeline.places()
        reader = PlacementReader(self._log, self._at.topic, places)
        try:
            reader.read_to_end()
            self._check(places.rejected(self._label, self._node))
            self._epoch_before = self._epoch()
            left, back = places.node_of(self._label), places.came_from(self._label)
            is_under_way = places.is_under_way(self._label, self._epoch_before)
            if is_under_way and self._node != back:
                raise ConfigurationError(
                    f"{self._label} is on its way from node {back} to node {left}: wait until it runs there (anabranch status), or take it back: "
                    f"anabranch move {self._label} {back}"
                )
            self.is_done = is_under_way or self._epoch_before < 0
            self._append()
            reader.read_to_end()
            if places.node_of(self._label) != self._node:  # somebody moved it, or a peer, at the same time
                self._check(places.rejected(self._label, self._node))
            return left
        finally:
            reader.close()

    def _check(self, rejected: str) -> None:
        if rejected:
            raise ConfigurationError(f"not moved: {rejected}")

    def _append(self) -> None:
        stage, _, replica = self._label.rpartition(".")
        move = Move(stage, replica, self._node, self._epoch_before, self._clock.now_ms())
        writer = self._log.writer()
        try:
            writer.send(self._at, control_records.encode(move), control_records.key_of(move))
            writer.flush()
        except OutcomeUnknown as error:
            raise Unavailable(f"it is not known whether the move was written: {error}; give the command again") from error
        finally:
            writer.close()

    def has_begun(self, wait_ms: int) -> bool:
        """Whether the replica begins an epoch within ``wait_ms``: so its new node has taken over, or its old one has begun again meanwhile."""
        deadline_ms = self._clock.monotonic_ms() + wait_ms
        while self._epoch() <= self._epoch_before:
            if self._clock.monotonic_ms() >= deadline_ms:
                return False
            self._clock.sleep_ms(_POLL_MS)
        return True

    def _epoch(self) -> int:
        """The newest of the replica; -1: none, or its stage is passive: another process runs it, or stands by to."""
        stage, _, replica = self._label.rpartition(".")
        if self._pipeline.stages[stage].ha == "passive":
            return -1
        log, writers = self._pipeline.topic_names.boundaries(stage), self._pipeline.stream_writers(stage)
        reader = BoundaryReader(self._log, log, writers, bucket_ms=self._pipeline.bucket_ms)
        try:
            reader.read_to_end()
            epoch = reader.log_state.epoch(replica)
        finally:
            reader.close()
        return -1 if epoch is None else epoch
