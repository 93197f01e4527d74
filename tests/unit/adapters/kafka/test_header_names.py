"""``adapters.kafka.header_names``: pairs whose names the client left unset."""

from __future__ import annotations

import ctypes
from typing import Any

from anabranch.adapters.kafka.header_names import UNKNOWN_NAME, readable_headers


def unset(value: bytes | None) -> tuple[Any, ...]:
    """Return a pair as the client makes it of a name that it cannot decode."""
    made: tuple[Any, ...] = (object(), value)
    # The name is lost; it stays in memory for as long as the test.
    ctypes.c_void_p.from_address(id(made) + tuple.__basicsize__).value = None
    return made


def test_every_pair_has_a_name_and_its_value() -> None:
    headers = [("n", b"1"), unset(b"2"), ("n", None), ("n", b"1"), unset(None), unset(b"5")]
    assert readable_headers(headers, b"caf\xe9") == [
        ("n", b"1"),
        ("caf\udce9", b"2"),
        ("n", None),
        ("n", b"1"),
        (UNKNOWN_NAME, None),
        (UNKNOWN_NAME, b"5"),
    ]


def test_headers_that_have_names_stay() -> None:
    assert readable_headers([("a", b""), ("a", None)], b"\xff") == [("a", b""), ("a", None)]
    assert readable_headers([], b"\xff") == []
