"""The one place where librdkafka's errors become anabranch's (table-driven,
tests/unit/adapters/kafka/test_errors.py).

The question behind every row is: *may the request have had an effect?*

- it certainly had none: ``Unavailable``;
- it may have: ``OutcomeUnknown``;
- someone newer replaced this one: ``Fenced``;
- data that was named is not there: ``DataMissing``.

A code that is in no table is treated as the caller's worst case: a write of unknown outcome, a
question without answer.
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


class Doing(Enum):
    """The request on which the error came."""

    SENDING = "sending"
    """A record, in a transaction or not."""
    TRANSACTION = "transaction"
    """init, begin, commit, abort."""
    FETCHING = "fetching"
    ASKING = "asking"
    """Offsets, metadata, settings, creating topics: safe to repeat."""


_FENCED: Final = frozenset(
    {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}
)

_TOO_LARGE: Final = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
"""Of one record, or of those that were sent together with it."""

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
"""A record with one of these is certainly not in the log. Time-outs are not here: librdkafka
does not tell whether it was under way.
"""

_FOLLOWING: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._STATE})
"""What the records behind a failed one get: dropped from the queue, or not taken into it
since the transaction can only be aborted.
"""

UNSEEN: Final = frozenset(
    {
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    }
)
"""Which of the two it is, a broker does not tell who may not know."""

_MISSING: Final = frozenset(
    {
        KafkaError._AUTO_OFFSET_RESET,
        KafkaError.OFFSET_OUT_OF_RANGE,
        KafkaError._LOG_TRUNCATION,
        KafkaError._NO_OFFSET,
    }
)

_BROKEN_DATA: Final = frozenset(
    {KafkaError._BAD_MSG, KafkaError.INVALID_MSG, KafkaError._BAD_COMPRESSION}
)
"""What a reader finds when bytes in the log do not match their checksum."""

_NOT_LET_IN: Final = frozenset(
    {KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError.SASL_AUTHENTICATION_FAILED}
)

_UNANSWERED_HANDSHAKE: Final = re.compile(r"mechanism handshake failed: Local: ")
"""A connection that ended while a broker was asked which mechanisms it takes, before it saw any
password: librdkafka takes this for a failed authentication. The text has its own error then, and
the broker's if it had answered.
"""

_CERTIFICATE_ALERT: Final = re.compile(r"SSL alert number (?:4[2-689]|116)\b")
"""What a broker answers to whose certificate is missing, expired or of an authority that it does
not know (RFC 8446, 6.2). With TLS 1.3 it comes after the client's handshake, so librdkafka takes
it for a connection that broke.
"""

_FOR_GOOD: Final = frozenset(
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
"""A reader that meets one of these, or is not let in, does not get further by waiting."""

_UNANSWERED: Final = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
    }
)


def translated(error: KafkaError, doing: Doing, what: str) -> AnabranchError:
    """The anabranch error for ``error``; ``what`` describes the request, for its text."""
    text = f"{what}: {error.name()}: {error.str()}"
    code = error.code()
    if code in UNSEEN:
        text += (
            ": there is no such topic, or this principal may not see it (`anabranch topics` and"
            " `anabranch acls` list what is needed)"
        )
    elif not_let_in(error):
        text += ": check the user, password and certificates of its settings (docs/security.md)"
    if code in _FENCED:
        return Fenced(text)
    if doing is Doing.FETCHING:
        return DataMissing(text) if code in _MISSING or code in _BROKEN_DATA else Unavailable(text)
    if doing is Doing.ASKING:
        return DataMissing(text) if code in _MISSING else Unavailable(text)
    if doing is Doing.SENDING and code in _NOT_SENT and not error.fatal():
        return RecordTooLarge(text) if code in _TOO_LARGE else Unavailable(text)
    if (
        doing is Doing.TRANSACTION
        and code in _NOT_SENT
        and not error.fatal()
        and not error.txn_requires_abort()
    ):
        return Unavailable(text)
    return OutcomeUnknown(text)


def not_let_in(error: KafkaError) -> bool:
    """Whether a broker rejects who asks, or is not the one that it should be."""
    code, text = error.code(), error.str()
    if code == KafkaError._TRANSPORT:
        return _CERTIFICATE_ALERT.search(text) is not None
    return code in _NOT_LET_IN and _UNANSWERED_HANDSHAKE.search(text) is None


def says_missing(error: KafkaError) -> bool:
    """Whether a broker has answered that an offset does not exist."""
    return error.code() in _MISSING


def nobody_answers(error: KafkaError) -> bool:
    """Whether a request got no answer from any broker: a wrong address, one that is not
    there, one that speaks otherwise.
    """
    return error.code() in _UNANSWERED


def no_answer(error: KafkaError, settings: KafkaSettings, timeout_s: float) -> Unavailable:
    """For people, who know an address and not the names of librdkafka's errors."""
    return Unavailable(
        f"no Kafka broker answers at {settings.address} within {timeout_s:g} s: check the address"
        f" and that it runs; with TLS or passwords set {settings.security_variable}"
        f" (docs/security.md) ({error.name()}: {error.str()})"
    )


def follows_another(error: KafkaError) -> bool:
    """Whether a record failed only because another one had: that one's error is the one to
    tell and to judge by.
    """
    return error.code() in _FOLLOWING


def names_nobody(error: KafkaError) -> bool:
    """Whether the address has a host name that does not resolve."""
    return bool(error.code() == KafkaError._RESOLVE)


def ends_reading(error: KafkaError) -> bool:
    """Whether a reader that met ``error`` must tell its caller; anything else is passing
    trouble that librdkafka works on itself.
    """
    code = error.code()
    lasts = code in _MISSING or code in _BROKEN_DATA or code in _FOR_GOOD
    return error.fatal() or lasts or not_let_in(error)
