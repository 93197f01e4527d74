"""What readers of the demo and of runs under faults make of what they read."""

from __future__ import annotations

from typing import Any, cast

import pytest

from demo.consuming import rejected
from demo.traffic import Rejected

OURS = [
    ("anabranch-topic", b"reports.0"),
    ("anabranch-partition", b"1"),
    ("anabranch-offset", b"5"),
    ("anabranch-reason", b"not_json"),
]


class Read:
    """A record, as the client gives it."""

    def __init__(
        self, value: bytes | None, headers: list[tuple[str, bytes]], key: bytes | None = None
    ) -> None:
        self._value = value
        self._headers = headers
        self._key = key

    def value(self) -> bytes | None:
        return self._value

    def key(self) -> bytes | None:
        return self._key

    def headers(self) -> list[tuple[str, bytes]]:
        return self._headers


def letter(*args: Any, **named: Any) -> Rejected:
    return rejected(cast("Any", Read(*args, **named)))


def test_a_dead_letter_is_the_record_that_it_was() -> None:
    assert letter(b"{", OURS) == Rejected("reports.0", 1, 5, "not_json", b"{")
    assert letter(None, OURS).value is None
    assert letter(b"{", [*OURS, ("anabranch-error", b"no")]).value == b"{"


def test_one_with_what_nobody_sent_is_found() -> None:
    with pytest.raises(ValueError, match="the key b'k'"):
        letter(b"{", OURS, key=b"k")
    with pytest.raises(ValueError, match=r"the headers \['trace'\]"):
        letter(b"{", [("trace", b"1"), *OURS])
    with pytest.raises(ValueError, match="int"):
        letter(b"{", OURS[:1])
