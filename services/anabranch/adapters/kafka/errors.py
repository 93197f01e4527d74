"""Translation of librdkafka's errors to anabranch's. No other module does this (table-driven,
tests/unit/adapters/kafka/test_errors.py).

Every row answers one question: *may the request have had an effect?*

- it certainly had none: ``Unavailable``;
- it may have had one: ``OutcomeUnknown``;
- a newer writer replaced this one: ``Fenced``;
- the requested data does not exist: ``DataMissing``.

A code that is in no table counts as the caller's worst case: an unknown outcome for a write, no
answer for a question.
"""

# ruff: noqa: SLF001 - the names of librdkafka's own codes begin with an underscore; they are public

from __future__ import annotations

import re
from enum import Enum
from typing import Final

from confluent_kafka import KafkaError

from anabranch.adapters.kafka.settings import KafkaSettings
from anabranch.protocol.errors import (
    AnabranchError,
    DataMissing,
    Fenced,
    OutcomeUnknown,
    RecordTooLarge,
    Unavailable,
)


class Request(Enum):
    """Kind of request that failed."""

    SENDING = "sending"
    """Sending a record, in a transaction or not."""
    TRANSACTION = "transaction"
    """init, begin, commit or abort of a transaction."""
    FETCHING = "fetching"
    ASKING = "asking"
    """Requests for offsets, metadata or settings, and creation of topics: safe to repeat."""


_FENCED: Final = frozenset(
    {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}
)

_TOO_LARGE: Final = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
"""Codes for a record that is too large, or for a batch of records sent together."""

_NOT_SENT: Final = _TOO_LARGE | frozenset(
    {
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        KafkaError.UNSUPPORTED_COMPRESSION_TYPE,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.POLICY_VIOLATION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._QUEUE_FULL,
        KafkaError._PURGE_QUEUE,
        KafkaError._INVALID_ARG,
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
    }
)
"""Codes with which a record is certainly not in the log. Timeouts are not among them: librdkafka
does not report whether the record was already sent.
"""

_FOLLOWING: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._STATE})
"""Codes of the records queued after a failed one: dropped from the queue, or not accepted because
the transaction can only be aborted.
"""

UNSEEN: Final = frozenset(
    {
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    }
)
"""Codes for a topic that does not exist or that this principal may not see: a broker does not
disclose which.
"""

_MISSING: Final = frozenset(
    {
        KafkaError._AUTO_OFFSET_RESET,
        KafkaError.OFFSET_OUT_OF_RANGE,
        KafkaError._LOG_TRUNCATION,
        KafkaError._NO_OFFSET,
    }
)
"""Codes for an offset that does not exist."""

_BROKEN_DATA: Final = frozenset(
    {KafkaError._BAD_MSG, KafkaError.INVALID_MSG, KafkaError._BAD_COMPRESSION}
)
"""Codes for bytes in the log that do not match their checksum."""

_REJECTED_LOGIN: Final = frozenset(
    {KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError.SASL_AUTHENTICATION_FAILED}
)
"""Codes for a failed authentication or TLS handshake."""

_UNANSWERED_HANDSHAKE: Final = re.compile(r"mechanism handshake failed: Local: ")
"""Text of a connection that ended while the broker was asked for its SASL mechanisms, before it
received a password. librdkafka reports this as a failed authentication; ``Local:`` marks an error
of its own, not the broker's answer.
"""

_CERTIFICATE_ALERT: Final = re.compile(r"SSL alert number (?:4[2-689]|116)\b")
"""Text of a broker's TLS alert for a client certificate that is missing, expired or of an unknown
authority (RFC 8446, 6.2). With TLS 1.3 it arrives after the client's handshake, so librdkafka
reports a broken connection.
"""

_PERMANENT: Final = frozenset(
    {
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError._INVALID_ARG,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.TOPIC_EXCEPTION,
    }
)
"""Codes that end reading: waiting does not help."""

_UNANSWERED: Final = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
    }
)
"""Codes of requests that no broker answered."""


def translated(error: KafkaError, request: Request, what: str) -> AnabranchError:
    """Return the anabranch error for ``error``. ``what``: description of the request, for
    its text.
    """
    text = f"{what}: {error.name()}: {error.str()}"
    code = error.code()
    if code in UNSEEN:
        text += (
            ": there is no such topic, or this principal may not see it (`anabranch topics` and"
            " `anabranch acls` list what is needed)"
        )
    elif is_login_rejected(error):
        text += ": check the user, password and certificates of its settings (docs/security.md)"
    if code in _FENCED:
        return Fenced(text)
    if request is Request.FETCHING:
        return DataMissing(text) if code in _MISSING or code in _BROKEN_DATA else Unavailable(text)
    if request is Request.ASKING:
        return DataMissing(text) if code in _MISSING else Unavailable(text)
    if request is Request.SENDING and code in _NOT_SENT and not error.fatal():
        return RecordTooLarge(text) if code in _TOO_LARGE else Unavailable(text)
    if (
        request is Request.TRANSACTION
        and code in _NOT_SENT
        and not error.fatal()
        and not error.txn_requires_abort()
    ):
        return Unavailable(text)
    return OutcomeUnknown(text)


def says_damaged(error: KafkaError) -> bool:
    """Return whether bytes in the log do not match their checksum."""
    return error.code() in _BROKEN_DATA


def is_login_rejected(error: KafkaError) -> bool:
    """Return whether the broker rejected this client's login or certificate, or the client rejected
    the broker's.
    """
    code, text = error.code(), error.str()
    if code == KafkaError._TRANSPORT:
        return _CERTIFICATE_ALERT.search(text) is not None
    return code in _REJECTED_LOGIN and _UNANSWERED_HANDSHAKE.search(text) is None


def says_missing(error: KafkaError) -> bool:
    """Return whether a broker has answered that an offset does not exist."""
    return error.code() in _MISSING


def is_unanswered(error: KafkaError) -> bool:
    """Return whether no broker answered a request: the address is wrong, no broker listens there,
    or it expects another security protocol.
    """
    return error.code() in _UNANSWERED


def no_answer(error: KafkaError, settings: KafkaSettings, timeout_s: float) -> Unavailable:
    """Return the error for ``is_unanswered``, in words for people, who know an address and not the
    names of librdkafka's errors.
    """
    return Unavailable(
        f"no Kafka broker answers at {settings.address} within {timeout_s:g} s: check the address"
        f" and that it runs; with TLS or passwords set {settings.security_variable}"
        f" (docs/security.md) ({error.name()}: {error.str()})"
    )


def is_consequential(error: KafkaError) -> bool:
    """Return whether a record failed only because another one had failed. The other one's error is
    then the one to report and to judge by.
    """
    return error.code() in _FOLLOWING


def is_unresolved(error: KafkaError) -> bool:
    """Return whether the address has a host name that does not resolve."""
    return bool(error.code() == KafkaError._RESOLVE)


def ends_reading(error: KafkaError) -> bool:
    """Return whether a reader must raise ``error``. All other errors are temporary, and librdkafka
    retries by itself.
    """
    code = error.code()
    lasts = code in _MISSING or code in _BROKEN_DATA or code in _PERMANENT
    return error.fatal() or lasts or is_login_rejected(error)
