"""A pipeline that is played on a log in memory, for what looks at one: sources that close their
buckets or are missing, stages that go on tentatively and correct, the heartbeats of all.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from anabranch.adapters.memory.log import LocalEventLog
from anabranch.adapters.system.clock import SystemClock
from anabranch.codec import boundary_records
from anabranch.dashboard.access import Access
from anabranch.dashboard.dead_letters import DeadLetterFollower
from anabranch.dashboard.feed import PageFeed
from anabranch.dashboard.market import MarketFollower
from anabranch.dashboard.page import Page
from anabranch.dashboard.server import PageServer
from anabranch.dashboard.serving import http_server
from anabranch.dashboard.topics import TopicFollower
from anabranch.pipeline.file import load
from anabranch.pipeline.internal_topics import internal_topics
from anabranch.pipeline.model import Pipeline
from anabranch.ports import EventLog, TopicPartition
from anabranch.protocol.control.records import Heartbeat
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.records import (
    BoundaryKind,
    BoundaryRecord,
    EpochStarted,
    LogEntry,
    Part,
)
from harness.control_topics import say
from harness.waiting import wait_until

TOLL_ROAD = Path(__file__).parents[2] / "examples/toll_road/pipeline.yaml"
PATIENCE = 6
"""Buckets after which a stage goes on without an input."""
PACE = 3
"""Buckets that a stage corrects in a step."""


class PageScene:
    """Each ``step`` is one bucket of the time that is played; it begins a while before now."""

    def __init__(self, pipeline: Pipeline | None = None, *, past_ms: int = 150_000) -> None:
        self.pipeline = load(TOLL_ROAD) if pipeline is None else pipeline
        self.log = LocalEventLog()
        self.log.admin().create([settings for _, settings in internal_topics(self.pipeline)])
        self.width_ms = self.pipeline.bucket_ms
        self.now_bucket = (SystemClock().now_ms() - past_ms) // self.width_ms
        self.begun = self.now_bucket
        self.cut: set[str] = set()
        self.silent: set[tuple[str, str]] = set()
        """(stage, replica) that write and say nothing."""
        self.hostile_missing = ""
        """Text that stages report in place of the streams that they lack."""
        self.shed = 0
        """Per mille of the rows that tentative results lack."""
        self._writer = self.log.writer()
        self._upto: dict[tuple[str, str], int] = {}
        self._tentative: dict[tuple[str, str], int] = {}
        self._tips: dict[tuple[str, str], BatchId | None] = {}
        self._branch_tips: dict[tuple[str, str], BatchId] = {}
        self._lacking: dict[tuple[str, str], tuple[str, ...]] = {}
        self._numbers: dict[tuple[str, str], int] = {}
        self._batches = 0
        self._offsets: dict[str, int] = {}
        self._epochs: dict[tuple[str, str], int] = {}
        streams = self.pipeline.streams()
        self._replicas = {each: self.pipeline.stream_writers(each) for each in streams}
        for stream, replicas in self._replicas.items():
            for replica in replicas:
                self.begin(stream, replica)

    def begin(self, stream: str, replica: str) -> None:
        """Begin the replica's epoch, at the current bucket if it is new."""
        node = "" if stream in self.pipeline.sources else f"north.{replica}"
        started = EpochStarted(replica, "plan", "token", bucket_ms=self.width_ms, node=node)
        key = stream, replica
        self._epochs[key] = self._append(stream, started)
        if key not in self._upto:
            self._upto[key] = self.begun
            first = self._record(key, self.begun, base=self.begun if replica != "0" else None)
            self._append(stream, first)

    def step(self) -> None:
        """End a bucket."""
        self.now_bucket += 1
        for source in self.pipeline.sources:
            if source not in self.cut:
                self._close(source, "0", self.now_bucket)
        for stage in self.pipeline.order():
            reads = self.pipeline.stages[stage].reads
            for replica in self.pipeline.stages[stage].replica_ids():
                if (stage, replica) in self.silent:
                    continue
                complete = min(self._stable(stream) for stream in reads)
                closed = self._upto[stage, replica]
                behind = self.now_bucket - closed > PATIENCE
                target = min(complete, closed + PACE) if behind else complete
                if target > closed:
                    self._close(stage, replica, target)
                missing = tuple(
                    stream
                    for stream in reads
                    if self._shown(stream) <= self.now_bucket - PATIENCE
                    or self._is_tentative(stream)
                )
                if self.now_bucket - self._upto[stage, replica] > PATIENCE:
                    self._lacking[stage, replica] = missing or self._lacking[stage, replica]
                    self._go_on(stage, replica, self._lacking[stage, replica])
        self._writer.flush()

    def steps(self, many: int) -> None:
        """End so many buckets."""
        for _ in range(many):
            self.step()

    def to_now(self) -> None:
        """Up to the bucket that ends now."""
        self.steps(SystemClock().now_ms() // self.width_ms - self.now_bucket)

    def beats(self) -> None:
        """Everybody says what it does now."""
        now_ms = SystemClock().now_ms()
        say(self.log, self.pipeline, *self._beats(now_ms))

    def _beats(self, now_ms: int) -> Iterator[Heartbeat]:
        for source in self.pipeline.sources:
            if source not in self.cut:
                upto = self._upto[source, "0"]
                yield Heartbeat("ingestion", source, "0", 0, "running", upto, now_ms)
        for stage in self.pipeline.stages.values():
            for replica in stage.replica_ids():
                key = stage.name, replica
                if key in self.silent:
                    continue
                is_behind = self.now_bucket - self._upto[key] > PATIENCE
                lacks = any(
                    self.now_bucket - self._stable(stream) > PATIENCE for stream in stage.reads
                )
                state = "up_failure" if lacks else "stabilization" if is_behind else "stable"
                yield Heartbeat(
                    "processing", *key, 0, "running", self._upto[key], now_ms, replica_state=state
                )
        for output in self.pipeline.outputs:
            yield Heartbeat("delivery", output, "0", 0, "running", self.now_bucket, now_ms)

    def _stable(self, stream: str) -> int:
        return max(self._upto[stream, replica] for replica in self._replicas[stream])

    def _shown(self, stream: str) -> int:
        writers = self._replicas[stream]
        return max(self._tentative.get((stream, replica), 0) for replica in writers) or (
            self._stable(stream)
        )

    def _is_tentative(self, stream: str) -> bool:
        return any(
            self._tentative.get((stream, replica), 0) > self._stable(stream)
            for replica in self._replicas[stream]
        )

    def _close(self, stream: str, replica: str, upto: int) -> None:
        key = stream, replica
        parts = tuple(self._part(bucket) for bucket in range(self._upto[key] + 1, upto + 1))
        self._append(stream, self._record(key, upto, parts))
        self._upto[key] = upto

    def _go_on(self, stage: str, replica: str, missing: tuple[str, ...]) -> None:
        key = stage, replica
        epoch, upto = self._epochs[key], self.now_bucket - PATIENCE + 1
        first = self._upto[key] + 1
        begins = self._tentative.get(key, 0) < first
        shown = self._upto[key] if begins else self._tentative[key]
        if upto <= shown:
            return
        self._batches += 1
        ident = BatchId(f"branch {stage} {replica}", self._batches)
        if begins:
            self._numbers[key] = self._batches
        number = (epoch, self._numbers[key])
        self._append(
            stage,
            BoundaryRecord(
                replica,
                epoch,
                ident,
                self._tips[key] if begins else self._branch_tips[key],
                upto,
                tuple(self._part(bucket) for bucket in range(shown + 1, upto + 1)),
                base=self._upto[key] if begins else None,
                kind=BoundaryKind.TENTATIVE,
                branch=number,
                missing=(self.hostile_missing,) if self.hostile_missing else missing,
                shed=self.shed,
                written_ms=self.now_bucket * self.width_ms + 120,
            ),
        )
        self._branch_tips[key], self._tentative[key] = ident, upto

    def _record(
        self,
        key: tuple[str, str],
        upto: int,
        parts: tuple[Part, ...] = (),
        base: int | None = None,
    ) -> BoundaryRecord:
        self._batches += 1
        ident = BatchId("stable", self._batches)
        late_ms = 180 + self._batches * 37 % 160 + (0 if key[0] in self.pipeline.sources else 420)
        record = BoundaryRecord(
            key[1],
            self._epochs[key],
            ident,
            self._tips.get(key),
            upto,
            parts,
            base=base,
            written_ms=self.now_bucket * self.width_ms + late_ms,
        )
        self._tips[key] = ident
        return record

    @staticmethod
    def _part(bucket: int) -> Part:
        return Part(bucket, 0, f"a{bucket}", 1, 0, 1, 700 + bucket * 7919 % 300, 7)

    def _append(self, stream: str, entry: LogEntry) -> int:
        value, headers = boundary_records.encode(entry)
        at = TopicPartition(self.pipeline.topic_names.boundaries(stream), 0)
        self._writer.send(at, value, headers=headers)
        self._writer.flush()
        self._offsets[stream] = self._offsets.get(stream, -1) + 1
        return self._offsets[stream]


@contextmanager
def page_of(
    pipeline: Pipeline, log: EventLog, token: str | None = None, *, port: int = 0
) -> Iterator[tuple[PageFeed, str]]:
    """Serve the page of a pipeline on ``log`` on loopback. Yield its feed and its address."""
    feed = PageFeed(Page(pipeline), SystemClock())

    def connect() -> tuple[str, EventLog]:
        return "memory", log

    letters = DeadLetterFollower(pipeline, connect, feed)
    page = PageServer(feed, letters, Access(token))
    server = http_server(page)
    with socket.create_server(("127.0.0.1", port)) as listening:
        threads = [
            feed.run_in_thread(
                "topics", TopicFollower(pipeline, connect, feed).work, is_contact=True
            ),
            feed.run_in_thread("letters", letters.work),
        ]
        if pipeline.federation is not None:
            threads.append(
                feed.run_in_thread(
                    "market", MarketFollower(pipeline.federation, connect, feed).work
                )
            )
        serving = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        serving.start()
        try:
            wait_until(lambda: server.started, 60, "the page is served")
            yield feed, f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            feed.stopping.set()
            for thread in [serving, *threads]:
                thread.join(60)
