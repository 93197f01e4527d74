"""Messages to all connected browsers."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.dashboard.broadcast import CLIENTS_MAX, WAITING_MAX, Broadcast


def test_everybody_gets_every_message_in_order() -> None:
    async def look() -> None:
        broadcast = Broadcast()
        clients = [broadcast.join() for _ in range(3)]
        for number in range(5):
            broadcast.publish((number, str(number)))
        for client in clients:
            assert client is not None
            assert [await client.next(1) for _ in range(5)] == [(n, str(n)) for n in range(5)]
            with pytest.raises(TimeoutError):
                await client.next(0.01)

    asyncio.run(look())


def test_a_slow_client_is_disconnected_and_delays_no_other() -> None:
    async def look() -> None:
        broadcast = Broadcast()
        slow, quick = broadcast.join(), broadcast.join()
        assert slow is not None
        assert quick is not None
        for number in range(3 * WAITING_MAX):
            broadcast.publish((number, ""))
            assert await quick.next(1) == (number, "")
        got = [await slow.next(1) for _ in range(WAITING_MAX + 1)]
        assert got[-1] is None, "it was told to go"
        assert broadcast.join() is not None

    asyncio.run(look())


def test_the_number_of_clients_is_limited() -> None:
    async def look() -> None:
        broadcast = Broadcast()
        clients = [broadcast.join() for _ in range(CLIENTS_MAX)]
        assert None not in clients
        assert broadcast.join() is None
        assert clients[0] is not None
        broadcast.leave(clients[0])
        broadcast.leave(clients[0])
        assert broadcast.join() is not None
        broadcast.end()
        assert not broadcast.joined.is_set()

    asyncio.run(look())
