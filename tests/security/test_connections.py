"""Tests of authentication: passwords, certificates, and the messages when they are wrong."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.kafka.security import PREFIX
from anabranch.operating import doctor
from anabranch.ports import TopicPartition
from anabranch.protocol.errors import AdapterError, Unavailable
from harness.certificates import Authority, Certificate
from harness.secure_kafka import Secured
from harness.tls_relay import SASL_AUTHENTICATE, SASL_HANDSHAKE, broker_in_tls, tls_server
from harness.waiting import wait_until

pytestmark = pytest.mark.integration

INPUT = TopicPartition("secure-in.reports", 0)
WHO = "secure.producer.reports"


def once(log: KafkaEventLog, at: TopicPartition) -> None:
    """One record, or the error."""
    with closing(log.writer()) as writer:
        writer.send(at, b"x")
        writer.flush()


def rejected(address: str, security: Mapping[str, str]) -> str:
    log = KafkaEventLog(
        address, security=security, delivery_timeout_ms=3_000, request_timeout_ms=3_000
    )
    with pytest.raises(AdapterError) as caught:
        once(log, INPUT)
    with (
        pytest.raises(Unavailable),
        closing(
            KafkaEventLog(address, security=security, request_timeout_ms=2_000).reader()
        ) as reader,
    ):
        reader.offsets(INPUT)
    return str(caught.value)


def test_a_certificate_is_a_principal(secured: Secured) -> None:
    broker = secured.broker

    def writes(who: str) -> None:
        security = broker.by_certificate(secured.authority.issue(who))
        once(KafkaEventLog(broker.mtls_address, security=security), INPUT)

    writes(WHO)
    for other in ("secure.producer.payments", "stranger"):
        # An idempotent producer asks for the topic and for a producer id at once. Who may write to
        # no topic gets no id either (KIP-679), and whichever answer is first becomes the error.
        with pytest.raises(AdapterError, match=r"(?:TOPIC|CLUSTER)_AUTHORIZATION_FAILED"):
            writes(other)


def test_who_is_not_let_in(secured: Secured, tmp_path: Path) -> None:
    """All at once: a rejection waits until what may be in passing would be over."""
    broker, wrong = secured.broker, "guessed-password"
    tls = {"security.protocol": "SSL", "ssl.ca.location": str(secured.authority.certificate)}
    ended = secured.authority.issue(f"{WHO}.ended", days=0)
    stranger = Authority(tmp_path, "stranger").issue(WHO)
    tried: list[tuple[str, Mapping[str, str]]] = [
        (broker.address, broker.by_password(WHO, wrong)),
        (broker.address, broker.by_password(WHO) | {"sasl.username": "nobody"}),
        (broker.address, {}),  # in plain text
        (broker.address, tls),  # without a password
        (broker.mtls_address, tls),  # without a certificate
        (broker.mtls_address, broker.by_certificate(ended)),
        (broker.mtls_address, broker.by_certificate(stranger)),
    ]
    with ThreadPoolExecutor(len(tried)) as pool:
        errors = [*pool.map(lambda each: rejected(*each), tried)]
    assert not [error for error in errors if wrong in error]


def test_who_reads_without_a_certificate_is_told_so(secured: Secured) -> None:
    """And does not wait as for a broker that is away."""
    tls = {"security.protocol": "SSL", "ssl.ca.location": str(secured.authority.certificate)}
    log = KafkaEventLog(secured.broker.mtls_address, security=tls)
    with closing(log.reader()) as reader:
        reader.assign({INPUT: 0})
        with pytest.raises(Unavailable, match=r"SSL alert number.*password and certificates"):
            wait_until(lambda: reader.fetch(1, 100), 10, "the reader is rejected")


READER = "secure.ingestion.reports"


class EndsThree:
    """The first three connections, at the request with ``key``."""

    def __init__(self, key: int) -> None:
        self.key, self.ended = key, 0

    def __call__(self, key: int) -> bool:
        ends = key == self.key and self.ended < 3
        self.ended += ends
        return ends


@pytest.mark.parametrize("key", [SASL_HANDSHAKE, SASL_AUTHENTICATE])
def test_a_connection_that_ends_before_it_is_let_in_is_made_again(
    secured: Secured, key: int
) -> None:
    """A reader waits as for a broker that is away, and one with a wrong password is told so as soon
    as a broker has seen it.
    """
    broker = secured.broker
    once(broker.log(WHO), INPUT)
    certificate = secured.authority.issue(f"relay.{key}")
    for password in (None, "guessed-password"):
        ends = EndsThree(key)
        security = broker.by_password(READER, password)
        with (
            broker_in_tls(broker.address, secured.authority, certificate, ends) as address,
            closing(KafkaEventLog(address, security=security).reader()) as reader,
        ):
            reader.assign({INPUT: 0})
            if password is None:
                wait_until(lambda: reader.fetch(1, 100), 20, "the record")
            else:
                with pytest.raises(Unavailable, match=r"invalid credentials.*user, password"):
                    wait_until(lambda: reader.fetch(1, 100), 20, "it is rejected")
        assert ends.ended == 3


@contextmanager
def impostor(certificate: Certificate) -> Iterator[tuple[str, list[bytes]]]:
    """Somebody else where a broker should be: its address, and what clients said to it after
    the handshake.
    """
    heard: list[bytes] = []

    def hear(client: ssl.SSLSocket) -> None:
        client.settimeout(2)
        heard.append(client.recv(100))

    with tls_server(certificate, hear) as address:
        yield address, heard


def test_a_false_broker_learns_nothing(secured: Secured, tmp_path: Path) -> None:
    """Its authority is unknown, or its host is another: in both cases not even the user's name is
    sent.
    """
    for certificate in (
        Authority(tmp_path, "stranger").issue("broker"),
        secured.authority.issue("elsewhere", hosts="DNS:elsewhere"),
    ):
        with impostor(certificate) as (address, heard):
            rejected(address, secured.broker.by_password(WHO))
        assert not [received for received in heard if received]


def test_a_new_password_counts_without_a_restart(
    secured: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Open connections stay; a new one reads the file again."""
    who = "secure.producer.payments"
    file = tmp_path / "password"
    file.write_text(secured.passwords[who] + "\n")
    file.chmod(0o600)
    settings = {
        "SECURITY_PROTOCOL": "SASL_SSL",
        "SASL_USERNAME": who,
        "SASL_PASSWORD_FILE": file,
        "SSL_CA": secured.authority.certificate,
    }
    for name, value in settings.items():
        monkeypatch.setenv(PREFIX + name, str(value))
    log, at = KafkaEventLog(secured.broker.address), TopicPartition("secure-in.payments", 0)
    with closing(log.writer()) as running, closing(log.reader(follows=True)) as following:
        running.send(at, b"x")
        running.flush()
        following.assign({at: 0})
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4_096)
        administrator = secured.broker.administrator()
        changed = administrator.alter_user_scram_credentials(
            [UserScramCredentialUpsertion(who, info, b"a new one")]
        )
        for future in changed.values():
            future.result(timeout=20)
        with pytest.raises(AdapterError):
            once(KafkaEventLog(secured.broker.address, delivery_timeout_ms=5_000), at)
        file.write_text("a new one")
        once(log, at)
        running.send(at, b"x")
        running.flush()
        assert following.offsets(at)[1] >= 3, "the question goes by a new connection"


def test_the_doctor_asks_over_tls(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    operator = "secure.operator"
    settings = {
        "SECURITY_PROTOCOL": "SASL_SSL",
        "SASL_USERNAME": operator,
        "SASL_PASSWORD": secured.passwords[operator],
        "SSL_CA": str(secured.authority.certificate),
    }
    for name, value in settings.items():
        monkeypatch.setenv(PREFIX + name, value)
    assert doctor.end_txn_version(doctor.api_versions(secured.broker.address)) >= 5
    checks = doctor.examine(secured.broker.address, Path())
    assert [
        check.name for check in checks if not check.good and check.name in ("Broker", "Clock")
    ] == []
