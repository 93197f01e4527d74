"""The life of one replica on a node: started, looked after, started again when it ends, ended with
the node.

A replica has a thread of its own, which alone calls its ``start``, ``step`` and ``stop``; the
node's thread alone calls what stands here. What ends a replica ends nothing else of the node. It is
started again as a process would be (``protocol.control.placement``), as a new ``StageReplica``
with an epoch of its own. The node ends only where a replica has failed over to another process:
there are two nodes of its name, and the newer one counts.

A replica that was moved to another node in the meantime is not started again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from anabranch.protocol.control.placement import AfterEnd, Backoff
from anabranch.protocol.errors import ConfigurationError, Fenced, Outvoted, StageFunctionError
from anabranch.runtime.health import READY_STATES
from anabranch.runtime.logs import short
from anabranch.runtime.own_threads import OWN_THREADS
from anabranch.runtime.service import ServiceStatus, exit_code_of

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from anabranch.ports import Clock, Event, Thread, Threads

FAILED = "failed"
_RESTARTING = "restarting"


class Replica(Protocol):
    """What is hosted (``processing.stage_replica``)."""

    status: ServiceStatus

    def start(self) -> None:
        """Fail over; returns early when it must stop."""

    def step(self) -> None:
        """One short round."""

    def stop(self) -> None:
        """Give everything back. Idempotent."""


class HostedReplica:
    """One place of a node."""

    def __init__(
        self,
        label: str,
        make: Callable[[Event, int], Replica],
        clock: Clock,
        logger: FilteringBoundLogger,
        after_end: Callable[[bool], AfterEnd] = lambda is_fenced: (
            AfterEnd.END_NODE if is_fenced else AfterEnd.AGAIN
        ),
        threads: Threads = OWN_THREADS,
    ) -> None:
        """Nothing is started yet.

        Args:
            label: ``STAGE.REPLICA``.
            make: Makes a replica, from the event that stops it and the number of starts before.
            clock: Of this process.
            logger: Of the node.
            after_end: Whether to start it again, by all that is known now; called when it has
                ended, with whether it was fenced.
            threads: Of the process.
        """
        self.label = label
        self._make = make
        self._clock = clock
        self._logger = logger
        self._after_end = after_end
        self._backoff = Backoff()
        self._replica: Replica | None = None
        self._thread: Thread | None = None
        self._threads, self._stopping = threads, threads.event()
        self._ended_by: BaseException | None = None
        self._ready_ms: int | None = None
        self._again_ms: int | None = 0
        self._state = "starting"
        self.error: str | None = None
        """What ended it last; None once it is ready again."""
        self.mistake: str | None = None
        """What a person must mend before it can start; None: nothing is known, or it ran. A replica
        that ran before ended by its input or its surroundings, which may change.
        """
        self.restarts = 0

    def look(self) -> None:
        """Start it when it is time to; see whether it has ended.

        Raises:
            Fenced: another process runs the replica now, so this one is not its node any more.
        """
        now_ms = self._clock.monotonic_ms()
        if self._thread is None:
            if self._again_ms is not None and now_ms >= self._again_ms:
                self._begin()
            return
        if not self._thread.is_alive():
            self._ended(now_ms)
        elif self._ready_ms is None and self.state in READY_STATES:
            self._ready_ms = now_ms
            self.error = self.mistake = None

    @property
    def state(self) -> str:
        """As its status has it while it runs; else ``failed``, or ``restarting``."""
        return (
            self._state
            if self._thread is None or self._replica is None
            else self._replica.status.state
        )

    @property
    def status(self) -> ServiceStatus:
        """Of the replica that runs, or ran last."""
        return ServiceStatus() if self._replica is None else self._replica.status

    def shown(self) -> dict[str, object]:
        """For people and programs: everything that the replica says, and where it stands."""
        stage, _, replica = self.label.rpartition(".")
        return {
            "stage": stage,
            "replica": replica,
            **self.status.shown(),
            "state": self.state,
            "error": self.error,
            "mistake": self.mistake,
            "restarts": self.restarts,
        }

    @property
    def is_over(self) -> bool:
        """It has ended, and is not started again."""
        return self._thread is None and self._again_ms is None

    def tell_to_stop(self) -> None:
        """It is not started again; ``join`` waits for its end."""
        self._again_ms = None
        self._stopping.set()

    def join(self, timeout_s: float) -> bool:
        """Whether it has ended."""
        if self._thread is not None:
            self._thread.join(timeout_s)
        return self._thread is None or not self._thread.is_alive()

    def _begin(self) -> None:
        self._stopping = self._threads.event()
        self._ended_by = None
        self._ready_ms = None
        self._state = "starting"
        self._replica = replica = self._make(self._stopping, self.restarts)
        self._thread = self._threads.begin(self.label, partial(self._run, replica, self._stopping))

    def _run(self, replica: Replica, stopping: Event) -> None:
        """The body of the replica's thread."""
        try:
            replica.start()
            while not stopping.is_set():
                replica.step()
        except BaseException as error:  # noqa: BLE001 - handed to the node's thread
            self._ended_by = error
        try:
            replica.stop()
        except Exception as error:  # noqa: BLE001 - what ended it first counts
            self._ended_by = self._ended_by if self._ended_by is not None else error

    def _ended(self, now_ms: int) -> None:
        error, self._thread = self._ended_by, None
        if error is not None and not isinstance(error, Exception):
            raise error
        if error is None or self._again_ms is None:
            self._state, self._again_ms = "stopped", None
            return
        is_fenced = isinstance(error, Fenced) and not isinstance(error, Outvoted)
        match self._after_end(is_fenced):
            case AfterEnd.END_NODE:
                raise error
            case AfterEnd.GONE:
                self._state, self._again_ms = "stopped", None
                self._logger.info("replica_left", replica=self.label, because=short(str(error)))
            case AfterEnd.AGAIN:
                self._start_later(error, now_ms)

    def _start_later(self, error: Exception, now_ms: int) -> None:
        failed = isinstance(error, (StageFunctionError, ConfigurationError))
        if isinstance(error, ConfigurationError) and self._ready_ms is None:
            self.mistake = str(error)
        ran_ms = now_ms - self._ready_ms if self._ready_ms is not None else 0
        delay_ms = self._backoff.after_end(ran_ms, of_function=failed)
        self._again_ms, self.restarts = now_ms + delay_ms, self.restarts + 1
        self._state, self.error = (
            FAILED if failed else _RESTARTING,
            short(str(error)) or type(error).__name__,
        )
        self._logger.error(
            "replica_ended",
            replica=self.label,
            exit_code=int(exit_code_of(error)),
            error=self.error,
            again_ms=delay_ms,
            exc_info=error,
        )
