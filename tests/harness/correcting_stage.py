"""The replicas of one stage around one control topic, in virtual time: nothing but the rules
of ``protocol.stage.scheduling``.
"""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.protocol.control.failure_detector import FailureDetector
from anabranch.protocol.control.records import Heartbeat
from anabranch.protocol.limits import HEARTBEAT_EVERY_MS
from anabranch.protocol.stage.scheduling import OPEN, CorrectionGate, GateReason

STAGE = "tolls"
TICK_MS = 100


@dataclass
class ReplicaProcess:
    """One replica, its place in the topic, and whether it runs; ``bucket`` grows while it
    corrects, as it would.
    """

    gate: CorrectionGate
    detector: FailureDetector
    epoch: int
    position: int
    skew_ms: int = 0
    """Its clock minus that of the world."""
    runs: bool = True
    deaf: bool = False
    """It runs and speaks, but what it reads does not come on."""
    mute: bool = False
    """Whether its heartbeats do not reach the topic."""
    wants: bool = False
    stuck: bool = False
    bucket: int = 0
    last_beat: Heartbeat | None = None
    last_beat_ms: int = 0

    def news(self, beat: Heartbeat, now_ms: int) -> bool:
        """Whether it is time to say ``beat``, as ``streams.heartbeats`` judges it."""
        old = self.last_beat
        changed = old is None or (old.replica_state, old.corrects, old.epoch) != (
            beat.replica_state,
            beat.corrects,
            beat.epoch,
        )
        if self.mute or (not changed and now_ms - self.last_beat_ms < HEARTBEAT_EVERY_MS):
            return False
        self.last_beat, self.last_beat_ms = beat, now_ms
        return True


class CorrectingStage:
    """A stage of some replicas. A process that is not dead reads to the end of the topic,
    decides, and speaks, once in each tick.
    """

    def __init__(self, replicas: int) -> None:
        self.now_ms, self.topic = 1_000_000, list[Heartbeat]()
        self.names = [str(number) for number in range(replicas)]
        self.replicas: dict[str, ReplicaProcess] = {}
        self._epochs = 100
        for name in self.names:
            self.start(name)

    def start(self, name: str) -> None:
        """Start a new process of a replica, on the same machine."""
        self._epochs += 1
        detector = FailureDetector.of_replicas({STAGE: self.names})
        gate = CorrectionGate(STAGE, name, detector)
        skew_ms = self.replicas[name].skew_ms if name in self.replicas else 0
        self.replicas[name] = ReplicaProcess(gate, detector, self._epochs, len(self.topic), skew_ms)

    def kill(self, name: str) -> None:
        """Kill a replica."""
        self.replicas.pop(name, None)

    def stop(self, name: str, *, runs: bool) -> None:
        """Pause a replica, or resume it."""
        self.replicas[name].runs = runs

    def want(self, name: str, wants: bool = True) -> None:
        """Let a replica have something to correct, or have corrected it."""
        replica = self.replicas[name]
        replica.wants = wants
        if not wants:
            replica.gate.done()

    def tick(self, order: list[str] | None = None) -> None:
        """``TICK_MS`` pass; then every process that runs does its round, in ``order``."""
        self.now_ms += TICK_MS
        for name in order or self.names:
            if name in self.replicas and self.replicas[name].runs:
                self._round(name)

    def open(self) -> list[str]:
        """Replicas that correct at full speed, those that are stopped left out."""
        return [
            name
            for name, replica in self.replicas.items()
            if replica.runs and replica.gate.corrects
        ]

    def why(self) -> dict[str, GateReason]:
        """Return the reason of the decision of each running replica."""
        return {
            name: replica.gate.why
            for name, replica in sorted(self.replicas.items())
            if replica.runs
        }

    def _hear(self, name: str) -> None:
        replica = self.replicas[name]
        now_ms = self.now_ms + replica.skew_ms
        for entry in () if replica.deaf else self.topic[replica.position :]:
            replica.detector.receive(entry, now_ms)
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
            "processing",
            STAGE,
            name,
            replica.epoch,
            "running",
            replica.bucket,
            now_ms,
            "stabilization" if replica.wants else "stable",
            corrects=replica.gate.corrects,
        )
        if replica.news(beat, self.now_ms):
            self.topic.append(beat)
