"""Sightings of cars: a producer that keeps to the clock, and what must come of what it wrote."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

from confluent_kafka import KafkaError, Message, Producer

from demo.comparing import Result, result
from demo.oracle import murmur2

TOPIC: Final = "north.sightings"
WINDOW_MS: Final = 1_000
"""Window of the stage, in ms."""
_SEGMENTS, _CARS = 6, 40
_PACE_S: Final = 0.02


class Sighting(NamedTuple):
    """One record."""

    car: int
    segment: int
    speed: int
    time_ms: int

    def value(self) -> bytes:
        """Return the record's value, as JSON."""
        fields = {"car": self.car, "segment": self.segment, "speed": self.speed}
        return json.dumps(fields | {"time": self.time_ms}).encode()


def answer(
    sightings: Iterable[Sighting], last_ms: int, bucket_ms: int, partitions: int
) -> dict[int, list[Result]]:
    """Compute the results of all windows that end by ``last_ms``, by bucket, each at its position,
    with its key and its partition. Shares no code with anabranch.
    """
    windows: dict[tuple[int, int], list[Sighting]] = defaultdict(list)
    for each in sightings:
        windows[(each.time_ms // WINDOW_MS + 1) * WINDOW_MS, each.segment].append(each)
    found: dict[int, list[Result]] = {}
    for (end_ms, segment), seen in sorted(windows.items()):
        if end_ms > last_ms:
            continue
        value = {
            "segment": segment,
            "cars": len({each.car for each in seen}),
            "sightings": len(seen),
            "speeds": sum(each.speed for each in seen),
        }
        key = json.dumps({"segment": segment}, separators=(",", ":")).encode()
        place = (murmur2(key) & 0x7FFFFFFF) % partitions
        found.setdefault(-(-end_ms // bucket_ms), []).append(result(value, end_ms, key, place))
    return found


class Traffic(threading.Thread):
    """Writes sightings as time goes by, until ``stop``. A broker that is away gets them later, each
    once and in order.
    """

    def __init__(self, kafka: str, seed: int, partitions: int, topic: str = TOPIC) -> None:
        super().__init__(name="traffic", daemon=True)
        self._producer = Producer(
            {
                "bootstrap.servers": kafka,
                "enable.idempotence": True,
                "linger.ms": 5,
                "queue.buffering.max.messages": 500_000,
                "log_level": 2,
            }
        )
        self._choice, self._partitions = random.Random(seed), partitions
        self._topic = topic
        self._stopping = threading.Event()
        self._errors: list[KafkaError] = []
        self.sent: list[Sighting] = []
        self.at_once = 1
        """Number of sightings every 20 ms."""

    def run(self) -> None:
        """Until ``stop``."""
        choice, due_s = self._choice, time.monotonic()
        while not self._stopping.is_set():
            for _ in range(self.at_once):
                segment, speed = choice.randrange(_SEGMENTS), choice.randrange(10, 90)
                now_ms = time.time_ns() // 1_000_000
                each = Sighting(choice.randrange(_CARS), segment, speed, now_ms)
                self._producer.produce(
                    self._topic,
                    each.value(),
                    partition=len(self.sent) % self._partitions,
                    on_delivery=self._written,
                )
                self.sent.append(each)
            self._producer.poll(0)
            due_s += _PACE_S
            self._stopping.wait(max(0.0, due_s - time.monotonic()))

    def _written(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._errors.append(error)

    def stop(self) -> list[Sighting]:
        """Stop writing. Return what was written, all of it acknowledged.

        Raises:
            RuntimeError: the broker has not acknowledged all.
        """
        self._stopping.set()
        self.join()
        left = self._producer.flush(60)
        if left or self._errors:
            raise RuntimeError(f"{left} sightings are not acknowledged, errors: {self._errors[:3]}")
        return self.sent
