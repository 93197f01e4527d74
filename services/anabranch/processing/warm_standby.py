"""Life of a standby process until it becomes the primary: keeps the engine warm, follows the logs,
and then logs how long each phase of the failover took.

The only effects that outlast a crash are those of ``processing.standby``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.processing.failover import Failover
from anabranch.processing.standby import Standby
from anabranch.processing.warming import Warming

if TYPE_CHECKING:
    from anabranch.ports import Checkpoints, PreparedStage
    from anabranch.process.frame import ServiceContext
    from anabranch.processing.rehearsing import Rehearsing
    from anabranch.protocol.stage.standby import StandbyProcess


_WRITERS_AHEAD: Final = 3
"""Number of producers that a standby connects in advance: a new primary writes heartbeats, boundary
records and blocks. The first record of a producer that is not connected takes half a second.
"""


class WarmStandby:
    """Standby of one process, with its warm engine and the phases of its failover. One thread calls
    it.
    """

    def __init__(
        self,
        context: ServiceContext,
        prepared: PreparedStage,
        own: StandbyProcess,
        disk: Checkpoints,
        replica: str,
        rehearsing: Rehearsing | None = None,
    ) -> None:
        """Open the stage's topics. ``own`` is the identity of this process, ``disk`` its
        checkpoints, ``replica`` the id under which it writes as primary, ``rehearsing`` runs its
        first batches before it takes over from another node; None: nothing does.

        Raises:
            Unavailable: a topic is missing, or the broker does not answer.
        """
        self.standby = Standby(
            context.log, context.clock, context.pipeline, own, disk, context.threads
        )
        if rehearsing is not None:
            self.standby.require_rehearsal()
        self._context, self._prepared = context, prepared
        self._own, self._replica, self._rehearsing = own, replica, rehearsing
        self._warming: Warming | None = None
        self._failover: Failover | None = None
        """Timing of the failover that is under way, until the primary's first batch ends."""

    def warm_up(self) -> None:
        """Connect the producers and run the stage on empty batches, so that a later failover skips
        the slow first ones. The first copy of the checkpoint begins meanwhile. Raises the error
        that ended the query.
        """
        self.standby.begin_copy()
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
        """Follow the logs and keep the engine warm. Return whether to become the primary now; if
        so, the newest checkpoint within reach was copied and control topics are read no more.

        Raises:
            OSError: this process's disk cannot be written.
            AnabranchError: the query that keeps the engine warm failed.
        """
        is_due = self.standby.round()
        self._context.log.open_ahead(_WRITERS_AHEAD)
        if not is_due:
            if self._warming is not None:
                self._warming.step()
            if self._rehearsing is not None and self.standby.begins_rehearsal():
                closed = self.standby.boundary.log_state.closed(self._replica)
                self._rehearsing.begin(self.standby.rehearsal, self._own.token, closed)
            return False
        self._context.logger.info(
            "becoming_primary",
            stage=self._context.settings.name,
            bucket=self.standby.bucket,
            **self.standby.fetched,
        )
        if why := self.standby.why_from_input:
            self._context.logger.warning(
                "begins_from_input", stage=self._context.settings.name, why=why
            )
        self._context.crash_point("processing.standby_due")
        self._failover = Failover(self._context.clock, self.standby.silent_ms)
        if self._rehearsing is not None:
            self._rehearsing.stop()
        if self._warming is not None:
            self._warming.stop()
        self.standby.end_watch()
        self.passed("copy")
        return True

    def passed(self, phase: str) -> None:
        """Note the end of ``phase`` of the failover, if one is under way."""
        if self._failover is not None:
            self._failover.passed(phase)

    def batch_done(self, seconds: float) -> None:
        """Note that a batch of the primary took ``seconds``. The first one ends the failover, whose
        phases are logged.
        """
        if self._failover is not None:
            failover_ms = self._failover.first_batch(round(seconds * 1_000))
            self._context.logger.info(
                "failed_over", stage=self._context.settings.name, ms=failover_ms
            )
            self._failover = None

    def cool_down(self) -> None:
        """Stop the queries that make and keep the engine warm, and wait for their ends.
        Idempotent.
        """
        if self._rehearsing is not None:
            self._rehearsing.stop()
            self._rehearsing.join()
        if self._warming is not None and (ending := self._warming.stop()) is not None:
            ending.join()

    def close(self) -> None:
        """Close the standby's readers and sender. Idempotent."""
        self.standby.close()
