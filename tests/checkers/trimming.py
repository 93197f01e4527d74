"""Rule 18: nobody trims what a living reader has not said to hold for good."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

SyncedClaim = tuple[int, str, int]
"""(time, reader, bucket up to which it holds its input for good)."""


def check(
    claims: Iterable[SyncedClaim],
    points: Iterable[tuple[int, str, int]],
    readers: Mapping[str, Collection[str]],
    silent_ms: int,
) -> list[str]:
    """Trim points that a reader had not reached.

    Args:
        claims: What readers said, by the time at which it stood in the log, ascending.
        points: (time, stream, bucket) of every trim point, ascending.
        readers: Those of each stream.
        silent_ms: One that has said nothing for so long holds nothing back. One that never said
            anything holds back everything so long.
    """
    claims_of: dict[str, list[tuple[int, int]]] = {}
    for at_ms, reader, bucket in claims:
        claims_of.setdefault(reader, []).append((at_ms, bucket))
    wrong = []
    for at_ms, stream, bucket in points:
        for reader in sorted(readers[stream]):
            heard = [
                (when_ms, upto) for when_ms, upto in claims_of.get(reader, []) if when_ms <= at_ms
            ]
            is_gone = at_ms - max((when_ms for when_ms, _ in heard), default=0) >= silent_ms
            upto = max((upto for _, upto in heard), default=0)
            if bucket > upto and not is_gone:
                wrong.append(
                    f"{stream}: trimmed up to {bucket} at {at_ms} ms, but {reader}, which lives,"
                    f" holds only {upto}"
                )
    return wrong


def check_goes_on(
    claims: Iterable[SyncedClaim],
    points: Iterable[tuple[int, str, int]],
    readers: Mapping[str, Collection[str]],
    until_ms: int,
) -> list[str]:
    """Streams of which nothing was trimmed, though all of their readers have said since
    ``until_ms`` at the latest that they hold some of it for good.
    """
    claimed: dict[str, int] = {}
    for at_ms, reader, bucket in claims:
        claimed[reader] = bucket if at_ms <= until_ms else min(claimed.get(reader, 0), bucket)
    trimmed = {stream for _, stream, _ in points}
    return [
        f"{stream}: nothing was trimmed, though all who read it hold it up to {upto}"
        for stream, those in sorted(readers.items())
        if (upto := min(claimed.get(reader, 0) for reader in those)) and stream not in trimmed
    ]
