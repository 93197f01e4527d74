"""The shards of an output on a log in memory: what each writes, and what becomes of it when one of
them fails while the others go on.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from anabranch.adapters.memory.log import FailingOperation
from anabranch.codec import blocks
from anabranch.codec.catalog import TopicSettings
from anabranch.ports import TopicPartition
from anabranch.protocol.control.records import Heartbeat
from anabranch.protocol.errors import ConfigurationError, Fenced
from anabranch.protocol.identifiers import RecordId
from harness import outputs
from harness.control_topics import all_control_records
from harness.output_world import World
from harness.outputs import delivered, drain, ids, rows
from harness.sources import everything


@pytest.fixture
def world() -> World:
    return World()


def facts_of(world: World) -> dict[RecordId, tuple[object, ...]]:
    return {ident: (p, key, value) for p, ident, key, value in delivered(world.log, world.pipeline)}


@pytest.mark.parametrize("key", [("car",), ()])
@pytest.mark.parametrize("shards", [2, 3, 5])
def test_together_they_deliver_what_one_process_delivers(shards: int, key: tuple[str]) -> None:
    one, several = World(1, key=key), World(shards, key=key)
    for each in (one, several):
        for upto in range(1, 8):
            each.feed(upto, {upto: 7 * upto})
        for service in each.services():
            drain(service, 7)
        each.check()
    assert facts_of(several) == facts_of(one)


def test_each_writes_its_own_partitions(world: World) -> None:
    first, second = world.services()
    world.feed(3, {1: 30, 3: 30})
    drain(second, 3)
    assert {p % 2 for p, *_ in delivered(world.log, world.pipeline)} == {1}
    drain(first, 3)
    assert {p % 2 for p, *_ in delivered(world.log, world.pipeline)} == {0, 1}
    world.check()
    for service, process in ((first, "out.0"), (second, "out.1")):
        *_, last = world.progress(process)
        index = int(process[-1])
        assert [p for p, at in last.positions if p >= 0 and at != -1] == list(range(index, 5, 2))
        assert service.status.last_bucket_ms == 300
        service.stop()


def one_car(bucket: int, count: int) -> pa.Table:
    """Rows of one key, so of one partition."""
    table = rows(bucket, count)
    return table.set_column(0, "car", pa.array([1] * count, pa.int64()))


def test_one_that_has_nothing_to_write_lets_buckets_be_trimmed(world: World) -> None:
    services = world.services()
    for bucket in range(1, 6):
        world.replica.close_buckets(bucket, {bucket: one_car(bucket, 4)})
        for service in services:
            drain(service, bucket)
    (partition,) = {p for p, *_ in delivered(world.log, world.pipeline)}
    world.clock.sleep_ms(60_000)
    for service in services:
        service.step()
        assert service._passed == 4
    idle = f"out.{1 - partition % 2}"
    beats = [
        beat
        for beat in all_control_records(world.log, world.pipeline)
        if isinstance(beat, Heartbeat) and beat.name == idle
    ]
    assert (beats[-1].name, beats[-1].checkpoint_bucket) == (idle, 4)
    again = world.service(idle)
    assert again._delivery is not None
    assert again._delivery.cursor.bucket == 5, "it begins at the last run that it recorded"


@pytest.mark.parametrize("applied", [None, 0, 1, 2])
def test_an_unknown_outcome_of_one_is_settled_by_itself(world: World, applied: int | None) -> None:
    first, second = world.services()
    world.feed(2, {1: 20, 2: 20})
    world.log.fail_next(FailingOperation.COMMIT, applied=applied)
    drain(first, 2)
    drain(second, 2)
    assert first._counters.unknown._value.get() == 1
    assert second._counters.unknown._value.get() == 0
    found = delivered(world.log, world.pipeline)
    assert sorted(ident for _, ident, _, _ in found) == ids(world.sizes)


def test_a_replaced_shard_is_fenced_and_the_others_are_not(world: World) -> None:
    first, second = world.services()
    world.feed(1, {1: 20})
    replacement = world.service("out.0")
    drain(second, 1)
    with pytest.raises(Fenced, match=r"output out\.0: another process delivers it"):
        drain(first, 1)
    drain(replacement, 1)
    world.check()


def test_a_restart_reads_back_its_own_partitions_only(world: World) -> None:
    first, second = world.services()
    world.feed(2, {1: 20, 2: 20})
    drain(second, 2)
    world.log.fail_next(FailingOperation.COMMIT, applied=1)  # with its progress, as it may turn out
    drain(first, 2)
    found = first._counters.found._value.get()
    own = [ident for p, ident, *_ in delivered(world.log, world.pipeline) if p % 2 == 0]
    assert 0 < found <= len(own)


def test_the_others_begin_where_the_first_does_and_wait_for_it() -> None:
    world = World(partitions=2)
    world.feed(4, {1: 6, 2: 6, 3: 6, 4: 6})
    world.log.trim(TopicPartition("p.totals.blocks.0", 0), 2)
    second = world.service("out.1")
    second.step()
    assert second.status.waiting_for == "out.0 has not recorded yet where output out begins"
    first = world.service("out.0")
    assert first.status.detail["left_out_ms"] == 200
    drain(first, 4)
    for place in (TopicPartition("p.totals.blocks.0", partition) for partition in (0, 1)):
        world.log.trim(place, world.log.reader().offsets(place)[1])
    world.clock.sleep_ms(20_000)
    second.step()
    assert second._delivery is not None
    assert second._delivery.cursor == RecordId(3, 0), "whatever is deleted since"
    for _ in range(3):
        second.step()
    assert "requested buckets 3..4 of totals" in str(second.status.waiting_for)
    world.replica.append_recomputed({3: rows(3, 6), 4: rows(4, 6)})
    drain(second, 4)
    world.sizes = {3: 6, 4: 6}
    world.check()


def test_where_all_begin_is_recorded_once(world: World) -> None:
    for service in world.services():
        service.stop()
    assert [each.output for each in world.progress("out.0")] == ["out.0"]
    world.service("out.0")
    assert len(world.progress("out.0")) == 1
    assert world.progress("out.1") == []


def test_an_unknown_outcome_of_that_record_is_settled(world: World) -> None:
    world.feed(1, {1: 20})
    world.log.fail_next(FailingOperation.COMMIT, applied=1)
    first = world.service("out.0")
    world.clock.sleep_ms(1_000)
    second = world.service("out.1")
    for service in (first, second):
        drain(service, 1)
    world.check()


def reject(world: World, sizes: dict[str, str]) -> None:
    for topic, size in sizes.items():
        partitions = 2 if topic.endswith("rejected") else 5
        settings = TopicSettings(topic, partitions, config={"max.message.bytes": size})
        world.log.admin().create([settings])


def test_each_has_rejected_results_of_its_own(world: World) -> None:
    """Each is there once, also where one shard is started again after the other has gone on."""
    reject(world, {"p.out": "300"})
    services = world.services()
    table = rows(1, 20).sort_by("event_time")
    roads = [text * 100 if n % 3 == 0 else text for n, text in enumerate(table["road"].to_pylist())]
    world.replica.close_buckets(1, {1: table.set_column(1, "road", pa.array(roads))})
    world.log.fail_next(FailingOperation.COMMIT, applied=None)
    for service in services:
        drain(service, 1)
    for service in world.services():
        drain(service, 1)
    taken = [ident for _, ident, _, _ in delivered(world.log, world.pipeline)]
    rejected = {
        chunk.at.partition: [
            RecordId.parse((dict(headers)["anabranch-id"] or b"").decode())
            for headers in chunk.headers
        ]
        for chunk in everything(world.log, "p.out.rejected", 2)
    }
    assert sorted(rejected) == [0, 1]
    assert sorted([*taken, *rejected[0], *rejected[1]]) == ids({1: 20})
    assert [i.position for i in sorted([*rejected[0], *rejected[1]])] == list(range(0, 20, 3))


def restarted_with(world: World, before: int, after: int, runs: Callable[[World], None]) -> None:
    world.reshard(before)
    runs(world)
    world.reshard(after)


def all_run(world: World) -> None:
    world.feed(1, {1: 40})
    for service in world.services():
        drain(service, 1)
        service.stop()


def first_starts(world: World) -> None:
    world.service(next(iter(world.pipeline.deliveries()))).stop()


@pytest.mark.parametrize("has_room", [False, True])
@pytest.mark.parametrize(
    ("before", "after"), [(1, 2), (2, 1), (2, 3), (3, 2), (4, 2), (2, 4), (5, 3)]
)
def test_another_number_is_rejected_by_every_shard_that_would_write(
    world: World, before: int, after: int, has_room: bool
) -> None:
    if has_room:
        world.log.admin().create([TopicSettings("p.out.rejected", 5)])
    restarted_with(world, before, after, all_run)
    written = delivered(world.log, world.pipeline)
    rejecting = 0
    for name in world.pipeline.deliveries():
        service = outputs.service(world.log, world.pipeline, world.clock, world.entropy, name)
        with pytest.raises(ConfigurationError, match="write all numbers that it has had"):
            service.start()
        rejecting += 1
    assert rejecting == after
    assert delivered(world.log, world.pipeline) == written


@pytest.mark.parametrize(("before", "after"), [(2, 1), (2, 3), (3, 2), (4, 2), (2, 4)])
def test_a_number_counts_once_the_first_shard_has_begun(
    world: World, before: int, after: int
) -> None:
    restarted_with(world, before, after, first_starts)
    for name in world.pipeline.deliveries():
        service = outputs.service(world.log, world.pipeline, world.clock, world.entropy, name)
        with pytest.raises(ConfigurationError, match="write all numbers that it has had"):
            service.start()


def test_there_may_be_no_more_shards_than_partitions() -> None:
    world = World(3)
    world.log.admin().create([TopicSettings("p.out", 2)])
    with pytest.raises(ConfigurationError, match=r"of topic p\.out, which has 2: write shards: 2"):
        world.service("out.0")
    world = World(3)
    world.log.admin().create([TopicSettings("p.out.rejected", 1)])
    with pytest.raises(ConfigurationError, match=r"p\.out\.rejected, which has 1: .* 3 partitions"):
        world.service("out.2")


def test_a_topic_is_made_with_a_partition_for_each() -> None:
    world = World(3, partitions=2)
    world.feed(2, {1: 30, 2: 1})
    for service in world.services():
        drain(service, 2)
    assert len(world.log.topics["p.out"][1]) == 3
    assert len(world.log.topics["p.out.rejected"][1]) == 3
    world.check()


def test_the_first_one_writes_the_live_topic() -> None:
    world = World(2, live=True)
    first, second = world.services()
    world.feed(3, {1: 20, 3: 20})
    for service in (first, second):
        drain(service, 3)
    for _ in range(6):
        first.step()
    world.check()
    view = outputs.live_view(world.log, world.pipeline)
    assert len([record for record in view.stable() if record.id is not None]) == 40
    assert "live_stable_ms" in first.status.detail
    assert "live_stable_ms" not in second.status.detail


def test_no_process_has_the_name_of_the_whole(world: World) -> None:
    with pytest.raises(ConfigurationError, match=r"no such output; it has out\.0, out\.1"):
        outputs.service(world.log, world.pipeline, world.clock, world.entropy, "out")


def test_each_rejects_rows_that_no_stream_holds_in_its_own_partitions(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "ROW_BYTES_MAX", 6_000)
    monkeypatch.setattr(blocks, "BLOCK_BYTES_MAX", 1_000)
    services = world.services()
    roads = pa.array(["long" * 3_000 if n % 3 else "short" for n in range(9)])
    world.replica.close_buckets(1, {1: rows(1, 9).set_column(1, "road", roads)})
    for service in services:
        drain(service, 1)
    found = [
        (chunk.at.partition, RecordId.parse((dict(headers)["anabranch-id"] or b"").decode()))
        for chunk in everything(world.log, "p.out.rejected", 2)
        for headers in chunk.headers
    ]
    taken = [ident for _, ident, _, _ in delivered(world.log, world.pipeline)]
    assert {shard for shard, _ in found} == {0, 1}
    assert len(found) == 6
    assert sorted([*taken, *(ident for _, ident in found)]) == ids({1: 9})
