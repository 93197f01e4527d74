"""Values to columns and back."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from anabranch.codec.columns import column_of, in_order, stored, unscaled
from anabranch.codec.field_types import Field

PRICE = Field("p", "decimal", nullable=True, precision=38, scale=2)
MAP = Field("m", "map", inner=(Field("", "array", inner=(Field("", "timestamp-micros"),)),))
RECORD = Field("r", "record", inner=(Field("day", "date"), MAP, PRICE))


@pytest.mark.parametrize(
    ("field", "values"),
    [
        (PRICE, []),
        (PRICE, [1, None, -(10**38) + 1, 0, 10**38 - 1, None, 5, 6, 7, None]),
        (MAP, [None, [], [("a", None), ("b", [1, None, -1])], None, [("", [])]]),
        (RECORD, [(3, [("k", [1])], 5), None, (None, None, None)]),
        (Field("a", "array", inner=(RECORD,)), [[None, (1, [], 2)], [], None]),
    ],
)
def test_columns_give_their_values_back_whole_or_in_slices(field: Field, values: list[Any]) -> None:
    column = column_of(values, field)
    column.validate(full=True)
    assert column.type == field.arrow_type()
    for start in range(len(values) + 1):
        for stop in range(start, len(values) + 1):
            assert stored(column.slice(start, stop - start)) == values[start:stop]


def test_pairs_of_a_map_are_in_the_order_of_their_keys() -> None:
    pairs = [("b", [1]), ("a", []), ("\U0001f600", []), ("\uffff", [])]
    ordered = ["a", "b", "\uffff", "\U0001f600"]
    assert [key for key, _ in in_order(pairs)] == ordered
    assert sorted(ordered, key=str.encode) == ordered, "as their bytes are"
    assert [key for key, _ in stored(column_of([dict(pairs)], MAP))[0]] == ordered
    shuffled = pa.array([pairs], MAP.arrow_type())
    assert stored(shuffled) == stored(column_of([pairs], MAP))


def test_decimals_of_any_width_are_integers() -> None:
    values = [Decimal("1.10"), None, Decimal("-0.01")]
    for kind in (pa.decimal64(5, 2), pa.decimal128(5, 2), pa.decimal256(5, 2)):
        assert unscaled(pa.array(values, kind)) == [110, None, -1]
