"""Comparison of the floating-point numbers of two replicas in one bucket.

Digests leave these numbers out, since a sum of floats depends on the order of addition. Here the
rows of both replicas are sorted into the canonical order, in which columns of other types come
first, and the floats are compared row by row. Floats within nested values are not compared.
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
"""Relative tolerance: far above what the order of addition changes in a sum of a million doubles,
and far below any difference that matters to users.
"""
ABSOLUTE_TOLERANCE: Final = 1e-9
"""Absolute tolerance, for sums whose terms cancel out to nearly zero."""
_SINGLE_TOLERANCE: Final = 1e-4
"""Tolerance, relative and absolute, of columns of single precision."""


def _largest(mine: _Floats, other: _Floats) -> float:
    """Return the largest relative difference between two columns; infinite if one of them has a
    number that is not finite.
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
