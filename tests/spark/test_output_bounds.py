"""Two outputs of one stage on real Spark and a real broker, each with a bound of its own: one shows
tentative results of a failure, the other waits until the input is back.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.codec.catalog import topic_settings
from anabranch.codec.live_records import KIND_HEADER
from anabranch.pipeline.model import Pipeline
from anabranch.ports import TopicPartition
from harness import two_inputs
from harness.live_feeds import LiveFeed, LiveFeeds, pace_batches
from harness.service_processes import service
from harness.stages import (
    STARTS_WITHIN_S,
    Feed,
    RunningStage,
    create_topics,
    write_pipeline,
)
from harness.two_inputs import rows_a, rows_b
from harness.waiting import given_s, is_busy, wait_until

_log = logging.getLogger(__name__)

pytestmark = pytest.mark.integration

HASTY_MS, PATIENT_MS = 1_500, 10_000
"""Bounds of the two outputs."""
FAILURE_S = 5
PERIOD_MS = 100
STEADY_S = 5
CORRECTED_WITHIN_S = 240


@dataclass
class LiveTopic:
    """Reader of a live topic that notes when a record of which kind came."""

    kafka: str
    topic: str
    partitions: int
    kinds: list[tuple[int, str]] = field(default_factory=list)
    """(time in ms by ``waiting.given_s``, kind) of each record, control records included."""

    def __post_init__(self) -> None:
        self._reader = KafkaEventLog(self.kafka).reader(committed=True, headers=True)
        self._reader.assign(
            {TopicPartition(self.topic, each): 0 for each in range(self.partitions)}
        )

    def poll(self) -> None:
        for chunk in self._reader.fetch(1_000, 20):
            now_ms = round(given_s() * 1_000)
            for headers in chunk.headers or ():
                self.kinds.append((now_ms, (dict(headers).get(KIND_HEADER) or b"").decode()))

    def results_ms(self) -> list[int]:
        """Return when results came, tentative or stable."""
        return [at_ms for at_ms, kind in self.kinds if kind in ("insertion", "tentative")]

    def count(self, kind: str) -> int:
        return sum(each == kind for _, each in self.kinds)

    def close(self) -> None:
        self._reader.close()


def longest_ms(times: list[int], since_ms: int, until_ms: int) -> int:
    """Return the longest time without results from ``since_ms`` to ``until_ms``."""
    inside = [since_ms, *(each for each in times if since_ms < each < until_ms), until_ms]
    return max(later - earlier for earlier, later in pairwise(inside))


def pipeline_of(folder: Path) -> Pipeline:
    name = f"bounds_{uuid.uuid4().hex[:8]}"
    patient = (
        f"  patient:\n    stage: merged\n    max_delay: {PATIENT_MS}ms\n"
        f"    corrected: {{topic: {name}.patient, key: []}}\n"
        f"    live: {{topic: {name}.patient.live}}"
    )
    return write_pipeline(
        folder,
        name,
        two_inputs.FUNCTIONS,
        sources=("a", "b"),
        live=True,
        max_delay_ms=HASTY_MS,
        stages="merged:\n  participant: north\n  reads: [a, b]\n  transform: MODULE:both\n",
        more=patient,
    )


def create_live_topics(kafka: str, pipeline: Pipeline) -> None:
    """Create the live topics before delivery does: the test reads them from the beginning."""
    admin = KafkaEventLog(kafka).admin()
    wanted = [
        topic_settings("live", output.live.topic, pipeline.partitions)
        for output in pipeline.outputs.values()
        if output.live is not None
    ]
    assert not admin.create(wanted)
    admin.close()


def test_each_output_keeps_its_own_bound(
    kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pace_batches(monkeypatch)
    pipeline = pipeline_of(tmp_path)
    create_topics(kafka, pipeline)
    create_live_topics(kafka, pipeline)
    feeds = [Feed(kafka, pipeline, source) for source in ("a", "b")]
    a, b = LiveFeed(feeds[0], rows_a), LiveFeed(feeds[1], rows_b)
    live = LiveFeeds([a, b], PERIOD_MS)
    with ExitStack() as stack:
        for feed in feeds:
            stack.callback(feed.close)
        deliveries = [
            stack.enter_context(
                service("delivery", output, pipeline.path, kafka, tmp_path / "state")
            )
            for output in pipeline.outputs
        ]
        stage = stack.enter_context(RunningStage(pipeline, "merged.0", kafka, tmp_path / "state"))
        stack.enter_context(live)
        topics = [
            LiveTopic(kafka, sink.topic, pipeline.partitions)
            for output in pipeline.outputs.values()
            if (sink := output.live) is not None
        ]
        for topic in topics:
            stack.callback(topic.close)
        hasty, patient = topics

        def until(is_met: Callable[[], bool], deadline_s: float, what: str) -> None:
            def check() -> bool:
                if live.error is not None:
                    raise live.error
                stage.check()
                for each in deliveries:
                    each.alive()
                for topic in topics:
                    topic.poll()
                return is_met()

            wait_until(check, deadline_s, what)

        def passed(since_s: float, seconds: float) -> bool:
            return given_s() - since_s >= seconds

        until(lambda: all(t.count("insertion") > 50 for t in topics), STARTS_WITHIN_S, "results")
        until(
            lambda: hasty.results_ms()[-1] >= live.due_ms[live.bucket - 1] - 1_000,
            STARTS_WITHIN_S,
            "it keeps up",
        )
        steady_s = given_s()
        until(lambda: passed(steady_s, STEADY_S), STARTS_WITHIN_S, "usual delays")
        shown_before = hasty.count("tentative")
        b.cut()
        cut_s = given_s()
        until(
            lambda: passed(cut_s, FAILURE_S) and hasty.count("tentative") > shown_before,
            STARTS_WITHIN_S,
            "the failure, and results without b",
        )
        b.heal()
        healed_ms = round(given_s() * 1_000)
        until(
            lambda: bool(hasty.count("rec_done")) and hasty.kinds[-1][1] == "boundary",
            CORRECTED_WITHIN_S,
            "the corrections",
        )
        stable = patient.count("insertion")
        until(lambda: patient.count("insertion") > stable, CORRECTED_WITHIN_S, "stable results")
        kinds = {kind for _, kind in patient.kinds}
    usual_ms = longest_ms(hasty.results_ms(), round(steady_s * 1_000), round(cut_s * 1_000))
    gap_ms = longest_ms(hasty.results_ms(), round(cut_s * 1_000) - 500, healed_ms)
    late = f"{gap_ms} ms without a result while b is cut off; usual are {usual_ms}"
    if is_busy():
        _log.warning("others had the machine, delays are not judged: %s; %s", late, kinds)
        return
    assert gap_ms <= usual_ms + HASTY_MS + PERIOD_MS, late
    assert kinds == {"insertion", "boundary"}, "nothing tentative, so no undo and no rec_done"
