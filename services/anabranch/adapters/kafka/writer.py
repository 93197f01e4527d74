"""Idempotent writer: the implementation of ``ports.LogWriter``.

Why it asks for metadata. librdkafka needs a producer id before its first record. It requests one
when it receives metadata, and otherwise every half second; but a new client's first metadata lets
it replace the bootstrap connection, over which it would have requested the id
(``rdkafka_metadata.c``, ``rdkafka_idempotence.c``, 2.16). So a new client waits half a second, or
one, for nothing. A request for metadata soon after brings the id within milliseconds.

Why a report without an offset is no success. Several batches of a partition are under way at once.
A broker that has just become the partition's leader may refuse the first one, as it does not know
the partition yet, and accept the next: up to Kafka 4.4 it accepts any first sequence number of a
producer that it does not know (KAFKA-15591). From that success librdkafka concludes that the first
batch was written, too, and reports its records as delivered, without an offset
(``rd_kafka_dr_implicit_ack``; confluent-kafka-go 921). They are lost. Where only the answer to the
first batch was lost, the reports are the same, and the records are in the log.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from anabranch.adapters.kafka.client_log import LOGGER
from anabranch.adapters.kafka.errors import Request, is_consequential, translated
from anabranch.adapters.kafka.settings import LEAST_WAIT_S, KafkaSettings, Options
from anabranch.ports import Headers, RecordPosition, TopicPartition
from anabranch.protocol.errors import (
    AnabranchError,
    Fenced,
    LocalProtocolError,
    OutcomeUnknown,
    RecordTooLarge,
)

_SERVE_EVERY: Final = 1_000
"""Records between two calls that serve delivery reports: serving after each record costs more than
sending it.
"""
_FULL_WAIT_S: Final = 0.1
"""Wait for space in a full queue, in s, before the record is offered again."""
_DROP_CHECK_S: Final = 0.5
"""Interval, in s, at which ``flush`` checks whether queued records have become useless."""
_FIRST_WAIT_S: Final = 0.02
"""Wait of a new client for its producer id, in s, before it asks for metadata. Doubles with each
time, up to ``_WAIT_MAX_S``.
"""
_WAIT_MAX_S: Final = 0.5
"""Longest wait for a producer id between two requests for metadata, in s: the interval at which
librdkafka requests the id itself.
"""
_GRACE_S: Final = 5.0
"""Time after the delivery timeout, in s, before ``flush`` gives up on librdkafka, which fails every
record at that timeout.
"""


Report = Callable[[KafkaError | None, Message], None]
"""Delivery callback of a record."""


class _Partition:
    """Delivery reports of one partition since the last flush. They arrive in the order of
    sending.
    """

    __slots__ = ("offsets", "report")

    def __init__(self, failures: list[KafkaError]) -> None:
        self.offsets: list[int | None] = []
        self.report = _reporter(self.offsets, failures)


def _reporter(offsets: list[int | None], failures: list[KafkaError]) -> Report:
    """Return the delivery callback of a partition. It runs for every record, so it does next to
    nothing.
    """
    add = offsets.append

    def report(error: KafkaError | None, message: Message) -> None:
        if error is None:
            add(message.offset())
        else:
            failures.append(error)

    return report


class IdRequests:
    """Requests for metadata that bring a new client its producer id soon."""

    def __init__(self, producer: Producer) -> None:
        """Keep the client. Nothing is requested yet."""
        self._producer = producer
        self._due_s = time.monotonic() + _FIRST_WAIT_S
        self.wait_s = _FIRST_WAIT_S
        """Time between the last request, or the client's start, and the next one, in s."""

    def request_if_due(self, answer_s: float, topic: str | None = None) -> None:
        """Request the metadata of ``topic``, or of all topics that the principal may see, if the
        last request is ``wait_s`` ago, and double ``wait_s``. Waits for the answer for up to
        ``answer_s``; a later one serves as well. A failure is left to the client to report.
        """
        if time.monotonic() < self._due_s:
            return
        with contextlib.suppress(KafkaException):
            if topic is None:
                self._producer.list_topics(timeout=answer_s)
            else:
                self._producer.list_topics(topic, timeout=answer_s)
        self.wait_s = min(2 * self.wait_s, _WAIT_MAX_S)
        self._due_s = time.monotonic() + self.wait_s


class KafkaLogWriter:
    """Idempotent producer. Not thread-safe."""

    def __init__(self, settings: KafkaSettings, options: Options | None = None) -> None:
        """Create the client. Nothing is contacted yet. ``options`` replace those of a plain
        producer.
        """
        chosen: Mapping[str, object] = settings.producer() if options is None else options
        self._give_up_s = settings.delivery_timeout_ms / 1000 + _GRACE_S
        self._sent: list[_Partition] = []
        self._places: list[TopicPartition] = []
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._failures: list[KafkaError] = []
        self._broken: AnabranchError | None = None
        self._fatal: KafkaError | None = None
        self._producer: Producer | None = Producer(dict(chosen), logger=LOGGER)
        self._id_requests: IdRequests | None = IdRequests(self._producer)
        """Watch for the producer id of the client; None once the client has it."""

    def send(
        self,
        at: TopicPartition,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> None:
        """Queue one record. Blocks while the queue is full (backpressure). Errors of the record
        itself are raised by ``flush``.

        Raises:
            OutcomeUnknown, Fenced: an earlier call raised it; open a new writer.
        """
        producer = self._usable()
        report = self._expect(at)
        while True:
            try:
                producer.produce(
                    at.topic,
                    value,
                    key,
                    at.partition,
                    report,
                    timestamp=timestamp_ms or 0,
                    headers=headers if type(headers) is list else list(headers),
                )
            except BufferError:
                self._serve(lambda: producer.poll(_FULL_WAIT_S))
                continue
            except KafkaException as error:
                self._failures.append(error.args[0])
            break
        if len(self._places) % _SERVE_EVERY == 0:
            self._serve(lambda: producer.poll(0))

    def _expect(self, at: TopicPartition) -> Report:
        """Return the delivery callback of a record of ``at`` that is sent next. ``flush`` returns
        its position.
        """
        partition = self._partitions.get(at)
        if partition is None:
            partition = self._partitions[at] = _Partition(self._failures)
        self._places.append(at)
        return partition.report

    def serve(self) -> None:
        """Let the client log the state of its connections. Sends nothing and does not wait."""
        producer = self._producer
        if producer is not None:
            self._serve(lambda: producer.poll(0))

    def flush(self) -> list[RecordPosition]:
        """Wait for everything queued since the last flush; return its positions in the order of
        sending.

        Raises:
            OutcomeUnknown: at least one record may or may not be in the log; the writer must be
                closed and a new one opened.
            Fenced: a newer writer with the same transactional id exists.
            Unavailable: at least one record is certainly not in the log, and no outcome is unknown;
                RecordTooLarge: only because of its size.
        """
        producer = self._usable()
        self._drain(producer)
        waiting = len(producer) if self._fatal is None else 0
        places = self._places
        partitions = self._partitions
        failures = list(self._failures)
        if waiting:
            message = f"{waiting} records have no delivery report after {self._give_up_s:g} s"
            self._broken = OutcomeUnknown(message)
            raise self._broken
        self._places, self._partitions = [], {}
        self._failures.clear()
        if failures or self._fatal is not None:
            raise self._worst_failure(
                failures, {at.topic for at in partitions} | self._other_topics()
            )
        following = {
            at: iter(self._known(at, partition.offsets)) for at, partition in partitions.items()
        }
        return [RecordPosition(at, next(following[at])) for at in places]

    def _known(self, at: TopicPartition, offsets: Sequence[int | None]) -> Sequence[int]:
        """Return ``offsets``, those of delivered records of ``at``, if none is missing.

        Raises:
            OutcomeUnknown: one is; this writer is unusable.
        """
        known = [offset for offset in offsets if offset is not None]
        if len(known) < len(offsets):
            self._broken = OutcomeUnknown(
                f"send to {at.topic}[{at.partition}]: {len(offsets) - len(known)} records were"
                " reported as delivered without an offset, because later ones were delivered; they"
                " may be lost"
            )
            raise self._broken
        return known

    def settled(self) -> bool:
        """Return whether every queued record has its report, or the client has failed
        permanently.

        Raises:
            OutcomeUnknown, Fenced: an earlier call raised it; open a new writer.
        """
        producer = self._usable()
        self._serve(lambda: producer.poll(0))
        self._drop_useless(producer)
        self._hurry(producer, LEAST_WAIT_S)
        return self._fatal is not None or not len(producer)

    def _drain(self, producer: Producer) -> None:
        """Wait for the report of every record, at most until librdkafka has missed its own
        timeout.
        """
        deadline = time.monotonic() + self._give_up_s
        while len(producer) and self._fatal is None and time.monotonic() < deadline:
            wait_s = _DROP_CHECK_S if self._id_requests is None else self._id_requests.wait_s
            self._serve(partial(producer.flush, wait_s))
            self._drop_useless(producer)
            self._hurry(producer, wait_s)

    def _hurry(self, producer: Producer, answer_s: float) -> None:
        """Let a new client get its producer id soon, if a record has waited for that."""
        if self._id_requests is None or not self._places:
            return
        if len(producer):
            self._id_requests.request_if_due(answer_s, self._places[0].topic)
        else:
            self._id_requests = None

    def _drop_useless(self, producer: Producer) -> None:
        """Drop queued records that have become useless. Without a transaction each record counts by
        itself, so none is dropped.
        """

    def close(self) -> None:
        """Drop queued records and close the client. Idempotent."""
        if self._producer is not None:
            producer, self._producer = self._producer, None
            self._discard(producer)

    def _discard(self, producer: Producer) -> None:
        """Drop records that are queued or under way. librdkafka's threads end with the last
        reference to the client.

        Does not call the client's ``close``, which waits without limit until every record has its
        report.
        """
        producer.purge(in_queue=True, in_flight=True)
        self._serve(lambda: producer.flush(0))

    def _usable(self) -> Producer:
        if self._broken is not None:
            raise self._broken
        if self._producer is None:
            message = "the writer was closed"
            raise LocalProtocolError(message)
        return self._producer

    def _other_topics(self) -> set[str]:
        """Return the topics of records that were not sent one by one."""
        return set()

    def _worst_failure(self, failures: list[KafkaError], topics: set[str]) -> AnabranchError:
        """Return the worst failure: fenced before unknown outcome, before certainly not written,
        before too large.
        """
        causes = failures if self._fatal is None else [self._fatal, *failures]
        causes = [cause for cause in causes if not is_consequential(cause)] or causes
        what = f"send to {', '.join(sorted(topics))}, {len(failures)} records failed"
        errors = [translated(cause, Request.SENDING, what) for cause in causes]
        for kind in (Fenced, OutcomeUnknown):
            for error in errors:
                if isinstance(error, kind):
                    self._broken = error
                    return error
        return next((error for error in errors if not isinstance(error, RecordTooLarge)), errors[0])

    def _serve(self, call: Callable[[], object]) -> None:
        """Run ``call``, which serves librdkafka's callbacks. It raises when the client has failed
        permanently, which is noted.
        """
        try:
            call()
        except KafkaException as error:
            self._fatal = error.args[0]
        except SystemError as error:
            # The client sets a fatal error before it calls waiting delivery callbacks; a callback
            # written in C then fails with SystemError.
            if not isinstance(error.__cause__, KafkaException):
                raise
            self._fatal = error.__cause__.args[0]
