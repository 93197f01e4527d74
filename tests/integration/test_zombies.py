"""A process is paused at the worst moment, replaced, and wakes: nothing that it then writes is
accepted by anybody. On a real broker.

In one process, at every named point of ingestion and delivery the replacement starts and goes
on; then the older one does. ``tests/spark/test_ha_modes.py`` stops a replica as a whole process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.system.clock import SystemClock
from anabranch.adapters.system.entropy import SystemEntropy
from anabranch.consistency_manager.service import ConsistencyManager
from anabranch.delivery import live as delivery_live
from anabranch.delivery import service as delivery_service
from anabranch.delivery.service import DeliveryService
from anabranch.ingestion import service as ingestion_service
from anabranch.pipeline.control_topics import control_topics
from anabranch.ports import TopicPartition, TransactionalWriter
from anabranch.process.frame import Service
from anabranch.protocol.control import trimming
from anabranch.protocol.control.records import TrimPoint
from anabranch.protocol.edge.live_delivery import Kind
from anabranch.protocol.errors import Fenced
from anabranch.streams.heartbeats import ControlReader
from harness import outputs, sources
from harness.manager_world import started_manager
from harness.outputs import Replica
from harness.waiting import wait_until

pytestmark = pytest.mark.integration

DEADLINE_S = 60
CLOCK, ENTROPY = SystemClock(), SystemEntropy()


def replaced_at(
    monkeypatch: pytest.MonkeyPatch, module: Any, point: str, replacement: Callable[[], None]
) -> list[str]:
    """Have ``replacement`` work when the next process reaches ``point``; the list is empty
    until then.
    """
    reached: list[str] = []

    def at(name: str) -> None:
        if name == point and not reached:
            reached.append(name)
            replacement()

    monkeypatch.setattr(module, "crash_point", at)
    return reached


def woken(zombie: Service, reached: list[str]) -> None:
    """Let it go on until it finds out."""

    def rounds() -> None:
        wait_until(
            outputs.after_step(zombie, lambda: False),
            DEADLINE_S,
            f"the zombie finds out, {reached}",
            every_s=0,
        )

    with pytest.raises(Fenced):
        rounds()
    assert reached


@pytest.mark.parametrize(
    "point",
    [
        "boundary_appended",
        *(
            pytest.param(name, marks=pytest.mark.nightly)
            for name in ("fetched", "decoded", "blocks_written")
        ),
    ],
)
def test_ingestion(
    kafka: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    log, of = KafkaEventLog(kafka), sources.pipeline(topic_prefix)
    sources.create_topics(log, of)
    view, producer = sources.StreamView(log, of, CLOCK), log.writer()
    (topic,) = of.sources["reports"].topics

    def give(first: int, last: int) -> None:
        for number in range(first, last):
            producer.send(
                TopicPartition(topic, number % 2), sources.report(1_000 + 10 * number, car=number)
            )
        producer.flush()

    def closed(by: Service, upto: int) -> None:
        wait_until(
            outputs.after_step(by, lambda: view.closed() >= upto),
            DEADLINE_S,
            f"bucket {upto} is not closed",
            every_s=0,
        )

    older, newer = (sources.service(log, of, CLOCK, ENTROPY) for _ in range(2))

    def fail_over() -> None:
        newer.start()
        give(40, 60)
        closed(newer, 14)

    older.start()
    give(0, 20)
    closed(older, 10)
    reached = replaced_at(monkeypatch, ingestion_service, f"ingestion.{point}", fail_over)
    give(20, 40)
    woken(older, reached)
    before = view.counts.get("accepted", 0)
    give(60, 80)
    woken(older, reached)
    view.closed()
    assert view.counts.get("accepted", 0) == before, (
        "a fenced process that is stepped all the same writes nothing that counts"
    )
    closed(newer, 16)
    upto_ms = view.closed() * 100
    assert view.cars() == [number for number in range(80) if 1_000 + 10 * number <= upto_ms]
    for opened in (older, newer):
        opened.stop()
    producer.close()
    view.close()


def writer_of(of: DeliveryService, half: str) -> TransactionalWriter:
    written_by = of if half == "delivery" else of._live
    assert written_by is not None
    assert written_by._writer is not None
    return written_by._writer


@pytest.mark.parametrize(
    ("half", "point"),
    [
        ("delivery", "progress_sent"),
        ("live", "records_sent"),
        pytest.param("delivery", "records_sent", marks=pytest.mark.nightly),
        pytest.param("delivery", "committed", marks=pytest.mark.nightly),
        pytest.param("live", "progress_sent", marks=pytest.mark.nightly),
        pytest.param("live", "committed", marks=pytest.mark.nightly),
    ],
)
def test_delivery(
    kafka: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch, half: str, point: str
) -> None:
    log, of = KafkaEventLog(kafka), outputs.pipeline(topic_prefix, live=True)
    outputs.create_topics(log, of)
    replica = Replica(log, of, CLOCK, ENTROPY)
    older, newer = (outputs.service(log, of, CLOCK, ENTROPY) for _ in range(2))
    older.start()
    replica.close_buckets(1, {1: outputs.rows(1, 20)})
    outputs.drain(older, 1)

    def fail_over() -> None:
        # Of a writer that is fenced while its records are on their way, the outcome may be unknown.
        wait_until(writer_of(older, half).settled, DEADLINE_S, "its records are in the log")
        newer.start()
        replica.close_buckets(3, {3: outputs.rows(3, 20)})
        outputs.drain(newer, 3)

    reached = replaced_at(
        monkeypatch,
        {"delivery": delivery_service, "live": delivery_live}[half],
        f"{half}.{point}",
        fail_over,
    )
    replica.close_buckets(2, {2: outputs.rows(2, 20)})
    woken(older, reached)
    replica.close_buckets(4, {4: outputs.rows(4, 20)})
    outputs.drain(newer, 4)
    wanted = outputs.ids(dict.fromkeys(range(1, 5), 20))
    outputs.until_decided(log, of)
    assert sorted(ident for _, ident, _, _ in outputs.delivered(log, of)) == wanted
    shown = wait_until(
        outputs.after_step(
            newer,
            lambda: [r.id for _, r in outputs.live_records_of(log, of) if r.kind is Kind.INSERTION][
                len(wanted) - 1 :
            ],
        ),
        DEADLINE_S,
        "all is shown",
    )
    assert len(shown) == 1, "nothing is shown twice"
    for opened in (older, newer):
        opened.stop()
    replica.close()


@pytest.mark.nightly
def test_a_manager(kafka: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Managers may overlap: one that slept speaks of what it has read since, and deletes no
    block that a reader still needs.
    """
    monkeypatch.setattr(trimming, "TRIM_EVERY_MS", 100)
    log, of = KafkaEventLog(kafka), outputs.pipeline(topic_prefix)
    outputs.create_topics(log, of)
    replica, delivery = Replica(log, of, CLOCK, ENTROPY), outputs.service(log, of, CLOCK, ENTROPY)
    delivery.start()
    control = ControlReader(log, control_topics(of))
    points: list[int] = []

    def manager() -> ConsistencyManager:
        return started_manager(log, of, CLOCK, ENTROPY)

    def trimmed(by: ConsistencyManager, upto: int) -> None:
        def reached() -> bool:
            delivery.step()
            points.extend(entry.bucket for entry in control.poll() if isinstance(entry, TrimPoint))
            return bool(points) and points[-1] >= upto

        wait_until(outputs.after_step(by, reached), DEADLINE_S, f"trim point {upto}", every_s=0)

    def give(upto: int) -> None:
        replica.close_buckets(upto, {upto: outputs.rows(upto, 20)})
        outputs.drain(delivery, upto)

    older = manager()
    for upto in range(1, 6):
        give(upto)
    trimmed(older, 3)
    newer = manager()
    for upto in range(6, 16):
        give(upto)
    trimmed(newer, 12)
    newer.stop()
    for _ in range(20):
        older.step()
    for upto in range(16, 20):
        give(upto)
    trimmed(older, 16)
    assert points == sorted(points), "a trim point never goes back"
    assert points[-1] < 19, "what its reader would read again is kept"
    older.stop()
    # Whoever delivers from here finds all that it needs.
    again = outputs.service(log, of, CLOCK, ENTROPY)
    delivery.stop()
    again.start()
    replica.close_buckets(20, {20: outputs.rows(20, 20)})
    outputs.drain(again, 20)
    wanted = outputs.ids(dict.fromkeys(range(1, 21), 20))
    outputs.until_decided(log, of)
    assert sorted(ident for _, ident, _, _ in outputs.delivered(log, of)) == wanted
    again.stop()
    control.close()
    replica.close()
