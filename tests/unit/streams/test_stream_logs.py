"""Tests of how streams of other owners are read."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.adapters.signing import SigningKey
from anabranch.codec.catalog import topic_settings
from anabranch.pipeline.model import Binding, Pipeline
from anabranch.pipeline.topic_names import TopicNames
from anabranch.protocol.errors import ConfigurationError, Unavailable
from anabranch.protocol.federation.stream_signers import OwnedStream
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.records import BoundaryRecord, EpochStarted
from anabranch.streams.boundary_writer import BoundaryWriter, Signing
from anabranch.streams.stream_logs import open_elsewhere, open_published, open_stream
from harness import sources
from harness.sold_streams import ENTITY, SoldStream
from harness.waiting import wait_until

OWNER = SigningKey("owner", "1", b"k" * 32)


def readers_of(keys: list[str]) -> Pipeline:
    of = sources.pipeline("mine")
    binding = Binding(
        name="speeds", pipeline="theirs", stream="means", record=sources.REPORT, keys=keys
    )
    return of.model_copy(update={"bindings": {"speeds": binding}})


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
