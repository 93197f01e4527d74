"""A real Redis for tests: the one that ``ANABRANCH_TEST_REDIS`` names, else an embedded one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import redis

from anabranch.local.embedded_redis import EmbeddedRedis

URL_VARIABLE = "ANABRANCH_TEST_REDIS"


@contextmanager
def redis_server(state_dir: Path) -> Iterator[str]:
    """Start a server and yield its URL until the end of the block. A missing server is an error,
    never a skip.
    """
    named = os.environ.get(URL_VARIABLE)
    if named:
        yield named
        return
    embedded = EmbeddedRedis(state_dir)
    try:
        yield embedded.start()
    finally:
        embedded.stop()


def stored(url: str, key: str) -> dict[str, str]:
    """Return the hash at ``key``, as a person finds it; empty if there is none."""
    client: Any = redis.Redis.from_url(url, decode_responses=True)
    with closing(client):
        return dict(client.hgetall(key))
