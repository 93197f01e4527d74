"""Who of a stage's replicas makes corrections at full speed (DPC staggers its replicas; here nobody
asks for leave).

Theory of operation. Corrections cost as much as the results that they replace, and the replicas of
a stage become able to make them at the same moment. One after the other is better: the others keep
their cores for new, tentative results, and find the corrections done by the time it is their turn,
since any replica's stable bucket will do. A replica that could correct says so by its state
(STABILIZATION), and that it does (``corrects``). The first by id begins; who has begun goes on to
the end, and then the next by id begins.

Nothing that is right or wrong depends on this, only who uses the cores. Time-outs count observed
time. A process looks at the control topic before it asks ``open``: what it has not read it cannot
respect.

The gate's transitions, the first row that holds (``Why`` numbers them); peers are those that are
alive and have not stalled:
    1  nothing is wanted                                                -> closed
    2  open, and no peer with a lower id corrects                       -> open (goes on)
    3  a peer corrects                                                  -> closed (another corrects)
    4  a peer with a lower id could correct                             -> closed (another is first)
    5  who lives and could correct as early can have been heard by now  -> open (own turn)
    6  else                                                             -> closed (waiting)

Invariants:
    CO1 of the replicas of a stage that hear each other two are open together for no longer than it
        takes to hear of it.
    CO2 never do all wait for each other: of the replicas that want and are alive one opens within a
        bounded time, whether or not any peer lives, hears or answers.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from anabranch.protocol.control.failure_detector import REPLICA_SERVICE, FailureDetector, Peer
from anabranch.protocol.control.records import Heartbeat, ReplicaState
from anabranch.protocol.limits import FAILURE_AFTER_MS

CORRECTION_TURN_MS: Final = 1_000
"""A replica that could correct leaves so much time to those with lower ids that could, too,
and are not heard to yet.
"""

CORRECTION_STALL_MS: Final = 30_000
"""A replica that corrects, or could, without progress for so long is not waited for: one that
hangs must not keep all others waiting.
"""


class Why(Enum):
    """Why the gate is open or closed: the row of the table that decided."""

    NOTHING_WANTED = 1
    GOES_ON = 2
    ANOTHER_CORRECTS = 3
    ANOTHER_IS_FIRST = 4
    OWN_TURN = 5
    WAITING = 6


OPEN: Final = frozenset({Why.GOES_ON, Why.OWN_TURN})


class CorrectionGate:
    """One replica: may it correct at full speed? Not thread-safe. ``now_ms`` is a clock of this
    process.

    After a restart nothing is wanted.
    """

    def __init__(self, stage: str, replica: str, detector: FailureDetector) -> None:
        """``detector``: what is heard of the replicas of ``stage``."""
        self.why = Why.NOTHING_WANTED
        """What decided at the last look."""
        self._stage = stage
        self._replica = replica
        self._detector = detector
        self._has_peers = detector.replicas(REPLICA_SERVICE, stage) not in ([], [replica])
        self._wanted_at: int | None = None

    @property
    def corrects(self) -> bool:
        """For the heartbeat: the gate was open at the last look."""
        return self._wanted_at is not None and self.why in OPEN

    def want(self, now_ms: int) -> None:
        """Corrections are possible. Again: nothing changes."""
        at = self._detector.look(now_ms)
        if self._wanted_at is None:
            self._wanted_at = at
            self.why = Why.WAITING

    def done(self) -> None:
        """Corrections are made, or not possible any more."""
        self._wanted_at = None
        self.why = Why.NOTHING_WANTED

    def peer_serves(self, now_ms: int) -> bool:
        """Whether another replica of the stage is alive that gives new results: one that does
        not correct at full speed.
        """
        alive = self._peers(now_ms).values()
        return any(
            ReplicaState.heard(beat.replica_state) is not ReplicaState.FAILURE and not beat.corrects
            for beat in alive
        )

    def open(self, now_ms: int) -> bool:
        """Whether to correct at full speed now. Call it again and again: it may close."""
        self.why = self._decide(now_ms)
        return self.why in OPEN

    def _peers(self, now_ms: int) -> dict[str, Heartbeat]:
        alive = self._detector.alive(REPLICA_SERVICE, self._stage, now_ms)
        return {replica: beat for replica, beat in alive.items() if replica != self._replica}

    def _decide(self, now_ms: int) -> Why:
        """The table in the text above, row by row."""
        at, detector = self._detector.look(now_ms), self._detector
        if self._wanted_at is None:
            return Why.NOTHING_WANTED
        alive = self._peers(now_ms)
        stalled = {
            r
            for r in alive
            if detector.stalled(Peer(REPLICA_SERVICE, self._stage, r), CORRECTION_STALL_MS, now_ms)
        }
        correcting = [r for r, beat in alive.items() if beat.corrects and r not in stalled]
        able = [
            r
            for r, beat in alive.items()
            if beat.replica_state == ReplicaState.STABILIZATION and r not in stalled
        ]
        if self.why in OPEN and not any(r < self._replica for r in correcting):
            return Why.GOES_ON
        if correcting:
            return Why.ANOTHER_CORRECTS
        if any(r < self._replica for r in able):
            return Why.ANOTHER_IS_FIRST
        turn_at = self._wanted_at + (
            CORRECTION_TURN_MS if any(r < self._replica for r in alive) else 0
        )
        heard_at = FAILURE_AFTER_MS if self._has_peers else 0
        return Why.OWN_TURN if at >= max(turn_at, heard_at) else Why.WAITING
