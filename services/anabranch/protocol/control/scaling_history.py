"""Decisions of scalers, and what came of each: how long it took to find a node lost, to restore the
replica on its new node, and until the replica had caught up.

Theory of operation. The decisions are the records of the log of moves that name a cause, so a new
process knows them all. The times are those that one process has observed, from the record to the
reports of nodes that follow it; of decisions that are older than the process it knows none.

Invariants:
    EP1 a decision is open until its replica has caught up on its new node, its move is withdrawn,
        or another move of the replica counts; that of a split until it is confirmed or withdrawn.
    EP2 a report that was received before the record says nothing of what came of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from anabranch.protocol.control.records import Move, NodeReport, ReplicaLoad, SplitStep, Step

CAUGHT_UP_MS: Final = 1_000
"""Lag, in ms of event time, from which a replica that was moved has caught up."""

SPLIT_CAUSE: Final = "split"
"""Cause of an episode that is the split of a shard; its label is the shard, not a replica."""

EPISODES_MAX: Final = 50
"""Maximum number of decisions that are kept for people."""


@dataclass(slots=True)
class Episode:
    """A decision of a scaler that counts, and what came of it."""

    label: str
    source: str
    target: str
    cause: str
    because: str
    written_ms: int
    """Wall clock of the record."""
    silent_ms: int | None = None
    """Silence of the node that was left, in ms, when this process read the record; None: that node
    is not lost, or the record is older than this process.
    """
    restore_ms: int | None = None
    """Time from the record to the first report that the replica runs on its new node, in ms. None:
    not yet, or not seen.
    """
    catch_up_ms: int | None = None
    """Time from then until it had caught up, in ms; of a split, from the record until it was
    confirmed. None: not yet, or not seen.
    """
    outcome: str = ""
    """``withdrawn``, or ``replaced`` by a later move before it came to its end; else empty."""

    @property
    def is_open(self) -> bool:
        """Whether something may still come of it (EP1)."""
        return not self.outcome and self.catch_up_ms is None


class ScalingHistory:
    """Newest decisions of scalers. ``now_ms`` is monotonic and one clock's."""

    def __init__(self) -> None:
        """Begin without decisions."""
        self.episodes: deque[Episode] = deque(maxlen=EPISODES_MAX)
        """Decisions, oldest first."""
        self._open: list[tuple[Episode, int]] = []
        """Decisions that this process has seen, each with the time of its record."""

    def moved(self, move: Move, source: str, silent_ms: int | None, now_ms: int | None) -> None:
        """Apply a move that counts.

        Args:
            move: The record.
            source: Node that had the place before.
            silent_ms: Silence of that node, if it is lost.
            now_ms: Present time; None: the record is older than this process.
        """
        label = f"{move.stage}.{move.replica}"
        for episode, _ in self._open:
            if episode.label == label and episode.cause != SPLIT_CAUSE:
                episode.outcome = "withdrawn" if move.withdrawn else "replaced"
        self._forget_closed()
        if not move.cause or move.withdrawn:
            return
        episode = Episode(
            label, source, move.node, move.cause, move.because, move.written_ms, silent_ms
        )
        self.episodes.append(episode)
        if now_ms is not None:
            self._open.append((episode, now_ms))

    def stepped(
        self, step: SplitStep, source: str, target: str, now_ms: int, *, is_new: bool
    ) -> None:
        """Apply a step of a split that counts.

        Args:
            step: The record.
            source: Nodes of the shard, for people.
            target: Its halves with their nodes, for people.
            now_ms: Present time.
            is_new: Whether it was written since this process listens.
        """
        if step.step is Step.WANTED:
            if step.is_scalers_wish:
                episode = Episode(
                    step.shard, source, target, SPLIT_CAUSE, step.reason, step.written_ms
                )
                self.episodes.append(episode)
                if is_new:
                    self._open.append((episode, now_ms))
            return
        for episode, begun_ms in self._open:
            if (episode.label, episode.cause) == (step.shard, SPLIT_CAUSE):
                if step.step is Step.CONFIRMED:
                    episode.catch_up_ms = now_ms - begun_ms
                else:
                    episode.outcome = "withdrawn"
        self._forget_closed()

    def follow(
        self, reports: Mapping[str, tuple[NodeReport | None, int]], bucket_ms: int, now_ms: int
    ) -> None:
        """Note what the newest report of each node, and the time of its arrival, say of the open
        decisions (EP2). ``bucket_ms``: width of a bucket.
        """
        for episode, begun_ms in self._open:
            report, heard_ms = reports.get(episode.target, (None, 0))
            if report is None or heard_ms < begun_ms:
                continue
            load = next((each for each in report.replicas if each.label == episode.label), None)
            if load is None or not load.is_here:
                continue
            if episode.restore_ms is None:
                episode.restore_ms = now_ms - begun_ms
            if load.behind * bucket_ms <= CAUGHT_UP_MS:
                episode.catch_up_ms = now_ms - begun_ms - episode.restore_ms
        self._forget_closed()

    def _forget_closed(self) -> None:
        self._open = [(each, at_ms) for each, at_ms in self._open if each.is_open]


def leading(report: NodeReport | None) -> Iterable[ReplicaLoad]:
    """Yield the loads of the replicas that run on the node of ``report``."""
    return () if report is None else (each for each in report.replicas if each.leads)
