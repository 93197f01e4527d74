"""Keeps the engine warm for a replica that stands by: a query of its stage on nothing, which runs a
few empty batches at first, and one now and then.

A crash loses nothing: it reads and writes nothing that counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.ports import QueryOutput
from anabranch.protocol.limits import RECOMPUTE_MS_MAX
from anabranch.protocol.stage.planner import EmptyBatches
from anabranch.runtime.own_threads import OWN_THREADS
from anabranch.runtime.range_query import RangeQuery

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from anabranch.ports import Clock, PreparedStage, RunningQuery, Thread, Threads

WARM_UP_BATCHES: Final = 3
"""Empty batches that a standby runs before it stands by. With three, results come 7 to 9 s
after it becomes the primary; without, 15 (two cores).
"""

KEEP_WARM_EVERY_MS: Final = 40_000
"""Between two empty batches of one that stands by: Spark ends Python workers that are idle for
60 s, and the next batch would start them and import everything again.
"""

_LOOK_MS: Final = 100
_ENDED_MS: Final = 1


class Warming:
    """Of one replica. One thread calls it."""

    def __init__(
        self,
        prepared: PreparedStage,
        replica: str,
        inputs: Iterable[str],
        width_ms: int,
        clock: Clock,
        threads: Threads = OWN_THREADS,
    ) -> None:
        """The query is started. ``replica``: as which it would write; it has no epoch."""
        self._batches = EmptyBatches(inputs, prepared.traits, WARM_UP_BATCHES)
        self._driver = RangeQuery("warm-up", self._batches, width_ms, waits=True, threads=threads)
        self._threads = threads
        self._clock, self._next_ms = clock, clock.monotonic_ms() + KEEP_WARM_EVERY_MS
        self._running: RunningQuery | None = prepared.start(
            self._driver.name, self._driver, QueryOutput(replica, -1), None, lambda _: None
        )

    def until_warm(self, stopping: Callable[[], bool]) -> None:
        """Wait for the first batches, RECOMPUTE_MS_MAX at most; raises what the query died of."""
        deadline_ms = self._clock.monotonic_ms() + RECOMPUTE_MS_MAX
        while not (
            self._driver.finished.is_set() or stopping() or self._clock.monotonic_ms() > deadline_ms
        ):
            self._look(_LOOK_MS)

    def step(self) -> None:
        """Run one more when it is time to; raises what the query died of."""
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._next_ms:
            self._next_ms = now_ms + KEEP_WARM_EVERY_MS
            self._look(_ENDED_MS)
            self._driver.change(self._batches.again)

    def _look(self, wait_ms: int) -> None:
        if self._running is not None:
            self._running.ended(wait_ms)

    def stop(self) -> Thread | None:
        """End the query, on a thread of its own: what takes its place need not wait. Idempotent."""
        running, self._running = self._running, None
        if running is None:
            return None
        self._driver.end()
        return self._threads.begin("stop warm-up", running.stop)
