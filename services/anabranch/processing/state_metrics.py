"""Metrics of a replica's state: the state itself, the inputs that it works without, its batches'
durations.
"""

from __future__ import annotations

from collections.abc import Collection
from math import inf
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from anabranch.protocol.control.records import ReplicaState
from anabranch.protocol.stage.load_control import LoadFigures

_LABELS: Final = ("pipeline", "stage", "replica")
_SECONDS: Final = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0)
"""Upper bounds of the histogram of batch durations, in seconds."""


class StateMetrics:
    """Metrics of one replica. One series per state, 1 for the current state; one per input that was
    ever missing, 1 while it is missing.
    """

    def __init__(
        self, registry: CollectorRegistry, pipeline: str, stage: str, replica: str
    ) -> None:
        self._own = (pipeline, stage, replica)
        self._state = Gauge(
            "anabranch_stage_state",
            "1 for the state that the replica is in",
            (*_LABELS, "state"),
            registry=registry,
        )
        self._missing = Gauge(
            "anabranch_stage_missing_input",
            "1 while the replica works without this stream",
            (*_LABELS, "stream"),
            registry=registry,
        )
        self._shed = Gauge(
            "anabranch_stage_shed_permille",
            "Per mille of its input's rows that the newest tentative results lack",
            _LABELS,
            registry=registry,
        )
        self._backlog = Gauge(
            "anabranch_stage_overload_backlog_rows",
            "Rows that the stable query of an overloaded stage has yet to process",
            _LABELS,
            registry=registry,
        )
        self._room = Gauge(
            "anabranch_stage_overload_room_seconds",
            "Seconds until an overloaded stage cannot hold more of its input, at the rate so far",
            _LABELS,
            registry=registry,
        )
        self._batches = Histogram(
            "anabranch_stage_batch_seconds",
            "From the plan of a stable batch in Spark's log to its record in the boundary log",
            _LABELS,
            registry=registry,
            buckets=_SECONDS,
        )
        self._partner_wrong = Counter(
            "anabranch_stage_partner_wrong_buckets",
            "Buckets that a partner's node made otherwise than this one",
            _LABELS,
            registry=registry,
        )
        self._partner_wrong.labels(*self._own)
        self._were_missing: set[str] = set()

    def show_load(self, figures: LoadFigures | None) -> None:
        """Set the backlog of an overloaded stage, and for how long it has room; None: it is not
        overloaded.
        """
        left_ms = None if figures is None else figures.room_left_ms
        self._backlog.labels(*self._own).set(0 if figures is None else figures.backlog)
        self._room.labels(*self._own).set(inf if left_ms is None else left_ms / 1_000)

    def batch(self, seconds: float) -> None:
        """Observe the duration of a stable batch."""
        self._batches.labels(*self._own).observe(seconds)

    def partner_wrong(self) -> None:
        """Count a bucket whose partner result differs."""
        self._partner_wrong.labels(*self._own).inc()

    def show(self, state: ReplicaState, missing: Collection[str], shed: int = 0) -> None:
        """Set the current state, the currently missing inputs, and the per mille of its input's
        rows that results lack.
        """
        self._shed.labels(*self._own).set(shed)
        for each in ReplicaState:
            self._state.labels(*self._own, each.value).set(each is state)
        self._were_missing |= set(missing)
        for stream in self._were_missing:
            self._missing.labels(*self._own, stream).set(stream in missing)
