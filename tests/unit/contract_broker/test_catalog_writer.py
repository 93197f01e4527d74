"""A contract broker that lists its participant's pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from anabranch.adapters.key_files import VARIABLE, write_key
from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.log import FailingOperation, LocalEventLog
from anabranch.codec import federation_records
from anabranch.contract_broker.catalog_writer import EVERY_MS
from anabranch.contract_broker.service import ContractBroker, build
from anabranch.federation.catalog_reader import read_catalogs
from anabranch.pipeline.catalog_entry import LEASE_MS, known_formats
from anabranch.pipeline.model import Federation, Pipeline
from anabranch.protocol.errors import AnabranchError, OutcomeUnknown, Unavailable
from anabranch.protocol.federation.lookup import (
    CatalogEntry,
    FoundStream,
    Lookup,
    NotFound,
    WantedStream,
)
from harness import outputs
from harness.federations import FederationWorld
from harness.outputs import STAGE, WIDTH_MS
from harness.sources import REPORT, everything

WANTED = WantedStream("north", STAGE, WIDTH_MS, "p")


class World(FederationWorld):
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = VirtualClock(1_000_000)
        self.local = LocalEventLog(self.clock)
        super().__init__(self.local)
        self.make("catalog", self.topics.catalog("north"))
        write_key(self.keys["north"], folder / "north.key")
        monkeypatch.setenv(f"{VARIABLE}_FILE", str(folder / "north.key"))

    def broker(self, **fields: Any) -> ContractBroker:
        federation = Federation(name="tolls", participant="north")
        pipeline = self.pipeline().model_copy(update={"federation": federation, **fields})
        context = outputs.context(
            self.log, pipeline, self.clock, SeededEntropy(1), "contract_broker", "north"
        )
        broker = build(context.settings, context)
        broker.start()
        return broker

    def pipeline(self) -> Pipeline:
        base = outputs.pipeline("p", live=True)
        return base.model_copy(
            update={"publish_ms": {STAGE: 1_000}, "publish_records": {STAGE: REPORT}}
        )

    def read(self) -> Lookup:
        return read_catalogs(self.log, self.topics, known_formats())

    def find(self) -> FoundStream | NotFound:
        return self.read().find(WANTED, self.clock.now_ms())

    def written(self) -> list[CatalogEntry]:
        return [
            federation_records.decode_catalog(value).statement
            for chunk in everything(self.local, self.topics.catalog("north"))
            for value in chunk.values
        ]


def not_listed(broker: ContractBroker) -> list[str]:
    return cast("list[str]", broker.status.detail["not_listed"])


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_it_lists_the_pipeline_and_does_so_again_before_the_lease_is_over(world: World) -> None:
    broker = world.broker()
    for _ in range(3):
        broker.step()
    assert len(world.written()) == 1
    assert isinstance(world.find(), FoundStream)
    assert not_listed(broker) == []
    for _ in range(10):
        world.clock.advance(EVERY_MS)
        broker.step()
        assert isinstance(world.find(), FoundStream)
    assert len(world.written()) == 11
    assert not world.read().rejected


def test_without_it_the_stream_is_unknown_since_the_lease_was_over(world: World) -> None:
    broker = world.broker()
    listed_ms = world.clock.now_ms()
    broker.step()
    broker.stop()
    broker.stop()
    world.clock.advance(LEASE_MS)
    lost = world.find()
    assert isinstance(lost, NotFound)
    assert lost.since_ms == listed_ms + LEASE_MS
    world.broker().step()
    assert isinstance(world.find(), FoundStream)


def test_two_at_the_same_time_list_the_same(world: World) -> None:
    first, second = world.broker(), world.broker()
    for _ in range(3):
        for broker in (first, second):
            broker.step()
            world.clock.advance(1)
        world.clock.advance(EVERY_MS)
        assert isinstance(world.find(), FoundStream)
    assert not world.read().rejected


def test_what_is_not_listed_is_reported(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = world.broker(publish_records={})
    broker.step()
    assert not_listed(broker) == [f"{STAGE}: publish says no record"]
    assert [each.entry.streams for each in world.read().listings()] == [()]
    monkeypatch.setenv(f"{VARIABLE}_FILE", "")
    without = world.broker()
    without.step()
    (why,) = not_listed(without)
    assert why.startswith("no key is named")


def test_without_a_topic_it_waits_and_goes_on_with_the_rest(world: World) -> None:
    admin = world.log.admin()
    admin.delete_topics([world.topics.catalog("north")])
    broker = world.broker()
    broker.step()
    (why,) = not_listed(broker)
    assert "there is no topic tolls.catalog.north" in why
    assert broker.status.waiting_for is None
    world.make("catalog", world.topics.catalog("north"))
    world.clock.advance(EVERY_MS)
    broker.step()
    broker.step()
    assert not_listed(broker) == []


def test_a_key_that_is_not_published_or_revoked_lists_nothing(world: World) -> None:
    broker = world.broker()
    broker.step()
    world.publish(world.keys["north"], is_revoked=True)
    world.clock.advance(EVERY_MS)
    broker.step()
    world.clock.advance(EVERY_MS)
    broker.step()
    assert not_listed(broker) == [
        "key 1 of north is not published, or revoked (anabranch keys publish)"
    ]


@pytest.mark.parametrize("error", [OutcomeUnknown, Unavailable])
def test_an_entry_that_is_lost_is_followed_by_the_next(
    world: World, error: type[AnabranchError]
) -> None:
    broker = world.broker()
    world.local.fail_next(FailingOperation.FLUSH, error=error)
    broker.step()
    assert len(not_listed(broker)) == 1
    world.clock.advance(EVERY_MS)
    broker.step()
    assert not_listed(broker) == []
    assert isinstance(world.find(), FoundStream)


def test_an_entry_that_is_too_large_is_not_written(world: World) -> None:
    wide = {f"s{n}": REPORT for n in range(3)}
    large = REPORT.avro | {"doc": "d" * 200_000}
    record = type(REPORT)("r", 1, large, REPORT.fields, 1)
    pipeline = world.pipeline()
    stage = pipeline.stages[STAGE]
    broker = world.broker(
        stages={STAGE: stage, **dict.fromkeys(wide, stage)},
        publish_ms=dict.fromkeys(wide, 1),
        publish_records=dict.fromkeys(wide, record),
    )
    broker.step()
    (why,) = not_listed(broker)
    assert "more than" in why
    assert world.written() == []


def test_a_clock_that_stands_still_lists_a_later_time_all_the_same(world: World) -> None:
    broker = world.broker()
    writer, reader = broker._catalog, broker._reader
    assert writer is not None
    assert reader is not None
    writer.refresh(reader)
    writer._next_ms = 0
    writer.refresh(reader)
    first, second = (each.at_ms for each in world.written())
    assert second == first + 1
    assert not world.read().rejected
