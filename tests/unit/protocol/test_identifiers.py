"""Names and ids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.errors import ConfigurationError, RemoteProtocolError
from anabranch.protocol.identifiers import BatchId, RecordId, checked_name


@pytest.mark.parametrize("name", ["a", "tolls", "north-2", "a_b", "a" * 63])
def test_names(name: str) -> None:
    assert checked_name("stage", name) == name


@pytest.mark.parametrize("name", ["", "A", "1a", "-a", "a.b", "a b", "a\n", "ä", "a" * 64, "a/b"])
def test_what_may_not_be_a_name_is_reported_with_its_kind(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"stage name .*lower case") as raised:
        checked_name("stage", name)
    assert repr(name) in str(raised.value)


@given(st.integers(0, 10**15), st.integers(0, 10**9))
def test_record_ids_come_back(bucket: int, position: int) -> None:
    assert RecordId.parse(str(RecordId(bucket, position))) == RecordId(bucket, position)


@pytest.mark.parametrize(
    "text", ["", ".", "1.", ".1", "1", "1.2.3", "-1.2", "1.-2", "a.b", "1 .2", "1." + "2" * 40]
)
def test_what_is_no_record_id_is_rejected(text: str) -> None:
    with pytest.raises(RemoteProtocolError, match="is not a record id"):
        RecordId.parse(text)


def test_ids_are_ordered_by_number_not_by_text() -> None:
    assert sorted([RecordId(10, 0), RecordId(9, 10), RecordId(9, 9)]) == [
        RecordId(9, 9),
        RecordId(9, 10),
        RecordId(10, 0),
    ]
    assert BatchId("a", 9) < BatchId("a", 10) < BatchId("b", 0)
