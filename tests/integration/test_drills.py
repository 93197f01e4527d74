"""Cuts with a real broker and an ordinary client, and drills on a whole deployment of processes."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.system.clock import SystemClock
from anabranch.codec.catalog import TopicSettings
from anabranch.local import drill_links, state_file
from anabranch.local.drill_links import Cut, Direction, Link
from anabranch.local.drills import Drill
from anabranch.local.embedded_kafka import EmbeddedKafka
from anabranch.local.embedded_proxy import EmbeddedProxy
from anabranch.local.status import rows_of
from anabranch.local.tcp_ports import LOOPBACK
from harness.waiting import given_s, wait_until

pytestmark = pytest.mark.integration

SOURCE = "ingestion/reports_0"
TOPIC = "reports.0"
PARTITIONS = 2
WRITER, READER = "ingestion/a", "delivery/o"
DEADLINE_S = 120


_EXAMPLE = Path(__file__).parents[2] / "examples" / "toll_road" / "pipeline.yaml"


class Linked:
    """A broker, its proxy, a producer behind one link and a consumer behind another."""

    def __init__(self, state_dir: Path) -> None:
        self.broker = EmbeddedKafka(state_dir / "kafka", linked=[WRITER, READER])
        self.direct = self.broker.start()
        self.folder = drill_links.directory_of(state_dir)
        self.proxy = EmbeddedProxy(state_dir, self.broker.links)
        self.proxy.start()
        KafkaEventLog(self.direct).admin().create([TopicSettings("t", 1)])
        self._producer = Producer(
            {
                "bootstrap.servers": self.address(WRITER),
                "linger.ms": 0,
                "enable.idempotence": True,
                "reconnect.backoff.max.ms": 500,
            }
        )
        self.acknowledged: list[int] = []
        self.behind, self.beside = self._consumer(self.address(READER)), self._consumer(self.direct)
        self.seen: list[int] = []
        self.seen_beside: list[int] = []

    def address(self, label: str) -> str:
        link: Link = next(link for link in self.broker.links if link.label == label)
        return f"{LOOPBACK}:{link.port}"

    def _consumer(self, address: str, first: int = OFFSET_BEGINNING) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "unused",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 500,
            }
        )
        consumer.assign([TopicPartition("t", 0, first)])
        return consumer

    def cut(self, label: str, cut: Cut | None) -> None:
        drill_links.want(self.folder, label, cut)
        wait_until(
            lambda: drill_links.applied(self.folder).get(label) == cut,
            DEADLINE_S,
            "the proxy did it",
        )

    def produce(self, *numbers: int) -> None:
        def noted(error: object, message: Message) -> None:
            assert error is None
            self.acknowledged.append(int(message.value() or b""))

        for number in numbers:
            self._producer.produce("t", b"%d" % number, on_delivery=noted)
        self._producer.poll(0)

    def flushed(self, timeout_s: float) -> bool:
        return bool(self._producer.flush(timeout_s) == 0)

    def read(self, timeout_s: float = 0.1) -> list[int]:
        self.seen += [
            int(message.value() or b"")
            for message in self.behind.consume(100, timeout_s)
            if message.error() is None
        ]
        return self.seen

    def read_upto(self, count: int) -> None:
        """After a broker's restart librdkafka may hand over nothing any more (its issue 5153): who
        has heard nothing for 10 s goes on with a new client.
        """
        heard_s = given_s()

        def has_all() -> bool:
            nonlocal heard_s
            before = len(self.seen)
            if len(self.read()) > before:
                heard_s = given_s()
            elif given_s() - heard_s > 10:
                self.behind.close()
                self.behind = self._consumer(self.address(READER), before)
                heard_s = given_s()
            return len(self.seen) >= count

        wait_until(has_all, DEADLINE_S, "all are read")

    def read_beside(self, timeout_s: float = 0.1) -> list[int]:
        self.seen_beside += [
            int(message.value() or b"")
            for message in self.beside.consume(100, timeout_s)
            if message.error() is None
        ]
        return self.seen_beside

    def stop(self) -> None:
        for label in (WRITER, READER):
            self.cut(label, None)
        self.behind.close()
        self.beside.close()
        self.proxy.stop()
        self.broker.stop()


@pytest.fixture
def linked(tmp_path: Path) -> Iterator[Linked]:
    made = Linked(tmp_path)
    yield made
    made.stop()


def test_cut_off_nothing_is_written_or_read_and_healed_nothing_is_lost(linked: Linked) -> None:
    """Both ways, then one way each, then by reset, then with the proxy and the broker killed:
    all records once and in order at the end.
    """
    metadata = linked.behind.list_topics(timeout=DEADLINE_S)
    assert [f"{broker.host}:{broker.port}" for broker in metadata.brokers.values()] == [
        linked.address(READER)
    ], "no way around the link"
    linked.produce(0)
    assert linked.flushed(DEADLINE_S)
    wait_until(lambda: linked.read() == [0], DEADLINE_S, "it passes")
    wait_until(lambda: linked.read_beside() == [0], DEADLINE_S, "and is read beside the link")

    linked.cut(WRITER, Cut())
    linked.produce(1)
    assert not linked.flushed(1.5), "no acknowledgement"
    assert linked.read_beside(1) == [0], "it is not in the log"
    linked.cut(WRITER, None)
    assert linked.flushed(DEADLINE_S)

    linked.cut(READER, Cut())
    linked.produce(2)
    assert linked.flushed(DEADLINE_S), "the other link passes"
    wait_until(lambda: linked.read_beside() == [0, 1, 2], DEADLINE_S, "it is in the log")
    before = len(linked.seen)
    assert len(linked.read(1.5)) - before in {0, 1}, "at most what it had fetched before the cut"
    assert 2 not in linked.seen
    linked.cut(READER, None)
    wait_until(lambda: linked.read() == [0, 1, 2], DEADLINE_S, "it goes on")

    linked.cut(WRITER, Cut(Direction.FROM))
    linked.produce(3)
    assert not linked.flushed(1.5), "no acknowledgement"
    wait_until(lambda: linked.read_beside() == [0, 1, 2, 3], DEADLINE_S, "written all the same")
    linked.cut(WRITER, Cut(Direction.TO, reset=True))
    linked.produce(4)
    assert not linked.flushed(1), "rejected"
    linked.cut(WRITER, None)
    assert linked.flushed(DEADLINE_S)

    linked.proxy.kill()
    linked.produce(5)
    linked.proxy.start()
    assert linked.flushed(DEADLINE_S)
    linked.broker.kill()
    linked.produce(6)
    kept = linked.broker.links
    assert linked.broker.start() == linked.direct
    assert linked.broker.links == kept
    assert linked.flushed(DEADLINE_S)
    linked.read_upto(7)
    assert linked.acknowledged == linked.seen == list(range(7))


def test_a_deployment_with_drills(tmp_path: Path) -> None:
    """The command line's way: a source that is cut off closes no bucket, and closes all that
    it missed once healed; then kill and pause.
    """
    anabranch = [sys.executable, "-m", "anabranch.cli"]
    at = ["--state-dir", str(tmp_path / "state")]
    log = tmp_path / "up.log"
    with log.open("wb") as output:
        up = subprocess.Popen(
            [*anabranch, "up", "-f", str(_EXAMPLE), "--drills", "--only", SOURCE, *at],
            stdout=output,
            stderr=output,
        )
    try:
        wait_until(lambda: up.poll() is not None or "\nready " in log.read_text(), 180, "ready")
        drill = Drill(tmp_path / "state")
        assert {"kafka/kafka", "redis/redis", "proxy/proxy", SOURCE} <= set(drill.labels)
        deployment = state_file.read(tmp_path / "state")
        assert deployment is not None
        # it lasts longer than its broker, and would say so twice a second
        producer = Producer({"bootstrap.servers": deployment.kafka, "log_level": 2})

        def write(*times_ms: int) -> None:
            for time_ms in times_ms:
                for partition in range(PARTITIONS):
                    beat = [("anabranch-heartbeat", b"%d" % time_ms)]
                    producer.produce(TOPIC, None, partition=partition, headers=beat)
            assert producer.flush(DEADLINE_S) == 0

        def row(service: str = "ingestion") -> dict[str, object]:
            return next(
                row for row in rows_of(tmp_path / "state") or [] if row["service"] == service
            )

        def closed_ms() -> int:
            """Return the event time up to which the source is closed; asks again if a slow machine
            does not answer in time.
            """
            return wait_until(
                lambda: found if isinstance(found := row()["last_bucket_ms"], int) else 0,
                DEADLINE_S,
                "it has closed something",
            )

        now_ms = SystemClock().now_ms()
        write(now_ms - 60_000)
        wait_until(lambda: closed_ms() > now_ms - 62_000, DEADLINE_S, "closed")
        assert subprocess.run(
            [*anabranch, "drill", "cut", SOURCE, *at], check=True, capture_output=True, text=True
        ).stdout.startswith("cut ")
        write(now_ms - 40_000)
        before_ms, shown = closed_ms(), row()
        assert (before_ms < now_ms - 60_000, shown["cut"], shown["pid"]) == (
            True,
            "cut off from Kafka",
            shown["pid"],
        )
        drill.pause(SOURCE)
        assert row()["state"] == "paused"
        drill.resume(SOURCE)
        assert closed_ms() == before_ms, "nothing was read"
        drill.heal(SOURCE)
        wait_until(lambda: closed_ms() > now_ms - 42_000, DEADLINE_S, "what it missed is closed")
        killed = drill.kill(SOURCE)
        wait_until(lambda: row()["pid"] not in {None, *killed}, DEADLINE_S, "it is started again")
        write(now_ms - 20_000)
        wait_until(lambda: closed_ms() > now_ms - 22_000, DEADLINE_S, "and goes on")
        for server in ("redis", "kafka"):
            label = f"{server}/{server}"
            drill.pause(label)
            assert row(server)["state"] == "paused"
            drill.resume(label)
            killed = drill.kill(label)
            wait_until(
                lambda: row(server)["pid"] not in {None, *killed},  # noqa: B023
                DEADLINE_S,
                f"{label} is started again",
            )
    finally:
        up.send_signal(signal.SIGTERM)
        up.wait(DEADLINE_S)
