"""A stage reads a stream on another owner's Kafka cluster, with real Spark and two real brokers. It
goes on without that cluster when nobody answers there, also where its own node starts meanwhile,
and corrects when it is back.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from anabranch.local.embedded_kafka import EmbeddedKafka
from anabranch.pipeline.file import load
from anabranch.protocol.errors import Unavailable
from anabranch.protocol.log.boundary_log import Outcome
from anabranch.protocol.log.records import BoundaryKind, BoundaryRecord, LogEntry
from harness.stage_processes import StageProcess
from harness.stages import (
    WIDTH_MS,
    Feed,
    Output,
    create_topics,
    readings,
    rows_of,
    sums_of,
    write_pipeline,
)
from harness.waiting import wait_until

pytestmark = pytest.mark.integration

MAX_DELAY_MS: Final = 2_000
STARTS_WITHIN_S: Final = 180
"""A node, with a cold Spark."""
GOES_ON_WITHIN_S: Final = 60
"""A busy machine, and a batch that was reading there when the cluster went away."""
STAGES = "counts:\n  reads: [b, theirs]\n  transform: MODULE:counts\n"
FUNCTIONS = """
from pyspark.sql import functions as F


def counts(b, theirs):
    rows = b.select("value", "event_time").unionByName(theirs.select("value", "event_time"))
    windows = rows.groupBy(F.window("event_time", "200 milliseconds"))
    sums = windows.agg(F.count("*").alias("n"), F.sum("value").alias("total"))
    return sums.select("n", "total", F.col("window.end").alias("event_time"))
"""

THEIR_FUNCTIONS = """
def theirs(a):
    return a
"""
"""Nobody runs it: the test writes the stream."""


def expected(last: int) -> Counter[tuple[int, int, int]]:
    """(window's end, rows, sum) until bucket ``last``: each row comes from both clusters."""
    rows = [row for bucket in range(1, last + 1) for row in rows_of(bucket)]
    return sums_of(((time_ms, value) for time_ms, _, value in [*rows, *rows]), last)


class Two:
    """Our pipeline on the one cluster, their stream on the other, and traffic for both."""

    def __init__(self, kafka: str, there: EmbeddedKafka, folder: Path, prefix: str) -> None:
        self.kafka, self.folder = kafka, folder
        self.there = there
        self.theirs = write_pipeline(
            folder / "theirs",
            f"{prefix}_theirs",
            THEIR_FUNCTIONS,
            stages="theirs:\n  reads: [a]\n  transform: MODULE:theirs\n",
        )
        ours = write_pipeline(
            folder / "ours",
            f"{prefix}_ours",
            FUNCTIONS,
            sources=("b",),
            stages=STAGES,
            live=True,
            max_delay_ms=MAX_DELAY_MS,
            more=f"clusters: {{away: {{kafka: '{there.address}'}}}}\n"
            f"bindings: {{theirs: {{pipeline: {self.theirs.name}, stream: theirs,"
            " record: reading.avsc, cluster: away}}\n",
        )
        self.ours = load(ours.path)
        create_topics(kafka, self.ours)
        create_topics(there.address, self.theirs)
        self._own, self._away = (
            Feed(kafka, self.ours, "b"),
            Feed(there.address, self.theirs, "theirs"),
        )
        self.bucket, self.bucket_there = 0, 0
        self._fed, self._ending = threading.Event(), threading.Event()
        self._between = threading.Lock()
        self._thread = threading.Thread(target=self._feed, daemon=True)
        self.seen: list[tuple[float, BoundaryRecord]] = []
        self.output = Output(kafka, self.ours, "counts")
        self.output.reader.listen(self._take)

    def _take(self, _: int, entry: LogEntry, outcome: Outcome) -> None:
        if outcome.accepted and isinstance(entry, BoundaryRecord):
            self.seen.append((time.monotonic(), entry))

    def _feed(self) -> None:
        while not self._ending.wait(WIDTH_MS / 1_000):
            self.bucket += 1
            self._own.append(readings(rows_of(self.bucket)), self.bucket)
            with self._between:
                while self._fed.is_set() and self.bucket_there < self.bucket:
                    self.bucket_there += 1
                    rows = readings(rows_of(self.bucket_there))
                    self._away.append(rows, self.bucket_there)

    def feed(self) -> None:
        self._fed.set()
        self._thread.start()

    def leave_alone(self) -> None:
        """Nothing is written there any more."""
        self._fed.clear()
        with self._between:
            pass

    def feed_again(self) -> None:
        """All that was left out, too, once the broker there answers."""
        self._away.close()

        def again() -> Feed | None:
            with contextlib.suppress(Unavailable):
                return Feed(self.there.address, self.theirs, "theirs")
            return None

        made = wait_until(again, STARTS_WITHIN_S, "their broker answers again")
        assert made is not None
        self._away = made
        self._fed.set()

    def stop_feeding(self) -> None:
        if self._thread.is_alive():
            wait_until(lambda: self.bucket_there == self.bucket, 30, "both have the same")
        self._ending.set()
        self._thread.join()

    def node(self) -> StageProcess:
        (label,) = self.ours.nodes()
        return StageProcess(self.ours, label, self.kafka, self.folder / "state")

    def tentative(self) -> list[tuple[float, BoundaryRecord]]:
        self.output.reader.poll(50)
        return [each for each in self.seen if each[1].kind is BoundaryKind.TENTATIVE]

    def wait_without(self, after: int) -> None:
        """Until there are tentative results of buckets far beyond ``after``."""
        log_state = self.output.reader.log_state
        wait_until(
            lambda: self.tentative() != [] and log_state.tentative_upto("0") > after + 10,
            GOES_ON_WITHIN_S,
            "tentative buckets without the other cluster",
        )

    def close(self) -> None:
        self._ending.set()
        self._own.close()
        self._away.close()
        self.output.close()


@pytest.fixture
def two(kafka: str, tmp_path: Path, topic_prefix: str) -> Iterator[Two]:
    there = EmbeddedKafka(tmp_path / "there")
    there.start()
    try:
        found = Two(kafka, there, tmp_path, topic_prefix)
        yield found
        found.close()
    finally:
        there.kill()


def hold(broker: EmbeddedKafka, number: signal.Signals) -> None:
    assert broker.pid is not None
    os.kill(broker.pid, number)


@pytest.mark.nightly  # without Spark: tests/integration/test_clusters.py
def test_a_cluster_that_does_not_answer_is_a_missing_input(two: Two) -> None:
    with two.node() as node:
        wait_until(lambda: "placed" in node.all_of_its_log(), STARTS_WITHIN_S, "Spark has started")
        two.feed()
        two.output.wait_closed(20, deadline_s=STARTS_WITHIN_S)
        node.check()
        first = len(two.tentative())
        two.leave_alone()
        hold(two.there, signal.SIGSTOP)
        stopped_at, stopped_s = two.bucket, time.monotonic()
        two.wait_without(stopped_at)
        at_s, _ = two.tentative()[first]
        print(f"first tentative after {at_s - stopped_s:.2f} s, at bucket {stopped_at}")
        given = two.bucket_there
        assert {r.missing for _, r in two.tentative() if r.closed > given} == {("theirs",)}
        hold(two.there, signal.SIGCONT)
        two.feed_again()
        two.output.wait_closed(stopped_at + 20)
        node.check()
        two.leave_alone()
        two.there.kill()
        died_at = two.bucket
        two.wait_without(died_at)
        node.kill()
    with two.node() as node:  # begins while nobody answers there
        begun = len(two.tentative())
        begun_at = two.bucket
        wait_until(
            lambda: len(two.tentative()) > begun, STARTS_WITHIN_S, "a new node goes on without it"
        )
        two.wait_without(begun_at)
        assert two.output.reader.log_state.upto < died_at + 10
        assert {record.missing for _, record in two.tentative()[begun:]} == {("theirs",)}
        two.there.start()
        two.feed_again()
        two.output.wait_closed(begun_at + 20, deadline_s=STARTS_WITHIN_S)
        two.stop_feeding()
        two.output.wait_closed(two.bucket)
        node.check()
    found = Counter(
        (row["event_time"], row["n"], row["total"])
        for rows in two.output.buckets(1, two.bucket).values()
        for row in rows
    )
    assert found == expected(two.bucket)
