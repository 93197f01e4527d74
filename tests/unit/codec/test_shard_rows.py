"""The rows that a shard takes, over whole columns, are those of ``protocol.stage.intervals``."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.codec.blocks import row_hashes
from anabranch.codec.shard_rows import shard_mask
from anabranch.protocol.stage.intervals import HASH_BITS, Interval, divided

KEYS = st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.none() | st.text()), max_size=50)


def key_of(rows: list[tuple[int, str | None]]) -> pa.Table:
    numbers, texts = zip(*rows, strict=True) if rows else ((), ())
    return pa.table({"n": pa.array(numbers, pa.int64()), "text": pa.array(texts, pa.string())})


@given(KEYS, st.sampled_from([1, 2, 4, 16]))
def test_each_row_is_one_shards(rows: list[tuple[int, str | None]], count: int) -> None:
    key = key_of(rows)
    hashes = [each >> (64 - HASH_BITS) for each in row_hashes(key).tolist()]
    takers = [0] * len(rows)
    for interval in divided(count):
        mask = shard_mask(key, interval).tolist()
        assert mask == [interval.has(each) for each in hashes]
        takers = [before + takes for before, takes in zip(takers, mask, strict=True)]
    assert takers == [1] * len(rows)


@given(KEYS, st.text("01", max_size=15))
def test_a_row_is_taken_whatever_block_it_is_in(
    rows: list[tuple[int, str | None]], bits: str
) -> None:
    key, interval = key_of(rows), Interval(bits)
    whole = shard_mask(key, interval).tolist()
    assert [
        taken for n in range(len(rows)) for taken in shard_mask(key.slice(n, 1), interval).tolist()
    ] == whole
    backwards = key.take(pa.array(range(len(rows) - 1, -1, -1), pa.int64()))
    assert shard_mask(backwards, interval).tolist() == whole[::-1]


def test_the_shards_of_many_keys_are_alike_in_size() -> None:
    key = pa.table({"n": range(16_000)})
    assert all(900 < shard_mask(key, interval).sum() < 1_100 for interval in divided(16))


@pytest.mark.parametrize(
    ("values", "kind", "bits"),
    [
        ([0, 1, 2, 3], pa.int64(), "0101 1100 1001 0101"),
        ([0, 1, 2, 3], pa.int32(), "0101 1100 1001 0101"),
        (["a", "b", "", None], pa.string(), "1110 0101 0101 0011"),
        ([Decimal("1.50"), None], pa.decimal128(9, 2), "0010 0011"),
        ([True, False], pa.bool_(), "1100 0101"),
    ],
)
def test_the_shard_of_a_key_never_changes(values: list[Any], kind: pa.DataType, bits: str) -> None:
    """The state of a shard is that of its keys, for as long as there is a checkpoint of it."""
    key = pa.table({"k": pa.array(values, kind)})
    found = [
        interval.bits
        for row in range(len(values))
        for interval in divided(16)
        if shard_mask(key.slice(row, 1), interval).all()
    ]
    assert " ".join(found) == bits, "another hash needs another KEY_HASH"
