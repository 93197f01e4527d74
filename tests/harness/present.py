"""A value that must be there, for the reader of a test and for the type checker."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def present(value: T | None) -> T:
    """Return ``value``, which must not be None."""
    assert value is not None
    return value
