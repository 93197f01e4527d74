"""Signatures of boundary records: what counts, and everything that does not."""

from __future__ import annotations

import pytest

from anabranch.adapters.signing import SigningKey
from anabranch.codec.boundary_records import Headers
from anabranch.codec.signed_records import SIGNATURE_HEADER, by_one_of, check_signature, signed
from anabranch.protocol.errors import ConfigurationError, RemoteProtocolError

OLD, NEW, OTHER = (SigningKey.generate("north", name) for name in ("old", "new", "other"))
TOPIC, VALUE = "north.speeds.boundaries", b"a record"
HEADER = signed(TOPIC, VALUE, NEW.sign_bytes)
VERIFY = by_one_of([OLD.public, NEW.public])


def test_what_one_of_the_keys_signed_counts() -> None:
    check_signature(TOPIC, VALUE, [("x", b"y"), HEADER], VERIFY)
    check_signature(TOPIC, VALUE, [signed(TOPIC, VALUE, OLD.sign_bytes)], VERIFY)


@pytest.mark.parametrize(
    ("topic", "value", "headers"),
    [
        (TOPIC, VALUE, []),
        (TOPIC, VALUE, [(SIGNATURE_HEADER, None)]),
        (TOPIC, VALUE, [(SIGNATURE_HEADER, b"short")]),
        (TOPIC, VALUE, [HEADER, HEADER]),
        (TOPIC, VALUE, [signed(TOPIC, VALUE, OTHER.sign_bytes)]),
        (TOPIC, b"another record", [HEADER]),
        (TOPIC, None, [HEADER]),
        ("south.speeds.boundaries", VALUE, [HEADER]),
        ("north.speeds.boundarie", b"s" + VALUE, [HEADER]),
    ],
)
def test_nothing_else_does(topic: str, value: bytes | None, headers: Headers) -> None:
    with pytest.raises(RemoteProtocolError, match="sign"):
        check_signature(topic, value, headers, VERIFY)


def test_a_key_that_is_none_is_said_at_once() -> None:
    with pytest.raises(ConfigurationError, match="key of a binding"):
        by_one_of([b"short"])
