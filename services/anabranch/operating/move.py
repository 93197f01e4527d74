"""``anabranch move``: record the new node of a replica, and wait until the replica runs there
(``protocol.control.placement``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.operating.known_topic import check_topic
from anabranch.ports import Clock, EventLog, TopicPartition
from anabranch.protocol.control.records import Move
from anabranch.protocol.errors import AnabranchError, ConfigurationError
from anabranch.protocol.stage.splitting import SplitPhase, Splits, halves_of
from anabranch.streams.placement import PlacementReader, append_decision, runs_on

if TYPE_CHECKING:
    from anabranch.pipeline.model import Pipeline
    from anabranch.protocol.control.placement import Places

# Interval between checks of where the replica runs.
_POLL_MS: Final = 100


class MoveCommand:
    """One move of one replica. Nothing is written before ``do``; after a crash within it the
    command may be given again.
    """

    def __init__(
        self, log: EventLog, pipeline: Pipeline, label: str, node: str, clock: Clock
    ) -> None:
        """Prepare the move without contacting the broker.

        Args:
            log: The pipeline's cluster.
            pipeline: The pipeline of the replica.
            label: ``STAGE.REPLICA``.
            node: Node that shall run the replica; empty: the replica is removed.
            clock: Clock of the record and of the wait.
        """
        self._log = log
        self._pipeline = pipeline
        self._label = label
        self._node = node
        self._clock = clock
        self._at = TopicPartition(pipeline.topic_names.placement(), 0)
        self.runs_on = ""
        """Node that ran the replica before the move; empty: none."""

    def do(self) -> None:
        """Append the move to the placement log.

        Raises:
            ConfigurationError: the replica cannot move there, its previous move is still under way,
                or the pipeline has not run on this broker.
            Unavailable: the broker does not answer; the move may have been written.
        """
        check_topic(self._log, self._at.topic, self._pipeline.name)
        places = self._pipeline.places()
        reader = PlacementReader(self._log, self._at.topic, places)
        try:
            reader.read_to_end()
            self._check(
                places.rejected(self._label, self._node)
                or self._belongs_to_partner(places)
                or self._was_split(reader.splits)
            )
            self.runs_on = self._runs_on()
            if places.is_under_way(self._label, self.runs_on) and self._node not in (
                "",
                self.runs_on,
            ):
                raise ConfigurationError(
                    f"{self._label} is on its way from node {self.runs_on} to node"
                    f" {places.node_of(self._label)}: wait until it runs there (anabranch status),"
                    f" or take it back: anabranch move {self._label} {self.runs_on}"
                )
            self._append()
            # The log decides between moves that are given at the same time: only the order of its
            # records says whether this one still counts after the others.
            reader.read_to_end()
            if places.node_of(self._label) != self._node:
                self._check(places.rejected(self._label, self._node))
        finally:
            reader.close()

    def _belongs_to_partner(self, places: Places) -> str:
        """Return why the replica cannot move to a node of another participant; empty: it is none.

        A partner runs stages only under a contract, by which it is paid.
        """
        if not places.is_partners(self._node):
            return ""
        return (
            f"node {self._node} is {places.owner_of(self._node)}'s: the agent moves stages there,"
            " under a contract (anabranch market)"
        )

    def _was_split(self, splits: Splits) -> str:
        """Return why the replica of a shard that was split cannot move; empty: it was not. It would
        begin on no node any more.
        """
        stage, _, _ = self._label.rpartition(".")
        if not self._node or splits.of(stage).phase is not SplitPhase.CONFIRMED:
            return ""
        return f"{stage} was split: move replicas of its halves, {' and '.join(halves_of(stage))}"

    def _check(self, rejected: str) -> None:
        if rejected:
            raise ConfigurationError(f"not {'moved' if self._node else 'removed'}: {rejected}")

    def _append(self) -> None:
        stage, _, replica = self._label.rpartition(".")
        move = Move(stage, replica, self._node, self._clock.now_ms())
        append_decision(self._log, self._at, move, "move")

    def is_done(self, wait_ms: int) -> bool:
        """Wait up to ``wait_ms`` for the replica to run on its new node; return whether it does.

        A removed replica has no node to wait for, and a replica of a passive stage is not waited
        for: it runs only while it is primary.

        Raises:
            AnabranchError: the node that runs the replica has withdrawn the move.
        """
        deadline_ms = self._clock.monotonic_ms() + wait_ms
        stage, _, _ = self._label.rpartition(".")
        if self._pipeline.stages[stage].ha == "passive" or not self._node:
            return True
        places = self._pipeline.places()
        reader = PlacementReader(self._log, self._at.topic, places)
        try:
            while self._runs_on() != self._node:
                reader.read_to_end()
                if places.withdrawn(self._label):
                    raise AnabranchError(
                        f"the move of {self._label} to node {self._node} was withdrawn; it stays on"
                        f" node {places.node_of(self._label)}: {places.withdrawn(self._label)}"
                    )
                if self._clock.monotonic_ms() >= deadline_ms:
                    return False
                self._clock.sleep_ms(_POLL_MS)
        finally:
            reader.close()
        return True

    def _runs_on(self) -> str:
        """Return the node on which the replica's newest epoch began; empty: none."""
        stage, _, replica = self._label.rpartition(".")
        return runs_on(self._log, self._pipeline, stage, replica)
