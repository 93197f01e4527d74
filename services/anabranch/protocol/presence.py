"""Who is alive, and what it says of itself: what a reader of the control topic knows about the replicas of one stream.

Theory of operation. A heartbeat is news only when it is heard soon after it was written: the control topic keeps a day of them, and a reader
that starts must not take the dead of yesterday for alive. From then on the time since it was *heard* counts, in observed time, so that
neither clocks that differ nor a pause of this process make the living dead.

Invariants:
    P1  what a lower epoch says is not heard once a higher one was: a zombie cannot speak for its replacement (rule 1).
    P2  a replica is alive for exactly ``FAILURE_AFTER_MS`` of observed time after its last heartbeat was heard.
    P3  a replica that makes no progress stays alive; ``stalled`` says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from anabranch.protocol.control import Heartbeat
from anabranch.protocol.limits import FAILURE_AFTER_MS, HEARTBEAT_LIFETIME_MS


@dataclass(slots=True)
class _Heard:
    beat: Heartbeat
    at: int
    """Observed time when it was heard."""
    progress_at: int
    """Observed time when it was last heard of a new state or bucket."""


class Presence:
    """The replicas of one stream. ``at`` is observed time (``protocol.observed_time``), ``now_ms`` the wall clock."""

    def __init__(self, service: str, name: str, replicas: Iterable[str]) -> None:
        self._service, self._name = service, name
        self.replicas = tuple(sorted(replicas))
        self._heard: dict[str, _Heard] = {}

    def heard(self, beat: Heartbeat, now_ms: int, at: int) -> bool:
        """Take note of a heartbeat; whether it was news of one of these replicas (P1)."""
        if (beat.service, beat.name) != (self._service, self._name) or beat.replica not in self.replicas:
            return False
        if now_ms - beat.written_ms > HEARTBEAT_LIFETIME_MS:
            return False
        before = self._heard.get(beat.replica)
        if before is not None and beat.epoch < before.beat.epoch:
            return False
        progress_at = at if before is None or _doing(before.beat) != _doing(beat) else before.progress_at
        self._heard[beat.replica] = _Heard(beat, at, progress_at)
        return True

    def last(self, replica: str) -> Heartbeat | None:
        """The last heartbeat of a replica, dead or alive."""
        heard = self._heard.get(replica)
        return None if heard is None else heard.beat

    def alive(self, at: int) -> dict[str, Heartbeat]:
        """The last heartbeat of each replica that is alive, in the order of their ids (P2)."""
        return {r: self._heard[r].beat for r in self.replicas if r in self._heard and at - self._heard[r].at < FAILURE_AFTER_MS}

    def stalled(self, replica: str, at: int, limit_ms: int) -> bool:
        """Whether a replica was heard of nothing new for ``limit_ms`` (P3)."""
        heard = self._heard.get(replica)
        return heard is None or at - heard.progress_at >= limit_ms


def _doing(beat: Heartbeat) -> tuple[object, ...]:
    return beat.epoch, beat.replica_state, beat.corrects, beat.bucket, beat.checkpoint_bucket
