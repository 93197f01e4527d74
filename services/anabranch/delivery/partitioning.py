"""Vectorised ``codec.partitions.partition_of``: partitions of many records at once. A property test
compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from anabranch.codec.partitions import partition_of
from anabranch.protocol.edge.delivery import BEGINNING, Slice

_M: Final = np.uint32(0x5BD1E995)
_SEED: Final = np.uint32(0x9747B28C)
_VECTOR_KEYS_MIN: Final = 8
"""Number of keys of one length from which an array is faster than a loop."""

_KNOWN_MAX: Final = 500_000
"""Maximum number of keys whose partition is cached; the cache is emptied when it is exceeded."""

Words = np.ndarray[tuple[int, ...], np.dtype[np.uint32]]


def _murmur2_of_length(keys: Sequence[bytes], length: int) -> Words:
    """Return the hashes of keys that all have ``length`` bytes, computed word by word over all."""
    octets = np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(len(keys), length)
    h: Words = np.full(len(keys), _SEED ^ np.uint32(length), dtype=np.uint32)
    whole = length & ~3
    words = np.ascontiguousarray(octets[:, :whole]).view("<u4")
    for i in range(whole // 4):
        k = words[:, i] * _M
        k ^= k >> np.uint32(24)
        h = (h * _M) ^ (k * _M)
    if length > whole:
        tail = np.zeros(len(keys), dtype=np.uint32)
        for i in range(length - whole):
            tail |= octets[:, whole + i].astype(np.uint32) << np.uint32(8 * i)
        h = (h ^ tail) * _M
    h = (h ^ (h >> np.uint32(13))) * _M
    return h ^ (h >> np.uint32(15))


class Partitioner:
    """Cache of keys' partitions: outputs write the same keys repeatedly."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._known: dict[bytes, int] = {}

    def partitions_of(self, keys: Sequence[bytes | None], slices: Sequence[Slice]) -> list[int]:
        """Return the partition of each record of ``slices``, in order. Either all records of an
        output have keys, or none has.
        """
        if keys and keys[0] is None:
            return [place for s in slices for place in self._keyless(s)]
        given: Sequence[bytes] = keys  # type: ignore[assignment]
        distinct = set(given)
        if len(self._known) + len(distinct) > _KNOWN_MAX:
            self._known.clear()
        self._learn(distinct.difference(self._known))
        return list(map(self._known.__getitem__, given))

    def _keyless(self, part: Slice) -> list[int]:
        """Return the partitions of records without keys: round robin, from bucket and position."""
        return [
            (part.bucket + position) % self._partitions for position in range(part.start, part.stop)
        ]

    def _learn(self, keys: set[bytes]) -> None:
        """Compute and cache the partitions of ``keys``."""
        by_length: dict[int, list[bytes]] = {}
        for key in keys:
            by_length.setdefault(len(key), []).append(key)
        for length, some in by_length.items():
            if len(some) < _VECTOR_KEYS_MIN or length == 0:
                self._known.update(
                    (key, partition_of(key, BEGINNING, self._partitions)) for key in some
                )
            else:
                places = (_murmur2_of_length(some, length) & np.uint32(0x7FFFFFFF)) % np.uint32(
                    self._partitions
                )
                self._known.update(zip(some, places.tolist(), strict=True))
