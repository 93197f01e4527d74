"""Tests of access rights in a federation, on a real broker that allows nothing else."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from anabranch.access.federation_acls import federation_rights
from anabranch.access.pipeline_acls import rights
from anabranch.adapters.signing import SigningKey
from anabranch.adapters.system.clock import SystemClock
from anabranch.codec import boundary_records, federation_records
from anabranch.codec.catalog import topic_settings
from anabranch.codec.signed_records import signed
from anabranch.contract_broker.stream_meter import published
from anabranch.federation.catalog_reader import read_catalogs
from anabranch.federation.commands import FederationCommands
from anabranch.federation.tables import read_book
from anabranch.pipeline.catalog_entry import entry_of, known_formats
from anabranch.pipeline.model import Binding, Federation, Stage
from anabranch.pipeline.topic_names import FederationTopics
from anabranch.ports import TopicPartition
from anabranch.protocol.errors import Unavailable
from anabranch.protocol.federation.lookup import FoundStream, WantedStream
from anabranch.protocol.federation.published_keys import PublishedKey
from anabranch.protocol.log.records import EpochStarted
from anabranch.streams.stream_logs import open_stream
from harness import outputs, sources
from harness.audited_stage import AuditedStage
from harness.certificates import Authority
from harness.contents import content
from harness.markets import contract
from harness.secure_kafka import ROOT, SecureKafka
from harness.waiting import wait_until

pytestmark = pytest.mark.integration

CONTRACTS = {"north": ["north-south"], "south": ["north-south"], "east": []}
AUDITOR = "north.auditor"
METERING = "billing.contract_broker"
TEXT = contract(valid_to_ms=2**52)


BILLING = sources.pipeline("billing").model_copy(
    update={
        "bindings": {
            "theirs": Binding(
                name="theirs",
                pipeline="north",
                stream="totals",
                record=sources.REPORT,
                participant="north",
            )
        },
        "stages": {
            "tolls": Stage(
                name="tolls", participant="billing", reads=["theirs"], transform=["stages:tolls"]
            )
        },
        "federation": Federation(name="tolls", participant="billing"),
    }
)
"""Reads a stream by the keys that its owner has published."""


class Members:
    """North and south have a contract, east has none."""

    def __init__(self, broker: SecureKafka) -> None:
        self.broker = broker
        self.keys = {name: SigningKey.generate(name, "1") for name in CONTRACTS}

    def federation(self, who: str) -> Federation:
        return Federation(name="tolls", participant=who)

    def words(self, who: str) -> FederationCommands:
        log = self.broker.log(f"{who}.operator")
        return FederationCommands(log, self.federation(who), self.keys[who], SystemClock())

    def write(self, who: str, topic: str, value: bytes) -> None:
        with closing(self.broker.log(who).writer()) as writer:
            writer.send(TopicPartition(topic, 0), value, key=b"key")
            writer.flush()


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Members]:
    folder = tmp_path_factory.mktemp("federation")
    needed = [
        right
        for who, contracts in CONTRACTS.items()
        for right in federation_rights(
            outputs.pipeline(who).model_copy(
                update={"federation": Federation(name="tolls", participant=who)}
            ),
            contracts,
        )
    ]
    needed += rights(BILLING)
    users = [ROOT, AUDITOR, METERING, *dict.fromkeys(right.principal for right in needed)]
    passwords = {user: f"planted-{secrets.token_hex(12)}" for user in users}
    broker = SecureKafka(folder / "kafka", Authority(folder / "authority", "trusted"), passwords)
    try:
        broker.start()
        broker.allow(needed)
        made = Members(broker)
        for who in CONTRACTS:
            made.words(who).publish()
        made.words("north").propose(TEXT)
        made.words("south").sign("north-south")
        yield made
    finally:
        broker.stop()


@pytest.mark.parametrize("who", ["north.operator", "south.contract_broker"])
def test_the_parties_read_their_contract(members: Members, who: str) -> None:
    federation = members.federation(who.partition(".")[0])
    with closing(read_book(members.broker.log(who), federation)) as reader:
        booked = reader.contracts["north-south"].booked
        assert booked is not None
        assert booked.signed_by == ("north", "south")
        assert reader.keys.participants() == ["east", "north", "south"]


def test_others_do_not_see_that_there_is_one(members: Members) -> None:
    for who in ("east.operator", "east.contract_broker"):
        with closing(read_book(members.broker.log(who), members.federation("east"))) as reader:
            assert reader.contracts == {}
            assert reader.keys.participants() == ["east", "north", "south"]


@pytest.mark.parametrize("who", ["east.operator", "south.operator", "north.contract_broker"])
def test_nobody_publishes_a_key_for_another(members: Members, who: str) -> None:
    word = PublishedKey("north", "2", SigningKey.generate("north", "2").public)
    with pytest.raises(Unavailable):
        members.write(who, "tolls.keys.north", federation_records.encode_key(word))


def test_nobody_writes_a_contract_of_others(members: Members) -> None:
    value = federation_records.encode(TEXT, members.keys["east"].sign(TEXT))
    for topic in ("tolls.contract.north-south", "tolls.offers.north-south"):
        with pytest.raises(Unavailable):
            members.write("east.operator", topic, value)


def test_a_stage_reads_a_signed_stream_with_the_keys_of_its_owner(members: Members) -> None:
    topic = "north.totals.boundaries"
    with closing(members.broker.log(ROOT).admin()) as admin:
        admin.create([topic_settings("boundaries", topic)])
    value, headers = boundary_records.encode(EpochStarted("0", "plan", "token"))
    headers = [*headers, *signed(topic, value, members.keys["north"].sign_message)]
    with closing(members.broker.log(ROOT).writer()) as writer:
        writer.send(TopicPartition(topic, 0), value, headers=headers)
        writer.flush()
    who = "billing.processing.billing.0"
    with closing(open_stream(members.broker.log(who), BILLING, "theirs")) as reader:
        reader.read_to_end()
        assert reader.log_state.epoch("0") == 0
    for other in ("tolls.keys.north", topic):
        with pytest.raises(Unavailable):
            members.write(who, other, value)


def test_a_receivers_broker_meters_a_stream_with_its_rights(members: Members) -> None:
    """North's broker has a contract for the stream; others read nothing of it."""
    needed = federation_rights(BILLING, ["north-billing"])
    members.broker.allow([right for right in needed if right.principal == METERING])
    topic, text = "north.totals.boundaries", content(stream="totals")
    with closing(members.broker.log(ROOT).admin()) as admin:
        admin.create([topic_settings("boundaries", topic)])
    topics = FederationTopics("tolls")
    followed = published(members.broker.log(METERING), topics, text, text.plans[0], BILLING)
    assert not isinstance(followed, str)
    with closing(followed) as stream:

        def has_read() -> bool:
            stream.poll()
            return stream.is_at_end()

        wait_until(has_read, 30, "the end of the stream's log")
    with pytest.raises(Unavailable):
        members.write(METERING, topic, b"x")
    with pytest.raises(Unavailable):
        published(members.broker.log("east.contract_broker"), topics, text, text.plans[0], BILLING)


def test_an_auditor_judges_a_stage_with_its_rights_and_writes_nothing_but_the_ledger(
    members: Members, tmp_path: Path
) -> None:
    world = AuditedStage(members.broker.log(ROOT), SystemClock(), tmp_path, federation="audits")
    needed = federation_rights(world.pipeline, ["north-south"])
    members.broker.allow([right for right in needed if right.principal == AUDITOR])
    world.sell()
    world.spoil = lambda _, table: table.slice(0, 0)
    auditor = world.auditor(log=members.broker.log(AUDITOR))

    def has_report() -> bool:
        world.round()
        auditor.step()
        return bool(world.audit_reports())

    try:
        wait_until(has_report, 60, "a finding")
    finally:
        auditor.stop()
        world.close()
    names = world.pipeline.topic_names
    for topic in (names.boundaries("counts"), names.blocks("a", "0"), "audits.keys.north"):
        with pytest.raises(Unavailable):
            members.write(AUDITOR, topic, b"x")


def listed(members: Members, who: str) -> bytes:
    """Return an entry of ``who``, as its contract broker writes it."""
    pipeline = sources.pipeline(who)
    published = pipeline.model_copy(
        update={
            "stages": {
                "totals": Stage(
                    name="totals", participant=who, reads=list(pipeline.sources), transform=["m:f"]
                )
            },
            "publish_ms": {"totals": 1},
            "publish_records": {"totals": sources.REPORT},
            "federation": members.federation(who),
        }
    )
    key = members.keys[who]
    entry = entry_of(published, members.federation(who), key.public, SystemClock().now_ms())
    return federation_records.encode(entry, key.sign(entry))


def test_only_a_participants_contract_broker_writes_its_catalog(members: Members) -> None:
    value = listed(members, "north")
    members.write("north.contract_broker", "tolls.catalog.north", value)
    for who in (
        "north.operator",
        "north.dashboard",
        "south.contract_broker",
        "south.operator",
        "east.contract_broker",
        "billing.processing.billing.0",
    ):
        with pytest.raises(Unavailable):
            members.write(who, "tolls.catalog.north", value)


def test_everybodys_operator_finds_what_it_lists(members: Members) -> None:
    members.write("north.contract_broker", "tolls.catalog.north", listed(members, "north"))
    wanted = WantedStream("north", "totals", sources.pipeline("north").bucket_ms)
    topics = FederationTopics("tolls")
    for who in ("north.operator", "south.operator", "east.operator"):
        lookup = read_catalogs(members.broker.log(who), topics, known_formats())
        found = lookup.find(wanted, SystemClock().now_ms())
        assert isinstance(found, FoundStream), found
        assert found.entry.public == members.keys["north"].public
