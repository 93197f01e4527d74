"""Metrics of an agent."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from anabranch.protocol.federation.holdings import TaskPlace

if TYPE_CHECKING:
    from anabranch.protocol.federation.agent import Agent

_LABELS: Final = ("pipeline",)


class AgentMetrics:
    """Metrics of one agent."""

    def __init__(self, registry: CollectorRegistry, pipeline: str) -> None:
        self._pipeline = pipeline
        self._load = Gauge(
            "anabranch_agent_load_units",
            "Load of the tasks that run here, or were promised to",
            _LABELS,
            registry=registry,
        )
        self._tasks = Gauge(
            "anabranch_agent_tasks",
            "Tasks that the agent knows, by where they are",
            (*_LABELS, "place"),
            registry=registry,
        )
        self._offers = Counter(
            "anabranch_agent_offers",
            "Offers that this process made",
            _LABELS,
            registry=registry,
        )
        self._ignored = Counter(
            "anabranch_agent_ignored_records",
            "Records of contracts, keys and offers that changed nothing",
            (*_LABELS, "reason"),
            registry=registry,
        )
        self._counted: Counts[str] = Counts()
        self._offers_counted = 0

    def show(self, agent: Agent, places: Mapping[TaskPlace, int], ignored: Counts[str]) -> None:
        """Set the metrics to the current values."""
        self._load.labels(self._pipeline).set(agent.holdings.level())
        for place, count in places.items():
            self._tasks.labels(self._pipeline, place.value).set(count)
        made = agent.counters.offers
        self._offers.labels(self._pipeline).inc(made - self._offers_counted)
        for reason, count in (ignored - self._counted).items():
            self._ignored.labels(self._pipeline, reason).inc(count)
        self._counted, self._offers_counted = ignored, made
