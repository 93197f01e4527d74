"""Tests of access rights on a real broker with ``StandardAuthorizer``: each principal can do its
job, and nothing else.

``matrix.txt`` is written by hand, so to speak: it was read line by line and changes only on
purpose. The broker is asked what it would allow, and then everything is really tried.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
)
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AclOperation

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.kafka.settings import KafkaSettings
from anabranch.adapters.system.clock import SystemClock
from anabranch.adapters.system.entropy import SystemEntropy
from anabranch.consistency_manager.service import build as build_manager
from anabranch.delivery.service import build as build_delivery
from anabranch.pipeline.control_topics import control_topics
from anabranch.pipeline.file import load
from anabranch.ports import TopicPartition
from anabranch.protocol.control.records import Heartbeat
from anabranch.protocol.errors import Unavailable
from anabranch.protocol.log.records import EpochStarted
from anabranch.streams.block_writer import BlockWriter
from anabranch.streams.boundary_reader import BoundaryReader
from anabranch.streams.boundary_writer import BoundaryWriter
from anabranch.streams.heartbeats import ControlReader, HeartbeatSender
from harness import outputs, sources
from harness.page_scenes import page_of
from harness.secure_kafka import Secured
from harness.waiting import wait_until

pytestmark = pytest.mark.integration

MATRIX = Path(__file__).parent / "matrix.txt"
DEADLINE_S = 60
LETTERS = {
    AclOperation.READ: "R",
    AclOperation.WRITE: "W",
    AclOperation.DELETE: "X",
    AclOperation.CREATE: "C",
    AclOperation.ALTER: "A",
    AclOperation.DESCRIBE: "d",
    AclOperation.DESCRIBE_CONFIGS: "s",
    AclOperation.ALTER_CONFIGS: "S",
}
"""Letter of each operation that the broker knows on a topic."""
CLOCK, ENTROPY = SystemClock(), SystemEntropy()


def allowed(secured: Secured, principal: str) -> dict[str, str]:
    """Topic -> letters, as the broker says it."""
    client = secured.broker.administrator(principal)
    futures = client.describe_topics(
        TopicCollection(secured.topics), include_authorized_operations=True, request_timeout=20
    )
    found = {}
    for topic, future in futures.items():
        try:
            operations = {
                operation: LETTERS[operation]
                for operation in future.result(timeout=20).authorized_operations
            }
            found[topic] = "".join(
                letter for operation, letter in LETTERS.items() if operation in operations
            )
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise
    return found


def listed(found: dict[str, dict[str, str]]) -> str:
    return "".join(
        f"{who}\n" + "".join(f"  {ops:<6}{topic}\n" for topic, ops in own.items())
        for who, own in found.items()
    )


def matrix() -> dict[str, dict[str, str]]:
    """Principal -> topic -> letters."""
    found: dict[str, dict[str, str]] = {}
    who = ""
    for line in MATRIX.read_text().splitlines():
        if line.startswith("  "):
            letters, topic = line.split()
            found[who][topic] = letters
        else:
            who = line
            found[who] = {}
    return found


def expected(letter: str) -> set[tuple[str, str]]:
    """(principal, topic) that have ``letter`` in the matrix."""
    return {
        (who, topic)
        for who, own in matrix().items()
        for topic, letters in own.items()
        if letter in letters
    }


def test_the_broker_allows_what_the_matrix_says(secured: Secured) -> None:
    found = listed({principal: allowed(secured, principal) for principal in secured.principals})
    if os.environ.get("ANABRANCH_WRITE_TRANSCRIPTS"):
        MATRIX.write_text(found)
    assert found == MATRIX.read_text()


def test_what_the_matrix_never_gives() -> None:
    """The sentences that matter, each over the whole matrix."""
    rights = matrix()
    writers: dict[str, list[str]] = {}
    for who, own in rights.items():
        for topic, letters in own.items():
            has_shards = who == "secure.operator" and topic.endswith(".rejected")
            assert not set(letters) & set("S" if has_shards else "AS"), "nobody else alters topics"
            assert "X" not in letters or (
                who == "secure.consistency_manager"
                and (".blocks." in topic or topic.endswith(".boundaries"))
            ), "only the manager trims, and only blocks and boundary logs"
            assert "C" not in letters or who == "secure.operator", "only the operator makes topics"
            if "W" in letters:
                writers.setdefault(topic, []).append(who)
    for topic, several in writers.items():
        if (
            ".blocks." in topic
            or ".control." in topic
            or topic.startswith("secure-out.")
            or topic.endswith((".progress", ".manager", ".fences"))
        ):
            assert len(several) == 1, f"{topic} has one writer"
    assert writers["secure.manager"] == ["secure.consistency_manager"], "nobody else trims"
    assert writers["secure.fences"] == ["secure.consistency_manager"], "nobody else fences"
    nodes = {
        f"secure.control.processing.{label}": f"secure.processing.{node}"
        for node, labels in load(MATRIX.with_name("pipeline.yaml")).nodes().items()
        for label in labels
    }
    for topic, several in writers.items():
        if topic.startswith("secure.control.") and topic != "secure.control.alarms":
            assert several == [nodes.get(topic, topic.replace(".control", "", 1))], (
                "each says only what it is itself"
            )
    assert writers["secure.totals.boundaries"] == [
        "secure.processing.north.0",
        "secure.processing.north.1",
        "secure.consistency_manager",
    ]
    assert writers["secure.reports.boundaries"] == [
        "secure.ingestion.reports",
        "secure.consistency_manager",
        "secure.operator",
    ]
    north, south = ("reports", "totals", ".out"), ("payments", "audits", ".audit.")
    for who, own in rights.items():
        mine, others = (
            (north, south) if any(word in f"{who}." for word in north) else (south, north)
        )
        if who not in ("secure.consistency_manager", "secure.operator") and any(
            word in f"{who}." for word in mine
        ):
            seen = {
                topic
                for topic, letters in own.items()
                if ".control." not in topic or "W" in letters
            }  # heartbeats are heard by all stages
            assert not [topic for topic in seen if any(word in f"{topic}." for word in others)], (
                f"{who} sees nothing of the others but heartbeats"
            )


# ---------------------------------------------------------------- everybody can do their job


def test_ingestion_delivery_processing_and_the_manager_do_their_jobs(secured: Secured) -> None:
    of, log = secured.pipeline, secured.broker.log
    # Users write, ingestion makes buckets of it.
    producer = log("secure.producer.reports").writer()
    for number in range(40):
        producer.send(
            TopicPartition("secure-in.reports", number % 2),
            sources.report(1_000 + 50 * number, car=number),
        )
    producer.send(TopicPartition("secure-in.reports", 0), b"no record")
    producer.flush()
    producer.close()
    ingestion = sources.service(log("secure.ingestion.reports"), of, CLOCK, ENTROPY)
    ingestion.start()
    # A replica of the stage reads what ingestion wrote ...
    stage = log("secure.processing.north.0")
    view = sources.StreamView(stage, of, CLOCK)
    wait_until(
        outputs.after_step(ingestion, lambda: view.closed() >= 30),
        DEADLINE_S,
        "bucket 30 is not closed",
        every_s=0,
    )
    assert view.cars() == list(range(40))
    view.close()
    assert [
        value
        for chunk in sources.everything(
            log("secure.producer.reports"), "secure-in.reports.rejected"
        )
        for value in chunk.values
    ] == [b"no record"]
    ingestion.stop()
    # ... and writes its own; both hear one another.
    control = ControlReader(stage, control_topics(of))
    sender = HeartbeatSender(
        log("secure.processing.north.1"), of.topic_names.control("processing", "totals.1"), CLOCK
    )
    assert sender.send(Heartbeat("processing", "totals", "1", 1, "running", 1, 0))
    assert wait_until(lambda: control.poll(100), DEADLINE_S, "the other replica is not heard")
    replicas = [
        outputs.Replica(log(f"secure.processing.north.{r}"), of, CLOCK, ENTROPY, r)
        for r in ("0", "1")
    ]
    tables = {bucket: outputs.rows(bucket, 50) for bucket in (1, 3)}
    for replica in replicas:
        replica.close_buckets(4, tables)
    # Delivery, and who reads it.
    delivery = outputs.service(log("secure.delivery.out"), of, CLOCK, ENTROPY)
    delivery.start()
    outputs.drain(delivery, 4)
    replicas[0].show(6, {5: outputs.rows(5, 10)})
    user = log("secure.consumer.out")
    shown = outputs.after_step(
        delivery,
        lambda: [r for _, r in outputs.live_records_of(user, of) if r.kind.value == "tentative"],
    )
    with replicas[0].beating():
        assert len(wait_until(shown, DEADLINE_S, "no tentative record", every_s=0)) == 10
    outputs.until_decided(user, of)
    assert sorted(ident for _, ident, _, _ in outputs.delivered(user, of)) == outputs.ids(
        {1: 50, 3: 50}
    )
    delivery.stop()
    made = outputs.context(
        log("secure.consistency_manager"), of, CLOCK, ENTROPY, "consistency_manager", of.name
    )
    manager = build_manager(made.settings, made)
    manager.start()
    for _ in range(5):
        manager.step()
    manager.stop()
    for replica in replicas:
        replica.close()
    sender.close()
    control.close()


def test_the_page_shows_streams_and_dead_letters_with_its_own_rights(secured: Secured) -> None:
    of, log = secured.pipeline, secured.broker.log
    producer = log("secure.producer.reports").writer()
    producer.send(TopicPartition("secure-in.reports", 0), b"no record either")
    producer.flush()
    producer.close()
    ingestion = sources.service(log("secure.ingestion.reports"), of, CLOCK, ENTROPY)
    ingestion.start()
    with page_of(of, log("secure.dashboard")) as (feed, _):

        def shown() -> dict[str, Any]:
            with feed.page() as page:
                return page.whole(CLOCK.now_ms(), CLOCK.monotonic_ms())

        def letters() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = shown()["rejected"]["reports"]["samples"]
            return found

        samples = wait_until(
            outputs.after_step(ingestion, letters), DEADLINE_S, "no dead letter", every_s=0
        )
        assert samples[0]["from"].startswith("secure-in.reports[0]")
        wait_until(lambda: not shown()["contact"], DEADLINE_S, "it may not read everything")
        heard = outputs.after_step(
            ingestion, lambda: shown()["cards"]["stream reports"]["word"] != "not heard"
        )
        wait_until(heard, DEADLINE_S, "the heartbeats of ingestion", every_s=0)
        assert [event for event in shown()["events"] if event["kind"] == "alarm"] == []
    ingestion.stop()


def test_an_upsert_view_outlives_a_failover(secured: Secured) -> None:
    """The one live topic that its own delivery reads back."""
    log = secured.broker.log("secure.delivery.audit")
    settings = outputs.context(log, secured.pipeline, CLOCK, ENTROPY, "delivery", "audit")
    for _ in range(2):
        delivery = build_delivery(
            settings.settings,
            outputs.context(log, secured.pipeline, CLOCK, ENTROPY, "delivery", "audit"),
        )
        delivery.start()
        for _ in range(3):
            delivery.step()
        delivery.stop()
        assert delivery.status.error is None


# ---------------------------------------------------------------- and nothing else


def test_a_replica_cannot_write_for_another_stream(secured: Secured) -> None:
    """Uses the adapters and the shells, as a faulty process would."""
    names, log = secured.pipeline.topic_names, secured.broker.log("secure.processing.north.0")
    with (
        closing(BlockWriter(log, names.blocks("totals", "1"), "1", 1, ENTROPY)) as blocks,
        pytest.raises(Unavailable, match=r"secure\.totals\.blocks\.1.*may not see it"),
    ):
        blocks.write([(0, 1, outputs.rows(1, 5))])
    with (
        pytest.raises(Unavailable),
        closing(
            BoundaryWriter(
                log,
                names.boundaries("audits"),
                ["0"],
                EpochStarted("0", "f", ENTROPY.token()),
                CLOCK,
            )
        ) as boundaries,
    ):
        boundaries.start()
    with (
        pytest.raises(Unavailable, match="may not see it"),
        closing(BoundaryReader(log, names.boundaries("audits"), ["0"])) as read,
    ):
        read.read_to_end()
    # Its own blocks it may write and not read; those of the peer it does not even see.
    with closing(log.reader()) as reader:
        reader.assign({TopicPartition(names.blocks("totals", "0"), 0): 0})
        with pytest.raises(Unavailable, match="TOPIC_AUTHORIZATION_FAILED"):
            wait_until(lambda: reader.fetch(1, 500), DEADLINE_S, "no answer")
        with pytest.raises(Unavailable, match="may not see it"):
            reader.offsets(TopicPartition(names.blocks("totals", "1"), 0))


def test_nobody_but_its_delivery_fences_a_transactional_id(secured: Secured) -> None:
    ids = {
        f"secure.{output}.{half}": f"secure.delivery.{output}"
        for output in ("out", "audit")
        for half in ("corrected", "live")
    }
    tried = [
        who
        for who in secured.principals
        if who.startswith(
            ("secure.delivery", "secure.processing", "secure.ingestion", "secure.consumer")
        )
    ]
    for ident, owner in ids.items():
        for who in tried:
            log = KafkaEventLog(secured.broker.address, security=secured.broker.by_password(who))
            if who == owner:
                log.transactional_writer(ident).close()
            else:
                with pytest.raises(Unavailable, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
                    log.transactional_writer(ident)


def test_users_have_groups_of_their_own(secured: Secured) -> None:
    options = KafkaSettings(
        secured.broker.address, security=secured.broker.by_password("secure.consumer.out")
    ).consumer(committed=True)

    def joined(group: str) -> bool:
        consumer = Consumer({**options, "group.id": group, "auto.offset.reset": "earliest"})
        consumer.subscribe(["secure-out.totals"])
        try:
            rejected: list[KafkaError] = []

            def is_decided() -> bool:
                errors = [message.error() for message in consumer.consume(1, 0.5)]
                rejected.extend(error for error in errors if error is not None)
                return bool(rejected or consumer.assignment())

            wait_until(is_decided, DEADLINE_S, f"{group} has neither an error nor a partition")
            assert not rejected or rejected[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED
            return not rejected
        finally:
            consumer.close()

    assert joined("secure.consumer.out")
    assert joined("secure.consumer.out.dashboard")
    assert not joined("secure.consumer.out_eu")
    assert not joined("secure.consumer.out_eu.dashboard")
    assert not joined("secure.consumer.audit.dashboard")
    assert not joined("anabranch.unused")


def test_topics_are_neither_made_nor_deleted_nor_trimmed(secured: Secured) -> None:
    for who in secured.principals:
        if who in ("secure.operator", "secure.consistency_manager"):
            continue
        client = secured.broker.administrator(who)
        own = sorted(topic for name, topic in expected("d") if name == who)
        (trimmed,) = client.delete_records(
            [KafkaPartition(own[0], 0, 0)], request_timeout=20
        ).values()
        deleted = client.delete_topics(own, request_timeout=20)
        for future in (trimmed, *deleted.values()):
            with pytest.raises(KafkaException, match="AUTHORIZATION_FAILED"):
                future.result(timeout=20)
    assert set(secured.broker.administrator().list_topics(timeout=20).topics) >= set(secured.topics)


def test_every_write_is_tried(secured: Secured) -> None:
    """Every principal at every topic: garbage, where it may; readers reject that and go on,
    which their own tests show.
    """
    done: set[tuple[str, str]] = set()
    for who in secured.principals:
        left = secured.topics
        # a rejection may fail its neighbours in the producer, too: these are tried again, and each
        # round has a clear answer
        while left:
            answers = written(
                KafkaSettings(secured.broker.address, security=secured.broker.by_password(who)),
                left,
            )
            clear = {
                topic
                for topic, code in answers.items()
                if code in (None, KafkaError.TOPIC_AUTHORIZATION_FAILED)
            }
            assert clear, answers
            done |= {(who, topic) for topic in clear if answers[topic] is None}
            left = [topic for topic in left if topic not in clear]
    assert done == {(who, topic) for who, topic in expected("W") if topic in secured.topics}


def written(settings: KafkaSettings, topics: list[str]) -> dict[str, int | None]:
    """Return the outcome of one record to each topic: None, or the error's code."""
    # Not idempotent: a user who may write nothing at all would be rejected before its first record.
    producer, answers = Producer({**settings.producer(), "enable.idempotence": False}), {}

    def answered(error: KafkaError | None, message: Message) -> None:
        answers[message.topic()] = None if error is None else error.code()

    for topic in topics:
        producer.produce(topic, b"garbage", b"key", 0, answered)
    assert producer.flush(DEADLINE_S) == 0
    return answers


def has_answered(consumer: Consumer, topics: set[str], answers: dict[str, bool]) -> bool:
    """Whether all ``topics`` have been answered; into ``answers``: whether with data or their
    end.
    """
    for message in consumer.consume(1_000, 0.2):
        error = message.error()
        readable = error is None or error.code() == KafkaError._PARTITION_EOF
        assert readable or error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED, error
        answers[message.topic()] = readable
    return topics <= answers.keys()


def readable(secured: Secured, who: str) -> set[tuple[str, str]]:
    """Return (principal, topic) of what ``who`` reads, once the broker has answered for each
    topic.
    """
    settings = KafkaSettings(secured.broker.address, security=secured.broker.by_password(who))
    consumer = Consumer({**settings.consumer(committed=False), "enable.partition.eof": True})
    consumer.assign([KafkaPartition(topic, 0, OFFSET_BEGINNING) for topic in secured.topics])
    answers: dict[str, bool] = {}

    # A topic that it may not even see is never fetched from: its metadata are rejected.
    seen = {topic for name, topic in expected("d") if name == who and topic in secured.topics}
    wait_until(partial(has_answered, consumer, seen, answers), DEADLINE_S, f"{who}: no answer")
    for topic in set(secured.topics) - seen:
        error = consumer.list_topics(topic, timeout=20).topics[topic].error
        assert error is not None
        assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    consumer.close()
    assert answers.keys() == seen
    return {(who, topic) for topic, is_readable in answers.items() if is_readable}


def test_every_read_is_tried(secured: Secured) -> None:
    """By all principals at once: each waits for its answers, topic by topic."""
    principals = secured.principals
    with ThreadPoolExecutor(len(principals)) as pool:
        found = set().union(*pool.map(partial(readable, secured), principals))
    assert found == {(who, topic) for who, topic in expected("R") if topic in secured.topics}


@pytest.fixture(autouse=True)
def _quiet(secured: Secured) -> Iterator[None]:
    """Start the broker before a test's own time begins."""
    yield
    assert secured.broker.alive()
