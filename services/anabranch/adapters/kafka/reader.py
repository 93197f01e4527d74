"""Reader of Kafka partitions: the implementation of ``ports.LogReader``.

Theory of operation. librdkafka fetches in threads of its own and hands records over by ``poll`` and
``consume``. Three of its oddities shape this module: after an assignment it still reports old
positions and old errors for a moment; an error of one partition arrives among the records of all;
and it may stop fetching a partition for ever, without an error, while it fetches others
(``_check_idle``).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import groupby
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from anabranch.adapters.kafka.client_log import LOGGER
from anabranch.adapters.kafka.end_offsets import EndOffsets
from anabranch.adapters.kafka.errors import (
    Request,
    ends_reading,
    is_unresolved,
    says_damaged,
    says_missing,
    translated,
)
from anabranch.adapters.kafka.header_names import first_name, readable_headers
from anabranch.adapters.kafka.request_client import RequestClient
from anabranch.adapters.kafka.settings import LEAST_WAIT_S, KafkaSettings, Options
from anabranch.ports import Chunk, Headers, TopicPartition
from anabranch.protocol.errors import AnabranchError, LocalProtocolError, RecordDamaged

_RECORDS_PER_CALL: Final = 2_048
"""Records taken from librdkafka at a time. Their wrappers stay in the processor's cache until they
are unpacked: 8 192 at a time took a tenth longer per record, 50 000 nearly twice as long.
"""

_ELECTING: Final = frozenset(
    {KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError._NO_OFFSET}  # noqa: SLF001
)
"""Errors of a partition that has no leader for a moment, as every new one. Temporary."""

_ELECTION_PAUSE_S: Final = 0.05
"""Pause before a question is repeated for a partition without a leader, in s."""

_STALE_S: Final = 1.0
"""Time since the assignment, in s, after which (together with _STALE_FETCHES) a position that
equals the one from before it is taken for the new one: by then librdkafka has long processed the
assignment. Without this, a partition that ends in hidden records would never seem read to its end.
"""
_STALE_FETCHES: Final = 10
"""Fetches since the assignment, for _STALE_S: a process that was paused has not given librdkafka
that time.
"""

_IDLE_S: Final = 10.0
"""Time without a record of a partition, in s, after which the reader asks the broker whether there
are any. If there are twice in a row, and none was returned in between, the client has stopped
fetching the partition. While no partition has a record, an answer that does not come counts, too.
"""

_IDLE_CHECK_MS: Final = 1_000
"""Timeout of that question, in ms. Short, since a caller that reads several logs in turn waits with
it; but longer than a busy broker takes, because a client that does not answer is replaced.
"""


class KafkaLogReader:
    """Reader of hand-assigned partitions. Not thread-safe."""

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
        """Keep the arguments. The client is created when it is first needed: one that is assigned
        its partitions at once finds their leaders with its first connection, one that has waited
        for a moment only when it looks for leaders next, up to a second later. ``settings``:
        returns the settings of a client that is created now.
        """
        self._options: Callable[[], Options] = lambda: settings().consumer(
            committed=committed, follows=follows, ranges=ranges
        )
        self._headers, self._timestamps = headers, timestamps
        self._timeout_s = settings().request_timeout_ms / 1000
        self._assigned: dict[TopicPartition, int] = {}
        self._known: set[TopicPartition] = set()
        """Partitions that were ever assigned: librdkafka may still know a position in them."""
        self._stale: dict[TopicPartition, int] = {}
        """Position of each partition before the last assignment, which librdkafka still reports for
        a moment after it.
        """
        self._assigned_s, self._fetches = 0.0, 0
        """Time of the last assignment, and the number of fetches since."""
        self._active_s: dict[TopicPartition, float] = {}
        """Time of each partition's last record, or of the assignment."""
        self._asked_s = 0.0
        """Time of the last question to the broker why no record comes, or of the assignment."""
        self._behind: dict[TopicPartition, int] = {}
        """Position of each partition that had more to read at the last question, or for which no
        answer came.
        """
        self._ended: set[TopicPartition] = set()
        """Partitions whose reading an error has ended: records after it are not handed over."""
        self._assign_again = False
        """Whether librdkafka has stopped fetching a partition because of an error that belongs to
        the assignment before.
        """
        self._ends = EndOffsets()
        self._asks_apart = follows or ranges
        self._questions = RequestClient(self._new_consumer, lambda client: client.close())
        """Client for questions, see ``_question_client``."""
        self._one_topic, self._topic = False, ""
        self._failure: AnabranchError | None = None
        self._reached = False
        self._topics_seen: set[str] = set()
        self._consumer: Consumer | None = None
        self._is_closed = False

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read exactly these partitions, from these offsets on. Replaces an earlier assignment,
        also one that failed.
        """
        consumer = self._open()
        self._failure = None
        self._assign_again = False
        self._stale = {at: self._client_position(at) for at in positions if at in self._known}
        self._assigned = dict(positions)
        self._known |= positions.keys()
        self._assigned_s = self._asked_s = time.monotonic()
        self._active_s = dict.fromkeys(positions, self._assigned_s)
        self._fetches = 0
        self._behind.clear()
        self._ended.clear()
        topics = {at.topic for at in positions}
        self._one_topic, self._topic = len(topics) == 1, min(topics, default="")
        consumer.assign(
            [KafkaPartition(at.topic, at.partition, offset) for at, offset in positions.items()]
        )
        self._find_leaders(consumer, topics)

    def fetch(self, records_max: int, wait_ms: int) -> list[Chunk]:
        """Return available records, at most ``records_max``, as one chunk per partition; wait up to
        ``wait_ms`` for the first record only.

        Raises:
            DataMissing: an assigned offset does not exist.
            RecordDamaged: a record does not match its checksum. Assign anew to continue.
            Unavailable: the broker rejects the request, or a topic does not exist.
        """
        consumer = self._open()
        if self._failure is not None:
            raise self._failure
        self._fetches += 1
        # ``consume(n, timeout)`` waits for its whole timeout unless n records arrive: so wait for
        # one record, then take what is available.
        try:
            first = consumer.poll(wait_ms / 1000)
        except KafkaException as error:  # raised only when the client has failed permanently
            self._failure = translated(error.args[0], Request.FETCHING, "read")
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
        # librdkafka never resumes such a partition by itself.
        if self._assign_again and self._failure is None:
            self.assign(self._positions())
        now_s = time.monotonic()
        for at in self._assigned.keys() & chunks.keys():
            self._reached = True
            self._active_s[at] = now_s
        if not chunks and self._failure is not None:
            raise self._failure
        # Only once the client has handed over all that it holds: in a backlog the records of one
        # partition may wait for long behind those of another.
        if taken < records_max and self._is_check_due(now_s):
            self._check_idle()
        return list(chunks.values())

    def position(self, at: TopicPartition) -> int:
        """Return the next offset that ``fetch`` would return, after hidden records (aborted,
        control) too.

        Raises:
            LocalProtocolError: ``at`` is not assigned.
            DataMissing, Unavailable: an error has ended its reading; ``fetch`` raises it from now
                on.
        """
        if at not in self._assigned:
            message = f"{at} is not assigned to this reader"
            raise LocalProtocolError(message)
        if at in self._ended and self._failure is not None:
            raise self._failure
        given = self._client_position(at)
        if given == self._stale.get(at) and (
            self._fetches < _STALE_FETCHES or time.monotonic() - self._assigned_s < _STALE_S
        ):
            return self._assigned[at]
        self._stale.pop(at, None)
        return max(given, self._assigned[at])  # ``given`` is negative before the first record

    def _find_leaders(self, consumer: Consumer, topics: set[str]) -> None:
        """Request the metadata of those ``topics`` that the client has not seen. It would do so
        itself only when it looks for leaders next, up to a second later; a new client does it with
        its first connection. Does not wait for the answer, and a failure is left to the client.
        """
        if self._topics_seen:
            for topic in topics - self._topics_seen:
                with contextlib.suppress(KafkaException):
                    consumer.list_topics(topic, timeout=LEAST_WAIT_S)
        self._topics_seen |= topics

    def _positions(self) -> dict[TopicPartition, int]:
        return {at: self.position(at) for at in self._assigned}

    def _client_position(self, at: TopicPartition) -> int:
        (answer,) = self._open().position([KafkaPartition(at.topic, at.partition)])
        return int(answer.offset)

    def offsets(self, at: TopicPartition, wait_ms: int | None = None) -> tuple[int, int]:
        """Return (first offset that exists, end offset), as the broker answers now. With committed
        isolation the end is the last stable offset.

        Raises:
            Unavailable: no answer within ``wait_ms`` (None: the request time-out), or no such
                partition.
        """
        wait_s = self._timeout_s if wait_ms is None else wait_ms / 1000
        deadline = time.monotonic() + wait_s
        while True:
            client = self._question_client()
            try:
                low, high = client.get_watermark_offsets(
                    KafkaPartition(at.topic, at.partition), timeout=wait_s, cached=False
                )
                if low == high:
                    low = _first_offset(client, at, max(LEAST_WAIT_S, deadline - time.monotonic()))
            except KafkaException as error:
                cause = error.args[0]
                if cause.code() in _ELECTING and time.monotonic() < deadline:
                    time.sleep(_ELECTION_PAUSE_S)  # the partition is new, or its leader moves
                    continue
                self._questions.unanswered()
                raise translated(
                    cause, Request.ASKING, f"offsets of {at.topic}[{at.partition}]"
                ) from error
            self._answered()
            return int(low), max(int(low), int(high))

    def offset_from(self, at: TopicPartition, time_ms: int) -> int:
        """Return the first offset whose record has a timestamp of ``time_ms`` or later; the end if
        there is none.

        Raises:
            Unavailable: no answer, or no such partition.
        """
        # Before the other question: a record that is written between both is not passed over.
        end = self.offsets(at)[1]
        try:
            (found,) = self._question_client().offsets_for_times(
                [KafkaPartition(at.topic, at.partition, time_ms)], timeout=self._timeout_s
            )
        except KafkaException as error:
            self._questions.unanswered()
            raise translated(
                error.args[0], Request.ASKING, f"offset of a time in {at.topic}[{at.partition}]"
            ) from error
        self._answered()
        if found.error is not None:
            raise translated(
                found.error, Request.ASKING, f"offset of a time in {at.topic}[{at.partition}]"
            )
        return int(found.offset) if found.offset >= 0 else end

    def ends(self, places: Collection[TopicPartition], wait_ms: int) -> dict[TopicPartition, int]:
        """Return the end offsets of ``places``, by one request to each leader. Partitions whose
        leader does not answer within ``wait_ms`` are left out; so are those without a leader, if
        others answer.
        """
        client = self._question_client()
        deadline = time.monotonic() + wait_ms / 1000
        found = self._ends.ask(client, places, wait_ms)
        while places and not found and time.monotonic() + _ELECTION_PAUSE_S < deadline:
            time.sleep(_ELECTION_PAUSE_S)  # a broker that was stopped leads nothing at first
            left_ms = int((deadline - time.monotonic()) * 1000)
            found = self._ends.ask(client, places, max(1, left_ms))
        if found:
            self._answered()
        else:
            self._questions.unanswered()
        return found

    def partitions(self, topic: str, wait_ms: int) -> int | None:
        """Return the number of partitions of ``topic`` now, with or without leaders; None: no such
        topic, or no answer within ``wait_ms``.
        """
        try:
            answer = (
                self._question_client().list_topics(topic, timeout=wait_ms / 1000).topics.get(topic)
            )
        except KafkaException:
            self._questions.unanswered()
            return None
        self._answered()
        return len(answer.partitions) or None if answer is not None else None

    def close(self) -> None:
        """Close the clients with their threads and sockets. Idempotent."""
        self._is_closed = True
        self._questions.close()
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _question_client(self) -> Consumer:
        """Return the client that asks where a log begins and ends.

        A broker answers the requests of a connection in turn. It holds a follower's fetch for
        FOLLOWER_WAIT_MS, and under a quota it is silent for seconds after an answer to a reader of
        ranges. So both ask by another client than the one that reads, which ``_check_idle``
        replaces. Before it reads, any reader asks by the client that it will read with.
        """
        if self._assigned and not self._asks_apart:
            return self._open()
        self._check()
        return self._questions.client()

    def _answered(self) -> None:
        """Note that a broker has answered a question."""
        self._reached = True
        self._questions.answered()

    def _is_check_due(self, now_s: float) -> bool:
        """Return whether a partition has had no record for so long that the broker must be asked
        why. Not after an error that the next fetch raises.
        """
        least_s = now_s - _IDLE_S
        return (
            self._failure is None
            and self._asked_s <= least_s
            and any(active_s <= least_s for active_s in self._active_s.values())
        )

    def _check_idle(self) -> None:
        """Replace the client if it returns no records of a partition although there are some.

        After a broker restart librdkafka sometimes never fetches an assigned partition again,
        without an error (its issue 5153, open in 2.16), though it fetches others (4492). And if a
        broker that shuts down names no broker in its last metadata, the client forgets the only one
        that it knew and contacts none any more (5301). A follower would stop for ever, or a source
        wait for one of its partitions, and nothing else would show it. While the broker is away, a
        new client does no harm. Where other partitions have records, the leader that does not
        answer is away, and the client has not stopped.

        Another client asks than the one that reads (``_question_client``): the process would wait
        for the fetch of each quiet log in turn, and some logs, such as that of moves, are always
        quiet. So a client that contacts no broker is noticed when there is something to read.
        """
        before, least_s = self._behind, time.monotonic() - _IDLE_S
        idle = [at for at, active_s in self._active_s.items() if active_s <= least_s]
        positions = {at: self.position(at) for at in idle}
        ends = self.ends(idle, _IDLE_CHECK_MS)
        is_silent = len(idle) == len(self._active_s)
        self._behind = {
            at: position
            for at, position in positions.items()
            if (ends[at] > position if at in ends else is_silent)
        }
        stopped = [
            f"{at.topic}[{at.partition}] at {position}"
            for at, position in self._behind.items()
            if before.get(at) == position
        ]
        if stopped:
            LOGGER.warning(
                "no record came for %d s although the broker has more or does not answer: %s;"
                " the client is replaced",
                2 * _IDLE_S,
                ", ".join(stopped),
            )
            positions = self._positions()
            old = self._open()
            self._consumer = self._new_consumer()
            self.assign(positions)
            old.close()
        self._asked_s = time.monotonic()

    def _new_consumer(self) -> Consumer:
        return Consumer({**self._options(), "error_cb": self._on_error}, logger=LOGGER)

    def _open(self) -> Consumer:
        """Return the client that reads. At first it is the one that asked before."""
        self._check()
        if self._consumer is None:
            self._consumer = self._questions.release()
        return self._consumer

    def _check(self) -> None:
        if self._is_closed:
            message = "the reader was closed"
            raise LocalProtocolError(message)

    def _unpack(self, messages: list[Message], chunks: dict[TopicPartition, Chunk]) -> None:
        """Add ``messages`` to the chunks of their partitions. Runs no Python code per record."""
        good = messages
        # Not ``count(None)``: comparing a KafkaError with None leaves a Python error set, with
        # which the next call fails.
        if self._ended or any(map(Message.error, messages)):
            good = self._before_errors(messages)
        # librdkafka returns the records of one partition in one answer as one run, so there are few
        # groups.
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
        """Return the headers of each message; None: it has none."""
        found: list[Headers | None] = []
        each = map(Message.headers, messages)
        unreadable = 0
        while len(found) < len(messages):
            try:
                found.extend(each)  # headers before an error stay in the list
            except SystemError as error:
                name = first_name(error)
                if name is None:
                    raise
                # The second call returns the list that the first one made, with unset names.
                made = messages[len(found)].headers()
                found.append(readable_headers(made or (), name))
                unreadable += 1
        if unreadable:
            where = (
                f"{at.topic}[{at.partition}] at {messages[0].offset()} to {messages[-1].offset()}"
            )
            LOGGER.warning(
                "%d records of %s have headers whose names are not UTF-8: these are written as"
                " \\xNN",
                unreadable,
                where,
            )
        return found

    def _before_errors(self, messages: list[Message]) -> list[Message]:
        """Return the records of each partition that precede the first error that ends its reading,
        and note that error.

        ``fetch`` raises the error once these records were handed over. Later records are dropped: a
        caller would continue after them and never notice the broken part.
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
            elif self._is_of_earlier_assignment(at, message):
                self._assign_again = True
            elif ends_reading(error):
                self._ended.add(at)
                if self._failure is None:
                    self._failure = _failure_at(at, message.offset() or 0, error)
        return good

    def _is_of_earlier_assignment(self, at: TopicPartition, message: Message) -> bool:
        """Return whether the error in ``message`` belongs to the assignment before, whose answer
        arrived while the current one was made.

        librdkafka reports it all the same, and stops fetching the partition, although it is
        assigned to another offset by now. It reports an offset that does not exist as the requested
        position, and requests none below the assigned one.
        """
        error, offset = message.error(), message.offset()
        if error is None or not says_missing(error) or offset is None or offset < 0:
            return False
        return at not in self._assigned or offset < self._assigned[at]

    def _on_error(self, error: KafkaError) -> None:
        """Note an error of the client as a whole; called from within ``poll``. A host name that has
        never resolved is a wrong address, not a broker that is away.
        """
        never_found = is_unresolved(error) and not self._reached
        if self._failure is None and (never_found or ends_reading(error)):
            self._failure = translated(error, Request.FETCHING, "reach the broker")


def _first_offset(client: Consumer, at: TopicPartition, wait_s: float) -> int:
    """Ask for the first offset of ``at`` alone, by the call that finds offsets for times, which
    accepts the beginning as a time.

    For both ends librdkafka (2.16) sends two requests. If the broker refuses the first one, as it
    is not the partition's leader yet, and answers the second, and both answers arrive together,
    ``get_watermark_offsets`` drops the refusal and returns the end as the beginning, too
    (``rd_kafka_query_wmark_offsets_resp_cb``): a log with records seems to have none.

    Raises:
        KafkaException: no answer, or the broker refuses.
    """
    (found,) = client.offsets_for_times(
        [KafkaPartition(at.topic, at.partition, OFFSET_BEGINNING)], timeout=wait_s
    )
    if found.error is not None:
        raise KafkaException(found.error)
    return int(found.offset)


def _failure_at(at: TopicPartition, offset: int, error: KafkaError) -> AnabranchError:
    """Return the anabranch error for ``error``, which ends reading of ``at`` at ``offset``."""
    failure = translated(error, Request.FETCHING, f"read {at.topic}[{at.partition}] at {offset}")
    if says_damaged(error):
        return RecordDamaged(str(failure), at.topic, at.partition, offset)
    return failure


def _offsets(messages: list[Message]) -> Iterable[int]:
    """Return the offsets of messages of one partition, which ascend. Mostly they are dense, and
    then the first and the last one are enough.
    """
    first, last = messages[0].offset(), messages[-1].offset()
    if first is not None and last is not None and last - first == len(messages) - 1:
        return range(first, last + 1)
    return map(Message.offset, messages)
