"""Interpretation of a broker's metadata by the administrator of topics. No broker runs: a fake
client answers.
"""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (
    ClusterMetadata,
    NewPartitions,
    NewTopic,
    PartitionMetadata,
    TopicMetadata,
)

from anabranch.adapters.kafka import admin as under_test
from anabranch.adapters.kafka import request_client
from anabranch.adapters.kafka.admin import KafkaLogAdmin
from anabranch.adapters.kafka.settings import KafkaSettings
from anabranch.codec.catalog import TopicSettings
from anabranch.ports import TopicPartition
from anabranch.protocol.errors import LocalProtocolError, Unavailable


def topic(*leaders: int, error: KafkaError | None = None) -> TopicMetadata:
    found = TopicMetadata()
    found.error, found.partitions = error, {}
    for number, leader in enumerate(leaders):
        partition = PartitionMetadata()
        partition.leader, partition.replicas = leader, [1]
        found.partitions[number] = partition
    return found


class Client:
    """Fake of librdkafka's client that answers with ``topics``."""

    def __init__(self, **topics: TopicMetadata) -> None:
        self.topics = topics
        self.deleted: list[str] = []
        self.has_stopped = False

    def poll(self, _timeout: float) -> int:
        return 0

    def list_topics(self, *_: str, timeout: float) -> ClusterMetadata:
        assert timeout > 0
        if self.has_stopped:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        answer = ClusterMetadata()
        answer.topics, answer.brokers = dict(self.topics), {1: None}
        return answer

    def delete_topics(self, topics: list[str], **_: float) -> dict[str, Any]:
        self.deleted += topics
        for name in topics:
            del self.topics[name]
        return {}


def admin(**topics: TopicMetadata) -> tuple[KafkaLogAdmin, Client]:
    made, client = KafkaLogAdmin(KafkaSettings("nowhere:1")), Client(**topics)
    made._requests._client = client
    return made, client


def test_a_topic_whose_partition_has_no_leader_exists() -> None:
    made, _ = admin(reports=topic(1, -1), fares=topic(1))
    assert made.partitions(["reports", "fares", "other"]) == {"reports": 2, "fares": 1}
    assert made.named("re") == ["reports"]


def test_of_a_topic_with_an_error_it_is_not_known_whether_it_exists() -> None:
    made, _ = admin(reports=topic(error=KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))
    with pytest.raises(Unavailable, match=r"topic reports: .*AUTHORIZATION"):
        made.partitions(["reports"])
    assert made.partitions(["other"]) == {}


def test_a_topic_that_a_broker_lists_without_partitions_is_not_known_to_exist() -> None:
    with pytest.raises(Unavailable, match="topic reports: no partitions"):
        admin(reports=topic())[0].partitions(["reports"])


def test_only_what_the_broker_says_does_not_exist_does_not_exist() -> None:
    made, _ = admin(reports=topic(error=KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
    assert made.partitions(["reports"]) == {}
    assert made.named("re") == []


def test_a_topic_without_leaders_is_deleted_too() -> None:
    made, client = admin(reports=topic(-1))
    made.delete_topics(["reports", "other"])
    assert client.deleted == ["reports"]


def test_records_are_deleted_only_where_every_partition_has_a_leader() -> None:
    made, _ = admin(reports=topic(1, -1))
    with pytest.raises(Unavailable, match="leaders of reports: not every partition has one"):
        made.delete_before({TopicPartition("reports", 0): 3})


class Reader:
    """Fake of a reader. The leaders of more and more partitions answer."""

    def __init__(self) -> None:
        self.led = 0
        self.is_closed = False

    def ends(self, places: Collection[TopicPartition], _wait_ms: int) -> dict[TopicPartition, int]:
        found = {at: 0 for at in places if at.partition < self.led}
        self.led += 1
        return found

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize("is_late", [False, True])
def test_a_new_partition_is_there_when_its_leader_answers(
    monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    """A broker is listed as the leader before it knows of it, and a writer's first records may be
    lost meanwhile.
    """
    made, client = admin(old=topic(1, 1, 1))
    reader, now = Reader(), SimpleNamespace(s=0.0)

    def pause(_: float) -> None:
        now.s += 100 if is_late else 0

    def created(topics: list[NewTopic], **_: float) -> dict[str, Future[Any]]:
        return {each.topic: done(each.topic, each.num_partitions) for each in topics}

    def grown(topics: list[NewPartitions], **_: float) -> dict[str, Future[Any]]:
        return {each.topic: done(each.topic, each.new_total_count) for each in topics}

    def done(name: str, partitions: int) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(None)
        client.topics[name] = topic(*[1] * partitions)
        return future

    monkeypatch.setattr(client, "create_topics", created, raising=False)
    monkeypatch.setattr(client, "create_partitions", grown, raising=False)
    monkeypatch.setattr(under_test, "KafkaLogReader", lambda *_, **__: reader)
    monkeypatch.setattr(under_test, "time", SimpleNamespace(monotonic=lambda: now.s, sleep=pause))
    if is_late:
        with pytest.raises(Unavailable, match="do not answer yet: new"):
            made.create([TopicSettings("new", 2)])
    else:
        made.create([TopicSettings("new", 2)])
        assert reader.led == 3
        made.grow("old", 6)
        assert reader.led == 7
        made.grow("old", 6)
        assert reader.led == 7
    assert reader.is_closed


@pytest.mark.parametrize("call", ["partitions", "delete_before"])
def test_a_client_that_has_long_given_no_answer_is_made_anew(
    monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """It may have forgotten all brokers: then what it trims would grow for ever."""
    made, client = admin(reports=topic(1))
    another, now = Client(reports=topic(1)), SimpleNamespace(s=0.0)
    monkeypatch.setattr(under_test, "AdminClient", lambda _options, logger: another)
    monkeypatch.setattr(request_client, "time", SimpleNamespace(monotonic=lambda: now.s))
    monkeypatch.setattr(another, "delete_records", lambda *_, **__: {}, raising=False)

    def ask() -> None:
        if call == "partitions":
            made.partitions(["reports"])
        else:
            made.delete_before({TopicPartition("reports", 0): 3})

    client.has_stopped = True
    for now.s in (0, 5, 9):
        with pytest.raises(Unavailable):
            ask()
        assert made._requests._client is client
    client.has_stopped = False
    made.partitions(["reports"])
    client.has_stopped = True
    for now.s in (11, 20, 21):
        with pytest.raises(Unavailable):
            ask()
    ask()
    assert made._requests._client is another
    made.close()
    with pytest.raises(LocalProtocolError, match="was closed"):
        ask()


def test_the_identity_of_a_topic_can_name_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client writes ids in an alphabet that has a slash; folders of checkpoints have them."""
    made, client = admin()

    def described(topics: TopicCollection, request_timeout: float) -> dict[str, Future[Any]]:
        del topics
        assert request_timeout > 0
        future: Future[Any] = Future()
        future.set_result(SimpleNamespace(topic_id="53ezAdSGQRGr/G72+MI4A"))
        return {"reports": future}

    monkeypatch.setattr(client, "describe_topics", described, raising=False)
    assert made.topic_ids(["reports"]) == {"reports": "53ezAdSGQRGr_G72-MI4A"}
