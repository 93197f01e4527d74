"""The lesser ports of one process: the index, and a clock that may be wrong."""

from __future__ import annotations

from collections.abc import Mapping

from simulation import workload
from simulation.network import Port
from simulation.scheduler import Scheduler


class SimulatedIndex:
    """``ports.Index`` of one process: a step before each call, and the shared index behind it."""

    def __init__(self, port: Port) -> None:
        self._port, self._index = port, port.network.index

    def put(self, key: str, fields: Mapping[str, str], *, expire_ms: int | None = None) -> None:
        """See the port."""
        self._port.step()
        self._index.put(key, fields, expire_ms=expire_ms)

    def delete(self, key: str) -> None:
        """See the port."""
        self._port.step()
        self._index.delete(key)

    def keys(self, prefix: str) -> list[str]:
        """See the port."""
        self._port.step()
        return self._index.keys(prefix)

    def close(self) -> None:
        """Do nothing: the index is shared."""


class WorldClock:
    """The broker's clock."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def now_ms(self) -> int:
        """Wall clock."""
        return workload.BASE_MS + self._scheduler.now_ms

    def monotonic_ms(self) -> int:
        """Virtual time."""
        return self._scheduler.now_ms

    def sleep_ms(self, duration_ms: int) -> None:
        """Nobody waits on the broker itself."""
        raise AssertionError(f"the broker sleeps {duration_ms} ms")


class SimulatedClock:
    """``ports.Clock`` of one process: its wall clock may be wrong, or run fast or slow; its
    monotonic clock is right.
    """

    def __init__(self, port: Port, epoch_ms: int) -> None:
        self._port, self._epoch_ms = port, epoch_ms
        self.offset_ms = 0
        self.set_ms = 0
        """Displacement by which the wall clock was set, in ms; nothing mends it."""
        self._drift_permille, self._drifts_from_ms = 0, 0

    def drift(self, permille: int) -> None:
        """From now on the wall clock runs fast, or slow; 0: it is right again."""
        self.offset_ms = (
            0 if not permille else self._unset_ms() - self._epoch_ms - self._port.now_ms
        )
        self._drift_permille, self._drifts_from_ms = permille, self._port.now_ms

    def now_ms(self) -> int:
        """Wall clock."""
        return self._unset_ms() + self.set_ms

    def _unset_ms(self) -> int:
        now_ms = self._port.now_ms
        return (
            self._epoch_ms
            + now_ms
            + self.offset_ms
            + (now_ms - self._drifts_from_ms) * self._drift_permille // 1_000
        )

    def monotonic_ms(self) -> int:
        """Virtual time."""
        return self._port.now_ms

    def sleep_ms(self, duration_ms: int) -> None:
        """Wait."""
        self._port.alive()
        self._port.network.scheduler.wait(self._port.now_ms + max(0, duration_ms))
