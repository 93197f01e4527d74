"""Options of the clients of which a wrong value would lose or invent data."""

from __future__ import annotations

import pytest

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.kafka.security import security_from_environment
from anabranch.adapters.kafka.settings import KafkaSettings
from anabranch.codec.blocks import BLOCK_BYTES_MAX
from anabranch.codec.boundary_records import BOUNDARY_BYTES_MAX
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.limits import RECORD_BYTES_ON_BROKER_MAX

SETTINGS = KafkaSettings("127.0.0.1:1")


def test_a_reader_never_joins_a_group_never_commits_and_never_skips() -> None:
    options = SETTINGS.consumer(committed=True)
    assert options["enable.auto.commit"] is False
    assert options["enable.auto.offset.store"] is False
    assert options["auto.offset.reset"] == "error"
    assert options["isolation.level"] == "read_committed"
    assert options["check.crcs"] is True
    assert SETTINGS.consumer(committed=False)["isolation.level"] == "read_uncommitted"


def test_a_reader_that_follows_asks_rarely_and_no_other_waits_long_to_be_sent_elsewhere() -> None:
    follower, mover = (
        SETTINGS.consumer(committed=True, follows=True),
        SETTINGS.consumer(committed=True),
    )
    assert follower["fetch.wait.max.ms"] == 5 * int(mover["fetch.wait.max.ms"])
    assert {name for name in follower if follower[name] != mover[name]} == {"fetch.wait.max.ms"}


def test_a_reader_of_ranges_fetches_little_ahead() -> None:
    ranges, other = (
        SETTINGS.consumer(committed=False, ranges=True),
        SETTINGS.consumer(committed=False),
    )
    changed = {
        "max.partition.fetch.bytes",
        "queued.max.messages.kbytes",
        "fetch.wait.max.ms",
        "fetch.queue.backoff.ms",
    }
    assert {name for name in ranges if ranges[name] != other[name]} == changed
    assert all(int(ranges[name]) < int(other[name]) for name in changed)


@pytest.mark.parametrize("options", [SETTINGS.producer(), SETTINGS.transactional_producer("w")])
def test_a_writer_is_idempotent_and_waits_for_all_replicas(options: dict[str, object]) -> None:
    assert options["enable.idempotence"] is True
    assert options["acks"] == "all"
    assert options["allow.auto.create.topics"] is False


def test_what_the_protocol_allows_fits() -> None:
    assert max(BLOCK_BYTES_MAX, BOUNDARY_BYTES_MAX) < RECORD_BYTES_ON_BROKER_MAX
    assert SETTINGS.producer()["message.max.bytes"] == RECORD_BYTES_ON_BROKER_MAX
    reader = SETTINGS.consumer(committed=True)
    assert (
        int(reader["receive.message.max.bytes"])
        >= int(reader["fetch.max.bytes"]) + RECORD_BYTES_ON_BROKER_MAX
    )
    assert int(reader["fetch.max.bytes"]) >= int(reader["message.max.bytes"])


def test_records_fail_before_their_transaction_does() -> None:
    short = KafkaSettings(
        "127.0.0.1:1", delivery_timeout_ms=30_000, transaction_timeout_ms=5_000
    ).transactional_producer("w")
    assert int(short["delivery.timeout.ms"]) <= int(short["transaction.timeout.ms"])
    assert int(short["request.timeout.ms"]) <= int(short["delivery.timeout.ms"])


@pytest.mark.parametrize("option", ["auto.offset.reset", "acks", "group.id", "sas.password"])
def test_security_options_cannot_undo_safety(option: str) -> None:
    with pytest.raises(ConfigurationError, match=option):
        KafkaSettings("127.0.0.1:1", security={option: "x"})


def test_security_options_reach_the_client() -> None:
    settings = KafkaSettings("127.0.0.1:1", security={"sasl.username": "u"})
    assert settings.producer()["sasl.username"] == "u"
    assert settings.consumer(committed=True)["sasl.username"] == "u"
    assert settings.administrator()["sasl.username"] == "u"


def test_an_empty_address_is_rejected() -> None:
    with pytest.raises(ConfigurationError):
        KafkaSettings(" ")


def test_another_owners_cluster_has_variables_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANABRANCH_KAFKA_SECURITY_PROTOCOL", "SASL_SSL")
    monkeypatch.setenv("ANABRANCH_KAFKA_SASL_USERNAME", "me")
    monkeypatch.setenv("ANABRANCH_KAFKA_SASL_PASSWORD", "hush")
    own = KafkaEventLog("own:1")
    there = KafkaEventLog("there:1", security=security_from_environment("south-2"))
    assert own.settings().security["sasl.username"] == "me"
    assert dict(there.settings().security) == {}
    monkeypatch.setenv("ANABRANCH_CLUSTER_SOUTH_2_SASL_PASSWORD", "quiet")
    with pytest.raises(ConfigurationError) as caught:
        security_from_environment("south-2")
    assert str(caught.value) == (
        "ANABRANCH_CLUSTER_SOUTH_2_SASL_PASSWORD is set, which needs"
        " ANABRANCH_CLUSTER_SOUTH_2_SECURITY_PROTOCOL=SASL_SSL; it is PLAINTEXT"
    )
    monkeypatch.setenv("ANABRANCH_CLUSTER_SOUTH_2_SECURITY_PROTOCOL", "SASL_SSL")
    monkeypatch.setenv("ANABRANCH_CLUSTER_SOUTH_2_SASL_USERNAME", "guest")
    there = KafkaEventLog("there:1", security=security_from_environment("south-2"))
    found = there.settings()
    assert (found.security["sasl.username"], found.security["sasl.password"]) == ("guest", "quiet")
    assert "quiet" not in repr(found)
