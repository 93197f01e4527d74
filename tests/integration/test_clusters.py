"""An input on another owner's cluster, which is a real broker: stopped, killed and started again.
The stage's own log is in memory; with Spark, and two brokers, ``tests/spark/test_clusters.py``.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.memory.clock import SeededEntropy
from anabranch.adapters.spark import reading
from anabranch.adapters.spark.source_options import SourceOptions
from anabranch.adapters.system.clock import SystemClock
from anabranch.codec.catalog import TopicSettings
from anabranch.local.embedded_kafka import EmbeddedKafka
from anabranch.processing.replica import ReplicaRunner
from anabranch.processing.replica_environment import HostProcess
from anabranch.protocol.errors import Unavailable
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import CLUSTER_REQUEST_MS
from anabranch.protocol.log.records import BoundaryKind, BoundaryRecord, EpochStarted
from anabranch.protocol.stage.availability import STALL_MS, Availability, Policy, Waits
from anabranch.protocol.stage.replica import StageRules
from anabranch.protocol.stage.scheduling import BatchRules
from anabranch.streams.block_writer import BlockWriter
from anabranch.streams.boundary_reader import BoundaryReader
from anabranch.streams.boundary_writer import BoundaryWriter
from anabranch.streams.distant_reader import DistantReader
from anabranch.streams.range_reader import CLUSTER_PATIENCE_MS
from harness.repeating import repeating
from harness.replica_bench import part
from harness.replica_world import Process, World
from harness.spark_options import SCHEMA, options
from harness.waiting import given_s, wait_until

pytestmark = pytest.mark.integration

WAITS = Waits(first_ms=2_000, next_ms=600)
BUCKET_S = 0.1
LATE_S = 4.0
"""Allowance for a busy machine, in seconds."""


class There:
    """The stream ``b`` on the other cluster."""

    def __init__(self, broker: EmbeddedKafka) -> None:
        self.broker = broker
        self.log = KafkaEventLog(broker.address, request_timeout_ms=CLUSTER_REQUEST_MS)
        admin = self.log.admin()
        admin.create([TopicSettings("b", 1, replication=1)])
        admin.close()
        started = EpochStarted("0", "f", SeededEntropy(1).token())
        self.writer = BoundaryWriter(self.log, "b", ["0"], started, SystemClock())
        self.writer.start()
        self.upto = self.batch = 0

    def close_upto(self, bucket: int) -> None:
        """Write a row into each bucket up to ``bucket``."""
        if bucket <= self.upto:
            return
        parts = tuple(map(part, range(self.upto + 1, bucket + 1)))
        self.batch += 1
        ident = BatchId("l", self.batch)
        record = BoundaryRecord("0", self.writer.epoch, ident, self.writer.tip(), bucket, parts)
        self.writer.append(record)
        self.upto = bucket

    def reader(self) -> DistantReader:
        return DistantReader(self.log, "b", ["0"], lambda: BoundaryReader(self.log, "b", ["0"]))

    def signal(self, number: signal.Signals) -> None:
        assert self.broker.pid is not None
        os.kill(self.broker.pid, number)


class Stage(Process):
    """A process that reads ``a`` in memory, and ``b`` there."""

    def __init__(self, world: World, there: There, seed: int) -> None:
        super().__init__(world, lambda _: None, None, seed)
        self.there, self.distant = there, there.reader()
        self.bucket, self._next_s = 0, given_s()
        self.feeds_there = True
        availability = Availability("ab", WAITS, Policy.PROCESS, elsewhere="b")
        self.runner = ReplicaRunner(
            {"a": BoundaryReader(world.log, "a", ["0"]), "b": self.distant},
            self.boundary,
            world.disk,
            StageRules(world.traits, availability, BatchRules(world.width_ms)),
            HostProcess(SystemClock(), may_wait=False),
        )

    def run_until(self, condition: Callable[[], bool], deadline_s: float = 60) -> None:
        """Feed, follow and run until ``condition``."""
        begun_s = given_s()
        while not condition():
            assert given_s() - begun_s < deadline_s, self.seen()
            if given_s() >= self._next_s:
                self._next_s = given_s() + BUCKET_S
                self.bucket += 1
                self.world.close("a", self.bucket, self.bucket)
                if self.feeds_there:
                    self.there.close_upto(self.bucket)
            self.runner.follow("a", 0)
            self.runner.follow("b", 20)
            self.carry_out_orders()
            for query in list(self.queries):
                self.step(query)

    def seen(self) -> list[tuple[str, int, tuple[str, ...]]]:
        return [(each.kind.value, each.closed, each.missing) for each in self.world.records()[-9:]]

    def stable_upto(self) -> int:
        return self.world.log_state().upto

    def tentative(self, after: int) -> set[tuple[str, ...]]:
        """Return what tentative records of later buckets lack."""
        return {
            each.missing
            for each in self.world.records()
            if each.kind is BoundaryKind.TENTATIVE and each.closed > after
        }


@pytest.fixture
def there(tmp_path: Path) -> Iterator[There]:
    broker = EmbeddedKafka(tmp_path / "there")
    broker.start()
    try:
        yield There(broker)
    finally:
        broker.kill()


def hold(there: There) -> None:
    there.signal(signal.SIGSTOP)
    # Threads of the broker that run on another processor answer until the signal reaches them.
    status = Path(f"/proc/{there.broker.pid}/status")
    wait_until(lambda: "State:\tT" in status.read_text(), 10, "the broker to stand still")


def let_go(there: There) -> None:
    there.signal(signal.SIGCONT)


def kill(there: There) -> None:
    there.broker.kill()


def start(there: There) -> None:
    there.broker.start()


def test_it_is_missed_in_time_while_nobody_answers_and_corrected(there: There) -> None:
    stage = Stage(World(), there, 101)
    stage.begin()
    stage.run_until(lambda: stage.stable_upto() >= 10)
    for away, back in ((hold, let_go), (kill, start)):
        goes_without(stage, away, back)
    at, stage.feeds_there = stage.bucket, False
    hold(there)
    stage.distant.close()
    again = Stage(stage.world, there, 102)  # begins while nobody answers
    again.bucket, again.feeds_there = at, False
    again.begin()
    again.run_until(lambda: ("b",) in again.tentative(at + 5))
    let_go(there)
    again.feeds_there = True
    again.run_until(lambda: again.stable_upto() >= at + 20)
    upto = again.stable_upto()
    again.world.rows |= dict.fromkeys(range(1, upto + 1), 2)
    assert again.world.stable_rows() == again.world.expected(upto)
    again.distant.close()


@contextmanager
def stood_still_s() -> Iterator[list[float]]:
    """Measure the pauses of this whole process, by which every wait is longer (AV4): pauses in
    which not even an idle thread ran. A blocking call is no such pause.
    """
    pauses_s: list[float] = []
    looked_s = given_s()

    def look() -> None:
        nonlocal looked_s
        before_s, looked_s = looked_s, given_s()
        if looked_s - before_s > STALL_MS / 1_000:
            pauses_s.append(looked_s - before_s)

    with repeating(look, 0.05):
        yield pauses_s


def goes_without(
    stage: Stage, away: Callable[[There], None], back: Callable[[There], None]
) -> None:
    """While nobody answers there, new results come without it, and are corrected."""
    at, stage.feeds_there = stage.bucket, False
    away(stage.there)
    begun_s = given_s()
    with stood_still_s() as pauses_s:
        stage.run_until(lambda: stage.tentative(at) != set())
    took_s = given_s() - begun_s - sum(pauses_s)
    assert took_s < WAITS.first_ms / 1_000 + LATE_S
    stage.run_until(lambda: ("b",) in stage.tentative(at + 20))
    assert stage.tentative(at) == {("b",)}
    back(stage.there)
    stage.feeds_there, end = True, stage.bucket
    stage.run_until(lambda: stage.stable_upto() > end and stage.runner.branch is None)


def test_a_read_of_blocks_there_is_given_up_soon_where_nobody_answers(
    there: There, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_readers", {})
    there.log.admin().create([TopicSettings("p.a.blocks.0", 1)])
    writer = BlockWriter(there.log, "p.a.blocks.0", "0", 1, SeededEntropy(1))
    table = pa.table([pa.array(c) for c in ([1, 2], ["x", "y"], [110, 120])], schema=SCHEMA)
    parts = writer.write([(0, 2, table)])
    writer.close()
    given = options(kafka=there.broker.address, cluster="east", is_own=False)
    taken = [("a", "0", tuple(parts))]
    found = [batch.to_pylist() for batch in reading.rows(given, taken)]
    assert [[row["text"] for row in rows] for rows in found] == [["x", "y"]]
    hold(there)
    begun_s = given_s()
    with pytest.raises(Unavailable):
        list(reading.rows(options(**changed(given), query="another"), taken))
    took_s = given_s() - begun_s
    assert took_s < (CLUSTER_PATIENCE_MS + CLUSTER_REQUEST_MS) / 1_000 + LATE_S
    let_go(there)
    again = reading.rows(options(**changed(given), query="another"), taken)
    assert [batch.num_rows for batch in again] == [2]


def changed(given: SourceOptions) -> dict[str, object]:
    return {"kafka": given.kafka, "cluster": given.cluster, "is_own": given.is_own}
