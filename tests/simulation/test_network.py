"""Tests of a flush under each fault of a write: the records that the log has then, and the outcome
that its writer receives.
"""

from __future__ import annotations

import random

import pytest

from anabranch.adapters.memory.index import LocalIndex
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.codec.catalog import TopicSettings
from anabranch.ports import TopicPartition
from anabranch.protocol.errors import OutcomeUnknown
from simulation.history import History
from simulation.network import Link, Network, Port, SimulatedLog
from simulation.scheduler import Process, Scheduler
from simulation.side_ports import WorldClock

AT = TopicPartition("p.s.blocks.0", 0)
RECORDS = 4


class Flushed:
    """One flush of four records, which ``fault`` befalls."""

    def __init__(self, *fault: tuple[str, int], topic: str = AT.topic) -> None:
        scheduler, at = Scheduler(random.Random(1)), TopicPartition(topic, 0)
        log = LocalEventLog(WorldClock(scheduler))
        log.admin().create([TopicSettings(topic, 1)])
        network = Network(
            scheduler, log, LocalIndex(WorldClock(scheduler)), History(), random.Random(2)
        )
        self.process, self.link = Process("ingestion/a", 0), Link(planned=[*fault])
        self.port = Port(network, self.process, self.link)
        self.reported: list[int] | None = None
        self.log: list[int] = []

        def body() -> None:
            writer = SimulatedLog(self.port).writer()
            for number in range(RECORDS):
                writer.send(at, bytes([number]))
            try:
                self.reported = [place.offset for place in writer.flush()]
            except OutcomeUnknown:
                return

        scheduler.spawn(self.process, body)
        scheduler.run_until(10_000)
        scheduler.close()
        partition = log.partition(at)
        self.log = [
            (partition.at(offset).value or b"")[0]
            for offset in range(partition.start, partition.end)
        ]


@pytest.mark.parametrize("value", range(0, 24, 2))
def test_a_part_is_the_first_records_or_the_last_ones(value: int) -> None:
    flushed = Flushed(("part", value))
    assert flushed.reported is None
    kept = len(flushed.log)
    assert kept == 1 + value % RECORDS
    everything = list(range(RECORDS))
    assert flushed.log == (everything[RECORDS - kept :] if value // 2 % 2 else everything[:kept])


@pytest.mark.parametrize("value", range(0, 24, 2))
def test_what_is_written_twice_is_reported_where_it_came_last(value: int) -> None:
    flushed = Flushed(("twice", value))
    first = value // 2 % RECORDS
    assert flushed.log == [*range(RECORDS), *range(first, RECORDS)]
    again = range(RECORDS, 2 * RECORDS - first)
    assert flushed.reported == [*range(first), *again]
    assert flushed.port.life.befell == {}, "its writer does not notice, so it excuses no end"


def test_every_cut_of_a_flush_is_tried() -> None:
    assert {len(Flushed(("twice", value)).log) for value in range(0, 24, 2)} == {5, 6, 7, 8}


def test_of_an_odd_value_it_waits_for_a_boundary_record() -> None:
    flushed = Flushed(("twice", 1))
    assert flushed.reported == flushed.log == list(range(RECORDS))
    assert flushed.link.planned == [("twice", 1)]
    assert len(Flushed(("twice", 1), topic="p.s.boundaries").log) == 2 * RECORDS
