"""Who may do what in a federation, on a real broker that lets nobody do anything else."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import closing

import pytest

from anabranch.adapters.signing import SigningKey
from anabranch.adapters.system.clock import SystemClock
from anabranch.codec import federation_records
from anabranch.operating.contract_book import read_book
from anabranch.operating.contract_words import Words
from anabranch.pipeline.federation_access import federation_rights
from anabranch.pipeline.model import Federation
from anabranch.ports import TopicPartition
from anabranch.protocol.errors import Unavailable
from anabranch.protocol.federation.published_keys import PublishedKey
from harness import outputs
from harness.certificates import Authority
from harness.markets import contract
from harness.secure_kafka import ROOT, SecureKafka

pytestmark = pytest.mark.integration

CONTRACTS = {"north": ["north-south"], "south": ["north-south"], "east": []}
TEXT = contract(valid_to_ms=2**52)


class Members:
    """North and south have a contract, east has none."""

    def __init__(self, broker: SecureKafka) -> None:
        self.broker = broker
        self.keys = {name: SigningKey.generate(name, "1") for name in CONTRACTS}

    def federation(self, who: str) -> Federation:
        return Federation(name="tolls", participant=who)

    def words(self, who: str) -> Words:
        log = self.broker.log(f"{who}.operator")
        return Words(log, self.federation(who), self.keys[who], SystemClock())

    def write(self, who: str, topic: str, value: bytes) -> None:
        with closing(self.broker.log(who).writer()) as writer:
            writer.send(TopicPartition(topic, 0), value)
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
    users = [ROOT, *dict.fromkeys(right.principal for right in needed)]
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
