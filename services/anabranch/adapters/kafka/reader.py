"""``ports.LogReader`` over a real Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import groupby
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from anabranch.adapters.kafka.client_log import LOGGER
from anabranch.adapters.kafka.end_offsets import EndOffsets
from anabranch.adapters.kafka.errors import (
    Doing,
    ends_reading,
    names_nobody,
    says_missing,
    translated,
)
from anabranch.adapters.kafka.settings import FOLLOWER_WAIT_MS, KafkaSettings, Options
from anabranch.ports import Chunk, Headers, TopicPartition
from anabranch.protocol.errors import AnabranchError, LocalProtocolError

_RECORDS_PER_CALL: Final = 2_048
"""Records taken from librdkafka at a time: their wrappers stay in the processor's cache until they
are unpacked. 8 192 at a time took a tenth longer per record, 50 000 nearly twice as long.
"""

_ELECTING: Final = frozenset(
    {KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError._NO_OFFSET}  # noqa: SLF001
)
"""Passes by itself: a partition without a leader for a moment, as every new one is."""

_ELECTION_PAUSE_S: Final = 0.05

_STALE_S: Final = 1.0
_STALE_FETCHES: Final = 10
"""After so long, and so many fetches, a position that is the one from before the assignment was
come to anew: by then librdkafka has long worked on the assignment, even where this process stood
still. Else a partition that ends in what nobody is shown would never seem read to its end.
"""

_SILENCE_S: Final = 10.0
"""After so long without a record the reader asks the broker whether there are any. If so twice in a
row, or if no answer comes either time, and no record came in between, the client has stopped.
"""

_SILENCE_ASK_MS: Final = 2 * FOLLOWER_WAIT_MS
"""For so long at most the answer is waited for: who reads several logs in turn waits with it. The
question stands behind a fetch that the broker may keep for half of it; one that is given up closes
the connection.
"""


class KafkaLogReader:
    """Reads hand-assigned partitions. Not thread-safe."""

    def __init__(
        self,
        settings: Callable[[], KafkaSettings],
        *,
        committed: bool,
        headers: bool,
        timestamps: bool = True,
        follows: bool = False,
        ranges: bool = False,
    ) -> None:
        """Nothing is contacted yet. ``settings``: of a client that is made now."""
        self._options: Callable[[], Options] = lambda: settings().consumer(
            committed=committed, follows=follows, ranges=ranges
        )
        self._headers, self._timestamps = headers, timestamps
        self._timeout_s = settings().request_timeout_ms / 1000
        self._assigned: dict[TopicPartition, int] = {}
        self._known: set[TopicPartition] = set()
        """Whatever was ever assigned: librdkafka may still know a position in it."""
        self._stale: dict[TopicPartition, int] = {}
        """Position from before the last assignment: for a moment after it librdkafka still
        gives that one.
        """
        self._assigned_s, self._fetches = 0.0, 0
        """When that was, and the fetches since."""
        self._heard_s = 0.0
        """When a record came, or the reader asked the broker why none does."""
        self._behind: dict[TopicPartition, int] = {}
        """Position of each partition that had more to read at the last question to the broker, or
        of which no answer came.
        """
        self._ended: set[TopicPartition] = set()
        """Partitions of which an error ended the reading: what stands behind it is not handed
        over.
        """
        self._assign_again = False
        """librdkafka has stopped fetching a partition because of what was true before the
        assignment.
        """
        self._ends = EndOffsets()
        self._follows = follows
        self._looker: Consumer | None = None
        """See ``_asking``."""
        self._one_topic, self._topic = False, ""
        self._failure: AnabranchError | None = None
        self._reached = False
        self._consumer: Consumer | None = self._new_consumer()

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read exactly these partitions from these offsets on. Replaces an earlier
        assignment, also one that failed.
        """
        consumer = self._open()
        self._failure = None
        self._assign_again = False
        self._stale = {at: self._given_position(at) for at in positions if at in self._known}
        self._assigned = dict(positions)
        self._known |= positions.keys()
        self._assigned_s = self._heard_s = time.monotonic()
        self._fetches = 0
        self._behind.clear()
        self._ended.clear()
        topics = {at.topic for at in positions}
        self._one_topic, self._topic = len(topics) == 1, min(topics, default="")
        consumer.assign(
            [KafkaPartition(at.topic, at.partition, offset) for at, offset in positions.items()]
        )

    def fetch(self, records_max: int, wait_ms: int) -> list[Chunk]:
        """What is there, at most ``records_max`` records; waits up to ``wait_ms`` for the first
        only. One chunk per partition.

        Raises:
            DataMissing: an assigned offset does not exist, or a record does not match its checksum.
                Assign anew to go on.
            Unavailable: the broker rejects the request, or a topic does not exist.
        """
        consumer = self._open()
        if self._failure is not None:
            raise self._failure
        self._fetches += 1
        # ``consume(n, timeout)`` would wait out its whole time-out unless n records came: so wait
        # for one, then take what is there.
        try:
            first = consumer.poll(wait_ms / 1000)
        except KafkaException as error:  # only where the client as a whole has failed for good
            self._failure = translated(error.args[0], Doing.FETCHING, "read")
            raise self._failure from error
        chunks: dict[TopicPartition, Chunk] = {}
        taken = 0
        if first is not None:
            taken = 1
            messages = [first]
            while taken < records_max:
                more = consumer.consume(min(records_max - taken, _RECORDS_PER_CALL), 0)
                taken += len(more)
                messages += more
                if len(more) < _RECORDS_PER_CALL:
                    break
                self._unpack(messages, chunks)
                messages = []
            self._unpack(messages, chunks)
        if self._assign_again and self._failure is None:
            self.assign(self._positions())
        if chunks:
            self._reached = True
            self._heard_s = time.monotonic()
            self._behind.clear()
        elif self._failure is not None:
            raise self._failure
        elif time.monotonic() - self._heard_s >= _SILENCE_S:
            self._look_after_silence()
        return list(chunks.values())

    def position(self, at: TopicPartition) -> int:
        """The next offset that ``fetch`` returns; past records that are not shown (aborted,
        control) too.

        Raises:
            LocalProtocolError: ``at`` is not assigned.
            DataMissing, Unavailable: an error ended the reading of it, as ``fetch`` says from now
            on.
        """
        if at not in self._assigned:
            message = f"{at} is not assigned to this reader"
            raise LocalProtocolError(message)
        if at in self._ended and self._failure is not None:
            raise self._failure
        given = self._given_position(at)
        if given == self._stale.get(at) and (
            self._fetches < _STALE_FETCHES or time.monotonic() - self._assigned_s < _STALE_S
        ):
            return self._assigned[at]
        self._stale.pop(at, None)
        return max(given, self._assigned[at])  # negative before the first record

    def _positions(self) -> dict[TopicPartition, int]:
        return {at: self.position(at) for at in self._assigned}

    def _given_position(self, at: TopicPartition) -> int:
        (answer,) = self._open().position([KafkaPartition(at.topic, at.partition)])
        return int(answer.offset)

    def offsets(self, at: TopicPartition, wait_ms: int | None = None) -> tuple[int, int]:
        """(first offset that exists, end offset), as the broker answers now. With committed
        isolation the end is the last stable offset.

        Raises:
            Unavailable: no answer within ``wait_ms`` (None: the request time-out), or no such
                partition.
        """
        wait_s = self._timeout_s if wait_ms is None else wait_ms / 1000
        deadline = time.monotonic() + wait_s
        while True:
            try:
                answer = self._asking().get_watermark_offsets(
                    KafkaPartition(at.topic, at.partition), timeout=wait_s, cached=False
                )
            except KafkaException as error:
                cause = error.args[0]
                if cause.code() in _ELECTING and time.monotonic() < deadline:
                    time.sleep(_ELECTION_PAUSE_S)  # a partition is new, or its leader is moving
                    continue
                self._close_looker()
                raise translated(
                    cause, Doing.ASKING, f"offsets of {at.topic}[{at.partition}]"
                ) from error
            self._reached = True
            low, high = answer
            return int(low), int(high)

    def offset_from(self, at: TopicPartition, time_ms: int) -> int:
        """The first offset whose record has a timestamp of ``time_ms`` or later; the end where
        there is none.

        Raises:
            Unavailable: no answer, or no such partition.
        """
        try:
            (found,) = self._asking().offsets_for_times(
                [KafkaPartition(at.topic, at.partition, time_ms)], timeout=self._timeout_s
            )
        except KafkaException as error:
            self._close_looker()
            raise translated(
                error.args[0], Doing.ASKING, f"offset of a time in {at.topic}[{at.partition}]"
            ) from error
        if found.error is not None:
            raise translated(
                found.error, Doing.ASKING, f"offset of a time in {at.topic}[{at.partition}]"
            )
        return int(found.offset) if found.offset >= 0 else self.offsets(at)[1]

    def ends(self, places: Collection[TopicPartition], wait_ms: int) -> dict[TopicPartition, int]:
        """The end offsets of ``places``, one question to each leader; without those whose
        leader does not answer within ``wait_ms``.
        """
        found = self._ends_by(self._asking(), places, wait_ms)
        if len(found) < len(places):
            self._close_looker()
        return found

    def _ends_by(
        self, client: Consumer, places: Collection[TopicPartition], wait_ms: int
    ) -> dict[TopicPartition, int]:
        found = self._ends.ask(client, places, wait_ms)
        self._reached = self._reached or bool(found)
        return found

    def partitions(self, topic: str, wait_ms: int) -> int | None:
        """Number of partitions of ``topic`` now, with or without leaders; None: no such
        topic, or no answer within ``wait_ms``.
        """
        try:
            answer = self._asking().list_topics(topic, timeout=wait_ms / 1000).topics.get(topic)
        except KafkaException:
            self._close_looker()
            return None
        return len(answer.partitions) or None if answer is not None else None

    def close(self) -> None:
        """Give back threads and sockets. Idempotent."""
        self._close_looker()
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _asking(self) -> Consumer:
        """The client that is asked where a log begins and ends.

        A reader that follows has another one for it than it reads with: a broker answers the
        requests of a connection in turn, and keeps the fetch of a follower for FOLLOWER_WAIT_MS.
        """
        reading = self._open()
        if not self._follows or not self._assigned:
            return reading
        if self._looker is None:
            self._looker = Consumer(self._options(), logger=LOGGER)
        return self._looker

    def _close_looker(self) -> None:
        """Where it has not answered, the next question makes a new one: it may have stopped
        (``_look_after_silence``).
        """
        if self._looker is not None:
            self._looker.close()
            self._looker = None

    def _look_after_silence(self) -> None:
        """Make the client anew where it hands over nothing though there is more.

        After the restart of a broker librdkafka sometimes never fetches an assigned partition
        again, without an error (its issue 5153, open in 2.16). And where a broker that shuts down
        names no broker in its last metadata, the client forgets the only one that it knew and asks
        nobody any more (5301). Who only follows would stand still for ever, and nothing else would
        tell. While the broker is away a new client does no harm.
        """
        before, self._behind = self._behind, {}
        positions = self._positions()
        ends = self._ends_by(self._open(), positions, _SILENCE_ASK_MS)
        self._behind = {
            at: position
            for at, position in positions.items()
            if at not in ends or ends[at] > position
        }
        stopped = [
            f"{at.topic}[{at.partition}] at {position}"
            for at, position in self._behind.items()
            if before.get(at) == position
        ]
        if stopped:
            LOGGER.warning(
                "no record came for %d s, and the broker has more or does not answer: %s;"
                " the client is made anew",
                2 * _SILENCE_S,
                ", ".join(stopped),
            )
            old = self._open()
            self._consumer = self._new_consumer()
            self.assign(positions)
            old.close()
        self._heard_s = time.monotonic()

    def _new_consumer(self) -> Consumer:
        return Consumer({**self._options(), "error_cb": self._on_error}, logger=LOGGER)

    def _open(self) -> Consumer:
        if self._consumer is None:
            message = "the reader was closed"
            raise LocalProtocolError(message)
        return self._consumer

    def _unpack(self, messages: list[Message], chunks: dict[TopicPartition, Chunk]) -> None:
        """Add ``messages`` to the chunks of their partitions. No Python code of ours runs for
        a single record.
        """
        good = messages
        # Not ``count(None)``: a KafkaError that is compared with None leaves a Python error behind,
        # which the next call trips over.
        if self._ended or any(map(Message.error, messages)):
            good = self._before_errors(messages)
        # librdkafka hands over the records of one partition in one answer in one run, so there are
        # few groups.
        for number, run in groupby(good, Message.partition):
            same = list(run)
            if self._one_topic:
                self._extend(TopicPartition(self._topic, int(number or 0)), same, chunks)
                continue
            for topic, part in groupby(same, Message.topic):
                self._extend(TopicPartition(str(topic), int(number or 0)), list(part), chunks)

    def _extend(
        self, at: TopicPartition, messages: list[Message], chunks: dict[TopicPartition, Chunk]
    ) -> None:
        chunk = chunks.get(at)
        self._stale.pop(at, None)
        if chunk is None:
            chunk = chunks[at] = Chunk(at, [], [], [], [], [])
        count = len(messages)
        chunk.offsets.extend(_offsets(messages))
        chunk.values.extend(map(Message.value, messages))
        chunk.keys.extend(map(Message.key, messages))
        chunk.timestamps_ms.extend(
            [time_ms for _, time_ms in map(Message.timestamp, messages)]
            if self._timestamps
            else [-1] * count
        )
        found = self._headers_of(at, messages) if self._headers else []
        chunk.headers.extend(
            [()] * count if found.count(None) == len(found) else [each or () for each in found]
        )

    def _headers_of(self, at: TopicPartition, messages: list[Message]) -> list[Headers | None]:
        """Those of each message; None: it has none, or one whose name is not UTF-8, which the
        client cannot give.
        """
        found: list[Headers | None] = []
        each = map(Message.headers, messages)
        unreadable = 0
        while len(found) < len(messages):
            try:
                found.extend(each)  # what came before an error stays in the list
            except SystemError as error:
                # Do not ask the client for such a message again: it would give a list with holes,
                # over which the interpreter would fall.
                if not isinstance(error.__cause__, UnicodeDecodeError):
                    raise
                found.append(None)
                unreadable += 1
        if unreadable:
            where = (
                f"{at.topic}[{at.partition}] at {messages[0].offset()} to {messages[-1].offset()}"
            )
            LOGGER.warning(
                "%d records of %s have headers whose names are not UTF-8: they are read without"
                " headers",
                unreadable,
                where,
            )
        return found

    def _before_errors(self, messages: list[Message]) -> list[Message]:
        """The records of each partition that stand before the first error that ends its reading.

        That error is raised when they were handed over. What is behind it is not: a caller would go
        on from there, and never see what was broken.
        """
        good = []
        for message in messages:
            at, error = (
                TopicPartition(str(message.topic()), int(message.partition() or 0)),
                message.error(),
            )
            if error is None:
                if at not in self._ended:
                    good.append(message)
            elif self._is_left_over(at, message):
                self._assign_again = True
            elif ends_reading(error):
                self._ended.add(at)
                if self._failure is None:
                    self._failure = translated(
                        error,
                        Doing.FETCHING,
                        f"read {at.topic}[{at.partition}] at {message.offset()}",
                    )
        return good

    def _is_left_over(self, at: TopicPartition, message: Message) -> bool:
        """Whether the error in ``message`` is about an earlier assignment, the answer to which came
        while this one was made.

        librdkafka tells it all the same, and stops fetching the partition, which stands elsewhere
        by now. It reports an offset that does not exist as the requested position, and requests
        nothing below the assigned one.
        """
        error, offset = message.error(), message.offset()
        if error is None or not says_missing(error) or offset is None or offset < 0:
            return False
        return at not in self._assigned or offset < self._assigned[at]

    def _on_error(self, error: KafkaError) -> None:
        """Errors of the client as a whole; called from within ``poll``. A name that never
        resolved is a bad address.
        """
        never_found = names_nobody(error) and not self._reached
        if self._failure is None and (never_found or ends_reading(error)):
            self._failure = translated(error, Doing.FETCHING, "reach the broker")


def _offsets(messages: list[Message]) -> Iterable[int]:
    """Those of messages of one partition, which ascend: mostly without a hole, and then the first
    and the last are enough.
    """
    first, last = messages[0].offset(), messages[-1].offset()
    if first is not None and last is not None and last - first == len(messages) - 1:
        return range(first, last + 1)
    return map(Message.offset, messages)
