"""Faults of the index in memory."""

from __future__ import annotations

import pytest

from anabranch.adapters.memory.clock import VirtualClock
from anabranch.adapters.memory.index import LocalIndex
from anabranch.protocol.errors import Unavailable


def test_keys_expire_by_the_given_clock() -> None:
    clock = VirtualClock()
    index = LocalIndex(clock)
    index.put("a", {"x": "1"}, expire_ms=1_000)
    clock.advance(999)
    assert index.get("a") == {"x": "1"}
    clock.advance(1)
    assert index.get("a") == {}


def test_cut_off_and_flushed() -> None:
    index = LocalIndex()
    index.put("a", {"x": "1"})
    index.cut_off(True)
    with pytest.raises(Unavailable):
        index.get("a")
    index.cut_off(False)
    assert index.get("a") == {"x": "1"}
    index.flush_all()
    assert index.keys("") == []
