"""Feeder: writes readings to Kafka, as fast as the broker takes them or at given rates.

Each second of the input ends with a heartbeat in each partition, so that a partition without houses
does not hold back the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

import polars as pl

from benchmarks.input_writer import InputWriter

TOPIC: Final = "smart_grid.readings"

_END_S: Final = 3_600
"""Time of the last heartbeat after the last reading, in seconds: every window's step is over."""


@dataclass(slots=True)
class Fed:
    """Size and times of the input that was written."""

    readings: int = 0
    seconds: float = 0.0
    behind_max_s: float = 0.0
    """Longest time by which a second of the input was written later than its rate asks."""
    written_s: dict[int, float] = field(default_factory=dict)
    """Wall clock at which all readings of a second of the input were written, in seconds."""


class Feeder:
    """Writer of one input."""

    def __init__(self, kafka: str, partitions: int) -> None:
        self._partitions = partitions
        self._writer = InputWriter(kafka, linger_ms=5)

    def feed(
        self,
        blocks: Iterable[pl.DataFrame],
        rate_of: Callable[[int], float] | None = None,
        progress: Callable[[int], None] = lambda _: None,
    ) -> Fed:
        """Write the input, and a heartbeat that ends it. ``rate_of`` gives the readings per second
        of the wall clock for a second of the input; None: no limit. ``progress`` gets each
        second that is written.

        Raises:
            KafkaException: the broker did not take a record.
        """
        fed, last = Fed(), 0
        begun_s = due_s = _now_s()
        for block in blocks:
            arrivals = block["timestamp"].cum_max()
            values = block.write_ndjson().encode().splitlines()
            houses = block["house_id"].to_list()
            places = arrivals.rle_id()
            seconds = arrivals.unique(maintain_order=True).to_list()
            counts = places.value_counts().sort(places.name)["count"].to_list()
            at = 0
            for second, count in zip(seconds, counts, strict=True):
                for place in range(at, at + count):
                    self._writer.write(TOPIC, houses[place] % self._partitions, values[place])
                at += count
                # What is repeated in the next second is of this one, and a heartbeat promises
                # nothing about its own time.
                self._heartbeat(second)
                self._writer.poll(0)
                if rate_of is not None:
                    due_s += count / rate_of(second)
                    self._wait(due_s)
                    fed.behind_max_s = max(fed.behind_max_s, _now_s() - due_s)
                fed.written_s[second] = _now_s()
                last = second
                progress(second)
            fed.readings += block.height
        self._heartbeat(last + _END_S)
        self._writer.flush()
        fed.seconds = _now_s() - begun_s
        return fed

    def _heartbeat(self, second: int) -> None:
        self._writer.heartbeat(TOPIC, range(self._partitions), second * 1_000)

    def _wait(self, due_s: float) -> None:
        while (left_s := due_s - _now_s()) > 0:
            self._writer.poll(min(left_s, 0.05))


def _now_s() -> float:
    return time.time()
