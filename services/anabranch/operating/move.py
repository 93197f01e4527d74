"""Move a replica to another node: write down its new place, and see that it begins there
(``protocol.control.placement``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.codec import control_records
from anabranch.operating.known_topic import check_topic
from anabranch.ports import Clock, EventLog, TopicPartition
from anabranch.protocol.control.records import Move
from anabranch.protocol.errors import ConfigurationError, OutcomeUnknown, Unavailable
from anabranch.runtime.placement import PlacementReader, runs_on

if TYPE_CHECKING:
    from anabranch.pipeline.model import Pipeline
    from anabranch.protocol.control.placement import Places

_POLL_MS: Final = 100


class Moving:
    """One such command. Nothing is written before ``do``; after a crash within it the command
    may be given again.
    """

    def __init__(
        self, log: EventLog, pipeline: Pipeline, label: str, node: str, clock: Clock
    ) -> None:
        """``label``: ``STAGE.REPLICA``. ``node``: where it is to run; empty: nowhere. Nothing
        is contacted yet.
        """
        self._log = log
        self._pipeline = pipeline
        self._label = label
        self._node = node
        self._clock = clock
        self._at = TopicPartition(pipeline.topic_names.placement(), 0)
        self.runs_on = ""
        """The node that ran the replica before; empty: none."""

    def do(self) -> None:
        """Write the move down.

        Raises:
            ConfigurationError: it cannot be moved there, the move before is still under way, or the
                pipeline has not run on this broker.
            Unavailable: the broker does not answer: whether the move was written is not known.
        """
        check_topic(self._log, self._at.topic, self._pipeline.name)
        places = self._pipeline.places()
        reader = PlacementReader(self._log, self._at.topic, places)
        try:
            reader.read_to_end()
            self._check(places.rejected(self._label, self._node) or self._of_market(places))
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
            reader.read_to_end()
            if (
                places.node_of(self._label) != self._node
            ):  # somebody moved it, or a peer, at the same time
                self._check(places.rejected(self._label, self._node))
        finally:
            reader.close()

    def _of_market(self, places: Places) -> str:
        """A partner runs a stage under a contract, and nobody is paid for what stands in none."""
        if not places.is_partners(self._node):
            return ""
        return (
            f"node {self._node} is {places.owner_of(self._node)}'s: the agent moves stages there,"
            " under a contract (anabranch market)"
        )

    def _check(self, rejected: str) -> None:
        if rejected:
            raise ConfigurationError(f"not {'moved' if self._node else 'removed'}: {rejected}")

    def _append(self) -> None:
        stage, _, replica = self._label.rpartition(".")
        move = Move(stage, replica, self._node, self._clock.now_ms())
        writer = self._log.writer()
        try:
            writer.send(self._at, control_records.encode(move), control_records.key_of(move))
            writer.flush()
        except OutcomeUnknown as error:
            raise Unavailable(
                f"it is not known whether the move was written: {error}; give the command again"
            ) from error
        finally:
            writer.close()

    def is_done(self, wait_ms: int) -> bool:
        """Whether the replica runs where its place is, within ``wait_ms``. A process of a
        passive stage need not: another one may be primary.
        """
        deadline_ms = self._clock.monotonic_ms() + wait_ms
        stage, _, _ = self._label.rpartition(".")
        while (
            self._pipeline.stages[stage].ha != "passive"
            and self._node
            and self._runs_on() != self._node
        ):
            if self._clock.monotonic_ms() >= deadline_ms:
                return False
            self._clock.sleep_ms(_POLL_MS)
        return True

    def _runs_on(self) -> str:
        stage, _, replica = self._label.rpartition(".")
        return runs_on(self._log, self._pipeline, stage, replica)
