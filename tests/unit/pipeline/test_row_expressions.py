"""SQL expressions that say how much each row matters."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from anabranch.pipeline.row_expressions import check_on, importance_of, wrong_syntax
from anabranch.protocol.errors import StageFunctionError

ROWS = pa.table(
    {
        "speed": pa.array([1, 200, None], pa.int64()),
        "lane": ["a", "b", "c"],
        "fee": pa.array([Decimal("1.50"), None, Decimal("0.25")], pa.decimal128(5, 2)),
        "parts": pa.array([[("x", 1)], [], None], pa.map_(pa.string(), pa.int64())),
        "event_time": [10, 20, 30],
    }
)


@pytest.mark.parametrize(
    ("expression", "importance"),
    [
        ("speed", [1.0, 200.0, None]),
        ("speed > 130 AND lane <> 'a'", [0.0, 1.0, None]),
        ("CASE WHEN lane = 'b' THEN 10 ELSE coalesce(speed, 0) END", [1.0, 10.0, 0.0]),
        ("fee * 2", [3.0, None, 0.5]),
        ("-event_time", [-10.0, -20.0, -30.0]),
    ],
)
def test_each_row_has_a_number(expression: str, importance: list[float | None]) -> None:
    assert wrong_syntax(expression) is None
    assert importance_of(ROWS, expression).to_pylist() == importance
    check_on(ROWS.schema, expression)


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("lane", "gives String, not a number or a truth value"),
        ("max(speed)", "gave 1 numbers for 0 rows"),
        ("sped + 1", "sped"),
    ],
)
def test_what_cannot_be_evaluated_is_found_without_a_row(expression: str, says: str) -> None:
    assert wrong_syntax(expression) is None
    with pytest.raises(StageFunctionError, match=says) as raised:
        check_on(ROWS.schema, expression)
    assert str(raised.value).startswith(f"shed by {expression!r}: ")


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("speed >", "not an SQL expression: "),
        ("speed, lane", "not an SQL expression: "),
        ("random()", "unsupported function"),
        ("now()", "it names no column"),
        ("speed" + " + lane" * 10_000, "it has 70005 characters, and 2000 are the most: write a"),
    ],
)
def test_what_is_no_expression_is_found_when_the_file_is_read(expression: str, says: str) -> None:
    """Polars would end the process by the long one."""
    assert says in str(wrong_syntax(expression))
