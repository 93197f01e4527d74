"""Resolution of a writer's schema against a reader's record, by Avro's specification.

``resolve`` compares the two once, says why they cannot be reconciled, or returns what reads the
writer's bytes into the reader's columns. fastavro reads the bytes, by a projection of the writer's
schema: what the reader lacks is skipped. Values become the reader's here, where fastavro would
round (times), accept another meaning (a time of day as a timestamp), or fail only with the first
value (names, missing fields).

Two records, enums or fixed are the same if their names without namespace are, or if the reader
lists the writer's name among its aliases. A value without a logical type may get the reader's; with
one it converts only to the same kind of thing, and without loss. Of a reader's union, the first
branch of the written type is taken, else the first to which the value can be promoted.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable
from typing import Any, Final, NoReturn

from anabranch.codec.avro_guard import MalformedError
from anabranch.codec.avro_reading import wire_reader
from anabranch.codec.avro_schema import Type, is_tagged, tag, wire, wire_name
from anabranch.codec.field_types import LONG_MAX, LONG_MIN, UUID_BYTES, Field
from anabranch.codec.logical_types import (
    UnfitError,
    check_days,
    check_micros,
    check_unscaled,
    duration_of,
    uuid_of,
)
from anabranch.protocol.errors import RecordRejected, RejectionReason
from anabranch.protocol.limits import RECORD_ITEMS_MAX

Convert = Callable[[Any], Any]
"""Converter of a writer's value, as fastavro reads it, to the reader's value, as ``columns`` takes
it. Raises RecordRejected.
"""
Read = Callable[[bytes, int], tuple[Any, ...]]

_PROMOTIONS: Final = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_TIMES: Final = {
    f"{family}-{unit}": (family, nanos)
    for family in ("timestamp", "local-timestamp", "time")
    for unit, nanos in (("millis", 1_000_000), ("micros", 1_000), ("nanos", 1))
    if (family, unit) != ("time", "nanos")
}
"""Kind of time and its unit in ns, by logical type."""
_DAY_NS: Final = 86_400 * 10**9
_MICROSECOND_NS: Final = 1_000


class MismatchError(ValueError):
    """Raised when no value of the writer's schema could be read as the reader's record. Stays
    inside the codec.
    """


def resolve(writer: Type, names: tuple[str, ...], fields: tuple[Field, ...]) -> Read:
    """Return a function that reads one record of ``writer`` from a position to the end.

    The function returns the values of ``fields`` as ``columns`` takes them. It raises
    MalformedError for bytes that are none of ``writer``'s, and RecordRejected for a value that the
    reader's field cannot hold.

    Args:
        writer: Schema with which the bytes were written.
        names: Name of the reader's record and its aliases, without namespaces.
        fields: Fields of the reader's record.

    Raises:
        MismatchError: The schemas cannot be reconciled.
    """
    if writer.kind != "record":
        raise MismatchError(f"it is of type {writer.shown()}, not a record")
    if writer.short_name not in names:
        raise MismatchError(
            f"it is a record {writer.name}, not {names[0]}; if they are the same, name"
            f" {writer.name} among the aliases of {names[0]}"
        )
    resolver = _Resolver()
    projected, convert = resolver.record(writer, fields, "")
    read_wire = wire_reader(writer, projected if resolver.skips else None)

    def read(data: bytes, position: int) -> tuple[Any, ...]:
        values: tuple[Any, ...] = convert(read_wire(data, position, RECORD_ITEMS_MAX))
        return values

    return read


def sources_of(writer: Type, fields: tuple[Field, ...], path: str = "") -> list[int | None]:
    """Return the index of the writer's field that each of ``fields`` is read from, by its name or
    an alias; None: it has its default.

    Raises:
        MismatchError: a field has neither.
    """
    own = {field.name for field in fields}
    found = list[int | None]()
    for field in fields:
        names = [field.name, *(alias for alias in field.aliases if alias not in own)]
        at = next((writer.fields.index(each) for each in names if each in writer.fields), None)
        at = None if at in found else at  # an alias of two fields is that of the first
        if at is None and not field.has_default:
            raise MismatchError(f"field {path}{field.name} is new and has no default")
        found.append(at)
    return found


_Resolved = tuple[Any, Convert | None]
"""Projection of the writer's type, and the converter of its values; None if they need no
conversion.
"""


class _Resolver:
    """Resolver of one pair of schemas. Numbers the named types of the projection, which differ even
    where one type of the writer is read in two ways.

    Attributes:
        skips: Whether the projection lacks anything of the writer's schema.
    """

    def __init__(self) -> None:
        self._projected = 0
        self.skips = False

    def record(self, writer: Type, fields: tuple[Field, ...], path: str) -> tuple[Any, Convert]:
        """Return the projection of a record to ``fields``, and the function that makes a tuple of
        their values.
        """
        projected = self._named(writer)
        projected["fields"] = []
        parts: list[tuple[str | None, Convert | None, object]] = []
        for field, at in zip(fields, sources_of(writer, fields, path), strict=True):
            if at is None:
                parts.append((None, None, field.default))
                continue
            kind, convert = self.value(writer.inner[at], field, path + field.name)
            projected["fields"].append({"name": f"f{at}", "type": kind})
            parts.append((f"f{at}", convert, None))
        self.skips |= len(projected["fields"]) < len(writer.inner)

        def convert_record(found: dict[str, Any]) -> tuple[Any, ...]:
            values = []
            for name, convert, default in parts:
                value = default if name is None else found[name]
                values.append(value if convert is None else convert(value))
            return tuple(values)

        return projected, convert_record

    def value(self, writer: Type, field: Field, path: str) -> _Resolved:
        """Return the projection of a value, and the converter to a value of ``field``."""
        if writer.kind == "union":
            return self._written_union(writer, field, path)
        if field.is_union:
            return self._wanted_union(writer, field, path)
        if field.plain == "record":
            _same_name(writer, field, path)
            return self.record(writer, field.inner, f"{path}.")
        if field.plain in ("array", "map"):
            return self._items(writer, field, path)
        convert = _plain(writer, field, path)
        if writer.kind == "fixed":
            return self._named(writer) | {"size": writer.size}, convert
        return wire(writer), convert

    def _named(self, writer: Type) -> dict[str, Any]:
        self._projected += 1
        name, written = f"r{self._projected}", wire_name(writer)
        return {"type": writer.kind, "name": name, "aliases": [written]}

    def _written_union(self, writer: Type, field: Field, path: str) -> _Resolved:
        projected: list[Any] = []
        converts: dict[str, Convert | None] = {}
        for index, each in enumerate(writer.inner):
            if each.kind == "null":
                projected.append("null")
                continue
            try:
                kind, convert = self.value(each, field, path)
            except MismatchError:
                if not is_tagged(writer):
                    raise
                projected.append(tag(writer, index, None) | {"fields": []})
                self.skips = True
                continue
            converts[f"b{index}"] = convert
            projected.append(tag(writer, index, kind) if is_tagged(writer) else kind)
        if not converts:
            raise _mismatch(writer, field, path)
        none = None if field.nullable else _rejecting(f"field {path} is null, and may not be")
        if not is_tagged(writer):
            (plain,) = converts.values()
            return projected, _or_null(plain, none)

        def convert_branch(found: dict[str, Any]) -> Any:
            if not found:
                raise RecordRejected(
                    RejectionReason.WRONG_TYPE,
                    f"field {path} is of a branch of its union that is no {field.shown()}",
                )
            ((name, value),) = found.items()
            convert = converts[name]
            return value if convert is None else convert(value)

        return projected, _or_null(convert_branch, none)

    def _wanted_union(self, writer: Type, field: Field, path: str) -> _Resolved:
        count = len(field.inner)
        for index in sorted(range(count), key=lambda at: not _is_same(writer, field.inner[at])):
            try:
                kind, convert = self.value(writer, field.inner[index], path)
            except MismatchError:
                continue
            return kind, _branch(index, count, convert)
        raise _mismatch(writer, field, path)

    def _items(self, writer: Type, field: Field, path: str) -> _Resolved:
        if writer.kind != field.kind:
            raise _mismatch(writer, field, path)
        kind, convert = self.value(writer.inner[0], field.inner[0], f"{path}[]")
        if field.kind == "array":
            projected = {"type": "array", "items": kind}
            return projected, convert and (lambda found: [convert(each) for each in found])
        return {"type": "map", "values": kind}, convert and (
            lambda found: {key: convert(each) for key, each in found.items()}
        )


def _or_null(convert: Convert | None, none: Convert | None) -> Convert | None:
    """Return the converter of a union with null. ``none`` converts null itself."""
    if convert is None and none is None:
        return None

    def convert_value(found: Any) -> Any:
        if found is None:
            return none and none(found)
        return found if convert is None else convert(found)

    return convert_value


def _branch(index: int, count: int, convert: Convert | None) -> Convert:
    """Return the converter of a value of one branch of a reader's union to the struct of its
    column.
    """

    def convert_value(found: Any) -> tuple[Any, ...]:
        values: list[Any] = [None] * count
        values[index] = found if convert is None else convert(found)
        return tuple(values)

    return convert_value


def _mismatch(writer: Type, field: Field, path: str) -> MismatchError:
    return MismatchError(f"field {path} was {writer.shown()} and cannot become {field.shown()}")


def _same_name(writer: Type, field: Field, path: str) -> None:
    """Compare a named type; raise MismatchError if it is another one."""
    if writer.kind != field.plain:
        raise _mismatch(writer, field, path)
    if writer.short_name not in field.names:
        raise MismatchError(
            f"field {path} was {writer.shown()}, not {field.plain} {field.names[0]}; if they are"
            f" the same, name {writer.name} among the aliases of {field.names[0]}"
        )


def _is_same(writer: Type, field: Field) -> bool:
    return (writer.kind, writer.logical) == (field.plain, field.meaning) and (
        not writer.name or writer.short_name in field.names
    )


def _rejecting(text: str) -> Convert:
    def convert(_found: object) -> NoReturn:
        raise RecordRejected(RejectionReason.WRONG_TYPE, text)

    return convert


def _plain(writer: Type, field: Field, path: str) -> Convert | None:
    """Return the converter of a value that is not nested; None if it stays as it is."""
    if field.meaning:
        convert = _logical(writer, field, path)
        if convert is None:
            raise _mismatch(writer, field, path)
        return _checked(convert, path)
    if field.plain == "enum":
        _same_name(writer, field, path)
        return _enum(writer, field, path)
    if field.plain == "fixed":
        _same_name(writer, field, path)
        if writer.size != field.size:
            raise MismatchError(
                f"field {path} was {writer.size} bytes and cannot become {field.size}"
            )
        return None
    if field.plain != writer.kind and field.plain not in _PROMOTIONS.get(writer.kind, ()):
        raise _mismatch(writer, field, path)
    if field.plain in ("float", "double"):
        return _finite(path)
    if (writer.kind, field.plain) == ("string", "bytes"):
        return str.encode
    is_text = (writer.kind, field.plain) == ("bytes", "string")
    return _checked(_text, path) if is_text else None


def _text(found: bytes) -> str:
    try:
        return found.decode()
    except UnicodeDecodeError as error:
        raise UnfitError(
            RejectionReason.WRONG_TYPE, f"bytes that are no UTF-8 text: {error.reason}"
        ) from None


def _finite(path: str) -> Convert:
    def convert(found: float) -> float:
        number = float(found)
        if not math.isfinite(number):
            raise RecordRejected(RejectionReason.NOT_FINITE, f"field {path} is {number}")
        return number

    return convert


def _enum(writer: Type, field: Field, path: str) -> Convert:
    """Return the converter from an index in the writer's enum to a symbol of the reader's."""
    known = [
        each if each in field.symbols else field.symbol_default or None for each in writer.symbols
    ]

    def convert(index: int) -> str:
        symbol = known[index]
        if symbol is None:
            raise RecordRejected(
                RejectionReason.WRONG_TYPE,
                f"field {path} is {writer.symbols[index]}, none of its symbols, and its enum has"
                " no default",
            )
        return symbol

    return convert


def _checked(convert: Convert, path: str) -> Convert:
    def convert_checked(found: Any) -> Any:
        try:
            return convert(found)
        except UnfitError as error:
            raise RecordRejected(error.reason, f"field {path}: {error}") from None

    return convert_checked


def _logical(writer: Type, field: Field, path: str) -> Convert | None:
    """Return the converter to a value of the field's logical type; None if the two types do not
    fit. It raises UnfitError for a value that the type does not have.
    """
    meaning, kind = field.meaning, writer.kind
    is_plain = not writer.logical
    if meaning in _TIMES:
        return _time(writer, field)
    if not is_plain and writer.logical != meaning:
        return None
    if meaning == "date":
        return check_days if kind == "int" else None
    if meaning == "decimal":
        fits = is_plain or (writer.scale == field.scale and writer.precision <= field.precision)
        return _decimal(field, path) if fits and kind in ("bytes", "fixed") else None
    if meaning == "duration":
        return duration_of if writer.size == field.size else None
    if kind == "fixed":
        return _uuid if writer.size == UUID_BYTES else None
    return {"string": uuid_of, "bytes": lambda found: uuid_of(_text(found))}.get(kind)


def _decimal(field: Field, path: str) -> Convert:
    def convert(found: bytes) -> int:
        if not found:
            raise MalformedError(f"field {path}: a decimal without a byte")
        return check_unscaled(
            int.from_bytes(found, "big", signed=True), field.precision, field.scale
        )

    return convert


def _uuid(found: bytes) -> str:
    return str(uuid.UUID(bytes=found))


def _time(writer: Type, field: Field) -> Convert | None:
    family, unit = _TIMES[field.meaning]
    if writer.logical:
        written_family, written_unit = _TIMES.get(writer.logical, ("", 0))
        if written_family != family:
            return None
    else:
        written_unit = unit
        if writer.kind not in ("int", field.plain):
            return None
    is_instant = field.kind == field.meaning
    low, high = (0, _DAY_NS // unit - 1) if family == "time" else (LONG_MIN, LONG_MAX)

    def convert(found: int) -> int:
        count, rest = divmod(found * written_unit, unit)
        if rest:
            raise UnfitError(
                RejectionReason.OUT_OF_RANGE, f"a time that is finer than {field.meaning}"
            )
        if is_instant:  # a column in microseconds, whatever the unit of the field
            return check_micros(count * unit // _MICROSECOND_NS)
        if not low <= count <= high:
            raise UnfitError(RejectionReason.OUT_OF_RANGE, f"{count} is no {field.meaning}")
        return count

    return convert
