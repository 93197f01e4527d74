"""Tests of which output's records are whose."""

from __future__ import annotations

import pytest

from anabranch.protocol.edge.origins import (
    ORIGINS_MAX,
    NewestIds,
    Origin,
    other_outputs,
    shared_topic,
)
from anabranch.protocol.errors import RemoteProtocolError
from anabranch.protocol.identifiers import RecordId

OWN = Origin("roads", "tolls", "Zk3_x-8")


def test_an_origin_comes_back_as_it_was_written() -> None:
    assert Origin.parse(str(OWN)) == OWN
    assert OWN.header == b"roads.tolls.Zk3_x-8"
    assert Origin.parse("a.b.c.d#2").life == "c.d#2", "the life is the broker's, whatever it has"


@pytest.mark.parametrize(
    "text", ["", "roads", "roads.tolls", "roads.tolls.", ".tolls.x", "Roads.tolls.x", "r.t." * 200]
)
def test_what_is_no_origin_is_rejected(text: str) -> None:
    with pytest.raises(RemoteProtocolError, match="not the origin"):
        Origin.parse(text)


def test_another_life_is_the_same_output_and_another_pipeline_is_not() -> None:
    earlier, second = Origin("roads", "tolls", "old"), Origin("streets", "tolls", "Zk3_x-8")
    assert other_outputs(OWN, {OWN, earlier, second}) == [second]
    text = str(shared_topic(OWN, "results", second))
    assert "topic results" in text
    assert "output tolls of pipeline streets" in text


def test_ids_of_an_origin_count_once_whatever_others_have() -> None:
    newest = NewestIds()
    assert newest.is_new("a", RecordId(3, 1))
    assert not newest.is_new("a", RecordId(3, 1))
    assert newest.is_new("b", RecordId(1, 0)), "another life begins again"
    assert not newest.is_new("a", RecordId(2, 9))
    assert not newest.is_new("a", RecordId(3, 1)), "a lower one in between changes nothing"
    assert newest.is_new("a", RecordId(3, 2))
    for number in range(ORIGINS_MAX):
        assert newest.is_new(f"o{number}", RecordId(1, 0))
    assert newest.is_new("a", RecordId(3, 2)), "the one that was not read for longest is forgotten"
