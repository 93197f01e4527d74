"""Scaling by the manager: feeds ``protocol.control.scaling`` from control topics and the log of
moves (``consistency_manager.moves``), and writes its decisions into that log.

It has no state of its own: the log of moves is the truth, and a restart reads it again. A decision
that cannot be written is dropped, and the next round decides anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import Counter, Gauge

from anabranch.pipeline.scaling import rules_of
from anabranch.protocol.control.failure_detector import MANAGER_SERVICE
from anabranch.protocol.control.records import Heartbeat, NodeReport
from anabranch.protocol.control.scaling import NodeState, Scaler
from anabranch.streams.heartbeats import ControlWriter

if TYPE_CHECKING:
    from anabranch.pipeline.model import Pipeline, Scaling
    from anabranch.process.frame import ServiceContext
    from anabranch.protocol.control.records import ControlRecord, Move, SplitStep
    from anabranch.protocol.control.scaling import ScalingDecision

_DECIDE_EVERY_MS: Final = 250
"""Interval between two decisions, in ms: a node reports once a second."""
_LABELS: Final = ("pipeline",)


def scaling_of(context: ServiceContext) -> ManagerScaling | None:
    """Return the scaling of the context's pipeline; None if its file has none."""
    scaling = context.pipeline.scaling
    return None if scaling is None else ManagerScaling(context, context.pipeline, scaling)


class ManagerScaling:
    """Scaler of one pipeline. One thread calls it."""

    def __init__(self, context: ServiceContext, pipeline: Pipeline, scaling: Scaling) -> None:
        """Prepare; nothing is contacted before the first decision."""
        self._context, self._pipeline = context, pipeline
        self.places = pipeline.places()
        """Places of the replicas. The follower of the log of moves applies each move to them before
        it calls ``moved``.
        """
        self._scaler = Scaler(rules_of(pipeline, scaling), self.places, pipeline.places())
        topic = pipeline.topic_names.placement()
        self._writer = ControlWriter(context.log, topic, context.clock)
        self._decide_next_ms = 0
        self._shown_episodes: dict[int, tuple[int | None, int | None, str]] = {}
        registry, own = context.registry, pipeline.name
        self._moves = Counter(
            "anabranch_scaling_moves",
            "Moves of replicas that the scaler decided",
            (*_LABELS, "cause"),
            registry=registry,
        )
        self._halvings = Counter(
            "anabranch_scaling_splits",
            "Splits of shards that the scaler decided",
            _LABELS,
            registry=registry,
        ).labels(own)
        self._busy = Gauge(
            "anabranch_node_busy_cores",
            "Sum of the shares of time in which the batches of a node's replicas ran",
            (*_LABELS, "node"),
            registry=registry,
        )
        self._lost = Gauge(
            "anabranch_nodes_lost",
            "Nodes that are silent for so long that their replicas are moved",
            _LABELS,
            registry=registry,
        ).labels(own)
        self._seconds = Gauge(
            "anabranch_scaling_last_seconds",
            "Of the last move that the scaler decided: silence of the node that was left, time"
            " until the replica ran on its new node, and from then until it had caught up",
            (*_LABELS, "phase"),
            registry=registry,
        )

    def receive(self, entry: ControlRecord) -> None:
        """Apply a control record that was written since this process listens. A manager's heartbeat
        shows that the broker answers, whichever manager wrote it.
        """
        now_ms = self._context.clock.monotonic_ms()
        if isinstance(entry, NodeReport):
            self._scaler.reported(entry, now_ms)
        elif isinstance(entry, Heartbeat) and entry.service == MANAGER_SERVICE:
            self._scaler.came_back(now_ms)

    def round(self) -> None:
        """Write what is to be done now, by the moves and steps of splits so far."""
        now_ms = self._context.clock.monotonic_ms()
        if now_ms < self._decide_next_ms:
            return
        self._decide_next_ms = now_ms + _DECIDE_EVERY_MS
        actions = self._scaler.tick(now_ms)
        if actions:
            self._write(actions)
        self._report_episodes()

    def _write(self, actions: tuple[ScalingDecision, ...]) -> None:
        """Write decisions, in this order. If the outcome is not known, the log will show it, or the
        scaler decides anew (SG9).
        """
        now_ms = self._context.clock.now_ms()
        is_written = self._writer.write([each.record(now_ms) for each in actions])
        for each in actions:
            self._context.logger.info(
                "scaling_decided",
                replica=each.label,
                source=each.source,
                target=each.target,
                cause=each.cause.value,
                because=each.because,
                is_written=is_written,
            )

    def moved(self, move: Move, source: str, *, is_new: bool) -> None:
        """Apply a move that counts, of a replica that ``source`` had. ``is_new``: it is newer than
        this process.
        """
        now_ms = self._context.clock.monotonic_ms()
        self._scaler.moved(move, source, now_ms, is_new=is_new)
        if is_new and move.cause:
            self._moves.labels(self._pipeline.name, move.cause).inc()

    def stepped(self, step: SplitStep, *, is_new: bool) -> None:
        """Apply a step of a split that counts. ``is_new``: as of ``moved``."""
        now_ms = self._context.clock.monotonic_ms()
        self._scaler.stepped(step, now_ms, is_new=is_new)
        if is_new and step.is_scalers_wish:
            self._halvings.inc()

    def _report_episodes(self) -> None:
        """Log each phase of a move once, and set its figures as metrics."""
        own, before = self._pipeline.name, self._shown_episodes
        self._shown_episodes = {}  # of those that are kept alone
        for episode in self._scaler.history.episodes:
            reached = episode.restore_ms, episode.catch_up_ms, episode.outcome
            self._shown_episodes[id(episode)] = reached
            if reached == before.get(id(episode), (None, None, "")):
                continue
            self._context.logger.info(
                "scaling_progress",
                replica=episode.label,
                target=episode.target,
                cause=episode.cause,
                silent_ms=episode.silent_ms,
                restore_ms=episode.restore_ms,
                catch_up_ms=episode.catch_up_ms,
                outcome=episode.outcome,
            )
            for phase, took_ms in (
                ("detect", episode.silent_ms),
                ("restore", episode.restore_ms),
                ("catch_up", episode.catch_up_ms),
            ):
                if took_ms is not None:
                    self._seconds.labels(own, phase).set(took_ms / 1_000)

    def report(self) -> dict[str, object]:
        """Set the metrics and return what the scaler sees and has decided, for the status."""
        now_ms, own = self._context.clock.monotonic_ms(), self._pipeline.name
        lost = 0
        for node in self.places.nodes():
            if not self.places.is_partners(node):
                self._busy.labels(own, node).set(self._scaler.load_permille(node) / 1_000)
                lost += self._scaler.node_state(node, now_ms) is NodeState.LOST
        self._lost.set(lost)
        return self._scaler.shown(now_ms)

    def close(self) -> None:
        """Close the writer. Idempotent."""
        self._writer.close()
