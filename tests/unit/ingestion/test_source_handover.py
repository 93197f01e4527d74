"""A source gets another number of shards: services on a log in memory, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.codec import control_records
from anabranch.codec.catalog import TopicSettings
from anabranch.ingestion import service as ingestion
from anabranch.ingestion import source_handover
from anabranch.ingestion.service import IngestionService
from anabranch.operating.give_up import GiveUp
from anabranch.pipeline.internal_topics import internal_topics
from anabranch.ports import TopicPartition
from anabranch.protocol.control.records import TrimPoint
from anabranch.protocol.errors import ConfigurationError, Fenced, Unavailable
from anabranch.protocol.limits import BUCKET_MAX
from anabranch.protocol.log.given_up import Times
from anabranch.protocol.log.records import GivenUp
from anabranch.streams.boundary_writer import BoundaryWriter
from harness.manager_world import started_manager
from harness.source_world import World
from harness.sources import StreamView, pipeline, report


class Numbers(World):
    """One source whose file changes."""

    def __init__(self, *numbers: int, partitions: int = 4, **source: Any) -> None:
        self._facts = source
        super().__init__(partitions, **_file(*numbers), **source)

    def change(self, *numbers: int) -> None:
        """Change the numbers in the file, and create the topics."""
        self.pipeline = pipeline("p", **_file(*numbers), **self._facts)
        names = self.pipeline.topic_names
        for stream in self.pipeline.source_streams():
            topics = ((names.boundaries(stream), 1), (names.blocks(stream, "0"), 2))
            specs = [TopicSettings(name, n) for name, n in topics if name not in self.log.topics]
            self.log.admin().create(specs)
            if stream not in self.views:
                self.views[stream] = StreamView(self.log, self.pipeline, self.clock, stream)

    def start(self) -> list[IngestionService]:
        return [self.process(name) for name in self.pipeline.source_processes()]

    def run_all(self, processes: list[IngestionService], rounds: int = 20) -> None:
        for _ in range(rounds):
            for process in processes:
                process.step()

    def rows(self) -> list[int]:
        """Return the rows of all streams, open buckets included."""
        found: list[int] = []
        for view in self.views.values():
            view.closed()
            view.log_state().heirs_known = view.log_state().heirs
            found += view.cars()
        return sorted(found)


def _file(*numbers: int) -> dict[str, Any]:
    return {"shards": numbers[-1], "shards_before": list(numbers[:-1])}


def test_from_one_to_three_and_to_two_every_record_is_there_once() -> None:
    world = Numbers(1)
    cars, processes = iter(range(1_000)), list[IngestionService]()
    for numbers in ([1], [1, 3], [1, 3, 2]):
        world.change(*numbers)
        processes = world.start()
        for round_ in range(3):
            for partition in range(4):
                time_ms = 1_000 * len(numbers) + 250 * round_ + 60 * partition
                world.produce(partition, report(time_ms, next(cars)))
            world.run_all(processes)
    for partition in range(4):
        world.produce(partition, report(9_000, next(cars)))
    world.run_all(processes)
    assert world.rows() == list(range(36)), "those of the last bucket are open"
    assert [world.views[stream].log_state().heirs for stream in world.views] == [3, 2, 2, 2, 0, 0]
    assert world.views["reports.3-0"].closed() == 89
    assert world.views["reports"].last() is not None


def test_an_old_process_ends_and_begins_no_more() -> None:
    world = Numbers(1)
    (old,) = world.start()
    world.produce(0, report(1_000, 1))
    world.run(old)
    old_file = world.pipeline
    world.change(1, 2)
    world.start()
    world.produce(0, report(2_000, 2))
    with pytest.raises((ConfigurationError, Fenced)):
        world.run(old, 50)
    world.pipeline = old_file
    with pytest.raises(ConfigurationError, match=r"2 shards by now.*`shards: \[1, 2\]`"):
        world.process()
    world.views["reports"].closed()
    assert world.views["reports"].counts["accepted"] == 2


def test_who_dies_while_it_ends_them_is_followed_by_one_that_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = Numbers(3)
    processes = world.start()
    for partition in range(4):
        world.produce(partition, report(1_000, partition))
    world.run_all(processes)
    world.change(3, 2)
    ended = source_handover.EarlierSourceShards._end
    done: list[str] = []

    def dying(self: Any, stream: str, *rest: Any) -> None:
        if len(done) == 2:
            raise Unavailable("died")
        done.append(stream)
        ended(self, stream, *rest)

    monkeypatch.setattr(source_handover.EarlierSourceShards, "_end", dying)
    with pytest.raises(Unavailable, match="died"):
        world.process("reports.2-0")
    monkeypatch.setattr(source_handover.EarlierSourceShards, "_end", ended)
    assert done == ["reports.0", "reports.1"]
    world.run_all(world.start())
    assert world.rows() == [0, 1, 2, 3]


def test_a_number_that_was_never_begun_is_replaced_as_well() -> None:
    world = Numbers(2)
    processes = world.start()
    for partition in range(4):
        world.produce(partition, report(1_000, partition), report(1_500, 10 + partition))
    world.run_all(processes)
    world.change(2, 3, 1)
    (process,) = world.start()
    for partition in range(4):
        world.produce(partition, report(3_000, 20 + partition))
    world.run(process)
    every = [group + partition for group in (0, 10, 20) for partition in range(4)]
    assert world.rows() == sorted(every)[:8], "what is open is not closed yet"
    assert world.views["reports.3-0"].closed() == 29
    for shard in range(3):
        assert world.views[f"reports.2-{shard}"].log_state().closed_upto == 14


def test_who_is_fenced_while_it_ends_one_tries_again_and_gives_up_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = Numbers(1)
    world.run(world.start()[0])
    world.change(1, 2)
    tries: list[int] = []

    def fenced(*_: Any) -> None:
        tries.append(world.clock.monotonic_ms())
        raise Fenced("by another")

    with monkeypatch.context() as patched:
        patched.setattr(BoundaryWriter, "append", fenced)
        with pytest.raises(Unavailable, match="reports has not ended"):
            world.process("reports.2-0")
    assert len(tries) > 5
    world.process("reports.2-0")


def test_who_finds_it_ended_after_all_writes_no_second_end(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Numbers(1)
    world.run(world.start()[0])
    world.change(1, 2)
    start = BoundaryWriter.start

    def overtaken(self: BoundaryWriter, *arguments: Any) -> int:
        monkeypatch.setattr(BoundaryWriter, "start", start)
        world.process("reports.2-0")
        return start(self, *arguments)

    monkeypatch.setattr(BoundaryWriter, "start", overtaken)
    world.process("reports.2-1")
    assert world.views["reports"].closed() < BUCKET_MAX, "its reader does not know the heirs"
    assert world.views["reports"].log_state().heirs == 2


@pytest.mark.parametrize(
    ("numbers", "what"),
    [
        ([3, 2], r"reports\.0 has read partition 2"),
        ([1, 2], r"there is a log of reports\.0.*\[BEFORE, NOW\]"),
        ([0, 2], "nothing says where its shards begin"),
        ([0, 0, 2], "nothing says where its shards begin"),
        ([2, 5], "at most 4 partitions"),
    ],
)
def test_a_wrong_number_before_is_found_from_the_logs_and_nothing_changes(
    numbers: list[int], what: str
) -> None:
    world = Numbers(2)
    processes = world.start()
    for partition in range(4):
        world.produce(partition, report(1_000, partition))
    world.run_all(processes)
    for process in processes:
        process.stop()
    world.change(*numbers)
    for name in world.pipeline.source_processes():
        with pytest.raises(ConfigurationError, match=what):
            world.process(name)
    world.change(2)
    world.run_all(world.start())
    assert [world.views[f"reports.{shard}"].closed() for shard in range(2)] == [9, 9]


def test_a_shard_that_nobody_has_ever_run_is_none_that_the_source_had() -> None:
    world = Numbers(2)
    world.process("reports.0")
    world.change(2, 1)
    with pytest.raises(ConfigurationError, match=r"reports\.1 was never written"):
        world.process("reports.2-0")


def test_two_files_that_differ_never_both_go_on() -> None:
    world = Numbers(1)
    world.run(world.start()[0])
    world.change(1, 3)
    world.process("reports.2-0")
    world.change(1, 2)
    for name in world.pipeline.source_processes():
        with pytest.raises(ConfigurationError, match=r"3 shards by now|another number"):
            world.process(name)


def test_once_all_have_begun_the_file_need_not_name_the_streams_before() -> None:
    world = Numbers(1)
    world.run(world.start()[0])
    world.change(1, 2)
    world.start()
    world.change(0, 2)
    processes = world.start()
    for partition in range(4):
        world.produce(partition, report(3_000, partition))
    world.run_all(processes)
    assert world.views["reports.2-1"].closed() == 29
    world.change(0, 2, 3)
    world.run_all(world.start())
    assert world.views["reports.3-2"].closed() == 29


def test_the_manager_says_when_nobody_needs_a_stream_any_more() -> None:
    world = Numbers(1)
    (old,) = world.start()
    for partition in range(4):
        world.produce(partition, report(1_000, partition), report(1_350, partition))
    world.run(old)
    world.change(1, 2)
    world.start()
    topics = [settings for _, settings in internal_topics(world.pipeline)]
    missing = [topic for topic in topics if topic.name not in world.log.topics]
    world.log.admin().create(missing)
    of, clock = world.pipeline, world.clock
    manager = started_manager(world.log, of, clock, world.entropy)
    found = []
    for bucket in (9, 13, 14):
        writer = world.log.writer()
        point = TrimPoint("reports", bucket, clock.now_ms())
        at = TopicPartition(of.topic_names.manager(), 0)
        writer.send(at, control_records.encode(point))
        writer.flush()
        manager.step()
        found.append(manager.status.detail["not_needed"])
    assert found == [[], [], ["reports"]]
    assert manager.status.last_bucket_ms == 1_300, "of those that go on"
    manager.stop()


def test_an_operator_gives_up_no_stream_that_has_ended() -> None:
    world = Numbers(1)
    world.run(world.start()[0])
    world.change(1, 2)
    world.start()
    world.change(1)
    times = Times(0, 5_000)
    command = GiveUp(world.log, world.pipeline, "reports", times, world.clock, world.entropy)
    with pytest.raises(ConfigurationError, match=r"reports has ended: .* 2 shards now"):
        command.plan()


def test_start_counts_for_what_an_old_shard_should_have_read_and_never_did() -> None:
    world = Numbers(2, start="latest")
    for partition in range(4):
        world.produce(partition, report(1_000, partition))
    first = world.process("reports.0")
    world.process("reports.1")  # begins an epoch, and dies before it has read anything
    world.produce(0, report(2_000, 10))
    world.run(first)
    world.produce(1, report(2_000, 11))
    world.change(2, 3)
    processes = world.start()
    for partition in range(4):
        world.produce(partition, report(3_000, 20 + partition))
    world.run_all(processes)
    for partition in range(4):
        world.produce(partition, report(9_000, 30 + partition))
    world.run_all(processes)
    assert world.rows() == [10, 20, 21, 22, 23]


def test_a_shard_that_is_given_up_before_it_recorded_a_position_goes_on_where_it_would_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = Numbers(1, partitions=2)
    (old,) = world.start()

    def died(*_: object, **__: object) -> None:
        raise Unavailable("died after its epoch began")

    for partition in (0, 1):
        world.produce(partition, *(report(1_000 + i * 100, 10 * partition + i) for i in range(10)))
    world.run(old)
    old.stop()
    world.change(1, 2)
    with monkeypatch.context() as patched:
        patched.setattr(ingestion, "first_offset", died)
        with pytest.raises(Unavailable, match="died after its epoch began"):
            world.process("reports.2-1")
    clock, entropy = world.clock, world.entropy
    command = GiveUp(world.log, world.pipeline, "reports.2-1", Times(0, 3_000), clock, entropy)
    assert command.do() == GivenUp("reports.2-1", 19, 30), "the old stream has closed the others"
    first, second = world.start()
    for partition in (0, 1):
        world.produce(partition, report(2_500, 100 + partition), report(3_500, 200 + partition))
    world.run_all([first, second])
    for partition in (0, 1):
        world.produce(partition, report(4_000, 300 + partition))
    world.run_all([first, second])
    first.stop()
    second.stop()
    assert world.rows() == [*range(20), 100, 200, 201]
    assert [reason for _, reason in world.dead()] == ["late"]
