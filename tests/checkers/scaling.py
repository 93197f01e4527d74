"""Moves that a scaler decided: each for a cause that was there, one at a time, and less and less of
one replica.

Rules:
    MZ1 a replica always has a place: each move names a node, and goes to the pool, to the node of
        the file, or back to where it came from.
    MZ2 a node that is called lost had reported nothing for nearly as long as the scaler waits.
    MZ3 two moves of a replica for its load are apart by the rest, doubled with each move before.
    MZ4 a move for load begins only when the one before has come to its end: the replica has begun
        where it was moved, or the move was withdrawn.
    MZ5 a replica that is moved because it is overloaded was so in all reports of the window.
    MZ6 of two decisions made from the same place, one counts.
    MZ7 no batch of the window was one of the first ones of a process, which are always slow.
    MZ8 a move goes to a node that had reported shortly before, if it is not to where it came from.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

_NEARLY: Final = 0.7
"""Share of a time that counts as all of it: clocks may be fast, and records be read late."""
_UNREAD_MS: Final = 600
"""Age of a report that the scaler has read at last, in ms, where nothing is slow."""
_SILENT_MS: Final = 10_000
"""Age of the last report of a node, in ms, from which on a move to it is wrong. The scaler gives
nothing to one that was silent for 3.5 s; its record may be written later, by as much as a process
is held up.
"""
_GROWN_MS: Final = 900
"""Growth of a lag that counts as falling behind, in ms; the scaler wants a little more."""
FOR_LOAD: Final = ("overload", "back")


class Moved(NamedTuple):
    """A record of the log of moves."""

    at_ms: int
    node: str
    only_from: str
    cause: str
    withdrawn: bool


class Reported(NamedTuple):
    """Report of a node about the replica; ``busy`` is None where it does not run there."""

    at_ms: int
    busy: int | None
    behind_ms: int
    is_cold: bool = False
    """Whether one of the first batches of a process ran there."""


@dataclass(frozen=True)
class Scaled:
    """Known facts of the replica that may be moved."""

    home: str
    pool: Collection[str]
    moves: Sequence[Moved]
    reports: Mapping[str, Sequence[Reported]]
    """Reports of each node, ascending."""
    begun: Sequence[tuple[int, str]]
    """(time, node) of each epoch of the replica."""
    above: int
    for_ms: int
    rest_ms: int
    lost_ms: int
    late_ms: int
    """Records may be read so much later than they are appended."""


def place(known: Scaled) -> str:
    """Return the node that has the place in the end, by the records that count."""
    return _counted(known)[-1][1].node if _counted(known) else known.home


def check(known: Scaled) -> Iterator[str]:
    """Yield what is wrong with the moves, in words."""
    before = 0
    last_ms: int | None = None
    for source, move in _counted(known):
        name = f"the move from {source} to {move.node} at {move.at_ms} ms ({move.cause})"
        where = {*known.pool, known.home, source}
        if move.node not in where:
            yield f"{name}: it goes neither to the pool nor home (MZ1)"
        if move.cause in ("lost", "target_lost"):
            since = _last_report(known, source, move.at_ms)
            if since is not None and move.at_ms - since < known.lost_ms * _NEARLY:
                yield f"{name}: {source} had reported {move.at_ms - since} ms before (MZ2)"
        if move.cause and move.cause != "target_lost":
            since = _last_report(known, move.node, move.at_ms)
            if since is None or move.at_ms - since > _SILENT_MS:
                yield f"{name}: the last report of {move.node} was at {since} ms (MZ8)"
        if move.cause in FOR_LOAD:
            hold_ms = (known.rest_ms << min(before, 6)) * _NEARLY
            if last_ms is not None and move.at_ms - last_ms < hold_ms:
                yield f"{name}: the one before was {move.at_ms - last_ms} ms earlier (MZ3)"
            if last_ms is not None and not _has_ended(known, source, last_ms, move.at_ms):
                yield f"{name}: {source} had not begun it (MZ4)"
        if move.cause == "overload" and not _was_overloaded(known, source, move.at_ms):
            yield f"{name}: it was not overloaded in the whole window (MZ5)"
        if move.cause == "overload" and _was_cold(known, source, move.at_ms):
            yield f"{name}: a process had just begun on {source} (MZ7)"
        before += bool(move.cause)
        last_ms = move.at_ms


def _counted(known: Scaled) -> list[tuple[str, Moved]]:
    """Return the moves that count, each with the node that had the place before (MZ6)."""
    found, at = [], known.home
    for move in known.moves:
        if move.node != at and move.only_from in ("", at):
            found.append((at, move))
            at = move.node
    return found


def _last_report(known: Scaled, node: str, at_ms: int) -> int | None:
    times = [each.at_ms for each in known.reports.get(node, ())]
    index = bisect_left(times, at_ms)
    return times[index - 1] if index else None


def _has_ended(known: Scaled, source: str, since_ms: int, at_ms: int) -> bool:
    """Return whether the replica has begun on ``source``, last of all, since it was moved there."""
    earlier = [(when, node) for when, node in known.begun if when <= at_ms]
    return not earlier or earlier[-1][1] == source or earlier[-1][0] < since_ms - known.late_ms


def _was_cold(known: Scaled, source: str, at_ms: int) -> bool:
    """Return whether a report of the window that the scaler has surely read is one of first
    batches.
    """
    first_ms, last_ms = at_ms - int(known.for_ms * _NEARLY), at_ms - known.late_ms
    return any(
        each.is_cold and first_ms <= each.at_ms <= last_ms for each in known.reports.get(source, ())
    )


def _was_overloaded(known: Scaled, source: str, at_ms: int) -> bool:
    """Return whether what the scaler can have read last says so throughout the window."""
    reports = known.reports.get(source, ())
    times = [each.at_ms for each in reports]
    window_ms = int(known.for_ms * _NEARLY)
    first = bisect_left(times, at_ms - window_ms)
    last = bisect_right(times, at_ms - _UNREAD_MS)
    # The scaler has one report that is older than the window, too.
    window = reports[max(0, first - 1) : last] if first else ()
    is_full = bool(window) and all(
        each.busy is not None and each.busy >= known.above for each in window
    )
    first, last = bisect_left(times, at_ms - 2 * known.for_ms), bisect_right(times, at_ms)
    lags = [each.behind_ms for each in reports[first:last]]
    falls_behind = bool(lags) and max(lags) - min(lags) >= _GROWN_MS
    return is_full or falls_behind
