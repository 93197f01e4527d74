"""Log snapshots and trimming of boundary logs, on a log in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.adapters.key_files import VARIABLE, write_key
from anabranch.adapters.memory.clock import SeededEntropy
from anabranch.adapters.memory.log import LocalLogAdmin, LocalLogWriter
from anabranch.adapters.signing import SigningKey
from anabranch.codec import boundary_records
from anabranch.codec.signed_records import by_one_of, signature_of, signed_message
from anabranch.consistency_manager.log_trimming import LogTrimming
from anabranch.consistency_manager.service import ConsistencyManager
from anabranch.pipeline.internal_topics import internal_topics
from anabranch.pipeline.model import Federation
from anabranch.ports import Headers, TopicPartition
from anabranch.protocol import limits
from anabranch.protocol.errors import DataMissing, LocalProtocolError, OutcomeUnknown, Unavailable
from anabranch.protocol.limits import TRIM_EVERY_MS
from anabranch.protocol.log import log_snapshots, writer_state
from anabranch.protocol.log.records import LogEntry, LogSnapshot
from anabranch.streams.boundary_reader import BoundaryReader
from harness import outputs
from harness.manager_world import ManagerWorld
from harness.outputs import Replica, create_topics, rows

AT = TopicPartition("p.totals.boundaries", 0)
EVERY = 20


class World(ManagerWorld):
    """Pipeline with its manager, and a reader that has read the log from the beginning."""

    def __init__(self) -> None:
        super().__init__()
        self.bucket = 0
        self.whole = self.read()

    def read(self) -> BoundaryReader:
        """Return a reader that has read the whole log."""
        reader = BoundaryReader(self.log, AT.topic, ["0", "1"])
        reader.read_to_end()
        return reader

    def close(self, buckets: int, *managers: ConsistencyManager) -> None:
        """Close buckets by both replicas; the delivery is two buckets behind."""
        for _ in range(buckets):
            self.bucket += 1
            for replica in self.replicas:
                replica.close_buckets(self.bucket, {self.bucket: rows(self.bucket, 2)})
            self.clock.advance(TRIM_EVERY_MS)
            self.delivered(self.bucket - 2)
            for manager in managers:
                manager.step()
            self.whole.read_to_end()

    def delivered(self, bucket: int) -> None:
        self.passed(bucket, bucket)

    @property
    def start(self) -> int:
        return self.log.partition(AT).start

    def log_snapshots(self) -> list[LogSnapshot]:
        partition = self.log.partition(AT)
        found = [
            boundary_records.decode(partition.at(offset).value)
            for offset in range(partition.start, partition.end)
        ]
        return [entry for entry in found if isinstance(entry, LogSnapshot)]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(limits, "SNAPSHOT_EVERY_RECORDS", EVERY)
    return World()


def agrees(world: World) -> None:
    """Assert that a reader that starts now knows what one knows that has read everything."""
    begun = world.read()
    floor = begun.log_state.forgotten
    assert begun.log_state.snapshot(0, floor) == world.whole.log_state.snapshot(0, floor)
    begun.close()


def test_a_log_gets_snapshots_and_is_trimmed_as_it_grows(world: World) -> None:
    manager = world.manager()
    world.close(8, manager)
    assert (world.start, world.log_snapshots()) == (0, []), "not yet"
    world.close(3, manager)
    assert (world.start, len(world.log_snapshots())) == (0, 1), "a reader may just have begun"
    world.close(40, manager)
    assert world.start > 2 * EVERY
    partition = world.log.partition(AT)
    newest = world.log_snapshots()[-1]
    assert EVERY <= newest.as_of - world.start <= 2 * EVERY + 2
    assert partition.end - newest.as_of <= EVERY + 2
    assert newest.forgotten >= world.bucket - EVERY, "it stays small"
    assert len(newest.ranges) < EVERY
    agrees(world)
    assert manager.status.detail["no_log_snapshot"] == {}


def test_two_managers_and_restarts_harm_nobody(world: World) -> None:
    first, second = world.manager(), world.manager()
    for _ in range(5):
        world.close(8, first, second)
        agrees(world)
        second.stop()
        second = world.manager()
    assert world.start > 2 * EVERY
    for one, other in zip(world.log_snapshots(), world.log_snapshots()[1:], strict=False):
        assert one.as_of != other.as_of or one == other
    first.stop()
    for _ in range(4):
        alone = world.manager()
        world.close(8, alone)
        alone.stop()
    assert world.start > 6 * EVERY
    agrees(world)


def test_a_manager_that_begins_at_a_snapshot_compares_and_trims_on(world: World) -> None:
    manager = world.manager()
    world.close(40, manager)
    manager.stop()
    manager = world.manager()
    blocks = TopicPartition("p.totals.blocks.0", 0)
    before = world.log.partition(blocks).start
    assert before > 0
    world.close(10, manager)
    assert world.log.partition(blocks).start > before
    compared = manager.status.detail["compared"]
    assert isinstance(compared, dict)
    assert compared["totals"] >= 10
    assert world.whole.log_state.upto == 50


def test_where_nothing_is_trimmed_nothing_is_forgotten(world: World) -> None:
    """No heartbeat of the delivery ever came: it may exist, and need everything."""
    manager = world.manager()
    world.delivered = lambda bucket: None  # type: ignore[method-assign]
    world.close(50, manager)
    assert world.start > 0
    begun = world.read()
    assert begun.log_state.forgotten == 0
    assert begun.log_state.stable(1, 50) == world.whole.log_state.stable(1, 50)


def test_what_is_too_large_is_not_written_and_is_reported(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_snapshots, "SNAPSHOT_ITEMS_MAX", 10)
    manager = world.manager()
    world.close(15, manager)
    assert world.log_snapshots() == []
    reported = manager.status.detail["no_log_snapshot"]
    assert isinstance(reported, dict)
    assert "more than 10" in reported["totals"]
    monkeypatch.setattr(log_snapshots, "SNAPSHOT_ITEMS_MAX", 1_000)
    encode = boundary_records.encode

    def encode_small(entry: LogEntry) -> tuple[bytes, Headers]:
        if isinstance(entry, LogSnapshot):
            raise LocalProtocolError("a log snapshot has 101 bytes, more than 100")
        return encode(entry)

    monkeypatch.setattr(boundary_records, "encode", encode_small)
    world.close(15, manager)
    assert world.log_snapshots() == []
    assert "bytes, more than 100" in manager.status.detail["no_log_snapshot"]["totals"]  # type: ignore[index]
    monkeypatch.setattr(boundary_records, "encode", encode)
    world.close(15, manager)
    assert world.log_snapshots()
    assert manager.status.detail["no_log_snapshot"] == {}


def test_what_there_is_no_room_for_is_forgotten_and_comes_back_when_readers_went_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_state, "CHAIN_RECORDS_MAX", 5)
    monkeypatch.setattr(log_snapshots, "SNAPSHOT_ITEMS_MAX", 60)
    monkeypatch.setattr(log_snapshots, "SNAPSHOT_EVERY_PARTS", 8)
    manager = world.manager()
    say, world.delivered = world.delivered, lambda bucket: None  # type: ignore[method-assign]
    world.close(60, manager)
    assert "readers need buckets from" in manager.status.detail["no_log_snapshot"]["totals"]  # type: ignore[index]
    assert manager._streams.every["totals"].log_state.stable_parts < 100
    world.delivered = say  # type: ignore[method-assign]
    world.close(30, manager)
    assert manager.status.detail["no_log_snapshot"] == {}
    agrees(world)


def test_while_a_replica_of_another_pipeline_file_writes_there_is_no_log_snapshot(
    world: World,
) -> None:
    manager = world.manager()
    more = outputs.pipeline("p", replicas=3)
    create_topics(world.log, more)
    world.replicas.append(Replica(world.log, more, world.clock, SeededEntropy(2), "2"))
    world.close(20, manager)
    assert world.log_snapshots() == []
    assert "writes to the log as '2'" in manager.status.detail["no_log_snapshot"]["totals"]  # type: ignore[index]
    manager.stop()
    manager = world.manager(more)
    world.close(20, manager)
    assert world.start > 0
    begun = BoundaryReader(world.log, AT.topic, ["0", "1", "2"])
    begun.read_to_end()
    assert begun.log_state.closed("2") == world.bucket


@pytest.mark.parametrize("error", [Unavailable("away"), OutcomeUnknown("who knows")])
@pytest.mark.parametrize("what", ["log_snapshot", "deletion"])
def test_what_fails_is_made_up_for(
    world: World, monkeypatch: pytest.MonkeyPatch, error: Exception, what: str
) -> None:
    manager = world.manager()
    fails = [True]

    def delete_before(self: LocalLogAdmin, offsets: Mapping[TopicPartition, int]) -> None:
        if fails[0] and AT in offsets:
            raise error
        original_delete(self, offsets)

    def flush(self: LocalLogWriter) -> object:
        found = original_flush(self)
        if fails[0] and any(each.at == AT for each in found):
            entry = boundary_records.decode(world.log.partition(AT).at(found[-1].offset).value)
            if isinstance(entry, LogSnapshot):
                raise error
        return found

    original_delete, original_flush = LocalLogAdmin.delete_before, LocalLogWriter.flush
    (
        monkeypatch.setattr(LocalLogAdmin, "delete_before", delete_before)
        if what == "deletion"
        else monkeypatch.setattr(LocalLogWriter, "flush", flush)
    )
    world.close(40, manager)
    assert manager._context.registry.get_sample_value(
        "anabranch_log_snapshot_failures_total", {"pipeline": "p"}
    )
    agrees(world)
    fails[0] = False
    world.close(40, manager)
    assert world.start > 2 * EVERY
    agrees(world)


def test_a_broker_that_is_away_is_waited_for_once_in_a_round(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = world.manager()
    trimming, attempts = manager._log_trimming, list[str]()

    def away(self: LogTrimming, stream: str, *_: object) -> None:
        attempts.append(stream)
        raise Unavailable("away")

    monkeypatch.setattr(LogTrimming, "_write_snapshot", away)
    trimming._logs["other"] = replace(trimming._logs["totals"])
    streams = dict.fromkeys(trimming._logs, manager._streams.every["totals"])
    for expected in (["totals"], ["totals", "other"], ["totals", "other"]):
        trimming.round(streams, {})
        assert attempts == expected
    world.clock.advance(TRIM_EVERY_MS)
    trimming.round(streams, {})
    assert attempts == ["totals", "other", "totals"]


def test_who_lags_by_more_than_is_left_is_overtaken(world: World) -> None:
    lagging = BoundaryReader(world.log, AT.topic, ["0", "1"])
    manager = world.manager()
    world.close(EVERY // 2 + 2, manager)
    lagging.poll(0)
    world.close(40, manager)
    with pytest.raises(DataMissing):
        lagging.poll(0)


@pytest.mark.parametrize("federation", [Federation(name="tolls", participant="north"), None])
def test_log_snapshots_are_signed_by_the_pipelines_owner_whosever_the_stage_is(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, federation: Federation | None
) -> None:
    key = SigningKey.generate("north", "1")
    write_key(key, tmp_path / "key")
    monkeypatch.setenv(f"{VARIABLE}_FILE", str(tmp_path / "key"))
    stage = world.pipeline.stages["totals"]
    of_south = {
        "totals": stage.model_copy(update={"participant": "south"}),
        "norths": stage.model_copy(update={"name": "norths", "participant": "north"}),
    }
    world.pipeline = world.pipeline.model_copy(
        update={
            "stages": of_south,
            "publish_ms": {"totals": 1_000, "norths": 1_000},
            "federation": federation,
        }
    )
    world.log.admin().create([settings for _, settings in internal_topics(world.pipeline)])
    manager = world.manager()
    world.close(11, manager)
    assert len(world.log_snapshots()) == 1
    partition = world.log.partition(AT)
    records = [partition.at(offset) for offset in range(partition.end)]
    (found,) = [r for r in records if isinstance(boundary_records.decode(r.value), LogSnapshot)]
    signature = signature_of(found.headers)
    assert by_one_of([key.public])(signed_message(AT.topic, found.value), signature.value)
