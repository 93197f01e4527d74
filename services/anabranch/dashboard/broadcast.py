"""Messages to all who look on. Belongs to the thread of the event loop.

Who reads too slowly is cut off, and comes again by itself: the browser connects anew, and begins
with the whole.
"""

from __future__ import annotations

import asyncio
from typing import Final

CLIENTS_MAX: Final = 16
WAITING_MAX: Final = 32
"""Messages that one client may be behind."""

Message = tuple[int, str]
"""(its number, its text)."""


class Client:
    """One who looks on."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[Message | None] = asyncio.Queue()

    def offer(self, message: Message) -> bool:
        """Whether it could take it."""
        if self._waiting.qsize() >= WAITING_MAX:
            return False
        self._waiting.put_nowait(message)
        return True

    def end(self) -> None:
        """After what it has it gets no more."""
        self._waiting.put_nowait(None)

    async def next(self, timeout_s: float) -> Message | None:
        """The next message; None: it was ended.

        Raises:
            TimeoutError: there is none within ``timeout_s``.
        """
        return await asyncio.wait_for(self._waiting.get(), timeout_s)


class Broadcast:
    """To at most CLIENTS_MAX clients."""

    def __init__(self) -> None:
        self._clients: set[Client] = set()
        self.joined = asyncio.Event()
        """Set while there is anybody."""

    def join(self) -> Client | None:
        """A new client; None: there are too many."""
        if len(self._clients) >= CLIENTS_MAX:
            return None
        client = Client()
        self._clients.add(client)
        self.joined.set()
        return client

    def leave(self, client: Client) -> None:
        """Idempotent."""
        self._clients.discard(client)
        if not self._clients:
            self.joined.clear()

    def publish(self, message: Message) -> None:
        """To everybody. Never waits."""
        for client in list(self._clients):
            if not client.offer(message):
                client.end()
                self.leave(client)

    def end(self) -> None:
        """The page ends."""
        for client in list(self._clients):
            client.end()
            self.leave(client)
