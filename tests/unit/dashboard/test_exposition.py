"""The metrics that are read from the text of /metrics."""

from __future__ import annotations

from math import inf

from prometheus_client import CollectorRegistry, generate_latest

from anabranch.dashboard.exposition import ProcessMetrics, figures_of
from anabranch.process.metrics import ServiceMetrics
from anabranch.processing.state_metrics import StateMetrics


def test_what_services_export_is_read() -> None:
    registry = CollectorRegistry()
    metrics = ServiceMetrics(
        registry, pipeline="p", service="ingestion", name="reports", restarts=3
    )
    metrics.count_in(70)
    metrics.closed(1_000, 1_250)
    StateMetrics(registry, "p", "tolls", "0").batch(0.4)
    found = figures_of(generate_latest(registry).decode())
    assert found.records["reports", "in"] == 70
    assert found.restarts == 3
    assert found.ages["reports"][0.3] == 1
    assert found.ages["reports"][0.2] == 0
    assert found.batches["tolls.0"][inf] == 1


def test_dead_letters_are_counted_by_reason() -> None:
    text = 'anabranch_ingestion_rejected_total{pipeline="p",source="s",reason="late"} 4.0\n'
    assert figures_of(text).rejected == {"late": 4.0}


def test_a_hostile_text_gives_nothing() -> None:
    for text in (
        "",
        "anabranch_restarts{",
        "anabranch_restarts{} NaN",
        "anabranch_restarts{} x",
        'anabranch_bucket_age_seconds_bucket{le="x"} 1',
        "<script>" * 1_000,
    ):
        assert figures_of(text) == ProcessMetrics()
