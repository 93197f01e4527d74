"""A whole pipeline on three brokers, each topic in three copies of which two must have a record:
one broker after the other is killed.

Behind ``make cluster-test``: three brokers, Spark and the services take two cores for minutes.
Results must be those of the oracle, each once.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.codec.catalog import topic_settings
from anabranch.local.status import rows_of
from anabranch.pipeline.model import Pipeline
from harness.kafka_cluster import IN_SYNC, KafkaCluster
from harness.stages import write_pipeline
from harness.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.nightly,
    pytest.mark.cluster,
]

PARTITIONS = 2
EVERY_S = 0.01
WINDOW_MS = 500
KEYS = 5
BACK_S = 45
"""Goal for the first new result after the loss of a broker."""
FUNCTIONS = '''
from pyspark.sql import functions as F

def both(a):
    """Rows at once, and a window's when it closes."""
    windows = a.groupBy(F.window("event_time", "500 milliseconds"), "key").agg(
        F.count("*").alias("n")
    )
    windows = windows.select(
        "key",
        F.col("n").alias("value"),
        F.lit(True).alias("counted"),
        F.col("window.end").alias("event_time"),
    )
    return windows.unionByName(
        a.select("key", "value", F.lit(False).alias("counted"), "event_time")
    )
'''


class Traffic:
    """Writes readings on a steady schedule, each with the time that it was due, until told to
    stop.
    """

    def __init__(self, address: str, topic: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "acks": "all",
                "reconnect.backoff.max.ms": 500,
            }
        )
        self._topic, self._stopping = topic, threading.Event()
        self.made: list[tuple[int, int, int]] = []
        """(time, key, value)"""
        self.rejected: list[str] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        start, number = time.monotonic(), 0
        start_ms = int(time.time() * 1_000)
        while not self._stopping.is_set():
            row = (start_ms + int(number * EVERY_S * 1_000), number % KEYS, number)
            self._send(
                number % PARTITIONS,
                json.dumps({"time": row[0], "key": row[1], "value": row[2]}).encode(),
                [],
            )
            self.made.append(row)
            number += 1
            self._stopping.wait(max(0.0, start + number * EVERY_S - time.monotonic()))

    def _send(
        self, partition: int, value: bytes | None, headers: list[tuple[str, str | bytes | None]]
    ) -> None:
        def done(error: object, _: object) -> None:
            if error is not None:
                self.rejected.append(str(error))

        self._producer.produce(
            self._topic, value, partition=partition, headers=headers, on_delivery=done
        )
        self._producer.poll(0)

    def stop(self) -> None:
        """No more; time goes on far enough for the last window to close."""
        self._stopping.set()
        self._thread.join(10)
        for partition in range(PARTITIONS):
            self._send(partition, None, [("anabranch-heartbeat", str(self.made[-1][0] + 60_000))])
        assert self._producer.flush(60) == 0
        assert self.rejected == []

    def expected(self) -> Counter[tuple[int, int, bool]]:
        """(key, value, counted) of every result."""
        windows = Counter((at // WINDOW_MS, key) for at, key, _ in self.made)
        return Counter((key, value, False) for _, key, value in self.made) + Counter(
            (key, n, True) for (_, key), n in windows.items()
        )


class Results:
    """Results that a user of the corrected topic sees, with the time of each."""

    def __init__(self, address: str, topic: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "unused",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "reconnect.backoff.max.ms": 500,
                "fetch.wait.max.ms": 100,
            }
        )
        count = len(self._consumer.list_topics(topic, timeout=20).topics[topic].partitions)
        self._consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(count)])
        self.found: Counter[tuple[int, int, bool]] = Counter()
        self.ids: Counter[bytes] = Counter()
        self.newest = -1

    def read(self) -> int:
        """Take what is there; the highest ``value`` of a plain row."""
        for message in self._consumer.consume(1_000, 0.1):
            if message.error() is not None:
                continue
            row: dict[str, Any] = json.loads(message.value() or b"")
            self.found[row["key"], row["value"], row["counted"]] += 1
            self.ids[bytes(dict(message.headers() or [])["anabranch-id"])] += 1
            if not row["counted"]:
                self.newest = max(self.newest, row["value"])
        return self.newest

    def wait_for(self, value: int, what: str) -> None:
        """Until the plain row with ``value`` is there."""
        wait_until(lambda: self.read() >= value, 180, what)

    def close(self) -> None:
        self._consumer.close()


@contextmanager
def deployed(
    pipeline: Pipeline, cluster: KafkaCluster, folder: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """``anabranch up`` as a user of a cluster runs it."""
    log = folder / "up.log"
    command = [
        sys.executable,
        "-m",
        "anabranch.cli",
        "up",
        "-f",
        str(pipeline.path),
        "--kafka",
        cluster.address,
        "--replication",
        "3",
    ]
    with log.open("wb") as output:
        run = subprocess.Popen(
            [*command, "--state-dir", str(folder / "state")], stdout=output, stderr=output
        )
    try:
        wait_until(lambda: run.poll() is not None or "\nready " in log.read_text(), 180, "ready")
        assert run.poll() is None, log.read_text()
        yield run
    finally:
        run.terminate()
        run.wait(60)


def test_brokers_die_one_after_the_other_and_come_back(topic_prefix: str, tmp_path: Path) -> None:
    pipeline = write_pipeline(
        tmp_path,
        topic_prefix,
        FUNCTIONS,
        stages="s:\n  reads: [a]\n  participant: north\n  transform: MODULE:both\n",
    )
    cluster, names = KafkaCluster(tmp_path), pipeline.topic_names
    (source,) = pipeline.sources.values()
    try:
        log = KafkaEventLog(cluster.start())
        admin = log.admin()
        assert admin.create([topic_settings("input", source.topics[0], PARTITIONS, 3)]) == []
        with deployed(pipeline, cluster, tmp_path) as run:
            for topic in (
                names.boundaries("s"),
                names.blocks("s", "0"),
                names.manager(),
                names.fences(),
                f"{topic_prefix}.out",
            ):
                assert admin.settings(topic)["min.insync.replicas"] == str(IN_SYNC), topic
            traffic, results = (
                Traffic(cluster.address, source.topics[0]),
                Results(cluster.address, f"{topic_prefix}.out"),
            )
            wait_until(lambda: results.read() > 500, 120, "results flow")
            for what in ("__transaction_state", names.boundaries("s"), names.blocks("a", "0")):
                victim = cluster.leader(what)
                victim.kill()
                due, killed = len(traffic.made), time.monotonic()
                results.wait_for(due, f"results of what came after the leader of {what} died")
                print(
                    f"leader of {what}, broker {victim.node}, killed: first new result after"
                    f" {time.monotonic() - killed:.1f} s"
                )
                assert time.monotonic() - killed <= BACK_S
                cluster.start()
                wait_until(cluster.in_sync, 120, "all copies are in sync again")
            traffic.stop()
            expected = traffic.expected()
            wait_until(
                lambda: results.read() and results.found.total() >= expected.total(),
                120,
                f"{expected.total()} results",
            )
            assert (expected - results.found, results.found - expected) == (Counter(), Counter())
            assert set(results.ids.values()) == {1}
            rows = rows_of(tmp_path / "state") or []
            print(
                "restarts:",
                {
                    f"{row['service']}/{row['name']}": row["restarts"]
                    for row in rows
                    if row["restarts"]
                },
            )
            results.close()
            run.terminate()
            assert run.wait(60) == 0
        admin.close()
    finally:
        cluster.stop()
