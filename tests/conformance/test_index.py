"""Conformance suite of ``Index``: one for the index in memory and the real one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from anabranch.adapters.memory.index import LocalIndex
from anabranch.adapters.redis.index import RedisIndex
from anabranch.ports import Index
from anabranch.protocol.errors import LocalProtocolError
from harness import redis
from harness.waiting import wait_until

Stored = Callable[[str], dict[str, str]]


@pytest.fixture(params=["local", pytest.param("redis", marks=pytest.mark.integration)])
def index(request: pytest.FixtureRequest, topic_prefix: str) -> Iterator[Index]:
    made: Index = (
        LocalIndex()
        if request.param == "local"
        else RedisIndex(
            request.getfixturevalue("redis_url"), prefix=f"{topic_prefix}:", timeout_ms=20_000
        )
    )
    yield made
    made.close()


@pytest.fixture
def stored(request: pytest.FixtureRequest, index: Index, topic_prefix: str) -> Stored:
    """Return a function that finds a hash without the port, as a person would."""
    if isinstance(index, LocalIndex):
        return index.fields
    url = request.getfixturevalue("redis_url")
    return lambda key: redis.stored(url, f"{topic_prefix}:{key}")


def test_put_replaces_the_whole_hash(index: Index, stored: Stored) -> None:
    assert stored("a") == {}
    index.put("a", {"x": "1", "y": "ü"})
    assert stored("a") == {"x": "1", "y": "ü"}
    index.put("a", {"z": ""})
    assert stored("a") == {"z": ""}


@pytest.mark.parametrize("how", ["put", "delete"])
def test_put_of_nothing_and_delete_forget(index: Index, stored: Stored, how: str) -> None:
    for _ in range(2):
        index.put("a", {"x": "1"})
        if how == "put":
            index.put("a", {})
        else:
            index.delete("a")
        assert stored("a") == {}
        assert index.keys("") == []
    index.delete("a")


def test_a_key_expires_unless_it_is_put_again(index: Index, stored: Stored) -> None:
    index.put("short", {"x": "1"}, expire_ms=50)
    index.put("long", {"x": "1"}, expire_ms=60_000)
    index.put("again", {"x": "1"}, expire_ms=50)
    index.put("again", {"x": "2"})
    wait_until(lambda: stored("short") == {}, 20, "the key to expire")
    assert index.keys("") == ["again", "long"]


def test_keys_by_literal_prefix(index: Index) -> None:
    for key in ("b:1", "b:2", "a", "b*", "b?x", "b[1]", "bb", "b\\1"):
        index.put(key, {"x": "1"})
    assert index.keys("b:") == ["b:1", "b:2"]
    assert index.keys("b*") == ["b*"]
    assert index.keys("b?") == ["b?x"]
    assert index.keys("b[") == ["b[1]"]
    assert index.keys("b\\") == ["b\\1"]
    assert index.keys("c") == []
    assert len(index.keys("")) == 8


def test_many_keys_are_all_found_once(index: Index) -> None:
    for number in range(2_500):
        index.put(f"k{number:05}", {"x": "1"})
    assert index.keys("k") == [f"k{number:05}" for number in range(2_500)]


def test_a_closed_index_is_not_used_again_and_closes_twice(index: Index) -> None:
    index.close()
    index.close()
    with pytest.raises(LocalProtocolError):
        index.keys("a")
