"""Tests of the reader of catalogs."""

from __future__ import annotations

import pytest

from anabranch.adapters.memory.clock import VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.adapters.signing import SigningKey
from anabranch.federation.catalog_reader import UNDATED, read_catalogs
from anabranch.ports import TopicPartition
from anabranch.protocol.federation.lookup import CatalogEntry, FoundStream, Lookup, NotFound
from harness import catalogs
from harness.catalogs import BEGIN_MS, SPEEDS, WANTED
from harness.federations import FederationWorld


class World(FederationWorld):
    def __init__(self) -> None:
        self.clock = VirtualClock(BEGIN_MS)
        super().__init__(LocalEventLog(self.clock))

    def entry(self, who: str = "north", key: SigningKey | None = None) -> CatalogEntry:
        public = (key or self.keys[who]).public
        return catalogs.entry(who, at_ms=self.clock.now_ms(), public=public)

    def read(self) -> Lookup:
        return read_catalogs(self.log, self.topics, [catalogs.FORMAT])


@pytest.fixture
def world() -> World:
    return World()


def test_nobody_has_a_catalog(world: World) -> None:
    assert world.read().listings() == []


def test_what_participants_list_is_found(world: World) -> None:
    for who in ("north", "south"):
        world.list_pipeline(who, world.entry(who))
    lookup = world.read()
    assert lookup.find(WANTED, BEGIN_MS) == FoundStream(world.entry(), SPEEDS)
    assert [each.entry.participant for each in lookup.listings()] == ["north", "south"]
    assert not lookup.rejected


def test_an_entry_counts_without_those_before_it(world: World) -> None:
    for _ in range(2):
        world.list_pipeline("north", world.entry())
        world.clock.advance(1)
    assert isinstance(world.log, LocalEventLog)
    world.log.trim(TopicPartition(world.topics.catalog("north"), 0), 1)
    assert [each.entry.participant for each in world.read().listings()] == ["north"]


def test_what_does_not_count_is_rejected_by_its_reason(world: World) -> None:
    stranger = SigningKey.generate("north", "1")
    world.list_pipeline("north", world.entry(key=stranger), key=stranger)
    world.list_pipeline("south", world.entry(), where="north")
    world.list_pipeline("north", world.entry())
    world.list_pipeline("north", world.entry())
    world.write(world.topics.catalog("north"), b"nonsense", None)
    lookup = world.read()
    assert lookup.rejected == {
        ("north", "not signed with a key of its participant that counted then"): 2,
        ("north", "not newer than the last"): 1,
        ("north", "not a record of this log"): 2,
    }
    assert isinstance(lookup.find(WANTED, BEGIN_MS), FoundStream)


def test_an_entry_holds_from_the_time_of_the_log(world: World) -> None:
    entry = world.entry()
    world.clock.advance(1_000)
    world.list_pipeline("north", entry)
    end_ms = BEGIN_MS + 1_000 + entry.lease_ms
    assert isinstance(world.read().find(WANTED, end_ms - 1), FoundStream)
    lost = world.read().find(WANTED, end_ms)
    assert isinstance(lost, NotFound)
    assert lost.since_ms == end_ms


def test_a_catalog_whose_writer_sets_the_times_counts_for_nothing(world: World) -> None:
    topic = world.topics.catalog("north")
    world.make("catalog", topic, message_timestamp_type="CreateTime")
    world.list_pipeline("north", world.entry())
    lookup = world.read()
    assert lookup.rejected == {("north", UNDATED): 1}
    assert lookup.listings() == []
