"""Fields of a user's record as a tree, read from Avro's notation.

A field is a plain value, one of Avro's logical types, or a record, array or map of further fields.
A column has fewer types than Avro: an enum is a text, a fixed is bytes, a duration is a record of
three numbers, and a union of several types is a record with one field for each, of which one is not
null. Logical types that are not in the lists are read as the plain type below them, as Avro
demands.
"""

from __future__ import annotations

import json
import math
import re
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from anabranch.codec import logical_types
from anabranch.codec.logical_types import INSTANTS, LOCAL_TIMESTAMPS, PRECISION_MAX, TIMESTAMPS
from anabranch.protocol import limits

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA_DEPTH_MAX: Final = 8
"""Maximum nesting of records, arrays and maps in a record schema. Each level costs a call per value
and a level of every column. Below RECORD_DEPTH_MAX.
"""

KINDS: Final = ("int", "long", "float", "double", "boolean", "string", "bytes")
LOGICAL: Final = {
    "timestamp-millis": "long",
    "timestamp-micros": "long",
    "local-timestamp-millis": "long",
    "local-timestamp-micros": "long",
    "date": "int",
    "uuid": "string",
}
"""Logical types that a column has, each with the plain type that Avro writes. Further ones:
``decimal`` is bytes or fixed, ``uuid`` may be a fixed.
"""
NUMBERS: Final = {
    "timestamp-nanos": "long",
    "local-timestamp-nanos": "long",
    "time-millis": "int",
    "time-micros": "long",
}
"""Logical types that a column holds as the number that Avro writes, each with its plain type."""
DURATION: Final = ("months", "days", "millis")
"""Fields of the column of a duration."""
DURATION_BYTES: Final = 12
UUID_BYTES: Final = 16
BRANCH: Final = "member_"
"""Prefix of the names of a union's fields, before the branch's type. Spark's Avro reader names them
so.
"""
_MERGED: Final = {
    frozenset({"int", "long"}): "long",
    frozenset({"float", "double"}): "double",
}
"""Unions of two types that are read as one plain column, as in Spark: the wider type holds both."""
NESTED: Final = ("record", "array", "map")
RESERVED: Final = ("event_time",)
"""Names of columns that anabranch adds, which a record must not use."""

INT_MIN: Final = -(2**31)
INT_MAX: Final = 2**31 - 1
LONG_MIN: Final = -(2**63)
LONG_MAX: Final = 2**63 - 1
FLOAT_MAX: Final = 3.4028235677973362e38
"""Largest double that still rounds to a finite 32-bit float."""

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,126}\Z")
_FIELD_KEYS = {"name", "type", "doc", "default", "order", "aliases", "alias"}
_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
FIXED_BYTES_MAX: Final = 1 * limits.MIB
"""Maximum size of a ``fixed``, in bytes: that of a whole record. A larger one is a mistake in the
schema.
"""
_HINT: Final = (
    f"use one of {', '.join(KINDS)}, {', '.join((*LOGICAL, *NUMBERS))}, decimal, duration, an"
    " enum, a fixed, a record, array or map of these, or a union of them"
)


@dataclass(frozen=True, slots=True)
class Field:
    """Column, or a part of a nested column. ``default``, in the form that ``codec.columns`` takes,
    counts only with ``has_default``.
    """

    name: str
    kind: str
    nullable: bool = False
    default: object = None
    has_default: bool = False
    null_first: bool = False
    """Whether null is the first branch of the field's union."""
    precision: int = 0
    scale: int = 0
    size: int = 0
    """Number of bytes of an Avro ``fixed``; 0 if the field is none."""
    inner: tuple[Field, ...] = ()
    """The fields of a record, the items of an array, the values of a map, the branches of a
    union.
    """
    aliases: tuple[str, ...] = ()
    """Further names by which a writer may call the field."""
    names: tuple[str, ...] = ()
    """Name and aliases of the record, enum or fixed, without namespaces."""
    symbols: tuple[str, ...] = ()
    """Texts that the field may have, if it is an enum."""
    symbol_default: str = ""
    """Symbol that replaces unknown ones; empty if there is none."""
    logical: str = ""
    """Logical type, if ``kind`` does not imply it."""
    is_union: bool = False
    alias: str = ""
    """Name of the field in JSON; empty: that of the column."""

    @property
    def json_name(self) -> str:
        """Name of the field in a JSON object."""
        return self.alias or self.name

    @property
    def arrow(self) -> pa.Field:
        """Column in Arrow. Parts of nested values may be null, as in most results that Spark
        computes.
        """
        import pyarrow as pa  # the client and the reading commands do without it

        return pa.field(self.name, self.arrow_type(), nullable=self.nullable)

    def arrow_type(self) -> pa.DataType:
        """Return the type in Arrow."""
        import pyarrow as pa

        if self.kind in TIMESTAMPS:
            return pa.timestamp("us", "UTC")
        if self.kind in LOCAL_TIMESTAMPS:
            return pa.timestamp("us")
        if self.kind == "decimal":
            return pa.decimal128(self.precision, self.scale)
        if self.kind == "array":
            return pa.list_(pa.field("element", self.inner[0].arrow_type()))
        if self.kind == "map":
            return pa.map_(pa.string(), self.inner[0].arrow_type())
        if self.kind == "record":
            return pa.struct([(field.name, field.arrow_type()) for field in self.inner])
        plain = {
            "int": pa.int32(),
            "long": pa.int64(),
            "float": pa.float32(),
            "double": pa.float64(),
            "boolean": pa.bool_(),
            "string": pa.string(),
            "bytes": pa.binary(),
            "date": pa.date32(),
            "uuid": pa.string(),
        }
        return plain[self.kind]

    @property
    def plain(self) -> str:
        """Name of the type that Avro writes: a primitive, enum, fixed, record, array, map."""
        if self.symbols:
            return "enum"
        return "fixed" if self.size else {**LOGICAL, "decimal": "bytes"}.get(self.kind, self.kind)

    @property
    def meaning(self) -> str:
        """Logical type; empty: there is none."""
        is_own = self.kind in LOGICAL or self.kind == "decimal"
        return self.kind if is_own else self.logical

    @property
    def is_checked_text(self) -> bool:
        """Whether the value is a JSON string whose form is checked."""
        is_own = self.kind in LOGICAL or self.kind == "decimal"
        return is_own or bool(self.symbols) or (self.kind == "bytes" and self.size > 0)

    @property
    def is_nested(self) -> bool:
        """Whether the field has parts."""
        return self.kind in NESTED

    @property
    def has_items(self) -> bool:
        """Whether the writer decides how many values the field holds."""
        return self.kind in ("array", "map") or any(field.has_items for field in self.inner)

    def shown(self) -> str:
        """Return the type in words."""
        if self.kind == "decimal":
            return f"decimal({self.precision}, {self.scale})"
        if self.is_union:
            return "union"
        is_own = self.plain in ("enum", "fixed") and not self.meaning
        return self.plain if is_own else self.logical or self.kind


class FieldParser:
    """Parser of Avro's JSON notation into fields. It adds a line to ``mistakes`` for each field
    that cannot be carried; ``record`` is the full name of the record that has the fields.
    """

    def __init__(self, mistakes: list[str], record: str = "") -> None:
        self._mistakes = mistakes
        self._named: dict[str, Field] = {}
        self._open = {record}
        self._count = 0

    def fields(self, raw: list[object], space: str, path: str = "", depth: int = 0) -> list[Field]:
        """Return the fields of a record in the namespace ``space``."""
        found: list[Field] = []
        for each in raw:
            self._count += 1
            if self._count > limits.RECORD_FIELDS_MAX:
                break
            field = self._field(each, space, path, depth)
            if field is None:
                continue
            if clash := _clash(field, found):
                self._mistakes.append(f"field {path}{field.name} {clash}")
            found.append(field)
        return found

    def _field(self, raw: object, space: str, path: str, depth: int) -> Field | None:
        if (
            not isinstance(raw, dict)
            or not isinstance(raw.get("name"), str)
            or not NAME.match(raw["name"])
        ):
            shown = raw.get("name") if isinstance(raw, dict) else raw
            self._mistakes.append(
                f"{str(shown)[:80]!r} is not a field with a name that Avro allows"
            )
            return None
        name = path + raw["name"]
        before = len(self._mistakes)
        if not depth and name.lower() in RESERVED:
            self._mistakes.append(
                f"field {name}: 'event_time' is a column that anabranch adds; give the field"
                ' another name, and "alias" with its name in JSON'
            )
        if unknown := unknown_keys(raw, _FIELD_KEYS):
            self._mistakes.append(f"field {name}: unknown key {unknown[0]!r}")
        alias = raw.get("alias", "")
        if not isinstance(alias, str) or ("alias" in raw and not alias):
            self._mistakes.append(
                f"field {name}: alias {str(alias)[:80]!r} is no text, the field's name in JSON"
            )
        known = len(self._mistakes)
        field = self._type(raw.get("type"), space, name, depth)
        if field is None:
            if len(self._mistakes) == known:
                self._mistakes.append(
                    f"field {name}: type {json.dumps(raw.get('type'))[:80]} is not supported;"
                    f" {_HINT}"
                )
            return None
        if "default" in raw:
            try:
                default = _default_of(field, raw["default"])
            except (ValueError, TypeError, OverflowError):
                wanted = "null" if field.null_first else field.shown()
                self._mistakes.append(
                    f"field {name}: default {repr(raw['default'])[:80]} is not a value of type"
                    f" {wanted}"
                )
                return None
            field = replace(field, default=default, has_default=True)
        if len(self._mistakes) > before:
            return None
        return replace(
            field, name=raw["name"], aliases=_texts(raw.get("aliases")), alias=str(alias)
        )

    def _type(
        self, avro: object, space: str, path: str, depth: int, *, in_union: bool = False
    ) -> Field | None:
        """Return the field without its name; None if not supported, which is reported unless it is
        plain.
        """
        if isinstance(avro, str):
            return Field("", avro) if avro in KINDS else self._reference(avro, space, path)
        if isinstance(avro, list):
            return None if in_union else self._union(avro, space, path, depth)
        if not isinstance(avro, dict):
            return None
        kind, logical = avro.get("type"), avro.get("logicalType")
        if isinstance(kind, str) and kind in NESTED:
            return self._nested(avro, space, path, depth)
        if isinstance(kind, str) and (kind in ("enum", "fixed") or logical == "decimal"):
            return self._small(avro, space, path)
        field = self._type(kind, space, path, depth, in_union=in_union)
        if not isinstance(logical, str) or not isinstance(kind, str) or field is None:
            return field
        if LOGICAL.get(logical) == kind:
            return Field("", logical)
        return replace(field, logical=logical) if NUMBERS.get(logical) == kind else field

    def _reference(self, name: str, space: str, path: str) -> Field | None:
        """Return the field of a named type that was defined earlier in the schema."""
        full = name if "." in name or not space else f"{space}.{name}"
        if full in self._open:
            self._mistakes.append(
                f"field {path}: record {full} contains itself, and a recursive record cannot"
                " become columns; leave the field out: what a writer has besides is skipped"
            )
        return self._named.get(full)

    def _union(self, avro: list[object], space: str, path: str, depth: int) -> Field | None:
        branches = [each for each in avro if each != "null"]
        is_nullable = len(branches) == len(avro) - 1
        if not branches or not (is_nullable or len(branches) == len(avro)):
            return None
        if len(branches) == 1:
            field = self._type(branches[0], space, path, depth, in_union=True)
        else:
            field = self._several(branches, space, path, depth)
        if field is None or not is_nullable:
            return field
        return replace(field, nullable=True, null_first=avro[0] == "null")

    def _several(self, branches: list[Any], space: str, path: str, depth: int) -> Field | None:
        """Return the field of a union of several types."""
        if all(isinstance(each, str) for each in branches) and frozenset(branches) in _MERGED:
            return Field("", _MERGED[frozenset(branches)])
        if self._is_too_deep(path, depth):
            return None
        inner = list[Field]()
        for each in branches:
            field = self._type(each, space, path, depth + 1, in_union=True)
            if field is None:
                return None
            self._count += 1
            name = BRANCH + (field.names[0] if field.names else field.plain).lower()
            inner.append(replace(field, name=name, nullable=True, has_default=True))
        if len({field.name for field in inner}) < len(inner):
            self._mistakes.append(f"field {path}: two types of its union have the same name")
        return Field("", "record", inner=tuple(inner), is_union=True)

    def _small(self, avro: dict[str, Any], space: str, path: str) -> Field | None:
        """Return the field of a decimal, an enum or a fixed. Later fields may refer to a named
        one.
        """
        if avro["type"] not in ("bytes", "fixed", "enum"):
            return None
        if avro["type"] != "bytes" and not isinstance(avro.get("name"), str):
            return None
        if avro.get("logicalType") == "decimal" and avro["type"] != "enum":
            field = self._decimal(avro, path)
        else:
            field = (self._enum if avro["type"] == "enum" else self._fixed)(avro, path)
        if field is None or avro["type"] == "bytes":
            return field
        full = full_name(avro, space)
        self._named[full] = replace(field, names=_names(avro, full))
        return self._named[full]

    def _enum(self, avro: dict[str, Any], path: str) -> Field | None:
        symbols, default = _texts(avro.get("symbols")), avro.get("default", "")
        if not symbols or (default != "" and default not in symbols):
            self._mistakes.append(
                f"field {path}: an enum has symbols, and a default that is one of them, or none"
            )
            return None
        return Field("", "string", symbols=symbols, symbol_default=default)

    def _fixed(self, avro: dict[str, Any], path: str) -> Field | None:
        size, logical = avro.get("size"), avro.get("logicalType")
        if type(size) is not int or not 1 <= size <= FIXED_BYTES_MAX:
            self._mistakes.append(
                f"field {path}: a fixed has a size from 1 to {FIXED_BYTES_MAX} bytes"
            )
            return None
        if (logical, size) == ("duration", DURATION_BYTES):
            inner = tuple(Field(name, "long") for name in DURATION)
            self._count += len(inner)
            return Field("", "record", inner=inner, size=size, logical="duration")
        if (logical, size) == ("uuid", UUID_BYTES):
            return Field("", "uuid", size=size)
        return Field("", "bytes", size=size)

    def _is_too_deep(self, path: str, depth: int) -> bool:
        if depth >= SCHEMA_DEPTH_MAX:
            self._mistakes.append(
                f"field {path}: nested deeper than {SCHEMA_DEPTH_MAX} records, arrays, maps and"
                " unions"
            )
        return depth >= SCHEMA_DEPTH_MAX

    def _decimal(self, avro: dict[str, Any], path: str) -> Field | None:
        precision: Any = avro.get("precision")
        scale, size = avro.get("scale", 0), avro.get("size", 0)
        is_whole = all(type(each) is int for each in (precision, scale, size))
        if not is_whole or not 0 <= scale <= precision <= PRECISION_MAX or not precision:
            self._mistakes.append(
                f"field {path}: a decimal has a precision from 1 to {PRECISION_MAX} and a scale"
                " from 0 to the precision"
            )
            return None
        if avro["type"] == "bytes":
            size = 0
        elif not 1 <= size <= 32 or 10**precision > 2 ** (8 * size - 1):
            self._mistakes.append(
                f"field {path}: {precision} digits do not fit a fixed of size {size}"
            )
            return None
        return Field("", "decimal", precision=precision, scale=scale, size=size)

    def _nested(self, avro: dict[str, Any], space: str, path: str, depth: int) -> Field | None:
        if self._is_too_deep(path, depth):
            return None
        kind = avro["type"]
        if kind == "record":
            name, raw = avro.get("name"), avro.get("fields")
            if not isinstance(name, str) or not isinstance(raw, list) or not raw:
                self._mistakes.append(f"field {path}: a record in it has no name, or no fields")
                return None
            full = full_name(avro, space)
            known = len(self._mistakes)
            self._open.add(full)
            inner = self.fields(raw, full.rpartition(".")[0], f"{path}.", depth + 1)
            self._open.discard(full)
            if len(self._mistakes) > known or self._count > limits.RECORD_FIELDS_MAX:
                return None
            self._named[full] = Field("", kind, inner=tuple(inner), names=_names(avro, full))
            return self._named[full]
        self._count += 1
        known = len(self._mistakes)
        of = avro.get("items" if kind == "array" else "values")
        item = self._type(of, space, f"{path}[]", depth + 1)
        if item is None:
            if len(self._mistakes) == known:
                self._mistakes.append(
                    f"field {path}[]: type {json.dumps(of)[:80]} is not supported; {_HINT}"
                )
            return None
        return Field("", kind, inner=(item,))

    @property
    def count(self) -> int:
        """Number of fields so far. Fields beyond RECORD_FIELDS_MAX are not parsed."""
        return self._count


def unknown_keys(avro: dict[str, Any], known: set[str]) -> list[str]:
    """Return the attributes of a schema that are neither ``known`` nor another program's, sorted.

    Names such as ``connect.version`` or ``java-class`` belong to other programs, and are ignored.
    """
    return sorted(key for key in set(avro) - known if _PLAIN_KEY.fullmatch(key))


def _clash(field: Field, others: list[Field]) -> str:
    """Return why a record cannot have ``field`` beside ``others``; empty if it can."""
    for other in others:
        if field.name == other.name:
            return "is there twice"
        if field.name.lower() == other.name.lower():
            return (
                f"and {other.name} differ by case alone, which Spark does not distinguish: give one"
                ' another name, and "alias" with its name in JSON'
            )
        if field.json_name == other.json_name:
            return f"has the same name in JSON as {other.name}: {field.json_name!r}"
    return ""


def full_name(avro: dict[str, Any], space: str) -> str:
    """Return the name of a record with its namespace."""
    name = str(avro["name"])
    if "." in name:
        return name
    own = avro.get("namespace", space)
    return f"{own}.{name}" if own else name


def names_of(avro: dict[str, Any]) -> tuple[str, ...]:
    """Return the name of a record and its aliases, without namespaces."""
    return _names(avro, str(avro["name"]))


def _names(avro: dict[str, Any], full: str) -> tuple[str, ...]:
    return tuple(each.rpartition(".")[2] for each in (full, *_texts(avro.get("aliases"))))


def _texts(value: object) -> tuple[str, ...]:
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()


def _default_of(field: Field, value: Any) -> object:
    """Return the default of a field, as ``codec.columns`` takes it. Raises ValueError or TypeError
    if it is none of the field.
    """
    if field.nullable and field.null_first:
        if value is not None:  # Avro: the default of a union is one of its first branch
            raise ValueError
        return None
    if field.is_union:
        first = _default_of(replace(field.inner[0], null_first=False), value)
        return (first, *[None] * (len(field.inner) - 1))
    if field.kind == "record" and not field.size:
        return _default_record(field, _require(value, dict))
    if field.kind == "array":
        return [_default_of(field.inner[0], each) for each in _require(value, list)]
    if field.kind == "map":
        items = _require(value, dict).items()
        return {key: _default_of(field.inner[0], each) for key, each in items}
    if field.plain in ("string", "enum", "bytes", "fixed"):
        wanted: type = str
    elif field.kind == "boolean":
        wanted = bool
    else:
        wanted = int if field.kind not in ("float", "double") or type(value) is int else float
    return _default_value(field, _require(value, wanted))


def _require(value: Any, wanted: type) -> Any:
    if type(value) is not wanted:
        raise TypeError
    return value


def _default_record(field: Field, value: dict[str, Any]) -> tuple[object, ...]:
    if not value.keys() <= {each.name for each in field.inner}:
        raise ValueError
    found = list[object]()
    for each in field.inner:
        if each.name not in value and not each.has_default:
            raise ValueError
        found.append(_default_of(each, value[each.name]) if each.name in value else each.default)
    return tuple(found)


def _default_value(field: Field, value: Any) -> object:
    kind = field.kind
    if field.plain in ("bytes", "fixed"):
        value = value.encode("latin-1")
        if field.size and len(value) != field.size:
            raise ValueError
    if field.symbols and value not in field.symbols:
        raise ValueError
    if kind in INSTANTS:
        return logical_types.check_micros(value * 1_000 if kind.endswith("millis") else value)
    if kind == "date":
        return logical_types.check_days(value)
    if kind == "decimal":
        return logical_types.unscaled_of(value, field.precision, field.scale)
    if kind == "record":
        return logical_types.duration_of(value)
    if kind == "uuid":
        return str(uuid.UUID(bytes=value)) if field.size else logical_types.uuid_of(value)
    low, high = {"int": (INT_MIN, INT_MAX), "long": (LONG_MIN, LONG_MAX)}.get(kind, (0, 0))
    if kind in ("int", "long") and not low <= value <= high:
        raise ValueError
    if kind in ("float", "double"):
        value = float(value)
        if not math.isfinite(value) or (kind == "float" and abs(value) > FLOAT_MAX):
            raise ValueError
    return value
