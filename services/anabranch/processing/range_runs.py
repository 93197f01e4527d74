"""Run of a query that computes a range of buckets, from its start to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.protocol.limits import RECOMPUTE_MS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from anabranch.ports import Clock, PreparedStage, QueryOutput
    from anabranch.streams.range_query import RangeQuery

_STEP_MS: Final = 100
"""Timeout for waiting on the query between two checks, in ms."""


def run_range(
    prepared: PreparedStage,
    query: RangeQuery,
    output: QueryOutput,
    place: str,
    clock: Clock,
    is_stopping: Callable[[], bool],
) -> None:
    """Run ``query`` in the directory ``place`` until it is finished, at most RECOMPUTE_MS_MAX, or
    until ``is_stopping``. Raises the error that ended it.
    """
    running = prepared.start(query.name, query, output, place, lambda _: None)
    try:
        deadline_ms = clock.monotonic_ms() + RECOMPUTE_MS_MAX
        while not (query.finished.is_set() or is_stopping() or clock.monotonic_ms() > deadline_ms):
            running.ended(_STEP_MS)
    finally:
        running.stop()
