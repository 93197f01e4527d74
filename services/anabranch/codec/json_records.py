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
- of a key that is there twice the last one counts, as with most parsers;
- UTF-8, no byte order mark, nothing after the object but white space.

One decoder does both the bulk and the single record: a class made from the schema, whose instances
are built in C.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Annotated, Any, Final, Literal

import msgspec
import numpy as np
import pyarrow as pa

from anabranch.codec.guards import Rejected
from anabranch.codec.record_schema import (
    DOUBLE_MAX,
    FLOAT_MAX,
    INT_MAX,
    INT_MIN,
    LONG_MAX,
    LONG_MIN,
    RecordSchema,
)
from anabranch.protocol.errors import ConfigurationError, RecordRejected, RejectionReason
from anabranch.protocol.limits import RECORD_DEPTH_MAX

ExtraFields = Literal["ignore", "reject"]

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
_TEXT_MAX: Final = 300
_OPENING: Final = np.frombuffer(b"[{", np.uint8)
_CLOSING: Final = np.frombuffer(b"]}", np.uint8)
_BRACKETS_MAX: Final = 20_000
"""Of a rejected record that is read once more for its reason; a record of flat fields has one."""

_ROWS_AT_ONCE: Final = 8_192
"""Records that are decoded before their columns are made: their objects stay in the
processor's cache until then.
"""


class JsonDecoder:
    """Decodes the records of one schema."""

    def __init__(self, record: RecordSchema, extra_fields: ExtraFields = "ignore") -> None:
        self._record, self._extra_fields = record, extra_fields
        fields: list[Any] = []
        for index, field in enumerate(record.fields):
            kind = _TYPES[field.kind]
            kind = kind | None if field.nullable else kind
            fields.append(
                (f"f{index}", kind, field.default) if field.has_default else (f"f{index}", kind)
            )
        names = {f"f{index}": field.name for index, field in enumerate(record.fields)}
        kind = msgspec.defstruct(
            "Row",
            fields,
            rename=names,
            forbid_unknown_fields=extra_fields == "reject",
            kw_only=True,
            gc=False,
        )
        self._decode: Callable[[bytes], Any] = msgspec.json.Decoder(kind).decode
        self._schema = record.arrow_schema()
        self._columns = [
            _column(
                attrgetter(name), arrow.type, None if field.nullable else _NUMBERS.get(field.kind)
            )
            for name, field, arrow in zip(names, record.fields, self._schema, strict=True)
        ]

    def decode(self, values: Sequence[bytes]) -> tuple[pa.Table, Rejected]:
        """The records of ``values``, in order, without those that are rejected. Values passed
        ``guards.admit``.
        """
        rejected: Rejected = []
        tables = [
            self._piece(values, start, rejected) for start in range(0, len(values), _ROWS_AT_ONCE)
        ]
        return pa.concat_tables(
            tables
        ).combine_chunks() if tables else self._schema.empty_table(), rejected

    def _piece(self, values: Sequence[bytes], start: int, rejected: Rejected) -> pa.Table:
        """Some of ``values``, from ``start`` on."""
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
        return pa.Table.from_arrays([column(rows) for column in self._columns], schema=self._schema)

    def _rejection(self, value: bytes, error: Exception) -> RecordRejected:
        """The reason's code: whether to reject is decided already, so this may take its time."""
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
        except json.JSONDecodeError:
            return RecordRejected(RejectionReason.NOT_JSON, text)
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
        return RecordRejected(self._reason(found), text)

    def _reason(self, found: object) -> RejectionReason:
        if not isinstance(found, dict):
            return RejectionReason.WRONG_TYPE
        if self._extra_fields == "reject" and any(self._record.field(key) is None for key in found):
            return RejectionReason.EXTRA_FIELD
        if any(field.name not in found and not field.has_default for field in self._record.fields):
            return RejectionReason.MISSING_FIELD
        if any(
            _is_out_of_range(field.kind, found.get(field.name)) for field in self._record.fields
        ):
            return RejectionReason.OUT_OF_RANGE
        return RejectionReason.WRONG_TYPE


def _roughly(value: bytes, error: Exception) -> RejectionReason:
    """The reason for a value with very many brackets; those inside texts count like others."""
    octets = np.frombuffer(value, np.uint8)
    step = np.isin(octets, _OPENING).astype(np.int8) - np.isin(octets, _CLOSING).astype(np.int8)
    if int(step.cumsum(dtype=np.int32).max()) > RECORD_DEPTH_MAX:
        return RejectionReason.TOO_DEEP
    return (
        RejectionReason.WRONG_TYPE
        if isinstance(error, msgspec.ValidationError)
        else RejectionReason.NOT_JSON
    )


def _column(
    get: Callable[[Any], Any], kind: pa.DataType, number: Any
) -> Callable[[list[Any]], pa.Array]:
    """Makes one column of rows; ``number`` is its type in numpy if it has only numbers, whose
    range the rows' class has checked.
    """
    if number is None:
        return lambda rows: pa.array(list(map(get, rows)), kind)
    return lambda rows: pa.array(np.fromiter(map(get, rows), number, len(rows)))


def _is_out_of_range(kind: str, value: object) -> bool:
    """Whether ``value`` would do for ``kind`` if it were smaller."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if kind in ("int", "long"):
        low, high = (INT_MIN, INT_MAX) if kind == "int" else (LONG_MIN, LONG_MAX)
        return isinstance(value, int) and not low <= value <= high
    return kind in ("float", "double") and abs(value) > (
        FLOAT_MAX if kind == "float" else DOUBLE_MAX
    )


def _depth(value: object) -> int:
    """Nesting of a decoded value, looked at no further than it is allowed."""
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
    """Encodes rows of an Arrow schema as compact objects, fields in the order of ``columns``.

    Timestamps become milliseconds since 1970 (as input has them), dates ISO texts, decimals texts,
    bytes base64, nested values arrays and objects; NaN and infinity, which JSON does not have,
    become null.
    """

    def __init__(self, columns: pa.Schema) -> None:
        self._columns = columns
        names = {f"f{index}": name for index, name in enumerate(columns.names)}
        if len(set(columns.names)) != len(columns.names):
            raise ConfigurationError(f"two columns of the same name: {', '.join(columns.names)}")
        self._row: Callable[..., Any] = msgspec.defstruct(
            "Row", list(names), rename=names, gc=False
        )
        self._encode = msgspec.json.Encoder(decimal_format="string").encode

    def encode(self, table: pa.Table) -> list[bytes]:
        """One value per row. ``table`` has at least the columns."""
        columns = [values_of(table.column(field.name)) for field in self._columns]
        return list(map(self._encode, map(self._row, *columns)))


def values_of(column: pa.ChunkedArray) -> list[Any]:
    """Python values of a column, timestamps as whole milliseconds."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    return column.to_pylist()  # type: ignore[no-any-return]
