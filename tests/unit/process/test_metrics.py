"""Metrics in base units."""

from __future__ import annotations

import math

from prometheus_client import CollectorRegistry, generate_latest

from anabranch.process.metrics import Registry, ServiceMetrics

_OWN = {"pipeline": "p", "service": "ingestion", "name": "reports"}


def _metrics() -> tuple[ServiceMetrics, CollectorRegistry]:
    registry = CollectorRegistry()
    return ServiceMetrics(
        registry, pipeline="p", service="ingestion", name="reports", restarts=3
    ), registry


def test_records_and_bytes_by_direction() -> None:
    metrics, registry = _metrics()
    metrics.count_in(10, 1_000)
    metrics.count_in(5, 500)
    metrics.count_out(4, 40)
    metrics.count_rejected(1)
    for direction, records, size in (("in", 15, 1_500), ("out", 4, 40), ("rejected", 1, None)):
        labels = {**_OWN, "direction": direction}
        assert registry.get_sample_value("anabranch_records_total", labels) == records
        assert registry.get_sample_value("anabranch_bytes_total", labels) == size
    assert registry.get_sample_value("anabranch_restarts", _OWN) == 3


def test_rejected_takes_running_totals() -> None:
    metrics, registry = _metrics()
    metrics.rejected("a", {"old_epoch": 2})
    metrics.rejected("a", {"old_epoch": 5, "gap": 1})
    metrics.rejected("b", {"old_epoch": 1})
    assert (
        registry.get_sample_value(
            "anabranch_rejected_boundary_records_total",
            {**_OWN, "stream": "a", "reason": "old_epoch"},
        )
        == 5
    )
    assert (
        registry.get_sample_value(
            "anabranch_rejected_boundary_records_total", {**_OWN, "stream": "a", "reason": "gap"}
        )
        == 1
    )
    assert (
        registry.get_sample_value(
            "anabranch_rejected_boundary_records_total",
            {**_OWN, "stream": "b", "reason": "old_epoch"},
        )
        == 1
    )


def test_lag_and_last_bucket_are_asked_at_each_scrape_in_seconds() -> None:
    metrics, registry = _metrics()
    now: dict[str, int | None] = {"bucket": None, "lag": None}
    metrics.follow(lambda: now["bucket"], lambda: now["lag"])
    assert math.isnan(registry.get_sample_value("anabranch_lag_seconds", _OWN) or 0.0)
    now.update(bucket=12_250, lag=300)
    assert registry.get_sample_value("anabranch_last_bucket_seconds", _OWN) == 12.25
    assert registry.get_sample_value("anabranch_lag_seconds", _OWN) == 0.3


def test_the_parts_of_a_process_share_their_families() -> None:
    registry = Registry()
    node = ServiceMetrics(registry, pipeline="p", service="processing", name="north.0")
    one, two = registry.part(), registry.part()
    parts = {
        name: ServiceMetrics(part, pipeline="p", service="processing", name=name)
        for name, part in (("a.0", one), ("b.0", two))
    }
    node.count_in(1)
    parts["a.0"].count_in(2)
    parts["b.0"].count_in(3)
    text = generate_latest(registry).decode()
    assert text.count("# TYPE anabranch_records_total ") == 1
    for name, records in (("north.0", 1.0), ("a.0", 2.0), ("b.0", 3.0)):
        labels = {"pipeline": "p", "service": "processing", "name": name, "direction": "in"}
        assert registry.get_sample_value("anabranch_records_total", labels) == records
    registry.drop(one)
    assert 'name="a.0"' not in generate_latest(registry).decode()


def test_a_bucket_is_as_old_as_it_is_when_it_is_closed_first() -> None:
    metrics, registry = _metrics()
    assert metrics.closed(10_000, 10_400) == 400
    assert metrics.closed(10_000, 19_000) == 400, "told again"
    assert metrics.closed(10_250, 11_250) == 700
    assert metrics.closed(10_500, 11_500) == 1_000
    assert registry.get_sample_value("anabranch_bucket_age_seconds_count", _OWN) == 3
    assert (
        registry.get_sample_value("anabranch_bucket_age_seconds_bucket", {**_OWN, "le": "0.5"}) == 1
    )
