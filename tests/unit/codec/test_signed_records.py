"""Signatures of boundary records: what counts, and everything that does not."""

from __future__ import annotations

import pytest

from anabranch.adapters.signing import SigningKey
from anabranch.codec.boundary_records import Headers
from anabranch.codec.signed_records import (
    SIGNATURE_HEADER,
    SIGNER_HEADER,
    by_one_of,
    signature_of,
    signed,
    signed_message,
    verifier,
)
from anabranch.protocol.errors import ConfigurationError, RemoteProtocolError
from anabranch.protocol.federation.published_keys import PublishedKey, PublishedKeys
from anabranch.protocol.federation.statements import Signature

OLD, NEW, OTHER = (SigningKey.generate("north", name) for name in ("old", "new", "other"))
TOPIC, VALUE = "north.speeds.boundaries", b"a record"
HEADERS = signed(TOPIC, VALUE, NEW.sign_message)
SIGNER, SIGNATURE = HEADERS
VERIFY = by_one_of([OLD.public, NEW.public])


@pytest.mark.parametrize("key", [OLD, NEW])
def test_what_one_of_the_keys_signed_counts(key: SigningKey) -> None:
    found = signature_of([("x", b"y"), *signed(TOPIC, VALUE, key.sign_message)])
    assert (found.participant, found.key_id) == ("north", key.key_id)
    assert VERIFY(signed_message(TOPIC, VALUE), found.value)


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [SIGNER],
        [SIGNATURE],
        [SIGNER, (SIGNATURE_HEADER, None)],
        [SIGNER, (SIGNATURE_HEADER, b"short")],
        [(SIGNER_HEADER, None), SIGNATURE],
        [(SIGNER_HEADER, b"n" * 401), SIGNATURE],
        [*HEADERS, SIGNATURE],
        [*HEADERS, SIGNER],
    ],
)
def test_what_is_no_signature_is_none(headers: Headers) -> None:
    with pytest.raises(RemoteProtocolError, match="signed"):
        signature_of(headers)


@pytest.mark.parametrize("signer", [b"", b"north", b"/", b"\xff/1"])
def test_a_signer_with_a_strange_name_is_nobody(signer: bytes) -> None:
    keys = PublishedKeys()
    assert keys.add("north", PublishedKey("north", "1", NEW.public), 0) == ""
    found = signature_of([(SIGNER_HEADER, signer), SIGNATURE])
    assert not verifier(keys)(found, signed_message(TOPIC, VALUE), 0)


@pytest.mark.parametrize(
    ("topic", "value", "key"),
    [
        (TOPIC, VALUE, OTHER),
        (TOPIC, b"another record", NEW),
        (TOPIC, None, NEW),
        ("south.speeds.boundaries", VALUE, NEW),
        ("north.speeds.boundarie", b"s" + VALUE, NEW),
    ],
)
def test_nothing_else_does(topic: str, value: bytes | None, key: SigningKey) -> None:
    signature = key.sign_message(signed_message(TOPIC, VALUE)).value
    assert not VERIFY(signed_message(topic, value), signature)


def test_a_published_key_counts_at_its_time() -> None:
    keys = PublishedKeys()
    keys.add("north", PublishedKey("north", "new", NEW.public), 10)
    keys.add("north", PublishedKey("north", "new", NEW.public, is_revoked=True), 20)
    message = signed_message(TOPIC, VALUE)
    signature = NEW.sign_message(message)
    assert [verifier(keys)(signature, message, at) for at in (9, 10, 19, 20)] == [
        False,
        True,
        True,
        False,
    ]
    assert not verifier(keys)(Signature("north", "new", bytes(64)), message, 10)


def test_a_key_that_is_none_is_reported_at_once() -> None:
    with pytest.raises(ConfigurationError, match="key of a binding"):
        by_one_of([b"short"])
