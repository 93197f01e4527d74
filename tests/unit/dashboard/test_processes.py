"""Processes that answer the page, and such as do not."""

from __future__ import annotations

import socket
from typing import Any

from prometheus_client import CollectorRegistry, Counter

from anabranch.adapters.system.clock import SystemClock
from anabranch.dashboard.feed import PageFeed
from anabranch.dashboard.page import Page
from anabranch.dashboard.processes import ProcessFollower
from anabranch.pipeline.file import load
from anabranch.process.health import HealthServer
from harness.page_scenes import TOLL_ROAD
from harness.waiting import wait_until


def test_named_processes_are_asked_and_those_that_do_not_answer_are_silent() -> None:
    registry = CollectorRegistry()
    counter = Counter("anabranch_ingestion_rejected", "", ("source", "reason"), registry=registry)
    counter.labels("reports_0", "late").inc(4)
    stage = {
        "stage": "tolls",
        "replica": "0",
        "state": "running",
        "detail": {"replica_state": "up_failure", "missing": ["reports_1"]},
    }
    server = HealthServer(
        "127.0.0.1",
        0,
        lambda: {"state": "running", "restarts": 2, "detail": {"stages": [stage]}},
        registry,
        SystemClock(),
    )
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = closed.getsockname()[1]
    server.start()
    feed = PageFeed(Page(load(TOLL_ROAD)), SystemClock())
    addresses = {
        "ingestion/reports_0": ("127.0.0.1", server.port),
        "delivery/tolls": ("127.0.0.1", nobody),
    }
    thread = feed.run_in_thread("processes", ProcessFollower(feed, None, addresses).work)

    def shown() -> list[dict[str, Any]]:
        """All of them, once what they count is shown, too."""
        with feed.page() as page:
            whole = page.whole(0, 0)
        rows: list[dict[str, Any]] = whole["processes"] or []
        counted = whole["rejected"]["reports_0"]["by_reason"] == {"late": 4}
        return rows if len(rows) == 3 and counted else []

    try:
        ingestion, replica, delivery = wait_until(shown, 30, "all are shown")
        assert (ingestion["state"], ingestion["restarts"]) == ("running", 2)
        assert (replica["service"], replica["name"]) == ("replica", "tolls.0")
        assert replica["reported"] == "tentative: without reports_1"
        assert delivery["state"] == "silent"
    finally:
        feed.stopping.set()
        thread.join(10)
        server.stop()


def test_where_nothing_runs_nothing_is_known() -> None:
    feed = PageFeed(Page(load(TOLL_ROAD)), SystemClock())
    thread = feed.run_in_thread("processes", ProcessFollower(feed, None, {}).work)
    feed.stopping.set()
    thread.join(10)
    with feed.page() as page:
        assert page.whole(0, 0)["processes"] is None
