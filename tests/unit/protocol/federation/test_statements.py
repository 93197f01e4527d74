"""Tests of what is signed, byte for byte."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.errors import LocalProtocolError
from anabranch.protocol.federation.contracts import Side
from anabranch.protocol.federation.statements import PREFIX, Signature, is_signed, signed_bytes
from harness.markets import CONTRACT, contract, signature, verify


@dataclass(frozen=True)
class Inner:
    x: Any


@dataclass(frozen=True)
class Text:
    SIGNED_AS: ClassVar[str] = "said"

    a: Any
    b: Any = None


@dataclass(frozen=True)
class OtherText:
    SIGNED_AS: ClassVar[str] = "said otherwise"

    a: Any
    b: Any = None


def value_of(letter: bytes, content: bytes) -> Any:
    match letter:
        case b"N":
            return None
        case b"B":
            return content == b"\x01"
        case b"I":
            return int(content)
        case b"S":
            return content.decode()
        case b"T":
            return read(content)
        case _:
            return content


def read(encoded: bytes) -> list[Any]:
    """All values, with their types: a second reading of the encoding."""
    found = []
    while encoded:
        letter, length = encoded[:1], int.from_bytes(encoded[1:9], "big")
        content, encoded = encoded[9 : 9 + length], encoded[9 + length :]
        assert len(content) == length
        found.append(value_of(letter, content))
    return found


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(st.characters(codec="utf-8"), max_size=9)
    | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=3).map(tuple) | inner.map(Inner),
    max_leaves=6,
)


def plain(value: Any) -> Any:
    if isinstance(value, Inner):
        return ["x", plain(value.x)]
    return [plain(each) for each in value] if isinstance(value, tuple) else value


@given(VALUES, VALUES)
def test_fs1_a_statement_can_be_read_back_so_no_two_share_bytes(a: Any, b: Any) -> None:
    encoded = signed_bytes(Text(a, b))
    assert encoded.startswith(PREFIX)
    assert read(encoded.removeprefix(PREFIX)) == [["said", "a", plain(a), "b", plain(b)]]


@pytest.mark.parametrize("value", [1, True, "1", b"1", (1,), None, "", b"", (), 0, False])
def test_fs1_values_that_python_or_a_reader_may_take_for_each_other_differ(value: Any) -> None:
    others = [1, True, "1", b"1", (1,), None, "", b"", (), 0, False]
    same = [other for other in others if signed_bytes(Text(other)) == signed_bytes(Text(value))]
    assert len(same) == 1
    assert same[0] is value or same[0] == value


def test_these_bytes_stay() -> None:
    """They were signed: an encoding that changes makes all signatures void."""
    expected = b"T" + bytes(7) + b"\x3a"
    assert signed_bytes(Text(-7, Side.BUYER)) == (
        b"anabranch statement 1\n"
        + expected
        + b"S\0\0\0\0\0\0\0\x04said"
        + b"S\0\0\0\0\0\0\0\x01a"
        + b"I\0\0\0\0\0\0\0\x02-7"
        + b"S\0\0\0\0\0\0\0\x01b"
        + b"S\0\0\0\0\0\0\0\x05buyer"
    )


def test_fs2_a_signature_of_one_kind_of_statement_is_none_of_another() -> None:
    given_signature = signature(Text("x"), "north")
    assert is_signed(Text("x"), "north", given_signature, verify)
    assert not is_signed(OtherText("x"), "north", given_signature, verify)


def test_a_signature_is_of_one_participant_and_whole() -> None:
    given_signature = signature(CONTRACT, "north")
    assert is_signed(CONTRACT, "north", given_signature, verify)
    assert not is_signed(CONTRACT, "south", given_signature, verify)
    assert not is_signed(contract(fixed_price=999), "north", given_signature, verify)
    short = Signature("north", "1", given_signature.value[:-1])
    assert not is_signed(CONTRACT, "north", short, lambda _signature, _message: True)


def test_a_value_without_an_encoding_is_a_bug_here() -> None:
    with pytest.raises(LocalProtocolError, match="float has no encoding"):
        signed_bytes(Text(1.5))
