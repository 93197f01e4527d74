"""Index in memory: an implementation of ``ports.Index``."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping

from anabranch.adapters.system.clock import SystemClock
from anabranch.ports import Clock
from anabranch.protocol.errors import LocalProtocolError, Unavailable


class LocalIndex:
    """Hashes in a dictionary. Thread-safe."""

    def __init__(self, clock: Clock | None = None) -> None:
        """Create an empty index. ``clock`` decides when keys expire; by default the system's."""
        self._clock: Clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._hashes: dict[str, tuple[dict[str, str], int | None]] = {}
        self._closed = False
        self._cut = False

    def cut_off(self, cut: bool) -> None:
        """Make every method raise Unavailable, until called with False."""
        self._cut = cut

    def flush_all(self) -> None:
        """Delete everything, as ``FLUSHALL`` or a restart of Redis does."""
        with self._lock:
            self._hashes.clear()

    def saved(self) -> LocalIndex:
        """Return a copy of the content, as Redis writes it to its disk now and then."""
        with self._lock:
            copy = LocalIndex(self._clock)
            copy._hashes = dict(self._hashes)
            return copy

    def restore(self, copy: LocalIndex) -> None:
        """Replace the content by that of ``copy``, as a restart of Redis does."""
        with self._lock:
            self._hashes = dict(copy._hashes)

    def fields(self, key: str) -> dict[str, str]:
        """Return the hash at ``key``, as a person finds it; empty if there is none."""
        with self._lock:
            self._expire()
            return dict(self._hashes[key][0]) if key in self._hashes else {}

    def until_ms(self, key: str) -> float:
        """Return the monotonic time at which the hash at ``key`` expires; infinity: never."""
        with self._lock:
            until_ms = self._hashes[key][1]
            return math.inf if until_ms is None else until_ms

    def put(self, key: str, fields: Mapping[str, str], *, expire_ms: int | None = None) -> None:
        """Replace the hash at ``key`` as a whole; without fields, delete it."""
        self._check()
        until_ms = None if expire_ms is None else self._clock.monotonic_ms() + expire_ms
        with self._lock:
            if fields:
                self._hashes[key] = (dict(fields), until_ms)
            else:
                self._hashes.pop(key, None)

    def delete(self, key: str) -> None:
        """Delete ``key``."""
        self._check()
        with self._lock:
            self._hashes.pop(key, None)

    def keys(self, prefix: str) -> list[str]:
        """Return the keys that start with ``prefix``, sorted."""
        self._check()
        with self._lock:
            self._expire()
            return sorted(key for key in self._hashes if key.startswith(prefix))

    def close(self) -> None:
        """Close the index: later calls are errors. Idempotent."""
        self._closed = True

    def _check(self) -> None:
        if self._closed:
            message = "the index was closed"
            raise LocalProtocolError(message)
        if self._cut:
            message = "the index is cut off"
            raise Unavailable(message)

    def _expire(self) -> None:
        now_ms = self._clock.monotonic_ms()
        for key in [
            key
            for key, (_, until_ms) in self._hashes.items()
            if until_ms is not None and until_ms <= now_ms
        ]:
            del self._hashes[key]
