"""Tests of the reader of a federation's logs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from anabranch.adapters.memory.clock import VirtualClock
from anabranch.adapters.memory.log import FailingOperation, LocalEventLog
from anabranch.adapters.signing import SigningKey
from anabranch.codec import federation_records
from anabranch.federation.log_reader import FederationReader
from anabranch.pipeline.topic_names import FederationTopics
from anabranch.ports import TopicPartition
from anabranch.protocol.errors import DataMissing, Unavailable
from anabranch.protocol.federation.contract_book import ContractState
from anabranch.protocol.federation.ledger import Metered
from anabranch.protocol.federation.movements import Ended, EndReason, MovementState, Started
from anabranch.streams.key_reader import UNDATED
from harness.contents import TOLLS
from harness.federations import FederationWorld
from harness.markets import CONTRACT, DAY_MS, answer, contract, offer, started

NAME = "north-south:1/north.a"
BEGIN_MS = 5 * DAY_MS


@pytest.fixture
def world() -> FederationWorld:
    return FederationWorld(LocalEventLog(VirtualClock(BEGIN_MS)))


def signed_start(world: FederationWorld) -> Started:
    return replace(started(answer()), signature=world.keys["south"].sign(answer()))


def later(world: FederationWorld, duration_ms: int) -> None:
    assert isinstance(world.log, LocalEventLog)
    assert isinstance(world.log.clock, VirtualClock)
    world.log.clock.sleep_ms(duration_ms)


def read(world: FederationWorld) -> FederationReader:
    reader = world.reader()
    reader.read_to_end()
    return reader


def begun(world: FederationWorld) -> None:
    world.say("north", CONTRACT)
    world.say("south", CONTRACT)
    world.say("north", signed_start(world))


def test_a_contract_and_its_ledger_are_what_stands_in_its_log(world: FederationWorld) -> None:
    begun(world)
    slot = BEGIN_MS // 1_000
    later(world, 1_000)
    world.say("south", Metered("north-south", NAME, "south", slot, 10))
    reader = read(world)
    found = reader.contracts["north-south"]
    assert found.booked is not None
    assert found.booked.state is ContractState.ACTIVE
    assert found.ledger is not None
    assert found.ledger.movements[NAME].started_ms == BEGIN_MS, "by the log's time"
    assert found.ledger.due(slot // 60) == 900 * 10 * 1_000
    assert not reader.ignored


def test_what_comes_while_it_follows_is_what_a_new_reader_finds(world: FederationWorld) -> None:
    reader = read(world)
    assert reader.contracts["north-south"].booked is None
    begun(world)
    while reader.poll(0):
        pass
    for each in (reader, read(world)):
        booked, ledger = each.contracts["north-south"].booked, each.contracts["north-south"].ledger
        assert booked is not None
        assert ledger is not None
        assert [movement.movement_id for movement in ledger.movements] == [NAME]


def test_a_new_contract_and_a_new_participant_are_found(world: FederationWorld) -> None:
    reader = read(world)
    world.keys["east"] = SigningKey.generate("east", "1")
    world.publish(world.keys["east"])
    text = contract(contract_id="north-east", seller="east")
    world.make("contract", world.topics.contract("north-east"))
    for party in ("north", "east"):
        value = federation_records.encode(text, world.keys[party].sign(text))
        world.write(world.topics.contract("north-east"), value)
    reader.read_to_end()
    booked = reader.contracts["north-east"].booked
    assert booked is not None
    assert booked.signed_by == ("north", "east")


def test_a_key_that_is_as_new_as_what_it_signed_counts(world: FederationWorld) -> None:
    """The reader has read all keys that there were, then both come."""
    reader = read(world)
    world.say("north", CONTRACT)
    world.keys["south"] = SigningKey.generate("south", "2")
    world.publish(world.keys["south"])
    world.say("south", CONTRACT)
    reader.poll(0)
    booked = reader.contracts["north-south"].booked
    assert booked is not None
    assert booked.state is ContractState.ACTIVE


def test_what_was_signed_before_a_key_was_revoked_stays_and_nothing_comes_after(
    world: FederationWorld,
) -> None:
    begun(world)
    later(world, 10)
    world.publish(world.keys["south"], is_revoked=True)
    later(world, 1_000)
    measured = Metered("north-south", NAME, "south", BEGIN_MS // 1_000, 10)
    world.say("south", measured)
    reader = read(world)
    ledger = reader.contracts["north-south"].ledger
    assert ledger is not None
    assert [movement.movement_id for movement in ledger.movements] == [NAME]
    assert reader.ignored == {"not signed by whom it must be": 1}
    world.keys["south"] = SigningKey.generate("south", "2")
    world.publish(world.keys["south"])
    world.say("south", measured)
    reader.read_to_end()
    assert reader.ignored == {"not signed by whom it must be": 1}


def test_forged_unsigned_replayed_and_unreadable_records_are_ignored_and_counted(
    world: FederationWorld,
) -> None:
    begun(world)
    before = read(world).contracts["north-south"]
    stranger = SigningKey.generate("north", "1")
    measured = Metered("north-south", NAME, "north", BEGIN_MS // 1_000, 1)
    later(world, 1_000)
    world.forge(measured, stranger.sign(measured))
    world.forge(measured, world.keys["south"].sign(measured))
    world.forge(CONTRACT, world.keys["north"].sign(CONTRACT))
    world.say("north", signed_start(world), offer())
    topic = world.topics.contract("north-south")
    world.write(topic, None, b"", b"\xc3\x01nonsense", bytes(300_000))
    world.publish(stranger)
    world.write(world.topics.keys("north"), b"nonsense")
    reader = read(world)
    assert reader.ignored == {
        "not signed by whom it must be": 2,
        "known already": 1,
        "the movement is running": 1,
        "not a record of this log": 6,
        "another key has this id": 1,
    }
    after = reader.contracts["north-south"]
    assert after.booked == before.booked
    assert after.ledger is not None
    assert before.ledger is not None
    assert list(after.ledger.movements) == list(before.ledger.movements)


def test_what_was_read_is_judged_later_where_the_keys_cannot_be_read_now(
    world: FederationWorld,
) -> None:
    reader = read(world)
    begun(world)
    assert isinstance(world.log, LocalEventLog)
    world.log.fail_next(
        FailingOperation.OFFSETS, error=Unavailable, topic=world.topics.keys("north")
    )
    with pytest.raises(Unavailable):
        reader.poll(0)
    assert reader.poll(0) == 3
    ledger, whole = reader.contracts["north-south"].ledger, read(world).contracts["north-south"]
    assert ledger is not None
    assert whole.ledger is not None
    assert list(ledger.movements) == list(whole.ledger.movements) != []
    world.say("north", Ended("north-south", NAME, "north", 0, EndReason.RECALLED))
    for _ in range(2):
        world.log.fail_next(
            FailingOperation.OFFSETS, error=Unavailable, topic=world.topics.keys("north")
        )
        with pytest.raises(Unavailable):
            reader.poll(0)
    reader.read_to_end()
    assert ledger.movements[NAME].state is MovementState.OVER


def test_a_contract_whose_times_a_party_could_choose_is_left_out(world: FederationWorld) -> None:
    topic = world.topics.contract("other")
    world.make("contract", topic, message_timestamp_type="CreateTime")
    reader = read(world)
    assert list(reader.contracts) == ["north-south"]
    assert reader.left_out == {topic: UNDATED}


def test_keys_of_a_participant_that_could_date_them_do_not_count(world: FederationWorld) -> None:
    """East would revoke its key from before the signature for which it is to pay."""
    topic, key = world.topics.keys("east"), SigningKey.generate("east", "1")
    world.make("keys", topic, message_timestamp_type="CreateTime")
    world.publish(key)
    text = replace(CONTRACT, buyer="east")
    world.keys["east"] = key
    world.say("east", text)
    reader = read(world)
    assert reader.left_out == {topic: UNDATED}
    assert reader.keys.participants() == ["auditor", "north", "south"]
    assert reader.contracts["north-south"].booked is None
    assert reader.ignored == {"not signed by whom it must be": 1}


def test_topics_of_others_are_not_read(world: FederationWorld) -> None:
    for other in ("tolls.contract.a.b", "tolls.manager", "tolls2.contract.c", "tolls.keys.Upper"):
        world.make("contract", other)
        world.write(other, b"nonsense")
    reader = read(world)
    assert list(reader.contracts) == ["north-south"]
    assert not reader.ignored


def test_a_federation_without_topics_is_empty() -> None:
    log = LocalEventLog(VirtualClock(0))
    reader = FederationWorld(log).reader()
    assert (reader.contracts, reader.poll(0)) == ({}, 0)
    empty = FederationReader(log, FederationTopics("none"), "auditor")
    empty.read_to_end()
    assert empty.contracts == {}


def test_who_follows_no_contract_waits_as_who_follows_some() -> None:
    clock = VirtualClock()
    reader = FederationReader(LocalEventLog(clock), FederationTopics("tolls"), "auditor")
    reader.read_to_end()
    begun_ms = clock.monotonic_ms()
    assert reader.poll(100) == 0
    assert clock.monotonic_ms() == begun_ms + 100


def cut(world: FederationWorld, topic: str, records: int = 1) -> None:
    assert isinstance(world.log, LocalEventLog)
    world.log.trim(TopicPartition(topic, 0), records)


def compacted(world: FederationWorld, topic: str) -> None:
    # The first record is gone, and the log's start is where it was.
    assert isinstance(world.log, LocalEventLog)
    records = world.log.partition(TopicPartition(topic, 0))._records
    records[0] = replace(records[0], control=True)


@pytest.mark.parametrize("lose", [cut, compacted])
def test_a_contract_that_has_lost_its_beginning_is_left_out_and_holds_up_no_other(
    world: FederationWorld, lose: Callable[[FederationWorld, str], None]
) -> None:
    begun(world)
    stream_contract(world)
    topic = world.topics.contract("north-south")
    lose(world, topic)
    heard = list[object]()
    reader = FederationReader(world.log, world.topics, "auditor", heard.append)
    for _ in range(2):
        reader.read_to_end()
        assert list(reader.every) == ["north-billing"]
        assert list(reader.left_out) == [topic]
        assert reader.waits_for is not None
        assert "first 1 records are deleted" in reader.waits_for
        world.say("south", CONTRACT)
    assert heard == [TOLLS, TOLLS]


def damage(world: FederationWorld, topic: str, offset: int = 1) -> None:
    assert isinstance(world.log, LocalEventLog)
    world.log.damage(TopicPartition(topic, 0), offset)


def test_a_contract_with_a_damaged_record_is_left_out_and_holds_up_no_other(
    world: FederationWorld,
) -> None:
    begun(world)
    stream_contract(world)
    topic = world.topics.contract("north-south")
    damage(world, topic)
    reader = FederationReader(world.log, world.topics, "auditor")
    for _ in range(2):
        reader.read_to_end()
        assert list(reader.every) == ["north-billing"]
        assert list(reader.left_out) == [topic]
        assert "record at offset 1 is damaged" in str(reader.waits_for)
        world.say("south", CONTRACT)
    assert reader.poll(0) == 0


def test_a_contract_that_counted_and_is_damaged_by_now_ends_the_reader(
    world: FederationWorld,
) -> None:
    """The process has used the contract already and cannot take that back; a new process leaves
    the contract out.
    """
    begun(world)
    reader = read(world)
    damage(world, world.topics.contract("north-south"), 3)
    world.say("south", CONTRACT)
    with pytest.raises(DataMissing, match="record at offset 3 is damaged"):
        reader.poll(0)
    assert list(read(world).left_out) == [world.topics.contract("north-south")]


def test_nothing_counts_of_a_participant_with_a_damaged_record_in_its_log_of_keys(
    world: FederationWorld,
) -> None:
    """It may have revoked the keys before it."""
    begun(world)
    stream_contract(world)
    world.publish(SigningKey.generate("south", "2"))
    topic = world.topics.keys("south")
    damage(world, topic)
    reader = read(world)
    assert list(reader.left_out) == [topic]
    booked, other = reader.contracts["north-south"].booked, reader.streams["north-billing"].booked
    assert booked is not None
    assert booked.signed_by == ("north",)
    assert other is not None
    assert other.state is ContractState.ACTIVE


def test_nothing_counts_of_a_participant_whose_log_of_keys_has_lost_its_beginning(
    world: FederationWorld,
) -> None:
    """A key that was published later does not either: what it signed is a part of what was."""
    world.keys["south"] = SigningKey.generate("south", "2")
    world.publish(world.keys["south"])
    begun(world)
    stream_contract(world)
    cut(world, world.topics.keys("south"))
    reader = read(world)
    assert list(reader.left_out) == [world.topics.keys("south")]
    booked, other = reader.contracts["north-south"].booked, reader.streams["north-billing"].booked
    assert booked is not None
    assert booked.signed_by == ("north",)
    assert other is not None
    assert other.state is ContractState.ACTIVE


def test_a_log_that_is_cut_while_it_is_read_ends_the_reader(world: FederationWorld) -> None:
    """What it has made of the log is of a past that is gone: a new reader takes what there is."""
    reader = read(world)
    begun(world)
    cut(world, world.topics.contract("north-south"))
    with pytest.raises(DataMissing):
        reader.poll(0)
    assert read(world).left_out


def stream_contract(world: FederationWorld) -> list[str]:
    """North's text for billing in the log of "north-billing", and who has signed it."""
    world.keys["billing"] = SigningKey.generate("billing", "1")
    world.publish(world.keys["billing"])
    world.make("contract", world.topics.contract(TOLLS.contract_id))
    for party in ("north", "billing"):
        value = federation_records.encode(TOLLS, world.keys[party].sign(TOLLS))
        world.write(world.topics.contract(TOLLS.contract_id), value)
    return ["north", "billing"]


def test_a_contract_for_a_stream_stands_in_a_log_of_its_own(world: FederationWorld) -> None:
    begun(world)
    parties = stream_contract(world)
    heard = list[object]()
    reader = FederationReader(world.log, world.topics, "auditor", heard.append)
    reader.read_to_end()
    assert (set(reader.contracts), set(reader.streams)) == ({"north-south"}, {"north-billing"})
    booked = reader.streams["north-billing"].booked
    assert booked is not None
    assert (booked.state, list(booked.signed_by)) == (ContractState.ACTIVE, parties)
    assert reader.find("north-billing") is reader.streams["north-billing"]
    assert reader.find("other") is None
    assert heard.count(TOLLS) == 2
    assert not reader.ignored


def test_a_message_of_another_topic_is_no_record_of_a_contracts_log(world: FederationWorld) -> None:
    begun(world)
    world.say("north", offer(1))
    assert read(world).ignored == {"not a record of this log": 1}
