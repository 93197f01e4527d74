"""Failure detection: which processes are alive and what they report, as one process knows it from
the control topics, and for how long another process has been silent although it could have been
received.

Theory of operation. A process judges another by the time that it has *observed* since it last
received a heartbeat of it. The clock of the other process counts for nothing. Nor does a pause of
the observer: a process that was stopped, or whose machine slept, has received nothing, although the
others may have sent. So each check counts at most ``OBSERVED_STEP_MS``: after a pause a process
must check several times before any of its timeouts expires.

A process that follows the topic from now on receives only later heartbeats, so processes that died
earlier count as silent. A process that reads the topic from its beginning counts every heartbeat in
it as received just now: it declares another process dead only after the timeout that it waits for
anyway.

A process that receives no heartbeats may be cut off itself, or all processes may be: while the
broker is away, all are silent and none is dead. A process's own heartbeats take the same path as
those of the others: to the broker, into a control topic, and back. So a process that acts on
``Silence`` counts it from one of its own heartbeats to the next. If they arrive far apart, the path
was interrupted, or the process was paused. When the path works again, the other process may not
have noticed yet: a process that could not write retries after ``HEARTBEAT_SEND_MS``. So the counter
then restarts at minus ``HEARTBEAT_SEND_MS``. If every round trip is long, the machine or the broker
is overloaded. The silence still grows, a little with each own heartbeat: waiting for a dead process
takes longer, but not forever.

A thread of the own process that may be stuck in a call is judged by observed time, too
(``Standstill``), and so is a query that the engine may have stopped to run without an error
(``QueryStandstill``): nobody else notices, since the process that waits for it goes on.

Invariants:
    DT1 a heartbeat is ignored if a heartbeat of a higher epoch was received, or the log has a
        higher epoch: a zombie cannot speak for its replacement (rule 1). In another life of the log
        epochs begin again (``protocol.control.records``, SK5).
    DT2 a known process is alive for exactly ``FAILURE_AFTER_MS`` of observed time after its last
        heartbeat arrived.
    DT3 one that makes no progress stays alive; ``stalled`` reports it.
    DT4 nothing here depends on any clock but the monotonic one of the process that asks, and on
        that one only within OT1 and OT2.
    DT5 where the caller follows the logs of the processes, a heartbeat counts only under the newest
        epoch that the log shows: one that names a later epoch would make its successors count as
        zombies (DT1).
    OT1 observed time never falls, whatever the clock does.
    OT2 between two looks it grows by at most ``OBSERVED_STEP_MS``, and by no more than the clock.
    SL1 silence begins with the first own heartbeat that comes back.
    SL2 a sign of life ends it.
    SL3 where nothing comes back for more than ``OBSERVED_STEP_MS``, it is ``HEARTBEAT_SEND_MS``
        below zero after that; from then on each gap counts ``OBSERVED_STEP_MS`` at most, until
        there is a sign of life.
    SL4 it never counts more than the clock does.
    SL5 while nothing comes back it says nothing: what was counted before is no reason to act now.
    SS1 a thread is stuck after ``STUCK_MS`` of observed time in which it neither began anything nor
        came further, and not before.
    SS2 a query is stuck after ``QUERY_STUCK_MS`` of observed time in which it neither asked what it
        runs next, nor waited for the answer, nor ran a batch, which may take any time; and not
        before.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Self

from anabranch.protocol.control.records import Heartbeat, ReplicaState
from anabranch.protocol.limits import FAILURE_AFTER_MS, HEARTBEAT_SEND_MS

REPLICA_SERVICE: Final = "processing"
STANDBY_SERVICE: Final = "standby"
"""Service name under which each process of a passive stage reports the bucket of its own
checkpoint, beside the primary's heartbeats as the replica.
"""
DELIVERY_SERVICE: Final = "delivery"
INGESTION_SERVICE: Final = "ingestion"
MANAGER_SERVICE: Final = "consistency_manager"

OBSERVED_STEP_MS: Final = 1_000
"""Maximum time that one check counts towards a timeout about others, in ms. Below FAILURE_AFTER_MS,
so that no process counts as dead right after a pause.
"""


@dataclass(frozen=True, slots=True, order=True)
class Peer:
    """Process whose heartbeats are received from the control topics, as these name it."""

    service: str
    name: str
    replica: str


@dataclass(slots=True)
class _Heard:
    """Last sign of life of one process."""

    beat: Heartbeat
    progress_at: int
    """Observed time at which a new state or bucket was last reported."""


class FailureDetector:
    """Signs of life that one process has received from others. Call ``look``, or ask something, at
    least every second, always by the monotonic clock: with two clocks the time between them would
    count.
    """

    def __init__(self, peers: Iterable[Peer], *, follows_logs: bool = False) -> None:
        """Start without signs of life. ``peers``: processes to watch; heartbeats of others are
        ignored. ``follows_logs``: the caller reports each new epoch in the logs of the processes
        (``began``), before the heartbeats that it reads next (DT5).
        """
        self._follows_logs = follows_logs
        self._known = tuple(sorted(set(peers)))
        self._time = ObservedTime()
        self._sign_at = dict.fromkeys(self._known, 0)
        """Observed time of the last sign of life; 0: since this process listens."""
        self._epochs: dict[Peer, int] = {}
        self._heard: dict[Peer, _Heard] = {}

    @classmethod
    def of_replicas(cls, stages: Mapping[str, Iterable[str]]) -> Self:
        """Return a detector that watches the replicas of ``stages``."""
        return cls(
            Peer(REPLICA_SERVICE, stage, replica)
            for stage, replicas in stages.items()
            for replica in replicas
        )

    def look(self, monotonic_ms: int) -> int:
        """Note that the control topics were read to their ends: the time until now was observed.
        Return the observed time.
        """
        return self._time.at(monotonic_ms)

    def receive(self, beat: Heartbeat, monotonic_ms: int) -> bool:
        """Apply a heartbeat from the control topics. Return whether it is a new sign of life of a
        watched process (DT1, DT5).
        """
        at, peer = self._time.at(monotonic_ms), Peer(beat.service, beat.name, beat.replica)
        if peer not in self._sign_at:
            return False
        if self._follows_logs and beat.epoch != self._epochs.get(peer):
            return False
        before = self._heard.get(peer)
        is_same_life = before is None or before.beat.life == beat.life
        if is_same_life and beat.epoch < self._epochs.get(peer, beat.epoch):
            return False
        progress_at = (
            at if before is None or _doing(before.beat) != _doing(beat) else before.progress_at
        )
        self._heard[peer] = _Heard(beat, progress_at)
        self._epochs[peer], self._sign_at[peer] = beat.epoch, at
        return True

    def began(self, peer: Peer, epoch: int, monotonic_ms: int) -> bool:
        """Apply ``epoch`` of ``peer`` from its log. Return whether it is new, which is a sign of
        life (DT1).
        """
        at = self._time.at(monotonic_ms)
        if epoch <= self._epochs.get(peer, -1):
            return False
        self._epochs[peer], self._sign_at[peer] = epoch, at
        return True

    def lives(self, peer: Peer, monotonic_ms: int) -> None:
        """Apply a sign of life of ``peer``, a watched process, that is no heartbeat."""
        self._sign_at[peer] = self._time.at(monotonic_ms)

    def last(self, peer: Peer) -> Heartbeat | None:
        """Return the last heartbeat of ``peer``, dead or alive."""
        found = self._heard.get(peer)
        return None if found is None else found.beat

    def silent_ms(self, peer: Peer, monotonic_ms: int) -> int:
        """Return the observed time since the last sign of life of ``peer``, or since this process
        began to listen, in ms.
        """
        return self._time.at(monotonic_ms) - self._sign_at[peer]

    def replicas(self, service: str, name: str) -> list[str]:
        """Return the ids of the replicas that are watched, sorted."""
        return [
            peer.replica for peer in self._known if (peer.service, peer.name) == (service, name)
        ]

    def alive(self, service: str, name: str, monotonic_ms: int) -> dict[str, Heartbeat]:
        """Return the last heartbeat of each that is alive, in the order of their ids (DT2)."""
        peers = [Peer(service, name, replica) for replica in self.replicas(service, name)]
        return {
            peer.replica: self._heard[peer].beat
            for peer in peers
            if peer in self._heard and self.silent_ms(peer, monotonic_ms) < FAILURE_AFTER_MS
        }

    def silent(self, stage: str, monotonic_ms: int) -> frozenset[str]:
        """Return the replicas of ``stage`` that count as dead: no sign of life for
        FAILURE_AFTER_MS, all of it observed. A process that has just begun to listen counts none as
        dead.
        """
        return frozenset(
            replica
            for replica in self.replicas(REPLICA_SERVICE, stage)
            if self.silent_ms(Peer(REPLICA_SERVICE, stage, replica), monotonic_ms)
            >= FAILURE_AFTER_MS
        )

    def states(self, stage: str, monotonic_ms: int) -> dict[str, ReplicaState]:
        """Return the state of every replica of ``stage``; FAILURE for those that are not alive.
        Empty for a source, which has no replicas.
        """
        alive = self.alive(REPLICA_SERVICE, stage, monotonic_ms)
        return {
            replica: ReplicaState.parse(alive[replica].replica_state)
            if replica in alive
            else ReplicaState.FAILURE
            for replica in self.replicas(REPLICA_SERVICE, stage)
        }

    def stalled(self, peer: Peer, limit_ms: int, monotonic_ms: int) -> bool:
        """Return whether ``peer`` has reported no progress for ``limit_ms`` (DT3)."""
        found = self._heard.get(peer)
        return found is None or self._time.at(monotonic_ms) - found.progress_at >= limit_ms


def _doing(beat: Heartbeat) -> tuple[object, ...]:
    return beat.epoch, beat.replica_state, beat.corrects, beat.bucket, beat.checkpoint_bucket


class ObservedTime:
    """Converter from readings of a clock to observed time, in ms since the first check."""

    def __init__(self) -> None:
        self._last_ms: int | None = None
        self._observed_ms = 0

    def at(self, monotonic_ms: int) -> int:
        """Return the observed time at the clock's ``monotonic_ms`` (OT1, OT2). Must be called at
        every check.
        """
        if self._last_ms is not None:
            self._observed_ms += min(max(0, monotonic_ms - self._last_ms), OBSERVED_STEP_MS)
        self._last_ms = monotonic_ms
        return self._observed_ms


STUCK_MS: Final = 60_000
"""Time in ms after which a call of the client counts as stuck for good: if a broker does not
answer, it takes some seconds.
"""

QUERY_STUCK_MS: Final = 300_000
"""Time in ms after which a query counts as stuck for good: between two batches an engine writes
small files, and on a machine with much other work a query begins within a minute.
"""


class Standstill:
    """Detector of a stuck thread of the own process. ``now_ms`` is as for ``ObservedTime``."""

    def __init__(self, stuck_ms: int = STUCK_MS) -> None:
        self._time, self._moved_at = ObservedTime(), 0
        self._stuck_ms = stuck_ms
        self._done: Hashable = None

    def is_stuck(self, done: Hashable, now_ms: int) -> bool:
        """Return whether the thread is stuck; ``done`` is its progress by now (SS1). Must be called
        every second.
        """
        at = self._time.at(now_ms)
        if done != self._done:
            self._done, self._moved_at = done, at
        return at - self._moved_at >= self._stuck_ms


class QueryStandstill:
    """Detector of a stuck query of the own process. ``now_ms`` is as for ``ObservedTime``."""

    def __init__(self) -> None:
        self._standstill = Standstill(QUERY_STUCK_MS)
        self._moves, self._is_engines_turn = 0, True

    def moved(self, *, is_engines_turn: bool) -> None:
        """Note that the query asked or was answered, or that a batch of it began or ended.
        ``is_engines_turn``: whether the engine has to act next, for which it needs no long time.
        """
        self._moves += 1
        self._is_engines_turn = is_engines_turn

    def is_stuck(self, now_ms: int) -> bool:
        """Return whether the query is stuck (SS2). Must be called every second."""
        if not self._is_engines_turn:
            self._moves += 1
        return self._standstill.is_stuck(self._moves, now_ms)


class Silence:
    """Time without signs of life of one other process. ``now_ms`` is of any own clock that is never
    set back.
    """

    def __init__(self) -> None:
        self._since_ms: int | None = None
        self._was_closed = False
        self.ms = 0
        """Time without a sign of life, in ms; below zero where the connection was just lost."""

    def broken(self, now_ms: int) -> None:
        """Note a sign of life of the other process (SL2)."""
        self.ms, self._was_closed = 0, False
        if self._since_ms is not None:
            self._since_ms = now_ms

    def is_known(self, now_ms: int) -> bool:
        """Return whether the connection is open, as far as is known: an own heartbeat was received
        not long ago (SL5).
        """
        return self._since_ms is not None and now_ms - self._since_ms <= OBSERVED_STEP_MS

    def came_back(self, now_ms: int) -> None:
        """Record that an own heartbeat was received, or that the broker has answered (SL1, SL3)."""
        since_ms, self._since_ms = self._since_ms, now_ms
        if since_ms is None:
            return
        gap_ms = now_ms - since_ms
        if gap_ms > OBSERVED_STEP_MS and not self._was_closed:
            self.ms, self._was_closed = -HEARTBEAT_SEND_MS, True
        else:
            self.ms += min(gap_ms, OBSERVED_STEP_MS)
