"""``corrected`` and ``live`` on a log in memory that the real delivery has written."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import pytest

from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.client import Row, corrected, live
from anabranch.delivery.service import DeliveryService
from anabranch.ports import TopicPartition
from anabranch.protocol.errors import ConfigurationError, LocalProtocolError, RemoteProtocolError
from harness import outputs
from harness.outputs import Replica, create_topics, delivered, rows

TOPIC, LIVE = "p.out", "p.out.live"


class World:
    """One output with both topics."""

    def __init__(self) -> None:
        clock, entropy = VirtualClock(), SeededEntropy(1)
        self.log = LocalEventLog(clock)
        self.pipeline = outputs.pipeline("p", live=True, partitions=2)
        create_topics(self.log, self.pipeline)
        self.replica = Replica(self.log, self.pipeline, clock, entropy)
        self._service: DeliveryService = outputs.service(self.log, self.pipeline, clock, entropy)
        self._service.start()

    def close(self, bucket: int, count: int) -> None:
        self.replica.close_buckets(bucket, {bucket: rows(bucket, count)})
        self.deliver()

    def deliver(self) -> None:
        for _ in range(5):
            self._service.step()

    def delivered_values(self) -> dict[str, Any]:
        """Id -> value of all that was delivered."""
        return {
            str(ident): json.loads(value or b"")
            for _, ident, _, value in delivered(self.log, self.pipeline)
        }


@pytest.fixture
def world() -> World:
    return World()


def by_id(found: list[Row[Any]]) -> dict[str, Any]:
    assert len({row.id for row in found}) == len(found)
    return {row.id: row.value for row in found}


def test_every_result_comes_once_with_its_key_and_time(world: World) -> None:
    world.close(1, 3)
    world.close(2, 4)
    with corrected(world.log, TOPIC, follow=False) as found:
        got = list(found)
    assert by_id(got) == world.delivered_values()
    assert len(got) == 7
    first = got[0]
    assert first.key == {"car": first.value["car"]}
    assert first.event_time.tzinfo is UTC
    assert datetime(1970, 1, 1, tzinfo=UTC) < first.event_time < datetime(1970, 1, 2, tzinfo=UTC)
    assert (first.stable, first.missing) == (True, ())


def test_a_record_that_is_there_twice_is_given_once_and_foreign_ones_never(world: World) -> None:
    world.close(1, 3)
    reader = world.log.reader()
    places = [TopicPartition(TOPIC, number) for number in range(2)]
    reader.assign(dict.fromkeys(places, 0))
    writer = world.log.writer()
    for chunk in reader.fetch(100, 0):
        for key, value, headers in zip(chunk.keys, chunk.values, chunk.headers, strict=True):
            writer.send(chunk.at, value, key, headers)
    writer.send(places[0], b"{}", b"not ours")
    writer.flush()
    world.close(2, 2)
    with corrected(world.log, TOPIC, follow=False) as found:
        got = list(found)
        assert found.foreign == 1
    assert len(by_id(got)) == 5


def test_positions_lead_on_where_a_program_stopped(world: World) -> None:
    world.close(1, 5)
    with corrected(world.log, TOPIC) as found:
        some = list(islice(found, 2))
        positions = found.positions
    world.close(2, 3)
    with corrected(world.log, TOPIC, start=positions, follow=False) as found:
        rest = list(found)
    assert by_id([*some, *rest]) == world.delivered_values()
    with corrected(world.log, TOPIC, start="latest", follow=False) as found:
        assert list(found) == []


@dataclass
class Car:
    car: int
    event_time: int | None = None


def test_values_have_the_type_that_was_asked_for(world: World) -> None:
    world.close(1, 2)
    with corrected(world.log, TOPIC, of=Car, follow=False) as found:
        values = [row.value for row in found]
    assert all(isinstance(value, Car) for value in values)

    @dataclass
    class Other:
        plate: str

    with (
        corrected(world.log, TOPIC, of=Other, follow=False) as wrong,
        pytest.raises(RemoteProtocolError, match="plate: Field required"),
    ):
        list(wrong)


def test_what_is_taken_back_is_gone_from_the_live_answer(world: World) -> None:
    world.close(1, 3)
    with live(world.log, LIVE) as answer:
        assert [row.stable for row in answer.rows()] == [True] * 3, (
            "what was there when it was opened is in it"
        )
        world.replica.show(2, {2: rows(2, 2)}, ("reports",))
        world.deliver()
        assert next(iter(answer)) is answer
        tentative = [row for row in answer.rows() if not row.stable]
        assert len(tentative) == 2
        assert all("/" in row.id and row.missing == ("reports",) for row in tentative)
        assert (answer.in_failure, answer.missing) == (True, ("reports",))
        world.replica.end_branch()
        world.close(2, 4)
        assert answer.refresh()
        assert by_id(answer.rows()) == world.delivered_values()
        assert (answer.in_failure, [row for row in answer.rows() if not row.stable]) == (False, [])
        assert {row.key["car"] for row in answer.by_key()} == {
            value["car"] for value in world.delivered_values().values()
        }


def test_both_work_in_asyncio(world: World) -> None:
    async def read() -> tuple[list[Row[Any]], int]:
        async with (
            corrected(world.log, TOPIC, follow=False) as found,
            live(world.log, LIVE) as answer,
        ):
            got = [row async for row in found]
            world.close(2, 1)
            async for each in answer:
                return got, len(each.rows())
        raise AssertionError

    world.close(1, 3)
    got, shown = asyncio.run(asyncio.wait_for(read(), 30))
    assert (len(got), shown) == (3, 4)


def test_mistakes_are_reported(world: World) -> None:
    with (
        pytest.raises(ConfigurationError, match="topic nowhere does not exist"),
        corrected(world.log, "nowhere"),
    ):
        pass
    with pytest.raises(LocalProtocolError, match="with corrected"):
        next(iter(corrected(world.log, TOPIC)))
    with pytest.raises(ConfigurationError, match=r"schema nothing\.avsc: "):
        corrected(world.log, TOPIC, schema="nothing.avsc")
    with corrected(world.log, TOPIC) as found:
        pass
    assert list(found) == [], "after its end there is no more"
