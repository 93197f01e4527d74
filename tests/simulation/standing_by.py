"""A process of a replica that stands by, in the simulation: what runs beside it is a thread of the
scheduler.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from anabranch.processing.standby import Standby
from anabranch.protocol.stage.standby import StandbyProcess
from anabranch.runtime.service import ServiceContext
from simulation.disk import SimulatedDisk
from simulation.network import Port

STEP_MS: Final = 100


class StandingBy:
    """What ``processing.stage_replica`` does while its process stands by."""

    def __init__(
        self,
        context: ServiceContext,
        port: Port,
        disk: SimulatedDisk,
        label: str,
        node: str | None,
    ) -> None:
        """``label``: of the process, ``STAGE.ID``. ``node``: to which its replica was moved; None:
        its stage is passive.
        """
        stage, _, process = label.partition(".")
        own = StandbyProcess(stage, process, node, context.entropy.token())
        self._clock = context.clock
        self._port = port
        self._is_moved = node is not None
        self._reached = port.network.history.reached
        self.is_over = False
        """It is the primary, or went away."""
        self._bucket = self._looks_ms = 0
        self._disk = disk
        self._process = stage, process
        self._token = own.token
        self.standby = Standby(
            context.log,
            context.clock,
            context.pipeline,
            own,
            disk,
            context.threads,
        )

        self._disk.check_newest_synced(self.standby.bucket)

    def until_due(
        self,
        warm_ms: int,
        leaves: Callable[[], bool] = lambda: False,
        each_round: Callable[[int], None] = lambda _: None,
    ) -> bool:
        """Stand by until it is to become the primary; False: ``leaves`` says that its place is
        elsewhere. ``each_round`` is told the bucket of the checkpoint at hand.
        """
        if self.standby.must_wait:
            self._reached("stands by where it is moved to" if self._is_moved else "stands by")
            self._clock.sleep_ms(warm_ms)
            self._port.note("stands by", *self._process)
            while not self._round():
                self._see_copies()
                each_round(self.standby.bucket)
                if leaves():
                    self._reached("move taken back")
                    return False
                self._clock.sleep_ms(STEP_MS)
            if not self._is_moved:
                self._port.note(
                    "becomes the primary", *self._process, self.standby.bucket, self._looks_ms
                )
            self._port.crash_point("processing.standby_due")
        self.standby.end_watch()
        if self.standby.bucket and not self._is_moved:
            self._reached("fails over to a copy")
        self.is_over = True
        return True

    def _round(self) -> bool:
        self._looks_ms = self._port.now_ms
        return self.standby.round()

    def _see_copies(self) -> None:
        """What it says of its checkpoint, as soon as it says something new."""
        if self.standby.bucket != self._bucket and not self._is_moved:
            self._bucket = self.standby.bucket
            self._disk.check_newest_synced(self._bucket, self._token)
            self._reached("standby copied")

    def say(self, bucket: int, checkpoint_bucket: int) -> None:
        """As the primary of its stage."""
        self.standby.lead(bucket, checkpoint_bucket)
