"""Rehearsal of the first batches of a replica that moves to this node
(``protocol.stage.rehearsal``), in a throw-away copy of the checkpoint, on a thread of its own.

A crash leaves the copy, which the next primary of the replica removes here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.ports import QueryOutput
from anabranch.process.logging_setup import short
from anabranch.processing.range_runs import run_range
from anabranch.protocol.log.timeline import timeline_name
from anabranch.protocol.stage.rehearsal import RehearsedBatches
from anabranch.streams.range_query import RangeQuery

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager

    from anabranch.ports import PreparedStage, ReplicaDisk, Thread
    from anabranch.process.frame import ServiceContext
    from anabranch.protocol.log.boundary_log import LogState
    from anabranch.protocol.log.records import Part
    from anabranch.protocol.stage.planner import Plan, QueryPosition
    from anabranch.protocol.stage.rehearsal import Rehearsal

_TIMELINE_NUMBER: Final = 999_998
"""Timeline number of the copy, in epoch 0: any process that begins an epoch removes it."""


class _LockedBatches:
    """Plans of the rehearsal's query, made under the lock of the inputs: the implementation of
    ``streams.range_query.RangeTask``.
    """

    def __init__(self, batches: RehearsedBatches, lock: AbstractContextManager[object]) -> None:
        self._batches, self._lock = batches, lock

    @property
    def is_finished(self) -> bool:
        return self._batches.is_finished

    def plan(self, position: QueryPosition) -> Plan | None:
        with self._lock:
            return self._batches.plan(position)

    def made(self, parts: Iterable[Part], closed: int) -> None:
        self._batches.made(parts, closed)


class Rehearsing:
    """Runner of the rehearsal of one process. The replica's thread calls it."""

    def __init__(
        self,
        context: ServiceContext,
        prepared: PreparedStage,
        disk: ReplicaDisk,
        replica: str,
        inputs: tuple[Callable[[], Mapping[str, LogState]], AbstractContextManager[object]],
    ) -> None:
        """Keep the arguments. ``replica``: id under which the query would write. ``inputs``: the
        log states of the stage's inputs, and their lock.
        """
        self._context, self._prepared, self._disk = context, prepared, disk
        self._replica, (self._log_states, self._lock) = replica, inputs
        self._stopping = context.threads.event()
        self._thread: Thread | None = None

    def begin(self, rehearsal: Rehearsal, token: str, closed: int) -> None:
        """Begin the rehearsal on a thread of its own, which calls ``rehearsal.ended`` at its end.

        Args:
            rehearsal: State of the rehearsal, by which the cutover waits.
            token: Random id of this process, 16 hexadecimal digits.
            closed: Last bucket that the replica has closed.
        """
        name = timeline_name(0, _TIMELINE_NUMBER, token)

        def rehearse() -> None:
            """Rehearse, as the body of the thread. If it fails, only the cutover takes longer."""
            clock, logger = self._context.clock, self._context.logger
            since_ms, stage = clock.monotonic_ms(), self._context.settings.name
            try:
                if self._rehearse(name, closed):
                    logger.info("rehearsed", stage=stage, ms=clock.monotonic_ms() - since_ms)
            except Exception as error:  # noqa: BLE001 - see above
                logger.warning("rehearsal_failed", stage=stage, error=short(str(error)))
            finally:
                self._disk.remove(name)
                rehearsal.ended()

        self._thread = self._context.threads.begin("rehearse", rehearse)

    def _rehearse(self, name: str, closed: int) -> bool:
        """Run the batches in the directory ``name``. Return whether there was a checkpoint."""
        disk, context = self._disk, self._context
        if not disk.copy_within_reach(name):
            return False
        # The same files that the cutover checks: afterwards this process knows them.
        batch = disk.whole(name, disk.batches(name))
        if batch is None or batch < 0:
            return False
        disk.cut_back(name, batch, keep_plan=False)
        batches = RehearsedBatches(self._log_states(), self._prepared.traits, closed)
        width_ms = context.pipeline.bucket_ms
        query = RangeQuery(
            name, _LockedBatches(batches, self._lock), width_ms, threads=context.threads
        )
        output = QueryOutput(self._replica, -1, is_written=False)
        place = str(disk.directory(name))
        run_range(self._prepared, query, output, place, context.clock, self._is_stopping)
        return True

    def _is_stopping(self) -> bool:
        """Return whether the rehearsal, or the process, must end."""
        return self._stopping.is_set() or self._context.stopping.is_set()

    def stop(self) -> None:
        """End the rehearsal soon: this process takes over, or ends. Idempotent."""
        self._stopping.set()

    def join(self) -> None:
        """Wait until the rehearsal has ended, if it was begun."""
        if self._thread is not None:
            self._thread.join()
