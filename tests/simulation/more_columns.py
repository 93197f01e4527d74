"""Columns beside those of the workload, in the results of stages of some seeds: a floating-point
number and a list of structures, with all that is hard about them. Their values follow from the row.

Replicas differ in the last digits, and in the sign of zero, as sums do whose order differs: that is
no disagreement.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

if TYPE_CHECKING:
    from simulation.workload import Row

NUMBER: Final = "f"
LIST: Final = "n"
FIELDS: Final = (
    pa.field(NUMBER, pa.float64()),
    pa.field(LIST, pa.list_(pa.struct([("x", pa.int64()), ("y", pa.float64())]))),
)
_DIFFERS_BY: Final = 1e-12
"""Relative difference between replicas."""
_NEAR: Final = 1e-9
_NOT_FINITE: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
"""Texts in JSON."""


def arrays(rows: Sequence[Row], replica: int) -> list[pa.Array]:
    """Return the columns of ``rows`` as ``replica`` computes them."""
    values = [_values(row[1], row[3], replica) for row in rows]
    return [
        pa.array([each[number] for each in values], field.type)
        for number, field in enumerate(FIELDS)
    ]


def _values(
    ident: int, v: int, replica: int
) -> tuple[float | None, list[dict[str, object]] | None]:
    zero, rounded = (-0.0 if replica % 2 else 0.0), 1 + replica * _DIFFERS_BY
    choice = ident * 31 + v
    number = (None, math.nan, zero, math.inf, v * 1.1 * rounded, -1e300)[choice % 6]
    nested: tuple[list[dict[str, object]] | None, ...] = (
        None,
        [],
        [{"x": v, "y": math.nan}],
        [{"x": -v, "y": v / 3 * rounded}, {"x": None, "y": zero}],
    )
    return number, nested[choice % 4]


def wrong(row: Mapping[str, object]) -> str:
    """Return what is wrong with the further columns of a delivered row; empty: nothing. JSON has
    texts for numbers that it lacks.
    """
    due = _values(int(str(row["id"])), int(str(row["v"])), 0)
    found = (row.get(NUMBER), row.get(LIST))
    return "" if _is_near(found, due) else f"further columns {found}, due are {due} ({dict(row)})"


def _is_near(found: object, due: object) -> bool:
    match due:
        case float():
            if not math.isfinite(due):
                return found == _NOT_FINITE[str(due)]
            return isinstance(found, float | int) and math.isclose(found, due, rel_tol=_NEAR)
        case list() | tuple():
            return (
                isinstance(found, list | tuple)
                and len(found) == len(due)
                and all(map(_is_near, found, due))
            )
        case dict():
            return isinstance(found, dict) and all(
                _is_near(found.get(name), each) for name, each in due.items()
            )
        case _:
            return found == due
