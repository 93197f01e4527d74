"""``corrected`` and ``live`` on a log in memory that the real delivery has written."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import pytest

from anabranch import client
from anabranch.client import Row, corrected, live
from anabranch.client.following import current
from anabranch.ports import Chunk, TopicPartition
from anabranch.protocol.errors import (
    ConfigurationError,
    LocalProtocolError,
    RemoteProtocolError,
    Unavailable,
)
from harness.lost_ends import lose_ends
from harness.output_world import DeliveringWorld
from harness.outputs import delivered, rows

TOPIC, LIVE = "p.out", "p.out.live"


class World(DeliveringWorld):
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


def test_what_a_broker_loses_after_the_opening_is_not_waited_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.close(1, 3)
    expected = len(world.delivered_values())
    lose_ends(monkeypatch)
    with corrected(world.log, TOPIC, follow=False) as found:
        assert len(list(islice(found, expected))) == expected
        with pytest.raises(Unavailable, match="no record arrived"):
            next(iter(found))
    with pytest.raises(Unavailable, match="no record arrived"), live(world.log, LIVE):
        pytest.fail("it is not open")
    with pytest.raises(Unavailable, match="no record arrived"):
        current(world.log, LIVE)


def test_what_comes_after_the_opening_is_left_out_unless_it_is_followed(world: World) -> None:
    """Else the rows of a topic that always grows would never end."""
    world.close(1, 3)
    expected = world.delivered_values()
    got = []
    with corrected(world.log, TOPIC, follow=False) as found:
        world.close(2, 5)
        for row in found:
            got.append(row)
            world.close(3 + len(got), 5)
            assert len(got) <= len(expected)
        positions = found.positions
    assert by_id(got) == expected
    with corrected(world.log, TOPIC, start=positions, follow=False) as found:
        got += found
    assert by_id(got) == world.delivered_values()


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


def test_rows_of_an_overloaded_stage_say_how_much_was_left_out(world: World) -> None:
    world.close(1, 3)
    with live(world.log, LIVE) as answer:
        assert answer.shed == 0
        world.replica.show(2, {2: rows(2, 1)}, (), shed=700)
        world.replica.show(3, {3: rows(3, 1)}, (), shed=300)
        world.deliver()
        assert answer.refresh()
        assert [row.shed for row in answer.rows()] == [0, 0, 0, 700, 300]
        assert (answer.in_failure, answer.missing, answer.shed) == (True, (), 700)


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


def test_a_loop_that_is_left_loses_nothing(world: World) -> None:
    world.close(1, 10)
    with corrected(world.log, TOPIC, follow=False) as found:
        some = []
        for row in found:
            some.append(row)
            if len(some) == 3:
                break
        assert sum(found.positions.values()) == 3, "only what was given counts as read"
        assert by_id([*some, *found]) == world.delivered_values()


def test_a_loop_that_is_cancelled_loses_nothing(world: World) -> None:
    """The fetch that is under way when the time is over brings rows for the next loop."""
    world.close(1, 2)

    async def read() -> list[Row[Any]]:
        got: list[Row[Any]] = []
        begun, may_end = threading.Event(), threading.Event()
        async with corrected(world.log, TOPIC) as found:
            fetch = found._reader.fetch

            def late(records_max: int, wait_ms: int) -> list[Chunk]:
                if len(got) == 2 and not may_end.is_set():
                    begun.set()
                    assert may_end.wait(30)
                return fetch(records_max, wait_ms)

            async def loop(count: int) -> None:
                async for row in found:
                    got.append(row)
                    if len(got) == count:
                        return

            found._reader.fetch = late  # type: ignore[method-assign]
            reading = asyncio.create_task(loop(5))
            assert await asyncio.to_thread(begun.wait, 30)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            world.close(2, 3)
            may_end.set()
            await loop(5)
        return got

    assert by_id(asyncio.run(asyncio.wait_for(read(), 60))) == world.delivered_values()


def test_a_change_that_a_cancelled_loop_has_fetched_is_told_by_the_next_one(world: World) -> None:
    world.close(1, 2)
    with live(world.log, LIVE) as answer:
        world.close(2, 3)
        answer._poll(0)  # as the thread of a loop that was cancelled
        assert answer.refresh(0)
        assert not answer.refresh(0)


def test_a_value_that_cannot_be_decoded_stops_no_others(world: World) -> None:
    world.close(1, 4)
    expected = world.delivered_values()
    broken = [
        ("anabranch-id", b"1.900"),
        ("anabranch-event-time", b"5"),
        ("anabranch-origin", b"w.out.x"),
    ]
    writer = world.log.writer()
    for place in range(2):
        writer.send(TopicPartition(TOPIC, place), b"no JSON", None, broken)
    writer.flush()
    writer.close()
    got: list[Row[Any]] = []
    with corrected(world.log, TOPIC, follow=False) as found:
        for _ in range(2):
            with pytest.raises(RemoteProtocolError, match=r"p\.out\[\d\] offset \d+: a value"):
                got.extend(found)
        got.extend(found)
    assert by_id(got) == expected


@pytest.mark.parametrize(
    "headers",
    [
        {"anabranch-id": b"rubbish"},
        {"anabranch-id": None},
        {"anabranch-event-time": b"soon"},
        {"anabranch-event-time": b"99999999999999999999"},
        {"anabranch-event-time": None},
        {"anabranch-origin": b"?"},
        {"anabranch-origin": None},
    ],
)
def test_records_whose_headers_are_not_deliverys_are_left_out(
    world: World, headers: dict[str, bytes | None]
) -> None:
    named: dict[str, bytes | None] = {
        "anabranch-id": b"1.0",
        "anabranch-event-time": b"5",
        "anabranch-origin": b"w.out.x",
        "anabranch-kind": b"insertion",
    }
    of_others = [(name, value or b"") for name, value in {**named, **headers}.items() if value]
    writer = world.log.writer()
    for topic in (TOPIC, LIVE):
        writer.send(TopicPartition(topic, 0), b"{}", None, of_others)
    writer.flush()
    world.close(1, 4)
    with corrected(world.log, TOPIC, follow=False) as found, live(world.log, LIVE) as answer:
        assert len(by_id(list(found))) == 4
        assert found.foreign == 1
        assert len(by_id(answer.rows())) == 4
        assert answer._follower.view.foreign == 1


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
    for use in (lambda answer: answer.rows(), lambda answer: answer.missing, list):
        with pytest.raises(LocalProtocolError, match="with live"):
            use(live(world.log, LIVE))
    with corrected(world.log, TOPIC) as found:
        pass
    assert list(found) == [], "after its end there is no more"


def test_what_is_no_longer_there_is_an_error_that_the_client_names(world: World) -> None:
    world.close(1, 9)
    with corrected(world.log, TOPIC, follow=False) as found:
        list(found)
        positions = found.positions
    beyond = {**positions, 0: positions[0] + 5}
    with (
        pytest.raises(client.DataMissing, match=rf"out\[0\] ends at \d+, .* from {beyond[0]} on: "),
        corrected(world.log, TOPIC, start=beyond, follow=False),
    ):
        pass
    world.log.trim(TopicPartition(TOPIC, 0), 1)
    with (
        corrected(world.log, TOPIC, start={0: 0}, follow=False) as found,
        pytest.raises(client.DataMissing),
    ):
        list(found)
    assert issubclass(client.DataMissing, client.AnabranchError)
