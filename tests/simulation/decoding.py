"""Decoding of the project's own records within a run: the same bytes once, however many processes
and checkers read them.

Nothing becomes kinder by it. What decoding returns follows from the bytes, and from limits that
stay the same meanwhile; it is immutable, so no reader sees what another does. What is rejected is
decoded again by each.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from anabranch.codec import boundary_records, control_records


@contextlib.contextmanager
def decoded_once() -> Iterator[None]:
    """Keep every decoded boundary and control record until the block ends."""
    with contextlib.ExitStack() as changed:
        for codec in (boundary_records, control_records):
            changed.enter_context(mock.patch.object(codec, "decode", _remembering(codec.decode)))
        yield


def _remembering(decode: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``decode`` with a memory of what it has returned for each value."""
    known: dict[bytes, object] = {}

    def decode_once(value: bytes | None, *headers: object) -> object:
        found = None if value is None else known.get(value)
        if found is None:
            found = decode(value, *headers)
            if value is not None:
                known[value] = found
        return found

    return decode_once
