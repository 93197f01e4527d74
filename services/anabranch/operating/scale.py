"""``anabranch scale``: what a scaler sees of a pipeline's nodes, what was decided, and what would
be decided now (``protocol.control.scaling``). Writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from anabranch.operating.known_topic import check_topic
from anabranch.pipeline.control_topics import node_report_topics
from anabranch.pipeline.scaling import rules_of
from anabranch.protocol.control.records import Move, NodeReport, SplitStep
from anabranch.protocol.control.scaling import REPORT_EVERY_MS, Scaler, ScalingDecision
from anabranch.protocol.errors import ConfigurationError
from anabranch.streams.heartbeats import ControlReader
from anabranch.streams.placement import PlacementReader

if TYPE_CHECKING:
    from anabranch.pipeline.model import Pipeline
    from anabranch.ports import Clock, EventLog

_LISTEN_MORE_MS: Final = 2 * REPORT_EVERY_MS + 500
"""Time beyond the window of the file for which reports are read, in ms: the window begins with the
first report, and ends with one.
"""
_POLL_MS: Final = 250
"""Timeout for polling reports, in ms."""


@dataclass(frozen=True, slots=True)
class LoadView:
    """View of a pipeline's load."""

    shown: dict[str, Any]
    """Findings and decisions of the scaler, as in the status of the consistency manager."""
    would: tuple[ScalingDecision, ...]
    """Decisions that a scaler would make now, if it has rested."""


def look(
    log: EventLog,
    pipeline: Pipeline,
    clock: Clock,
    waiting: Callable[[], bool] = lambda: True,
) -> LoadView:
    """Read the log of moves, then the reports of the nodes for a whole window, and return what a
    scaler makes of them. ``waiting``: whether to keep listening.

    Raises:
        ConfigurationError: the file has no ``scaling``, or the pipeline has not run on this broker.
        Unavailable: the broker does not answer.
    """
    if pipeline.scaling is None:
        raise ConfigurationError(
            f"{pipeline.path} has no section scaling: replicas move by command alone (anabranch"
            " move). Add one, as scaling: {nodes: [local.7]}"
        )
    topic = pipeline.topic_names.placement()
    check_topic(log, topic, pipeline.name)
    places = pipeline.places()
    rules = rules_of(pipeline, pipeline.scaling)
    # Without a rest: it is to say what it would do, not when.
    scaler = Scaler(replace(rules, rest_ms=0), places, pipeline.places())

    def moved(move: Move, source: str) -> None:
        """Apply a move that counts. All are taken as old: this process decides nothing."""
        scaler.moved(move, source, clock.monotonic_ms(), is_new=False)

    def stepped(step: SplitStep) -> None:
        """Apply a step of a split that counts."""
        scaler.stepped(step, clock.monotonic_ms(), is_new=False)

    with ExitStack() as opened:
        placement = opened.enter_context(
            closing(PlacementReader(log, topic, places, moved, stepped)),
        )
        placement.read_to_end()
        reports = opened.enter_context(closing(ControlReader(log, node_report_topics(pipeline))))
        until_ms = clock.monotonic_ms() + rules.for_ms + _LISTEN_MORE_MS
        would: tuple[ScalingDecision, ...] = ()
        while (now_ms := clock.monotonic_ms()) < until_ms and waiting():
            entries = reports.poll(_POLL_MS)
            now_ms = clock.monotonic_ms()
            if entries:
                scaler.came_back(now_ms)  # the broker answers
            for entry in entries:
                if isinstance(entry, NodeReport):
                    scaler.reported(entry, now_ms)
            placement.poll()
            would = scaler.tick(now_ms) or would
        return LoadView(scaler.shown(clock.monotonic_ms()), would)
