"""Tests of how streams of other owners are read."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.adapters.signing import SigningKey
from anabranch.codec import boundary_records
from anabranch.codec.catalog import topic_settings
from anabranch.pipeline.model import Binding, Federation, Pipeline
from anabranch.pipeline.topic_names import TopicNames
from anabranch.ports import TopicPartition
from anabranch.protocol.errors import ConfigurationError, RecordDamaged, Unavailable
from anabranch.protocol.federation.stream_signers import OwnedStream
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import BUCKET_MAX
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.records import BoundaryRecord, EpochStarted, LogEntry
from anabranch.streams.boundary_reader import BoundaryReader
from anabranch.streams.boundary_writer import BoundaryWriter, Signing
from anabranch.streams.stream_logs import open_elsewhere, open_published, open_stream
from harness import outputs, sources
from harness.sold_streams import ENTITY, SoldStream
from harness.waiting import wait_until

OWNER = SigningKey("owner", "1", b"k" * 32)


def readers_of(keys: list[str]) -> Pipeline:
    of = sources.pipeline("mine")
    binding = Binding(
        name="speeds", pipeline="theirs", stream="means", record=sources.REPORT, keys=keys
    )
    return of.model_copy(update={"bindings": {"speeds": binding}})


def append(log: LocalEventLog, *entries: LogEntry) -> None:
    writer = log.writer()
    for entry in entries:
        value, headers = boundary_records.encode(entry)
        writer.send(TopicPartition("theirs.means.boundaries", 0), value, headers=headers)
    writer.flush()
    writer.close()


def test_a_stream_of_others_with_buckets_of_another_width_is_missing_until_it_has_ours() -> None:
    """It ends no process that reads it."""
    log, wide = LocalEventLog(VirtualClock()), EpochStarted("0", "f", "t", bucket_ms=500)
    log.admin().create([topic_settings("boundaries", "theirs.means.boundaries")])
    append(log, wide, BoundaryRecord("0", 0, BatchId("l", 0), None, 3))
    reader = open_stream(log, readers_of([]), "speeds")
    reader.read_to_end()
    assert (reader.log_state.upto, reader.offset_next) == (0, 2)
    assert reader.refused.startswith("its buckets have another width")
    append(log, replace(wide, bucket_ms=100), BoundaryRecord("0", 2, BatchId("l", 0), None, 3))
    reader.read_to_end()
    assert (reader.log_state.upto, reader.refused) == (3, "")
    reader.close()


def test_a_trimmed_stream_of_others_without_a_usable_snapshot_is_missing() -> None:
    log, wide = LocalEventLog(VirtualClock()), EpochStarted("0", "f", "t", bucket_ms=500)
    log.admin().create([topic_settings("boundaries", "theirs.means.boundaries")])
    state = LogState(["0"])
    state.apply(0, wide)
    append(log, wide, state.snapshot(1))
    log.trim(TopicPartition("theirs.means.boundaries", 0), 1)
    elsewhere = open_elsewhere(log, readers_of([]), "speeds", lock=threading.Condition())
    wait_until(lambda: elsewhere.poll(20) == 0 and elsewhere.refused, 10, "it is told why")
    assert elsewhere.refused == "its first records are deleted, and no log snapshot can be used"
    assert elsewhere.log_state.upto == 0
    elsewhere.close()


def test_a_damaged_record_of_others_is_left_out_and_one_of_our_own_ends_the_reader() -> None:
    log, at = closed_by(None), TopicPartition("theirs.means.boundaries", 0)
    append(log, BoundaryRecord("0", 0, BatchId("l", 2), BatchId("l", 1), 4))
    log.damage(at, 2)
    append(log, BoundaryRecord("0", 0, BatchId("l", 3), BatchId("l", 2), 5))
    reader = open_stream(log, readers_of([]), "speeds")
    reader.read_to_end()
    assert (reader.log_state.upto, reader.offset_next) == (3, 4)
    assert reader.counts["off_chain"] == 1
    assert reader.refused == "its record at offset 2 is damaged"
    reader.close()
    with pytest.raises(RecordDamaged):
        BoundaryReader(log, at.topic, ["0"]).read_to_end()


def stage_of_two(**more: object) -> Pipeline:
    """Return a pipeline whose stage a partner may run."""
    of = outputs.pipeline("theirs")
    federation = Federation(name="tolls", participant="mine", partners={"other": ["totals"]})
    return of.model_copy(update={"federation": federation, **more})


def test_only_where_no_partner_runs_a_stage_does_an_unknown_end_of_it_end_its_readers() -> None:
    log, at = LocalEventLog(VirtualClock()), TopicPartition("theirs.totals.boundaries", 0)
    log.admin().create([topic_settings("boundaries", at.topic)])
    end = BoundaryRecord("0", 0, BatchId("l", 0), None, BUCKET_MAX, heirs=2)
    writer = log.writer()
    for entry in (EpochStarted("0", "f", "t", bucket_ms=100), end):
        writer.send(at, boundary_records.encode(entry)[0])
    writer.flush()
    reader = open_stream(log, stage_of_two(), "totals")
    reader.read_to_end()
    assert (reader.log_state.upto, reader.log_state.heirs) == (0, 0)
    assert reader.refused.startswith("a record ends it")
    with pytest.raises(ConfigurationError, match="halvings"):
        open_stream(log, stage_of_two(federation=None), "totals").read_to_end()
    reader.close()


def closed_by(key: SigningKey | None) -> LocalEventLog:
    """Return a log in which the owner has closed three buckets."""
    clock = VirtualClock()
    log, topic = LocalEventLog(clock), TopicNames("theirs").boundaries("means")
    log.admin().create([topic_settings("boundaries", topic)])
    sign = None if key is None else key.sign_message
    writer = BoundaryWriter(
        log,
        topic,
        ["0"],
        EpochStarted("0", "f", SeededEntropy(1).token(), bucket_ms=100),
        clock,
        signing=None if sign is None else Signing(sign),
    )
    epoch = writer.start()
    writer.append(BoundaryRecord("0", epoch, BatchId("l", 1), writer.tip(), 3))
    writer.close()
    return log


@pytest.mark.parametrize(
    ("keys", "signer", "upto"),
    [
        ([], None, 3),
        ([], OWNER, 3),
        ([OWNER.public.hex()], OWNER, 3),
        ([OWNER.public.hex()], None, 0),
        ([OWNER.public.hex()], SigningKey("other", "1", b"o" * 32), 0),
    ],
)
def test_where_keys_are_named_only_what_they_signed_counts(
    keys: list[str], signer: SigningKey | None, upto: int
) -> None:
    reader = open_stream(closed_by(signer), readers_of(keys), "speeds")
    reader.read_to_end()
    assert reader.log_state.upto == upto
    reader.close()


def test_a_log_elsewhere_is_opened_by_a_thread_of_its_own_with_the_same_rules() -> None:
    pipeline, log = readers_of([OWNER.public.hex()]), closed_by(OWNER)
    reader = open_elsewhere(log, pipeline, "speeds", lock=threading.Condition())

    def read() -> bool:
        reader.poll(20)
        return reader.log_state.upto == 3

    wait_until(read, 10, "it is read")
    reader.close()


def test_a_published_stream_is_judged_alike_by_its_owner_and_its_readers() -> None:
    """Signers and the broker's times decide, in every process."""
    clock = VirtualClock()
    world = SoldStream(LocalEventLog(clock), clock, SeededEntropy(1))
    owned = OwnedStream("north", world.pipeline_name, ENTITY)
    world.make_stream()
    world.begin()
    world.close_up_to(3)
    world.begin(key=world.keys["south"])
    world.append_signed("south", BoundaryRecord("0", 2, BatchId("l", 1), None, 9))
    reader = open_published(world.log, world.topics, owned, ["0"], 100)
    reader.read_to_end()
    assert reader.log_state.upto == 3
    reader.close()
    with pytest.raises(Unavailable):
        open_published(world.log, world.topics, replace(owned, owner="nobody"), ["0"], 100)
    with pytest.raises(Unavailable):
        open_published(world.log, world.topics, replace(owned, stream="none"), ["0"], 100)
    world.make("boundaries", "north.other.boundaries", message_timestamp_type="CreateTime")
    with pytest.raises(ConfigurationError, match="LogAppendTime"):
        open_published(world.log, world.topics, replace(owned, stream="other"), ["0"], 100)
