"""Warm-up of a standby's engine: a query of the stage on empty batches, a few at first and one now
and then.

It reads and writes no data, so a crash loses nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.ports import QueryOutput
from anabranch.process.threads import OWN_THREADS
from anabranch.protocol.limits import RECOMPUTE_MS_MAX
from anabranch.protocol.stage.planner import EmptyBatches
from anabranch.streams.range_query import RangeQuery

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from anabranch.ports import Clock, PreparedStage, RunningQuery, Thread, Threads

WARM_UP_BATCHES: Final = 3
"""Number of empty batches before a standby counts as warm. With three, results come 7 to 9 s after
it becomes the primary; without, 15 s (two cores).
"""

KEEP_WARM_EVERY_MS: Final = 40_000
"""Interval between later empty batches, in ms. Spark ends Python workers that are idle for 60 s,
and the next batch would start them and import everything again.
"""

_LOOK_MS: Final = 100
"""Timeout for checking the query during the first batches, in ms."""
_ENDED_MS: Final = 1
"""Timeout for checking whether the query has failed, in ms."""


class Warming:
    """Query that keeps the engine of one standby warm. One thread calls it."""

    def __init__(
        self,
        prepared: PreparedStage,
        replica: str,
        inputs: Iterable[str],
        width_ms: int,
        clock: Clock,
        threads: Threads = OWN_THREADS,
    ) -> None:
        """Start the query. ``replica``: the id under which it would write; it has no epoch."""
        self._batches = EmptyBatches(inputs, prepared.traits, WARM_UP_BATCHES)
        self._driver = RangeQuery("warm-up", self._batches, width_ms, waits=True, threads=threads)
        self._threads = threads
        self._clock, self._next_ms = clock, clock.monotonic_ms() + KEEP_WARM_EVERY_MS
        self._running: RunningQuery | None = prepared.start(
            self._driver.name, self._driver, QueryOutput(replica, -1), None, lambda _: None
        )

    def until_warm(self, stopping: Callable[[], bool]) -> None:
        """Wait for the first batches, at most RECOMPUTE_MS_MAX. Raises the error that ended the
        query.
        """
        deadline_ms = self._clock.monotonic_ms() + RECOMPUTE_MS_MAX
        while not (
            self._driver.finished.is_set() or stopping() or self._clock.monotonic_ms() > deadline_ms
        ):
            self._check_query(_LOOK_MS)

    def step(self) -> None:
        """Run one more empty batch if it is due. Raises the error that ended the query."""
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._next_ms:
            self._next_ms = now_ms + KEEP_WARM_EVERY_MS
            self._check_query(_ENDED_MS)
            self._driver.change(self._batches.again)

    def _check_query(self, wait_ms: int) -> None:
        """Wait ``wait_ms`` for the query to end. Raises the error that ended it."""
        if self._running is not None:
            self._running.ended(wait_ms)

    def stop(self) -> Thread | None:
        """Stop the query on a thread of its own, so that the next one need not wait for it. Return
        that thread, or None if there was no query. Idempotent.
        """
        running, self._running = self._running, None
        if running is None:
            return None
        self._driver.end()
        return self._threads.begin("stop warm-up", running.stop)
