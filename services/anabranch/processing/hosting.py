"""Replica hosted on a node: starts it, watches it, restarts it after a failure, and stops it with
the node.

Each replica has its own thread, which alone calls the replica's ``start``, ``step`` and ``stop``;
the node's thread alone calls ``HostedReplica``. A failing replica does not affect the others: it is
restarted after a back-off, as a process would be (``protocol.control.placement``), as a new
``StageReplica`` with its own epoch. Only one failure ends the node: a replica was fenced by a
process of the same node's name, so a newer instance of this node is running.

A replica that has moved to another node meanwhile is not restarted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from anabranch.process.frame import ServiceStatus, exit_code_of
from anabranch.process.health import READY_STATES
from anabranch.process.logging_setup import short
from anabranch.process.threads import OWN_THREADS
from anabranch.protocol.control.placement import AfterEnd, Backoff
from anabranch.protocol.errors import ConfigurationError, Fenced, Outvoted, StageFunctionError

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from anabranch.ports import Clock, Flag, Thread, Threads

FAILED = "failed"
"""State of a replica that its own function or configuration ended. It is restarted, too, after a
longer delay.
"""
_RESTARTING = "restarting"
"""State of a replica that something else ended, until its restart."""


class RunnableReplica(Protocol):
    """Interface of a hosted replica (``processing.stage_replica``)."""

    status: ServiceStatus

    def start(self) -> None:
        """Take over the replica's writing. Returns early if told to stop."""

    def step(self) -> None:
        """Run one short round."""

    def stop(self) -> None:
        """Release all resources. Idempotent."""


class HostedReplica:
    """Slot of a node for one replica, with the replica's restarts. The replica that runs changes
    with each restart.
    """

    def __init__(
        self,
        label: str,
        make: Callable[[Flag, int], RunnableReplica],
        clock: Clock,
        logger: FilteringBoundLogger,
        after_end: Callable[[bool], AfterEnd] = lambda is_fenced: (
            AfterEnd.END_NODE if is_fenced else AfterEnd.AGAIN
        ),
        threads: Threads = OWN_THREADS,
    ) -> None:
        """Prepare the slot. The first ``supervise`` starts the replica.

        Args:
            label: ``STAGE.REPLICA``.
            make: Builds a replica, given the event that stops it and the number of earlier starts.
            clock: The clock of this process.
            logger: The node's logger.
            after_end: Decides whether to restart; called after each failure, with whether the
                replica was fenced.
            threads: The source of the replica's thread.
        """
        self.label = label
        self._make = make
        self._clock = clock
        self._logger = logger
        self._after_end = after_end
        self._backoff = Backoff()
        self._replica: RunnableReplica | None = None
        self._thread: Thread | None = None
        self._threads, self._stopping = threads, threads.event()
        self._ended_by: BaseException | None = None
        self._ready_ms: int | None = None
        self._again_ms: int | None = 0
        self._state = "starting"
        self.error: str | None = None
        """Text of the last failure; None once the replica is ready again."""
        self.mistake: str | None = None
        """Configuration error that a person must correct before the replica can start; None if
        there is none. Only set if the replica was never ready: an error after that comes from its
        input or its surroundings, which may change.
        """
        self.restarts = 0

    def supervise(self) -> None:
        """Start the replica if it is due, and handle its end if its thread has ended.

        Raises:
            Fenced: a newer instance of this node runs the replica.
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
        """State that the replica reports while its thread exists; else ``failed``, ``restarting``,
        ``stopped`` or ``starting``.
        """
        return (
            self._state
            if self._thread is None or self._replica is None
            else self._replica.status.state
        )

    @property
    def status(self) -> ServiceStatus:
        """Status of the replica that runs, or ran last."""
        return ServiceStatus() if self._replica is None else self._replica.status

    def shown(self) -> dict[str, object]:
        """Return the replica's status with its state, last error and number of restarts, for
        ``status`` and its JSON.
        """
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
        """Whether the replica has ended for good."""
        return self._thread is None and self._again_ms is None

    @property
    def is_running(self) -> bool:
        """Whether a replica runs in the slot, or is starting or ending there."""
        return self._thread is not None

    def request_stop(self) -> None:
        """Ask the replica to stop, and restart it no more. ``join`` waits for its end."""
        self._again_ms = None
        self._stopping.set()

    def join(self, timeout_s: float) -> bool:
        """Wait at most ``timeout_s`` for the replica's thread. Return whether it has ended."""
        if self._thread is not None:
            self._thread.join(timeout_s)
        return self._thread is None or not self._thread.is_alive()

    def _begin(self) -> None:
        """Start a new replica on a new thread."""
        self._stopping = self._threads.event()
        self._ended_by = None
        self._ready_ms = None
        self._state = "starting"
        self._replica = replica = self._make(self._stopping, self.restarts)
        self._thread = self._threads.begin(self.label, partial(self._run, replica, self._stopping))

    def _run(self, replica: RunnableReplica, stopping: Flag) -> None:
        """Run the replica until it is told to stop or fails, as the body of its thread."""
        try:
            replica.start()
            while not stopping.is_set():
                replica.step()
        except BaseException as error:  # noqa: BLE001 - handed to the node's thread
            self._ended_by = error
        try:
            replica.stop()
        except Exception as error:  # noqa: BLE001 - the first failure counts
            self._ended_by = self._ended_by if self._ended_by is not None else error

    def _ended(self, now_ms: int) -> None:
        """Handle the end of the replica's thread: stop, restart or end the node."""
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
        """Schedule the restart after ``error`` and log it."""
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
