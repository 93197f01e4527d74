"""Users' records as Protobuf messages with a schema of a registry (``framed_records``).

There are no generated classes: the writer's file descriptors make a pool, and the pool the classes.
Behind the framing stands the path of the message's type among the types of its file, as indexes:
how many, then each, zigzag varints; a single 0 is the first type.

A message is read as the pipeline's record if its name is the record's or one of its aliases: all
fields of a message may be missing, so another message would be read as one of defaults. Fields are
found by their names or aliases. One that was not sent, of a field that can tell, has the default of
the column, else null; without presence it has Protobuf's default, which stands for it on the wire.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import date
from functools import partial
from typing import Any, Final

import pyarrow as pa
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from anabranch.codec.columns import column_of
from anabranch.codec.field_types import (
    INT_MAX,
    INT_MIN,
    LONG_MAX,
    LONG_MIN,
    Field,
    names_of,
)
from anabranch.codec.framed_records import FramedDecoder, ReadBodies
from anabranch.codec.framing import SchemaOf
from anabranch.codec.guards import Rejected
from anabranch.codec.json_records import logical_of
from anabranch.codec.logical_types import (
    INSTANTS,
    TIMESTAMPS,
    UnfitError,
    check_days,
    check_micros,
    check_unscaled,
    decimal_of,
)
from anabranch.codec.record_schema import RecordSchema
from anabranch.codec.writer_schema import SchemaKey, WriterSchema, shown_key
from anabranch.protocol.errors import ConfigurationError, RecordRejected, RejectionReason
from anabranch.protocol.limits import MIB, RECORD_ITEMS_MAX

PROTOBUF_SCHEMA_BYTES_MAX: Final = 2 * MIB
"""Maximum size of the descriptors of a writer's schema, in bytes, with those of the files that it
imports.
"""
PATH_MAX: Final = 32
"""Maximum number of message types within each other that a value's type is found through."""
_VARINT_BYTES_MAX: Final = 5
_DECIMAL_BYTES_MAX: Final = 32
"""Maximum size of a decimal's unscaled integer, in bytes: 76 digits, of which a column holds 38."""
_EPOCH_DAYS: Final = date(1970, 1, 1).toordinal()

Convert = Callable[[Any], Any]
"""Converter from a message's value to a column's, as ``columns`` takes it. Raises UnfitError."""
_MISSING: Final = object()

_WHOLE: Final = frozenset(
    {
        FieldDescriptor.CPPTYPE_INT32,
        FieldDescriptor.CPPTYPE_INT64,
        FieldDescriptor.CPPTYPE_UINT32,
        FieldDescriptor.CPPTYPE_UINT64,
    }
)
_REAL: Final = frozenset({FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE})
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in (
        "Double",
        "Float",
        "Int64",
        "UInt64",
        "Int32",
        "UInt32",
        "Bool",
        "String",
        "Bytes",
    )
)


class ProtobufDecoder(FramedDecoder):
    """Decoder of the records of one source."""

    def __init__(self, record: RecordSchema, schema_of: SchemaOf) -> None:
        self._record = record
        super().__init__(record, schema_of, self._use)

    def _use(self, key: SchemaKey, schema: WriterSchema, /) -> ReadBodies:
        if schema.size_bytes > PROTOBUF_SCHEMA_BYTES_MAX:
            raise ConfigurationError(f"it is larger than {PROTOBUF_SCHEMA_BYTES_MAX} bytes")
        pool = DescriptorPool()
        try:
            for part in schema.parts:
                pool.AddSerializedFile(part.content)
            file = pool.FindFileByName(schema.parts[-1].name)
        except (TypeError, KeyError, ValueError, DecodeError) as error:
            raise ConfigurationError(f"it is no Protobuf schema: {str(error)[:200]}") from error
        return _Messages(self._record, file, shown_key(key)).read


class _Messages:
    """Message types of one writer's schema, each compiled when the first value of it arrives."""

    def __init__(self, record: RecordSchema, file: Any, label: str) -> None:
        self._record = record
        self._file = file
        self._label = label
        self._schema = record.arrow_schema()
        self._types: dict[tuple[int, ...], _Type | str] = {}
        """Compiled type, or the reason to reject its messages, by path."""

    def read(self, bodies: Sequence[bytes]) -> tuple[pa.Table, Rejected]:
        """Read the records in ``bodies``, each of which is the path of its type and then the
        message.
        """
        rows = []
        rejected: Rejected = []
        for index, body in enumerate(bodies):
            try:
                rows.append(self._row(body))
            except RecordRejected as error:
                rejected.append((index, error))
        columns = zip(*rows, strict=True) if rows else [()] * len(self._schema)
        arrays = [
            column_of(list(column), field)
            for column, field in zip(columns, self._record.fields, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=self._schema), rejected

    def _row(self, body: bytes) -> tuple[Any, ...]:
        path, start = _path(body)
        found = self._types.get(path)
        if found is None:
            found = self._types[path] = self._type(self._message(path))
        if isinstance(found, str):
            raise RecordRejected(RejectionReason.UNKNOWN_SCHEMA, f"{self._label}: {found}")
        return found.row(body[start:])

    def _message(self, path: tuple[int, ...]) -> Any:
        within, message = list(self._file.message_types_by_name.values()), None
        for index in path:
            if not 0 <= index < len(within):
                # Not remembered: whoever may write the topic can make up no end of paths.
                raise RecordRejected(
                    RejectionReason.UNKNOWN_SCHEMA,
                    f"{self._label} has no message type at {', '.join(map(str, path))}",
                )
            message = within[index]
            within = message.nested_types
        return message

    def _type(self, message: Any) -> _Type | str:
        names = names_of(self._record.avro)
        if message.name not in names:
            return (
                f"it is a message {message.full_name}, not {names[0]}; if they are the same, name"
                f" {message.name} among the aliases of {names[0]}"
            )
        try:
            return _Type(message, self._record.fields)
        except ConfigurationError as error:
            return f"{message.full_name} cannot be read: {error}"


def _path(body: bytes) -> tuple[tuple[int, ...], int]:
    """Read the path of a message's type. Return it and the position at which the message begins."""
    if body[:1] == b"\0":
        return (0,), 1
    count, at = _varint(body, 0)
    if not 0 < count <= PATH_MAX:
        raise RecordRejected(
            RejectionReason.NOT_PROTOBUF,
            f"the path of the message's type has {count} steps; from 1 to {PATH_MAX} are allowed",
        )
    found = []
    for _ in range(count):
        index, at = _varint(body, at)
        found.append(index)
    return tuple(found), at


def _varint(body: bytes, at: int) -> tuple[int, int]:
    """Read a zigzag varint. Return it and the position behind it."""
    value = 0
    for count, byte in enumerate(body[at : at + _VARINT_BYTES_MAX]):
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at + count + 1
    raise RecordRejected(
        RejectionReason.NOT_PROTOBUF,
        "the path of the message's type is missing between the schema id and the message",
    )


class _Type:
    """Message type that is read as a record. Its creation raises ConfigurationError if that is not
    possible.
    """

    def __init__(self, message: Any, fields: tuple[Field, ...]) -> None:
        self._name = message.full_name
        self._parse = GetMessageClass(message).FromString
        compiler = _Compiler()
        self._convert = compiler.record(message, fields, "")
        self._items = compiler.items

    def row(self, data: bytes) -> tuple[Any, ...]:
        """Return the values of the record in the message ``data``."""
        try:
            message = self._parse(data)
        except DecodeError as error:
            raise RecordRejected(
                RejectionReason.NOT_PROTOBUF, f"not {self._name}: {str(error)[:200]}"
            ) from error
        self._items.count = 0
        try:
            row: tuple[Any, ...] = self._convert(message)
        except UnfitError as error:
            raise RecordRejected(error.reason, str(error)) from error
        return row


class _Items:
    """Count of the items of arrays and maps in one record."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, number: int) -> None:
        """Count ``number`` more. Raises UnfitError beyond the limit."""
        self.count += number
        if self.count > RECORD_ITEMS_MAX:
            raise UnfitError(
                RejectionReason.TOO_LARGE,
                f"more items in arrays and maps than {RECORD_ITEMS_MAX}",
            )


class _Compiler:
    """Compiler of a message type and a record's fields into a converter from one to the other."""

    def __init__(self) -> None:
        self.items = _Items()

    def record(self, message: Any, fields: tuple[Field, ...], path: str) -> Convert:
        """Return the converter from a message to the values of ``fields``."""
        own = {field.name for field in fields}
        readers = []
        for field in fields:
            names = [field.name, *(alias for alias in field.aliases if alias not in own)]
            found = next(
                (message.fields_by_name[name] for name in names if name in message.fields_by_name),
                None,
            )
            where = f"{path}{field.name}"
            if found is not None:
                readers.append(self._field(found, field, where))
            elif field.has_default:
                readers.append(partial(_constant, field.default))
            else:
                raise ConfigurationError(f"field {where} is new and has no default")

        def convert(value: Any) -> tuple[Any, ...]:
            return tuple([read(value) for read in readers])

        return convert

    def _field(self, of: Any, field: Field, where: str) -> Convert:
        """Return the converter from a message to the column's value, by the message's field
        ``of``.
        """
        name = of.name
        if of.is_repeated:
            many = self._many(of, field, where)
            return lambda message: _named(where, many, getattr(message, name))
        one = self._one(of, field, where)
        if not of.has_presence or of.has_default_value:
            return lambda message: _named(where, one, getattr(message, name))
        absent: Any = _MISSING
        if field.has_default:
            absent = field.default
        elif field.nullable:
            absent = None

        def read(message: Any) -> Any:
            if message.HasField(name):
                return _named(where, one, getattr(message, name))
            if absent is _MISSING:
                raise UnfitError(RejectionReason.MISSING_FIELD, f"field {where} was not sent")
            return absent

        return read

    def _many(self, of: Any, field: Field, where: str) -> Convert:
        is_map = of.message_type is not None and of.message_type.GetOptions().map_entry
        if field.kind != ("map" if is_map else "array"):
            raise _mismatch(of, field, where)
        add, inner = self.items.add, field.inner[0]
        if not is_map:
            one = self._one(of, inner, f"{where}[]")

            def items(values: Any) -> list[Any]:
                add(len(values))
                return [one(value) for value in values]

            return items
        key = _text_of_bool if _kind(of.message_type.fields_by_name["key"]) == "bool" else str
        value_of = self._one(of.message_type.fields_by_name["value"], inner, f"{where}[]")

        def pairs(values: Any) -> dict[str, Any]:
            add(len(values))
            # Of a key whose message is there only in part the library makes the rest.
            return {key(each): value_of(values[each]) for each in values}

        return pairs

    def _one(self, of: Any, field: Field, where: str) -> Convert:
        """Return the converter of one value of the message's field ``of``."""
        if of.message_type is not None:
            found = self._message(of.message_type, field, where)
        else:
            found = _scalar(of, field)
        if found is None:
            raise _mismatch(of, field, where)
        return found

    def _message(self, of: Any, field: Field, where: str) -> Convert | None:
        if field.kind == "record" and not field.is_union and not field.size:
            return self.record(of, field.inner, f"{where}.")
        if of.full_name in _WRAPPERS:
            value = of.fields_by_name["value"]
            inner = _scalar(value, field)
            return None if inner is None else lambda message: inner(message.value)
        read = _MESSAGES.get((of.full_name, field.logical or field.kind))
        return None if read is None else partial(read, field)


def _constant(value: Any, _: Any) -> Any:
    return value


def _text_of_bool(value: bool) -> str:
    return "true" if value else "false"


def _named(where: str, convert: Convert, value: Any) -> Any:
    """Convert ``value``; an error names the field ``where``."""
    try:
        return convert(value)
    except UnfitError as error:
        text = str(error)
        raise UnfitError(
            error.reason, text if text.startswith("field ") else f"field {where}: {text}"
        ) from None


def _kind(of: Any) -> str:
    """Return the name of a field's type in Protobuf."""
    if of.message_type is not None:
        return str(of.message_type.full_name)
    return str(_NAMES[of.type])


_NAMES: Final = {
    number: name.removeprefix("TYPE_").lower()
    for name, number in vars(FieldDescriptor).items()
    if name.startswith("TYPE_")
}


def _mismatch(of: Any, field: Field, where: str) -> ConfigurationError:
    many = "repeated " if of.is_repeated else ""
    return ConfigurationError(
        f"field {where} is {many}{_kind(of)}, which cannot be read as {field.shown()}"
    )


def _scalar(of: Any, field: Field) -> Convert | None:
    """Return the converter of a value that is no message; None if the column cannot hold it."""
    kind = field.kind
    if of.enum_type is not None:
        return _enum(of, field)
    if of.cpp_type in _WHOLE:
        return _whole(field)
    if of.cpp_type in _REAL:
        is_wider = of.cpp_type == FieldDescriptor.CPPTYPE_DOUBLE and kind == "float"
        return _finite if kind in ("float", "double") and not is_wider else None
    if of.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return bool if kind == "boolean" else None
    if of.type == FieldDescriptor.TYPE_STRING:
        if field.is_checked_text and kind != "bytes":
            return partial(logical_of, field)
        return str if kind == "string" else None
    return partial(_bytes, field) if kind == "bytes" else None


def _enum(of: Any, field: Field) -> Convert | None:
    if field.kind in ("int", "long"):
        return int
    if field.kind != "string":
        return None
    names = {number: value.name for number, value in of.enum_type.values_by_number.items()}
    checked = partial(logical_of, field) if field.symbols else str

    def symbol(number: int) -> Any:
        if number not in names:
            raise UnfitError(
                RejectionReason.WRONG_TYPE, f"{number} is no value of {of.enum_type.full_name}"
            )
        return checked(names[number])

    return symbol


def _whole(field: Field) -> Convert | None:
    """Return the converter of whole numbers; None if the column holds none."""
    kind = field.kind
    if kind in ("int", "long"):
        low, high = (INT_MIN, INT_MAX) if kind == "int" else (LONG_MIN, LONG_MAX)
        return partial(_in_range, low, high)
    if kind in ("float", "double"):
        return float
    if kind == "decimal":
        return lambda value: check_unscaled(value * 10**field.scale, field.precision, field.scale)
    if kind in INSTANTS:
        factor = 1_000 if kind.endswith("millis") else 1
        return lambda value: check_micros(value * factor)
    return check_days if kind == "date" else None


def _in_range(low: int, high: int, value: int) -> int:
    if not low <= value <= high:
        raise UnfitError(RejectionReason.OUT_OF_RANGE, f"{value} is not from {low} to {high}")
    return value


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise UnfitError(RejectionReason.NOT_FINITE, f"{value} is not finite")
    return value


def _bytes(field: Field, value: bytes) -> bytes:
    if field.size and len(value) != field.size:
        raise UnfitError(
            RejectionReason.OUT_OF_RANGE, f"expected {field.size} bytes, not {len(value)}"
        )
    return value


def _timestamp(field: Field, message: Any) -> int:
    """Convert a time of seconds and nanoseconds to microseconds."""
    nanos = int(message.nanos)
    step = 1_000_000 if field.kind.endswith("millis") else 1_000
    if not 0 <= nanos < 1_000_000_000 or nanos % step:
        raise UnfitError(
            RejectionReason.OUT_OF_RANGE,
            f"{nanos} ns are finer than {field.kind}, or no part of 1 s",
        )
    return check_micros(message.seconds * 1_000_000 + nanos // 1_000)


def _nanoseconds(_: Field, message: Any) -> int:
    return _in_range(LONG_MIN, LONG_MAX, message.seconds * 1_000_000_000 + message.nanos)


def _date(_: Field, message: Any) -> int:
    try:
        return check_days(date(message.year, message.month, message.day).toordinal() - _EPOCH_DAYS)
    except (ValueError, OverflowError) as error:
        raise UnfitError(
            RejectionReason.OUT_OF_RANGE,
            f"{message.year}-{message.month}-{message.day} is no date: {error}",
        ) from None


def _unscaled(field: Field, message: Any) -> int:
    """Convert an unscaled integer and its scale to the column's decimal."""
    if len(message.value) > _DECIMAL_BYTES_MAX:
        raise UnfitError(RejectionReason.OUT_OF_RANGE, f"{len(message.value)} bytes of a decimal")
    unscaled = int.from_bytes(message.value, "big", signed=True)
    return decimal_of(f"{unscaled}e{-message.scale}", field.precision, field.scale)


def _decimal_text(field: Field, message: Any) -> int:
    return decimal_of(message.value.removeprefix("+") or "0", field.precision, field.scale)


_MESSAGES: Final[dict[tuple[str, str], Callable[[Field, Any], Any]]] = {
    **{("google.protobuf.Timestamp", kind): _timestamp for kind in TIMESTAMPS},
    ("google.protobuf.Timestamp", "timestamp-nanos"): _nanoseconds,
    ("google.type.Date", "date"): _date,
    ("google.type.Decimal", "decimal"): _decimal_text,
    ("confluent.type.Decimal", "decimal"): _unscaled,
}
"""Converters of messages that stand for one value, by the message's name and the column's type."""
