"""An output gets another number of shards on a log in memory: old processes run on, come back, or
fail, and the new ones do as well.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from anabranch.adapters.memory.log import FailingOperation
from anabranch.codec.catalog import TopicSettings
from anabranch.delivery import service as delivery_service
from anabranch.delivery.service import DeliveryService
from anabranch.ports import TopicPartition
from anabranch.protocol.edge.delivery import begin_of, has_run
from anabranch.protocol.errors import ConfigurationError, Fenced
from anabranch.protocol.identifiers import RecordId
from harness import outputs
from harness.output_world import World
from harness.outputs import delivered, drain, ids, rows
from harness.sources import everything

STEPS = 40


@pytest.fixture
def world() -> World:
    made = World(1)
    made.log.admin().create([TopicSettings("p.out.rejected", 5)])
    return made


def all_delivered(services: list[DeliveryService], upto: int) -> None:
    """One after the other, round by round."""
    for _ in range(2_000):
        late = [
            service
            for service in services
            if (service.status.last_bucket_ms or 0) < upto * outputs.WIDTH_MS
        ]
        if not late:
            return
        for service in late:
            service.step()
    raise AssertionError(f"not delivered up to {upto}: {[each.status for each in services]}")


def unstarted(world: World, name: str) -> DeliveryService:
    return outputs.service(world.log, world.pipeline, world.clock, world.entropy, name)


def progress_topics(world: World, *names: str) -> None:
    """Create the topics that ``anabranch up`` creates."""
    topics = [TopicSettings(world.pipeline.topic_names.progress(name), 1) for name in names]
    world.log.admin().create(topics)


@pytest.mark.parametrize("key", [("car",), ()])
@pytest.mark.parametrize(
    "numbers", [(1, 3), (3, 1), (2, 4), (4, 2), (2, 3), (5, 3), (3, 3), (1, 1), (1, 3, 2, 5)]
)
def test_every_result_is_there_once_with_any_numbers(
    numbers: tuple[int, ...], key: tuple[str, ...]
) -> None:
    world = World(numbers[0], key=key)
    world.log.admin().create([TopicSettings("p.out.rejected", 5)])
    for count in range(1, len(numbers) + 1):
        world.reshard(*numbers[:count])
        services = world.services()
        for bucket in range(3 * count, 3 * count + 3):
            world.feed(bucket, {bucket: 20})
        for number, service in enumerate(services):
            drain(service, 3 * count + (number % 3 if count < len(numbers) else 2))
    world.check()


def test_an_old_process_that_runs_on_is_fenced_and_writes_no_more(world: World) -> None:
    (old,) = world.services()
    world.feed(2, {1: 20, 2: 20})
    drain(old, 2)
    world.reshard(1, 3)
    new = world.services()
    before = delivered(world.log, world.pipeline)
    world.feed(4, {3: 20, 4: 20})
    with pytest.raises(Fenced):
        drain(old, 4)
    assert delivered(world.log, world.pipeline) == before
    all_delivered(new, 4)
    world.check()


def test_an_old_process_that_comes_back_stops_before_it_writes(world: World) -> None:
    world.facts["live"] = True
    world.reshard(1)
    (old,) = world.services()
    world.feed(2, {1: 20, 2: 20})
    drain(old, 2)
    old.stop()
    again = unstarted(world, "out")
    world.reshard(1, 3)
    first, *others = world.services()
    for _ in range(STEPS):
        first.step()
    epochs = dict(world.log.epochs)
    with pytest.raises(ConfigurationError, match=r"3 shards by now, .* write `shards: \[1, 3\]`"):
        again.start()
    assert world.log.epochs == epochs, "it fences nobody, and the live topic goes on"
    world.feed(4, {3: 20, 4: 20})
    all_delivered([first, *others], 4)
    for _ in range(STEPS):
        first.step()
    world.check()
    view = outputs.live_view(world.log, world.pipeline)
    assert len([record for record in view.stable() if record.id is not None]) == 80


def test_one_that_is_ended_between_its_look_and_its_failover_stops(world: World) -> None:
    world.facts["live"] = True
    world.reshard(1)
    (old,) = world.services()
    world.feed(1, {1: 20})
    drain(old, 1)
    for _ in range(STEPS):
        old.step()
    assert old._live is not None
    world.reshard(1, 2)
    old._live._close_writer()  # as after an outcome that is unknown
    new = world.services()
    live = world.log.epochs["p.out.live"]
    with pytest.raises(ConfigurationError, match=r"2 shards by now"):
        old.step()
    assert world.log.epochs["p.out.live"] == live, "it has looked before"
    old.stop()
    world.feed(2, {2: 20})
    all_delivered(new, 2)
    world.check()


def test_the_live_topic_is_taken_up_once_the_old_shards_have_ended(world: World) -> None:
    world.facts["live"] = True
    world.reshard(2)
    for service in world.services():
        service.stop()
    live = world.log.epochs["p.out.live"]
    world.reshard(2, 2)
    progress_topics(world, "out.2-0", "out.2-1")
    world.log.fail_next(FailingOperation.COMMIT, applied=0)
    first = world.service("out.2-0")
    assert world.log.epochs["p.out.live"] == live
    assert "have not ended" in str(first.status.detail["live"])
    for _ in range(STEPS):
        first.step()
    assert world.log.epochs["p.out.live"] == live + 1


def test_the_others_wait_until_the_first_has_ended_all(world: World) -> None:
    world.reshard(2)
    world.feed(1, {1: 20})
    for service in world.services():
        drain(service, 1)
        service.stop()
    world.reshard(2, 3)
    progress_topics(world, "out.2-0")
    second = world.service("out.2-1")
    assert second.status.waiting_for == "out.2-0 has not ended out.0 yet"
    first = world.service("out.2-0")
    assert [each.heirs for each in world.progress("out.0")][-2:] == [0, 3]
    assert [each.heirs for each in world.progress("out.1")][-1] == 3
    world.feed(2, {2: 20})
    all_delivered([first, second, world.service("out.2-2")], 2)
    world.check()


@pytest.mark.parametrize("applied", [0, 1])
@pytest.mark.parametrize("nth", [1, 2])
def test_an_unknown_outcome_of_an_end_is_settled(applied: int, nth: int) -> None:
    world = World(2)
    world.log.admin().create([TopicSettings("p.out.rejected", 5)])
    world.feed(1, {1: 20})
    for service in world.services():
        drain(service, 1)
        service.stop()
    world.reshard(2, 3)
    topic = f"p.out.{nth - 1}.progress"
    world.log.fail_next(FailingOperation.COMMIT, applied=applied, topic=topic)
    services = world.services()
    world.feed(2, {2: 20})
    all_delivered(services, 2)
    assert [each.heirs for each in world.progress("out.0")].count(3) == 1
    assert [each.heirs for each in world.progress("out.1")].count(3) == 1
    world.check()


def test_an_old_process_that_begins_while_it_is_ended_is_fenced_next(world: World) -> None:
    world.feed(1, {1: 20})
    (old,) = world.services()
    drain(old, 1)
    old.stop()
    came_back = unstarted(world, "out")
    world.reshard(1, 3)
    heir = unstarted(world, "out.2-0")
    real = world.log.transactional_writer

    def writer(transactional_id: str) -> object:
        made = real(transactional_id)
        if transactional_id == "p.out.corrected" and came_back._boundaries is None:
            came_back.start()
        return made

    world.log.transactional_writer = writer  # type: ignore[method-assign, assignment]
    heir.start()
    assert "which this shard is ending, was started again" in str(heir.status.waiting_for)
    world.feed(2, {2: 20})
    drain(came_back, 2)
    for _ in range(STEPS):
        heir.step()
    world.feed(3, {3: 20})
    with pytest.raises(Fenced):
        drain(came_back, 3)
    all_delivered([heir, world.service("out.2-1"), world.service("out.2-2")], 3)
    world.check()


@pytest.mark.parametrize("applied", [0, None])
def test_what_a_transaction_of_unknown_outcome_has_written_is_not_written_again(
    world: World, applied: int | None
) -> None:
    (old,) = world.services()
    world.feed(1, {1: 20})
    drain(old, 1)
    world.feed(2, {2: 40})
    world.log.fail_next(FailingOperation.COMMIT, applied=applied)
    old.step()
    world.reshard(1, 3)
    services = world.services()
    all_delivered(services, 2)
    found = delivered(world.log, world.pipeline)
    assert sorted(ident for _, ident, _, _ in found) == ids(world.sizes)


def test_a_crash_of_a_new_shard_before_it_has_passed_all_is_answered_by_the_ends(
    world: World,
) -> None:
    world.reshard(2)
    first, second = world.services()
    world.feed(1, {1: 20})
    drain(first, 1)
    drain(second, 1)
    for bucket in range(2, 8):
        world.feed(bucket, {bucket: 20})
        drain(second, bucket)
    world.reshard(2, 1)
    for applied in (1, 0, None, 1):
        world.log.fail_next(FailingOperation.COMMIT, applied=applied, topic="p.out")
        (new,) = world.services()
        for _ in range(2):
            new.step()
        new.stop()
    assert world.progress("out.2-0")[0].inherited
    world.feed(8, {8: 20})
    new = world.service("out.2-0")
    drain(new, 8)
    world.feed(9, {9: 20})
    drain(new, 9)
    world.check()
    assert not world.progress("out.2-0")[-1].inherited


def test_what_an_old_shard_has_left_within_a_bucket_is_written_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shard beside the live topic is ahead, and has written a part of a bucket; its heir goes
    through that bucket and the earlier ones at once.
    """
    world.facts["live"] = True
    world.reshard(2)
    first, second = world.services()
    world.feed(1, {1: 20})
    drain(second, 1)
    for bucket in range(2, 5):
        world.feed(bucket, {bucket: 20})
    with monkeypatch.context() as smaller:
        smaller.setattr(delivery_service, "BESIDE_LIVE_ROWS_MAX", 5)
        for _ in range(STEPS):
            if begin_of(world.progress("out.0")[-1]) != RecordId(4, 5):
                first.step()
    assert begin_of(world.progress("out.0")[-1]) == RecordId(4, 5)
    for each in (first, second):
        each.stop()
    world.reshard(2, 1)
    (heir,) = world.services()
    drain(heir, 4)
    world.check()


def small_topic(world: World) -> None:
    """Create the output's topic, which takes small records only."""
    world.log.admin().create([TopicSettings("p.out", 5, config={"max.message.bytes": "300"})])


def feed_large(world: World, every: int) -> None:
    """Close bucket 1 with 20 results, of which one in ``every`` is too large for the topic."""
    table = rows(1, 20).sort_by("event_time")
    roads = [
        text * 100 if n % every == 0 else text for n, text in enumerate(table["road"].to_pylist())
    ]
    world.replica.close_buckets(1, {1: table.set_column(1, "road", pa.array(roads))})


def rejected(world: World) -> list[RecordId]:
    return [
        RecordId.parse((dict(headers)["anabranch-id"] or b"").decode())
        for chunk in everything(world.log, "p.out.rejected", 5)
        for headers in chunk.headers
    ]


def test_rejected_results_are_there_once(world: World) -> None:
    small_topic(world)
    world.reshard(2)
    services = world.services()
    feed_large(world, 3)
    for service in services:
        drain(service, 1)
        service.stop()
    for numbers in ((2, 3), (2, 3, 1)):
        world.reshard(*numbers)
        services = world.services()
        for service in services:
            drain(service, 1)
    taken = [ident for _, ident, _, _ in delivered(world.log, world.pipeline)]
    assert len(rejected(world)) == 7
    assert sorted([*taken, *rejected(world)]) == ids({1: 20})


def test_rejected_results_of_a_torn_first_transaction_are_there_once(world: World) -> None:
    small_topic(world)
    (old,) = world.services()
    feed_large(world, 1)
    progress = TopicPartition("p.out.progress", 0)
    before = world.log.partition(progress).end
    for _ in range(STEPS):
        if not rejected(world):
            old.step()
    world.log.cut(progress, before)  # a broker that had not the newest copy leads it now
    assert not any(has_run(each) for each in world.progress("out"))
    world.reshard(1, 5)
    all_delivered(world.services(), 1)
    assert sorted(rejected(world)) == ids({1: 20})


def test_numbers_that_never_ran_are_ended_too(world: World) -> None:
    (old,) = world.services()
    world.feed(1, {1: 20})
    drain(old, 1)
    world.reshard(1, 3, 2)
    services = world.services()
    world.feed(2, {2: 20})
    all_delivered(services, 2)
    world.check()
    world.reshard(1, 3)
    with pytest.raises(ConfigurationError, match=r"has 2 shards by now, .*says \[1, 3\]"):
        world.service("out.2-0")


def test_an_output_that_never_delivered_begins_as_a_new_one() -> None:
    world = World(2, partitions=2)
    world.reshard(2, 1)
    world.feed(4, {1: 6, 2: 6, 3: 6, 4: 6})
    world.log.trim(TopicPartition("p.totals.blocks.0", 0), 2)
    (service,) = world.services()
    assert service.status.detail["left_out_ms"] == 200
    drain(service, 4)
    world.sizes = {3: 6, 4: 6}
    world.check()


def test_an_output_that_has_only_recorded_where_it_begins_begins_there() -> None:
    world = World(2, partitions=2)
    world.feed(4, {1: 6, 2: 6, 3: 6, 4: 6})
    world.log.trim(TopicPartition("p.totals.blocks.0", 0), 2)
    world.service("out.0").stop()
    world.reshard(2, 1)
    world.log.trim(TopicPartition("p.totals.blocks.0", 0), 4)
    (service,) = world.services()
    for _ in range(3):
        service.step()
    assert "requested buckets 3..4 of totals" in str(service.status.waiting_for)
    world.replica.append_recomputed({3: rows(3, 6), 4: rows(4, 6)})
    drain(service, 4)
    world.sizes = {3: 6, 4: 6}
    world.check()


def test_one_that_only_began_gets_partitions_first_and_then_shards() -> None:
    world, topic = World(1, partitions=2), "p.out"
    world.log.admin().create([TopicSettings(topic, 1)])
    world.service("out").stop()
    for each in (topic, "p.out.rejected"):
        world.log.admin().grow(each, 2)
    world.reshard(1, 2)
    with pytest.raises(ConfigurationError, match="start it once with `shards: 1`"):
        world.services()
    world.reshard(1)
    world.service("out").stop()
    world.reshard(1, 2)
    services = world.services()
    world.feed(3, {1: 6, 2: 6, 3: 6})
    all_delivered(services, 3)
    world.check()


def delivers(world: World) -> None:
    world.feed(1, {1: 40})
    for service in world.services():
        drain(service, 1)
        service.stop()


def all_progress(world: World) -> dict[str, int]:
    """How many records each progress topic has that has any."""
    topics = world.log.admin().named("p.out")
    found = {topic: world.log.partition(TopicPartition(topic, 0)).end for topic in topics}
    return {topic: end for topic, end in found.items() if topic.endswith(".progress") and end}


def state_of(world: World, name: str) -> str:
    return world.service(name).status.state


@pytest.mark.parametrize(
    ("ran", "file", "what"),
    [
        ((2,), (3, 4), "partition 2 was written by shard 0"),
        ((2,), (1, 4), r"there is progress of out\.0"),
        ((1,), (2, 4), "there is progress of out:"),
        ((3,), (2, 4), r"there is progress of out\.2"),
        ((1, 3), (1, 2), "has 3 shards by now|there is progress"),
        ((1, 3), (1,), "has 3 shards by now"),
        ((1, 3), (1, 2, 3), "has 3 shards by now|there is progress"),
        ((1, 3), (3,), "there is progress of out:"),
    ],
)
def test_a_wrong_list_is_rejected_before_anything_is_written(
    world: World, ran: tuple[int, ...], file: tuple[int, ...], what: str
) -> None:
    for count in range(1, len(ran) + 1):
        world.reshard(*ran[:count])
        delivers(world)
    written = delivered(world.log, world.pipeline)
    before = all_progress(world)
    world.reshard(*file)
    first, *others = world.pipeline.deliveries()
    with pytest.raises(ConfigurationError, match=what):
        world.service(first)
    for name in others:
        try:
            assert state_of(world, name) == "waiting"
        except ConfigurationError:
            continue
    assert delivered(world.log, world.pipeline) == written
    assert all_progress(world) == before


def test_of_two_files_one_goes_on(world: World) -> None:
    """The first end decides, whichever file the other one has read."""
    world.reshard(2)
    delivers(world)
    world.reshard(2, 3)
    world.log.fail_next(FailingOperation.COMMIT, applied=0, topic="p.out.1.progress")
    world.service("out.2-0").stop()
    assert [each.heirs for each in world.progress("out.0")][-1] == 3
    world.reshard(2, 4)
    with pytest.raises(ConfigurationError, match=r"has 3 shards by now, .*says \[2, 4\]"):
        world.service("out.2-0")
    world.reshard(2, 3)
    services = world.services()
    world.feed(2, {2: 20})
    all_delivered(services, 2)
    world.check()


def test_without_a_partition_of_rejected_results_it_says_what_to_do() -> None:
    world = World(1)
    world.service("out").stop()
    world.reshard(1, 3)
    with pytest.raises(ConfigurationError, match="topics --create' gives that topic 3 partitions"):
        world.service("out.2-0")
    world.log.admin().grow("p.out.rejected", 3)
    world.service("out.2-0")
