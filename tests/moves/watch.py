"""Follows what a movement leaves in the logs: the log of moves, the stage's boundary log, the
contract's log.
"""

from __future__ import annotations

import contextlib
from typing import Final

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.federation.tables import read_book
from anabranch.pipeline.model import Pipeline
from anabranch.protocol.errors import Unavailable
from anabranch.protocol.federation.movements import Movement, MovementState
from anabranch.streams.boundary_reader import BoundaryReader
from anabranch.streams.placement import PlacementReader
from moves.deployment import CONTRACT
from moves.schedule import Moment

STAGE: Final = "speeds"
LABEL: Final = f"{STAGE}.0"
HOME, AWAY = "north.0", "south.0"


class Watch:
    """Watcher of one stage. Not thread-safe. While Kafka does not answer it keeps what it read."""

    def __init__(self, kafka: str, pipeline: Pipeline) -> None:
        """Read all that there is.

        Raises:
            Unavailable: no answer, or a topic is missing.
        """
        log, names = KafkaEventLog(kafka), pipeline.topic_names
        assert pipeline.federation is not None, "it is in one"
        self._placement = PlacementReader(log, names.placement(), pipeline.places())
        self._placement.read_to_end()
        self._boundaries = BoundaryReader(log, names.boundaries(STAGE), ["0"])
        self._book = read_book(log, pipeline.federation)

    def poll(self) -> None:
        """Take what is new."""
        for poll in (self._placement.poll, self._boundaries.poll, self._book.poll):
            with contextlib.suppress(Unavailable):
                poll(0)

    @property
    def ordered(self) -> str:
        """The node where the stage is to run, by the log of moves."""
        return self._placement.places.node_of(LABEL)

    @property
    def runs_on(self) -> str:
        """The node that runs it, by the boundary log."""
        return self._boundaries.log_state.node("0")

    @property
    def movements(self) -> list[Movement]:
        """Movements in the ledger, in its order."""
        ledger = self._book.contracts[CONTRACT].ledger
        return [] if ledger is None else list(ledger.movements)

    @property
    def suspended_by(self) -> tuple[str, ...]:
        """The parties under whose suspension nothing moves."""
        booked = self._book.contracts[CONTRACT].booked
        return () if booked is None else booked.suspended_by

    def is_sold(self) -> bool:
        """Whether a movement runs."""
        return any(each.state is MovementState.RUNNING for each in self.movements)

    def is_at(self, node: str) -> bool:
        """Whether all three logs agree that the stage is there."""
        return {self.ordered, self.runs_on} == {node} and self.is_sold() == (node == AWAY)

    def has_come(self, moment: Moment, target: str) -> bool:
        """Whether a movement to ``target`` has come so far."""
        match moment:
            case Moment.LOAD:
                return True
            case Moment.ORDERED:
                return self.ordered == target
            case Moment.BEGUN:
                return self.runs_on == target
            case Moment.RECORDED:
                return self.is_sold() == (target == AWAY)

    def close(self) -> None:
        """Idempotent."""
        self._placement.close()
        self._boundaries.close()
        self._book.close()
