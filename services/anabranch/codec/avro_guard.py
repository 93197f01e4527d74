"""Check of a value in Avro's binary encoding, before fastavro reads it.

fastavro believes the counts and the depth that the bytes claim: an array of a billion nulls takes
memory until none is left, and a record that contains itself often enough overflows the stack. It
also reads a torn record, a boolean of 7 or a branch of -1 as something. Here every length, count,
index and depth is checked, and no value is made: a hostile record costs no more than its own bytes.
Texts are not decoded.

What passes is read by fastavro to its last byte. As most readers do, this one accepts an integer
that is written with more bytes than it needs, up to ten, of which bits beyond 64 are dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from anabranch.codec.avro_schema import Type
from anabranch.protocol.limits import RECORD_DEPTH_MAX

__all__ = ["MalformedError", "TooDeepError", "TooManyItemsError", "compile_guard"]

_FIXED_BYTES: Final = {"null": 0, "float": 4, "double": 8}
_INT_MIN: Final = -(2**31)
_INT_MAX: Final = 2**31 - 1
_U64: Final = 2**64 - 1


class MalformedError(ValueError):
    """Raised when the bytes are not what the schema describes. Stays inside the codec: each caller
    decides what that means.
    """


class TooManyItemsError(MalformedError):
    """Raised when the arrays and maps have more items than are allowed."""


class TooDeepError(MalformedError):
    """Raised when a value of a recursive type contains itself more often than is allowed."""


class _Allowance:
    """Number of array and map items, and of passes through recursive types, that the rest of one
    value may still have.
    """

    __slots__ = ("items", "levels")

    def __init__(self, items: int) -> None:
        self.items = items
        self.levels = RECORD_DEPTH_MAX


_Skip = Callable[[bytes, int, _Allowance], int]
"""Checker of the value at a position: returns the position behind it, which lies beyond the end of
the bytes if the value claims to be longer than they are.
"""
Guard = Callable[[bytes, int, int], None]


def compile_guard(of: Type) -> Guard:
    """Return a function that checks the value of type ``of`` from a position to the end.

    The function raises MalformedError, TooManyItemsError for more than ``items_max`` items, its
    last argument, or TooDeepError.
    """
    skip = _Compiler().skip(of)

    def guard(data: bytes, position: int, items_max: int) -> None:
        try:
            end = skip(data, position, _Allowance(items_max))
        except IndexError:
            raise MalformedError("the bytes end within a value") from None
        if end > len(data):
            raise MalformedError(f"a value claims {end - len(data)} bytes more than there are")
        if end < len(data):
            raise MalformedError(f"{len(data) - end} bytes too many")

    return guard


class _Compiler:
    """Compiler of one schema into checkers of values, one checker for each record type."""

    def __init__(self) -> None:
        self._made: dict[int, _Skip] = {}
        self._open: set[int] = set()
        self._recursive: set[int] = set()

    def skip(self, of: Type) -> _Skip:
        """Return the checker of values of a type."""
        if of.kind in _FIXED_BYTES or of.kind == "fixed":
            size = of.size or _FIXED_BYTES.get(of.kind, 0)
            return lambda _data, position, _allowance: position + size
        if of.kind == "enum":
            return _choice([_skip_nothing] * len(of.symbols), "symbol {} of an enum of {}")
        if of.kind == "union":
            return _choice([self.skip(each) for each in of.inner], "branch {} of a union of {}")
        if of.kind == "array":
            return _blocks(self.skip(of.inner[0]))
        if of.kind == "map":
            return _blocks(_sequence([_skip_bytes, self.skip(of.inner[0])]))
        return self._record(of) if of.kind == "record" else _PRIMITIVES[of.kind]

    def _record(self, of: Type) -> _Skip:
        made, number = self._made, of.number
        if number in self._open:  # from within: bound when the record's own skip is complete
            self._recursive.add(number)

            def again(data: bytes, position: int, allowance: _Allowance) -> int:
                return made[number](data, position, allowance)

            return again
        if number not in made:
            self._open.add(number)
            skip = _sequence([self.skip(each) for each in of.inner])
            self._open.remove(number)
            made[number] = _level(skip) if number in self._recursive else skip
        return made[number]


def _skip_nothing(_data: bytes, position: int, _allowance: _Allowance) -> int:
    return position


def _skip_long(data: bytes, position: int, _allowance: object = None) -> int:
    if data[position] < 0x80:
        return position + 1
    for end in range(position + 1, position + 10):
        if data[end] < 0x80:
            return end + 1
    raise MalformedError("an integer of more than ten bytes")


def _read_long(data: bytes, position: int) -> tuple[int, int]:
    """Return the integer at a position, and the position behind it."""
    value = data[position]
    end = position + 1
    if value >= 0x80:
        end = _skip_long(data, position)
        value = 0
        for byte in reversed(data[position:end]):
            value = value << 7 | byte & 0x7F
        value &= _U64
    return (value >> 1) ^ -(value & 1), end


def _skip_int(data: bytes, position: int, _allowance: _Allowance) -> int:
    value, end = _read_long(data, position)
    if not _INT_MIN <= value <= _INT_MAX:
        raise MalformedError(f"{value} does not fit an int")
    return end


def _skip_bytes(data: bytes, position: int, _allowance: _Allowance) -> int:
    first = data[position]
    if first < 0x80 and not first & 1:
        return position + 1 + (first >> 1)
    length, start = _read_long(data, position)
    if length < 0:
        raise MalformedError(f"a length of {length}")
    return start + length


def _skip_boolean(data: bytes, position: int, _allowance: _Allowance) -> int:
    if data[position] > 1:
        raise MalformedError(f"{data[position]} is not a boolean")
    return position + 1


_PRIMITIVES: Final[dict[str, _Skip]] = {
    "boolean": _skip_boolean,
    "int": _skip_int,
    "long": _skip_long,
    "bytes": _skip_bytes,
    "string": _skip_bytes,
}


def _sequence(skips: list[_Skip]) -> _Skip:
    def skip(data: bytes, position: int, allowance: _Allowance) -> int:
        for each in skips:
            position = each(data, position, allowance)
        return position

    return skip


def _choice(branches: list[_Skip], text: str) -> _Skip:
    """Return the checker of an index, and what the index selects. ``text`` names an index that is
    out of range.
    """

    def skip(data: bytes, position: int, allowance: _Allowance) -> int:
        index, position = _read_long(data, position)
        if not 0 <= index < len(branches):
            raise MalformedError(text.format(index, len(branches)))
        return branches[index](data, position, allowance)

    return skip


def _blocks(item: _Skip) -> _Skip:
    """Return the checker of the blocks of an array or map. ``item`` checks one item."""

    def skip(data: bytes, position: int, allowance: _Allowance) -> int:
        while True:
            count, position = _read_long(data, position)
            if not count:
                return position
            size = None
            if count < 0:
                count = -count
                size, position = _read_long(data, position)
            allowance.items -= count
            if allowance.items < 0:
                raise TooManyItemsError("more items than are allowed")
            start = position
            for _ in range(count):
                position = item(data, position, allowance)
            # fastavro skips a block by the size that it claims.
            if size is not None and size != position - start:
                raise MalformedError(f"a block of {position - start} bytes that claims {size}")

    return skip


def _level(record: _Skip) -> _Skip:
    """Return the checker of a recursive record, which counts its levels."""

    def skip(data: bytes, position: int, allowance: _Allowance) -> int:
        if not allowance.levels:
            raise TooDeepError(f"a record contains itself more than {RECORD_DEPTH_MAX} times")
        allowance.levels -= 1
        position = record(data, position, allowance)
        allowance.levels += 1
        return position

    return skip
