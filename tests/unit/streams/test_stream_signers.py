"""A stream whose stage was sold, as a reader of another owner sees it: signed by its owner, by the
partner who runs it for a while, and by nobody else.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from anabranch.adapters.memory.log import LocalEventLog
from anabranch.adapters.signing import SigningKey
from anabranch.codec.catalog import topic_settings
from anabranch.ports import TopicPartition
from anabranch.protocol.errors import ConfigurationError, Unavailable
from anabranch.streams.stream_logs import open_stream
from anabranch.streams.stream_signers import PublishedSigners
from harness.signed_streams import OWNED, TOPIC, SignedStream


@pytest.fixture
def world() -> SignedStream:
    return SignedStream()


@pytest.fixture
def sold(world: SignedStream) -> SignedStream:
    """North runs the stage, south does, and it comes home."""
    world.run("north")
    world.name_signer("south")
    world.run("south", is_honest=False)
    world.run("north")
    return world


def test_a_stage_that_was_sold_is_read_by_who_believes_its_owner(sold: SignedStream) -> None:
    with closing(sold.read()) as reader:
        assert (reader.log_state.upto, reader.counts["undecodable"]) == (6, 0)
        sold.name_signer("south", is_withdrawn=True)
        sold.run("north")
        reader.read_to_end()
        assert (reader.log_state.upto, reader.counts["undecodable"]) == (8, 0)


def test_keys_of_the_owner_alone_lose_it(sold: SignedStream) -> None:
    """The field ``participant`` is needed for this."""
    with closing(sold.read(keys=[sold.keys["north"].public.hex()])) as reader:
        assert reader.log_state.upto == 2
        assert reader.counts["off_chain"] == 2


def test_a_partner_counts_from_the_owners_word_until_its_withdrawal(world: SignedStream) -> None:
    world.run("north")
    world.name_signer("south", by="south")
    with closing(world.read()) as reader:
        world.run("south", is_honest=False)
        reader.read_to_end()
        assert (reader.log_state.upto, reader.counts["undecodable"]) == (2, 3)
        world.name_signer("south")
        world.name_signer("south", is_withdrawn=True)
        world.run("south", is_honest=False)
        reader.read_to_end()
        assert (reader.log_state.upto, reader.counts["undecodable"]) == (2, 6)


@pytest.mark.parametrize(("by", "rejected"), [("north", 0), ("south", 1)])
def test_a_log_snapshot_is_the_owners_alone(sold: SignedStream, by: str, rejected: int) -> None:
    sold.sum_up(by)
    with closing(sold.read()) as reader:
        assert reader.counts["undecodable"] == rejected
        assert reader.log_state.upto == 6


def test_who_writes_goes_on_from_what_readers_of_other_owners_know(world: SignedStream) -> None:
    """Whatever a partner has written that was not named."""
    world.run("north")
    world.run("south", is_honest=False)
    world.bucket = 2
    world.run("north")
    with closing(world.read()) as reader:
        assert (reader.log_state.upto, reader.counts["off_chain"]) == (4, 0)


class Silent:
    """The logs of keys do not answer for a while."""

    def __init__(self, of: PublishedSigners) -> None:
        self._of, self._refresh = of, of.refresh
        self.times = 2

    def __call__(self) -> None:
        if self.times:
            self.times -= 1
            raise Unavailable("planted")
        self._refresh()


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> list[Silent]:
    """Judges made from now on, each with logs of keys that do not answer for a while."""
    made: list[Silent] = []
    init = PublishedSigners.__init__

    def begin(self: PublishedSigners, log: LocalEventLog, *rest: object) -> None:
        init(self, log, *rest)  # type: ignore[arg-type]
        made.append(Silent(self))
        monkeypatch.setattr(self, "refresh", made[-1], raising=False)

    monkeypatch.setattr(PublishedSigners, "__init__", begin)
    return made


def test_records_wait_while_the_logs_of_keys_do_not_answer(
    sold: SignedStream, silent: list[Silent]
) -> None:
    reader = open_stream(sold.log, sold.billing(participant="north"), "tolls")
    assert (reader.poll(0), reader.offset_next, reader.log_state.upto) == (0, 0, 0)
    assert reader.trouble == "its records wait for their signers' keys: planted"
    reader.read_to_end()
    assert (silent[0].times, reader.log_state.upto, reader.counts["undecodable"]) == (0, 6, 0)
    assert reader.trouble == ""
    sold.run("north")
    reader.read_to_end()
    assert reader.log_state.upto == 8
    reader.close()


def test_a_loop_does_not_spin_where_logs_of_keys_fail_at_once(
    sold: SignedStream, silent: list[Silent], caplog: pytest.LogCaptureFixture
) -> None:
    """The keys fail at once, each time, as where access to the settings of a log is denied."""
    reader = open_stream(sold.log, sold.billing(participant="north"), "tolls")
    silent[0].times = 1_000_000
    began_ms = sold.clock.monotonic_ms()
    for _ in range(20):
        assert reader.poll(100) == 0
    assert sold.clock.monotonic_ms() - began_ms == 2_000
    assert len(caplog.records) == 1
    with pytest.raises(Unavailable, match="wait for their signers' keys: planted"):
        reader.read_to_end()
    silent[0].times = 0
    reader.reopen()
    reader.read_to_end()
    assert (reader.log_state.upto, reader.counts["off_chain"]) == (6, 0)
    reader.close()


def test_an_owner_without_a_log_of_keys_is_waited_for(world: SignedStream) -> None:
    with pytest.raises(Unavailable):
        world.read(participant="east")


def test_a_log_whose_writers_set_the_times_is_rejected(world: SignedStream) -> None:
    log = LocalEventLog(world.clock)
    config = {"message.timestamp.type": "CreateTime"}
    log.admin().create([topic_settings("boundaries", TOPIC, config=config)])
    with pytest.raises(ConfigurationError, match="LogAppendTime"):
        open_stream(log, world.billing(participant="north"), "tolls")


def test_an_owner_that_could_date_its_keys_is_not_believed(world: SignedStream) -> None:
    config = {"message.timestamp.type": "CreateTime"}
    world.log.admin().create([topic_settings("keys", "tolls.keys.east", config=config)])
    with pytest.raises(ConfigurationError, match=r"tolls\.keys\.east lacks .*LogAppendTime"):
        world.read(participant="east")


def test_a_signer_that_could_date_its_keys_is_left_out_and_costs_no_questions(
    world: SignedStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = SigningKey.generate("east", "1")
    world.make("keys", "tolls.keys.east", message_timestamp_type="CreateTime")
    world.publish(key)
    world.name_signer("east")
    world.run("east", key=key, is_honest=False)
    with closing(world.read()) as reader:
        assert (reader.log_state.upto, reader.counts["undecodable"]) == (0, 3)
        world.run("north")
        asked: list[str] = []
        admin = type(world.log.admin())
        settings = admin.settings

        def counted(self: Any, topic: str) -> dict[str, str]:
            asked.append(topic)
            return settings(self, topic)

        monkeypatch.setattr(admin, "settings", counted)
        reader.read_to_end()
        assert (reader.log_state.upto, asked) == (4, [])


def cut(world: SignedStream, participant: str) -> None:
    assert isinstance(world.log, LocalEventLog)
    world.log.trim(TopicPartition(world.topics.keys(participant), 0), 1)


def test_an_owner_whose_keys_have_lost_their_beginning_is_waited_for(world: SignedStream) -> None:
    """The stream counts as missing until the log is restored; a process that reads it lives on."""
    world.run("north")
    cut(world, "north")
    with pytest.raises(Unavailable, match="first 1 records are deleted"):
        world.read()


def test_a_partner_that_cuts_its_keys_stops_no_reader(world: SignedStream) -> None:
    world.run("north")
    with closing(world.read()) as reader:
        cut(world, "south")
        world.name_signer("south")
        world.run("south", is_honest=False)
        world.run("north")
        reader.read_to_end()
        assert (reader.log_state.upto, reader.counts["undecodable"]) == (6, 3)


def test_what_an_owner_named_counts_no_more_where_its_log_of_keys_is_damaged(
    world: SignedStream,
) -> None:
    assert isinstance(world.log, LocalEventLog)
    world.name_signer("south")
    with closing(PublishedSigners(world.log, world.topics, OWNED)) as signers:
        now_ms = world.clock.now_ms()
        assert signers.may_sign("south", now_ms)
        at = TopicPartition(world.topics.keys("north"), 0)
        world.log.damage(at, world.log.partition(at).end)
        world.name_signer("south", is_withdrawn=True)
        signers.refresh()
        assert not signers.may_sign("south", now_ms)


def test_a_runner_sees_whether_it_may_sign(world: SignedStream) -> None:
    with closing(PublishedSigners(world.log, world.topics, OWNED)) as signers:
        now = world.clock.now_ms
        assert [signers.may_sign(who, now()) for who in ("north", "south")] == [True, False]
        world.name_signer("south")
        signers.refresh()
        assert signers.may_sign("south", now())
