"""Real signatures, by real keys, asked for by the rules."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.adapters.signing import SigningKey
from anabranch.codec.signed_records import verifier
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.federation.contract_book import Book, Verdict
from anabranch.protocol.federation.contracts import defects
from anabranch.protocol.federation.published_keys import KEY_BYTES, PublishedKey, PublishedKeys
from anabranch.protocol.federation.statements import Verify, is_signed, signed_bytes
from harness.markets import CONTRACT, contract

SECRET = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
PUBLIC = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
"""The first test vector of RFC 8032."""


def keys() -> tuple[SigningKey, SigningKey, PublishedKeys]:
    north = SigningKey.generate("north", "1")
    south = SigningKey.generate("south", "1")
    published = PublishedKeys()
    for key in (north, south):
        publish(published, key)
    return north, south, published


def publish(published: PublishedKeys, key: SigningKey, at_ms: int = 0) -> None:
    word = PublishedKey(key.participant, key.key_id, key.public)
    assert published.add(key.participant, word, at_ms) == ""


def at(published: PublishedKeys, now_ms: int) -> Verify:
    """Return the verifier at ``now_ms``, for rules without a time."""
    verify = verifier(published)
    return lambda signature, message: verify(signature, message, now_ms)


def test_a_key_is_that_of_the_standard() -> None:
    key = SigningKey("north", "1", SECRET)
    assert (key.public, key.secret) == (PUBLIC, SECRET)
    assert repr(key) == "SigningKey('north', '1')"


def test_a_contract_is_active_when_both_have_signed_it_with_published_keys() -> None:
    north, south, published = keys()
    book = Book(at(published, 0), defects)
    assert book.sign(CONTRACT, north.sign(CONTRACT), 0) is Verdict.ACCEPTED
    assert (
        book.sign(CONTRACT, replace(north.sign(CONTRACT), participant="south"), 0)
        is Verdict.UNSIGNED
    )
    assert (
        book.sign(CONTRACT, SigningKey.generate("south", "1").sign(CONTRACT), 0) is Verdict.UNSIGNED
    )
    assert book.sign(CONTRACT, south.sign(contract(fixed_price=1_001)), 0) is Verdict.UNSIGNED
    assert book.sign(CONTRACT, south.sign(CONTRACT), 0) is Verdict.ACCEPTED
    booked = book.find("north-south")
    assert booked is not None
    assert booked.may_move(0)


def test_a_signature_counts_while_its_key_does() -> None:
    north, _, published = keys()
    second = SigningKey.generate("north", "2")
    publish(published, second, 50)
    published.add("north", PublishedKey("north", "2", second.public, is_revoked=True), 70)
    signed = second.sign(CONTRACT)
    assert [is_signed(CONTRACT, "north", signed, at(published, t)) for t in (49, 50, 69, 70)] == [
        False,
        True,
        True,
        False,
    ]
    assert is_signed(CONTRACT, "north", north.sign(CONTRACT), at(published, 70))
    stranger = SigningKey.generate("north", "3").sign(CONTRACT)
    assert not is_signed(CONTRACT, "north", stranger, at(published, 70))


@pytest.mark.parametrize("secret", [b"", SECRET[:-1], SECRET + b"0"])
def test_a_key_of_another_length_is_rejected_and_not_shown(secret: bytes) -> None:
    with pytest.raises(
        ConfigurationError, match=rf"signing key 1 of north: {len(secret)} bytes, not {KEY_BYTES}"
    ) as raised:
        SigningKey("north", "1", secret)
    assert secret.hex() not in str(raised.value) or not secret


@given(st.integers(0, 63), st.integers(0, 7))
def test_a_signature_with_one_bit_changed_is_none(place: int, bit: int) -> None:
    key, published = SigningKey("north", "1", SECRET), PublishedKeys()
    publish(published, key)
    good, verify = key.sign(CONTRACT), at(published, 0)
    assert verify(good, signed_bytes(CONTRACT))
    value = bytearray(good.value)
    value[place] ^= 1 << bit
    assert not verify(replace(good, value=bytes(value)), signed_bytes(CONTRACT))
