"""Administration of Kafka topics: the implementation of ``ports.LogAdmin``."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import (
    AdminClient,
    ClusterMetadata,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from anabranch.adapters.kafka.client_log import LOGGER
from anabranch.adapters.kafka.errors import (
    UNSEEN,
    Request,
    is_login_rejected,
    is_unanswered,
    no_answer,
    translated,
)
from anabranch.adapters.kafka.reader import KafkaLogReader
from anabranch.adapters.kafka.request_client import RequestClient
from anabranch.adapters.kafka.settings import KafkaSettings
from anabranch.codec.catalog import TopicSettings
from anabranch.codec.topic_rules import differences, too_few_copies
from anabranch.ports import TopicPartition
from anabranch.protocol.errors import DataMissing, LocalProtocolError, Unavailable

_TO_NAME: Final = str.maketrans("+/", "-_")
"""Translation of librdkafka's text of a topic id to Kafka's own, which may name a folder."""
_APPEAR_PAUSE_S: Final = 0.05
"""Pause between two requests for metadata while topics are created or deleted, in s."""
_GRACE_S: Final = 5.0
"""Time after the request timeout, in s, before a call gives up on librdkafka, which then has missed
its own timeout.
"""


def broker_answers(address: str, timeout_s: float) -> bool:
    """Return whether a broker at ``address`` answers a metadata request within ``timeout_s`` and
    names a controller.
    """
    # While a broker starts, each failed connection would be logged as an error.
    silent = logging.getLogger("anabranch.adapters.kafka.unlogged")
    silent.setLevel(logging.CRITICAL + 1)
    client = AdminClient(KafkaSettings(address).administrator(), logger=silent)
    try:
        return bool(client.list_topics(timeout=timeout_s).brokers)
    except KafkaException:
        return False


class KafkaLogAdmin:
    """Administrator of a cluster's topics. Every call asks the broker anew; nothing is cached."""

    def __init__(self, settings: KafkaSettings) -> None:
        """Prepare a client. Nothing is contacted yet."""
        self._settings = settings
        self._rejected: KafkaError | None = None
        self._copies: dict[str, int] = {}
        """Number of copies of each topic, by the last metadata."""
        self._brokers = 0
        """Number of brokers, by the last metadata."""
        self._requests = RequestClient(self._new_client)
        self._is_closed = False
        self._timeout_s = settings.request_timeout_ms / 1000

    def create(self, topics: Sequence[TopicSettings]) -> list[str]:
        """Create the missing ones of ``topics`` and wait until the leaders of their partitions can
        be written to. Return notes for people, as sentences: how existing topics differ from the
        wanted settings, and which new topics have one copy although the cluster could keep more.

        Raises:
            Unavailable: the broker did not answer, rejected the request, or a new topic did not
                appear in time.
        """
        if not topics:
            return []
        wanted = [
            NewTopic(
                t.name,
                num_partitions=t.partitions,
                replication_factor=t.replication,
                config=dict(t.config),
            )
            for t in topics
        ]
        futures = self._open().create_topics(
            wanted, operation_timeout=self._timeout_s, request_timeout=self._timeout_s
        )
        existing: list[TopicSettings] = []
        for topic in topics:
            try:
                self._result(futures[topic.name], f"create topic {topic.name}")
            except _AlreadyThereError:
                existing.append(topic)
        # Until a topic has a leader, a writer would get the error that it is unknown.
        names = {topic.name for topic in topics}
        self._await(
            lambda: _listed(
                "topics were created but have no leader yet", names - self._metadata().led.keys()
            )
        )
        old = {topic.name for topic in existing}
        new = [topic for topic in topics if topic.name not in old]
        self._await_leaders([TopicPartition(t.name, i) for t in new for i in range(t.partitions)])
        made = {topic.name: self._copies[topic.name] for topic in new}
        return [*too_few_copies(made, self._brokers), *self._differences(existing)]

    def partitions(self, topics: Sequence[str]) -> dict[str, int]:
        """Return the number of partitions of each topic that exists; missing topics are left out.

        A topic whose partitions have no leader at the moment exists.

        Raises:
            Unavailable: no answer, or the broker does not say whether a topic exists.
        """
        known = self._metadata()
        for topic in topics:
            if topic in known.unclear:
                message = f"topic {topic}: {known.unclear[topic]}"
                raise Unavailable(message)
        return {topic: known.existing[topic] for topic in topics if topic in known.existing}

    def copies(self, topics: Sequence[str]) -> dict[str, int]:
        """Return the least number of copies that a partition of each topic has, also of those that
        are away at the moment; missing topics are left out.

        Raises:
            Unavailable: no answer, or the broker does not say whether a topic exists.
        """
        existing = self.partitions(topics)
        return {topic: self._copies[topic] for topic in existing}

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """Return the identity of each topic that exists; missing topics are left out, and those
        that this principal may not see.

        Raises:
            Unavailable: no answer.
        """
        if not topics:
            return {}
        futures = self._open().describe_topics(
            TopicCollection(list(topics)), request_timeout=self._timeout_s
        )
        found: dict[str, str] = {}
        for topic, future in futures.items():
            try:
                described = self._result(future, f"identity of topic {topic}", UNSEEN)
            except _NoSuchTopicError:
                continue
            found[topic] = str(described.topic_id).translate(_TO_NAME)
        return found

    def named(self, prefix: str) -> list[str]:
        """Return the topics whose names begin with ``prefix``, of those that this principal may
        see.

        Raises:
            Unavailable: no answer.
        """
        return sorted(topic for topic in self._metadata().names() if topic.startswith(prefix))

    def settings(self, topic: str) -> dict[str, str]:
        """Return the topic's configuration as the broker applies it, defaults included.

        Raises:
            Unavailable: no answer, or no such topic.
        """
        return self._configurations([topic])[topic]

    def grow(self, topic: str, partitions: int) -> None:
        """Add partitions to a topic until it has ``partitions``, and wait until their leaders can
        be written to. Nothing happens if it has as many already.

        Raises:
            Unavailable: the broker did not answer or rejected the request, or they did not appear
                in time.
        """
        before = self.partitions([topic]).get(topic, 0)
        if before >= partitions:
            return
        futures = self._open().create_partitions(
            [NewPartitions(topic, partitions)],
            operation_timeout=self._timeout_s,
            request_timeout=self._timeout_s,
        )
        self._result(futures[topic], f"give topic {topic} {partitions} partitions")
        self._await(
            lambda: (
                f"new partitions of topic {topic} have no leader yet"
                if self._metadata().led.get(topic, 0) < partitions
                else ""
            )
        )
        self._await_leaders([TopicPartition(topic, i) for i in range(before, partitions)])

    def delete_before(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Delete the records below these offsets permanently, for all readers.

        Raises:
            Unavailable: the broker did not answer or rejected the request; some partitions may be
                done.
        """
        if not offsets:
            return
        self._find_leaders({at.topic for at in offsets})
        wanted = [KafkaPartition(at.topic, at.partition, offset) for at, offset in offsets.items()]
        futures = self._open().delete_records(
            wanted, request_timeout=self._timeout_s, operation_timeout=self._timeout_s
        )
        for place, future in futures.items():
            try:
                self._result(
                    future,
                    f"delete records of {place.topic}[{place.partition}] below {place.offset}",
                )
            except DataMissing as error:  # the broker's answer to an offset beyond the end
                raise Unavailable(str(error)) from error

    def delete_topics(self, topics: Sequence[str]) -> None:
        """Delete these topics with all their records, and wait until the cluster no longer lists
        them. A topic that does not exist is ignored.

        Raises:
            Unavailable: the broker did not answer or rejected the request, or one did not vanish in
                time; some may be gone.
        """
        known = self._metadata().names()
        existing = [topic for topic in topics if topic in known]
        if not existing:
            return
        futures = self._open().delete_topics(
            existing, operation_timeout=self._timeout_s, request_timeout=self._timeout_s
        )
        for topic, future in futures.items():
            self._result(future, f"delete topic {topic}")
        self._await(
            lambda: _listed(
                "deleted topics are still there", self._metadata().names() & set(existing)
            )
        )

    def close(self) -> None:
        """Close the client. Idempotent."""
        self._is_closed = True
        self._requests.close()

    def _new_client(self) -> AdminClient:
        options: dict[str, object] = {**self._settings.administrator(), "error_cb": self._on_error}
        return AdminClient(options, logger=LOGGER)

    def _open(self) -> AdminClient:
        """Return the client for a request that is made now."""
        if self._is_closed:
            message = "the administrator of the log was closed"
            raise LocalProtocolError(message)
        return self._requests.client()

    def _note(self, error: KafkaError | None = None) -> None:
        """Note that the last request was answered, or failed with ``error``."""
        if error is None or not is_unanswered(error):  # most errors are answers of a broker
            self._requests.answered()
        else:
            self._requests.unanswered()

    def _on_error(self, error: KafkaError) -> None:
        if is_login_rejected(error):
            self._rejected = error

    def _result(
        self, future: Future[Any], what: str, missing: Collection[int] = frozenset()
    ) -> Any:
        """Return the answer to a request. ``missing``: error codes that mean that the topic does
        not exist.
        """
        try:
            answer = future.result(timeout=self._timeout_s + _GRACE_S)
        except KafkaException as error:
            cause: KafkaError = error.args[0]
            self._note(cause)
            if cause.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                raise _AlreadyThereError from error
            if cause.code() in missing:
                raise _NoSuchTopicError(translated(cause, Request.ASKING, what)) from error
            raise translated(cause, Request.ASKING, what) from error
        except TimeoutError as error:
            self._note(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001
            message = f"{what}: no answer"
            raise Unavailable(message) from error
        self._note()
        return answer

    def _metadata(self) -> _Known:
        """Return the topics that the broker lists.

        Raises:
            Unavailable: no answer.
        """
        client = self._open()
        try:
            answer = client.list_topics(timeout=self._timeout_s)
        except KafkaException as error:
            # A rejected login looks like a broker that does not answer: librdkafka reports the
            # rejection only to the error callback, which ``poll`` calls.
            client.poll(0)
            self._note(error.args[0])
            if self._rejected is None and is_unanswered(error.args[0]):
                raise no_answer(error.args[0], self._settings, self._timeout_s) from error
            raise translated(
                self._rejected or error.args[0], Request.ASKING, "list topics"
            ) from error
        self._note()
        self._rejected = None
        self._brokers = len(answer.brokers)
        self._copies = {
            name: min(
                (len(partition.replicas) for partition in topic.partitions.values()), default=0
            )
            for name, topic in answer.topics.items()
        }
        return _known(answer)

    def _find_leaders(self, topics: Iterable[str]) -> None:
        """Make the client learn the leaders of ``topics``.

        Without this, librdkafka (2.16) looks them up in the caller's thread and in its own at once,
        and may free the request twice.

        Raises:
            Unavailable: no answer, or a partition has no leader.
        """
        for topic in sorted(topics):
            try:
                answer = self._open().list_topics(topic, timeout=self._timeout_s)
            except KafkaException as error:
                self._note(error.args[0])
                raise translated(error.args[0], Request.ASKING, f"leaders of {topic}") from error
            if topic not in _known(answer).led:
                message = f"leaders of {topic}: not every partition has one"
                raise Unavailable(message)

    def _await(self, missing: Callable[[], str]) -> None:
        """Wait until the cluster shows the result of a request. ``missing``: asks it, and returns
        what is still missing, as a message; empty: nothing.

        Raises:
            Unavailable: something is still missing at the timeout.
        """
        deadline = time.monotonic() + self._timeout_s
        while text := missing():
            if time.monotonic() >= deadline:
                raise Unavailable(text)
            time.sleep(_APPEAR_PAUSE_S)

    def _await_leaders(self, places: Sequence[TopicPartition]) -> None:
        """Wait until the leaders of the new partitions ``places`` answer for them. A broker is
        listed as the leader before it knows of it itself, and a producer that writes meanwhile may
        lose its first records without an error (``adapters.kafka.writer``).

        Raises:
            Unavailable: one does not answer in time.
        """
        waiting = set(places)
        if not waiting:
            return
        reader = KafkaLogReader(
            lambda: self._settings, committed=False, headers=False, timestamps=False
        )

        def silent() -> str:
            waiting.difference_update(reader.ends(waiting, round(self._timeout_s * 1000)))
            return _listed(
                "the leaders of new topics do not answer yet", {at.topic for at in waiting}
            )

        with closing(reader):
            self._await(silent)

    def _configurations(self, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        futures = self._open().describe_configs(resources, request_timeout=self._timeout_s)
        found: dict[str, dict[str, str]] = {}
        for resource, future in futures.items():
            entries = self._result(future, f"settings of topic {resource.name}")
            found[resource.name] = {
                name: entry.value for name, entry in entries.items() if entry.value is not None
            }
        return found

    def _differences(self, topics: Sequence[TopicSettings]) -> list[str]:
        """Return how existing topics differ from the wanted settings, as sentences."""
        if not topics:
            return []
        known = self._metadata().existing
        applied = self._configurations([topic.name for topic in topics])
        return [
            line
            for t in topics
            for line in differences(t, known.get(t.name), self._copies.get(t.name), applied[t.name])
        ]


def _listed(what: str, topics: Iterable[str]) -> str:
    """Return ``what`` followed by ``topics``; empty if there are none."""
    names = ", ".join(sorted(topics))
    return f"{what}: {names}" if names else ""


@dataclass(frozen=True, slots=True)
class _Known:
    """Topics of a cluster in one answer of a broker."""

    existing: Mapping[str, int]
    """Number of partitions of each topic that exists, whether these have leaders or not."""
    led: Mapping[str, int]
    """Number of partitions of each topic whose partitions all have a leader. Only these topics can
    be read and written.
    """
    unclear: Mapping[str, str]
    """Error of each topic for which the broker states neither that it exists nor that it
    does not.
    """

    def names(self) -> set[str]:
        """Return the names of all topics that the broker lists."""
        return {*self.existing, *self.unclear}


def _known(answer: ClusterMetadata) -> _Known:
    """Return the topics in ``answer``.

    A topic without a leader exists: its leader is being elected, or its only replica is down.
    Reporting it as missing would make a person correct a name that is right.
    """
    existing: dict[str, int] = {}
    led: dict[str, int] = {}
    unclear: dict[str, str] = {}
    for name, topic in answer.topics.items():
        if topic.partitions:
            existing[name] = len(topic.partitions)
            if topic.error is None and all(p.leader >= 0 for p in topic.partitions.values()):
                led[name] = len(topic.partitions)
        elif topic.error is None or topic.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            unclear[name] = "no partitions" if topic.error is None else str(topic.error)
    return _Known(existing, led, unclear)


class _NoSuchTopicError(Unavailable):
    """Answer of the broker that a topic does not exist, or that this principal may not see it."""


class _AlreadyThereError(Exception):
    """Raised when a topic to be created exists already, which is no error here."""
