"""Index in a real Redis: the implementation of ``ports.Index``.

Uses only commands of Redis 6.2, so that Redis, Valkey and the embedded server all work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from anabranch.adapters.redis.security import security_from_environment
from anabranch.adapters.redis.settings import RedisSettings
from anabranch.pipeline.addresses import without_password
from anabranch.protocol.errors import ConfigurationError, LocalProtocolError, Unavailable

T = TypeVar("T")

_SCAN_COUNT: Final = 1_000
"""Hint for the number of keys that one step of SCAN examines."""


class RedisIndex:
    """Index of one pipeline. Thread-safe as far as redis-py's connection pool is."""

    def __init__(self, url: str, *, prefix: str = "", timeout_ms: int = 500) -> None:
        """Check the settings. Nothing is contacted yet. The arguments are those of
        ``RedisSettings``; user, password and TLS come from the environment.

        Raises:
            ConfigurationError: ``url`` is no Redis URL, or the environment has a mistake.
        """
        self._settings = RedisSettings(url, prefix, timeout_ms)
        timeout_s = timeout_ms / 1000
        security: dict[str, Any] = security_from_environment().options(url)
        try:
            # One retry at once, for a connection that died unnoticed (a restarted server); never
            # after a timeout, which callers could not afford. All commands used here may be
            # repeated.
            self._client: redis.Redis | None = redis.Redis.from_url(
                url,
                decode_responses=True,
                protocol=2,
                socket_timeout=timeout_s,
                socket_connect_timeout=timeout_s,
                retry=Retry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,)),
                client_name="anabranch",
                **security,
            )
        except ValueError:
            message = f"{without_password(url)!r} is not a Redis URL: give redis://host:port/0"
            raise ConfigurationError(message) from None  # the cause may repeat a password

    def put(self, key: str, fields: Mapping[str, str], *, expire_ms: int | None = None) -> None:
        """Replace the hash at ``key`` as a whole; without fields, delete it. Readers see the old or
        the new one.
        """

        def replace(client: Any) -> None:
            with client.pipeline(transaction=True) as pipeline:
                pipeline.delete(self._full(key))
                if fields:
                    pipeline.hset(self._full(key), mapping=dict(fields))
                    if expire_ms is not None:
                        pipeline.pexpire(self._full(key), expire_ms)
                pipeline.execute()

        self._ask(replace)

    def delete(self, key: str) -> None:
        """Delete ``key``."""
        self._ask(lambda client: client.delete(self._full(key)))

    def keys(self, prefix: str) -> list[str]:
        """Return the keys that start with ``prefix``, sorted."""
        skip = len(self._settings.prefix)
        pattern = _literal(self._full(prefix)) + "*"
        # A set: SCAN may return a key twice.
        return self._ask(
            lambda client: sorted(
                {key[skip:] for key in client.scan_iter(match=pattern, count=_SCAN_COUNT)}
            )
        )

    def close(self) -> None:
        """Close the connections. Idempotent."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _full(self, key: str) -> str:
        return self._settings.prefix + key

    def _ask(self, question: Callable[[Any], T]) -> T:
        """Call ``question`` with the client. It is passed as ``Any``: its types cover both its
        synchronous and its asynchronous form.
        """
        if self._client is None:
            message = "the index was closed"
            raise LocalProtocolError(message)
        try:
            return question(self._client)
        except (redis.RedisError, OSError) as error:
            message = (
                f"the index at {without_password(self._settings.url)} does not answer: {error}"
            )
            raise Unavailable(message) from error


def _literal(text: str) -> str:
    """Return ``text`` as a pattern that matches only itself."""
    return "".join(f"\\{character}" if character in "*?[]\\^-" else character for character in text)
