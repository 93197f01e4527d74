"""Choice of the rows that a shard takes (KP1 of ``protocol.stage.shares``), for a table at once.

A row's hash is the first ``HASH_BITS`` bits of ``row_hashes`` of its key's columns. It depends on
the values alone: not on the machine, a library's version, the block, or which stage reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from anabranch.codec.blocks import row_hashes
from anabranch.protocol.stage.intervals import HASH_BITS

if TYPE_CHECKING:
    import pyarrow as pa

    from anabranch.codec.kept_rows import Mask
    from anabranch.protocol.stage.intervals import Interval


def shard_mask(key: pa.Table, interval: Interval) -> Mask:
    """Return, for each row, whether the shard that takes ``interval`` takes it. ``key``: the
    columns of the rows' key, in the order of `shard_by`.
    """
    hashes = row_hashes(key) >> np.uint64(64 - HASH_BITS)
    mask: Mask = (hashes >> np.uint64(interval.shift)) == np.uint64(interval.prefix)
    return mask
