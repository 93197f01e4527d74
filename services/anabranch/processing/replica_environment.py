"""Environment of a replica: interfaces to its process, its inputs and peers, and its recovery.

``processing.replica_start`` implements the process and the recovery, ``streams.heartbeats`` the
inputs and peers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Protocol

from anabranch.ports import Clock, Condition, Turn
from anabranch.protocol.control.records import ReplicaState
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.stage.recovery import CleanPoints, Comparison, PartnerWrong


class HostProcess:
    """Process in which a replica runs. This one lets the replica begin and run without end."""

    def __init__(
        self,
        clock: Clock,
        *,
        lock: Condition | None = None,
        log_lock: Turn | None = None,
        may_wait: bool = True,
    ) -> None:
        """Keep the arguments.

        Args:
            clock: The clock of the process.
            lock: The lock that readers of the inputs hold while they change their log states.
            log_lock: The lock of the replica's own boundary log (see ``processing.replica``).
            may_wait: Whether a request for a plan may block briefly.
        """
        self.clock = clock
        self.lock: Condition = threading.Condition() if lock is None else lock
        self.log_lock: Turn = threading.Lock() if log_lock is None else log_lock
        self.may_wait = may_wait

    def stopping(self) -> bool:
        """Return whether the replica must stop."""
        return False

    def crash_point(self, name: str) -> None:
        """End the process here if a test names this point (``process.crash_points``)."""

    def may_begin(self, log_state: LogState) -> None:
        """Check, before an epoch begins, that the replica may begin one. ``log_state``: state of
        the stage's log, read to its end.

        Raises:
            Fenced: another process runs the replica.
        """

    def epoch_begun(self) -> None:
        """Note that this process's epoch is in the log and that the log is read through it."""

    def beside(self, name: str, work: Callable[[], None]) -> None:
        """Run ``work``, which nothing waits for, on a thread called ``name``. This process runs it
        at once.
        """
        del name
        work()

    def own_answers(self) -> bool:
        """Return whether the pipeline's own cluster answers. Called from several threads."""
        return True

    def batch_began(self, query: str) -> None:
        """Note that a batch of ``query`` begins."""

    def batch_ended(self, query: str) -> float:
        """Note that the batch of ``query`` has ended, or was dropped. Return the time, in ms, that
        it took of the node's cores.
        """
        del query
        return 0.0


class Upstream(Protocol):
    """Knowledge of a replica about its inputs and peers, from the control topics."""

    def choose(self, stream: str, offers: Mapping[str, int]) -> str | None:
        """Return the replica to read tentative buckets of input ``stream`` from; None if none will
        do. ``offers``: last tentative bucket of each upstream replica beyond what was read.
        """

    def states(self, stream: str) -> Mapping[str, ReplicaState]:
        """Return the reported states of an input's replicas; empty for a source."""

    def may_correct(self, wanted: bool) -> bool:
        """Return whether this replica, which may want to correct, may do so now."""

    def peer_serves(self) -> bool:
        """Return whether another replica of the stage serves new results."""


class OnlySources(Upstream):
    """Upstream of a stage that reads only sources and has no peers."""

    def choose(self, stream: str, offers: Mapping[str, int]) -> str | None:
        """Return None: a source has no tentative buckets."""
        del stream, offers
        return None

    def states(self, stream: str) -> Mapping[str, ReplicaState]:
        """Return nothing: a source has no replicas."""
        del stream
        return {}

    def may_correct(self, wanted: bool) -> bool:
        """Return True: no peer corrects at the same time."""
        del wanted
        return True

    def peer_serves(self) -> bool:
        """Return False: there is no peer."""
        return False


class Recovery:
    """Resources of a replica's start besides its own disk. This one serves a replica without peers
    whose inputs are never trimmed.
    """

    peers: tuple[str, ...] = ()
    """Ids of the stage's other replicas."""
    comparison: Comparison | None = None
    """Recomputed results to compare, for a stage with ``upstream_backup``; else None."""
    points: CleanPoints | None = None
    """Clean points of the stage's log, as far as it was read before; None if it was not."""

    @property
    def takes_over(self) -> bool:
        """Whether this process began as a standby of the one that ran the replica."""
        return False

    @property
    def claimed(self) -> int:
        """Last bucket of input that this process claims to have in a checkpoint of its own; 0 if it
        claims none (TI11).
        """
        return 0

    def lower_claim(self, bucket: int) -> bool:
        """Claim only ``bucket`` from now on. Return whether the log has that; if not, wait a little
        first.
        """
        del bucket
        return True

    def missing(self, after: int) -> str:
        """Describe, for people, which blocks of input buckets after ``after`` are missing; empty if
        none.
        """
        del after
        return ""

    def wait(self, missing: str) -> None:
        """Report what is missing and wait a while. Raise to end the start."""

    def last_gone(self, log_state: LogState) -> int:
        """Return the last bucket of which an input's blocks were trimmed; 0 if none. ``log_state``:
        the stage's own stream.
        """
        del log_state
        return 0

    def complete(self) -> int:
        """Return the last bucket that is complete on all inputs by now."""
        return 0

    def fenced(self) -> Mapping[str, int]:
        """Return the newest fenced epoch of each replica that the stage ever had."""
        return {}

    def recomputed(self, after: int) -> bool:
        """Return whether blocks of input buckets after ``after`` were recomputed to other
        offsets.
        """
        del after
        return False

    def report_difference(self, found: PartnerWrong) -> None:
        """Report a bucket whose partner result differs."""
