"""Floats of two replicas, compared row by row."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from anabranch.codec.float_comparison import float_columns, float_difference


def table(
    *values: float | None, cars: tuple[int, ...] = (3, 1, 2), kind: pa.DataType | None = None
) -> pa.Table:
    return pa.table(
        {
            "mean": pa.array(values, kind or pa.float64()),
            "car": pa.array(cars, pa.int64()),
            "event_time": pa.array([5] * len(cars), pa.int64()),
        }
    )


def test_columns_of_floating_point_numbers_are_found() -> None:
    assert float_columns(table(1.0, 2.0, 3.0).schema) == ["mean"]


def test_another_order_of_rows_and_of_additions_is_no_difference() -> None:
    total = 0.1 + 0.2 + 0.3
    assert total != 0.3 + 0.2 + 0.1
    assert not float_difference(
        table(total, 1.0, 2.0), table(1.0, 2.0, 0.3 + 0.2 + 0.1, cars=(1, 2, 3))
    )


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_what_is_no_number_equals_itself_only(value: float | None) -> None:
    assert not float_difference(table(value, 1.0, 2.0), table(value, 1.0, 2.0))
    assert float_difference(table(math.inf, 1.0, 2.0), table(-math.inf, 1.0, 2.0))


@pytest.mark.parametrize(
    ("other", "text"),
    [
        ((1.0, 2.001, 3.5), "column mean: 2 of 3 rows, by up to 0.14 of the larger number"),
        ((1.0, -2.0, 3.0), "column mean: 1 of 3 rows, by up to 2 of the larger number"),
        ((1.0, 2.0, 1.7e308), "column mean: 1 of 3 rows, by up to 1 of the larger number"),
        ((math.nan, 2.0, 3.0), "column mean: 1 of 3 rows, by up to inf of the larger number"),
    ],
)
def test_a_difference_names_column_rows_and_how_much_but_no_value(
    other: tuple[float, float, float], text: str
) -> None:
    assert float_difference(table(1.0, 2.0, 3.0), table(*other)) == text


def test_single_precision_is_judged_as_what_it_is() -> None:
    assert not float_difference(
        table(1.0, 2.0, 3.0, kind=pa.float32()), table(1.00001, 2.0, 3.0, kind=pa.float32())
    )
    assert float_difference(
        table(1.0, 2.0, 3.0, kind=pa.float32()), table(1.01, 2.0, 3.0, kind=pa.float32())
    )
