"""Users' records as JSON: one object per record, decoded exactly as its schema says.

Decisions, all the strict way round unless JSON leaves no choice:

- an object with all fields of the schema; a field with a default may be missing, also a nullable
  one only then;
- other fields are ignored, since producers evolve, or rejected, as the source says. What stands in
  an ignored field must be JSON in form; its numbers and texts are not looked at;
- an ``int`` or ``long`` is written without fraction and exponent (``1.0`` is rejected) and fits 32
  or 64 bits;
- a ``float`` or ``double`` may be written as an integer; NaN and infinity cannot be written, and
  what overflows is rejected;
- a boolean is never a number, a number never a text; ``bytes`` are base64;
- times, dates, decimals, UUIDs and symbols are texts (``logical_types``), exact or rejected;
- a record is an object, an array an array, a map an object with any keys;
- of a key that is there twice the last one counts, as with most parsers;
- a field is called by its ``alias``, if it has one, and by nothing else;
- UTF-8, no byte order mark, one object, nothing after it but white space. An array of records or
  several lines are rejected: a record of the topic has one position and becomes one row.

One decoder decides about every record: a class made from the schema, whose instances are built in
C.
"""

from __future__ import annotations

import codecs
import json
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import Annotated, Any, Final, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.codec import columns, logical_types
from anabranch.codec.field_types import (
    FLOAT_MAX,
    INT_MAX,
    INT_MIN,
    LONG_MAX,
    LONG_MIN,
    Field,
)
from anabranch.codec.guards import Rejected
from anabranch.codec.logical_types import INSTANTS, UnfitError
from anabranch.codec.record_schema import RecordSchema
from anabranch.protocol.errors import ConfigurationError, RecordRejected, RejectionReason
from anabranch.protocol.limits import RECORD_DEPTH_MAX, RECORD_ITEMS_MAX

ExtraFields = Literal["ignore", "reject"]
Logical = Callable[[Field, object], Any]
"""Converter from a JSON value to a field whose type JSON lacks. Raises UnfitError."""

_TYPES: Final[dict[str, Any]] = {
    "int": Annotated[int, msgspec.Meta(ge=INT_MIN, le=INT_MAX)],
    "long": Annotated[int, msgspec.Meta(ge=LONG_MIN, le=LONG_MAX)],
    "float": Annotated[float, msgspec.Meta(ge=-FLOAT_MAX, le=FLOAT_MAX)],
    "double": float,
    "boolean": bool,
    "string": str,
    "bytes": bytes,
}
_NUMBERS: Final[dict[str, Any]] = {
    "int": np.int32,
    "long": np.int64,
    "float": np.float32,
    "double": np.float64,
}
_DOUBLE_MAX: Final = 1.7976931348623157e308
_NOT_FINITE: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
"""Texts that outputs have for numbers that JSON lacks, by their text in Python. Spark's ``to_json``
and Protobuf write the same texts. Null would not tell readers which number it was.
"""
_TEXT_MAX: Final = 300
_OPENING: Final = np.frombuffer(b"[{", np.uint8)
_CLOSING: Final = np.frombuffer(b"]}", np.uint8)
_BRACKETS_MAX: Final = 20_000
"""Maximum number of brackets of a rejected record that is read once more for its reason."""

_ROWS_AT_ONCE: Final = 8_192
"""Number of records that are decoded before their columns are made, so that their objects stay in
the processor's cache.
"""


class _Anything(type):
    """Type of every value, since msgspec checks that what a hook returns is of the type that it is
    for.
    """

    def __instancecheck__(cls, _value: object) -> bool:
        return True


class JsonDecoder:
    """Decoder of the records of one schema."""

    def __init__(
        self,
        record: RecordSchema,
        extra_fields: ExtraFields = "ignore",
        logical: Logical | None = None,
    ) -> None:
        """Compile the decoder. ``logical`` returns the converters of times, decimals and other
        types that JSON lacks; with None these are read from texts (``logical_of``).
        """
        self._record, self._extra_fields = record, extra_fields
        self._logical = logical_of if logical is None else logical
        self._hooks: dict[type, Callable[[object], Any]] = {}
        self._structs: dict[int, type] = {}
        """Classes of the records, by the identity of their fields."""
        self._decode: Callable[[bytes], Any] = msgspec.json.Decoder(
            self._struct(record.fields), dec_hook=lambda kind, value: self._hooks[kind](value)
        ).decode
        if any(field.has_items for field in record.fields):
            self._decode = self._counted(self._decode)
        self._schema = record.arrow_schema()
        self._columns = [_column(_part(index), field) for index, field in enumerate(record.fields)]

    def _struct(self, fields: tuple[Field, ...]) -> type:
        """Return the msgspec class of a record with ``fields``."""
        members: list[Any] = []
        for index, field in enumerate(fields):
            name, kind = f"f{index}", self._type(field)
            if not field.has_default:
                members.append((name, kind))
            elif field.is_nested and field.default is not None:
                made = partial(self._made, field, field.default)
                members.append((name, kind, msgspec.field(default_factory=made)))
            else:
                members.append((name, kind, field.default))
        self._structs[id(fields)] = msgspec.defstruct(
            "Row",
            members,
            rename={f"f{index}": field.json_name for index, field in enumerate(fields)},
            forbid_unknown_fields=self._extra_fields == "reject",
            kw_only=True,
            gc=False,
        )
        return self._structs[id(fields)]

    def _made(self, field: Field, default: Any) -> Any:
        """Return the default of ``field`` in the form of a decoded value."""
        if default is None or not field.is_nested:
            return default
        if field.kind == "array":
            return [self._made(field.inner[0], each) for each in default]
        if field.kind == "map":
            return {key: self._made(field.inner[0], each) for key, each in default.items()}
        parts = zip(field.inner, default, strict=True)
        values = {f"f{index}": self._made(*part) for index, part in enumerate(parts)}
        return self._structs[id(field.inner)](**values)

    def _type(self, field: Field) -> Any:
        if field.kind == "record":
            kind: Any = self._struct(field.inner)
        elif field.kind == "array":
            kind = list[self._type(field.inner[0])]  # type: ignore[misc]
        elif field.kind == "map":
            kind = dict[str, self._type(field.inner[0])]  # type: ignore[misc]
        elif not field.is_checked_text:
            kind = _TYPES[field.kind]
        else:
            kind = _Anything(field.kind, (), {})
            self._hooks[kind] = partial(self._logical, field)
        return kind | None if field.nullable else kind

    def _counted(self, decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
        """Return ``decode`` with a limit on the items of arrays and maps."""

        def counted(value: bytes) -> Any:
            row = decode(value)
            if len(value) > RECORD_ITEMS_MAX:  # with fewer bytes it has fewer items
                items = sum(
                    _items(_part(index)(row), field)
                    for index, field in enumerate(self._record.fields)
                )
                if items > RECORD_ITEMS_MAX:
                    raise RecordRejected(
                        RejectionReason.TOO_LARGE,
                        f"{items} items in arrays and maps; at most {RECORD_ITEMS_MAX} are allowed",
                    )
            return row

        return counted

    def decode(self, values: Sequence[bytes]) -> tuple[pa.Table, Rejected]:
        """Return the records of ``values``, in order, without those that are rejected. Values
        passed ``guards.admit``.
        """
        rejected: Rejected = []
        tables = [
            self._piece(values, start, rejected) for start in range(0, len(values), _ROWS_AT_ONCE)
        ]
        return pa.concat_tables(
            tables
        ).combine_chunks() if tables else self._schema.empty_table(), rejected

    def _piece(self, values: Sequence[bytes], start: int, rejected: Rejected) -> pa.Table:
        """Decode a piece of ``values`` that begins at ``start``."""
        rows: list[Any] = []
        rest = iter(values[start : start + _ROWS_AT_ONCE])
        left_out = 0
        while True:
            try:
                rows.extend(map(self._decode, rest))  # what came before an error stays in the list
                break
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                index = start + len(rows) + left_out
                left_out += 1
                rejected.append((index, self._rejection(values[index], error)))
            except RecordRejected as error:
                index = start + len(rows) + left_out
                left_out += 1
                rejected.append((index, error))
        return pa.Table.from_arrays([column(rows) for column in self._columns], schema=self._schema)

    def _rejection(self, value: bytes, error: Exception) -> RecordRejected:
        """Return the reason to reject ``value``. Whether to reject it is already decided, so this
        may be slow.
        """
        text = str(error)[:_TEXT_MAX]
        if (
            value.count(b"[") + value.count(b"{") > _BRACKETS_MAX
        ):  # to say it better would take 26 times its size in memory
            return RecordRejected(_roughly(value, error), text)
        not_finite: list[str] = []
        try:
            found = json.loads(value.decode("utf-8"), parse_constant=not_finite.append)
        except RecursionError:
            return RecordRejected(
                RejectionReason.TOO_DEEP, f"nested deeper than {RECORD_DEPTH_MAX}"
            )
        except json.JSONDecodeError as other:
            return RecordRejected(RejectionReason.NOT_JSON, _malformed(value, other) or text)
        except ValueError as other:
            is_text = isinstance(other, UnicodeDecodeError)
            return RecordRejected(
                RejectionReason.NOT_JSON if is_text else RejectionReason.OUT_OF_RANGE, text
            )
        if not_finite:
            return RecordRejected(
                RejectionReason.NOT_FINITE, f"{not_finite[0]} is not a number in JSON"
            )
        if _depth(found) > RECORD_DEPTH_MAX:
            return RecordRejected(
                RejectionReason.TOO_DEEP, f"nested deeper than {RECORD_DEPTH_MAX}"
            )
        if not isinstance(error, msgspec.ValidationError):
            return RecordRejected(RejectionReason.NOT_JSON, text)
        if isinstance(found, list):
            text = (
                f"an array of {len(found)} at the top: a record of the topic holds one object;"
                " write each element as a record of its own"
            )
        return RecordRejected(self._reason(found), text)

    def _reason(self, found: object) -> RejectionReason:
        whole = Field("", "record", inner=self._record.fields)
        reasons = set(_reasons(found, whole, self._extra_fields == "reject", self._logical))
        return next((each for each in _FIRST if each in reasons), RejectionReason.WRONG_TYPE)


def _malformed(value: bytes, error: json.JSONDecodeError) -> str:
    """Return what is wrong with a value that is almost JSON; empty if nothing particular is."""
    if value.startswith(codecs.BOM_UTF8):
        return "begins with a byte order mark (EF BB BF): write JSON without one"
    if error.msg == "Extra data":
        return (
            f"more follows the first JSON value, at character {error.pos}: a record of the topic"
            " holds one object; write each line as a record of its own"
        )
    return ""


_FIRST: Final = (
    RejectionReason.EXTRA_FIELD,
    RejectionReason.MISSING_FIELD,
    RejectionReason.NOT_FINITE,
    RejectionReason.OUT_OF_RANGE,
)
"""Codes of reasons in the order of precedence: of several, the first is reported."""


def _reasons(
    value: object, field: Field, strict: bool, logical: Logical
) -> Iterator[RejectionReason]:
    """Return the reasons to reject ``value`` other than its type."""
    if field.kind == "record" and isinstance(value, dict):
        names = {inner.json_name for inner in field.inner}
        if strict and not value.keys() <= names:
            yield RejectionReason.EXTRA_FIELD
        for inner in field.inner:
            if inner.json_name in value:
                yield from _reasons(value[inner.json_name], inner, strict, logical)
            elif not inner.has_default:
                yield RejectionReason.MISSING_FIELD
    elif (field.kind == "array" and isinstance(value, list)) or (
        field.kind == "map" and isinstance(value, dict)
    ):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _reasons(item, field.inner[0], strict, logical)
    elif field.is_checked_text:
        try:
            logical(field, value)
        except UnfitError as error:
            yield error.reason
    elif field.kind in ("float", "double") and value in _NOT_FINITE.values():
        yield RejectionReason.NOT_FINITE
    elif _is_out_of_range(field.kind, value):
        yield RejectionReason.OUT_OF_RANGE


def logical_of(field: Field, value: object) -> Any:
    """Convert a text to a value of ``field``. Raises UnfitError."""
    if field.kind in INSTANTS:
        return logical_types.timestamp_of(value, field.kind)
    if field.kind == "date":
        return logical_types.date_of(value)
    if field.kind == "decimal":
        return logical_types.decimal_of(value, field.precision, field.scale)
    if field.kind == "bytes":
        return logical_types.fixed_of(value, field.size)
    if field.symbols:
        return logical_types.symbol_of(value, field.symbols, field.symbol_default)
    return logical_types.uuid_of(value)


def _part(index: int) -> Callable[[Any], Any]:
    return attrgetter(f"f{index}")


def _items(value: Any, field: Field) -> int:
    """Return the number of items in the arrays and maps of a decoded value."""
    if value is None or not field.has_items:
        return 0
    if field.kind == "record":
        return sum(_items(_part(i)(value), inner) for i, inner in enumerate(field.inner))
    inside = value.values() if field.kind == "map" else value
    return len(value) + sum(_items(item, field.inner[0]) for item in inside)


def _roughly(value: bytes, error: Exception) -> RejectionReason:
    """Return the reason to reject a value with too many brackets to parse it once more. Brackets
    within texts count, too.
    """
    octets = np.frombuffer(value, np.uint8)
    step = np.isin(octets, _OPENING).astype(np.int8) - np.isin(octets, _CLOSING).astype(np.int8)
    if int(step.cumsum(dtype=np.int32).max()) > RECORD_DEPTH_MAX:
        return RejectionReason.TOO_DEEP
    return (
        RejectionReason.WRONG_TYPE
        if isinstance(error, msgspec.ValidationError)
        else RejectionReason.NOT_JSON
    )


def _column(get: Callable[[Any], Any], field: Field) -> Callable[[list[Any]], pa.Array]:
    """Return the column of one field. Numbers go through numpy, since decoding has checked their
    range.
    """
    number = None if field.nullable else _NUMBERS.get(field.kind)
    if number is None:
        return lambda rows: columns.column_of(list(map(get, rows)), field, _part)
    return lambda rows: pa.array(np.fromiter(map(get, rows), number, len(rows)))


def _is_out_of_range(kind: str, value: object) -> bool:
    """Return whether ``value`` fits ``kind`` except for its size."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if kind in ("int", "long"):
        low, high = (INT_MIN, INT_MAX) if kind == "int" else (LONG_MIN, LONG_MAX)
        return isinstance(value, int) and not low <= value <= high
    return kind in ("float", "double") and abs(value) > (
        FLOAT_MAX if kind == "float" else _DOUBLE_MAX
    )


def _depth(value: object) -> int:
    """Return the nesting of a decoded value, at most one level more than is allowed."""
    level, deepest = [value], 0
    while level and deepest <= RECORD_DEPTH_MAX + 1:
        inner: list[object] = []
        for item in level:
            if isinstance(item, dict):
                inner.extend(item.values())
            elif isinstance(item, list):
                inner.extend(item)
        if not any(isinstance(item, dict | list) for item in level):
            break
        deepest += 1
        level = inner
    return deepest


class JsonEncoder:
    """Encoder of the rows of an Arrow schema as compact JSON objects, with fields in the order of
    ``columns``.

    What ``JsonDecoder`` reads: times and dates in ISO 8601, decimals as texts, bytes as base64;
    maps as objects in the order of their keys. A number of single precision has the fewest digits
    that stand for it. NaN and infinity, which JSON lacks, are the texts ``"NaN"``, ``"Infinity"``
    and ``"-Infinity"``, which ``JsonDecoder`` rejects.

    Raises:
        ConfigurationError: at creation, if two columns have one name, or the keys of a map are
            nothing that a text can be made of.
    """

    def __init__(self, columns: pa.Schema) -> None:
        self._columns = columns
        names = {f"f{index}": name for index, name in enumerate(columns.names)}
        if len(set(columns.names)) != len(columns.names):
            raise ConfigurationError(
                f"two columns of the same name; rename one in the stage: {', '.join(columns.names)}"
            )
        for field in columns:
            _check_keys(field.name, field.type)
        self._row: Callable[..., Any] = msgspec.defstruct(
            "Row", list(names), rename=names, gc=False
        )
        self._encode = msgspec.json.Encoder().encode

    def encode(self, table: pa.Table) -> list[bytes]:
        """Return one value per row. ``table`` has at least the columns."""
        columns = [_json_values(table.column(field.name)) for field in self._columns]
        return list(map(self._encode, map(self._row, *columns)))


def _check_keys(name: str, kind: pa.DataType) -> None:
    if pa.types.is_map(kind):
        plain = (pa.types.is_string, pa.types.is_large_string, pa.types.is_integer)
        if not any(is_one(kind.key_type) for is_one in plain):
            raise ConfigurationError(
                f"column {name} has a map whose keys are {kind.key_type}: in JSON they are texts or"
                " whole numbers; make texts of them in the stage"
            )
        _check_keys(name, kind.item_type)
    elif pa.types.is_nested(kind):
        for index in range(kind.num_fields):
            _check_keys(name, kind.field(index).type)


def _json_values(column: pa.ChunkedArray) -> list[Any]:
    whole = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    return columns.values_of(whole, _json_leaf, _object, dict)


def _object(names: list[str]) -> Callable[..., Any]:
    return lambda *parts: dict(zip(names, parts, strict=True))


def _json_leaf(column: pa.Array) -> list[Any]:
    """Return the values of a column in the form that msgspec writes."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        text = pc.replace_substring(
            columns.micros(column).cast(pa.timestamp("us")).cast(pa.string()), " ", "T"
        )
        return (text if kind.tz is None else pc.binary_join_element_wise(text, "Z", "")).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_date(kind):
        return column.cast(pa.date32()).cast(pa.string()).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_decimal(kind):
        return [None if value is None else format(value, "f") for value in column.to_pylist()]
    if pa.types.is_floating(kind):
        return _json_numbers(column)
    if pa.types.is_duration(kind):
        # A duration in Python has microseconds.
        column = column.cast(pa.duration("us"), safe=False)
    return column.to_pylist()  # type: ignore[no-any-return]


def _json_numbers(column: pa.Array) -> list[Any]:
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())
    if pa.types.is_float32(column.type):
        # By way of the text: the double next to it would have digits that the number does not have.
        column = column.cast(pa.string()).cast(pa.float64())
    values = column.to_pylist()
    if pc.all(pc.is_finite(column), min_count=0).as_py():
        return values  # type: ignore[no-any-return]
    return [
        value if value is None or math.isfinite(value) else _NOT_FINITE[str(value)]
        for value in values
    ]
