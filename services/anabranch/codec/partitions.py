"""Assignment of records to partitions: by key as Java producers do, so that their records of a key
go to the same partition; without a key by the record's id.
"""

from __future__ import annotations

from typing import Final

from anabranch.protocol.identifiers import RecordId

_MASK: Final = 0xFFFFFFFF
_M: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C


def murmur2(data: bytes) -> int:
    """Return the 32-bit hash of the default partitioner of Kafka's Java client, unsigned."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * _M & _MASK
        k = (k ^ (k >> 24)) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if length > whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)


def partition_of(key: bytes | None, ident: RecordId, partitions: int) -> int:
    """Return the partition of the record ``ident`` in a topic with ``partitions`` partitions."""
    if key is None:
        return (ident.bucket + ident.position) % partitions
    return (murmur2(key) & 0x7FFFFFFF) % partitions
