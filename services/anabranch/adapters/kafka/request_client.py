"""Kafka client that only makes requests, and its replacement once it contacts no broker any more.

If a broker that shuts down names no broker in its last metadata, librdkafka forgets the only one
that it knew, and answers no request of this client again (its issue 5301, open in 2.16). Nothing
tells such a client from one whose broker is away, so one that has long given no answer is replaced:
while the broker is away, a new client does no harm.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from anabranch.adapters.kafka.client_log import LOGGER

UNANSWERED_S: Final = 10.0
"""Time without any answer, in s, after which a client is replaced. Long, so that a client with a
slow connection is not replaced before it has one.
"""

C = TypeVar("C")


class RequestClient(Generic[C]):
    """Client for requests, created when it is first needed. Not thread-safe."""

    def __init__(self, new: Callable[[], C], close: Callable[[C], object] = lambda _: None) -> None:
        """Keep the functions that create and close a client."""
        self._new, self._close = new, close
        self._client: C | None = None
        self._since_s: float | None = None
        """Time of the first request since the last answer; None: each request was answered."""

    def client(self) -> C:
        """Return the client for a request that is made now."""
        if self._client is None:
            self._client = self._new()
        if self._since_s is None:
            self._since_s = time.monotonic()
        return self._client

    def answered(self) -> None:
        """Note that a broker has answered the last request."""
        self._since_s = None

    def unanswered(self) -> None:
        """Note that no broker has answered the last request. If this has long been so, the next
        request is made by a new client.
        """
        if self._since_s is not None and time.monotonic() - self._since_s >= UNANSWERED_S:
            LOGGER.warning("no request was answered for %d s: the client is replaced", UNANSWERED_S)
            self.close()

    def release(self) -> C:
        """Return the client for the caller's own use. The next request is made by another one."""
        client = self.client()
        self._client = self._since_s = None
        return client

    def close(self) -> None:
        """Close the client, if there is one. Idempotent."""
        if self._client is not None:
            self._close(self.release())
