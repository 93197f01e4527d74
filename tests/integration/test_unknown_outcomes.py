"""The answer to a write is lost, or the write comes late: each writer of the system on a real
broker. Nothing twice, nothing lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic

import pytest

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.system.clock import SystemClock
from anabranch.adapters.system.entropy import SystemEntropy
from anabranch.codec import control_records
from anabranch.local.drill_links import Cut
from anabranch.pipeline.model import Pipeline
from anabranch.ports import TopicPartition
from anabranch.protocol.control.records import Heartbeat
from anabranch.streams.heartbeats import ControlWriter, HeartbeatSender
from harness import outputs, sources
from harness.cut_link import ANSWER_LOST, REQUEST_LATE, REQUEST_LOST, CutBroker
from harness.waiting import given_s, wait_until

pytestmark = pytest.mark.integration

DEADLINE_S = 60
CLOCK, ENTROPY = SystemClock(), SystemEntropy()
CUTS = {"answer lost": ANSWER_LOST, "request late": REQUEST_LATE, "request lost": REQUEST_LOST}


def each_way(name: str, **always: str) -> pytest.MarkDecorator:
    """Every write by every cut. ``always``: of each write, the cut with which every run tries
    it; the others run by ``make nightly``.
    """
    cases = [(write, cut) for write in always for cut in CUTS]
    return pytest.mark.parametrize(
        (name, "cut"),
        [
            pytest.param(
                write,
                CUTS[cut],
                id=f"{write} {cut}",
                marks=() if always[write] == cut else pytest.mark.nightly,
            )
            for write, cut in cases
        ],
    )


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CutBroker]:
    made = CutBroker(tmp_path_factory.mktemp("cut"))
    yield made
    made.stop()


def a_while() -> None:
    """Wait a little longer than the interval of heartbeats."""
    begun = monotonic()
    wait_until(lambda: monotonic() - begun > 0.12, 5, "a while")


def visible(broker: CutBroker, of: Pipeline, sizes: dict[int, int]) -> None:
    """Every id once."""
    outputs.until_decided(broker.direct, of)
    found = outputs.delivered(broker.direct, of)
    assert sorted(ident for _, ident, _, _ in found) == outputs.ids(sizes)


@each_way("what", blocks="answer lost", boundaries="request late", dead_letters="request lost")
def test_ingestion(broker: CutBroker, topic_prefix: str, what: str, cut: Cut) -> None:
    """A block is written again as another attempt, a boundary record is looked for in the
    log, a dead letter is at least once.
    """
    log, of = broker.log(), sources.pipeline(topic_prefix)
    sources.create_topics(broker.direct, of)
    (source,), names = of.sources.values(), of.topic_names
    topic = {
        "blocks": names.blocks("reports", "0"),
        "boundaries": names.boundaries("reports"),
        "dead_letters": source.dead_letter,
    }[what]
    service, view = (
        sources.service(log, of, CLOCK, ENTROPY),
        sources.StreamView(broker.direct, of, CLOCK),
    )
    service.start()
    producer = broker.direct.writer()

    def give(first: int, last: int) -> None:
        for number in range(first, last):
            at = TopicPartition(source.topics[0], number % 2)
            producer.send(at, sources.report(1_000 + 10 * number, car=number))
            producer.send(at, b"no record %d" % number)
        producer.flush()

    give(0, 20)
    wait_until(
        outputs.after_step(service, lambda: view.closed() >= 10),
        DEADLINE_S,
        "the first ones",
        every_s=0,
    )
    log.plan(topic, cut)
    give(20, 60)
    wait_until(
        outputs.after_step(service, lambda: view.closed() >= 14),
        DEADLINE_S,
        "those of the unknown outcome",
        every_s=0,
    )
    assert set(log.unknown) == {"OutcomeUnknown"}
    give(60, 100)
    wait_until(
        outputs.after_step(service, lambda: view.closed() >= 18),
        DEADLINE_S,
        "those after it",
        every_s=0,
    )
    closed = view.closed()
    assert view.cars() == [number for number in range(100) if (1_000 + 10 * number) <= closed * 100]
    wanted = {b"no record %d" % number for number in range(100)}

    def dead() -> set[bytes]:
        return {
            value
            for chunk in sources.everything(broker.direct, source.dead_letter)
            for value in chunk.values
            if value
        }

    wait_until(
        outputs.after_step(service, lambda: dead() >= wanted), DEADLINE_S, "all dead letters"
    )
    assert dead() == wanted
    service.stop()
    producer.close()
    view.close()


@pytest.mark.nightly
@each_way("what", blocks="", boundaries="")
def test_processing(broker: CutBroker, topic_prefix: str, what: str, cut: Cut) -> None:
    """The writers of a stage's replica, by what its readers deliver."""
    log, of = broker.log(), outputs.pipeline(topic_prefix)
    outputs.create_topics(broker.direct, of)
    names = of.topic_names
    replica = outputs.Replica(log, of, CLOCK, ENTROPY)
    delivery = outputs.service(broker.direct, of, CLOCK, ENTROPY)
    delivery.start()
    replica.close_buckets(1, {1: outputs.rows(1, 30)})
    log.plan(
        names.blocks(outputs.STAGE, "0") if what == "blocks" else names.boundaries(outputs.STAGE),
        cut,
    )
    replica.close_buckets(3, {2: outputs.rows(2, 30), 3: outputs.rows(3, 10)})
    assert set(log.unknown) == {"OutcomeUnknown"}
    replica.close_buckets(4, {4: outputs.rows(4, 30)})
    outputs.drain(delivery, 4)
    visible(broker, of, {1: 30, 2: 30, 3: 10, 4: 30})
    delivery.stop()
    replica.close()


@each_way("what", records="answer lost", commit="request late")
def test_delivery(broker: CutBroker, topic_prefix: str, what: str, cut: Cut) -> None:
    """A new writer fences the old one, also what of it comes late, and reads back what is there."""
    log, of = broker.log(), outputs.pipeline(topic_prefix)
    outputs.create_topics(broker.direct, of)
    replica = outputs.Replica(broker.direct, of, CLOCK, ENTROPY)
    delivery = outputs.service(log, of, CLOCK, ENTROPY)
    delivery.start()
    replica.close_buckets(1, {1: outputs.rows(1, 30)})
    outputs.drain(delivery, 1)
    log.plan(of.outputs["out"].corrected.topic, cut, at_commit=what == "commit")
    replica.close_buckets(3, {2: outputs.rows(2, 300), 3: outputs.rows(3, 10)})
    outputs.drain(delivery, 3)
    assert not log.planned
    assert set(log.unknown) == {"OutcomeUnknown"}
    replica.close_buckets(4, {4: outputs.rows(4, 30)})
    outputs.drain(delivery, 4)
    visible(broker, of, {1: 30, 2: 300, 3: 10, 4: 30})
    delivery.stop()
    replica.close()


def test_what_is_sent_on_the_control_topic_holds_nobody_up(
    broker: CutBroker, topic_prefix: str
) -> None:
    """Its answers do not come: heartbeats wait for nothing, the manager's word for a second;
    healed, both are heard again.
    """
    of = outputs.pipeline(topic_prefix)
    outputs.create_topics(broker.direct, of)
    topic, log = of.topic_names.manager(), KafkaEventLog(broker.address)
    sender, writer = (
        HeartbeatSender(log, topic, CLOCK, every_ms=100),
        ControlWriter(log, topic, CLOCK),
    )

    def beat(bucket: int) -> Heartbeat:
        return Heartbeat("ingestion", "reports", "0", 1, "running", bucket, 0)

    def heard() -> set[int]:
        entries = [
            control_records.decode(value)
            for chunk in sources.everything(broker.direct, topic)
            for value in chunk.values
        ]
        return {entry.bucket for entry in entries if isinstance(entry, Heartbeat)}

    sender.send(beat(1))
    wait_until(lambda: writer.write([beat(2)]), DEADLINE_S, "the first word")
    wait_until(lambda: heard() == {1, 2}, DEADLINE_S, "both are heard")
    broker.cut(ANSWER_LOST)
    took = []
    for bucket in range(3, 30):
        begun = given_s()
        sender.send(beat(bucket))
        took.append(given_s() - begun)
        a_while()
    begun = given_s()
    assert not writer.write([beat(100)])
    waited = given_s() - begun
    broker.cut(None)
    assert max(took) < 1, took
    assert waited < 3
    for number in range(200, 300):
        sender.send(beat(number))
        if number in heard():
            break
        a_while()
    else:
        pytest.fail("not heard again")
    sender.close()
    writer.close()
