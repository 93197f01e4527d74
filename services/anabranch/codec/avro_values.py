"""Values of one field in Avro's binary encoding, one at a time: the plain way, and the only one for
nested fields.

Values are those that ``columns`` takes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any, Final

from anabranch.codec.avro_binary import PRIMITIVES, MalformedError, Read, Reader
from anabranch.codec.field_types import LOGICAL, Field
from anabranch.codec.logical_types import (
    TIMESTAMPS,
    UnfitError,
    bytes_of_unscaled,
    check_days,
    check_micros,
    unscaled_of,
    uuid_of,
)
from anabranch.protocol.errors import LocalProtocolError, RecordRejected, RejectionReason

Write = Callable[[bytearray, Any], None]

_WIDER: Final = {("int", "long"), ("int", "double"), ("long", "double"), ("float", "double")}


def mismatch(written: Field, wanted: Field, name: str) -> str | None:
    """Why a value of ``written`` cannot be read as ``wanted``; None: it can."""
    if written.nullable and not wanted.nullable:
        return f"field {name} could be null and now cannot"
    kinds = written.kind, wanted.kind
    is_same = kinds[0] == kinds[1] or kinds == TIMESTAMPS
    if written.kind == "decimal" == wanted.kind:
        is_same = written.scale == wanted.scale and written.precision <= wanted.precision
    if not is_same and kinds not in _WIDER:
        return f"field {name} was {written.shown()} and cannot become {wanted.shown()}"
    if wanted.kind in ("array", "map"):
        return mismatch(written.inner[0], wanted.inner[0], f"{name}[]")
    return missing(written.inner, wanted.inner, f"{name}.") if wanted.kind == "record" else None


def missing(written: tuple[Field, ...], wanted: tuple[Field, ...], path: str = "") -> str | None:
    """The same for the fields of a record."""
    older = {field.name: field for field in written}
    for field in wanted:
        if field.name in older:
            if problem := mismatch(older[field.name], field, path + field.name):
                return problem
        elif not field.has_default:
            return f"field {path}{field.name} is new and has no default"
    return None


def reader_of(written: Field, wanted: Field, name: str) -> Read:
    """A function that reads a value of ``written`` and gives one of ``wanted``.

    The function raises MalformedError, or RecordRejected for a value that is whole and none of the
    type.
    """
    read = _reader(written, wanted, name)
    if not written.nullable:
        return read
    null = 0 if written.null_first else 1

    def read_or_null(reader: Reader) -> Any:
        branch = reader.read_long()
        if branch not in (0, 1):
            raise MalformedError(f"field {name}: branch {branch} of a union of 2")
        return None if branch == null else read(reader)

    return read_or_null


def _reader(written: Field, wanted: Field, name: str) -> Read:
    if written.kind == "record":
        return record_reader(written.inner, wanted.inner, f"{name}.")
    if written.kind == "array":
        return _items_reader(reader_of(written.inner[0], wanted.inner[0], f"{name}[]"), list)
    if written.kind == "map":
        value = reader_of(written.inner[0], wanted.inner[0], f"{name}[]")
        return _items_reader(lambda reader: (reader.read_string(), value(reader)), dict)
    if written.kind in ("float", "double"):
        return _finite(PRIMITIVES[written.kind], name)
    if written.kind in PRIMITIVES:
        plain = PRIMITIVES[written.kind]
        return plain if wanted.kind != "double" else lambda reader: float(plain(reader))
    return _logical(written, name)


def record_reader(written: tuple[Field, ...], wanted: tuple[Field, ...], path: str = "") -> Read:
    """A function that reads the fields ``written`` and gives a tuple of ``wanted``."""
    own = {field.name: field for field in wanted}
    names = [field.name for field in written]
    reads = [reader_of(field, own.get(field.name, field), path + field.name) for field in written]
    places = [
        (names.index(field.name) if field.name in names else None, field.default)
        for field in wanted
    ]
    if [place for place, _ in places] == list(range(len(reads))):
        return lambda reader: tuple([read(reader) for read in reads])

    def read(reader: Reader) -> tuple[Any, ...]:
        found = [read(reader) for read in reads]
        return tuple([default if at is None else found[at] for at, default in places])

    return read


def _items_reader(item: Read, make: Callable[[list[Any]], Any]) -> Read:
    def read(reader: Reader) -> Any:
        items: list[Any] = []
        while count := reader.block():
            items.extend([item(reader) for _ in range(count)])
        return make(items)

    return read


def _finite(number: Read, name: str) -> Read:
    def read(reader: Reader) -> float:
        found = number(reader)
        if not math.isfinite(found):
            raise RecordRejected(RejectionReason.NOT_FINITE, f"field {name} is {found}")
        return float(found)

    return read


def _logical(field: Field, name: str) -> Read:
    convert = _checked(field)
    raw: Read = (
        (lambda reader: reader.read_fixed(field.size))
        if field.size
        else PRIMITIVES[LOGICAL.get(field.kind, "bytes")]
    )

    def read(reader: Reader) -> Any:
        value = raw(reader)
        if value == b"":
            raise MalformedError(f"field {name}: a decimal without a byte")
        try:
            return convert(value)
        except UnfitError as error:
            raise RecordRejected(error.reason, f"field {name}: {error}") from None

    return read


def _checked(field: Field) -> Callable[[Any], Any]:
    if field.kind == "timestamp-millis":
        return lambda value: check_micros(value * 1_000)
    if field.kind == "timestamp-micros":
        return check_micros
    if field.kind == "date":
        return check_days
    if field.kind == "uuid":
        return uuid_of
    return lambda value: unscaled_of(value, field.precision, field.scale)


def writer_of(field: Field) -> Write:
    """A function that appends a value of ``field``.

    The function raises LocalProtocolError where null stands and may not.
    """
    write = _writer(field)
    null, other = (b"\0", b"\2") if field.null_first else (b"\2", b"\0")

    def write_or_null(out: bytearray, value: Any) -> None:
        if value is not None:
            out += other
            write(out, value)
        else:
            out += null

    def write_value(out: bytearray, value: Any) -> None:
        if value is None:
            raise LocalProtocolError(
                f"column {field.name} holds null, which its schema says it does not"
            )
        write(out, value)

    return write_or_null if field.nullable else write_value


def _writer(field: Field) -> Write:
    if field.kind == "record":
        return record_writer(field.inner)
    if field.is_nested:
        return _items_writer(writer_of(field.inner[0]), field.kind == "map")
    if field.size:
        return lambda out, value: out.extend(bytes_of_unscaled(value, field.size))
    encode = _ENCODE.get(field.kind, _long)
    return lambda out, value: out.extend(encode(value))


def record_writer(fields: tuple[Field, ...]) -> Write:
    """A function that appends the fields of a record, a tuple."""
    writes = [writer_of(field) for field in fields]

    def write(out: bytearray, values: Any) -> None:
        for each, value in zip(writes, values, strict=True):
            each(out, value)

    return write


def _items_writer(item: Write, is_map: bool) -> Write:
    def write(out: bytearray, values: Any) -> None:
        if values:
            out.extend(_long(len(values)))
        for value in values:
            if is_map:
                out.extend(_bytes(value[0].encode()))
            item(out, value[1] if is_map else value)
        out.append(0)

    return write


def _long(value: int) -> bytes:
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _bytes(value: bytes) -> bytes:
    return _long(len(value)) + value


_ENCODE: Final[dict[str, Callable[[Any], bytes]]] = {
    "timestamp-millis": lambda value: _long(value // 1_000),
    "float": struct.Struct("<f").pack,
    "double": struct.Struct("<d").pack,
    "boolean": lambda value: bytes([value]),
    "string": lambda value: _bytes(value.encode()),
    "uuid": lambda value: _bytes(value.encode()),
    "bytes": _bytes,
    "decimal": lambda value: _bytes(bytes_of_unscaled(value)),
}
"""Of the kinds that are not written as a ``long``."""
