"""Ranges come whole and once, whatever was read too far before; nothing else is fetched."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from anabranch.adapters.memory.clock import VirtualClock
from anabranch.adapters.memory.log import LocalEventLog, LocalLogReader
from anabranch.codec.catalog import TopicSettings
from anabranch.ports import Chunk, TopicPartition
from anabranch.protocol.errors import DataMissing, Unavailable
from anabranch.streams import range_reader as module
from anabranch.streams.range_reader import CLUSTER_PATIENCE_MS, RangeReader
from harness.silent_cluster import SilentCluster, SilentReader

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class World:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log = LocalEventLog(VirtualClock())
        self.log.admin().create([TopicSettings("t", 2)])
        self.seeks = 0
        """Partitions that were read from somewhere."""
        self.assigned: Mapping[TopicPartition, int] = {}
        real = LocalLogReader.assign

        def assign(reader: LocalLogReader, positions: Mapping[TopicPartition, int]) -> None:
            self.seeks += len(positions)
            self.assigned = positions
            real(reader, positions)

        monkeypatch.setattr(LocalLogReader, "assign", assign)
        self.reader = RangeReader(self.log, self.log.clock, "s")

    def put(self, at: TopicPartition, count: int) -> None:
        writer = self.log.writer()
        for _ in range(count):
            writer.send(at, b"x" * 10)
        writer.flush()

    def read(self, **ranges: tuple[int, int]) -> list[str]:
        """``a=(2, 5)``: that range of partition A. What came, such as ``a2``."""
        places = {"a": A, "b": B}
        found: list[str] = []
        self.reader.read(
            {places[name]: first for name, (first, _) in ranges.items()},
            {places[name]: end for name, (_, end) in ranges.items()},
            lambda at, offset, _value, _headers: found.append(f"{'ab'[at.partition]}{offset}"),
        )
        assert not self.assigned, "between two reads nothing is fetched"
        return sorted(found, key=lambda name: (name[0], int(name[1:])))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_what_was_read_too_far_is_not_read_again(world: World) -> None:
    world.put(A, 20)
    world.put(B, 20)
    assert world.read(a=(0, 2), b=(0, 1)) == ["a0", "a1", "b0"]
    assert world.read(a=(2, 4), b=(3, 4)) == ["a2", "a3", "b3"]
    assert world.read(a=(10, 12), b=(4, 20)) == ["a10", "a11", *(f"b{n}" for n in range(4, 20))]
    assert world.read(a=(12, 12), b=(20, 20)) == []
    assert world.seeks == 2
    world.put(A, 5)
    assert world.read(a=(19, 22), b=(20, 20)) == ["a19", "a20", "a21"]
    assert world.seeks == 3


def test_a_step_back_a_step_over_what_is_kept_and_other_partitions_are_read_from_there(
    world: World,
) -> None:
    world.put(A, 1_000)
    world.put(B, 3)
    assert world.read(a=(4, 6)) == ["a4", "a5"]
    assert world.read(a=(0, 2)) == ["a0", "a1"]
    assert world.seeks == 2
    assert world.read(a=(1, 2), b=(0, 1)) == ["a1", "b0"]
    assert world.seeks == 4
    world.put(A, 10)
    assert world.read(a=(1_005, 1_006)) == ["a1005"]
    assert world.seeks == 5


def test_nothing_is_fetched_of_partitions_that_are_not_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.put(A, 3)
    world.put(B, 3)
    fetched, real = set[TopicPartition](), LocalLogReader.fetch

    def fetch(reader: LocalLogReader, records_max: int, wait_ms: int) -> list[Chunk]:
        fetched.update(world.assigned)
        return real(reader, records_max, wait_ms)

    monkeypatch.setattr(LocalLogReader, "fetch", fetch)
    world.read(a=(0, 2), b=(1, 1))
    assert fetched == {A}
    world.read(b=(0, 3))
    assert fetched == {A, B}


def test_beyond_the_bound_only_what_is_waited_for_is_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_KEPT_BYTES_MAX", 50)
    world.put(A, 100)
    fetched, real = list[set[TopicPartition]](), LocalLogReader.fetch

    def fetch(reader: LocalLogReader, records_max: int, wait_ms: int) -> list[Chunk]:
        fetched.append(set(world.assigned))
        if len(fetched) == 3:
            world.put(B, 1)
        return real(reader, records_max, wait_ms)

    monkeypatch.setattr(LocalLogReader, "fetch", fetch)
    assert world.read(a=(0, 1), b=(0, 1)) == ["a0", "b0"]
    assert fetched == [{A, B}, {B}, {B}, {B}]
    assert world.reader._kept_bytes == 0


def test_every_partition_has_a_place_of_its_own(world: World) -> None:
    """Reading now this one and now that, and both, seeks only once for each; nor does a jump
    in one move the other.
    """
    world.put(A, 1_000)
    world.put(B, 1_000)
    assert world.read(a=(0, 2)) == ["a0", "a1"]
    assert world.read(b=(5, 7)) == ["b5", "b6"]
    assert world.seeks == 2
    for n in range(2, 300, 3):
        assert world.read(a=(n, n + 2)) == [f"a{n}", f"a{n + 1}"]
        assert world.read(a=(n + 2, n + 3), b=(n + 5, n + 7)) == [
            f"a{n + 2}",
            f"b{n + 5}",
            f"b{n + 6}",
        ]
    assert world.seeks == 2
    assert world.read(b=(0, 1)) == ["b0"]
    assert world.read(a=(302, 303)) == ["a302"]
    assert world.seeks == 3


def test_what_is_kept_of_partitions_that_are_not_read_is_bounded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_KEPT_BYTES_MAX", 500)
    world.put(A, 100)
    world.read(a=(0, 1), b=(0, 0))
    assert world.seeks == 1
    world.put(B, 100)
    for n in range(1, 50):
        assert world.read(b=(n, n + 1)) == [f"b{n}"]
    assert world.reader._kept_bytes <= 2_000
    assert world.read(a=(50, 51)) == ["a50"]


def test_what_is_gone_of_a_partition_that_is_not_wanted_is_no_loss(world: World) -> None:
    world.put(A, 2)
    world.put(B, 2)
    assert world.read(a=(0, 2), b=(0, 2)) == ["a0", "a1", "b0", "b1"]
    world.put(A, 20)
    world.put(B, 20)
    world.log.trim(B, 20)
    assert world.read(a=(2, 4)) == ["a2", "a3"]
    assert world.read(a=(4, 6), b=(20, 21)) == ["a4", "a5", "b20"]


def test_too_much_read_too_far_is_dropped(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_KEPT_BYTES_MAX", 50)
    world.put(A, 20)
    assert world.read(a=(0, 2)) == ["a0", "a1"]
    assert world.read(a=(2, 19)) == [f"a{n}" for n in range(2, 19)]
    assert world.seeks == 2
    assert world.read(a=(19, 20)) == ["a19"]
    assert world.seeks == 2


def test_after_an_error_it_begins_anew(world: World) -> None:
    world.put(A, 5)
    world.log.trim(A, 3)
    with pytest.raises(DataMissing):
        world.read(a=(1, 4))
    assert world.read(a=(3, 5)) == ["a3", "a4"]
    with pytest.raises(DataMissing, match="nothing came up to offset 9"):
        world.read(a=(5, 9))
    world.put(A, 4)
    assert world.read(a=(5, 9)) == ["a5", "a6", "a7", "a8"]
    world.reader.close()


def test_a_broker_that_is_away_holds_reading_up_and_takes_nothing_away(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.put(A, 5)
    clock, fetch = world.log.clock, LocalLogReader.fetch
    back_ms = clock.monotonic_ms() + 70_000

    def away(reader: LocalLogReader, records_max: int, wait_ms: int) -> list[Chunk]:
        if clock.monotonic_ms() >= back_ms:
            return fetch(reader, records_max, wait_ms)
        clock.sleep_ms(wait_ms)
        return []

    def nobody_answers(
        _reader: LocalLogReader, _at: TopicPartition, _wait_ms: int | None = None
    ) -> tuple[int, int]:
        raise Unavailable("nobody answers")

    monkeypatch.setattr(LocalLogReader, "fetch", away)
    with monkeypatch.context() as patched:
        patched.setattr(LocalLogReader, "offsets", nobody_answers)
        assert world.read(a=(0, 5)) == ["a0", "a1", "a2", "a3", "a4"]
        world.put(A, 3)
        back_ms = clock.monotonic_ms() + 700_000
        with pytest.raises(Unavailable, match="nothing came up to offset 8"):
            world.read(a=(5, 8))
    with pytest.raises(
        Unavailable, match="nothing came up to offset 8"
    ):  # the log says that it is there
        world.read(a=(5, 8))


def test_what_lay_between_may_be_trimmed(world: World) -> None:
    world.put(A, 2)
    assert world.read(a=(0, 2)) == ["a0", "a1"]
    world.put(A, 20)
    world.log.trim(A, 8)
    assert world.read(a=(9, 11)) == ["a9", "a10"]
    world.put(A, 10)
    world.log.trim(A, 30)
    with pytest.raises(DataMissing):
        world.read(a=(22, 24))


def test_a_cluster_elsewhere_that_does_not_answer_ends_the_read_soon(world: World) -> None:
    world.put(A, 3)
    there, clock = SilentCluster(), VirtualClock()
    there.clock = clock
    there.admin().create([TopicSettings("t", 1)])
    there.is_silent = True
    reader = RangeReader(there, clock, "s", is_elsewhere=True)
    real = clock.now_ms()

    def fetch(self: SilentReader, records_max: int, wait_ms: int) -> list[Chunk]:
        del self, records_max
        clock.advance(wait_ms)
        return []

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SilentReader, "fetch", fetch)
        with pytest.raises(Unavailable, match="nobody answers"):
            reader.read({A: 0}, {A: 2}, lambda *_: None)
        assert clock.now_ms() - real <= CLUSTER_PATIENCE_MS + 400
        there.is_silent = False
        real = clock.now_ms()
        with pytest.raises(DataMissing, match="it has 0 to 0"):
            reader.read({A: 0}, {A: 2}, lambda *_: None)
        assert clock.now_ms() - real > 30_000, "who answers may be slow"
