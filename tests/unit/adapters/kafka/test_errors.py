"""Table of errors: an error is judged by what may have happened, not by the library's name
for it.
"""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from anabranch.adapters.kafka.errors import Request, ends_reading, is_consequential, translated
from anabranch.protocol.errors import (
    AnabranchError,
    DataMissing,
    Fenced,
    OutcomeUnknown,
    RecordTooLarge,
    Unavailable,
)

S = Request.SENDING
T = Request.TRANSACTION
F = Request.FETCHING
A = Request.ASKING

TABLE: list[tuple[int, Request, type[AnabranchError]]] = [
    # code, during, what it becomes
    (KafkaError._FENCED, T, Fenced),
    (KafkaError._FENCED, S, Fenced),
    (KafkaError.PRODUCER_FENCED, T, Fenced),
    (KafkaError.INVALID_PRODUCER_EPOCH, S, Fenced),
    (KafkaError.MSG_SIZE_TOO_LARGE, S, RecordTooLarge),
    (KafkaError.RECORD_LIST_TOO_LARGE, S, RecordTooLarge),
    (KafkaError._UNKNOWN_TOPIC, S, Unavailable),
    (KafkaError._UNKNOWN_PARTITION, S, Unavailable),
    (KafkaError.UNKNOWN_TOPIC_OR_PART, S, Unavailable),
    (KafkaError.TOPIC_AUTHORIZATION_FAILED, S, Unavailable),
    (KafkaError._PURGE_QUEUE, S, Unavailable),
    (KafkaError._PURGE_INFLIGHT, S, OutcomeUnknown),
    (KafkaError._MSG_TIMED_OUT, S, OutcomeUnknown),
    (KafkaError._TIMED_OUT, S, OutcomeUnknown),
    (KafkaError._TRANSPORT, S, OutcomeUnknown),
    (KafkaError.REQUEST_TIMED_OUT, S, OutcomeUnknown),
    (KafkaError.NOT_ENOUGH_REPLICAS, S, OutcomeUnknown),
    (KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND, S, OutcomeUnknown),
    (KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, S, OutcomeUnknown),
    (KafkaError.UNKNOWN, S, OutcomeUnknown),
    (KafkaError._TIMED_OUT, T, OutcomeUnknown),
    (KafkaError._STATE, T, OutcomeUnknown),
    (KafkaError.INVALID_TXN_STATE, T, OutcomeUnknown),
    (KafkaError.UNKNOWN_PRODUCER_ID, T, OutcomeUnknown),
    (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, T, Unavailable),
    (KafkaError._AUTO_OFFSET_RESET, F, DataMissing),
    (KafkaError.OFFSET_OUT_OF_RANGE, F, DataMissing),
    (KafkaError._BAD_MSG, F, DataMissing),
    (KafkaError._AUTHENTICATION, F, Unavailable),
    (KafkaError._TIMED_OUT, A, Unavailable),
    (KafkaError._TRANSPORT, A, Unavailable),
    (KafkaError.UNKNOWN_TOPIC_OR_PART, A, Unavailable),
    (KafkaError.OFFSET_OUT_OF_RANGE, A, DataMissing),
    (KafkaError.INVALID_REPLICATION_FACTOR, A, Unavailable),
]


@pytest.mark.parametrize(("code", "during", "kind"), TABLE)
def test_table(code: int, during: Request, kind: type[AnabranchError]) -> None:
    error = translated(KafkaError(code, "why"), during, "send 3 records")
    assert type(error) is kind
    assert "send 3 records" in str(error)
    assert "why" in str(error)


@pytest.mark.parametrize("during", [S, T])
def test_a_fatal_error_leaves_the_outcome_open(during: Request) -> None:
    """Even where the code alone would be harmless: after a fatal error the client can no longer
    tell.
    """
    assert (
        type(translated(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, "why", fatal=True), during, "x"))
        is OutcomeUnknown
    )


def test_a_transaction_that_must_be_aborted_is_not_certain() -> None:
    error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "why", txn_requires_abort=True)
    assert type(translated(error, T, "x")) is OutcomeUnknown


def test_every_code_becomes_an_error_of_the_project_and_no_write_is_certain_by_default() -> None:
    codes = [
        value
        for name in dir(KafkaError)
        if name.isupper() and isinstance(value := getattr(KafkaError, name), int)
    ]
    assert len(codes) > 150
    for during in Request:
        kinds = {type(translated(KafkaError(code), during, "x")) for code in codes}
        assert kinds <= {Fenced, OutcomeUnknown, RecordTooLarge, Unavailable, DataMissing}
    certain = {
        code for code in codes if isinstance(translated(KafkaError(code), S, "x"), Unavailable)
    }
    assert len(certain) < 25


@pytest.mark.parametrize(
    ("code", "ends"),
    [
        (KafkaError._TRANSPORT, False),
        (KafkaError._ALL_BROKERS_DOWN, False),
        (KafkaError._TIMED_OUT, False),
        (KafkaError.NOT_LEADER_FOR_PARTITION, False),
        (KafkaError._RESOLVE, False),
        (KafkaError._AUTO_OFFSET_RESET, True),
        (KafkaError._BAD_MSG, True),
        (KafkaError._AUTHENTICATION, True),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, True),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, True),
    ],
)
def test_passing_trouble_does_not_end_reading(code: int, ends: bool) -> None:
    assert ends_reading(KafkaError(code)) is ends


@pytest.mark.parametrize(
    ("alert", "rejected"),
    [
        ("bad certificate: SSL alert number 42", True),
        ("certificate expired: SSL alert number 45", True),
        ("certificate unknown: SSL alert number 46", True),
        ("unknown CA: SSL alert number 48", True),
        ("certificate required: SSL alert number 116", True),
        ("internal error: SSL alert number 80", False),
        ("user cancelled: SSL alert number 90", False),
        ("decode error: SSL alert number 47", False),
        ("not known: SSL alert number 420", False),
    ],
)
def test_a_certificate_that_the_broker_rejects_is_no_passing_trouble(
    alert: str, rejected: bool
) -> None:
    text = f"ssl://b:1: Receive failed: error:0A000412:SSL routines::ssl/tls alert {alert} (after"
    error = KafkaError(KafkaError._TRANSPORT, text)
    assert ends_reading(error) is rejected
    assert ("password and certificates" in str(translated(error, F, "read"))) is rejected


@pytest.mark.parametrize(
    ("text", "rejected"),
    [
        ("SASL PLAIN mechanism handshake failed: Local: Broker transport failure: broker's", False),
        ("SASL PLAIN mechanism handshake failed: Broker: Unsupported SASL mechanism: broker", True),
        ("SASL authentication error: Authentication failed during authentication due to in", True),
    ],
)
def test_a_connection_that_ends_before_any_password_is_passing_trouble(
    text: str, rejected: bool
) -> None:
    error = KafkaError(KafkaError._AUTHENTICATION, f"sasl_ssl://b:1/bootstrap: {text}")
    assert ends_reading(error) is rejected
    assert ("password and certificates" in str(translated(error, F, "read"))) is rejected


@pytest.mark.parametrize("code", [KafkaError._PURGE_QUEUE, KafkaError._STATE])
def test_what_fails_because_of_another_record_is_not_the_cause(code: int) -> None:
    assert is_consequential(KafkaError(code))


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError._PURGE_INFLIGHT,
        KafkaError._FENCED,
        KafkaError._MSG_TIMED_OUT,
    ],
)
def test_what_may_be_a_cause_is_reported(code: int) -> None:
    assert not is_consequential(KafkaError(code))
