"""``ports.TransactionalWriter`` over a real Kafka.

librdkafka speaks the old transaction protocol (without KIP-890): a commit or abort that timed out
may still arrive, and may then hit a *later* transaction of the same producer epoch. So after any
call whose outcome is not certain this writer is unusable. The caller opens a new one: that raises
the epoch, which makes the old commit or abort harmless, and reads back what became of its records.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from anabranch.adapters.kafka.errors import Doing, translated
from anabranch.adapters.kafka.settings import KafkaSettings
from anabranch.adapters.kafka.writer import KafkaLogWriter
from anabranch.ports import Delivered, Headers, TopicPartition
from anabranch.protocol.errors import (
    AnabranchError,
    Fenced,
    LocalProtocolError,
    OutcomeUnknown,
    Unavailable,
)

_SERVE_EVERY: Final = 2_000
"""Records of ``send_many`` between two looks at delivery reports."""
_FULL_WAIT_S: Final = 0.1

Reports = dict[KafkaError | None, Message]
"""Of one partition: the last report of each kind; key None: delivered."""


class KafkaTransactionalWriter(KafkaLogWriter):
    """A producer with a transactional id. Not thread-safe."""

    def __init__(self, settings: KafkaSettings, transactional_id: str) -> None:
        """Fences older writers of ``transactional_id`` and aborts what they left open, before it
        returns.

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
            self._settled(
                lambda: producer.init_transactions(settings.request_timeout_ms / 1000),
                f"fail over {transactional_id}",
            )
        except OutcomeUnknown as error:
            # Nothing was sent under this id yet: whether the epoch was raised makes no difference
            # to the caller.
            self.close()
            raise Unavailable(str(error)) from error

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
        self._settled(producer.begin_transaction, "begin")
        self._begun = True

    def send_many(
        self,
        topic: str,
        partitions: Sequence[int],
        values: Sequence[bytes],
        keys: Sequence[bytes | None],
        headers: Sequence[Headers],
    ) -> None:
        """Queue many records of one topic, given as parallel lists. Of them ``commit`` names only
        the last in each partition.

        Much cheaper than ``send`` for each: the delivery callback is a dictionary's own method, so
        no report runs any Python, and the client finds arguments by position sooner than by name.

        Raises:
            OutcomeUnknown, Fenced: an earlier call raised it; open a new writer.
        """
        self._must_be_begun("send")
        producer = self._usable()
        produce = producer.produce
        report = {
            p: self._reports.setdefault(TopicPartition(topic, p), {}).__setitem__
            for p in set(partitions)
        }
        for start in range(0, len(values), _SERVE_EVERY):
            chunk = slice(start, start + _SERVE_EVERY)
            for partition, value, key, head in zip(
                partitions[chunk], values[chunk], keys[chunk], headers[chunk], strict=True
            ):
                while True:
                    try:
                        produce(
                            topic,
                            value,
                            key,
                            partition,
                            report[partition],
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

    def commit(self) -> list[Delivered]:
        """Flush and commit; the places of the records in the order of sending.

        Raises:
            Fenced: a newer writer exists; the transaction was aborted by it.
            OutcomeUnknown: the transaction may be committed, aborted or torn: open a new writer and
                read back.
            Unavailable: a record was rejected, nothing is committed: call ``abort`` and go on.
        """
        self._must_be_begun("commit")
        delivered = self.flush()
        for at, found in self._reports.items():
            last = found.get(None)
            if last is not None:
                delivered.append(Delivered(at, last.offset()))
        self._reports = {}
        producer = self._usable()
        self._settled(lambda: producer.commit_transaction(self._timeout_s), "commit")
        self._begun = False
        return delivered

    def abort(self) -> None:
        """Make what was sent since ``begin`` invisible to committed readers.

        Raises:
            Fenced, OutcomeUnknown: open a new writer; that aborts too.
        """
        self._must_be_begun("abort")
        producer = self._usable()
        # Reports of records that are thrown away say nothing any more: purged ones come as errors.
        self._settled(lambda: producer.abort_transaction(self._timeout_s), "abort")
        self._serve(lambda: producer.flush(0))
        self._places = []
        self._partitions = {}
        self._reports = {}
        self._failures.clear()
        self._begun = False

    def close(self) -> None:
        """As for any writer, after an open transaction was aborted. Where its outcome is open
        already, the next writer of the id settles it.
        """
        if self._begun and self._broken is None and self._producer is not None:
            with contextlib.suppress(AnabranchError):
                self.abort()
        super().close()

    def _drain(self, producer: Producer) -> None:
        """Wait for all reports, then count the failures among those of ``send_many`` as
        failures.
        """
        super()._drain(producer)
        for found in self._reports.values():
            self._failures += [error for error in found if error is not None]

    def _drop_useless(self, producer: Producer) -> None:
        """Once a record has failed its transaction can only be aborted: what is still queued is
        dropped.

        The client does so itself, but once: what is queued at that very moment stays, is never
        sent, and fails with its delivery time-out.
        """
        if len(producer) and (
            self._failures
            or any(error is not None for found in self._reports.values() for error in found)
        ):
            self._serve(lambda: producer.purge(in_queue=True, in_flight=False))

    def _other_topics(self) -> set[str]:
        return {at.topic for at in self._reports}

    def _must_be_begun(self, what: str) -> None:
        self._usable()
        if not self._begun:
            message = f"{what} without begin on {self._transactional_id}"
            raise LocalProtocolError(message)

    def _settled(self, call: Callable[[], object], what: str) -> None:
        """Do ``call``; any end of it that is not certain makes this writer unusable."""
        try:
            call()
        except KafkaException as error:
            cause: KafkaError = error.args[0]
            found = translated(
                self._fatal or cause, Doing.TRANSACTION, f"{what} of {self._transactional_id}"
            )
            if isinstance(found, (Fenced, OutcomeUnknown)):
                self._broken = found
            raise found from error
