"""Conformance suite of ``EventLog``: one for the log in memory and the real one."""

from __future__ import annotations

from collections import Counter
from threading import Thread

import pytest

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.codec.catalog import TopicSettings
from anabranch.ports import Chunk, RecordPosition, TopicPartition
from anabranch.protocol.errors import (
    DataMissing,
    LocalProtocolError,
    OutcomeUnknown,
    RecordTooLarge,
    Unavailable,
)
from harness.event_logs import Rig, fetch_until_error, read, values
from harness.waiting import given_s, wait_until

MIB = 1024 * 1024


# ---------------------------------------------------------------- writing and reading


def test_records_come_back_in_order_with_offsets_from_zero(rig: Rig) -> None:
    (at,) = rig.topic()
    delivered = rig.write(at, *(b"%d" % n for n in range(1_000)))
    assert delivered == [RecordPosition(at, n) for n in range(1_000)]
    chunks = read(rig.reader({at: 0}), 1_000)
    assert values(chunks) == [b"%d" % n for n in range(1_000)]
    assert [offset for chunk in chunks for offset in chunk.offsets] == list(range(1_000))
    assert chunks[-1].offset_next == 1_000


def test_keys_headers_null_values_and_timestamps_survive(rig: Rig) -> None:
    (at,) = rig.topic()
    writer = rig.log.writer()
    writer.send(at, b"value", b"key", [("h", b"1"), ("h", b"2"), ("empty", b"")], 1_234_567_890_123)
    writer.send(at, None, b"key only")
    writer.send(at, b"", b"")
    writer.flush()
    writer.close()
    chunks = read(rig.reader({at: 0}), 3)
    assert values(chunks) == [b"value", None, b""]
    assert [key for chunk in chunks for key in chunk.keys] == [b"key", b"key only", b""]
    headers = [list(each) for chunk in chunks for each in chunk.headers]
    assert headers == [[("h", b"1"), ("h", b"2"), ("empty", b"")], [], []]
    stamps = [stamp for chunk in chunks for stamp in chunk.timestamps_ms]
    assert stamps[0] == 1_234_567_890_123
    assert stamps[1] > 1_600_000_000_000


def test_a_reader_without_headers_gives_empty_ones(rig: Rig) -> None:
    (at,) = rig.topic()
    writer = rig.log.writer()
    writer.send(at, b"v", headers=[("h", b"1")])
    writer.flush()
    writer.close()
    (chunk,) = read(rig.reader({at: 0}, headers=False), 1)
    assert list(chunk.headers) == [()]


def test_a_reader_without_timestamps_says_that_there_are_none(rig: Rig) -> None:
    (at,) = rig.topic()
    rig.write(at, b"one", b"two")
    reader = rig.log.reader(timestamps=False)
    rig.opened.append(reader)
    reader.assign({at: 0})
    chunks = read(reader, 2)
    assert values(chunks) == [b"one", b"two"]
    assert [stamp for chunk in chunks for stamp in chunk.timestamps_ms] == [-1, -1]


def test_one_reader_of_several_topics_keeps_them_apart(rig: Rig) -> None:
    first, second = rig.topic("first", 2), rig.topic("second", 2)
    for at in [*first, *second]:
        rig.write(at, *(f"{at.topic[-6:]}.{at.partition}.{i}".encode() for i in range(3)))
    found = read(rig.reader(dict.fromkeys([*first, *second], 0)), 12)
    for at in [*first, *second]:
        mine = [value for chunk in found if chunk.at == at for value in chunk.values]
        assert mine == [f"{at.topic[-6:]}.{at.partition}.{i}".encode() for i in range(3)]


def test_delivered_is_in_the_order_of_sending_across_partitions(rig: Rig) -> None:
    places = rig.topic(partitions=3)
    writer = rig.log.writer()
    order = [places[n % 3] for n in (0, 2, 1, 1, 0, 2, 2, 2, 0)]
    for at in order:
        writer.send(at, b"v")
    assert writer.flush() == [
        RecordPosition(places[0], 0),
        RecordPosition(places[2], 0),
        RecordPosition(places[1], 0),
        RecordPosition(places[1], 1),
        RecordPosition(places[0], 1),
        RecordPosition(places[2], 1),
        RecordPosition(places[2], 2),
        RecordPosition(places[2], 3),
        RecordPosition(places[0], 2),
    ]
    assert writer.flush() == []
    writer.send(places[1], b"v")
    assert writer.flush() == [RecordPosition(places[1], 2)]
    writer.close()


def test_a_writer_says_when_it_need_not_be_waited_for(rig: Rig) -> None:
    """Without being flushed; what flush then tells is all that was sent."""
    (at,) = rig.topic()
    writer = rig.log.writer()
    assert writer.settled(), "nothing was sent"
    for number in range(3):
        writer.send(at, b"%d" % number)
        wait_until(writer.settled, 20, "settled")
    begun = given_s()
    assert writer.flush() == [RecordPosition(at, number) for number in range(3)]
    assert given_s() - begun < 1
    writer.close()
    with pytest.raises(LocalProtocolError):
        writer.settled()


def test_every_partition_has_one_chunk_and_its_own_order(rig: Rig) -> None:
    places = rig.topic(partitions=4)
    writer = rig.log.writer()
    for n in range(4_000):
        writer.send(places[n % 4], b"%d" % n)
    writer.flush()
    writer.close()
    reader = rig.reader(dict.fromkeys(places, 0))
    chunks: list[Chunk] = []

    def enough() -> bool:
        got = reader.fetch(10_000, 200)
        assert len({chunk.at for chunk in got}) == len(got)
        chunks.extend(got)
        return sum(len(chunk.offsets) for chunk in chunks) == 4_000

    wait_until(enough, 20, "all records")
    for number, at in enumerate(places):
        own = [value for chunk in chunks if chunk.at == at for value in chunk.values]
        assert own == [b"%d" % n for n in range(number, 4_000, 4)]


def test_a_large_block_passes(rig: Rig) -> None:
    (at,) = rig.topic(max_message_bytes=str(16 * MIB))
    block = bytes(range(256)) * (8 * MIB // 256)
    rig.write(at, block, b"next")
    assert values(read(rig.reader({at: 0}), 2)) == [block, b"next"]


# ---------------------------------------------------------------- fetching


def test_fetch_gives_at_most_what_was_asked_for(rig: Rig) -> None:
    (at,) = rig.topic()
    rig.write(at, *(b"%d" % n for n in range(10)))
    reader = rig.reader({at: 0})
    got: list[bytes | None] = []
    sizes: list[int] = []

    def enough() -> bool:
        chunks = reader.fetch(3, 200)
        sizes.append(sum(len(chunk.offsets) for chunk in chunks))
        got.extend(values(chunks))
        return len(got) >= 10

    wait_until(enough, 20, "ten records")
    assert got == [b"%d" % n for n in range(10)]
    assert max(sizes) <= 3


def test_fetch_of_one_record(rig: Rig) -> None:
    (at,) = rig.topic()
    rig.write(at, b"0", b"1")
    reader = rig.reader({at: 0})
    first = wait_until(lambda: reader.fetch(1, 500), 20, "a record")
    assert values(first) == [b"0"]
    assert reader.position(at) == 1


def test_fetch_waits_for_the_first_record_only(rig: Rig) -> None:
    (at,) = rig.topic()
    reader = rig.reader({at: 0})
    assert reader.fetch(100, 0) == []
    writing = Thread(target=rig.write, args=(at, b"late"))
    writing.start()
    began = given_s()
    chunks = reader.fetch(100, 30_000)
    assert given_s() - began < 15  # it does not wait out its time for the 99 others
    writing.join()
    assert values(chunks) == [b"late"]


def test_reading_starts_where_it_was_assigned_and_can_be_assigned_anew(rig: Rig) -> None:
    a, b = rig.topic(partitions=2)
    rig.write(a, *(b"a%d" % n for n in range(5)))
    rig.write(b, *(b"b%d" % n for n in range(5)))
    reader = rig.reader({a: 3})
    assert reader.position(a) == 3
    assert values(read(reader, 2)) == [b"a3", b"a4"]
    reader.assign({b: 4})
    assert values(read(reader, 1)) == [b"b4"]
    assert reader.position(b) == 5
    reader.assign({a: 0})
    assert values(read(reader, 5)) == [b"a0", b"a1", b"a2", b"a3", b"a4"]
    with pytest.raises(LocalProtocolError):
        reader.position(b)


def test_a_reader_at_the_end_waits_there(rig: Rig) -> None:
    (at,) = rig.topic()
    rig.write(at, b"0")
    reader = rig.reader({at: 1})
    assert reader.fetch(10, 300) == []
    assert reader.position(at) == 1
    rig.write(at, b"1")
    assert values(read(reader, 1)) == [b"1"]


def test_assigned_back_the_position_is_there_at_once(rig: Rig) -> None:
    """A reader that believed the position from before would take what it has not read for read."""
    a, b = rig.topic(partitions=2)
    for at in (a, b):
        rig.write(at, b"0", b"1", b"2")
    reader = rig.reader({a: 0, b: 0})
    assert len(values(read(reader, 6))) == 6
    for number in range(20):  # without care it happens in one of three
        reader.assign({a: 2, b: 1 + number % 2})
        assert (reader.position(a), reader.position(b)) == (2, 1 + number % 2)
        assert len(values(read(reader, 3 - number % 2))) == 3 - number % 2
        assert (reader.position(a), reader.position(b)) == (3, 3)


def test_what_is_read_by_turns_is_whole_and_nothing_else_comes(rig: Rig) -> None:
    """A reader of ranges assigns, reads, assigns nothing, and often goes back."""
    a, b = rig.topic(partitions=2)
    for at in (a, b):
        rig.write(at, *(b"%d" % number for number in range(10)))
    reader = rig.reader({})
    for first in (5, 2, 8, 0, 9, 1):
        for at in (a, b):
            reader.assign({at: first})
            assert reader.position(at) == first
            assert [int(value or b"") for value in values(read(reader, 10 - first))] == list(
                range(first, 10)
            )
            assert reader.position(at) == 10
            reader.assign({})
            assert reader.fetch(10, 0) == []


def test_without_assignment_there_is_nothing(rig: Rig) -> None:
    assert rig.reader({}).fetch(10, 100) == []


def test_offsets_are_asked_anew(rig: Rig) -> None:
    (at,) = rig.topic()
    reader = rig.reader({at: 0})
    assert reader.offsets(at) == (0, 0)
    rig.write(at, b"0", b"1")
    assert reader.offsets(at) == (0, 2)
    rig.trim(at, 1)
    assert reader.offsets(at, 10_000) == (1, 2)


def test_offsets_of_a_missing_topic_are_unavailable(rig: Rig) -> None:
    reader = rig.reader({})
    with pytest.raises(Unavailable):
        reader.offsets(TopicPartition(f"{rig.prefix}.nothing", 0))


# ---------------------------------------------------------------- deleting


def test_ends_are_asked_all_at_once(rig: Rig) -> None:
    one, two = rig.topic("a", partitions=3), rig.topic("b")
    rig.write(one[1], b"x", b"y")
    rig.write(two[0], b"z")
    reader = rig.reader({})
    ends = {one[0]: 0, one[1]: 2, one[2]: 0, two[0]: 1}
    assert reader.ends([*one, *two], 10_000) == ends
    rig.write(one[0], b"w")
    assert reader.ends([*one, *two], 10_000) == {**ends, one[0]: 1}
    assert reader.ends([], 10_000) == {}


def test_ends_are_those_that_are_known(rig: Rig) -> None:
    (at,) = rig.topic()
    reader = rig.reader({})
    assert reader.ends(
        [TopicPartition(f"{rig.prefix}.nothing", 0), at, TopicPartition(at.topic, 7)], 3_000
    ) == {at: 0}


def test_a_reader_knows_how_many_partitions_a_topic_has(rig: Rig) -> None:
    at = rig.topic(partitions=3)[0]
    reader = rig.reader({})
    assert reader.partitions(at.topic, 10_000) == 3
    assert reader.partitions(f"{rig.prefix}.nothing", 3_000) is None
    admin = rig.log.admin()
    assert admin.partitions([f"{rig.prefix}.nothing"]) == {}, "the question does not make it"
    assert f"{rig.prefix}.nothing" not in admin.named(rig.prefix)
    admin.close()


def test_the_copies_of_topics_are_known(rig: Rig) -> None:
    at = rig.topic("copied")[0]
    admin = rig.log.admin()
    assert admin.copies([at.topic, f"{rig.prefix}.nothing"]) == {at.topic: 1}
    admin.close()


def test_what_is_deleted_is_gone_for_everybody(rig: Rig) -> None:
    a, b = rig.topic(partitions=2)
    rig.write(a, *(b"%d" % n for n in range(10)))
    rig.write(b, b"0", b"1")
    admin = rig.log.admin()
    admin.delete_before({a: 4, b: 2})
    reader = rig.reader({a: 4})
    assert (reader.offsets(a), reader.offsets(b)) == ((4, 10), (2, 2))
    assert values(read(reader, 6))[0] == b"4"
    fetch_until_error(rig.reader({a: 3}), DataMissing)
    admin.delete_before({a: 3, b: 0})
    admin.delete_before({})
    assert (reader.offsets(a), reader.offsets(b)) == ((4, 10), (2, 2)), (
        "what is below the start is deleted already"
    )
    rig.write(b, b"2")
    assert values(read(rig.reader({b: 2}), 1)) == [b"2"], "offsets go on"
    admin.close()


def test_deleting_what_is_not_there_is_rejected(rig: Rig) -> None:
    (at,) = rig.topic()
    rig.write(at, b"0", b"1")
    admin = rig.log.admin()
    with pytest.raises(Unavailable):
        admin.delete_before({at: 3})
    with pytest.raises(Unavailable):
        admin.delete_before({TopicPartition(f"{rig.prefix}.nothing", 0): 1})
    assert rig.reader({}).offsets(at) == (0, 2)
    admin.close()


def test_a_time_leads_to_the_first_record_that_is_not_older(rig: Rig) -> None:
    (at,) = rig.topic()
    writer = rig.log.writer()
    for number in range(5):
        writer.send(at, b"%d" % number, timestamp_ms=1_700_000_000_000 + 1_000 * number)
    writer.flush()
    writer.close()
    reader = rig.reader({})
    for time_ms, offset in (
        (0, 0),
        (1_700_000_000_000, 0),
        (1_700_000_002_500, 3),
        (1_700_000_004_000, 4),
        (1_700_000_004_001, 5),
    ):
        assert reader.offset_from(at, time_ms) == offset
    with pytest.raises(Unavailable):
        reader.offset_from(TopicPartition(f"{rig.prefix}.nothing", 0), 0)


def test_a_topic_gets_more_partitions_and_never_fewer(rig: Rig) -> None:
    (at,) = rig.topic("grown")
    rig.write(at, b"0")
    admin = rig.log.admin()
    admin.grow(at.topic, 3)
    assert admin.partitions([at.topic]) == {at.topic: 3}
    admin.grow(at.topic, 2)
    assert admin.partitions([at.topic]) == {at.topic: 3}
    last = TopicPartition(at.topic, 2)
    rig.write(last, b"1")
    assert rig.reader({}).offsets(at) == (0, 1)
    assert rig.reader({}).offsets(last) == (0, 1)
    with pytest.raises(Unavailable):
        admin.grow(f"{rig.prefix}.nothing", 2)
    admin.close()


def test_a_deleted_topic_is_gone_and_can_be_made_anew(rig: Rig) -> None:
    (kept,), (gone,) = rig.topic("kept"), rig.topic("gone")
    rig.write(kept, b"0")
    rig.write(gone, b"0", b"1")
    admin = rig.log.admin()
    before = admin.topic_ids([kept.topic, gone.topic])
    admin.delete_topics([gone.topic, f"{rig.prefix}.nothing"])
    assert admin.partitions([kept.topic, gone.topic]) == {kept.topic: 1}
    assert kept.topic in admin.named(rig.prefix)
    assert gone.topic not in admin.named(rig.prefix)
    assert admin.named(kept.topic) == [kept.topic]
    assert admin.named(f"x{rig.prefix}") == []
    assert admin.topic_ids([gone.topic]) == {}
    admin.create([TopicSettings(gone.topic, 1, 1, {})])
    after = admin.topic_ids([kept.topic, gone.topic, f"{rig.prefix}.nothing"])
    assert after[kept.topic] == before[kept.topic]
    assert after[gone.topic] != before[gone.topic], "a new topic, though its name is the same"
    assert after.keys() == {kept.topic, gone.topic}
    assert admin.topic_ids([]) == {}
    assert rig.reader({}).offsets(gone) == (0, 0)
    assert rig.reader({}).offsets(kept) == (0, 1)
    admin.delete_topics([])
    admin.close()


# ---------------------------------------------------------------- missing data


def test_an_offset_below_the_start_is_missing_data(rig: Rig) -> None:
    (at,) = rig.topic()
    rig.write(at, *(b"%d" % n for n in range(10)))
    rig.trim(at, 5)
    reader = rig.reader({at: 2})
    fetch_until_error(reader, DataMissing)
    with pytest.raises(DataMissing):  # and stays so
        reader.fetch(10, 0)
    reader.assign({at: 5})
    assert values(read(reader, 5)) == [b"%d" % n for n in range(5, 10)]


def test_what_is_missing_of_one_partition_costs_no_records_of_another(rig: Rig) -> None:
    """Whoever goes on where the reader stands has lost none."""
    whole, cut = rig.topic(partitions=2)
    for at in (whole, cut):
        rig.write(at, *(b"%d" % n for n in range(10)))
    rig.trim(cut, 5)
    reader = rig.reader({whole: 0, cut: 2})
    found: list[Chunk] = []

    def is_missing() -> bool:
        try:
            found.extend(reader.fetch(100, 50))
        except DataMissing:
            return True
        return False

    wait_until(is_missing, 30, "the error")
    with pytest.raises(DataMissing):
        reader.fetch(100, 0)
    assert reader.position(whole) == sum(len(chunk.offsets) for chunk in found)
    reader.assign({whole: reader.position(whole)})
    more = read(reader, 10 - reader.position(whole))
    assert values([*found, *more]) == [b"%d" % n for n in range(10)]


def test_what_was_missing_before_an_assignment_does_not_count_after_it(rig: Rig) -> None:
    places = rig.topic(partitions=2)
    for at in places:
        rig.write(at, *(b"%d" % n for n in range(10)))
        rig.trim(at, 5)
    reader = rig.reader({})
    for _ in range(15):
        reader.assign(dict.fromkeys(places, 2))
        fetch_until_error(
            reader, DataMissing
        )  # a client has told of one partition, and not yet of the other
        reader.assign(dict.fromkeys(places, 6))
        assert Counter(values(read(reader, 8))) == Counter([b"6", b"7", b"8", b"9"] * 2)


def test_an_offset_beyond_the_end_is_missing_data(rig: Rig) -> None:
    (at,) = rig.topic()
    rig.write(at, b"0")
    fetch_until_error(rig.reader({at: 7}), DataMissing)


def test_reading_a_missing_topic_is_unavailable(rig: Rig) -> None:
    fetch_until_error(rig.reader({TopicPartition(f"{rig.prefix}.nothing", 0): 0}), Unavailable)


# ---------------------------------------------------------------- rejected records


@pytest.mark.parametrize("partition", [0, 9])
def test_a_record_for_a_missing_topic_or_partition_is_unavailable(rig: Rig, partition: int) -> None:
    (at,) = rig.topic()
    missing = (
        TopicPartition(f"{rig.prefix}.nothing", 0)
        if partition == 0
        else TopicPartition(at.topic, partition)
    )
    writer = rig.log.writer()
    writer.send(missing, b"v")
    with pytest.raises(Unavailable):
        writer.flush()
    writer.close()


def test_after_a_rejected_record_the_writer_goes_on(rig: Rig) -> None:
    (at,) = rig.topic(max_message_bytes="100000")
    writer = rig.log.writer()
    # Incompressible: the limit is about what is sent.
    large = b"".join(n.to_bytes(4, "big") for n in (pow(3, k, 2**32) for k in range(50_000)))
    writer.send(at, b"0")
    assert writer.flush() == [RecordPosition(at, 0)]
    writer.send(at, large)
    with pytest.raises(RecordTooLarge):
        writer.flush()
    writer.send(at, b"1")
    assert [each.offset for each in writer.flush()] == [1]
    writer.close()
    assert values(read(rig.reader({at: 0}), 2)) == [b"0", b"1"]


def test_a_record_larger_than_any_is_unavailable(rig: Rig) -> None:
    (at,) = rig.topic()
    writer = rig.log.writer()
    writer.send(at, bytes(20 * MIB))
    with pytest.raises(RecordTooLarge):
        writer.flush()
    writer.send(at, bytes(20 * MIB))
    writer.send(TopicPartition(f"{rig.prefix}.nothing", 0), b"v")
    with pytest.raises(Unavailable) as raised:
        writer.flush()
    assert not isinstance(raised.value, RecordTooLarge), "that is not all that is wrong"
    writer.close()


# ---------------------------------------------------------------- topics


def test_creating_topics_reports_differences_and_changes_nothing(rig: Rig) -> None:
    admin = rig.log.admin()
    name = f"{rig.prefix}.a"
    wanted = TopicSettings(name, 3, config={"cleanup.policy": "compact"})
    assert admin.create([wanted]) == []
    assert admin.create([wanted]) == []
    differences = admin.create([TopicSettings(name, 2, config={"cleanup.policy": "delete"})])
    assert len(differences) == 2
    assert all(name in sentence for sentence in differences)
    assert admin.partitions([name, f"{rig.prefix}.nothing"]) == {name: 3}
    assert admin.settings(name)["cleanup.policy"] == "compact"
    admin.close()
    admin.close()


def test_creating_topics_may_race(rig: Rig) -> None:
    topics = [TopicSettings(f"{rig.prefix}.{number}", 2) for number in range(3)]
    results: list[list[str]] = []

    def create() -> None:
        admin = rig.log.admin()
        results.append(admin.create(topics))
        admin.close()

    threads = [Thread(target=create) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[], [], []]
    assert rig.log.admin().partitions([topic.name for topic in topics]) == {
        topic.name: 2 for topic in topics
    }


def test_settings_of_a_missing_topic_are_unavailable(rig: Rig) -> None:
    with pytest.raises(Unavailable):
        rig.log.admin().settings(f"{rig.prefix}.nothing")


def test_a_topic_that_cannot_be_is_unavailable(rig: Rig) -> None:
    with pytest.raises(Unavailable):
        rig.log.admin().create([TopicSettings(f"{rig.prefix}.a", 0)])


def test_log_append_time_is_the_brokers_clock(rig: Rig) -> None:
    (at,) = rig.topic(message_timestamp_type="LogAppendTime")
    writer = rig.log.writer()
    writer.send(at, b"v", timestamp_ms=1_000)
    writer.flush()
    writer.close()
    (chunk,) = read(rig.reader({at: 0}), 1)
    assert chunk.timestamps_ms[0] > 1_600_000_000_000


# ---------------------------------------------------------------- closing


def test_what_was_closed_is_not_used_again_and_closes_twice(rig: Rig) -> None:
    (at,) = rig.topic()
    reader = rig.reader({at: 0})
    writer = rig.log.writer()
    transactional = rig.log.transactional_writer(f"{rig.prefix}.w")
    for each in (reader, writer, transactional):
        each.close()
        each.close()
    with pytest.raises(LocalProtocolError):
        reader.fetch(1, 0)
    with pytest.raises(LocalProtocolError):
        reader.offsets(at)
    with pytest.raises(LocalProtocolError):
        reader.ends([at], 100)
    with pytest.raises(LocalProtocolError):
        reader.partitions("t", 100)
    with pytest.raises(LocalProtocolError):
        writer.send(at, b"v")
    with pytest.raises(LocalProtocolError):
        writer.flush()
    with pytest.raises(LocalProtocolError):
        transactional.begin()


def test_closing_gives_up_what_is_queued_without_waiting(rig: Rig) -> None:
    writer = rig.log.writer()
    writer.send(TopicPartition(f"{rig.prefix}.nothing", 0), b"v")
    writer.close()


@pytest.mark.integration
def test_without_a_broker_nothing_is_ever_claimed() -> None:
    """A port where nobody listens: reading finds nothing, questions have no answer, sending
    has an unknown outcome.
    """
    log = KafkaEventLog("127.0.0.1:9", delivery_timeout_ms=1_000, request_timeout_ms=1_000)
    at = TopicPartition("t", 0)
    reader = log.reader()
    reader.assign({at: 0})
    assert reader.fetch(1, 200) == []
    with pytest.raises(Unavailable):
        reader.offsets(at)

    def is_in_time() -> bool:
        """Unless the machine stood still meanwhile."""
        begun = given_s()
        with pytest.raises(Unavailable):
            reader.offsets(at, 100)
        assert reader.ends([at], 100) == {}
        assert reader.partitions("t", 100) is None
        return given_s() - begun < 2

    wait_until(is_in_time, 30, "each as long as it was told")
    reader.close()
    patient = KafkaEventLog("127.0.0.1:9").writer()
    patient.send(at, b"v")
    assert not patient.settled()
    patient.close()
    writer = log.writer()
    writer.send(at, b"v")
    with pytest.raises(OutcomeUnknown):
        writer.flush()
    with pytest.raises(OutcomeUnknown):
        writer.settled()
    with pytest.raises(OutcomeUnknown):
        writer.send(at, b"v")
    writer.close()
    with pytest.raises(Unavailable):
        log.transactional_writer("w")
    with pytest.raises(Unavailable):
        log.admin().partitions(["t"])
