"""Every service killed at each of its crash points, twice in a row where that differs: what comes
out is what the oracle says.

A service is a process of its own and kills itself; what stands around it are stand-ins on the same
real broker. The points of a stage's query are in ``test_stage_crashes`` and ``test_branches``,
which need Spark; here a replica without Spark stands for its failover.
"""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager
from itertools import count as numbers
from itertools import islice
from pathlib import Path

import pytest

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.redis.index import RedisIndex
from anabranch.adapters.system.clock import SystemClock
from anabranch.adapters.system.entropy import SystemEntropy
from anabranch.codec import boundary_records, control_records
from anabranch.consistency_manager.index_image import ENTRY_LIFETIME_MS
from anabranch.pipeline.topic_names import TopicNames
from anabranch.ports import TopicPartition
from anabranch.protocol.control.records import Alarm, Heartbeat, TrimPoint
from anabranch.protocol.edge.live_delivery import Kind
from anabranch.protocol.edge.source_batches import SOURCE_BATCH_RECORDS
from anabranch.protocol.identifiers import BatchId, RecordId
from anabranch.protocol.limits import SNAPSHOT_EVERY_RECORDS
from anabranch.protocol.log.records import BoundaryRecord, EpochStarted
from anabranch.streams.block_reader import BlockReader
from anabranch.streams.boundary_reader import BoundaryReader
from harness import file_replica
from harness.control_topics import beating
from harness.crash_world import DEADLINE_S, World
from harness.outputs import Replica, delivered, ids, live_records_of, live_view, rows
from harness.redis import stored
from harness.replica_world import stable_rows
from harness.service_processes import ModuleProcess
from harness.sources import StreamView, everything, report
from harness.waiting import wait_until

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param("ingestion.fetched", "ingestion.fetched", marks=pytest.mark.nightly),
        pytest.param("ingestion.decoded", "ingestion.decoded", marks=pytest.mark.nightly),
        pytest.param(
            "ingestion.blocks_written", "ingestion.blocks_written", marks=pytest.mark.nightly
        ),
        ("ingestion.blocks_written:2", "ingestion.boundary_appended"),
        pytest.param(
            "ingestion.boundary_appended",
            "ingestion.boundary_appended:2",
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_ingestion(kafka: str, topic_prefix: str, tmp_path: Path, first: str, second: str) -> None:
    world = World(kafka, topic_prefix, tmp_path)
    writer, cars = world.log.writer(), iter(range(10_000))

    def produce(count: int) -> None:
        """Whole buckets of 100: where a start takes long, silence closes what was there, and
        nothing may come late.
        """
        for car in (next(cars) for _ in range(count)):
            value = b"broken" if car % 50 == 7 else report(1_001 + 10 * (car // 10), car)
            writer.send(TopicPartition(f"{world.name}.reports", car % 2), value)
        writer.flush()

    produce(400)
    with world.run("ingestion", "reports", first) as process:
        if first.endswith(":2"):
            view = StreamView(world.log, world.pipeline, world.clock)
            wait_until(
                lambda: view.closed() >= 0 and view.last() is not None,
                DEADLINE_S,
                lambda: f"a first record:\n{process.log()}",
            )
            view.close()
            produce(100)
        process.wait_killed()
    produce(300)
    with world.run("ingestion", "reports", second) as process:
        if second.endswith(":2"):
            produce(100)
        process.wait_killed()
    produce(200)
    count = next(cars)
    view = StreamView(world.log, world.pipeline, world.clock)
    end = 10 + count // 100
    world.until("ingestion", "reports", lambda: view.closed() >= end)
    assert view.cars() == [car for car in range(count) if car % 50 != 7]
    dead = [
        value
        for chunk in everything(world.log, f"{world.name}.reports.rejected")
        for value in chunk.values
    ]
    assert set(dead) == {b"broken"}
    assert len(dead) >= sum(1 for car in range(count) if car % 50 == 7), (
        "a dead letter may come twice, but it comes"
    )
    view.close()
    writer.close()


def test_ingestion_in_a_backlog(kafka: str, topic_prefix: str, tmp_path: Path) -> None:
    """Killed while the blocks of a round and the record of the round before are under way."""
    world, count = World(kafka, topic_prefix, tmp_path), 4 * SOURCE_BATCH_RECORDS
    writer = world.log.writer()
    for car in range(count):
        value = b"broken" if car % 5_000 == 7 else report(1_001 + 10 * (car // 1_000), car)
        writer.send(TopicPartition(f"{world.name}.reports", car % 2), value)
    writer.flush()
    writer.close()
    world.killed("ingestion", "reports", "ingestion.blocks_begun:3")
    world.killed("ingestion", "reports", "ingestion.blocks_begun:2")
    view = StreamView(world.log, world.pipeline, world.clock)
    end = -(-(1_001 + 10 * ((count - 1) // 1_000)) // 100)
    world.until("ingestion", "reports", lambda: view.closed() >= end)
    assert view.cars() == [car for car in range(count) if car % 5_000 != 7]
    dead = Counter(
        value
        for chunk in everything(world.log, f"{world.name}.reports.rejected")
        for value in chunk.values
    )
    assert set(dead) == {b"broken"}
    assert dead[b"broken"] >= sum(car % 5_000 == 7 for car in range(count))
    view.close()


SIZES = {1: 3, 2: 700, 4: 1, 5: 40, 7: 900, 9: 5}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param("delivery.fenced", "delivery.fenced", marks=pytest.mark.nightly),
        pytest.param("delivery.read_back", "delivery.read_back", marks=pytest.mark.nightly),
        pytest.param("delivery.records_sent", "delivery.records_sent", marks=pytest.mark.nightly),
        pytest.param("delivery.progress_sent", "delivery.progress_sent", marks=pytest.mark.nightly),
        pytest.param("delivery.committed", "delivery.committed", marks=pytest.mark.nightly),
        pytest.param("delivery.committed", "delivery.read_back", marks=pytest.mark.nightly),
        ("delivery.progress_sent:2", "delivery.fenced"),
    ],
)
def test_delivery(kafka: str, topic_prefix: str, tmp_path: Path, first: str, second: str) -> None:
    world = World(kafka, topic_prefix, tmp_path)
    replica = Replica(world.log, world.pipeline, world.clock, world.entropy)
    replica.close_buckets(3, {n: rows(n, SIZES[n]) for n in (1, 2)})
    with world.run("delivery", "out", first) as process:
        if first.endswith(":2"):
            wait_until(
                lambda: _delivered(world) == ids({1: 3, 2: 700}),
                DEADLINE_S,
                lambda: f"the first buckets:\n{process.log()}",
            )
            replica.close_buckets(4, {4: rows(4, SIZES[4])})
        process.wait_killed()
    if not first.endswith(":2"):
        replica.close_buckets(4, {4: rows(4, SIZES[4])})
    replica.close_buckets(6, {5: rows(5, SIZES[5])})
    world.killed("delivery", "out", second)
    replica.close_buckets(9, {n: rows(n, SIZES[n]) for n in (7, 9)})
    world.until("delivery", "out", lambda: len(_delivered(world)) >= sum(SIZES.values()))
    _check_delivered(world)
    replica.close()


@pytest.mark.parametrize("killed", ["out.0", pytest.param("out.1", marks=pytest.mark.nightly)])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param("delivery.fenced", "delivery.fenced", marks=pytest.mark.nightly),
        pytest.param("delivery.read_back", "delivery.read_back", marks=pytest.mark.nightly),
        pytest.param("delivery.records_sent", "delivery.records_sent", marks=pytest.mark.nightly),
        pytest.param("delivery.progress_sent", "delivery.committed", marks=pytest.mark.nightly),
        ("delivery.committed", "delivery.read_back"),
    ],
)
def test_a_shard_of_delivery(
    kafka: str, topic_prefix: str, tmp_path: Path, first: str, second: str, killed: str
) -> None:
    """Killed twice, while the other goes on."""
    world = World(kafka, topic_prefix, tmp_path, shards="2")
    replica = Replica(world.log, world.pipeline, world.clock, world.entropy)
    replica.close_buckets(3, {n: rows(n, SIZES[n]) for n in (1, 2)})
    (other,) = {"out.0", "out.1"} - {killed}
    with world.run("delivery", other) as process:
        world.killed("delivery", killed, first)
        replica.close_buckets(6, {n: rows(n, SIZES[n]) for n in (4, 5)})
        world.killed("delivery", killed, second)
        replica.close_buckets(9, {n: rows(n, SIZES[n]) for n in (7, 9)})
        world.until("delivery", killed, lambda: len(_delivered(world)) >= sum(SIZES.values()))
        assert process.alive()
    assert all(_check_delivered(world)), "each shard has some"
    replica.close()


def _check_delivered(world: World) -> list[list[RecordId]]:
    """Everything is there once, and in order; what is in each partition."""
    found = delivered(world.log, world.pipeline)
    partitions = [[ident for p, ident, _, _ in found if p == partition] for partition in (0, 1)]
    for own in partitions:
        assert own == sorted(own), "order"
    assert _delivered(world) == ids(SIZES)
    return partitions


def _delivered(world: World) -> list[RecordId]:
    try:
        return sorted(ident for _, ident, _, _ in delivered(world.log, world.pipeline))
    except KeyError:  # the topic is not there yet
        return []


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param("live.fenced", "live.fenced", marks=pytest.mark.nightly),
        pytest.param("live.records_sent", "live.records_sent:2", marks=pytest.mark.nightly),
        pytest.param("live.progress_sent", "live.progress_sent:2", marks=pytest.mark.nightly),
        pytest.param("live.committed", "live.committed:2", marks=pytest.mark.nightly),
        ("live.committed:2", "live.committed"),
    ],
)
def test_live_delivery(
    kafka: str, topic_prefix: str, tmp_path: Path, first: str, second: str
) -> None:
    """Killed before, in and after a failure that is shown and corrected."""
    world = World(kafka, topic_prefix, tmp_path, live=True)
    replica = Replica(world.log, world.pipeline, world.clock, world.entropy)
    sizes = {1: 3, 2: 7, 4: 5, 5: 4, 7: 9}
    replica.close_buckets(2, {n: rows(n, sizes[n]) for n in (1, 2)})
    replica.show(5, {4: rows(4, 2), 5: rows(5, 3)}, fork=True)
    with replica.beating():
        world.killed("delivery", "out", first)
        replica.show(7, {7: rows(7, 1)})
        with world.run("delivery", "out", second) as process:
            if process.process.poll() is None and second.endswith(":2"):
                replica.close_buckets(4, {4: rows(4, sizes[4])})
            process.wait_killed()
    replica.close_buckets(7, {5: rows(5, sizes[5]), 7: rows(7, sizes[7])})
    replica.end_branch()
    expected = ids(sizes) if second.endswith(":2") else ids({**sizes, 4: 0})
    world.until(
        "delivery",
        "out",
        lambda: len(_delivered(world)) == len(expected) and _live(world) == expected,
    )
    records = [
        record for partition, record in live_records_of(world.log, world.pipeline) if partition == 0
    ]
    undone = sum(record.kind is Kind.UNDO for record in records)
    assert undone == sum(record.kind is Kind.REC_DONE for record in records)
    assert undone == int(
        any(
            record.kind is Kind.TENTATIVE
            for _, record in live_records_of(world.log, world.pipeline)
        )
    )
    replica.close()


def _live(world: World) -> list[RecordId]:
    """Ids of the stable answer that a client has; nothing while some of it is tentative."""
    try:
        view = live_view(world.log, world.pipeline)
    except KeyError:  # the topic is not there yet
        return []
    return (
        []
        if list(view.tentative())
        else sorted(record.id for record in view.stable() if record.id is not None)
    )


def delivery_at(world: World, bucket: int, checkpoint: int) -> AbstractContextManager[None]:
    """Repeat a delivery's heartbeat while the block lasts, since an old one does not count."""
    topic = world.pipeline.topic_names.control("delivery", "out")
    beat = Heartbeat("delivery", "out", "0", -1, "running", bucket, 0, checkpoint_bucket=checkpoint)
    return beating(world.log, topic, world.clock, lambda: beat)


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("manager.alarms_written", marks=pytest.mark.nightly),
        pytest.param("manager.control_written", marks=pytest.mark.nightly),
        "manager.blocks_deleted",
        pytest.param("manager.index_written:3", marks=pytest.mark.nightly),
    ],
)
def test_manager(kafka: str, topic_prefix: str, redis_url: str, tmp_path: Path, point: str) -> None:
    world = World(kafka, topic_prefix, tmp_path)
    replicas = [
        Replica(world.log, world.pipeline, world.clock, world.entropy, name) for name in "01"
    ]
    index = RedisIndex(redis_url, timeout_ms=20_000)
    index.put(f"anabranch:{world.name}:stream:gone", {"upto": "1"}, expire_ms=ENTRY_LIFETIME_MS)
    for replica, count in zip(replicas, (6, 7), strict=True):
        replica.close_buckets(9, {**{n: rows(n, 10) for n in range(1, 9)}, 9: rows(9, count)})
    with delivery_at(world, 9, checkpoint=6):
        world.killed("consistency_manager", world.name, point, redis_url)
    for replica, count in zip(replicas, (6, 7), strict=True):
        replica.close_buckets(10, {10: rows(10, count)})
    with delivery_at(world, 10, checkpoint=7):
        world.killed("consistency_manager", world.name, point, redis_url)

    def control_entries() -> list[object]:
        names = world.pipeline.topic_names
        chunks = [
            c
            for t in (names.manager(), names.alarms())
            for c in everything(world.log, t, wait_ms=300)
        ]
        return [control_records.decode(value) for chunk in chunks for value in chunk.values]

    def whole() -> bool:
        reader = world.log.reader()
        places = [
            TopicPartition(world.pipeline.topic_names.blocks("totals", r), p)
            for r in "01"
            for p in (0, 1)
        ]
        gone = all(reader.offsets(at)[0] > 0 for at in places)
        reader.close()
        stale = stored(redis_url, f"anabranch:{world.name}:stream:gone")
        kept = stored(redis_url, f"anabranch:{world.name}:stream:totals") == {"upto": "10"}
        return (
            gone
            and kept
            and not stale
            and stored(redis_url, f"anabranch:{world.name}:trim:totals") == {"bucket": "7"}
        )

    with delivery_at(world, 10, checkpoint=7):
        world.until("consistency_manager", world.name, whole, redis_url)
    entries = control_entries()
    alarms = [entry for entry in entries if isinstance(entry, Alarm)]
    assert [(a.kind, a.bucket) for a in alarms] == [
        ("digest_mismatch", 9),
        ("digest_mismatch", 10),
    ], "known again after the kill"
    assert [(e.stream, e.bucket) for e in entries if isinstance(e, TrimPoint)] == [
        ("totals", 6),
        ("totals", 7),
    ]
    following = BoundaryReader(
        world.log, world.pipeline.topic_names.boundaries("totals"), ["0", "1"]
    )
    following.read_to_end()
    blocks = BlockReader(
        world.log, lambda r: world.pipeline.topic_names.blocks("totals", r), world.clock
    )
    for name in "01":
        wanted = [(b, name, following.log_state.replica_bucket(name, b) or ()) for b in (8, 9, 10)]
        assert [bucket for bucket, _ in blocks.read_buckets(wanted)] == [8, 9, 10], (
            "what is needed is there"
        )
    following.close()
    blocks.close()
    index.close()
    for replica in replicas:
        replica.close()


@pytest.mark.parametrize(
    "point",
    [pytest.param("manager.snapshot_written", marks=pytest.mark.nightly), "manager.log_trimmed"],
)
def test_manager_trims_a_boundary_log(
    kafka: str, topic_prefix: str, tmp_path: Path, point: str
) -> None:
    world = World(kafka, topic_prefix, tmp_path)
    at = TopicPartition(world.pipeline.topic_names.boundaries("reports"), 0)
    whole = BoundaryReader(world.log, at.topic, ["0"])
    writer, batches = world.log.writer(), numbers()

    def grow() -> None:
        """Append as many records as make a log snapshot due."""
        batch = 0
        for batch in islice(batches, SNAPSHOT_EVERY_RECORDS):
            ident, prev = BatchId("l", batch), BatchId("l", batch - 1) if batch else None
            value, headers = boundary_records.encode(BoundaryRecord("0", 0, ident, prev, batch + 1))
            writer.send(at, value, headers=headers)
        writer.flush()
        whole.read_to_end()
        assert whole.log_state.upto == batch + 1

    def begins() -> int:
        reader = world.log.reader()
        found = reader.offsets(at)[0]
        reader.close()
        return found

    value, headers = boundary_records.encode(EpochStarted("0", "f", "t"))
    writer.send(at, value, headers=headers)
    grow()
    if point == "manager.log_trimmed":  # nothing is deleted before there are two
        world.until(
            "consistency_manager",
            world.name,
            lambda: whole.poll(100) * 0 + whole.counts["log_snapshot"],
        )
        grow()
    for _ in range(2):
        world.killed("consistency_manager", world.name, point)
        grow()
    before = begins()
    assert before > 0 or point == "manager.snapshot_written"
    world.until("consistency_manager", world.name, lambda: begins() > before)
    whole.read_to_end()
    again = BoundaryReader(world.log, at.topic, ["0"])
    again.read_to_end()
    assert again.counts["adopted"] == 1
    assert again.log_state.snapshot(0) == whole.log_state.snapshot(0)
    writer.close()
    whole.close()
    again.close()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(
            "processing.peer_copied", "processing.peer_copied:2", marks=pytest.mark.nightly
        ),
        pytest.param("checkpoint.copying", "checkpoint.copying:2", marks=pytest.mark.nightly),
        pytest.param(
            "processing.timeline_written", "processing.timeline_written", marks=pytest.mark.nightly
        ),
        ("processing.timeline_written", "processing.checkpoint_copied"),
        pytest.param(
            "processing.base_appended", "processing.checkpoint_copied", marks=pytest.mark.nightly
        ),
        pytest.param(
            "processing.base_appended", "processing.base_appended", marks=pytest.mark.nightly
        ),
    ],
)
def test_failover_of_a_replica(
    kafka: str, topic_prefix: str, tmp_path: Path, first: str, second: str
) -> None:
    """A replica that has lost its disk, while its peer lives; the beginning of the input is
    deleted.
    """
    log = KafkaEventLog(kafka)
    names = TopicNames(topic_prefix)
    clock = SystemClock()
    entropy = SystemEntropy()
    file_replica.create_topics(log, names)
    source = file_replica.Source(log, names, clock, entropy)
    peer = file_replica.FileReplica(log, names, "0", tmp_path, clock, entropy)
    peer.start()
    for upto in range(2, 21, 2):
        source.close(upto, *([upto - 1, upto] if upto % 8 else []))
        peer.settle()
    source.trim(10)

    def run(crash_point: str, upto: int) -> ModuleProcess:
        arguments = [kafka, topic_prefix, "1", str(tmp_path), str(upto)]
        return ModuleProcess(
            "harness.file_replica", arguments, tmp_path / "log", crash_point=crash_point
        )

    for point in (first, second):
        with run(point, 26) as process:
            process.wait_killed()
    source.close(26, 21, 22, 25)
    with run("", 26) as process:
        wait_until(lambda: process.process.poll() is not None, DEADLINE_S, process.log)
        assert process.process.returncode == 0, process.log()
    peer.settle()
    log_state = file_replica.stage_log_state(log, names)
    assert stable_rows(log_state) == source.expected(26)
    assert file_replica.replica_rows(log_state, "1", 21) == {
        b: n for b, n in source.expected(26).items() if b > 20
    }
    assert log_state.closed("1") == 26
    peer.close()
