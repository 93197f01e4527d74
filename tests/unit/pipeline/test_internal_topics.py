"""Internal topics of a pipeline."""

from __future__ import annotations

from anabranch.pipeline.internal_topics import internal_topics
from harness import outputs


def test_each_stream_each_output_and_what_all_share() -> None:
    found = {
        topic.name: (kind, topic.partitions)
        for kind, topic in internal_topics(outputs.pipeline("p", replicas=2, live=True))
    }
    assert found == {
        "p.reports.boundaries": ("boundaries", 1),
        "p.reports.blocks.0": ("blocks", 2),
        "p.totals.boundaries": ("boundaries", 1),
        "p.totals.blocks.0": ("blocks", 2),
        "p.totals.blocks.1": ("blocks", 2),
        "p.control.ingestion.reports": ("control", 1),
        "p.control.processing.totals.0": ("control", 1),
        "p.control.processing.totals.1": ("control", 1),
        "p.control.delivery.out": ("control", 1),
        "p.manager": ("manager", 1),
        "p.fences": ("fences", 1),
        "p.control.alarms": ("alarms", 1),
        "p.placement": ("placement", 1),
        "p.out.progress": ("progress", 1),
        "p.out.live.progress": ("live_progress", 1),
    }
    assert all(
        topic.config["min.insync.replicas"] == "2"
        for _, topic in internal_topics(outputs.pipeline("p"), 3)
    )
