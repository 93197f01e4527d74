"""Broadcast of messages to all connected browsers. Used by the event loop's thread only.

A client that reads too slowly is disconnected. Its browser then connects again by itself, and
begins with the whole state.
"""

from __future__ import annotations

import asyncio
from typing import Final

CLIENTS_MAX: Final = 16
WAITING_MAX: Final = 32
"""Maximum number of messages that wait for one client; it is disconnected at the next one."""

Message = tuple[int, str]
"""Message to the browsers: its text, and the number that orders it among the page's changes."""


class Client:
    """Queue of messages to one connected browser."""

    def __init__(self) -> None:
        """Begin without messages."""
        self._waiting: asyncio.Queue[Message | None] = asyncio.Queue()

    def offer(self, message: Message) -> bool:
        """Append ``message``, and return True; return False if too many messages wait."""
        if self._waiting.qsize() >= WAITING_MAX:
            return False
        self._waiting.put_nowait(message)
        return True

    def end(self) -> None:
        """End the queue after the messages that wait in it."""
        self._waiting.put_nowait(None)

    async def next(self, timeout_s: float) -> Message | None:
        """Wait for the next message; None: the queue has ended.

        Raises:
            TimeoutError: there is no message within ``timeout_s``.
        """
        return await asyncio.wait_for(self._waiting.get(), timeout_s)


class Broadcast:
    """Sender of each message to all clients, of which there are at most CLIENTS_MAX."""

    def __init__(self) -> None:
        """Begin without clients."""
        self._clients: set[Client] = set()
        self.joined = asyncio.Event()
        """Set while there are clients."""

    def join(self) -> Client | None:
        """Add a client, and return it; None: there are too many."""
        if len(self._clients) >= CLIENTS_MAX:
            return None
        client = Client()
        self._clients.add(client)
        self.joined.set()
        return client

    def leave(self, client: Client) -> None:
        """Remove ``client``. Idempotent."""
        self._clients.discard(client)
        if not self._clients:
            self.joined.clear()

    def publish(self, message: Message) -> None:
        """Send ``message`` to all clients without waiting; end those that are too far behind."""
        for client in list(self._clients):
            if not client.offer(message):
                client.end()
                self.leave(client)

    def end(self) -> None:
        """End all clients, because the page ends."""
        for client in list(self._clients):
            client.end()
            self.leave(client)
