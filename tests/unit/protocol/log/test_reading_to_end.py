"""Reading to an end that may never come."""

from __future__ import annotations

import pytest

from anabranch.protocol.errors import Unavailable
from anabranch.protocol.log.reading_to_end import ReadingToEnd


def test_it_is_over_when_all_partitions_are_read_to_their_ends() -> None:
    positions = {"a": 0, "b": 3}
    reading = ReadingToEnd({"a": 2, "b": 3}, positions.__getitem__, silent_max=0)
    assert not reading.is_over()
    positions["a"] = 1
    assert not reading.is_over()
    positions["a"] = 4
    assert reading.is_over()
    positions["a"] = 0
    assert reading.is_over(), "what was reached stays so"
    assert ReadingToEnd({}, positions.__getitem__).is_over()


def test_it_fails_where_nothing_arrives_for_long() -> None:
    positions = {"a": 0, "b": 0}
    reading = ReadingToEnd({"a": 2, "b": 9}, positions.__getitem__, silent_max=2)
    for positions["b"] in (0, 0, 0, 1, 1, 1):
        assert not reading.is_over()
    positions["a"] = 2
    for _ in range(3):
        assert not reading.is_over()
    with pytest.raises(Unavailable, match=r"b: no record arrived after offset 1, .* ended at 9"):
        reading.is_over()
