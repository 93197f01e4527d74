"""The index on a Redis with ACL users and TLS: the manager's user can do its job, and neither
more nor elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis

from anabranch.adapters.redis.index import RedisIndex
from anabranch.cli.acls import redis_user
from anabranch.local.embedded_redis import EmbeddedRedis
from anabranch.protocol.errors import Unavailable
from harness.certificates import Authority
from harness.tls_relay import in_tls

pytestmark = pytest.mark.integration

SECRET = "planted-redis"
MINE = "anabranch:secure:"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address; nobody gets in but the manager of the pipeline ``secure`` (and ``root``,
    for the test).
    """
    embedded = EmbeddedRedis(tmp_path_factory.mktemp("redis"))
    try:
        url = embedded.start()
        client: Any = redis.Redis.from_url(url)
        with closing(client):
            client.execute_command("ACL", "SETUSER", "root", "on", ">root", "~*", "+@all")
            client.set("other:key", "x")
            words = redis_user("secure", "secure.consistency_manager").split()
            client.execute_command("ACL", "SETUSER", *words[1:], f">{SECRET}")
            client.execute_command("ACL", "SETUSER", "default", "off")
        yield embedded.address
    finally:
        embedded.stop()


@pytest.fixture
def _as_manager(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET + "\n")
    (tmp_path / "secret").chmod(0o600)
    monkeypatch.setenv("ANABRANCH_REDIS_USERNAME", "secure.consistency_manager")
    monkeypatch.setenv("ANABRANCH_REDIS_PASSWORD_FILE", str(tmp_path / "secret"))


def works(index: RedisIndex) -> None:
    """All that the port has."""
    index.put(f"{MINE}a", {"x": "1"}, expire_ms=60_000)
    assert index.keys(MINE) == [f"{MINE}a"]
    index.delete(f"{MINE}a")


@pytest.mark.usefixtures("_as_manager")
def test_the_manager_does_its_job(server: str) -> None:
    with closing(RedisIndex(f"redis://{server}/0", timeout_ms=20_000)) as index:
        works(index)
        for attempt in (
            partial(index.put, "other:key", {"a": "b"}),
            partial(index.delete, "other:key"),
        ):
            with pytest.raises(Unavailable):
                attempt()


def test_and_nothing_else(server: str) -> None:
    commands: list[list[str]] = [
        ["FLUSHALL"],
        ["FLUSHDB"],
        ["CONFIG", "GET", "*"],
        ["KEYS", "*"],
        ["EVAL", "return 1", "0"],
        ["ACL", "LIST"],
        ["SHUTDOWN"],
        ["DEBUG", "SLEEP", "0"],
        ["GET", "other:key"],
        ["SET", f"{MINE}a", "x"],
        ["MONITOR"],
        ["CLIENT", "LIST"],
        ["REPLICAOF", "NO", "ONE"],
    ]
    client: Any = redis.Redis.from_url(
        f"redis://{server}/0", username="secure.consistency_manager", password=SECRET
    )
    with closing(client):
        for words in commands:
            with pytest.raises(redis.exceptions.NoPermissionError):
                client.execute_command(*words)


def test_nobody_gets_in_without_a_password(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        closing(RedisIndex(f"redis://{server}/0", timeout_ms=20_000)) as index,
        pytest.raises(Unavailable),
    ):
        index.keys(MINE)
    monkeypatch.setenv("ANABRANCH_REDIS_USERNAME", "secure.consistency_manager")
    monkeypatch.setenv("ANABRANCH_REDIS_PASSWORD", "planted-guess")
    with closing(RedisIndex(f"redis://{server}/0", timeout_ms=20_000)) as index:
        with pytest.raises(Unavailable) as caught:
            index.keys(MINE)
        assert "planted-guess" not in str(caught.value)


@pytest.mark.usefixtures("_as_manager")
def test_over_tls(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path / "authority", "trusted")
    monkeypatch.setenv("ANABRANCH_REDIS_TLS_CA", str(authority.certificate))
    with (
        in_tls(server, authority.issue("redis")) as address,
        closing(RedisIndex(f"rediss://{address}/0", timeout_ms=20_000)) as index,
    ):
        works(index)
    for wrong in (
        authority.issue("elsewhere", hosts="DNS:elsewhere"),
        Authority(tmp_path / "stranger", "stranger").issue("redis"),
    ):
        with (
            in_tls(server, wrong) as address,
            closing(RedisIndex(f"rediss://{address}/0", timeout_ms=20_000)) as index,
        ):
            rejected(index)


def rejected(index: RedisIndex) -> None:
    with pytest.raises(Unavailable, match="certificate"):
        index.keys(MINE)
