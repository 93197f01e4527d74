"""Streams that share a link, on a real broker: the shares that ``anabranch acls --link`` gives."""

from __future__ import annotations

import random
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from anabranch.access.link_shares import LinkShare
from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.system.clock import SystemClock
from anabranch.adapters.system.java import find_java
from anabranch.cli.acls import quota_commands
from anabranch.codec.catalog import TopicSettings
from anabranch.local.kafka_jars import kafka_classpath
from anabranch.pipeline.topic_names import TopicNames, stream_of_blocks
from anabranch.ports import TopicPartition
from anabranch.streams.range_reader import RangeReader
from harness.kafka import broker

pytestmark = [pytest.mark.integration, pytest.mark.nightly]

NAMES: Final = TopicNames("links")
HEAVY, LIGHT = "heavy", "light"
SHARES: Final = (
    LinkShare(NAMES.block_reader_id(HEAVY), 3, 3 * 1024 * 1024),
    LinkShare(NAMES.block_reader_id(LIGHT), 1, 1024 * 1024),
)
BLOCKS, BLOCK_BYTES = 128, 64 * 1024
WINDOW_S: Final = 12.0
"""Time over which a broker averages, and a little: at first it lets a client have that much."""
MEASURED_S: Final = 30.0
OVERSHOOT: Final = 1.25
"""Factor by which streams together may exceed the rate of the link. A broker counts an answer once
it has sent it, and the pauses come afterwards.
"""
ANSWER_S: Final = 2.0
"""Maximum time for an answer to a reader of boundary logs."""


class Stream(threading.Thread):
    """Reader that has always a backlog of a stream's blocks: it reads the same ones again."""

    def __init__(self, log: KafkaEventLog, stream: str) -> None:
        super().__init__(name=stream)
        topic = NAMES.blocks(stream, "0")
        self.at = TopicPartition(topic, 0)
        self.taken = 0
        self.stopping = threading.Event()
        self._reader = RangeReader(log, SystemClock(), stream_of_blocks(topic))

    def run(self) -> None:
        def take(_at: TopicPartition, _offset: int, value: bytes | None, _headers: object) -> None:
            self.taken += len(value or b"")

        while not self.stopping.is_set():
            self._reader.read({self.at: 0}, {self.at: BLOCKS}, take)
        self._reader.close()


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Yield the address of a broker with blocks of both streams."""
    with broker(tmp_path / "kafka") as found:
        log, rng = KafkaEventLog(found), random.Random(1)
        writer = log.writer()
        for stream in (HEAVY, LIGHT):
            at = TopicPartition(NAMES.blocks(stream, "0"), 0)
            log.admin().create([TopicSettings(at.topic, 1)])
            for _ in range(BLOCKS):
                writer.send(at, rng.randbytes(BLOCK_BYTES))
        writer.flush()
        writer.close()
        yield found


def set_quotas(address: str, folder: Path) -> None:
    """Run what ``anabranch acls --link 4m --commands`` prints, with Kafka's own command."""
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    configs = bin_folder / "kafka-configs.sh"
    classpath = ":".join(map(str, kafka_classpath()))
    java = find_java().executable
    command = f'"{java}" -Xmx128m -cp "{classpath}" kafka.admin.ConfigCommand "$@"'
    configs.write_text(f"#!/bin/sh\nexec {command}\n")
    configs.chmod(0o755)
    (folder / "admin.properties").write_text("")
    script = "\n".join(["set -eu", *quota_commands(SHARES)])
    subprocess.run(
        ["/bin/sh", "-c", script],
        env={
            "PATH": f"{bin_folder}:/usr/bin:/bin",
            "BROKERS": address,
            "ADMIN_CONFIG": str(folder / "admin.properties"),
        },
        check=True,
        timeout=300,
    )


def test_a_starved_link_is_shared_by_weights_and_delays_no_boundary_log(
    address: str, tmp_path: Path
) -> None:
    set_quotas(address, tmp_path)
    log = KafkaEventLog(address)
    streams = [Stream(log, HEAVY), Stream(log, LIGHT)]
    asking = log.reader(committed=False)  # as a reader of boundary logs
    longest_s = 0.0
    for stream in streams:
        stream.start()
    try:
        before: list[int] = []
        begun_s = begun_measuring_s = time.monotonic()
        while (now_s := time.monotonic()) < begun_s + WINDOW_S + MEASURED_S:
            if not before and now_s >= begun_s + WINDOW_S:
                before, begun_measuring_s = [each.taken for each in streams], now_s
            asking.assign({streams[0].at: BLOCKS - 1})
            asked_s = time.monotonic()
            while not asking.fetch(1, 100):
                assert time.monotonic() - asked_s < 60, "no answer"
            longest_s = max(longest_s, time.monotonic() - asked_s)
            streams[0].stopping.wait(0.2)
        lasted_s = time.monotonic() - begun_measuring_s
        rates = [
            (each.taken - first) / lasted_s for each, first in zip(streams, before, strict=True)
        ]
    finally:
        for stream in streams:
            stream.stopping.set()
        for stream in streams:
            stream.join()
        asking.close()
    print(f"bytes per second: {rates}; longest answer: {longest_s:.2f} s")
    whole = sum(share.bytes_per_s for share in SHARES)
    for rate, share in zip(rates, SHARES, strict=True):
        assert rate / sum(rates) == pytest.approx(share.bytes_per_s / whole, rel=0.1)
    assert whole / 2 < sum(rates) < whole * OVERSHOOT
    assert longest_s < ANSWER_S
