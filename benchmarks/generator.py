"""Sends readings at a steady rate; their event time is the time for which each is scheduled. A
process of its own.

Prints ``FIRST_SCHEDULED_MS COUNT LATEST_MS`` at the end: LATEST is how late, at most, a record was
handed to the client.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from confluent_kafka import Producer

from benchmarks.workload import INPUT, PARTITIONS, payloads, readings


def times_of(start_ms: int, rate: int, seconds: float) -> np.ndarray:
    """Return the scheduled time of each record, in ms."""
    return start_ms + np.arange(int(rate * seconds), dtype=np.int64) * 1000 // rate


def main() -> int:
    """``python -m benchmarks.generator KAFKA START_MS RATE SECONDS``."""
    kafka = sys.argv[1]
    start_ms = int(sys.argv[2])
    rate = int(sys.argv[3])
    seconds = float(sys.argv[4])
    times = times_of(start_ms, rate, seconds)
    values = payloads(readings(times))
    producer = Producer(
        {
            "bootstrap.servers": kafka,
            "compression.type": "lz4",
            "linger.ms": 5,
            "queue.buffering.max.messages": 500_000,
        }
    )
    latest_ms = 0.0
    number = 0
    while number < len(values):
        now_ms = time.time() * 1000
        if times[number] > now_ms:
            producer.poll(min(0.01, (times[number] - now_ms) / 1000 + 0.002))
            continue
        latest_ms = max(latest_ms, now_ms - times[number])
        while number < len(values) and times[number] <= now_ms:
            producer.produce(INPUT, values[number], partition=number % PARTITIONS)
            number += 1
        producer.poll(0)
    unsent = producer.flush(30)
    print(start_ms, number, round(latest_ms, 1), flush=True)
    return 1 if unsent else 0


if __name__ == "__main__":
    sys.exit(main())
