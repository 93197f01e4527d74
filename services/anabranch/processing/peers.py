"""What a replica knows of its peers, its inputs and its process, and what a start needs besides the
own disk.
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
    """The process in which a replica runs."""

    clock: Clock
    lock: Condition = field(default_factory=threading.Condition)
    """The readers of the inputs hold it while their log states change."""
    log_lock: Turn = field(default_factory=threading.Lock)
    """Guards the own boundary log: see ``processing.replica``."""
    stopping: Callable[[], bool] = lambda: False
    """Whether it must stop."""
    crash_point: Callable[[str], None] = lambda _: None
    """Where a test may end it (``runtime.crash_points``)."""
    may_begin: Callable[[LogState], None] = lambda _: None
    """Called with the stage's log, read to its end, before an epoch begins. Raises Fenced where it
    must not.
    """
    epoch_begun: Callable[[], None] = lambda: None
    """Called when the epoch of this process is in the log, and the log is read through it."""
    own_answers: Callable[[], bool] = lambda: True
    """Whether the own cluster answers now; called from several threads."""
    may_wait: bool = True
    """Whether a question for a plan may block a little."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """What the replica knows of others, from the control topic. The defaults are for a stage
    that reads only sources and has no peers.
    """

    choose: Callable[[str, Mapping[str, int]], str | None] = lambda _stream, _offers: None
    """(input, buckets that each of its replicas offers tentatively up to, beyond what was
    read) -> the replica to take them from.
    """
    states: Callable[[str], Mapping[str, ReplicaState]] = lambda _stream: {}
    """What the replicas of an input say of themselves; empty: nobody does, as of a source."""
    may_correct: Callable[[bool], bool] = lambda _wanted: True
    """(wanted) -> whether this replica may correct now."""
    peer_serves: Callable[[], bool] = lambda: False
    """Whether another replica of the stage gives new results."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """What a start needs besides the own disk. The defaults are for a replica without peers
    whose inputs are never trimmed.
    """

    peers: tuple[str, ...] = ()
    missing: Callable[[int], str] = lambda _after: ""
    """(bucket) -> what is gone, in words, of the inputs' blocks of later buckets; empty: they
    are there.
    """
    wait: Callable[[str], None] = lambda _missing: None
    """Tell people what is missing, and wait a while; raises to give up."""
    gone: Callable[[], int] = lambda: 0
    """The last bucket of which an input's blocks are gone; 0: none is."""
    complete: Callable[[], int] = lambda: 0
    """The last bucket that is complete on all inputs by now."""
    comparison: Comparison | None = None
    """Of a stage whose input's blocks are its backup."""
    fenced: Callable[[], Mapping[str, int]] = dict
    """The newest epoch that was fenced of each replica of the stage that ever was."""
    recomputed: Callable[[int], bool] = lambda _after: False
    """(bucket) -> whether blocks of later buckets of the inputs stand elsewhere than they did."""
    tell: Callable[[PartnerWrong], None] = lambda _found: None
    """Tell people what a partner made otherwise."""
    points: CleanPoints | None = None
    """Of the stage's own log, as far as it was read before; None: it was not."""
