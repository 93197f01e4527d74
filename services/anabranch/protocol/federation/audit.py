"""Whether a seller ran what it was paid for: samples of its results, computed again.

Theory of operation. The digest of a bucket is the same at every replica, so one that computes a
bucket again finds out whether the seller's is right. Which buckets are computed again follows from
a number that the auditor keeps to itself until it writes its findings: before, nobody knows which
to get right, and after, everybody can check that they were not picked. Loads are compared by
``metering``.

Invariants:
    FU1  whether a bucket is in the sample follows from the auditor's number, the movement and the
        bucket, and from nothing else.
    FU2  of many buckets the contract's share is in the sample.
    FU3  a right digest is no finding; a wrong one, and a bucket that the seller has closed without
        one, is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from anabranch.protocol.federation.contracts import PARTS_PER_MILLION


class Fault(StrEnum):
    """What an audit found."""

    WRONG_RESULT = "wrong result"
    NO_RESULT = "no result"


@dataclass(frozen=True, slots=True)
class Finding:
    """Of one bucket."""

    bucket: int
    fault: Fault


def commitment(nonce: bytes) -> bytes:
    """What the auditor writes beforehand: it fixes the number and does not tell it."""
    return hashlib.sha256(b"anabranch audit commitment\n" + nonce).digest()


def is_sampled(nonce: bytes, movement_id: str, bucket: int, sample_ppm: int) -> bool:
    """Whether a bucket is computed again (FU1, FU2)."""
    drawn = hashlib.sha256(
        b"anabranch audit sample\n" + nonce + f"\n{movement_id}\n{bucket}".encode()
    ).digest()
    return int.from_bytes(drawn[:8], "big") * PARTS_PER_MILLION < sample_ppm << 64


def sample(nonce: bytes, movement_id: str, buckets: Iterable[int], sample_ppm: int) -> list[int]:
    """Those of a movement's buckets that are computed again."""
    return [bucket for bucket in buckets if is_sampled(nonce, movement_id, bucket, sample_ppm)]


def findings(claimed: Mapping[int, str], computed: Mapping[int, str]) -> list[Finding]:
    """What is wrong with the seller's digests, of the buckets that were computed again (FU3)."""
    wrong = [
        (bucket, claimed.get(bucket))
        for bucket, digest in sorted(computed.items())
        if claimed.get(bucket) != digest
    ]
    return [
        Finding(bucket, Fault.NO_RESULT if digest is None else Fault.WRONG_RESULT)
        for bucket, digest in wrong
    ]
