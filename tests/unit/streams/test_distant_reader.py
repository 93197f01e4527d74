"""A log on another owner's cluster is read by a thread of its own, and nobody waits for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from anabranch.adapters.memory.clock import SeededEntropy
from anabranch.adapters.system.clock import SystemClock
from anabranch.codec.catalog import TopicSettings
from anabranch.protocol.errors import ConfigurationError, Unavailable
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.records import BoundaryRecord, EpochStarted
from anabranch.streams import distant_reader as module
from anabranch.streams.boundary_reader import BoundaryReader
from anabranch.streams.boundary_writer import BoundaryWriter
from anabranch.streams.distant_reader import DistantReader
from harness.silent_cluster import SilentCluster
from harness.waiting import wait_until


class World:
    """A stream elsewhere, and its reader."""

    def __init__(self) -> None:
        self.there = SilentCluster()
        self.there.admin().create([TopicSettings("s", 1)])
        started = EpochStarted("0", "f", SeededEntropy(1).token())
        self.writer = BoundaryWriter(self.there, "s", ["0"], started, SystemClock())
        self.writer.start()
        self.lock, self.batch = threading.Condition(), 0
        self.error: Exception | None = None
        self.reader: DistantReader | None = None

    def open(self) -> DistantReader:
        self.reader = DistantReader(self.there, "s", ["0"], self._open)
        return self.reader

    def _open(self) -> BoundaryReader:
        if self.error is not None:
            raise self.error
        return BoundaryReader(self.there, "s", ["0"], lock=self.lock)

    def close_upto(self, bucket: int) -> None:
        self.batch += 1
        ident = BatchId("l", self.batch)
        record = BoundaryRecord("0", self.writer.epoch, ident, self.writer.tip(), bucket)
        self.writer.append(record)

    def read_all(self) -> None:
        """Until the thread has done all that it does of the records that there are, and whoever
        polls was told.
        """
        assert self.reader is not None
        reader, end = self.reader, 1 + self.batch

        def read() -> bool:
            reader.poll(20)
            return reader._polled == end and not reader.trouble

        wait_until(read, 10, f"{end} records")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(module, "CLUSTER_AGAIN_MS", 10)
    made = World()
    yield made
    made.there.is_silent = False
    if made.reader is not None:
        made.reader.close()


def test_it_reads_on_when_it_is_told_to(world: World) -> None:
    world.close_upto(3)
    reader = world.open()
    assert (reader.log_state.upto, reader.offset_next, dict(reader.counts)) == (0, 0, {})
    assert (reader.is_opening, reader.trouble) == (True, "")
    with pytest.raises(Unavailable, match="s: it is being opened"):
        reader.end()
    world.read_all()
    assert reader.log_state.upto == 3
    assert not reader.is_opening
    assert reader.end() == reader.offset_next == 2
    assert sum(reader.counts.values()) == 2
    world.close_upto(5)
    assert reader.poll(0) >= 0
    world.read_all()
    assert reader.log_state.upto == 5
    with pytest.raises(Unavailable, match="is not waited for"):
        reader.read_to_end()


def test_who_does_not_ask_for_more_gets_no_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, real = [0], DistantReader._step

    def step(reader: DistantReader) -> None:
        steps[0] += 1
        real(reader)

    monkeypatch.setattr(DistantReader, "_step", step)
    reader = world.open()
    for bucket in range(1, 30):
        world.close_upto(bucket)
        reader.poll(5)
        assert steps[0] <= bucket, "once for each time that it is told to"


def test_nobody_waits_for_a_cluster_that_does_not_answer(world: World) -> None:
    world.there.is_silent = True
    reader = world.open()
    wait_until(lambda: reader.poll(5) == 0 and reader.trouble, 10, "it is told why")
    assert reader.trouble == "nobody answers"
    assert not reader.is_opening
    with pytest.raises(Unavailable, match="s: nobody answers"):
        reader.end()
    world.there.is_silent = False
    world.close_upto(3)
    world.read_all()
    world.there.is_silent = True
    with pytest.raises(Unavailable, match="s: no answer about its end"):
        reader.end()
    assert reader.poll(5) == 0
    assert reader.log_state.upto == 3


def test_a_client_that_was_rejected_is_followed_by_another_where_it_stood(world: World) -> None:
    reader = world.open()
    world.close_upto(3)
    world.read_all()
    assigned = world.there.assigned
    world.there.is_closed_to_us = True
    wait_until(lambda: reader.poll(5) == 0 and reader.trouble == "rejected", 10, "it is told")
    world.there.is_closed_to_us = False
    world.close_upto(4)
    world.read_all()
    assert reader.log_state.upto == 4
    assert world.there.assigned > assigned
    assert sum(reader.counts.values()) == 3, "no record twice"


def test_why_its_records_wait_is_told(world: World) -> None:
    """A stage that starts would otherwise wait for ever until they are read."""
    reader = world.open()
    world.close_upto(1)
    world.read_all()
    assert reader._opened is not None
    reader._opened.trouble = "keys"
    assert reader.trouble == "keys"
    world.close_upto(2)
    reader._opened.trouble = ""
    world.read_all()
    assert reader.log_state.upto == 2


def test_what_is_wrong_with_the_log_is_an_error_of_who_reads_it(world: World) -> None:
    world.error = ConfigurationError("the times are the writers'")
    reader = world.open()

    def raised() -> bool:
        try:
            reader.poll(5)
        except ConfigurationError:
            return True
        return False

    wait_until(raised, 10, "the error")
    with pytest.raises(ConfigurationError):
        reader.poll(5)


def test_it_ends_its_thread_and_what_it_opened(world: World) -> None:
    reader = world.open()
    world.close_upto(1)
    world.read_all()
    reader.end()
    reader.close()
    reader.close()
    reader._thread.join(10)
    assert not reader._thread.is_alive()
