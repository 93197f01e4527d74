"""The choice of kept rows over whole columns is that of ``protocol.stage.kept_rows``."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from anabranch.codec.blocks import row_hashes
from anabranch.codec.kept_rows import kept_mask, kept_rows, most_important
from anabranch.protocol.stage.kept_rows import KEPT_ALL, is_kept, salt_of
from anabranch.protocol.stage.kept_rows import most_important as most_important_by_rule

SALT = salt_of("tolls")
ROWS = pa.table(
    {
        "segment": pa.array([n % 50 for n in range(2_000)], pa.int32()),
        "plate": [f"car {n}" for n in range(2_000)],
        "event_time": pa.array(range(2_000), pa.int64()),
    }
)


@given(
    st.lists(st.integers(min_value=0, max_value=2**64 - 1), max_size=50),
    st.integers(min_value=0, max_value=KEPT_ALL),
)
def test_the_choice_is_that_of_the_rule(identities: list[int], kept: int) -> None:
    found = kept_mask(np.array(identities, dtype=np.uint64), SALT, kept).tolist()
    assert found == [is_kept(identity, SALT, kept) for identity in identities]


@given(
    st.lists(
        st.tuples(
            st.integers(1, 3),
            st.sampled_from([0.0, 0.5, 2.0, -math.inf]),
            st.integers(min_value=0, max_value=2**64 - 1),
        ),
        unique_by=lambda row: row[2],
    ),
    st.integers(min_value=0, max_value=KEPT_ALL),
)
def test_the_choice_by_importance_is_that_of_the_rule(
    rows: list[tuple[int, float, int]], kept: int
) -> None:
    buckets, importance, identities = zip(*rows, strict=True) if rows else ((), (), ())
    found = most_important(
        np.array(buckets, np.int64),
        np.array(importance, np.float64),
        np.array(identities, np.uint64),
        SALT,
        kept,
    )
    assert found.tolist() == most_important_by_rule(rows, SALT, kept)


def test_rows_are_kept_in_their_order_whatever_block_they_are_in() -> None:
    whole = kept_rows(ROWS, (), SALT, 300)
    assert 0.2 < whole.num_rows / ROWS.num_rows < 0.4
    plates = whole.column("plate").to_pylist()
    assert plates == sorted(plates, key=lambda plate: int(plate.split()[1]))
    halves = [kept_rows(half, (), SALT, 300) for half in (ROWS.slice(0, 77), ROWS.slice(77))]
    assert pa.concat_tables(halves).to_pylist() == whole.to_pylist()
    backwards = ROWS.take(pa.array(range(1_999, -1, -1)))
    assert kept_rows(backwards, (), SALT, 300).to_pylist() == whole.to_pylist()[::-1]


def test_a_key_is_kept_whole_or_not_at_all() -> None:
    found = Counter(kept_rows(ROWS, ("segment",), SALT, 400).column("segment").to_pylist())
    assert 5 < len(found) < 45
    assert set(found.values()) == {40}
    ids = row_hashes(ROWS.select(["segment"])).tolist()
    assert found.total() == sum(is_kept(each, SALT, 400) for each in ids)


def test_at_all_or_none_and_of_no_rows() -> None:
    assert kept_rows(ROWS, (), SALT, KEPT_ALL) is ROWS
    assert kept_rows(ROWS, (), SALT, 0).num_rows == 0
    assert kept_rows(ROWS.slice(0, 0), (), SALT, 500).num_rows == 0


def test_a_key_column_that_an_older_block_does_not_have_is_null() -> None:
    key = ("segment", "lane")
    null = ROWS.append_column("lane", pa.nulls(ROWS.num_rows, pa.string()))
    found = kept_rows(ROWS, key, SALT, 400)
    assert found.schema == ROWS.schema
    assert found.to_pylist() == kept_rows(null, key, SALT, 400).drop_columns(["lane"]).to_pylist()
