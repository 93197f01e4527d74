"""``anabranch split``: record that a shard of a stage is to be split into its halves, and wait
until they have taken over (``protocol.stage.splitting``).
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Final

from anabranch.operating.known_topic import check_topic
from anabranch.operating.move import MoveCommand
from anabranch.ports import Clock, EventLog, TopicPartition
from anabranch.protocol.control.records import SplitStep, Step
from anabranch.protocol.errors import AnabranchError, ConfigurationError
from anabranch.protocol.stage.splitting import Attempt, SplitPhase, halves_of, rejected
from anabranch.streams.placement import PlacementReader, append_decision

if TYPE_CHECKING:
    from anabranch.pipeline.model import Pipeline

_POLL_MS: Final = 100
"""Interval between reads of the log of moves while the command waits, in ms."""


class SplitCommand:
    """One split of one shard. Nothing is written before ``do``; after a crash within it the command
    may be given again.
    """

    def __init__(
        self, log: EventLog, pipeline: Pipeline, shard: str, node: str, clock: Clock
    ) -> None:
        """Prepare the split without contacting the broker.

        Args:
            log: The pipeline's cluster.
            pipeline: The pipeline of the shard.
            shard: ``STAGE`` or ``STAGE.SHARD``.
            node: Node that shall run replica 0 of the upper half; empty: that of its place.
            clock: Clock of the record and of the wait.
        """
        self._log, self._pipeline, self._shard = log, pipeline, shard
        self._node, self._clock = node, clock
        self._at = TopicPartition(pipeline.topic_names.placement(), 0)

    def do(self) -> None:
        """Append what is wanted to the log of moves.

        Raises:
            ConfigurationError: the shard cannot be split, its half cannot run on that node, or the
                pipeline has not run on this broker.
            Unavailable: the broker does not answer; the split may have been recorded.
        """
        check_topic(self._log, self._at.topic, self._pipeline.name)
        with closing(self._reader()) as reader:
            reader.read_to_end()
            parents = {name: stage.parent for name, stage in self._pipeline.stages.items()}
            if why := rejected(self._shard, parents, reader.splits):
                raise ConfigurationError(f"not split: {why}")
            is_wanted = reader.splits.of(self._shard).phase is SplitPhase.WANTED
            _, upper = halves_of(self._shard)
            is_there = self._node in ("", reader.places.node_of(f"{upper}.0"))
        if not is_there:
            # Before the split, so that the half begins there at once.
            MoveCommand(self._log, self._pipeline, f"{upper}.0", self._node, self._clock).do()
        if not is_wanted:
            wanted = SplitStep(self._shard, Step.WANTED, self._clock.now_ms())
            append_decision(self._log, self._at, wanted, "split")

    def is_done(self, wait_ms: int) -> bool:
        """Wait up to ``wait_ms`` for the answer of the shard; return whether the halves have taken
        over.

        Raises:
            AnabranchError: the shard has withdrawn the split.
        """
        deadline_ms = self._clock.monotonic_ms() + wait_ms
        with closing(self._reader()) as reader:
            while True:
                reader.read_to_end()
                attempt = reader.splits.of(self._shard)
                if attempt.phase is SplitPhase.CONFIRMED:
                    return True
                self._check(attempt)
                if self._clock.monotonic_ms() >= deadline_ms:
                    return False
                self._clock.sleep_ms(_POLL_MS)

    def _check(self, attempt: Attempt) -> None:
        """Raise AnabranchError if the attempt was withdrawn."""
        if attempt.phase is SplitPhase.WITHDRAWN:
            raise AnabranchError(
                f"the split of {self._shard} was withdrawn, and nothing has changed:"
                f" {attempt.reason}"
            )

    def _reader(self) -> PlacementReader:
        return PlacementReader(self._log, self._at.topic, self._pipeline.places())
