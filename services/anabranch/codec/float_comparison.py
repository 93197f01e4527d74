"""Do two replicas have the same floating-point numbers in a bucket?

Digests leave them out, since a sum of floats depends on the order of additions. Here the rows of
both are brought into the canonical order, in which the columns that are not floats come first, and
their floats compared one by one. Floats inside of nested values are not looked at.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.codec.blocks import canonical_sort

_Floats = npt.NDArray[np.float64]

RELATIVE_TOLERANCE: Final = 1e-9
"""Far above what the order of additions changes in a sum of a million doubles, far below what
anybody means.
"""
ABSOLUTE_TOLERANCE: Final = 1e-9
"""Absolute tolerance, for sums that cancel out to about nothing."""
_SINGLE_TOLERANCE: Final = 1e-4
"""Tolerance, relative and absolute, of columns of single precision."""


def _largest(mine: _Floats, other: _Floats) -> float:
    """Return the largest difference of two numbers as a part of the larger one; infinite where one
    of two is no finite number.
    """
    finite = np.isfinite(mine) & np.isfinite(other)
    if not finite.all():
        return math.inf
    larger = np.maximum(np.abs(mine), np.abs(other))
    return float((np.abs(mine / larger - other / larger)).max())


def float_columns(schema: pa.Schema) -> list[str]:
    """Return the names of the columns of floating-point numbers."""
    return [field.name for field in schema if pa.types.is_floating(field.type)]


def float_difference(one: pa.Table, two: pa.Table) -> str:
    """Return the differences beyond the tolerance in words, or an empty text. They name a column,
    the number of rows and the difference, but no value: they go into a log, and the rows are the
    users'.

    Both tables have the same number of rows, equal in all other columns.
    """
    one, two = canonical_sort(one), canonical_sort(two)
    for name in float_columns(one.schema):
        mine, other = (np.asarray(t.column(name).to_numpy(), dtype=np.float64) for t in (one, two))
        single = not pa.types.is_float64(one.schema.field(name).type)
        relative, absolute = (
            (_SINGLE_TOLERANCE, _SINGLE_TOLERANCE)
            if single
            else (RELATIVE_TOLERANCE, ABSOLUTE_TOLERANCE)
        )
        near = np.isclose(mine, other, rtol=relative, atol=absolute, equal_nan=True)
        if not near.all():
            return (
                f"column {name}: {int((~near).sum())} of {len(near)} rows, by up to"
                f" {_largest(mine[~near], other[~near]):.2g} of the larger number"
            )
    return ""
