"""Load that rises until a stage cannot keep up, and the figures of such a run. Does no I/O and
knows no clock: times are passed in, in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HELD_S: Final = 20.0
"""Time for which a rate must be held to count, in seconds."""
BOUND_S: Final = 5.0
"""Lag, in seconds, above which a stage does not keep up."""
RISE_PER_S: Final = 0.03
"""Rise of the rate, as a share of it per second, while nothing lags."""
GROWS_S: Final = 20.0
"""Time, in seconds, after which a lag above the bound that has grown meanwhile, while no split was
under way, is taken to grow for good. The scaler decides within a few seconds.
"""
_BIN_S: Final = 5.0
_SPLIT: Final = "split"
_MOVES: Final = ("overload", "back")
"""Causes of moves for load. The moves of halves are part of a split."""


@dataclass(frozen=True, slots=True)
class Point:
    """One bucket of the load."""

    due_s: float
    """Time at which it was written."""
    rows: int
    delay_s: float
    """Time from then until it was closed, in seconds."""

    @property
    def closed_s(self) -> float:
        """Time at which it was closed."""
        return self.due_s + self.delay_s


def held_rate(points: Sequence[Point], held_s: float = HELD_S, bound_s: float = BOUND_S) -> float:
    """Return the highest rate, in rows per second, that was held for ``held_s`` with each bucket
    closed within ``bound_s``; 0 if there is none.

    Of the rows that were written in that time, and of those that were closed in it, the fewer
    count: neither a lag that grows within the bound nor a backlog that shrinks is throughput.

    Args:
        points: All buckets of the load, in order.
        held_s: Time for which the rate must be held, in seconds.
        bound_s: Longest delay of a bucket that keeps up, in seconds.
    """
    best = 0.0
    for number, first in enumerate(points):
        for last, end in enumerate(points[number:], number):
            if end.delay_s > bound_s:
                break
            if (span_s := end.due_s - first.due_s) >= held_s:
                written = sum(each.rows for each in points[number:last])
                closed = sum(
                    each.rows for each in points if first.due_s < each.closed_s <= end.due_s
                )
                best = max(best, min(written, closed) / span_s)
                break
    return best


def course(points: Sequence[Point]) -> list[tuple[float, float, float, float]]:
    """Return, for each five seconds of the load that are over: their end in seconds since its
    begin, rows written per second, rows closed per second, and the longest delay of a bucket that
    was due in them, in seconds.
    """
    if not points:
        return []
    found: list[tuple[float, float, float, float]] = []
    begin_s = points[0].due_s
    for number in range(int((points[-1].due_s - begin_s) // _BIN_S)):
        since_s, until_s = begin_s + number * _BIN_S, begin_s + (number + 1) * _BIN_S
        due = [each for each in points if since_s <= each.due_s < until_s]
        closed = sum(each.rows for each in points if since_s <= each.closed_s < until_s)
        delay_s = max((each.delay_s for each in due), default=0.0)
        written = sum(each.rows for each in due)
        found.append((until_s - begin_s, written / _BIN_S, closed / _BIN_S, delay_s))
    return found


class Ramp:
    """Rate of rows that rises until the stage's lag grows for good. The more the stage lags the
    slower the rate rises, and above ``BOUND_S`` not at all: while the scaler acts, the backlog
    stays small.
    """

    def __init__(self, rows_per_s: float, now_s: float) -> None:
        """Begin with this rate, in rows per second."""
        self.rows_per_s = rows_per_s
        self._before_s = now_s
        self._late: tuple[float, float] | None = None
        """Time, and lag then, since which the lag was above the bound while no split was under
        way.
        """
        self.has_ended = False
        """Whether the lag grows for good."""

    def step(self, now_s: float, lag_s: float, *, is_scaling: bool) -> None:
        """Apply the present lag, in seconds. ``is_scaling``: whether a decision of the scaler is
        under way.
        """
        passed_s, self._before_s = now_s - self._before_s, now_s
        self.rows_per_s *= 1 + RISE_PER_S * passed_s * max(0.0, 1 - lag_s / BOUND_S)
        if lag_s <= BOUND_S or is_scaling:
            self._late = None
        elif self._late is None:
            self._late = now_s, lag_s
        elif now_s - self._late[0] >= GROWS_S:
            self.has_ended = lag_s > self._late[1]
            self._late = now_s, lag_s


def rising_rate(first: float, last: float, passed_s: float) -> float:
    """Return the rate that rises from ``first`` to ``last``, whatever the stage does,
    ``passed_s`` after its begin.
    """
    risen: float = first * (1 + RISE_PER_S) ** passed_s
    return min(last, risen)


def is_scaling(scaling: Mapping[str, Any]) -> bool:
    """Return whether a split, or a move for load, is under way, by what the manager reports."""
    return any(
        not each["outcome"] and each["catch_up_ms"] is None
        for each in scaling.get("events", [])
        if each["cause"] in (_SPLIT, *_MOVES)
    )


def splits(scaling: Mapping[str, Any]) -> list[str]:
    """Return the shards whose splits were confirmed, by what the manager reports."""
    return [
        each["label"]
        for each in scaling.get("events", [])
        if each["cause"] == _SPLIT and each["catch_up_ms"] is not None
    ]


def moves(scaling: Mapping[str, Any]) -> int:
    """Return the number of moves for load, by what the manager reports."""
    return sum(each["cause"] in _MOVES for each in scaling.get("events", []))


def nodes_used(scaling: Mapping[str, Any], stage: str) -> int:
    """Return the number of nodes that have shards of ``stage`` which are read, by what the manager
    reports: shards that have ended, and halves that are compared, do not count. The stage begins as
    one shard.
    """
    shards = {stage}
    for shard in splits(scaling):
        first = "" if "." in shard else "."
        shards = shards - {shard} | {f"{shard}{first}{half}" for half in (0, 1)}
    return sum(
        any(label.rpartition(".")[0] in shards for label in node["places"])
        for node in scaling.get("nodes", {}).values()
    )
