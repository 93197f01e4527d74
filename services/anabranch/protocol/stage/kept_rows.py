"""Choice of the rows that an overloaded stage's branch keeps, and the share that its results lack.

Theory of operation. A branch that cannot process all rows in time keeps ``kept`` per mille of the
rows of each bucket and leaves out the rest, until the stable query has processed all of them. The
plan carries the per mille, so a batch that runs again keeps the same rows. Which rows these are
follows from the per mille and from a 64-bit *identity* of each row alone: the hash of the row's
columns, or that of its key's columns, as ``codec.blocks.row_hashes`` computes it. The identity is
the same at every replica, in a recomputed block and in whatever order rows come, which the number
of a row within its block is not. Rows with the same identity are kept or left out together; so are
rows that differ in floating-point numbers alone, since those are not part of the hash.

The identity is mixed with a salt before it is compared. The rows that a shard takes, or that
another stage keeps of the same stream, therefore say nothing about the rows that are kept here.
(Each stage has the salt of its name.) ``codec.kept_rows`` makes the same choice for whole columns.

Instead of by chance alone the rows can be chosen by how much they matter (semantic shedding): of
each bucket the most important rows are kept, and of equally important ones those that a choice by
chance would keep first. The importance of a row comes from a function of the user.

The share that a result lacks is stated in per mille, too. A stage that reads results which lack
some rows, and leaves out rows itself, keeps the product of the two shares. With several inputs the
one that lacks most counts: which input a result depends on is not known.

Invariants:
    KR1 the choice depends on the identity, the salt and the per mille alone.
    KR2 a row that is kept at some per mille is kept at every higher one; at KEPT_ALL all are kept,
        at 0 none.
    KR3 of many different identities ``kept`` per mille are kept, whatever the identities are.
    KR4 what results lack never decreases along a chain, and is 0 only if no stage left out a row.
    KR5 by importance, ``kept`` per mille of the rows of each bucket are kept, rounded up, and no
        row that is left out is more important than one of its bucket that is kept.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Final

from anabranch.protocol.errors import LocalProtocolError

KEPT_ALL: Final = 1_000
"""Per mille of the rows that a plan keeps if nothing is left out."""

HASH_BITS: Final = 32
"""Number of bits of a mixed identity that are compared with the threshold. Far more than the 10
bits that a per mille needs, so that each per mille is exact to a millionth.
"""
_MASK: Final = (1 << 64) - 1


def check_kept(kept: int) -> None:
    """Check that ``kept`` is a number of per mille.

    Raises:
        LocalProtocolError: ``kept`` is negative, or more than KEPT_ALL.
    """
    if not 0 <= kept <= KEPT_ALL:
        raise LocalProtocolError(f"a plan keeps {kept} per mille of its rows: not 0..{KEPT_ALL}")


def salt_of(stage: str) -> int:
    """Return the salt of a stage: two stages of a chain that keep half of the rows each must not
    keep the same half.
    """
    return _mixed(zlib.crc32(stage.encode()) + 1)


def threshold(kept: int) -> int:
    """Return the bound below which the first HASH_BITS of a mixed identity are kept."""
    return (kept << HASH_BITS) // KEPT_ALL


def is_kept(identity: int, salt: int, kept: int) -> bool:
    """Return whether the row with this 64-bit ``identity`` is kept (KR1, KR2).

    Args:
        identity: Hash of the row's columns, or of its key's.
        salt: Salt of the stage (``salt_of``).
        kept: Per mille of the rows to keep.
    """
    return _mixed(identity ^ salt) >> (64 - HASH_BITS) < threshold(kept)


def most_important(rows: Sequence[tuple[int, float, int]], salt: int, kept: int) -> list[bool]:
    """Return which rows are kept by importance (KR5).

    Args:
        rows: (bucket, importance, 64-bit identity) of each row.
        salt: Salt of the stage.
        kept: Per mille of the rows of each bucket to keep.
    """
    by_bucket: dict[int, list[int]] = {}
    for index, (bucket, _, _) in enumerate(rows):
        by_bucket.setdefault(bucket, []).append(index)
    found = [False] * len(rows)
    for indices in by_bucket.values():
        indices.sort(key=lambda index: (-rows[index][1], _mixed(rows[index][2] ^ salt)))
        for index in indices[: -(-len(indices) * kept // KEPT_ALL)]:
            found[index] = True
    return found


def _mixed(value: int) -> int:
    """Return the finaliser of splitmix64 of a 64-bit ``value``: each bit depends on all bits."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def shed_by(kept: int, inputs_shed: Iterable[int] = ()) -> int:
    """Return the per mille of the rows that results lack (KR4).

    Args:
        kept: Per mille that the stage itself keeps.
        inputs_shed: Per mille that each of its inputs lacks already.
    """
    before = KEPT_ALL - max(inputs_shed, default=0)
    return KEPT_ALL - kept * before // KEPT_ALL
