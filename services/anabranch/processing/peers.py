"""Interfaces of a replica to its process, its inputs, its peers and its recovery, as functions that
``processing.stage_replica`` provides.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from anabranch.ports import Clock, Condition, Turn
from anabranch.protocol.control.records import ReplicaState
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.stage.recovery import CleanPoints, Comparison, PartnerWrong


@dataclass(frozen=True, slots=True)
class HostProcess:
    """Process in which a replica runs."""

    clock: Clock
    lock: Condition = field(default_factory=threading.Condition)
    """Lock that readers of the inputs hold while they change their log states."""
    log_lock: Turn = field(default_factory=threading.Lock)
    """Lock of the replica's own boundary log (see ``processing.replica``)."""
    stopping: Callable[[], bool] = lambda: False
    """Whether the replica must stop."""
    crash_point: Callable[[str], None] = lambda _: None
    """Function that a test uses to end the process at a named point (``process.crash_points``)."""
    may_begin: Callable[[LogState], None] = lambda _: None
    """Function called with the state of the stage's log, read to its end, before an epoch begins.
    It raises Fenced if the replica must not begin one.
    """
    epoch_begun: Callable[[], None] = lambda: None
    """Function called once this process's epoch is in the log and the log is read through it."""
    own_answers: Callable[[], bool] = lambda: True
    """Whether the pipeline's own cluster answers. Called from several threads."""
    may_wait: bool = True
    """Whether a request for a plan may block briefly."""
    batch_began: Callable[[str], None] = lambda _query: None
    """Function called when a batch of a query begins."""
    batch_ended: Callable[[str], float] = lambda _query: 0.0
    """Function called when it has ended, or was dropped. It returns the time, in ms, that the batch
    took of the node's cores.
    """


@dataclass(frozen=True, slots=True)
class Upstream:
    """Knowledge of a replica about its inputs and peers, from the control topics. The defaults
    serve a stage that reads only sources and has no peers.
    """

    choose: Callable[[str, Mapping[str, int]], str | None] = lambda _stream, _offers: None
    """Function (input, last bucket that each upstream replica offers as tentative beyond what was
    read) that returns the replica to read tentative buckets from.
    """
    states: Callable[[str], Mapping[str, ReplicaState]] = lambda _stream: {}
    """Function that returns the reported states of an input's replicas; empty for a source."""
    may_correct: Callable[[bool], bool] = lambda _wanted: True
    """Function (whether it wants to) that returns whether this replica may correct now."""
    peer_serves: Callable[[], bool] = lambda: False
    """Whether another replica of the stage serves new results."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """Resources of a replica's start besides its own disk. The defaults serve a replica without
    peers whose inputs are never trimmed.
    """

    peers: tuple[str, ...] = ()
    """Ids of the stage's other replicas."""
    missing: Callable[[int], str] = lambda _after: ""
    """Function (bucket) that describes, for people, which blocks of later input buckets are
    missing; empty if none.
    """
    wait: Callable[[str], None] = lambda _missing: None
    """Function that reports what is missing and waits a while. It raises to end the start."""
    gone: Callable[[], int] = lambda: 0
    """Last bucket of which an input's blocks were trimmed; 0 if none."""
    complete: Callable[[], int] = lambda: 0
    """Last bucket that is complete on all inputs by now."""
    comparison: Comparison | None = None
    """Recomputed results to compare, for a stage with ``upstream_backup``; else None."""
    fenced: Callable[[], Mapping[str, int]] = dict
    """Newest fenced epoch of each replica that the stage ever had."""
    recomputed: Callable[[int], bool] = lambda _after: False
    """Function (bucket) that returns whether blocks of later input buckets were recomputed to other
    offsets.
    """
    report_difference: Callable[[PartnerWrong], None] = lambda _found: None
    """Function that reports a bucket whose partner result differs."""
    points: CleanPoints | None = None
    """Clean points of the stage's log, as far as it was read before; None if it was not."""
