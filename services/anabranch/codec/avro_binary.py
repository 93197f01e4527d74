"""Reading Avro's binary encoding, strictly: a reader that trusts nothing.

The lengths and counts in the bytes are claims of whoever wrote them. Here every one is checked
before anything is allocated for it, so that a few hostile bytes cannot cost more than a few times
their own size. Writing goes by fastavro: what we write we trust.

Decisions (the same as those of the usual readers): an integer may be written with more bytes than
it needs, up to ten, and what does not fit 64 bits is dropped; a boolean is 0 or 1; a text is UTF-8;
an ``int`` fits 32 bits.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from anabranch.protocol import limits

__all__ = ["MalformedError", "Read", "Reader", "TooManyItemsError", "compile_schema"]

_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")
_INT_MIN: Final = -(2**31)
_INT_MAX: Final = 2**31 - 1
_U64: Final = 2**64 - 1


class MalformedError(ValueError):
    """The bytes are not what the schema says. Stays inside the codec: each caller says what
    that means for it.
    """


class TooManyItemsError(MalformedError):
    """The arrays and maps have more items than are allowed."""


class Reader:
    """A place in some bytes."""

    __slots__ = ("_data", "_end", "_items", "position")

    def __init__(self, data: bytes, position: int, items_max: int) -> None:
        self._data = data
        self._end = len(data)
        self.position = position
        self._items = items_max

    def read_long(self) -> int:
        """A zigzag variable-length integer."""
        data, position = self._data, self.position
        try:
            byte = data[position]
            position += 1
            value = byte & 0x7F
            shift = 7
            while byte & 0x80:
                byte = data[position]
                position += 1
                value |= (byte & 0x7F) << shift
                shift += 7
                if shift > 70:
                    raise MalformedError("an integer of more than ten bytes")
        except IndexError:
            raise MalformedError("ends within an integer") from None
        self.position = position
        value &= _U64
        return (value >> 1) ^ -(value & 1)

    def read_int(self) -> int:
        """A ``long`` that fits 32 bits."""
        value = self.read_long()
        if not _INT_MIN <= value <= _INT_MAX:
            raise MalformedError(f"{value} does not fit an int")
        return value

    def read_fixed(self, length: int) -> bytes:
        """The next ``length`` bytes."""
        position = self.position
        if length < 0 or length > self._end - position:
            raise MalformedError(
                f"a length of {length} where {self._end - position} bytes are left"
            )
        self.position = position + length
        return self._data[position : self.position]

    def read_bytes(self) -> bytes:
        """Bytes with their length before them."""
        return self.read_fixed(self.read_long())

    def read_string(self) -> str:
        """A text with its length before it."""
        try:
            return self.read_bytes().decode()
        except UnicodeDecodeError as error:
            raise MalformedError(f"a text that is not UTF-8: {error.reason}") from None

    def read_boolean(self) -> bool:
        """One byte, 0 or 1."""
        byte = self.read_fixed(1)
        if byte not in (b"\0", b"\1"):
            raise MalformedError(f"{byte[0]} is not a boolean")
        return byte == b"\1"

    def read_float(self) -> float:
        """A 32-bit number, as a double."""
        return float(_FLOAT.unpack(self.read_fixed(4))[0])

    def read_double(self) -> float:
        """A 64-bit number."""
        return float(_DOUBLE.unpack(self.read_fixed(8))[0])

    def read_null(self) -> None:
        """Nothing."""

    def block(self) -> int:
        """Items of the next block of an array; 0: it ends."""
        count = self.read_long()
        if count < 0:
            count = -count
            self.read_long()  # the block's size in bytes, for those who skip it
        self._items -= count
        if self._items < 0:
            raise TooManyItemsError("more items than are allowed")
        return count

    def end(self) -> None:
        """Nothing may be left."""
        if self.position != self._end:
            raise MalformedError(f"{self._end - self.position} bytes too many")


Read = Callable[[Reader], Any]

PRIMITIVES: Final[dict[str, Read]] = {
    "null": Reader.read_null,
    "boolean": Reader.read_boolean,
    "int": Reader.read_int,
    "long": Reader.read_long,
    "float": Reader.read_float,
    "double": Reader.read_double,
    "bytes": Reader.read_bytes,
    "string": Reader.read_string,
}


def compile_schema(avro: object) -> Read:
    """A function that reads one value of schema ``avro``: records and arrays as tuples, enums as
    texts.

    Raises:
        ValueError: the schema is recursive, too deep, has arrays whose items take no bytes, or
            maps, or is no schema.
    """
    return _compile(avro, {}, 0)[0]


def _compile(avro: object, names: dict[str, tuple[Read, bool]], depth: int) -> tuple[Read, bool]:
    """(function, whether a value takes at least one byte)."""
    if depth > limits.RECORD_DEPTH_MAX:
        raise ValueError("the schema is nested too deeply")
    if isinstance(avro, str):
        if avro in PRIMITIVES:
            return PRIMITIVES[avro], avro != "null"
        if avro not in names:
            raise ValueError(f"{avro} is not a type, or is part of itself")
        return names[avro]
    if isinstance(avro, list):
        return _union([_compile(branch, names, depth + 1)[0] for branch in avro]), True
    if not isinstance(avro, dict):
        raise ValueError(f"{avro!r} is not a schema")
    return _compile_complex(avro, avro.get("type"), names, depth)


def _compile_complex(
    avro: dict[str, Any], kind: object, names: dict[str, tuple[Read, bool]], depth: int
) -> tuple[Read, bool]:
    if kind == "record":
        return _named(avro, names, _record(avro, names, depth))
    if kind == "enum":
        return _named(avro, names, (_enum(tuple(avro["symbols"])), True))
    if kind == "fixed":
        size = int(avro["size"])
        return _named(avro, names, (lambda reader: reader.read_fixed(size), size > 0))
    if kind == "array":
        item, has_width = _compile(avro["items"], names, depth + 1)
        if not has_width:
            raise ValueError("an array of items that take no bytes")
        return _array(item), True
    if kind == "map":
        raise ValueError("maps are not supported")
    return _compile(kind, names, depth + 1)


def _named(
    avro: dict[str, Any], names: dict[str, tuple[Read, bool]], made: tuple[Read, bool]
) -> tuple[Read, bool]:
    names[avro["name"]] = made
    return made


def _record(
    avro: dict[str, Any], names: dict[str, tuple[Read, bool]], depth: int
) -> tuple[Read, bool]:
    made = [_compile(field["type"], names, depth + 1) for field in avro["fields"]]
    reads = tuple(read for read, _ in made)
    return lambda reader: tuple([read(reader) for read in reads]), any(width for _, width in made)


def _union(branches: list[Read]) -> Read:
    count = len(branches)

    def read(reader: Reader) -> Any:
        index = reader.read_long()
        if not 0 <= index < count:
            raise MalformedError(f"branch {index} of a union of {count}")
        return branches[index](reader)

    return read


def _enum(symbols: tuple[str, ...]) -> Read:
    def read(reader: Reader) -> str:
        index = reader.read_long()
        if not 0 <= index < len(symbols):
            raise MalformedError(f"symbol {index} of an enum of {len(symbols)}")
        return symbols[index]

    return read


def _array(item: Read) -> Read:
    def read(reader: Reader) -> tuple[Any, ...]:
        items: list[Any] = []
        while count := reader.block():
            items.extend([item(reader) for _ in range(count)])
        return tuple(items)

    return read
