"""Division of a node's processor time among the batches that run on it.

Theory of operation. Stages of a node share its cores, and nothing tells how much processor time a
query took: its functions run in processes that serve all queries. But how many batches ran at each
moment is known, and Spark schedules queries fairly. So at each moment every running batch counts as
using an equal share of the cores, and at most one core: a batch of few rows is one task.

A batch of several tasks uses more than that while the cores are idle, and one whose function waits
for another service uses less. Both are measured wrongly by what is stated here.

Invariants:
    CS1 what all batches use between two times is at most the cores times the time between them.
    CS2 a batch that runs alone uses its duration; one of n on fewer cores, an n-th of the cores.
"""

from __future__ import annotations

from typing import Final

from anabranch.protocol.errors import LocalProtocolError

_CORES_MIN: Final = 1


class SharedCores:
    """Processor time of the batches of one node. ``now_ms`` is monotonic. Not thread-safe."""

    def __init__(self, cores: int) -> None:
        """Start with no batch running.

        Raises:
            LocalProtocolError: there are no ``cores``.
        """
        if cores < _CORES_MIN:
            raise LocalProtocolError(f"a node has {cores} cores: at least {_CORES_MIN} is needed")
        self.cores = cores
        self._running: dict[tuple[str, str], float] = {}
        """Processor time of each running batch, by stage and query, in ms."""
        self._total_ms: dict[str, float] = {}
        self._counted_ms: int | None = None

    def began(self, stage: str, query: str, now_ms: int) -> None:
        """Record that ``query`` of ``stage`` has begun a batch."""
        self._count(now_ms)
        self._running[stage, query] = 0.0

    def ended(self, stage: str, query: str, now_ms: int) -> float:
        """Record that the batch of ``query`` has ended. Return its processor time, in ms; 0 if it
        is not known.
        """
        self._count(now_ms)
        return self._running.pop((stage, query), 0.0)

    def dropped(self, stage: str) -> None:
        """Forget the running batches of ``stage``: its replica ended within them."""
        for key in [key for key in self._running if key[0] == stage]:
            del self._running[key]

    def totals_ms(self, now_ms: int) -> dict[str, float]:
        """Return the processor time of each stage so far, in ms."""
        self._count(now_ms)
        return dict(self._total_ms)

    def _count(self, now_ms: int) -> None:
        """Add the time since the last call, divided among the running batches, to their stages."""
        before_ms = now_ms if self._counted_ms is None else self._counted_ms
        self._counted_ms = now_ms
        if not self._running:
            return
        share_ms = (now_ms - before_ms) * min(1.0, self.cores / len(self._running))
        for stage, query in self._running:
            self._running[stage, query] += share_ms
            self._total_ms[stage] = self._total_ms.get(stage, 0.0) + share_ms
