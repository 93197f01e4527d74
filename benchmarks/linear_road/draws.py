"""Chance by hashing: the same numbers on every machine, in any order of asking."""

from __future__ import annotations

import zlib
from typing import Final

import numpy as np
import numpy.typing as npt

_STEP: Final = np.uint64(0x9E3779B97F4A7C15)
_FIRST: Final = np.uint64(0xBF58476D1CE4E5B9)
_SECOND: Final = np.uint64(0x94D049BB133111EB)


def _mix(value: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Spread each bit of the values over all bits (the finalizer of splitmix64)."""
    value = (value ^ (value >> np.uint64(30))) * _FIRST
    value = (value ^ (value >> np.uint64(27))) * _SECOND
    mixed: npt.NDArray[np.uint64] = value ^ (value >> np.uint64(31))
    return mixed


def draw(
    seed: int,
    purpose: str,
    first: npt.NDArray[np.int64] | int,
    second: npt.NDArray[np.int64] | int,
) -> npt.NDArray[np.int64]:
    """Return a number of 63 bits for each pair of ``first`` and ``second``, which the seed, the
    purpose and the pair alone decide.
    """
    with np.errstate(over="ignore"):
        value = np.full(1, seed, np.uint64) * _STEP + np.uint64(zlib.crc32(purpose.encode()))
        for part in (first, second):
            value = _mix(value) + np.asarray(part, np.int64).astype(np.uint64) * _STEP
        drawn = (_mix(value) >> np.uint64(1)).astype(np.int64)
    return drawn if np.ndim(first) or np.ndim(second) else drawn[0]
