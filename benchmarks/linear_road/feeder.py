"""Feeder: writes an input to Kafka by its schedule, and heartbeats that end each second.

Theory of operation. Second ``t`` of the run is due at ``start_ms + 1000 t`` of the wall clock. What
is due is written at once, whatever the system under test does; how late the feeder itself was is
measured. After the lines of a second comes a heartbeat in each partition with the time at which the
second ends, so that the system need not wait for the next one to know that it is over.

The first seconds may be a backlog: they are written as fast as the broker takes them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import polars as pl

from anabranch.adapters.system.clock import SystemClock
from benchmarks.input_writer import InputWriter
from benchmarks.linear_road.stream import INPUT, World

_now_ms: Final = SystemClock().now_ms
TRAFFIC_TOPIC: Final = "linear_road.traffic"
HISTORY_TOPIC: Final = "linear_road.history"

_WITHIN_SECOND_MS: Final = 1
"""Distance of the event time of a line from the beginning of its second, in ms. Neither 0 nor 1000:
windows contain their beginning, buckets their end.
"""
_HISTORY_BEFORE_MS: Final = 60_000
"""How long before the run the event time of the history is, in ms."""
_BACKLOG_SECONDS: Final = 60
"""Seconds of a backlog that are prepared at once: a minute of lines as text fits into memory."""


def event_time_ms(start_ms: int) -> pl.Expr:
    """Return the event time of an input line, in ms since 1970."""
    return pl.lit(start_ms) + pl.col("time").cast(pl.Int64) * 1_000 + _WITHIN_SECOND_MS


@dataclass(frozen=True, slots=True)
class Fed:
    """Size of the input that was fed, and its lateness."""

    lines: int
    behind_max_ms: int
    """Longest time by which the paced part was written later than due, in ms."""
    seconds_behind: int
    """Number of seconds of the paced part that were written more than 100 ms late."""


class Feeder:
    """Writer of one input."""

    def __init__(self, kafka: str, partitions: dict[str, int]) -> None:
        """``partitions`` of each topic, as the broker has them."""
        self._partitions = partitions
        self._writer = InputWriter(kafka, linger_ms=2)

    def feed(
        self,
        world: World,
        start_ms: int,
        backlog_s: int = 0,
        progress: Callable[[int], None] = lambda _: None,
    ) -> Fed:
        """Write the whole input: the first ``backlog_s`` seconds at once, the rest by the schedule.
        ``progress`` gets each second that is written.

        Raises:
            KafkaException: the broker did not take a record.
        """
        self._write_history(world.history, start_ms)
        end_s = int(world.stream["time"][-1]) + 1
        # A heartbeat in front of the run: the history is over.
        self._heartbeat(HISTORY_TOPIC, start_ms + _WITHIN_SECOND_MS)
        written, behind_max_ms, seconds_behind = 0, 0, 0
        for begin in range(0, end_s, _BACKLOG_SECONDS):
            minute = world.stream.filter(
                pl.col("time").is_between(begin, begin + _BACKLOG_SECONDS - 1)
            )
            by_second = _values(minute, start_ms)
            for second in range(begin, min(end_s, begin + _BACKLOG_SECONDS)):
                due_ms = start_ms + second * 1_000
                is_paced = second >= backlog_s
                if is_paced:
                    self._wait(due_ms)
                for vid, value in by_second.get(second, []):
                    self._produce(TRAFFIC_TOPIC, vid, value)
                    written += 1
                # It promises nothing about its own time, so it is that of the next second's lines.
                for topic in (TRAFFIC_TOPIC, HISTORY_TOPIC):
                    self._heartbeat(topic, due_ms + 1_000 + _WITHIN_SECOND_MS)
                self._writer.poll(0)
                if is_paced:
                    behind_ms = _now_ms() - due_ms
                    behind_max_ms = max(behind_max_ms, behind_ms)
                    seconds_behind += behind_ms > 100
                progress(second)
        self._writer.flush()
        return Fed(written, behind_max_ms, seconds_behind)

    def _write_history(self, history: pl.DataFrame, start_ms: int) -> None:
        at = pl.lit(start_ms - _HISTORY_BEFORE_MS + _WITHIN_SECOND_MS).alias("at")
        rows = history.select(at, "vid", "day", "xway", "toll")
        for vid, value in zip(rows["vid"], rows.write_ndjson().splitlines(), strict=True):
            self._produce(HISTORY_TOPIC, vid, value.encode())

    def _wait(self, due_ms: int) -> None:
        while (left_ms := due_ms - _now_ms()) > 0:
            self._writer.poll(min(left_ms, 50) / 1_000)

    def _produce(self, topic: str, vid: int, value: bytes) -> None:
        self._writer.write(topic, vid % self._partitions[topic], value)

    def _heartbeat(self, topic: str, time_ms: int) -> None:
        self._writer.heartbeat(topic, range(self._partitions[topic]), time_ms)


def _values(lines: pl.DataFrame, start_ms: int) -> dict[int, list[tuple[int, bytes]]]:
    """Return (car, record) by second."""
    rows = lines.select(event_time_ms(start_ms).alias("at"), *INPUT)
    found: dict[int, list[tuple[int, bytes]]] = {}
    text = rows.write_ndjson().splitlines()
    for second, vid, value in zip(rows["time"], rows["vid"], text, strict=True):
        found.setdefault(second, []).append((vid, value.encode()))
    return found
