"""Which rows of its inputs a shard of a stage takes, and when they can be dealt out."""

from __future__ import annotations

import pytest

from anabranch.protocol.stage import shares
from anabranch.protocol.stage.intervals import Interval
from anabranch.protocol.stage.shares import Share

TYPES = {
    "cars": {"segment": "int64", "plate": "string", "speed": "double", "at": "timestamp[us]"},
    "jams": {"segment": "int64", "part": "int32", "place": "struct<x: int64>"},
}


def wrong(**by: tuple[str, ...]) -> str:
    return Share(Interval("0"), by).wrong_keys(TYPES)


def test_a_log_says_whose_rows_are_taken() -> None:
    assert Share(Interval("10"), {"jams": (), "cars": ("segment", "plate")}).text() == (
        "10 of row digest: cars by segment, plate; jams whole"
    )


def test_a_share_by_another_hash_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows are others, though its bits and columns are the same (BL16)."""
    share = Share(Interval("10"), {"cars": ("segment",)})
    before = share.text()
    monkeypatch.setattr(shares, "KEY_HASH", "another")
    assert share.text() != before


@pytest.mark.parametrize(
    "by",
    [
        {"cars": ("segment",)},
        {"cars": ("plate", "at"), "jams": ()},
        {"jams": (), "cars": ("plate",)},
        {"cars": ("segment",), "jams": ("segment",)},
    ],
)
def test_keys_of_the_same_types_can_be_dealt_out(by: dict[str, tuple[str, ...]]) -> None:
    assert wrong(**by) == ""


def test_a_column_that_is_not_there_is_named() -> None:
    assert wrong(cars=("segment", "lane", "way")) == (
        "cars has no column lane, way; it has segment, plate, speed, at"
    )


@pytest.mark.parametrize(("name", "column"), [("cars", "speed"), ("jams", "place")])
def test_kp2_equal_values_of_some_types_differ(name: str, column: str) -> None:
    assert f"{column} of {name} is {TYPES[name][column]}, and a key is" in wrong(
        **{name: (column,)}
    )


def test_kp2_keys_have_the_same_types_in_all_inputs() -> None:
    assert wrong(cars=("segment",), jams=("part",)) == (
        "the key of jams is (int32), that of cars (int64): equal keys would come to different"
        " shards"
    )
    assert "(int64), that of cars (int64, string)" in wrong(
        cars=("segment", "plate"), jams=("segment",)
    )
