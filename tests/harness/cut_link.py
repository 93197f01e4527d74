"""A real broker behind a link that is cut at the moment of a chosen write: the writer cannot know
what became of it.

``CutLog`` is an event log over that link. Before the chosen write it cuts one direction: ``FROM``
holds the answers, so the broker has what was written and nobody is told; ``TO`` holds the request,
which arrives when the link is healed, long after its writer gave it up; a reset loses it. The link
is healed as soon as the writer is told that the outcome is unknown: what it writes then meets what
comes late.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.local import drill_links
from anabranch.local.drill_links import Cut, Direction
from anabranch.local.embedded_kafka import EmbeddedKafka
from anabranch.local.embedded_proxy import EmbeddedProxy
from anabranch.local.tcp_ports import LOOPBACK
from anabranch.ports import (
    Headers,
    LogAdmin,
    LogReader,
    LogWriter,
    RecordPosition,
    TopicPartition,
    TransactionalWriter,
)
from anabranch.protocol.errors import AnabranchError
from harness.waiting import wait_until

LABEL = "writer/it"
DELIVERY_TIMEOUT_MS = 1_500
ANSWER_LOST = Cut(Direction.FROM)
REQUEST_LATE = Cut(Direction.TO)
REQUEST_LOST = Cut(reset=True)


class CutBroker:
    """The broker, and the link to it."""

    def __init__(self, state_dir: Path) -> None:
        self._kafka = EmbeddedKafka(state_dir / "kafka", linked=[LABEL])
        self.direct = KafkaEventLog(self._kafka.start())
        self._folder = drill_links.directory_of(state_dir)
        self._proxy = EmbeddedProxy(state_dir, self._kafka.links)
        self._proxy.start()
        self.address = f"{LOOPBACK}:{self._kafka.links[0].port}"

    def log(self) -> CutLog:
        """Return a new log over the link, without planned faults."""
        return CutLog(self)

    def cut(self, wanted: Cut | None) -> None:
        """Cut the link, or heal it."""
        drill_links.want(self._folder, LABEL, wanted)
        wait_until(
            lambda: drill_links.applied(self._folder).get(LABEL) == wanted,
            5,
            "the proxy did it",
            every_s=0.005,
        )

    def stop(self) -> None:
        self._proxy.stop()
        self._kafka.stop()


class CutLog:
    """``ports.EventLog`` whose writers meet the planned cut."""

    def __init__(self, broker: CutBroker) -> None:
        self._broker = broker
        self._log = KafkaEventLog(
            broker.address,
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            request_timeout_ms=1_200,
            transaction_timeout_ms=10_000,
        )
        self._topic = ""
        self._cut = ANSWER_LOST
        self._at_commit = False
        self.unknown: list[str] = []
        """Errors that the writers got."""

    def plan(self, topic: str, cut: Cut, *, at_commit: bool = False) -> None:
        """Cut before the next write to ``topic``; ``at_commit``: before the commit of a
        transaction that has written there, all sent.
        """
        self._topic = topic
        self._cut = cut
        self._at_commit = at_commit

    @property
    def planned(self) -> bool:
        """The cut is still to come."""
        return bool(self._topic)

    def struck(self, topic: str, *, at_commit: bool = False) -> bool:
        """Cut, if it is time to."""
        if not self._topic or topic != self._topic or at_commit is not self._at_commit:
            return False
        self._topic = ""
        self._broker.cut(self._cut)
        return True

    @contextmanager
    def healed_on_errors(self) -> Generator[None]:
        try:
            yield
        except AnabranchError as error:
            self.unknown.append(type(error).__name__)
            self._broker.cut(None)
            raise

    def reader(self, **options: Any) -> LogReader:
        return self._log.reader(**options)

    def writer(self) -> LogWriter:
        return _CutWriter(self, self._log.writer())

    def open_ahead(self, writers: int) -> None:
        self._log.open_ahead(writers)

    def transactional_writer(self, transactional_id: str) -> TransactionalWriter:
        return _CutTransactionalWriter(self, self._log.transactional_writer(transactional_id))

    def admin(self) -> LogAdmin:
        return self._log.admin()


class _CutWriter:
    def __init__(self, log: CutLog, real: LogWriter) -> None:
        self._log, self._real = log, real

    def send(
        self,
        at: TopicPartition,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> None:
        self._log.struck(at.topic)
        self._real.send(at, value, key, headers, timestamp_ms)

    def flush(self) -> list[RecordPosition]:
        with self._log.healed_on_errors():
            return self._real.flush()

    def settled(self) -> bool:
        return self._real.settled()

    def close(self) -> None:
        self._real.close()


class _CutTransactionalWriter(_CutWriter):
    def __init__(self, log: CutLog, real: TransactionalWriter) -> None:
        super().__init__(log, real)
        self._transactions = real
        self._topics: set[str] = set()

    def begin(self) -> None:
        self._topics.clear()
        self._transactions.begin()

    def send_many(
        self,
        topic: str,
        partitions: Sequence[int],
        values: Sequence[bytes],
        keys: Sequence[bytes | None],
        headers: Sequence[Headers],
    ) -> None:
        self._topics.add(topic)
        self._log.struck(topic)
        self._transactions.send_many(topic, partitions, values, keys, headers)

    def commit(self) -> list[RecordPosition]:
        if self._log.planned:
            wait_until(self._transactions.settled, 20, "all records are in the log")
            for topic in sorted(self._topics):
                self._log.struck(topic, at_commit=True)
        with self._log.healed_on_errors():
            return self._transactions.commit()

    def abort(self) -> None:
        self._transactions.abort()
