"""Transactional writer: the implementation of ``ports.TransactionalWriter``.

librdkafka uses the old transaction protocol (without KIP-890): a commit or abort that timed out may
still arrive, and may then end a *later* transaction of the same producer epoch. So after any call
whose outcome is uncertain this writer is unusable. The caller opens a new one, which raises the
epoch and so makes the old commit or abort harmless, and reads back what has become of its records.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from anabranch.adapters.kafka.errors import Request, translated
from anabranch.adapters.kafka.settings import KafkaSettings
from anabranch.adapters.kafka.writer import IdRequests, KafkaLogWriter, Report
from anabranch.ports import Headers, RecordPosition, TopicPartition
from anabranch.protocol.errors import (
    AnabranchError,
    Fenced,
    LocalProtocolError,
    OutcomeUnknown,
    Unavailable,
)

_SERVE_EVERY: Final = 2_000
"""Number of records that ``send_many`` sends between two calls that serve delivery reports."""
_FULL_WAIT_S: Final = 0.1
"""Wait for space in a full queue, in s, before the record is offered again."""

Reports = dict[KafkaError | None, Message]
"""Delivery reports of one partition, without that of its first record in the transaction: the last
one of each kind; key None: delivered.
"""


class KafkaTransactionalWriter(KafkaLogWriter):
    """Producer with a transactional id. Not thread-safe."""

    def __init__(self, settings: KafkaSettings, transactional_id: str) -> None:
        """Fence older writers of ``transactional_id`` and abort their open transactions, before
        this returns.

        Raises:
            Unavailable: the broker did not answer in time or rejected it; nothing was written.
        """
        super().__init__(settings, settings.transactional_producer(transactional_id))
        self._transactional_id = transactional_id
        self._timeout_s = min(settings.delivery_timeout_ms, settings.transaction_timeout_ms) / 1000
        self._begun = False
        self._reports: dict[TopicPartition, Reports] = {}
        producer = self._usable()
        try:
            self._finish(
                lambda: self._take_over(producer, settings.request_timeout_ms / 1000),
                f"fail over {transactional_id}",
            )
        except OutcomeUnknown as error:
            # This writer has sent nothing yet, so whether the epoch was raised makes no difference
            # to the caller.
            self.close()
            raise Unavailable(str(error)) from error

    def _take_over(self, producer: Producer, timeout_s: float) -> None:
        """Get the id's next epoch. Waits in short steps, each of which continues the one before,
        and requests metadata between them: then the client does not wait half a second each time
        that it has no connection yet, or that the open transaction is still being aborted.
        """
        deadline = time.monotonic() + timeout_s
        requests = IdRequests(producer)
        while True:
            try:
                producer.init_transactions(requests.wait_s)
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() >= deadline:
                    raise
                requests.request_if_due(requests.wait_s)
            else:
                self._id_requests = None
                return

    def begin(self) -> None:
        """Start a transaction.

        Raises:
            Fenced: a newer writer with the same transactional id exists.
            OutcomeUnknown: open a new writer.
        """
        if self._begun:
            message = f"transaction of {self._transactional_id} begun twice"
            raise LocalProtocolError(message)
        producer = self._usable()
        self._finish(producer.begin_transaction, "begin")
        self._begun = True

    def send_many(
        self,
        topic: str,
        partitions: Sequence[int],
        values: Sequence[bytes],
        keys: Sequence[bytes | None],
        headers: Sequence[Headers],
    ) -> None:
        """Queue many records of one topic, given as parallel lists. ``commit`` reports only the
        first and the last of them in each partition.

        Much cheaper than one ``send`` for each: the delivery callback is a dictionary's own method,
        so that reports run no Python code, and arguments are passed by position, which the client
        parses faster.

        Raises:
            OutcomeUnknown, Fenced: an earlier call raised it; open a new writer.
        """
        self._check_begun("send")
        producer = self._usable()
        produce = producer.produce
        reports = self._reports_of(topic, partitions)
        for start in range(0, len(values), _SERVE_EVERY):
            chunk = slice(start, start + _SERVE_EVERY)
            for partition, value, key, head, report in zip(
                partitions[chunk],
                values[chunk],
                keys[chunk],
                headers[chunk],
                reports[chunk],
                strict=True,
            ):
                while True:
                    try:
                        produce(
                            topic,
                            value,
                            key,
                            partition,
                            report,
                            None,
                            0,
                            head if type(head) is list else list(head),
                        )
                    except BufferError:
                        self._serve(lambda: producer.poll(_FULL_WAIT_S))
                        continue
                    except KafkaException as error:
                        self._failures.append(error.args[0])
                    break
            self._serve(lambda: producer.poll(0))

    def _reports_of(self, topic: str, partitions: Sequence[int]) -> list[Report]:
        """Return the delivery callback of each record of ``topic``, given their partitions.

        The first one that a transaction sends to a partition is reported as those of ``send`` are:
        only the first batch of a producer can be lost without an error
        (``adapters.kafka.writer``).
        """
        callbacks: dict[int, Report] = {}
        firsts: dict[int, Report] = {}
        for partition in set(partitions):
            at = TopicPartition(topic, partition)
            if at not in self._reports:
                firsts[partitions.index(partition)] = self._expect(at)
            callbacks[partition] = self._reports.setdefault(at, {}).__setitem__
        found = [callbacks[partition] for partition in partitions]
        for index, report in firsts.items():
            found[index] = report
        return found

    def commit(self) -> list[RecordPosition]:
        """Flush and commit; return the positions of the records in the order of sending.

        Raises:
            Fenced: a newer writer exists; the transaction was aborted by it.
            OutcomeUnknown: the transaction may be committed, aborted or torn: open a new writer and
                read back.
            Unavailable: a record was rejected and nothing is committed: call ``abort`` and
                continue.
        """
        self._check_begun("commit")
        delivered = self.flush()
        for at, found in self._reports.items():
            last = found.get(None)
            if last is not None:
                delivered.append(RecordPosition(at, last.offset()))
        self._reports = {}
        producer = self._usable()
        self._finish(lambda: producer.commit_transaction(self._timeout_s), "commit")
        self._begun = False
        return delivered

    def abort(self) -> None:
        """Abort the transaction: committed readers never see its records.

        Raises:
            Fenced, OutcomeUnknown: open a new writer; that aborts too.
        """
        self._check_begun("abort")
        producer = self._usable()
        # Reports of aborted records do not matter; those of purged ones arrive as errors. So they
        # are served and dropped here, before the next transaction counts its failures.
        self._finish(lambda: producer.abort_transaction(self._timeout_s), "abort")
        self._serve(lambda: producer.flush(0))
        self._places = []
        self._partitions = {}
        self._reports = {}
        self._failures.clear()
        self._begun = False

    def close(self) -> None:
        """Close the writer after aborting an open transaction. Where the outcome of that is
        uncertain already, the next writer of the id settles it.
        """
        if self._begun and self._broken is None and self._producer is not None:
            with contextlib.suppress(AnabranchError):
                self.abort()
        super().close()

    def _drain(self, producer: Producer) -> None:
        """Wait for all reports, then count the failed ones of ``send_many`` among the failures."""
        super()._drain(producer)
        for found in self._reports.values():
            self._failures += [error for error in found if error is not None]

    def _drop_useless(self, producer: Producer) -> None:
        """Drop queued records once one has failed: their transaction can only be aborted.

        The client does this itself, but only once: records that are queued at that very moment
        stay, are never sent, and fail with the delivery timeout.
        """
        if len(producer) and (
            self._failures
            or any(error is not None for found in self._reports.values() for error in found)
        ):
            self._serve(lambda: producer.purge(in_queue=True, in_flight=False))

    def _other_topics(self) -> set[str]:
        return {at.topic for at in self._reports}

    def _check_begun(self, what: str) -> None:
        self._usable()
        if not self._begun:
            message = f"{what} without begin on {self._transactional_id}"
            raise LocalProtocolError(message)

    def _finish(self, call: Callable[[], object], what: str) -> None:
        """Run ``call``. Any uncertain outcome makes this writer unusable."""
        try:
            call()
        except KafkaException as error:
            cause: KafkaError = error.args[0]
            found = translated(
                self._fatal or cause, Request.TRANSACTION, f"{what} of {self._transactional_id}"
            )
            if isinstance(found, (Fenced, OutcomeUnknown)):
                self._broken = found
            raise found from error
