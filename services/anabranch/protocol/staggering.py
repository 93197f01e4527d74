"""Who of a stage's replicas may make corrections at full speed (DPC's staggering, with grants instead of requests among siblings).

Theory of operation. Corrections cost as much as the results that they replace, and the replicas of a stage become able to make them at the
same moment. One after the other is better: the others keep their cores for new, tentative results, and find the corrections done by the time
it is their turn, since any replica's stable bucket will do. So a replica that could correct says so in its heartbeats (``wants_grant``), the
consistency manager grants it to one at a time, and whoever does it says so too (``corrects``). A grant ends by itself unless it is renewed.

Nothing that is right or wrong depends on this, only who uses the cores. So the manager is needed for nothing: a replica without living
siblings corrects at once; one that does not hear the manager takes its turn by the order of the ids; and one that hears the manager, but sees
nobody being served, does so after a longer while.

Time-outs about others count observed time; the end of a grant is wall clock, and grants of one stage keep ``GRANT_MARGIN_MS`` apart, which is by
how much clocks may differ. A process looks at the control topic before it asks ``open``: what it has not read it cannot respect.

The gate's transitions, the first row that holds (``Why`` numbers them):
    1  nothing is wanted                                                    -> closed
    2  the newest grant is one's own, and not over                          -> open (granted)
    3  the newest grant is a sibling's, and not over                        -> closed (served)
    4  no sibling is alive, for all that could have been heard by now       -> open (alone)
    5  open on one's own account, and no sibling with a lower id corrects   -> open (own turn)
    6  a sibling corrects, and has not stalled                              -> closed (served)
    7  one's turn has come                                                  -> open (own turn)
    8  else                                                                 -> closed (waiting)

Invariants:
    G1  while the manager is heard and hears all, at most one replica of a stage with living siblings is open, of those that have read the control
        topic and asked since: never all of them at full speed. Two that hold a grant are never open together, read or not.
    G2  never do all wait for each other: of the replicas that want and are alive one opens within a bounded time, whether or not the manager,
        or any sibling, lives, hears or answers.
    G3  a grant opens only the process it names (epoch), once: after ``done`` it is spent, renewals included.
    G4  numbers of grants of a stage only grow, also over restarts of the manager and with two of them; the highest counts.
    G5  the manager gives no grant while another one could still be in use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from anabranch.protocol.control import Fence, Grant, Heartbeat
from anabranch.protocol.limits import (
    FAILURE_AFTER_MS,
    GRANT_LONGEST_MS,
    GRANT_MARGIN_MS,
    GRANT_MS,
    GRANT_RENEW_MS,
    GRANT_STALL_MS,
    GRANT_TURN_MS,
    GRANT_WAIT_MS,
    HEARTBEAT_LIFETIME_MS,
)
from anabranch.protocol.observed_time import ObservedTime
from anabranch.protocol.presence import Presence
from anabranch.protocol.replica_states import ReplicaState

REPLICA_SERVICE: Final = "processing"
MANAGER_SERVICE: Final = "consistency_manager"


class Why(Enum):
    """Why the gate is open or closed: the row of the table that decided."""

    NOTHING_WANTED = 1
    GRANTED = 2
    ANOTHER_IS_GRANTED = 3
    ALONE = 4
    OWN_TURN_GOES_ON = 5
    ANOTHER_CORRECTS = 6
    OWN_TURN = 7
    WAITING = 8


OPEN: Final = frozenset({Why.GRANTED, Why.ALONE, Why.OWN_TURN_GOES_ON, Why.OWN_TURN})
_OWN_ACCOUNT: Final = frozenset({Why.ALONE, Why.OWN_TURN_GOES_ON, Why.OWN_TURN})
_SERVED: Final = frozenset({Why.ANOTHER_IS_GRANTED, Why.ANOTHER_CORRECTS})


def in_force(grant: Grant, now_ms: int, margin_ms: int = 0) -> bool:
    """Whether ``grant`` is not over ``margin_ms`` ago, nor from further in the future than clocks may differ (one was set back since)."""
    return grant.until_ms - GRANT_MS - GRANT_MARGIN_MS <= now_ms < grant.until_ms + margin_ms


class CorrectionGate:
    """The replica's side: may it correct at full speed? Not thread-safe. ``now_ms`` is the wall clock; call ``look`` or ``open`` at least every second.

    After a restart nothing is wanted: the new process asks again, with its own epoch.
    """

    def __init__(self, stage: str, replica: str, siblings: Iterable[str], epoch: int = -1) -> None:
        """``siblings``: the other replicas of the stage. ``epoch``: see the attribute."""
        self.epoch = epoch
        """Of this process, set once it has one (rule 1): grants to another process of the replica are not its own (G3). -1: any will do."""
        self.why = Why.NOTHING_WANTED
        """What decided at the last look."""
        self._stage, self._replica = stage, replica
        self._siblings = Presence(REPLICA_SERVICE, stage, [s for s in siblings if s != replica])
        self._time = ObservedTime()
        self._wanted_at: int | None = None
        self._served_at = 0
        """Last look at which somebody was seen being served by the manager, or correcting."""
        self._manager_at = 0
        self._grant: Grant | None = None
        """The newest of the stage."""
        self._spent = -1
        """Grants up to this number are used up (G3)."""

    @property
    def wants_grant(self) -> bool:
        """For the heartbeat: corrections are possible, and the gate was closed at the last look."""
        return self._wanted_at is not None and self.why not in OPEN

    @property
    def corrects(self) -> bool:
        """For the heartbeat: the gate was open at the last look. Never true together with ``wants_grant``."""
        return self._wanted_at is not None and self.why in OPEN

    def want(self, now_ms: int) -> None:
        """Corrections are possible. Again: nothing changes."""
        at = self._time.at(now_ms)
        if self._wanted_at is None:
            self._wanted_at = at
            self.why = Why.WAITING

    def done(self) -> None:
        """Corrections are made, or not possible any more. A grant is given back by this (G3)."""
        self._wanted_at = None
        self.why = Why.NOTHING_WANTED
        self._spend()

    def look(self, now_ms: int) -> None:
        """The control topic was read to its end: time that passed until here was observed."""
        self._time.at(now_ms)

    def heard(self, beat: Heartbeat, now_ms: int) -> None:
        """Take note of any heartbeat of the control topic."""
        at = self._time.at(now_ms)
        if beat.service == MANAGER_SERVICE and now_ms - beat.written_ms <= HEARTBEAT_LIFETIME_MS:
            self._manager_at = at
        self._siblings.heard(beat, now_ms, at)

    def granted(self, grant: Grant, now_ms: int) -> None:
        """Take note of any grant of the control topic; ``now_ms`` is not used to judge it: it may become one's own later."""
        self._time.at(now_ms)
        if grant.stage != self._stage or (self._grant is not None and grant.number < self._grant.number):
            return
        self._grant = grant
        if self._wanted_at is None:
            self._spend()

    def sibling_serves(self, now_ms: int) -> bool:
        """Whether another replica of the stage is alive that gives new results: one that does not correct at full speed."""
        alive = self._siblings.alive(self._time.at(now_ms)).values()
        return any(ReplicaState.heard(beat.replica_state) is not ReplicaState.FAILURE and not beat.corrects for beat in alive)

    def is_fenced_by(self, fence: Fence) -> bool:
        """Whether a fence means this process."""
        return (fence.stage, fence.replica, fence.epoch) == (self._stage, self._replica, self.epoch)

    def open(self, now_ms: int) -> bool:
        """Whether to correct at full speed now. To be asked again and again: it may close (a grant that ended, a sibling's turn)."""
        at = self._time.at(now_ms)
        self.why = self._decide(now_ms, at)
        if self.why in _SERVED or self.why is Why.GRANTED:
            self._served_at = at
        return self.why in OPEN

    def _decide(self, now_ms: int, at: int) -> Why:
        """The table in the text above, row by row."""
        if self._wanted_at is None:
            return Why.NOTHING_WANTED
        grant = self._grant
        if grant is not None and in_force(grant, now_ms):
            if grant.replica != self._replica:
                return Why.ANOTHER_IS_GRANTED
            if grant.number > self._spent and self.epoch in (-1, grant.epoch):
                return Why.GRANTED
        alive = self._siblings.alive(at)
        if not alive and (at >= FAILURE_AFTER_MS or not self._siblings.replicas):
            return Why.ALONE
        correcting = [r for r, b in alive.items() if b.corrects and not self._siblings.stalled(r, at, GRANT_STALL_MS)]
        if self.why in _OWN_ACCOUNT and not any(r < self._replica for r in correcting):
            return Why.OWN_TURN_GOES_ON
        if correcting:
            return Why.ANOTHER_CORRECTS
        ahead = sum(b.wants_grant for r, b in alive.items() if r < self._replica)
        return Why.OWN_TURN if at >= self._turn_at(self._wanted_at, at, ahead) else Why.WAITING

    def _turn_at(self, wanted_at: int, at: int, ahead: int) -> int:
        """When one's turn comes, as observed time, if ``ahead`` siblings before oneself wait too (G2)."""
        since, silent_at = max(wanted_at, self._served_at), self._manager_at + GRANT_WAIT_MS
        if at >= silent_at:
            return max(since, silent_at) + GRANT_TURN_MS * (1 + ahead)
        return since + GRANT_LONGEST_MS + GRANT_TURN_MS * ahead

    def _spend(self) -> None:
        if self._grant is not None:
            self._spent = max(self._spent, self._grant.number)


@dataclass(slots=True)
class _Stage:
    """What the manager knows of one stage."""

    presence: Presence
    grant: Grant | None = None
    """The newest, by whichever manager."""
    released: bool = True
    """Its holder has said that it is done, or is another process now."""
    opened: bool = False
    """Its holder has said that it corrects."""
    turns: dict[str, int] = field(default_factory=dict)
    """Number of the last grant of each replica."""


class Grants:
    """The manager's side: from heartbeats to grants, one per stage at a time.

    What was decided is read back from the log, so it does not matter who of two managers, or which process of one, gave a grant.
    """

    def __init__(self, stages: Mapping[str, Iterable[str]]) -> None:
        """``stages``: the replica ids of each."""
        self._stages = {name: _Stage(Presence(REPLICA_SERVICE, name, replicas)) for name, replicas in stages.items()}
        self._time = ObservedTime()

    def heard(self, beat: Heartbeat, now_ms: int) -> None:
        """Take note of any heartbeat of the control topic."""
        at = self._time.at(now_ms)
        stage = self._stages.get(beat.name)
        if stage is None or not stage.presence.heard(beat, now_ms, at):
            return
        grant = stage.grant
        if grant is None or grant.replica != beat.replica:
            return
        # One that corrected and waits again gave the grant back in between.
        ended = stage.opened if beat.wants_grant else not beat.corrects
        if beat.epoch > grant.epoch or (beat.epoch == grant.epoch and ended):
            stage.released = True
        stage.opened = beat.corrects

    def seen(self, grant: Grant) -> None:
        """Take note of any grant in the control topic, one's own too (G4)."""
        stage = self._stages.get(grant.stage)
        if stage is None or (stage.grant is not None and grant.number < stage.grant.number):
            return
        if stage.grant is None or grant.number > stage.grant.number:
            stage.released = stage.opened = False
        if stage.grant is None or grant.number > stage.grant.number or grant.until_ms > stage.grant.until_ms:
            stage.grant = grant
            stage.turns[grant.replica] = grant.number

    def due(self, now_ms: int) -> list[Grant]:
        """The grants to write now. Each counts as given from here on, so one that could not be written is lost time, never a second holder."""
        at = self._time.at(now_ms)
        made = [grant for name, stage in self._stages.items() if (grant := self._due_of(name, stage, now_ms, at)) is not None]
        for grant in made:
            self.seen(grant)
        return made

    @staticmethod
    def _due_of(name: str, stage: _Stage, now_ms: int, at: int) -> Grant | None:
        alive, last = stage.presence.alive(at), stage.grant
        wanting = sorted((r for r, b in alive.items() if b.wants_grant), key=lambda r: (stage.turns.get(r, 0), r))
        correcting = [
            r for r, b in alive.items() if b.corrects and not (wanting and stage.presence.stalled(r, at, GRANT_STALL_MS))
        ]  # fmt: skip
        if last is not None and not stage.released and in_force(last, now_ms, GRANT_MARGIN_MS):
            if last.replica in correcting and last.written_ms + GRANT_RENEW_MS <= now_ms < last.until_ms:
                return replace(last, written_ms=now_ms, until_ms=now_ms + GRANT_MS)
            return None
        for replica in (*correcting, *wanting):
            number = max(now_ms, last.number + 1 if last is not None else 0)
            return Grant(name, replica, alive[replica].epoch, number, now_ms, now_ms + GRANT_MS)
        return None
