"""A source whose input is not there: it waits, says why, and goes on. A log in memory, virtual
time.
"""

from __future__ import annotations

import pytest

from anabranch.codec import control_records
from anabranch.codec.catalog import TopicSettings
from anabranch.ingestion.service import (
    COMPARE_IDENTITIES_EVERY_MS,
    IngestionService,
)
from anabranch.operating.give_up import GiveUpMissing
from anabranch.ports import TopicPartition
from anabranch.protocol.control.records import INPUT_MISSING, Heartbeat
from anabranch.protocol.edge.missing_input import INPUT_AGAIN_MS
from anabranch.protocol.errors import ConfigurationError
from harness.source_world import World
from harness.sources import everything, pipeline, report

AT = TopicPartition("p.reports", 0)


def read(world: World) -> IngestionService:
    """Start a process and let it read ten records of each partition."""
    process = world.process()
    for partition in (0, 1):
        world.produce(partition, *(report(1_000 + i, 100 * partition + i) for i in range(10)))
    world.run(process)
    assert world.view.closed() == 10
    return process


def wait(world: World, process: IngestionService, *, is_missing: bool = True) -> str:
    """Let it look again; what it says then. ``is_missing``: whether it says that input is gone."""
    until_ms = world.clock.monotonic_ms() + INPUT_AGAIN_MS
    world.run(process, lambda: world.clock.monotonic_ms() > until_ms)
    assert process.status.state == "waiting"
    assert process.status.waiting_for == "its input"
    beat = control_records.decode(
        everything(world.log, "p.control.ingestion.reports")[-1].values[-1]
    )
    assert isinstance(beat, Heartbeat)
    assert beat.state == (INPUT_MISSING if is_missing else "waiting")
    assert ("input_missing" in process.status.detail) is is_missing
    return process.status.error or ""


def epochs(world: World) -> int:
    world.view.closed()
    return world.view.counts.get("epoch", 0)


def give_up(world: World) -> None:
    clock, entropy = world.clock, world.entropy
    GiveUpMissing(world.log, world.pipeline, "reports", 2_000, clock, entropy).do_missing()


def test_records_that_were_deleted_before_they_were_read_are_waited_for_and_given_up() -> None:
    world = World()
    read(world).stop()
    world.produce(0, *(report(1_100 + i, 20 + i) for i in range(10)))
    world.log.trim(AT, 15)
    process, before = world.process(), epochs(world)
    assert "offsets 10 to 14 were deleted before they were read, at most 5" in wait(world, process)
    assert "'anabranch give-up reports --missing'" in wait(world, process)
    assert epochs(world) == before, "whoever waits begins no epoch"
    give_up(world)
    world.produce(0, report(3_000, 98))
    world.produce(1, report(3_000, 99))
    world.run(process, lambda: world.view.closed() == 29)
    assert (process.status.state, process.status.error) == ("running", None)
    assert world.view.cars() == [*range(10), *range(25, 30), *range(100, 110)]
    assert world.view.log_state().given_up.names(11) == ("reports",)
    assert world.dead() == []


def test_retention_while_it_runs_ends_it_once() -> None:
    world = World()
    process = read(world)
    world.produce(0, *(report(1_100 + i, 20 + i) for i in range(10)))
    world.log.trim(AT, 15)
    with pytest.raises(Exception, match="not 10"):
        world.run(process)
    process.stop()
    assert "offsets 10 to 14" in wait(world, world.process())


def test_a_log_that_was_cut_is_waited_for() -> None:
    world = World()
    read(world).stop()
    world.log.cut(AT, 8)
    process = world.process()
    assert "it ends at offset 8, and was read up to 10 before" in wait(world, process)
    give_up(world)
    world.produce(0, report(3_000, 98))
    world.produce(1, report(3_000, 99))
    world.produce(0, report(3_200, 98))
    world.produce(1, report(3_200, 99))
    world.run(process, lambda: world.view.closed() == 31)
    assert world.view.cars().count(98) == 1


def test_a_topic_that_is_deleted_and_created_again_is_never_read_at_old_offsets() -> None:
    world = World()
    process = read(world)
    admin = world.log.admin()
    admin.delete_topics(["p.reports"])
    process.stop()
    process = world.process()
    assert "topic p.reports does not exist" in wait(world, process)
    admin.create([TopicSettings("p.reports", 1)])
    world.produce(0, *(report(1_500 + i, 50 + i) for i in range(20)))
    assert "the topic was deleted and created again" in wait(world, process)
    give_up(world)
    world.produce(0, report(3_000, 98))
    world.run(process, lambda: world.view.closed() == 29)
    assert world.view.cars() == [*range(10), *range(50, 70), *range(100, 110)]


def test_a_topic_that_goes_while_it_is_read_makes_its_source_wait() -> None:
    """The client notices nothing: it continues at the old offsets."""
    world = World()
    process = read(world)
    identity = world.log.topic_ids["p.reports"]
    world.log.topic_ids["p.reports"] = "another"
    world.run(process, lambda: bool(process.status.error))
    assert process.status.error == "source reports: topic p.reports was created again"
    assert "deleted and created again" in wait(world, process)
    world.log.topic_ids["p.reports"] = identity
    world.run(process, lambda: process.status.state != "waiting")


def test_a_process_that_slept_while_its_topic_was_created_again_reads_nothing_of_it() -> None:
    """The new topic has the offset at which the process was, so its client reads on there."""
    world = World()
    process = read(world)
    closed = world.view.closed()
    admin = world.log.admin()
    admin.delete_topics(["p.reports"])
    admin.create([TopicSettings("p.reports", 2)])
    for partition in (0, 1):
        world.produce(partition, *(report(1_500 + i, 50 + i) for i in range(20)))
    world.clock.sleep_ms(COMPARE_IDENTITIES_EVERY_MS + 1)
    world.run(process, lambda: bool(process.status.error))
    assert world.view.closed() == closed
    give_up(world)
    for partition in (0, 1):
        world.produce(partition, report(3_000, 98))
    world.run(process, lambda: world.view.closed() == 29)
    assert world.view.cars() == sorted([*range(10), *(2 * [*range(50, 70)]), *range(100, 110)])


def test_a_partition_without_a_leader_is_waited_for() -> None:
    world = World()
    read(world).stop()
    world.log.leaderless.add(AT)
    process = world.process()
    assert "offsets of p.reports[0]: no leader" in wait(world, process, is_missing=False)
    world.log.leaderless.clear()
    world.produce(0, report(2_000, 98))
    world.produce(1, report(2_000, 99))
    world.run(process, lambda: world.view.closed() == 19)
    assert world.view.cars() == [*range(10), *range(100, 110)]


def test_what_is_gone_stays_so_while_it_cannot_be_asked_for() -> None:
    """One wait is one alarm."""
    world = World()
    read(world).stop()
    world.produce(0, *(report(1_100 + i, 20 + i) for i in range(10)))
    world.log.trim(AT, 15)
    process = world.process()
    assert "deleted before they were read" in wait(world, process)
    world.log.leaderless.add(AT)
    assert "no leader" in wait(world, process)


def test_a_new_source_waits_for_a_leader_too() -> None:
    world = World()
    world.log.leaderless.add(AT)
    process = world.process()
    assert "no leader" in wait(world, process, is_missing=False)
    world.log.leaderless.clear()
    world.produce(0, report(1_000, 1))
    world.produce(1, report(1_000, 2))
    world.run(process, lambda: world.view.closed() == 9)


def test_a_topic_that_was_never_there_is_a_mistake_in_the_file() -> None:
    world = World()
    world.pipeline = pipeline("p", topics=["reportz"])
    with pytest.raises(ConfigurationError, match=r"topic p.reportz does not exist"):
        world.process()


@pytest.mark.parametrize("fate", ["commit", "abort"])
def test_a_position_does_not_stay_before_what_readers_are_never_shown(fate: str) -> None:
    world = World()
    process = read(world)
    writer = world.log.transactional_writer("theirs")
    writer.begin()
    for partition in (0, 1):
        writer.send(TopicPartition("p.reports", partition), report(1_500, 50))
    getattr(writer, fate)()
    writer.close()
    world.run(process)
    process.stop()
    reader = world.log.reader(committed=False)
    places = [TopicPartition("p.reports", i) for i in (0, 1)]
    world.log.admin().delete_before({at: reader.offsets(at)[1] for at in places})
    after = world.process()
    assert after.status.error is None
    for partition in (0, 1):
        world.produce(partition, report(3_000, 98))
    world.run(after, lambda: world.view.closed() == 29)
    assert world.view.cars().count(50) == (2 if fate == "commit" else 0)
