"""The ingestion service on a log in memory, in virtual time."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from anabranch.adapters.memory.log import FailingOperation, LocalLogReader
from anabranch.codec import control_records
from anabranch.ingestion import service as under_test
from anabranch.ingestion.batches import HEARTBEAT
from anabranch.pipeline.model import EventTime, IdleTimeout
from anabranch.ports import TopicPartition
from anabranch.protocol.control.records import Heartbeat
from anabranch.protocol.edge import ingestion as rules
from anabranch.protocol.edge import source_batches
from anabranch.protocol.errors import ConfigurationError, Unavailable
from anabranch.protocol.limits import HEARTBEAT_EVERY_MS
from anabranch.protocol.log import writer_state
from harness.source_world import World
from harness.sources import everything, pipeline, report, service


def test_rows_come_into_their_buckets() -> None:
    world = World()
    process = world.process()
    world.produce(0, report(1_000, 1), report(1_050, 2))
    world.produce(1, report(1_120, 3), report(1_200, 4))
    world.run(process)
    assert world.view.closed() == 10, "1050 is the lower mark"
    world.produce(0, report(1_300, 5))
    world.run(process)
    assert {
        bucket: rows.column("car").to_pylist() for bucket, rows in world.view.stable().items()
    } == {10: [1], 11: [2]}
    assert process.status.last_bucket_ms == 1_100
    assert process.status.detail["records"] == 5
    process.stop()
    process.stop()


def test_finite_data_is_closed_to_the_end() -> None:
    world = World(bounded=True)
    world.produce(0, *(report(1_000 + i, i) for i in range(50)))
    process = world.process()
    world.run(process, lambda: world.view.closed() == 11)
    assert world.view.cars() == list(range(50))
    assert process.status.waiting_for is None


def test_nothing_read_appends_nothing() -> None:
    world = World()
    process = world.process()
    world.run(process, 50)
    assert world.boundary_records() == 0
    world.produce(0, report(1_000))
    world.run(process, 50)
    assert world.boundary_records() == 1
    assert (process.status.state, process.status.waiting_for) == ("waiting", "p.reports[1]")
    world.produce(1, report(900))
    world.run(process, 1)
    assert (process.status.state, process.status.waiting_for) == ("running", None)


def test_a_live_source_appends_at_most_every_20_ms() -> None:
    world = World(1)
    process = world.process()
    begun = world.clock.monotonic_ms()
    for i in range(50):
        world.produce(0, report(1_000 + i, i))
        world.run(process, 1)
    assert world.boundary_records() == 50
    assert world.clock.monotonic_ms() - begun >= 49 * 20


def test_bad_records_become_dead_letters_and_their_neighbours_rows() -> None:
    world = World(1)
    world.produce(0, report(1_000, 1), b"{", report(1_100, 2), None, report(950, 3))
    process = world.process()
    world.run(process)
    world.produce(0, report(2_000, 4), report(900, 5))
    world.run(process)
    assert world.view.cars() == [1, 2, 3]
    assert world.dead() == [(b"{", "not_json"), (None, "null_value"), (report(900, 5), "late")]
    assert process.status.detail["late"] == 1
    assert process.status.detail["rejected"] == 3


def test_event_times_as_if_of_another_unit_are_noted_once() -> None:
    world = World(1)
    world.produce(0, report(1_777_644_000, 1))  # seconds, read as milliseconds
    process = world.process()
    world.run(process)
    world.produce(0, report(1_777_644_000_000, 2))
    world.run(process)
    why = str(process.status.detail["wrong_unit"])
    assert why.endswith("with unit: s they would be about 2026-05-01T14:00Z")
    other = World(1)
    other.produce(0, report(1_777_644_000_000, 1))
    process = other.process()
    other.run(process)
    assert process.status.detail["wrong_unit"] == ""


def test_a_heartbeat_moves_the_boundary() -> None:
    world = World()
    process = world.process()
    world.produce(0, report(1_000, 1))
    world.produce(1, b"anything", **{HEARTBEAT.replace("-", "_"): "3000"})
    world.produce(0, report(2_000, 2))
    world.run(process)
    assert (world.view.closed(), world.view.cars(), world.dead()) == (19, [1], [])
    assert process.status.detail["heartbeats"] == 1


def test_where_nobody_answers_a_new_partition_is_found_later() -> None:
    world = World(1, idle_timeout=IdleTimeout(partition_ms=1_000))
    process = world.process()
    world.produce(0, report(9_000, 1))
    world.run(process)
    world.grow(3)
    for partition in (1, 2):
        world.produce(partition, report(1_000, partition))
    for _ in range(3):
        world.log.fail_next(FailingOperation.OFFSETS, error=Unavailable, topic="p.reports")
    world.run(process, lambda: process.status.detail["reassigned"] == 2)
    assert world.dead() == []


def test_many_silent_partitions_are_looked_at_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other they would take longer than a look counts for, and none would ever
    be left out.
    """
    world = World(100, idle_timeout=IdleTimeout(partition_ms=1_000))
    offsets, ends = LocalLogReader.offsets, LocalLogReader.ends

    def slow_offsets(
        reader: LocalLogReader, at: TopicPartition, wait_ms: int | None = None
    ) -> tuple[int, int]:
        world.clock.sleep_ms(16)
        return offsets(reader, at, wait_ms)

    def slow_ends(
        reader: LocalLogReader, places: Collection[TopicPartition], wait_ms: int
    ) -> dict[TopicPartition, int]:
        world.clock.sleep_ms(16)
        with monkeypatch.context() as patched:
            patched.setattr(LocalLogReader, "offsets", offsets)
            return ends(reader, places, wait_ms)

    monkeypatch.setattr(LocalLogReader, "offsets", slow_offsets)
    monkeypatch.setattr(LocalLogReader, "ends", slow_ends)
    process = world.process()
    for partition in range(1, 100):
        world.produce(partition, report(1_000, partition))
    for i in range(100):
        world.produce(0, report(2_000 + 50 * i, i))
        world.run(process, 1)
    assert world.view.closed() > 30


def test_an_open_transaction_is_not_silence() -> None:
    world = World(1, bounded=True)
    process = world.process()
    world.produce(0, report(1_000, 1))
    writer = world.log.transactional_writer("user")
    writer.begin()
    writer.send(TopicPartition("p.reports", 0), report(1_001, 2))
    writer.flush()
    world.run(process, 200)
    assert world.view.closed() == 9, "the second record may still become visible"
    writer.commit()
    world.run(process, lambda: world.view.closed() == 11)
    assert world.view.cars() == [1, 2]


@pytest.mark.parametrize("applied", [0, None])
def test_a_crash_between_blocks_and_boundary_record_repeats_nothing(applied: int | None) -> None:
    world = World(1, bounded=True)
    process = world.process()
    world.produce(0, report(1_000, 1), b"bad", report(1_001, 2))
    world.log.fail_next(
        FailingOperation.FLUSH, applied=applied, error=Unavailable, topic="p.reports.rejected"
    )
    with pytest.raises(Unavailable):
        world.run(process)
    process.stop()
    world.run(world.process(), lambda: world.view.closed() == 11)
    assert world.view.cars() == [1, 2]
    assert world.dead() == [(b"bad", "not_json")] * (1 if applied == 0 else 2), "at least once"


@pytest.mark.parametrize(
    ("topic", "applied"),
    [("p.reports.boundaries", 0), ("p.reports.boundaries", None), ("p.reports.blocks.0", 1)],
)
def test_an_unknown_outcome_repeats_nothing(topic: str, applied: int | None) -> None:
    world = World(1, bounded=True)
    process = world.process()
    world.produce(0, report(1_000, 1), report(1_001, 2))
    world.log.fail_next(FailingOperation.FLUSH, applied=applied, topic=topic)
    world.run(process, lambda: world.view.closed() == 11)
    assert world.view.cars() == [1, 2]


def test_sparse_records_are_taken_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_batches, "PARTS_PER_RECORD_MAX", 10)
    world = World(bounded=True)
    for partition in (0, 1):
        world.produce(partition, *(report(1_000 * (i + 1), i) for i in range(partition, 80, 2)))
    process = world.process()
    world.run(process, lambda: world.view.closed() == 800)
    assert world.view.cars() == list(range(80))
    assert world.boundary_records() >= 8
    world.produce(0, *(report(80_001 + i, 80 + i) for i in range(20)))
    world.run(process, lambda: world.view.closed() == 801)
    assert world.view.cars() == list(range(100))


def test_a_backlog_is_decoded_in_pieces_and_named_by_one_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(source_batches, "FETCH_RECORDS_MAX", 3)
    world = World(partitions=2, bounded=True)
    for partition in range(2):
        values = [report(1_000 + i, 100 * partition + i) for i in range(10)]
        world.produce(partition, *values, b"no json", report(1_010, 100 * partition + 10))
    process = world.process()
    process.step()
    assert process.status.detail["records"] == 24
    assert world.boundary_records() == 1
    world.run(process, lambda: world.view.closed() == 11)
    assert sorted(world.view.cars()) == [*range(11), *range(100, 111)]
    assert world.dead() == [(b"no json", "not_json")] * 2


def test_what_stands_before_an_error_is_taken_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_batches, "FETCH_RECORDS_MAX", 3)
    world = World(partitions=1)
    world.produce(0, *(report(1_000 + i, i) for i in range(10)))
    process = world.process()
    fetch, fetched = process._reader.fetch, list[int]()

    def broken(records_max: int, wait_ms: int) -> Any:
        if sum(fetched) >= 6:
            raise Unavailable("a record does not match its checksum")
        found = fetch(records_max, wait_ms)
        fetched.append(sum(len(chunk.offsets) for chunk in found))
        return found

    monkeypatch.setattr(process._reader, "fetch", broken)
    process._read()
    with pytest.raises(Unavailable):
        process._read()
    process.stop()
    last = world.process()._boundaries.log_state.last("0")
    assert last is not None
    assert [at.offset_next for at in last.positions] == [6]


class TestTooMuchOpen:
    """A source may have 100 open parts, and holds back from 50 on; it reads ten records at a
    time, each of a bucket of its own. Two rounds more are read before their parts are seen in the
    log.
    """

    @pytest.fixture(autouse=True)
    def few(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(source_batches, "SOURCE_BATCH_RECORDS", 10)
        monkeypatch.setattr(rules, "PENDING_PARTS_HOLD", 50)
        monkeypatch.setattr(writer_state, "PENDING_PARTS_MAX", 100)

    @staticmethod
    def backlog(world: World, partition: int, first_ms: int = 1_000) -> None:
        world.produce(
            partition, *(report(first_ms + 200 * i, partition * 1_000 + i) for i in range(300))
        )

    def test_only_what_holds_the_boundary_back_is_read(self) -> None:
        world = World()
        self.backlog(world, 0)
        process = world.process()
        world.run(process, 100)
        assert (process.status.state, process.status.waiting_for) == ("waiting", "p.reports[1]")
        assert (process.status.detail["held_back"], process.status.detail["records"]) == (1, 70)
        self.backlog(world, 1)
        world.run(process, lambda: process.status.detail["records"] == 600)
        world.produce(0, report(100_000, 9_998))
        world.produce(1, report(100_000, 9_999))
        world.run(process, lambda: world.view.closed() == 999)
        assert world.view.cars() == sorted([*range(300), *range(1_000, 1_300)])
        assert process.status.detail["held_back"] == 0
        assert world.dead() == []

    def test_a_source_that_keeps_too_much_open_stops_and_goes_on_when_it_keeps_less(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It neither ends nor loses anything, before a restart and after it."""
        monkeypatch.setattr(rules, "PENDING_PARTS_NARROW", 55)
        monkeypatch.setattr(rules, "PENDING_PARTS_STOP", 65)
        world = World(out_of_orderness_ms=3_600_000)
        self.backlog(world, 0, first_ms=10_000_000)
        self.backlog(world, 1, first_ms=10_000_000)
        for _ in range(2):
            process = world.process()
            world.run(process, 100)
            detail = process.status.detail
            assert (detail["too_much_open"], detail["held_back"]) == (True, 2)
        (source,) = world.pipeline.sources.values()
        shorter = source.model_copy(update={"out_of_orderness_ms": 100})
        world.pipeline = world.pipeline.model_copy(update={"sources": {source.name: shorter}})
        for partition in (0, 1):
            world.produce(partition, report(20_000_000, 9_998))
        process = world.process()
        world.run(process, lambda: world.view.closed() == 199_998)
        assert world.view.cars() == sorted([*range(300), *range(1_000, 1_300)])
        assert not process.status.detail["too_much_open"]
        assert world.dead() == []


def test_what_is_open_does_not_keep_a_source_from_reading_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rules, "BLOCKS_KEPT_MAX", 10)
    monkeypatch.setattr(under_test, "COUNT_KEPT_EVERY_MS", 1_000)
    world = World(2, idle_timeout=IdleTimeout(partition_ms=None))
    process = world.process()
    world.produce(1, report(1_000, 99))
    for i in range(80):
        world.produce(0, report(1_000 + 100 * i, i))
        world.run(process, 1)
        world.clock.advance(100)
    assert not process.status.detail["pushed_back"]
    world.produce(1, report(9_000, 98))
    world.run(process, lambda: world.view.closed() > 15)


def test_a_source_whose_readers_are_too_far_behind_takes_no_more_input(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rules, "BLOCKS_KEPT_MAX", 10)
    monkeypatch.setattr(under_test, "COUNT_KEPT_EVERY_MS", 1_000)
    world = World(1, idle_timeout=IdleTimeout(partition_ms=1_000, source_ms=1_000))
    process = world.process()
    for i in range(80):
        world.produce(0, report(1_000 + 100 * i, i))
        world.run(process, 1)
        world.clock.advance(100)
    read, closed = process.status.detail["records"], world.view.closed()
    assert process.status.detail["pushed_back"]
    assert isinstance(read, int)
    assert 10 <= read < 60
    for _ in range(50):
        world.run(process, 1)
        world.clock.advance(100)
    assert (process.status.detail["records"], world.view.closed()) == (read, closed), (
        "what waits to be read is no silence"
    )
    restarted = world.process()
    world.clock.advance(3_000)
    world.run(restarted, 2)
    assert restarted.status.detail["pushed_back"]
    for partition in range(2):
        at = TopicPartition("p.reports.blocks.0", partition)
        world.log.trim(at, world.log.reader().offsets(at)[1])
    for _ in range(120):
        world.run(restarted, 1)
        world.clock.advance(100)
        for partition in range(2):  # readers keep up now
            at = TopicPartition("p.reports.blocks.0", partition)
            world.log.trim(at, world.log.reader().offsets(at)[1])
    assert restarted.status.detail["records"] == 80 - read
    assert not restarted.status.detail["pushed_back"]
    assert world.dead() == []


def test_large_records_are_taken_in_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_batches, "SOURCE_BATCH_BYTES", 3_000)
    world = World(1, bounded=True)
    world.produce(0, report(1_000, 0, road="x" * 900))
    process = world.process()
    world.run(process, 1)
    world.produce(0, *(report(1_000, car, road="x" * 900) for car in range(1, 7)))
    world.run(process, lambda: world.view.closed() == 10)
    assert world.view.cars() == list(range(7))
    assert world.boundary_records() == 1 + 2 + 1, "one, then three at a time, then the end"


def test_arrival_is_the_time_of_the_broker() -> None:
    world = World(
        1,
        config={"message.timestamp.type": "LogAppendTime"},
        event_time=EventTime(field=None),
        bounded=True,
    )
    world.produce(0, report(1, 1))
    arrived = world.clock.now_ms()
    world.run(world.process(), lambda: bool(world.view.stable()))
    assert [rows.column("event_time").to_pylist() for rows in world.view.stable().values()] == [
        [arrived]
    ]


def test_another_leader_with_another_clock_makes_no_arrival_late() -> None:
    world = World(
        1,
        config={"message.timestamp.type": "LogAppendTime"},
        event_time=EventTime(field=None),
        max_ahead_ms=60_000,
    )
    world.produce(0, report(1, 1))
    world.clock.sleep_ms(1_000)
    world.produce(0, report(1, 2))
    process = world.process()
    world.run(process)
    assert world.view.cars() == [1]
    process.stop()
    process = world.process()
    world.clock.jump(-30_000)
    world.produce(0, report(1, 3))
    world.run(process)
    world.clock.jump(31_000)
    world.produce(0, report(1, 4))
    world.run(process)
    assert world.view.cars() == [1, 2, 3]
    assert world.dead() == []


@pytest.mark.parametrize(
    ("start", "first"),
    [("earliest", 0), ("latest", 4), (1_700_000_002_000, 2), (1_900_000_000_000, 4)],
)
def test_a_source_begins_where_it_is_told_to_and_then_goes_on(start: Any, first: int) -> None:
    world = World(1, start=start, bounded=True)
    for i in range(4):
        world.clock.jump(1_700_000_000_000 + 1_000 * i - world.clock.now_ms())
        world.produce(0, report(1_000 + i, i))
    world.run(world.process())
    world.produce(0, report(1_004, 4))
    process = world.process()
    if first == 4:  # the end moves with what comes until there is a boundary
        world.produce(0, report(1_005, 5))
    world.run(process, lambda: world.view.closed() == 11)
    process.stop()
    expected = [5] if first == 4 else list(range(first, 5))
    assert world.view.cars() == expected
    world.grow(2)
    world.produce(1, report(2_000, 6))
    world.produce(0, report(2_001, 7))
    world.run(world.process(), lambda: world.view.closed() == 21)
    assert sorted(world.view.cars()) == [*expected, 6, 7], (
        "after its first boundary nothing is left out, of a new partition neither"
    )


def test_another_width_of_buckets_is_rejected_and_disturbs_nobody() -> None:
    world = World(1)
    process = world.process()
    world.produce(0, report(1_000, 1))
    world.run(process)
    changed = service(
        world.log, world.pipeline.model_copy(update={"bucket_ms": 200}), world.clock, world.entropy
    )
    with pytest.raises(
        ConfigurationError,
        match=r"buckets of 100 ms, and the pipeline file says 200 ms.*`bucket: 100ms`",
    ):
        changed.start()
    changed.stop()
    world.produce(0, report(2_000, 2))
    world.run(process)
    assert world.view.closed() == 19
    assert "other_width" not in world.view.counts, "it began no epoch"


def test_an_unknown_source_is_a_wrong_setting() -> None:
    world = World()
    world.pipeline = world.pipeline.model_copy(update={"sources": {}})
    with pytest.raises(ConfigurationError, match="no such source"):
        world.process()


def test_a_stop_before_the_start_is_fine() -> None:
    world = World()
    service(world.log, world.pipeline, world.clock, world.entropy).stop()


def test_everything_that_decides_about_tuples_is_in_the_fingerprint() -> None:
    source = pipeline("p").sources["reports"]
    same = pipeline("p", out_of_orderness_ms=9).sources["reports"]
    others = [
        changed.sources["reports"]
        for changed in (pipeline("p", late="reassign"), pipeline("p", extra_fields="reject"))
    ]
    assert under_test.fingerprint(source, 100) == under_test.fingerprint(same, 100)
    assert (
        len({under_test.fingerprint(s, width) for s in (source, *others) for width in (100, 200)})
        == 6
    )


def test_it_says_that_it_lives_and_how_far_it_is() -> None:
    world = World()
    process = world.process()
    world.produce(0, report(1_000, 1))
    world.produce(1, report(1_120, 3))
    world.run(process, lambda: world.view.closed() == 9)
    world.clock.advance(HEARTBEAT_EVERY_MS)
    process.step()
    beats = [
        control_records.decode(value)
        for chunk in everything(world.log, "p.control.ingestion.reports")
        for value in chunk.values
    ]
    last = beats[-1]
    assert isinstance(last, Heartbeat)
    assert (last.service, last.name, last.replica, last.epoch, last.bucket) == (
        "ingestion",
        "reports",
        "0",
        process.status.detail["epoch"],
        9,
    )
    process.stop()


def test_it_goes_on_where_nobody_can_hear_it() -> None:
    """The control topic is missing, or its broker does not answer: heartbeats are nobody's loss."""
    world = World()
    del world.log.topics["p.control.ingestion.reports"]
    process = world.process()
    world.produce(0, report(1_000, 1))
    world.produce(1, report(1_120, 3))
    world.run(process, lambda: world.view.closed() == 9)
    process.stop()
