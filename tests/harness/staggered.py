"""The replicas of one stage and its manager around one control topic, in virtual time: nothing but the rules of ``protocol.staggering``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from anabranch.protocol.control import ControlRecord, Grant, Heartbeat
from anabranch.protocol.limits import HEARTBEAT_EVERY_MS
from anabranch.protocol.staggering import OPEN, CorrectionGate, Grants, Why

STAGE = "tolls"
TICK_MS = 100


@dataclass
class Member:
    """What every process has: a place in the topic, and whether it runs."""

    position: int = 0
    runs: bool = True
    deaf: bool = False
    """It runs and speaks, but what it reads does not come on."""
    mute: bool = False
    """What it says does not reach the topic."""
    said: Heartbeat | None = None
    said_ms: int = 0

    def news(self, beat: Heartbeat, now_ms: int) -> bool:
        """Whether it is time to say ``beat``, as ``runtime.heartbeats`` judges it."""
        old = self.said
        changed = old is None or (old.wants_grant, old.corrects, old.epoch) != (beat.wants_grant, beat.corrects, beat.epoch)
        if self.mute or (not changed and now_ms - self.said_ms < HEARTBEAT_EVERY_MS):
            return False
        self.said, self.said_ms = beat, now_ms
        return True


@dataclass
class ReplicaProcess(Member):
    """One replica; ``bucket`` grows while it corrects, as it would."""

    gate: CorrectionGate = field(default_factory=lambda: CorrectionGate(STAGE, "0", []))
    wants: bool = False
    skew_ms: int = 0
    """Its clock minus that of the world."""
    epoch: int = 0
    bucket: int = 0
    stuck: bool = False


@dataclass
class ManagerProcess(Member):
    """The manager; ``grants`` is None while it is dead."""

    grants: Grants | None = None


class StaggeredStage:
    """A stage of some replicas. A process that is not dead reads to the end of the topic, decides, and speaks, once in each tick."""

    def __init__(self, replicas: int, *, manager: bool = True) -> None:
        self.now_ms, self.topic = 1_000_000, list[ControlRecord]()
        self.names = [str(number) for number in range(replicas)]
        self.replicas: dict[str, ReplicaProcess] = {}
        self.manager, self.second = ManagerProcess(), ManagerProcess()
        """The second one is started by hand: two of them may run."""
        self._epochs = 100
        for name in self.names:
            self.start(name)
        if manager:
            self.start_manager()

    def start(self, name: str) -> None:
        """A new process of a replica, on the same machine."""
        self._epochs += 1
        gate = CorrectionGate(STAGE, name, self.names, self._epochs)
        skew_ms = self.replicas[name].skew_ms if name in self.replicas else 0
        self.replicas[name] = ReplicaProcess(gate=gate, epoch=self._epochs, position=len(self.topic), skew_ms=skew_ms)

    def kill(self, name: str) -> None:
        """A replica dies."""
        self.replicas.pop(name, None)

    def stop(self, name: str, *, runs: bool) -> None:
        """A replica is stopped, or goes on."""
        self.replicas[name].runs = runs

    def start_manager(self, *, second: bool = False) -> None:
        """A new manager, which reads the topic from its beginning."""
        made = ManagerProcess(grants=Grants({STAGE: self.names}))
        self._hear_all(made)
        if second:
            self.second = made
        else:
            self.manager = made

    def kill_manager(self) -> None:
        """It dies."""
        self.manager = ManagerProcess()

    def want(self, name: str, wants: bool = True) -> None:
        """A replica could correct, or has done so."""
        replica = self.replicas[name]
        replica.wants = wants
        if not wants:
            replica.gate.done()

    def tick(self, order: list[str] | None = None) -> None:
        """``TICK_MS`` pass; then every process that runs does its round, the manager first, or wherever ``order`` has "manager"."""
        self.now_ms += TICK_MS
        for name in order or ["manager", *self.names]:
            if name == "manager":
                self._manage(self.manager)
                self._manage(self.second)
            elif name in self.replicas and self.replicas[name].runs:
                self._round(name)

    def serves(self) -> bool:
        """Whether the manager lives, and everybody hears everybody."""
        manager = self.manager
        hears = manager.grants is not None and manager.runs and not manager.deaf
        return hears and not any(replica.deaf for replica in self.replicas.values())

    def open(self) -> list[str]:
        """Replicas that correct at full speed, those that are stopped left out."""
        return [name for name, replica in self.replicas.items() if replica.runs and replica.gate.corrects]

    def why(self) -> dict[str, Why]:
        """What decided, of each replica that runs."""
        return {name: replica.gate.why for name, replica in sorted(self.replicas.items()) if replica.runs}

    def look_again(self) -> list[str]:
        """Every replica reads to the end and asks once more, without time passing and without saying anything: who is open then."""
        for name, replica in self.replicas.items():
            if replica.runs:
                self._hear(name)
                replica.gate.open(self.now_ms + replica.skew_ms)
        return self.open()

    def granted(self) -> Iterator[Grant]:
        """All grants so far, without renewals."""
        seen = set()
        for entry in self.topic:
            if isinstance(entry, Grant) and entry.number not in seen:
                seen.add(entry.number)
                yield entry

    def _hear(self, name: str) -> None:
        replica = self.replicas[name]
        now_ms = self.now_ms + replica.skew_ms
        for entry in () if replica.deaf else self.topic[replica.position :]:
            if isinstance(entry, Heartbeat):
                replica.gate.heard(entry, now_ms)
            elif isinstance(entry, Grant):
                replica.gate.granted(entry, now_ms)
        replica.position = replica.position if replica.deaf else len(self.topic)

    def _round(self, name: str) -> None:
        replica = self.replicas[name]
        now_ms = self.now_ms + replica.skew_ms
        self._hear(name)
        if replica.wants:
            replica.gate.want(now_ms)
        opened = replica.gate.open(now_ms)
        assert opened == (replica.gate.why in OPEN)
        if opened and not replica.stuck:
            replica.bucket += 1
        beat = Heartbeat(
            "processing", STAGE, name, replica.epoch, "running", replica.bucket, now_ms, "up_failure" if replica.wants else "stable",
            wants_grant=replica.gate.wants_grant, corrects=replica.gate.corrects,
        )  # fmt: skip
        if replica.news(beat, self.now_ms):
            self.topic.append(beat)

    def _hear_all(self, manager: ManagerProcess) -> None:
        assert manager.grants is not None
        for entry in () if manager.deaf else self.topic[manager.position :]:
            if isinstance(entry, Heartbeat):
                manager.grants.heard(entry, self.now_ms)
            elif isinstance(entry, Grant):
                manager.grants.seen(entry)
        manager.position = manager.position if manager.deaf else len(self.topic)

    def _manage(self, manager: ManagerProcess) -> None:
        if manager.grants is None or not manager.runs:
            return
        self._hear_all(manager)
        self.topic += manager.grants.due(self.now_ms)
        beat = Heartbeat("consistency_manager", "p", "0", -1, "running", 0, self.now_ms)
        if manager.news(beat, self.now_ms):
            self.topic.append(beat)
