"""Real signatures, by real keys, asked for by the rules."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.adapters.signing import KEY_BYTES, KeyRing, SigningKey
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.federation.contract_book import ContractBook, Verdict
from anabranch.protocol.federation.statements import is_signed, signed_bytes
from harness.markets import CONTRACT, contract

SECRET = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
PUBLIC = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
"""The first test vector of RFC 8032."""


def keys() -> tuple[SigningKey, SigningKey, KeyRing]:
    north, south, ring = (
        SigningKey.generate("north", "1"),
        SigningKey.generate("south", "1"),
        KeyRing(),
    )
    for key in (north, south):
        assert ring.publish(key.participant, key.key_id, key.public)
    return north, south, ring


def test_a_key_is_that_of_the_standard() -> None:
    key = SigningKey("north", "1", SECRET)
    assert (key.public, key.secret) == (PUBLIC, SECRET)
    assert repr(key) == "SigningKey('north', '1')"


def test_a_contract_is_active_when_both_have_signed_it_with_published_keys() -> None:
    north, south, ring = keys()
    book = ContractBook(ring.verify)
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


def test_a_key_that_is_not_published_or_is_revoked_counts_for_nothing() -> None:
    north, _, ring = keys()
    second = SigningKey.generate("north", "2")
    assert not is_signed(CONTRACT, "north", second.sign(CONTRACT), ring.verify)
    assert ring.publish("north", "2", second.public)
    assert is_signed(CONTRACT, "north", second.sign(CONTRACT), ring.verify)
    before = north.sign(CONTRACT)
    ring.revoke("north", "1")
    assert not is_signed(CONTRACT, "north", before, ring.verify)
    assert not ring.publish("north", "1", north.public)
    assert is_signed(CONTRACT, "north", second.sign(CONTRACT), ring.verify)


def test_an_id_has_one_key() -> None:
    north, _, ring = keys()
    assert ring.publish("north", "1", north.public)
    assert not ring.publish("north", "1", SigningKey.generate("north", "1").public)
    assert not ring.publish("north", "3", north.public[:-1])
    assert is_signed(CONTRACT, "north", north.sign(CONTRACT), ring.verify)


@pytest.mark.parametrize("secret", [b"", SECRET[:-1], SECRET + b"0"])
def test_a_key_of_another_length_is_rejected_and_not_shown(secret: bytes) -> None:
    with pytest.raises(
        ConfigurationError, match=rf"signing key 1 of north: {len(secret)} bytes, not {KEY_BYTES}"
    ) as raised:
        SigningKey("north", "1", secret)
    assert secret.hex() not in str(raised.value) or not secret


@given(st.integers(0, 63), st.integers(0, 7))
def test_a_signature_with_one_bit_changed_is_none(place: int, bit: int) -> None:
    key, ring = SigningKey("north", "1", SECRET), KeyRing()
    ring.publish("north", "1", PUBLIC)
    good = key.sign(CONTRACT)
    assert ring.verify(good, signed_bytes(CONTRACT))
    value = bytearray(good.value)
    value[place] ^= 1 << bit
    assert not ring.verify(replace(good, value=bytes(value)), signed_bytes(CONTRACT))
