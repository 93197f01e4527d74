"""Rule 18: nobody trims what a living reader has not said to hold for good."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple


class SyncedClaim(NamedTuple):
    """Claim of a reader, at the time at which it was in the log."""

    at_ms: int
    reader: str
    epoch: int
    bucket: int
    """It holds its input for good up to this one."""
    life: int = 0
    """Number of the life of its log, in which epochs count anew."""
    is_lowered: bool = False
    """It holds no more from here on, whatever it claimed before (TM10)."""


class Presence(NamedTuple):
    """Time in which a reader counts that comes and goes."""

    begin_ms: float
    end_ms: float
    claims_since_ms: float
    """Only what it has said since then counts."""
    silent_ms: int
    """If it has said nothing for so long it holds nothing back."""


def check(
    claims: Iterable[SyncedClaim],
    points: Iterable[tuple[int, str, int]],
    readers: Mapping[str, Collection[str]],
    silent_ms: int,
    heard_ms: int | None,
    counts: Mapping[str, Sequence[Presence]] | None = None,
    primaries: Mapping[str, str] | None = None,
) -> list[str]:
    """Trim points that a reader had not reached, by what the process of its highest epoch said
    (TM5).

    Args:
        claims: What readers said, by the time at which it stood in the log, ascending.
        points: (time, stream, bucket) of every trim point, ascending.
        readers: Those of each stream.
        silent_ms: One that has said nothing for so long holds nothing back. One that never said
            anything holds back everything so long.
        heard_ms: What readers said so long ago, the process that trims has heard. None: it may hear
            of a new epoch however late, and any claim of any epoch may be the last that it knows.
        counts: Of readers that come and go, when each counts, if it has said anything; others
            always do.
        primaries: Of readers that stand by, the primary: what they judged by an older epoch than
            its own counts for nothing (TM11).
    """
    counts, primaries = counts or {}, primaries or {}
    claims_of: dict[str, list[SyncedClaim]] = {}
    for claim in claims:
        claims_of.setdefault(claim.reader, []).append(claim)
    wrong = []
    for at_ms, stream, bucket in points:
        for reader in sorted(readers[stream]):
            heard = [claim for claim in claims_of.get(reader, []) if claim.at_ms <= at_ms]
            limit_ms = silent_ms
            if reader in counts:
                now = next((p for p in counts[reader] if p.begin_ms <= at_ms < p.end_ms), None)
                if now is None or heard_ms is None:
                    continue
                heard = [claim for claim in heard if claim.at_ms >= now.claims_since_ms]
                if not heard or heard[0].at_ms > at_ms - heard_ms:
                    continue
                limit_ms = now.silent_ms
            is_gone = at_ms - max((claim.at_ms for claim in heard), default=0) >= limit_ms
            known_ms = None if heard_ms is None else at_ms - heard_ms
            upto = _held(heard, known_ms, claims_of.get(primaries.get(reader, ""), ()))
            if bucket > upto and not is_gone:
                wrong.append(
                    f"{stream}: trimmed up to {bucket} at {at_ms} ms, but {reader}, which lives,"
                    f" holds only {upto}"
                )
    return wrong


def _held(
    heard: Sequence[SyncedClaim], known_ms: int | None, primary: Sequence[SyncedClaim]
) -> int:
    """Return the highest bucket that a reader may have been known to hold, whose newest epoch in
    ``known_ms`` is known, and that of its ``primary``.
    """
    known = [claim for claim in heard if known_ms is not None and claim.at_ms <= known_ms]
    led = [claim for claim in primary if known_ms is not None and claim.at_ms <= known_ms]
    least = max((_process(claim) for claim in (*known, *led)), default=(-1, -1))
    lowered = (number for number, claim in enumerate(known) if claim.is_lowered)
    counts = heard[max(lowered, default=0) :]
    return max((claim.bucket for claim in counts if _process(claim) >= least), default=0)


def _process(claim: SyncedClaim) -> tuple[int, int]:
    """Return the life and epoch of the process that made ``claim``."""
    return claim.life, claim.epoch


def check_goes_on(
    claims: Iterable[SyncedClaim],
    points: Iterable[tuple[int, str, int]],
    readers: Mapping[str, Collection[str]],
    until_ms: int,
    primaries: Mapping[str, str] | None = None,
) -> list[str]:
    """Return the streams that were not trimmed up to what all of their readers have said since
    ``until_ms`` at the latest that they hold for good. A process speaks until one of a higher epoch
    has spoken (TM5). ``primaries``: as for ``check``.
    """
    claimed: dict[str, int] = {}
    newest: dict[str, tuple[int, int]] = {}
    for claim in claims:
        reader, bucket = claim.reader, claim.bucket
        if _process(claim) < newest.get(reader, (0, 0)):
            continue
        newest[reader] = _process(claim)
        claimed[reader] = bucket if claim.at_ms <= until_ms else min(claimed.get(reader, 0), bucket)
    for reader, primary in (primaries or {}).items():
        if newest.get(reader, (0, 0)) < newest.get(primary, (0, 0)):
            claimed[reader] = 0
    trimmed: dict[str, int] = {}
    for _, stream, bucket in points:
        trimmed[stream] = max(bucket, trimmed.get(stream, 0))
    return [
        f"{stream}: trimmed up to {trimmed.get(stream, 0)}, though all who read it hold it up to"
        f" {upto}"
        for stream, those in sorted(readers.items())
        if (upto := min(claimed.get(reader, 0) for reader in those)) > trimmed.get(stream, 0)
    ]
