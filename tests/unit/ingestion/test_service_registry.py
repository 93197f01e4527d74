"""A source in Avro whose schema ids are a registry's."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import fastavro
import pytest

from anabranch.adapters.connect import schema_registry
from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.ingestion.service import IngestionService
from anabranch.ports import TopicPartition
from anabranch.protocol.edge.schema_lookups import ASK_AGAIN_FIRST_MS
from anabranch.protocol.errors import Unavailable
from harness.confluent_serializers import sender
from harness.registries import RegistryServer
from harness.sources import REPORT, StreamView, create_topics, everything, pipeline, service

REPORTED = {"time": 1_000, "speed": 61.25, "road": "I-95", "lane": 2, "seen": True}
NEWER: dict[str, Any] = {
    **REPORT.avro,
    "fields": [{"name": "plate", "type": "string"}, *REPORT.avro["fields"]],
}
"""A later version of the record, which the pipeline has never seen."""


class World:
    def __init__(self, server: RegistryServer) -> None:
        self.server = server
        self.clock = VirtualClock()
        self.entropy = SeededEntropy(1)
        self.log = LocalEventLog(self.clock)
        self.use("avro")
        create_topics(self.log, self.pipeline)
        self.view = StreamView(self.log, self.pipeline, self.clock)

    def use(self, form: str) -> None:
        """Read the source in the format ``form``."""
        self.pipeline = pipeline("p", format=form, bounded=True).model_copy(
            update={"schema_registry": self.server.url}
        )

    def produce(self, schema_id: int, schema: dict[str, Any], *cars: int, **more: object) -> None:
        writer = self.log.writer()
        for car in cars:
            body = io.BytesIO()
            fastavro.schemaless_writer(body, schema, {**REPORTED, "car": car, **more})
            value = b"\0" + schema_id.to_bytes(4, "big") + body.getvalue()
            writer.send(TopicPartition("p.reports", 0), value, key=b"key")
        writer.flush()
        writer.close()

    def process(self) -> IngestionService:
        made = service(self.log, self.pipeline, self.clock, self.entropy, schema_registry)
        made.start()
        return made

    def run(self, process: IngestionService) -> None:
        """Until all of the source is closed."""
        for _ in range(1_000):
            process.step()
            if self.view.closed() >= 10:
                return
        raise AssertionError

    def dead(self) -> list[str]:
        return [
            (dict(headers)["anabranch-error"] or b"").decode()
            for chunk in everything(self.log, "p.reports.rejected")
            for headers in chunk.headers
        ]


@pytest.fixture
def world() -> Iterator[World]:
    with RegistryServer() as server:
        yield World(server)


def test_records_of_any_version_that_can_be_read(world: World) -> None:
    known, newer = world.server.add(REPORT.avro), world.server.add(NEWER)
    world.produce(newer, NEWER, 1, plate="A")
    world.produce(known, REPORT.avro, 2, 3)
    world.produce(newer, NEWER, 4, plate="B")
    process = world.process()
    world.run(process)
    assert world.view.cars() == [1, 2, 3, 4]
    assert len(world.server.requests) == 2, "each id is asked for once"
    process.stop()


def test_records_of_a_schema_that_is_not_there_are_dead_letters(world: World) -> None:
    known = world.server.add(REPORT.avro)
    other = world.server.add(
        {"type": "record", "name": "x", "fields": [{"name": "x", "type": "int"}]}
    )
    world.produce(77, REPORT.avro, 1)
    world.produce(known, REPORT.avro, 2)
    world.produce(other, REPORT.avro, 3)
    process = world.process()
    world.run(process)
    assert world.view.cars() == [2]
    missing, unreadable = world.dead()
    assert "schema id 77" in missing
    assert "Schema not found" in missing
    assert f"schema id {other}" in unreadable
    assert "cannot read" in unreadable
    process.stop()


def test_while_the_registry_is_away_nothing_is_passed_over(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch.adapters.schema_registry._WAIT_MS", 1)
    known = world.server.add(REPORT.avro)
    world.produce(known, REPORT.avro, 1, 2)
    world.server.status = 503
    process = world.process()
    with pytest.raises(Unavailable, match="schema registry"):
        world.run(process)
    process.stop()
    assert world.view.closed() == 0
    world.server.status = 200
    process = world.process()
    world.run(process)
    assert world.view.cars() == [1, 2]
    assert world.dead() == []
    process.stop()


def test_an_id_that_the_registry_learns_later_is_asked_for_again(world: World) -> None:
    known = world.server.add(REPORT.avro)
    world.produce(known + 1, NEWER, 1, plate="A")
    world.produce(known + 1, NEWER, 2, plate="A")
    process = world.process()
    process.step()
    assert len(world.server.requests) == 1
    world.produce(known + 1, NEWER, 3, plate="A")
    process.step()
    assert len(world.server.requests) == 1, "it was asked a moment ago"
    assert world.server.add(NEWER) == known + 1
    world.clock.sleep_ms(ASK_AGAIN_FIRST_MS)
    world.produce(known + 1, NEWER, 4, plate="A")
    world.run(process)
    assert world.view.cars() == [4]
    assert len(world.dead()) == 3
    process.stop()


def test_an_unknown_id_waits_while_the_registry_is_away(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch.adapters.schema_registry._WAIT_MS", 1)
    world.produce(7, NEWER, 1, plate="A")
    process = world.process()
    process.step()
    assert len(world.dead()) == 1
    world.server.status = 503
    world.clock.sleep_ms(ASK_AGAIN_FIRST_MS)
    world.produce(7, NEWER, 2, plate="A")
    with pytest.raises(Unavailable, match="schema registry"):
        world.run(process)
    process.stop()
    assert len(world.dead()) == 1


@pytest.mark.parametrize("in_header", [False, True])
@pytest.mark.parametrize("form", ["avro", "json_schema", "protobuf"])
def test_records_of_confluents_serializers_whose_schemas_refer_to_others(
    world: World, form: str, *, in_header: bool
) -> None:
    """One more record lacks its header, or has an unknown id."""
    world.use(form)
    at = TopicPartition("p.reports", 0)
    send = sender(form, world.server.url, at.topic, in_header=in_header)
    writer = world.log.writer()
    for value, headers in (send(**REPORTED, car=1), send(**REPORTED, car=2)):
        assert bool(headers) == in_header
        writer.send(at, value, key=b"key", headers=headers)
    value, _ = send(**REPORTED, car=3)
    writer.send(at, value if in_header else b"\0\0\0\0\x63" + value[5:], key=b"key")
    writer.flush()
    asked = len(world.server.requests)
    process = world.process()
    world.run(process)
    assert world.view.cars() == [1, 2]
    (dead,) = world.dead()
    assert ("framing" if in_header else "schema id 99: ") in dead
    lookups = 2 if in_header else 3
    assert len(world.server.requests) == asked + lookups, "each schema is asked for once"
    process.stop()
