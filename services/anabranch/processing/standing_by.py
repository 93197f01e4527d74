"""The life of a process that stands by, until its turn comes: the engine is kept warm, the logs are
followed. Afterwards it tells where the time of its failover went.

A crash at any point is one of ``processing.standby``; nothing else is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.processing.failover import Failover
from anabranch.processing.standby import Standby
from anabranch.processing.warming import Warming

if TYPE_CHECKING:
    from anabranch.ports import Checkpoints, PreparedStage
    from anabranch.protocol.stage.standby import StandbyProcess
    from anabranch.runtime.service import ServiceContext


_WRITERS_AHEAD: Final = 3
"""Who becomes the primary writes to its boundary log, heartbeats and blocks. One that is not
connected takes half a second for its first record.
"""


class StandingBy:
    """Of one process. One thread calls it."""

    def __init__(
        self,
        context: ServiceContext,
        prepared: PreparedStage,
        own: StandbyProcess,
        disk: Checkpoints,
        replica: str,
    ) -> None:
        """``own``: which process this one is. ``disk``: its own. ``replica``: as which it writes,
        once it is the primary.

        Raises:
            Unavailable: a topic is missing, or there is no answer.
        """
        self.standby = Standby(
            context.log, context.clock, context.pipeline, own, disk, context.threads
        )
        self._context, self._prepared = context, prepared
        self._own, self._replica = own, replica
        self._warming: Warming | None = None
        self._failover: Failover | None = None
        """Until its first batch is done."""

    def warm_up(self) -> None:
        """Run the stage on nothing: who becomes the primary later has the slow first batches
        behind it, and is connected. Raises what the query died of.
        """
        self._context.log.open_ahead(_WRITERS_AHEAD)
        pipeline = self._context.pipeline
        self._warming = Warming(
            self._prepared,
            self._replica,
            pipeline.inputs(self._own.stage),
            pipeline.bucket_ms,
            self._context.clock,
            self._context.threads,
        )
        self._warming.until_warm(self._context.stopping.is_set)

    def round(self) -> bool:
        """Listen, and stay warm; whether it is to become the primary now. Then it has the newest
        checkpoint within reach, and listens no more.

        Raises:
            OSError: the own disk cannot be written.
            AnabranchError: what the query died of that keeps the engine warm.
        """
        is_due = self.standby.round()
        self._context.log.open_ahead(_WRITERS_AHEAD)
        if not is_due:
            if self._warming is not None:
                self._warming.step()
            return False
        self._context.logger.info(
            "becoming_primary", stage=self._context.settings.name, bucket=self.standby.bucket
        )
        self._context.crash_point("processing.standby_due")
        self._failover = Failover(self._context.clock, self.standby.silent_ms)
        if self._warming is not None:
            self._warming.stop()
        self.standby.end_watch()
        self.passed("copy")
        return True

    def passed(self, phase: str) -> None:
        """One of the failover, if there is one."""
        if self._failover is not None:
            self._failover.passed(phase)

    def batch_done(self, seconds: float) -> None:
        """Of the primary; with the first one the failover is over."""
        if self._failover is not None:
            failover_ms = self._failover.first_batch(round(seconds * 1_000))
            self._context.logger.info(
                "failed_over", stage=self._context.settings.name, ms=failover_ms
            )
            self._failover = None

    def cool_down(self) -> None:
        """Keep nothing warm any more, and wait for the end of that. Idempotent."""
        if self._warming is not None and (ending := self._warming.stop()) is not None:
            ending.join()

    def close(self) -> None:
        """Idempotent."""
        self.standby.close()
