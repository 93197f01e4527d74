"""Selection of the rows that a plan keeps (``protocol.stage.kept_rows``), vectorised over a
table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.codec.blocks import IntArray, mix, row_hashes
from anabranch.protocol.stage.kept_rows import HASH_BITS, KEPT_ALL, threshold

Mask = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]

_SHIFT: Final = np.uint64(64 - HASH_BITS)


def kept_mask(identities: IntArray, salt: int, kept: int) -> Mask:
    """Return, for each row, whether ``protocol.stage.kept_rows.is_kept`` keeps it.

    Args:
        identities: 64-bit identity of each row (``row_hashes``).
        salt: Salt of the stage.
        kept: Per mille of the rows to keep.
    """
    with np.errstate(over="ignore"):
        mixed = mix(identities ^ np.uint64(salt))
    return (mixed >> _SHIFT) < np.uint64(threshold(kept))


def most_important(
    buckets: npt.NDArray[np.int64],
    importance: npt.NDArray[np.float64],
    identities: IntArray,
    salt: int,
    kept: int,
) -> Mask:
    """Return, for each row, whether ``protocol.stage.kept_rows.most_important`` keeps it.

    Args:
        buckets: Bucket of each row.
        importance: How much each row matters.
        identities: 64-bit identity of each row (``row_hashes``).
        salt: Salt of the stage.
        kept: Per mille of the rows of each bucket to keep.
    """
    with np.errstate(over="ignore"):
        mixed = mix(identities ^ np.uint64(salt))
    order = np.lexsort((mixed, -importance, buckets))
    _, starts, counts = np.unique(buckets[order], return_index=True, return_counts=True)
    place = np.arange(len(order)) - np.repeat(starts, counts)
    found = np.zeros(len(order), dtype=np.bool_)
    found[order] = place < np.repeat(-(-counts * kept // KEPT_ALL), counts)
    return found


def kept_rows(table: pa.Table, key: Sequence[str], salt: int, kept: int) -> pa.Table:
    """Return the rows of ``table`` that a plan keeps, in the same order.

    Args:
        table: Rows of a block: the stream's columns and event time.
        key: Columns whose equal values are kept or left out together; without columns each row
            counts by all of its columns. A column that the block does not have counts as null: its
            writer may have added it later.
        salt: Salt of the stage.
        kept: Per mille of the rows to keep.
    """
    if kept >= KEPT_ALL or not table.num_rows:
        return table
    counted = table
    if key:
        absent = pa.nulls(table.num_rows, pa.int64())
        counted = pa.table(
            [table.column(name) if name in table.column_names else absent for name in key],
            list(key),
        )
    identities = row_hashes(counted)
    return table.filter(pa.array(kept_mask(identities, salt, kept)))
