"""Prometheus metrics that every service has, in base units (records, bytes, seconds).

Every metric has the labels ``pipeline``, ``service`` and ``name``; a service adds its own metrics
to the same registry.
"""

from __future__ import annotations

import math
from collections import deque
from statistics import median
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from prometheus_client import Metric

_LABELS = ("pipeline", "service", "name")
_AGES_S: Final = (
    0.1,
    0.2,
    0.3,
    0.5,
    0.75,
    1.0,
    1.5,
    2.0,
    3.0,
    5.0,
    7.5,
    10.0,
    20.0,
    30.0,
    60.0,
    300.0,
)
_AGES_KEPT: Final = 64
"""Number of last buckets whose median age is reported: 16 s of buckets of 250 ms."""


class Registry(CollectorRegistry):
    """Metrics of a process and its parts. Each part registers the same families with labels of its
    own.
    """

    def __init__(self) -> None:
        super().__init__()
        self._parts: tuple[CollectorRegistry, ...] = ()

    def part(self) -> CollectorRegistry:
        """Create a registry whose metrics are shown with this one's."""
        made = CollectorRegistry()
        self._parts = (*self._parts, made)
        return made

    def drop(self, part: CollectorRegistry) -> None:
        """Stop showing the metrics of ``part``."""
        self._parts = tuple(each for each in self._parts if each is not part)

    def collect(self) -> Iterator[Metric]:
        """Yield each family once, with the samples of all parts."""
        families: dict[str, Metric] = {}
        for metric in (
            *super().collect(),
            *(metric for part in self._parts for metric in part.collect()),
        ):
            known = families.setdefault(metric.name, metric)
            if known is not metric:
                known.samples.extend(metric.samples)
        yield from families.values()


class ServiceMetrics:
    """Metrics that all services have. Counting is thread-safe, by prometheus_client's locks."""

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        pipeline: str,
        service: str,
        name: str,
        restarts: int = 0,
    ) -> None:
        self._own = (pipeline, service, name)
        self._records = Counter(
            "anabranch_records",
            "Records or rows handled",
            (*_LABELS, "direction"),
            registry=registry,
        )
        self._bytes = Counter(
            "anabranch_bytes",
            "Bytes of the records handled",
            (*_LABELS, "direction"),
            registry=registry,
            unit="bytes",
        )
        self._rejected = Counter(
            "anabranch_rejected_boundary_records",
            "Records of a boundary log that the reader did not accept, by reason",
            (*_LABELS, "stream", "reason"),
            registry=registry,
        )
        self._lag = Gauge(
            "anabranch_lag_seconds",
            "Wall clock minus event time of the last bucket",
            _LABELS,
            registry=registry,
        )
        self._last_bucket = Gauge(
            "anabranch_last_bucket_seconds",
            "Event time of the last bucket since 1970",
            _LABELS,
            registry=registry,
        )
        self._ages = Histogram(
            "anabranch_bucket_age_seconds",
            "Wall clock minus a bucket's end when it is closed here",
            _LABELS,
            registry=registry,
            buckets=_AGES_S,
        )
        self._last_ages: deque[int] = deque(maxlen=_AGES_KEPT)
        self._newest_ms: int | None = None
        restarted = Gauge(
            "anabranch_restarts",
            "How often the supervisor has restarted this process",
            _LABELS,
            registry=registry,
        )
        restarted.labels(*self._own).set(restarts)
        self._rejected_seen: dict[tuple[str, str], int] = {}

    def closed(self, bucket_ms: int, now_ms: int) -> int:
        """Record, once for each bucket, that the bucket that ends at ``bucket_ms`` was closed here.
        Return the median age of the last buckets at that moment, in ms.
        """
        if self._newest_ms is None or bucket_ms > self._newest_ms:
            self._newest_ms = bucket_ms
            self._last_ages.append(now_ms - bucket_ms)
            self._ages.labels(*self._own).observe((now_ms - bucket_ms) / 1_000)
        return int(median(self._last_ages))

    def count_in(self, records: int, size_bytes: int = 0) -> None:
        """Count records read."""
        self._records.labels(*self._own, "in").inc(records)
        self._bytes.labels(*self._own, "in").inc(size_bytes)

    def count_out(self, records: int, size_bytes: int = 0) -> None:
        """Count records written."""
        self._records.labels(*self._own, "out").inc(records)
        self._bytes.labels(*self._own, "out").inc(size_bytes)

    def count_rejected(self, records: int) -> None:
        """Count records that went to a dead-letter topic."""
        self._records.labels(*self._own, "rejected").inc(records)

    def rejected(self, stream: str, totals: Mapping[str, int]) -> None:
        """Count rejected records from a boundary reader's ``counts`` of ``stream``: running totals
        by reason, which never decrease.
        """
        for reason, total in totals.items():
            seen = self._rejected_seen.get((stream, reason), 0)
            if total > seen:
                self._rejected.labels(*self._own, stream, reason).inc(total - seen)
                self._rejected_seen[stream, reason] = total

    def follow(
        self, last_bucket_ms: Callable[[], int | None], lag_ms: Callable[[], int | None]
    ) -> None:
        """Call the functions at every scrape for the two gauges; None is shown as NaN."""
        self._last_bucket.labels(*self._own).set_function(lambda: _seconds(last_bucket_ms()))
        self._lag.labels(*self._own).set_function(lambda: _seconds(lag_ms()))


def _seconds(duration_ms: int | None) -> float:
    return math.nan if duration_ms is None else duration_ms / 1_000
