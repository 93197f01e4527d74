"""Tests that the broker sends readers of blocks little more than they need, however they take
turns.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator

import pytest

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.kafka.settings import KafkaSettings, Options
from anabranch.adapters.system.clock import SystemClock
from anabranch.codec.catalog import TopicSettings
from anabranch.ports import TopicPartition
from anabranch.streams.range_reader import RangeReader
from harness.waiting import wait_until

pytestmark = pytest.mark.integration

PARTITIONS = 4
WORKERS = 2
PER_PARTITION = 8
IDLE_LOOKS = 2
"""Number of consecutive statistics without a pending request from which a client counts as idle:
between two requests it may report none once.
"""


class Workers:
    """Task workers that read a topic batch by batch. Which of them has which split of a batch
    is a matter of chance.
    """

    def __init__(self, address: str, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.received: dict[int, int] = {}
        """Received bytes by client, as it reports them."""
        self.looks = 0
        self.idle: dict[int, int] = {}
        """Number of consecutive idle reports of each client since ``_since_us``."""
        self._since_us = 0
        real = KafkaSettings.consumer

        def consumer(
            settings: KafkaSettings, *, committed: bool, follows: bool = False, ranges: bool = False
        ) -> Options:
            number = len(self.received)
            self.received[number] = 0

            def take(text: str) -> None:
                statistics = json.loads(text)
                self.received[number] = statistics["rx_bytes"]
                self.looks += 1
                is_idle = not any(
                    each["outbuf_cnt"] or each["waitresp_cnt"]
                    for each in statistics["brokers"].values()
                )
                if statistics["ts"] > self._since_us:
                    self.idle[number] = self.idle.get(number, 0) + 1 if is_idle else 0

            options = real(settings, committed=committed, follows=follows, ranges=ranges)
            return options | {"statistics.interval.ms": 50, "stats_cb": take}  # type: ignore[return-value]

        monkeypatch.setattr(KafkaSettings, "consumer", consumer)
        self.log = KafkaEventLog(address)
        self.topic = topic
        self.rng = random.Random(1)
        self.log.admin().create([TopicSettings(topic, PARTITIONS)])
        self.workers = [RangeReader(self.log, SystemClock(), "s") for _ in range(WORKERS)]
        self.writer = self.log.writer()
        self.needed = self.taken = 0

    def write(self, block_bytes: int) -> None:
        """Write the blocks of one batch."""
        for partition in range(PARTITIONS):
            for _ in range(PER_PARTITION):
                self.writer.send(
                    TopicPartition(self.topic, partition), self.rng.randbytes(block_bytes)
                )
        self.writer.flush()
        self.needed += PARTITIONS * PER_PARTITION * block_bytes

    def read(self, batch: int) -> None:
        """Each split of the batch by one of them."""

        def take(_at: TopicPartition, _offset: int, value: bytes | None, _headers: object) -> None:
            self.taken += len(value or b"")

        for split, worker in enumerate(self.rng.sample(self.workers, WORKERS)):
            mine = [
                TopicPartition(self.topic, partition)
                for partition in range(split, PARTITIONS, WORKERS)
            ]
            first = PER_PARTITION * batch
            worker.read(
                dict.fromkeys(mine, first), dict.fromkeys(mine, first + PER_PARTITION), take
            )
        self._rest()

    def _rest(self) -> None:
        """Until no answer is outstanding, as between two batches of any stage: the broker gives an
        empty one after a while, or what comes meanwhile.
        """
        self.idle.clear()
        self._since_us = time.monotonic_ns() // 1_000  # the clock of librdkafka's ``ts``

        def all_idle() -> bool:
            for worker in self.workers:
                worker._reader.fetch(1, 10)
            return sum(looks >= IDLE_LOOKS for looks in self.idle.values()) == WORKERS

        wait_until(all_idle, 20, lambda: f"idle: {self.idle}", every_s=0)

    def ratio(self) -> float:
        """Bytes received for each that was needed, when nothing more comes."""
        assert self.taken == self.needed

        def all_look() -> bool:
            for worker in self.workers:
                worker._reader.fetch(1, 0)
            return self.looks >= looks + 3 * WORKERS

        looks = self.looks
        wait_until(all_look, 20, "the clients say what they received")
        return sum(self.received.values()) / self.needed


@pytest.fixture
def workers(kafka: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workers]:
    made = Workers(kafka, f"{topic_prefix}blocks", monkeypatch)
    yield made
    for worker in made.workers:
        worker.close()
    made.writer.close()


def test_of_a_live_stream_each_byte_is_sent_once(workers: Workers) -> None:
    for batch in range(20):
        workers.write(20_000)
        workers.read(batch)
    assert workers.ratio() < 1.2  # 2 where everybody stays assigned


def test_of_a_backlog_it_is_little_more(workers: Workers) -> None:
    for _ in range(5):
        workers.write(400_000)
    for batch in range(5):
        workers.read(batch)
    # A read takes 6.4 MB. In vain come at most the client's queue, 4 MiB, and two answers, a block
    # of each of two partitions: so far down however slow the machine is. It is 3 to 9 where
    # everybody stays assigned.
    assert workers.ratio() < 2
