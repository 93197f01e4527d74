"""Failures of a real index: reported quickly, and always as ``Unavailable``."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from anabranch.adapters.redis.index import RedisIndex
from anabranch.local.embedded_redis import EmbeddedRedis
from anabranch.protocol.errors import ConfigurationError, Unavailable
from harness.redis import stored

QUICK_S = 5.0


def test_nobody_listens() -> None:
    index = RedisIndex("redis://127.0.0.1:9/0")
    began = time.monotonic()
    with pytest.raises(Unavailable):
        index.keys("a")
    assert time.monotonic() - began < QUICK_S


def test_someone_listens_and_never_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        index = RedisIndex(f"redis://127.0.0.1:{silent.getsockname()[1]}/0", timeout_ms=200)
        began = time.monotonic()
        with pytest.raises(Unavailable):
            index.put("a", {"x": "1"})
        assert time.monotonic() - began < QUICK_S


def test_the_password_is_not_shown() -> None:
    index = RedisIndex("redis://user:secret@127.0.0.1:9/0")
    with pytest.raises(Unavailable) as caught:
        index.keys("a")
    assert "secret" not in str(caught.value)


def test_an_address_that_is_none() -> None:
    with pytest.raises(ConfigurationError, match="Redis URL"):
        RedisIndex("http://127.0.0.1")


@pytest.mark.integration
def test_a_restart_loses_what_was_known_and_nothing_else(tmp_path: Path) -> None:
    server = EmbeddedRedis(tmp_path)
    url = server.start()
    index = RedisIndex(url, timeout_ms=20_000)
    try:
        index.put("a", {"x": "1"})
        server.kill()
        with pytest.raises(Unavailable):
            index.keys("")
        server.start()
        assert index.keys("") == []  # on the connection that died
        index.put("a", {"x": "2"})
        assert stored(url, "a") == {"x": "2"}
    finally:
        index.close()
        server.stop()
