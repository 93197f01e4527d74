"""An overloaded stage on real Spark: it sheds rows in its tentative results, keeps them in time,
and corrects itself when the load has fallen.
"""

from __future__ import annotations

import logging
import uuid
from pathlib import Path

import pytest

from anabranch.protocol.control.records import ReplicaState
from harness.live_feeds import LiveFeed, LiveFeeds, Rows, pace_batches
from harness.stages import (
    STARTS_WITHIN_S,
    Feed,
    Output,
    RunningStage,
    create_topics,
    write_pipeline,
)
from harness.waiting import is_busy, wait_until
from spark.test_branches import Watcher, delays_ms

_log = logging.getLogger(__name__)

pytestmark = pytest.mark.integration

WIDTH_MS = 100
MAX_DELAY_MS = 4_000
ROWS, RUSH_ROWS = 4, 60
"""Rows of a bucket, 40 and 600 a second: the stage takes 4 ms for each."""
RUSH_BUCKETS = 120
"""Number of buckets of the rush. The stage processes less than half of its rows as they come, so it
is behind by more than the wait long before the end.
"""
CORRECTED_WITHIN_S = 400

FUNCTIONS = """
import time
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

def slowly(value):
    time.sleep(0.004)
    return value

def slow(a):
    value = F.udf(slowly, LongType())("value").alias("value")
    return a.select("key", value, "event_time")
"""


class Load:
    """Rows of the source: more of them in the buckets of a rush."""

    def __init__(self) -> None:
        self.first = 0
        """First bucket of the rush; 0 before it was begun."""

    def rows(self, bucket: int) -> Rows:
        """Return the rows (event time, key, value) of ``bucket``."""
        is_rush = 0 < self.first <= bucket < self.first + RUSH_BUCKETS
        return [
            ((bucket - 1) * WIDTH_MS + 1 + number % WIDTH_MS, number % 7, 1_000 * bucket + number)
            for number in range(RUSH_ROWS if is_rush else ROWS)
        ]


def test_an_overloaded_stage_sheds_in_time_and_corrects_itself(
    kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pace_batches(monkeypatch)
    name = f"overload_{uuid.uuid4().hex[:8]}"
    pipeline = write_pipeline(
        tmp_path,
        name,
        FUNCTIONS,
        live=True,
        max_delay_ms=MAX_DELAY_MS,
        stages=(
            "slowed:\n  participant: north\n  reads: [a]\n  transform: MODULE:slow\n  shed: rows\n"
        ),
    )
    create_topics(kafka, pipeline)
    load = Load()
    feed, output = Feed(kafka, pipeline, "a"), Output(kafka, pipeline, "slowed")
    watcher, live = Watcher(output), LiveFeeds([LiveFeed(feed, load.rows)], WIDTH_MS)
    try:
        with RunningStage(pipeline, "slowed.0", kafka, tmp_path / "state") as stage, live:

            def until(condition: object, deadline_s: float, what: str) -> None:
                def check() -> bool:
                    if live.error is not None:
                        raise live.error
                    stage.check()
                    watcher.poll()
                    return bool(condition())  # type: ignore[operator]

                wait_until(check, deadline_s, what)

            log_state = output.reader.log_state
            until(lambda: log_state.upto >= 40, STARTS_WITHIN_S, "forty stable buckets")
            until(lambda: log_state.upto >= live.bucket - 10, 90, "it keeps up")
            steady = live.bucket
            until(lambda: log_state.upto >= steady + 40, STARTS_WITHIN_S, "it goes on")
            assert watcher.tentative() == [], "it keeps up"
            runner = stage.service._runner
            assert runner is not None
            load.first = live.bucket + 5
            last = load.first + RUSH_BUCKETS
            until(lambda: live.bucket >= last, 120, "the rush")
            assert runner.branch is not None, "it has forked"
            assert runner.state is ReplicaState.UP_FAILURE
            hole = log_state.upto
            assert hole < last - 50, "the stable query waits for the cores"
            until(
                lambda: log_state.upto > last and runner.branch is None,
                CORRECTED_WITHIN_S,
                "the corrections",
            )
            end = live.end_after(20)
            until(lambda: log_state.upto >= end, CORRECTED_WITHIN_S, "all is stable")
        shown = watcher.tentative()
        shares = [seen.record.shed for seen in shown if load.first < seen.record.closed < last]
        assert max(shares) > 300, "it left out rows"
        assert all(seen.record.missing == () for seen in shown), "nothing was missing"
        assert len({seen.record.branch for seen in shown}) == 1, "one overload, one branch"
        found = output.buckets(1, end)
        for bucket in range(1, end + 1):
            rows = sorted((r["event_time"], r["key"], r["value"]) for r in found.get(bucket, []))
            assert rows == sorted(load.rows(bucket)), f"bucket {bucket}"
        delays = delays_ms(watcher, live, steady)
        usual_ms = max(delays[bucket] for bucket in range(steady, load.first))
        latest_ms = max(delays[bucket] for bucket in range(load.first, last + 100))
        late = f"new results came after {latest_ms} ms, usual are {usual_ms}"
        _log.warning("%s; shares left out: %s", late, shares)
        if not is_busy():
            assert latest_ms <= usual_ms + MAX_DELAY_MS, late
    finally:
        live.__exit__()
        feed.close()
        output.close()
