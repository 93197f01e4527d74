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
from confluent_kafka import KafkaError, KafkaException, Producer

TOPIC: Final = "smart_grid.readings"
HEARTBEAT_HEADER: Final = "anabranch-heartbeat"

_FLUSH_S: Final = 60.0
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
        self._errors: list[KafkaError] = []
        self._producer = Producer(
            {
                "bootstrap.servers": kafka,
                "compression.type": "lz4",
                "linger.ms": 5,
                "log_level": 2,
                "enable.idempotence": True,
                "queue.buffering.max.messages": 1_000_000,
            }
        )

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
                    self._produce(houses[place] % self._partitions, values[place])
                at += count
                # What is repeated in the next second is of this one, and a heartbeat promises
                # nothing about its own time.
                self._heartbeat(second)
                self._producer.poll(0)
                if rate_of is not None:
                    due_s += count / rate_of(second)
                    self._wait(due_s)
                    fed.behind_max_s = max(fed.behind_max_s, _now_s() - due_s)
                fed.written_s[second] = _now_s()
                last = second
                progress(second)
            fed.readings += block.height
        self._heartbeat(last + _END_S)
        self._flush()
        fed.seconds = _now_s() - begun_s
        return fed

    def _heartbeat(self, second: int) -> None:
        for partition in range(self._partitions):
            self._producer.produce(
                TOPIC,
                None,
                partition=partition,
                headers=[(HEARTBEAT_HEADER, str(second * 1_000).encode())],
                on_delivery=self._note_error,
            )

    def _wait(self, due_s: float) -> None:
        while (left_s := due_s - _now_s()) > 0:
            self._producer.poll(min(left_s, 0.05))

    def _produce(self, partition: int, value: bytes) -> None:
        while True:
            try:
                self._producer.produce(
                    TOPIC, value, partition=partition, on_delivery=self._note_error
                )
            except BufferError:  # the queue is full: let some of it go out
                self._producer.poll(0.05)
            else:
                return

    def _note_error(self, error: KafkaError | None, _: object) -> None:
        if error is not None:
            self._errors.append(error)

    def _flush(self) -> None:
        left = self._producer.flush(_FLUSH_S)
        if self._errors:
            raise KafkaException(self._errors[0])
        if left:
            raise KafkaException(
                KafkaError(KafkaError._MSG_TIMED_OUT, f"{left} records are not written")  # noqa: SLF001 - the client's only name for it
            )


def _now_s() -> float:
    return time.time()
