"""Treatment of the client's answers by the reader: errors among records, headers that cannot be
read, positions from before an assignment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from anabranch.adapters.kafka import reader as under_test
from anabranch.adapters.kafka import request_client
from anabranch.adapters.kafka.header_names import UNKNOWN_NAME
from anabranch.adapters.kafka.reader import KafkaLogReader
from anabranch.adapters.kafka.settings import KafkaSettings
from anabranch.ports import TopicPartition
from anabranch.protocol.errors import AnabranchError, DataMissing, RecordDamaged, Unavailable

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
OTHER = TopicPartition("u", 0)
BROKEN = KafkaError._BAD_MSG
PASSING = KafkaError._TRANSPORT


@dataclass
class Message:
    """Fake of the client's message."""

    at: TopicPartition
    place: int
    code: int | None = None
    names: list[tuple[str, bytes]] | None = None
    spoilt: bool = False
    header_reads: int = 0

    def topic(self) -> str:
        return self.at.topic

    def partition(self) -> int:
        return self.at.partition

    def offset(self) -> int:
        return self.place

    def value(self) -> bytes:
        return b"%d" % self.place

    def key(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return (1, 7)

    def error(self) -> KafkaError | None:
        return None if self.code is None else KafkaError(self.code)

    def headers(self) -> list[tuple[str, bytes]] | None:
        self.header_reads += 1
        if self.spoilt and self.header_reads > 1:
            return self.names
        if self.spoilt:
            try:
                b"\xff".decode()
            except UnicodeDecodeError as error:
                second = SystemError("the second name")
                second.__cause__ = error
                raise SystemError("returned a result with an exception set") from second
        return self.names


@dataclass
class Consumer:
    """Fake of the client: returns queued messages, and the positions and end offsets that the test
    sets.
    """

    queue: list[Message] = field(default_factory=list)
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    watermarks: list[tuple[int, int]] = field(default_factory=list)
    """Next answers to the question for both ends of a log."""
    times: list[Callable[[KafkaPartition], KafkaPartition]] = field(default_factory=list)
    """Next answers to the question for the offset of a time, before those of ``ends``."""
    made: int = 0
    closed: int = 0
    assigned: dict[int, int] = field(default_factory=dict)
    elections: int = 0
    """Number of questions that find no partition with a leader."""
    leaders_of: list[str] = field(default_factory=list)
    """Topics whose leaders were looked up."""

    def assign(self, places: list[KafkaPartition]) -> None:
        """Works on it later, as librdkafka does."""
        self.assigned = {p.partition: p.offset for p in places}

    def list_topics(self, topic: str, timeout: float) -> Any:
        """Partitions 0 and 1 with a leader each, once they have been elected."""
        assert 0 < timeout <= 1.0
        self.elections -= 1
        self.leaders_of.append(topic)
        leaders = (-1, -1) if self.elections >= 0 else (0, 1)
        partitions = {number: SimpleNamespace(leader=at) for number, at in enumerate(leaders)}
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions=partitions)})

    def get_watermark_offsets(
        self, place: KafkaPartition, timeout: float, *, cached: bool
    ) -> tuple[int, int]:
        assert timeout > 0
        assert not cached
        return self.watermarks.pop(0)

    def offsets_for_times(self, places: list[KafkaPartition], timeout: float) -> list[Any]:
        if self.times:
            return [self.times.pop(0)(place) for place in places]
        assert 0 < timeout <= 1.0
        if any(TopicPartition(p.topic, p.partition) not in self.ends for p in places):
            raise KafkaException(KafkaError(PASSING))
        ends = [self.ends[TopicPartition(p.topic, p.partition)] for p in places]
        return [
            KafkaPartition(p.topic, p.partition, end) for p, end in zip(places, ends, strict=True)
        ]

    def close(self) -> None:
        self.closed += 1

    def poll(self, _wait_s: float) -> Message | None:
        return self.queue.pop(0) if self.queue else None

    def consume(self, count: int, _wait_s: float) -> list[Message]:
        taken, self.queue = self.queue[:count], self.queue[count:]
        return taken

    def position(self, places: list[KafkaPartition]) -> list[KafkaPartition]:
        return [
            KafkaPartition(
                p.topic,
                p.partition,
                self.positions.get(TopicPartition(p.topic, p.partition), -1001),
            )
            for p in places
        ]


@dataclass
class Time:
    """Clock of the reader."""

    now_s: float = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, pause_s: float) -> None:
        self.now_s += pause_s


Make = Callable[..., KafkaLogReader]


@pytest.fixture
def consumer() -> Consumer:
    return Consumer()


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    clock = Time()
    monkeypatch.setattr(under_test, "time", clock)
    monkeypatch.setattr(request_client, "time", clock)
    return clock


@pytest.fixture
def reader(consumer: Consumer, time: Time, monkeypatch: pytest.MonkeyPatch) -> KafkaLogReader:
    del time

    def made(_options: dict[str, Any], logger: object) -> Consumer:
        del logger
        consumer.made += 1
        return consumer

    monkeypatch.setattr(under_test, "Consumer", made)
    monkeypatch.setattr(under_test, "Message", Message)
    return KafkaLogReader(lambda: KafkaSettings("nowhere:1"), committed=True, headers=True)


def read(reader: KafkaLogReader) -> dict[TopicPartition, list[int]]:
    return {chunk.at: chunk.offsets for chunk in reader.fetch(10_000, 0)}


class TestErrors:
    def test_what_stands_behind_one_is_not_handed_over(
        self, consumer: Consumer, reader: KafkaLogReader
    ) -> None:
        reader.assign({A: 0, B: 0})
        consumer.queue = [
            Message(A, 0),
            Message(A, 1, BROKEN),
            Message(A, 2),
            Message(B, 0),
            Message(B, 1),
            Message(A, 3),
        ]
        assert read(reader) == {A: [0], B: [0, 1]}
        consumer.positions[A] = 4
        with pytest.raises(DataMissing, match=r"t\[0\] at 1"):
            reader.position(A)
        with pytest.raises(RecordDamaged) as damaged:
            reader.fetch(10, 0)
        found = damaged.value
        assert (found.topic, found.partition, found.offset) == ("t", 0, 1)

    def test_not_in_a_later_run_of_the_same_fetch_either(
        self, consumer: Consumer, reader: KafkaLogReader, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(under_test, "_RECORDS_PER_CALL", 2)
        reader.assign({A: 0, OTHER: 0})
        consumer.queue = [
            Message(A, 0, BROKEN),
            *(Message(A, n) for n in range(1, 7)),
            Message(OTHER, 0),
        ]
        assert read(reader) == {OTHER: [0]}

    def test_an_assignment_begins_anew(self, consumer: Consumer, reader: KafkaLogReader) -> None:
        reader.assign({A: 0})
        consumer.queue = [Message(A, 0, BROKEN)]
        with pytest.raises(DataMissing):
            reader.fetch(10, 0)
        reader.assign({A: 1})
        consumer.queue = [Message(A, 1)]
        assert read(reader) == {A: [1]}
        assert reader.position(A) == 1

    def test_passing_trouble_holds_nothing_back(
        self, consumer: Consumer, reader: KafkaLogReader
    ) -> None:
        reader.assign({A: 0})
        consumer.queue = [Message(A, 0), Message(A, 1, PASSING), Message(A, 1)]
        assert read(reader) == {A: [0, 1]}


class TestHeaders:
    def test_whose_names_are_not_text_are_kept(
        self, consumer: Consumer, reader: KafkaLogReader, caplog: pytest.LogCaptureFixture
    ) -> None:
        # a test of a service may have left the root logger at another level
        caplog.set_level("WARNING", logger="anabranch.adapters.kafka")
        reader.assign({A: 0})
        good = [("n", b"v")]
        unset: list[Any] = [
            ("n", b"v"),
            (b"1",),
            ("n", None),
            (b"2",),
        ]  # as the collector sees them
        kept = [("n", b"v"), ("\udcff", b"1"), ("n", None), (UNKNOWN_NAME, b"2")]
        consumer.queue = [
            Message(A, 0, names=good),
            Message(A, 1, spoilt=True, names=unset),
            Message(A, 2, spoilt=True, names=unset),
            Message(A, 3),
            Message(A, 4, names=good),
            Message(A, 5, spoilt=True, names=[]),
        ]
        (chunk,) = reader.fetch(10, 0)
        assert (chunk.offsets, chunk.headers) == (
            [0, 1, 2, 3, 4, 5],
            [good, kept, kept, (), good, ()],
        )
        assert "3 records of t[0] at 0 to 5 have headers whose names are not UTF-8" in caplog.text

    def test_any_other_error_of_the_client_is_not_hidden(
        self, consumer: Consumer, reader: KafkaLogReader, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fails(_message: Message) -> None:
            raise SystemError("something else")

        monkeypatch.setattr(Message, "headers", fails)
        reader.assign({A: 0})
        consumer.queue = [Message(A, 0)]
        with pytest.raises(SystemError, match="something else"):
            reader.fetch(10, 0)


class TestPosition:
    def test_from_before_an_assignment_is_not_believed_for_a_moment(
        self, consumer: Consumer, reader: KafkaLogReader, time: Time
    ) -> None:
        reader.assign({A: 0})
        consumer.positions[A] = 11
        assert reader.position(A) == 11
        reader.assign({A: 5})
        time.now_s += 60  # a pause of this process: librdkafka has done nothing meanwhile
        assert reader.position(A) == 5
        reader.fetch(10, 0)
        assert reader.position(A) == 5

    def test_nor_is_one_from_before_nothing_was_assigned(
        self, consumer: Consumer, reader: KafkaLogReader
    ) -> None:
        reader.assign({A: 0})
        consumer.positions[A] = 11
        reader.assign({})
        reader.assign({A: 5})
        assert reader.position(A) == 5

    def test_that_is_the_one_from_before_is_believed_in_the_end(
        self, consumer: Consumer, reader: KafkaLogReader, time: Time
    ) -> None:
        """Behind the last record stands the end of a transaction, which is not shown: so
        nothing ever comes that would tell.
        """
        reader.assign({A: 0})
        consumer.positions[A] = 11
        reader.assign({A: 10, B: 0})
        for _ in range(20):
            time.now_s += 0.1
            reader.fetch(10, 0)
        assert (reader.position(A), reader.position(B)) == (11, 0)

    def test_of_a_record_that_came_is_believed(
        self, consumer: Consumer, reader: KafkaLogReader
    ) -> None:
        reader.assign({A: 0})
        consumer.positions[A] = 1
        reader.assign({A: 0})
        consumer.queue = [Message(A, 0)]
        assert read(reader) == {A: [0]}
        assert reader.position(A) == 1


class TestIdle:
    """A reader without records: because there are none, or because the client has stopped."""

    @pytest.fixture
    def waiting(self, consumer: Consumer, reader: KafkaLogReader, time: Time) -> Callable[[], int]:
        """Ten seconds without a record; how many clients there were by then."""
        reader.assign({A: 5, B: 0})
        consumer.positions, consumer.ends = {A: 7}, {A: 9, B: 0}

        def wait() -> int:
            time.now_s += 10
            reader.fetch(10, 0)
            return consumer.made

        return wait

    def test_a_client_that_has_stopped_is_made_anew(
        self, consumer: Consumer, reader: KafkaLogReader, waiting: Callable[[], int]
    ) -> None:
        assert (waiting(), waiting()) == (1, 2)
        assert (consumer.closed, consumer.assigned) == (1, {0: 7, 1: 0})
        assert (reader.position(A), reader.position(B)) == (7, 0)
        consumer.queue = [Message(A, 7)]
        assert read(reader) == {A: [7]}

    def test_a_follower_asks_by_another_client(
        self, time: Time, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The broker may hold the fetch of the one that reads, and so its questions."""
        made: list[Consumer] = []

        def make(_options: dict[str, Any], logger: object) -> Consumer:
            del logger
            made.append(Consumer(positions={A: 7}, ends={A: 7} if made else {}))
            return made[-1]

        monkeypatch.setattr(under_test, "Consumer", make)
        settings = KafkaSettings("nowhere:1")
        reader = KafkaLogReader(lambda: settings, committed=True, headers=True, follows=True)
        reader.assign({A: 5})
        for _ in range(3):
            time.now_s += 10
            reader.fetch(10, 0)
        assert len(made) == 2, "which answers"
        made[1].ends = {A: 9}
        for _ in range(2):
            time.now_s += 10
            reader.fetch(10, 0)
        assert [each.closed for each in made] == [1, 0, 0], "the one that reads is replaced"

    def test_at_the_end_nothing_is_expected(
        self, consumer: Consumer, waiting: Callable[[], int]
    ) -> None:
        consumer.ends[A] = 7
        assert [waiting() for _ in range(5)] == [1] * 5

    def test_a_record_in_between_shows_that_it_reads(
        self, consumer: Consumer, reader: KafkaLogReader, waiting: Callable[[], int]
    ) -> None:
        for place in range(7, 17):
            assert waiting() == 1
            consumer.queue, consumer.ends[A] = [Message(A, place)], place + 9
            reader.fetch(10, 0)
            consumer.positions[A] = place + 1

    def test_one_that_gets_on_without_showing_anything_reads(
        self, consumer: Consumer, waiting: Callable[[], int]
    ) -> None:
        """Records of transactions that were aborted."""
        for place in range(8, 12):
            assert waiting() == 1
            consumer.positions[A], consumer.ends[A] = place, place + 9

    def test_one_that_twice_gets_no_answer_is_made_anew_too(
        self, consumer: Consumer, waiting: Callable[[], int]
    ) -> None:
        consumer.ends.clear()
        assert (waiting(), waiting()) == (1, 2)
        assert (consumer.closed, consumer.assigned) == (1, {0: 7, 1: 0})

    def test_one_answer_that_does_not_come_is_nothing(
        self, consumer: Consumer, waiting: Callable[[], int]
    ) -> None:
        consumer.ends.clear()
        assert waiting() == 1
        consumer.ends.update({A: 7, B: 0})
        assert (waiting(), waiting()) == (1, 1)

    def test_what_one_leader_does_not_say_holds_up_no_other(
        self, consumer: Consumer, waiting: Callable[[], int]
    ) -> None:
        del consumer.ends[B]
        assert (waiting(), waiting()) == (1, 2)

    @pytest.fixture
    def beside(
        self, consumer: Consumer, reader: KafkaLogReader, time: Time, waiting: Callable[[], int]
    ) -> Callable[[], int]:
        """Ten seconds with a record of B and none of A, which has two."""
        del waiting

        def wait() -> int:
            place = consumer.positions[B]
            consumer.queue, consumer.positions[B] = [Message(B, place)], place + 1
            consumer.ends[B] = place + 1
            time.now_s += 10
            assert read(reader) == {B: [place]}
            return consumer.made

        consumer.positions[B] = 0
        return wait

    def test_one_that_has_stopped_a_partition_is_made_anew_though_it_reads_others(
        self, consumer: Consumer, reader: KafkaLogReader, beside: Callable[[], int]
    ) -> None:
        assert (beside(), beside()) == (1, 2)
        assert (consumer.closed, consumer.assigned) == (1, {0: 7, 1: 2})
        consumer.queue = [Message(A, 7), Message(A, 8)]
        assert read(reader) == {A: [7, 8]}

    def test_two_questions_in_a_row_are_as_far_apart(
        self, consumer: Consumer, reader: KafkaLogReader, waiting: Callable[[], int]
    ) -> None:
        assert waiting() == 1
        assert (read(reader), read(reader), consumer.made) == ({}, {}, 1)

    def test_a_partition_that_has_nothing_is_no_reason_beside_others(
        self, consumer: Consumer, beside: Callable[[], int]
    ) -> None:
        consumer.ends[A] = 7
        assert [beside() for _ in range(5)] == [1] * 5

    def test_nor_one_whose_leader_is_away(
        self, consumer: Consumer, beside: Callable[[], int]
    ) -> None:
        del consumer.ends[A]
        assert [beside() for _ in range(5)] == [1] * 5

    def test_what_waits_behind_other_records_in_the_client_is_no_reason(
        self, consumer: Consumer, reader: KafkaLogReader, time: Time, waiting: Callable[[], int]
    ) -> None:
        del waiting
        consumer.queue = [Message(B, place) for place in range(50)]
        for _ in range(5):
            time.now_s += 10
            assert len(reader.fetch(10, 0)[0].offsets) == 10
        assert consumer.made == 1

    def test_a_record_in_between_shows_that_its_partition_is_read(
        self, consumer: Consumer, reader: KafkaLogReader, beside: Callable[[], int]
    ) -> None:
        for place in range(7, 17):
            assert beside() == 1
            consumer.queue, consumer.ends[A] = [Message(A, place)], place + 9
            consumer.positions[A] = place + 1
            reader.fetch(10, 0)

    def test_a_broker_that_has_answered_is_no_wrong_address(
        self, reader: KafkaLogReader, waiting: Callable[[], int]
    ) -> None:
        """Its name may not resolve for a moment, also for who has read nothing yet."""
        waiting()
        reader._on_error(KafkaError(KafkaError._RESOLVE))
        assert read(reader) == {}

    def test_one_that_never_did_may_be(
        self, consumer: Consumer, reader: KafkaLogReader, waiting: Callable[[], int]
    ) -> None:
        consumer.ends.clear()
        waiting()
        reader._on_error(KafkaError(KafkaError._RESOLVE))
        with pytest.raises(AnabranchError):
            reader.fetch(10, 0)

    def test_a_new_assignment_is_given_time(
        self, reader: KafkaLogReader, waiting: Callable[[], int]
    ) -> None:
        waiting()
        reader.assign({A: 7, B: 0})
        assert (waiting(), waiting()) == (1, 2)


class TestOffsets:
    """The answer to the question where a log begins and where it ends."""

    def test_a_log_that_seems_empty_is_asked_for_its_beginning_alone(
        self, consumer: Consumer, reader: KafkaLogReader
    ) -> None:
        """The client gives the end twice if the broker has refused the question for the other."""
        asked: list[int] = []

        def first(place: KafkaPartition) -> KafkaPartition:
            asked.append(place.offset)
            return KafkaPartition(place.topic, place.partition, 3)

        consumer.watermarks, consumer.times = [(9, 9)], [first]
        assert reader.offsets(A) == (3, 9)
        assert asked == [OFFSET_BEGINNING]

    def test_one_that_is_trimmed_in_between_has_no_end_before_its_beginning(
        self, consumer: Consumer, reader: KafkaLogReader
    ) -> None:
        consumer.watermarks = [(9, 9)]
        consumer.times = [lambda place: KafkaPartition(place.topic, place.partition, 12)]
        assert reader.offsets(A) == (12, 12)

    def test_one_that_has_records_is_asked_once(
        self, consumer: Consumer, reader: KafkaLogReader
    ) -> None:
        consumer.watermarks = [(3, 9)]
        assert reader.offsets(A) == (3, 9)

    def test_where_the_beginning_is_refused_alone_too_there_is_no_answer(
        self, consumer: Consumer, reader: KafkaLogReader
    ) -> None:
        def refused(place: KafkaPartition) -> Any:
            error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
            return SimpleNamespace(topic=place.topic, offset=-1, error=error)

        consumer.watermarks, consumer.times = [(9, 9)], [refused]
        with pytest.raises(Unavailable):
            reader.offsets(A)

    def test_a_time_after_all_records_leads_to_an_end_from_before_the_question(
        self, consumer: Consumer, reader: KafkaLogReader
    ) -> None:
        """A record that is written while it is asked is read."""

        def none_yet(place: KafkaPartition) -> KafkaPartition:
            consumer.watermarks = [(3, 10)]
            return KafkaPartition(place.topic, place.partition, -1)

        consumer.watermarks, consumer.times = [(3, 9)], [none_yet]
        assert reader.offset_from(A, 1_700_000_000_000) == 9


class TestQuestions:
    """A reader that follows asks by another client where a log begins and ends."""

    @pytest.fixture
    def clients(self, time: Time, monkeypatch: pytest.MonkeyPatch) -> list[Consumer]:
        del time
        made: list[Consumer] = []

        def client(_options: dict[str, Any], logger: object) -> Consumer:
            del logger
            made.append(Consumer(ends={A: 7}))
            return made[-1]

        monkeypatch.setattr(under_test, "Consumer", client)
        return made

    @pytest.mark.parametrize(("kind", "count"), [("", 1), ("follows", 2), ("ranges", 2)])
    def test_a_reader_whose_answers_are_held_asks_another_client_than_it_reads_with(
        self, clients: list[Consumer], kind: str, count: int
    ) -> None:
        reader = KafkaLogReader(
            lambda: KafkaSettings("nowhere:1"),
            committed=True,
            headers=True,
            follows=kind == "follows",
            ranges=kind == "ranges",
        )
        assert reader.ends([A], 500) == {A: 7}
        assert len(clients) == 1, "before it reads nothing is in the way"
        reader.assign({A: 0})
        for _ in range(3):
            assert reader.ends([A], 500) == {A: 7}
        assert len(clients) == count
        reader.close()
        assert [client.closed for client in clients] == [1] * count

    @pytest.mark.parametrize("follows", [False, True])
    def test_the_client_that_asks_is_replaced_after_long_without_an_answer(
        self, clients: list[Consumer], time: Time, follows: bool
    ) -> None:
        """A source asks so whether its quiet partitions are empty, and with a client that has
        stopped it would never know again. A slow connection needs its time, and one answer shows
        that there is one.
        """
        reader = KafkaLogReader(
            lambda: KafkaSettings("nowhere:1"), committed=False, headers=False, follows=follows
        )
        before = []
        if follows:
            reader.assign({A: 0})
            before = [0]
        assert reader.ends([A], 500) == {A: 7}
        client = clients[-1]
        for _ in range(2):
            client.ends.clear()
            for _ in range(3):
                time.now_s += 3
                assert reader.ends([A], 500) == {}
            client.ends[A] = 7
            assert reader.ends([A], 500) == {A: 7}
        client.ends.clear()
        for _ in range(4):
            time.now_s += 3
            assert [client.closed for client in clients] == [*before, 0]
            assert reader.ends([A], 500) == {}
        assert reader.ends([A], 500) == {A: 7}
        assert [client.closed for client in clients] == [*before, 1, 0]

    def test_a_new_client_looks_up_the_leaders_of_all_topics(
        self, clients: list[Consumer], time: Time
    ) -> None:
        """A client that asks a leader which it does not know would free memory twice."""
        reader = KafkaLogReader(
            lambda: KafkaSettings("nowhere:1"), committed=True, headers=True, follows=True
        )
        reader.assign({A: 0})
        second = TopicPartition("u", 1)
        for count in (1, 2):
            reader.ends([A], 0)
            client = clients[count]
            client.ends = {A: 7, second: 3}
            assert reader.ends([A, second], 500) == client.ends
            assert client.leaders_of == ["t", "u"]
            client.ends.clear()
            for _ in range(2):
                assert reader.ends([A, second], 500) == {}
                time.now_s += 10

    @pytest.mark.parametrize(("elections", "answer"), [(5, {A: 7}), (20, {})])
    def test_partitions_that_have_no_leader_yet_are_waited_for(
        self, clients: list[Consumer], elections: int, answer: dict[TopicPartition, int]
    ) -> None:
        """A broker that was paused or has just started leads none for a moment."""
        reader = KafkaLogReader(
            lambda: KafkaSettings("nowhere:1"), committed=True, headers=True, follows=True
        )
        assert reader.ends([], 500) == {}
        clients[0].elections = elections
        assert reader.ends([A], 500) == answer
