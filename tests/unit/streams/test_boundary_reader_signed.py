"""A boundary log that is read by another owner: only what its own owner signed counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.adapters.key_files import VARIABLE, owners_signer, signer, write_key
from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.adapters.signing import SigningKey
from anabranch.codec.catalog import TopicSettings
from anabranch.codec.signed_records import Sign, by_one_of
from anabranch.pipeline.file import load
from anabranch.ports import TopicPartition
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.records import BoundaryRecord, EpochStarted
from anabranch.streams.boundary_reader import BoundaryReader, ExpectedStream
from anabranch.streams.boundary_writer import BoundaryWriter, Signing
from anabranch.streams.stream_signers import NamedKeys

AT = TopicPartition("north.speeds.boundaries", 0)
KEY, FORGERS = SigningKey.generate("north", "1"), SigningKey.generate("south", "1")
NORTH = """\
pipeline: north
sources:
  sightings: {topics: [sightings], record: speed.avsc, event_time: arrival}
stages:
  speeds: {participant: north, reads: [sightings], sql: SELECT * FROM sightings}
  drafts: {participant: north, reads: [sightings], sql: SELECT * FROM sightings}
publish:
  speeds: {keep: 1h}
"""
RECORD = '{"type": "record", "name": "speed", "fields": [{"name": "segment", "type": "long"}]}'


@pytest.fixture
def log() -> LocalEventLog:
    log = LocalEventLog(VirtualClock())
    log.admin().create([TopicSettings(AT.topic, 1)])
    return log


def writer(log: LocalEventLog, sign: Sign | None, seed: int = 0) -> BoundaryWriter:
    return BoundaryWriter(
        log,
        AT.topic,
        ["0"],
        EpochStarted("0", "plan", SeededEntropy(seed).token()),
        log.clock,
        signing=None if sign is None else Signing(sign),
    )


def closes(of: BoundaryWriter, bucket: int) -> None:
    batch = BatchId(f"{of.epoch:012d}-000000", bucket)
    of.append(BoundaryRecord("0", of.epoch, batch, of.tip(), bucket))


def reader(log: LocalEventLog) -> BoundaryReader:
    judge = NamedKeys([KEY.public])
    return BoundaryReader(
        log, AT.topic, ["0"], expected=ExpectedStream(known_as="theirs", judge=judge)
    )


def test_who_cannot_sign_neither_fences_nor_closes_anything(log: LocalEventLog) -> None:
    honest = writer(log, KEY.sign_message)
    honest.start()
    closes(honest, 1)
    for seed, sign in ((1, None), (2, FORGERS.sign_message)):
        forger = writer(log, sign, seed)
        forger.start()
        closes(forger, 7 + seed)
    found = reader(log)
    found.read_to_end()
    assert found.log_state.upto == 1
    assert found.log_state.epoch("0") == honest.epoch
    assert found.counts["undecodable"] == 4


def test_signatures_do_not_matter_to_readers_of_the_same_owner(log: LocalEventLog) -> None:
    honest = writer(log, KEY.sign_message)
    honest.start()
    closes(honest, 1)
    found = BoundaryReader(log, AT.topic, ["0"])
    found.read_to_end()
    assert found.log_state.upto == 1


def test_published_streams_are_signed_where_the_environment_names_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "speed.avsc").write_text(RECORD)
    (tmp_path / "north.yaml").write_text(NORTH)
    north = load(tmp_path / "north.yaml")
    monkeypatch.delenv(f"{VARIABLE}_FILE", raising=False)
    assert signer(north, "speeds", "north") is None
    assert owners_signer(north, "speeds") is None
    write_key(KEY, tmp_path / "key")
    monkeypatch.setenv(f"{VARIABLE}_FILE", str(tmp_path / "key"))
    for sign in (signer(north, "speeds", "north"), owners_signer(north, "speeds")):
        assert sign is not None
        assert by_one_of([KEY.public])(b"message", sign(b"message").value)
    with pytest.raises(ConfigurationError, match="is a key of"):
        signer(north, "speeds", "south")
    for stream in ("drafts", "sightings"):
        assert signer(north, stream, "north") is None
        assert owners_signer(north, stream) is None


def test_a_manager_signs_with_no_key_of_a_stranger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "speed.avsc").write_text(RECORD)
    write_key(FORGERS, tmp_path / "key")
    monkeypatch.setenv(f"{VARIABLE}_FILE", str(tmp_path / "key"))
    for federation in ("", "federation: {name: tolls, participant: north}\n"):
        (tmp_path / "north.yaml").write_text(NORTH + federation)
        with pytest.raises(ConfigurationError, match="is a key of south"):
            owners_signer(load(tmp_path / "north.yaml"), "speeds")
