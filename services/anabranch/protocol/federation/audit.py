"""Audit of a seller: a sample of its results is computed again, to check that it ran what it was
paid for.

Theory of operation. The digest of a bucket is the same at every replica, so one that computes a
bucket again finds out whether the seller's is right. The buckets of the sample follow from a number
that the auditor keeps secret until it writes its findings. Before that no seller knows which
buckets it has to get right; after that everybody can check that the auditor did not pick them. The
auditor writes a hash of the number first, and only buckets that end after the hash was written
count. So the auditor cannot search for a number that suits it either. The auditor states the width
of a bucket; with a wrong one, no bucket ends in the time that counts. Loads are compared by
``metering``.

Invariants:
    FU1  whether a bucket is in the sample follows from the auditor's number, the movement and the
        bucket, and from nothing else.
    FU2  of many buckets the contract's share is in the sample.
    FU3  a right digest is no finding; a wrong one, and a bucket that the seller has closed without
        one, is.
    FU4  findings count with a number whose hash stood in the log before their buckets ended, once,
        and only for buckets of the sample that ended while the movement ran.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from anabranch.protocol.federation.contracts import PARTS_PER_MILLION, TIME_MS_MAX

# Of SHA-256.
DIGEST_BYTES: Final = 32

NONCE_BYTES_MIN: Final = 16
"""A shorter number could be found from its hash by trying all."""

COMMITMENTS_MAX: Final = 10_000
"""Maximum number of commitments of one contract whose numbers are not revealed yet: bounds what an
auditor that reveals none can make a reader hold. Those that are revealed are as few as movements
and hours.
"""


class Fault(StrEnum):
    """Kind of difference that an audit found."""

    WRONG_RESULT = "wrong result"
    NO_RESULT = "no result"


@dataclass(frozen=True, slots=True)
class Finding:
    """Difference that an audit found in one bucket."""

    bucket: int
    fault: Fault


Contents = tuple[int, int]
"""Rows and digest of a bucket."""

_NOTHING: Final = (0, 0)


@dataclass(frozen=True, slots=True)
class Commitment:
    """Commitment of the auditor to a number, before it reveals the number."""

    at_ms: int
    """Time of the commitment in the log, in ms."""
    bucket_ms: int
    is_open: bool = True
    """Its number was not revealed yet."""


class Commitments:
    """Commitments in one contract's ledger. Not thread-safe. After a crash: replay."""

    def __init__(self) -> None:
        self._written: dict[tuple[str, bytes], Commitment] = {}
        """Commitments by (movement, hash)."""
        self._open = 0
        """Number of commitments whose number was not revealed yet."""

    def find(self, movement_id: str, digest: bytes) -> Commitment | None:
        """Return the commitment with this hash; None if there is none that counts."""
        return self._written.get((movement_id, digest))

    def add(self, movement_id: str, digest: bytes, bucket_ms: int, at_ms: int) -> str:
        """Add a commitment of the auditor. Return why it does not count, or an empty text."""
        which = movement_id, digest
        if len(digest) != DIGEST_BYTES or not 0 < bucket_ms <= TIME_MS_MAX:
            return "not a commitment"
        if which in self._written:
            return "committed to already"
        if self._open >= COMMITMENTS_MAX:
            return "too many commitments"
        self._written[which] = Commitment(at_ms, bucket_ms)
        self._open += 1
        return ""

    def reveal(
        self,
        movement_id: str,
        nonce: bytes,
        buckets: Iterable[int],
        sample_ppm: int,
        ran_ms: tuple[int, int],
    ) -> str:
        """Take the number that the auditor reveals. Return why its findings do not count, or an
        empty text (FU4).

        Args:
            movement_id: Movement of which the auditor computed a sample.
            nonce: Number that the auditor reveals.
            buckets: Buckets with findings.
            sample_ppm: Size of the sample by the contract, in millionths.
            ran_ms: Beginning and end of the movement, by the log's time.
        """
        which = movement_id, commitment(nonce)
        found = self._written.get(which)
        if len(nonce) < NONCE_BYTES_MIN or found is None or not found.is_open:
            return "not committed to before"
        committed_ms, bucket_ms = found.at_ms, found.bucket_ms
        first_ms, last_ms = max(committed_ms, ran_ms[0]), ran_ms[1]
        for bucket in buckets:
            if not first_ms < bucket * bucket_ms <= last_ms:
                return "a bucket that did not end in the time that counts"
            if not is_sampled(nonce, movement_id, bucket, sample_ppm):
                return "a bucket that is not in the sample"
        self._written[which] = replace(found, is_open=False)
        self._open -= 1
        return ""


def commitment(nonce: bytes) -> bytes:
    """Return the hash by which the auditor commits to a number without revealing it."""
    return hashlib.sha256(b"anabranch audit commitment\n" + nonce).digest()


def is_sampled(nonce: bytes, movement_id: str, bucket: int, sample_ppm: int) -> bool:
    """Return whether a bucket is recomputed for the audit (FU1, FU2)."""
    drawn = hashlib.sha256(
        b"anabranch audit sample\n" + nonce + f"\n{movement_id}\n{bucket}".encode()
    ).digest()
    return int.from_bytes(drawn[:8], "big") * PARTS_PER_MILLION < sample_ppm << 64


def sample(nonce: bytes, movement_id: str, buckets: Iterable[int], sample_ppm: int) -> list[int]:
    """Return the buckets of a movement that are recomputed."""
    return [bucket for bucket in buckets if is_sampled(nonce, movement_id, bucket, sample_ppm)]


def findings(claimed: Mapping[int, Contents], computed: Mapping[int, Contents]) -> list[Finding]:
    """Return the differences between the seller's buckets and the recomputed ones (FU3). A bucket
    that the seller closed empty claims nothing.
    """
    wrong = [
        (bucket, claimed.get(bucket, _NOTHING))
        for bucket, found in sorted(computed.items())
        if claimed.get(bucket, _NOTHING) != found
    ]
    return [
        Finding(bucket, Fault.NO_RESULT if claim == _NOTHING else Fault.WRONG_RESULT)
        for bucket, claim in wrong
    ]
