"""Metrics of one output's delivery: counters of its corrected and of its live topic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

_LABELS: Final = ("pipeline", "output")


class CorrectedCounters:
    """Counters of the corrected topic."""

    def __init__(self, registry: CollectorRegistry, pipeline: str, output: str) -> None:
        counter = _counters(registry, pipeline, output)
        self.transactions = counter("transactions", "Transactions that delivery committed")
        self.unknown = counter(
            "unknown_outcomes",
            "Transactions whose outcome was unknown, each followed by reading back",
        )
        self.rejected = counter(
            "rejected",
            "Results that the output topic rejected for their size, written to a topic of"
            " their own",
        )
        self.found = counter("ids_read_back", "Ids found in the output topic at a failover")


class LiveCounters:
    """Counters and gauges of the live topic."""

    def __init__(self, registry: CollectorRegistry, pipeline: str, output: str) -> None:
        self.waiting = Gauge(
            "anabranch_delivery_live_waiting",
            "1 while the live topic cannot be written",
            _LABELS,
            registry=registry,
        ).labels(pipeline, output)
        self.utility = Gauge(
            "anabranch_delivery_utility",
            "Utility of what the live topic shows now, from 0 to 1, by the output's qos",
            _LABELS,
            registry=registry,
        ).labels(pipeline, output)
        counter = _counters(registry, pipeline, output)
        self.transactions = counter(
            "live_transactions", "Transactions of the live topic that were committed"
        )
        self.unknown = counter(
            "live_unknown_outcomes", "Transactions of the live topic whose outcome was unknown"
        )
        self.failures = counter(
            "live_failures",
            "Failures that began on the live topic: the first tentative bucket was shown",
        )
        self.undos = counter("live_undos", "Undos that were sent")
        self.stable_rows = counter(
            "live_stable_records", "Stable records delivered to the live topic"
        )
        self.left_out = counter(
            "live_left_out", "Records left out, since the live topic rejects them for their size"
        )
        self.tentative_rows = counter(
            "live_tentative_records",
            "Tentative records delivered to the live topic, shown again or not",
        )


def _counters(
    registry: CollectorRegistry, pipeline: str, output: str
) -> Callable[[str, str], Counter]:
    """Return a factory of one output's counters, from name and help text."""
    return lambda name, text: Counter(
        f"anabranch_delivery_{name}", text, _LABELS, registry=registry
    ).labels(pipeline, output)
