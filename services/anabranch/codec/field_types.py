"""The fields of a user's record as a tree, read from Avro's notation and written in it.

A field is a plain value, one of Avro's logical types, or a record, array or map of further fields.
Logical types that are not in the list are read as the plain type below them, as Avro demands.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast

from anabranch.codec import logical_types
from anabranch.codec.logical_types import PRECISION_MAX, TIMESTAMPS
from anabranch.protocol import limits

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA_DEPTH_MAX: Final = 8
"""Records, arrays and maps within each other in a record schema: each costs a call per value and a
level of every column. Below RECORD_DEPTH_MAX.
"""

KINDS: Final = ("int", "long", "float", "double", "boolean", "string", "bytes")
LOGICAL: Final = {
    "timestamp-millis": "long",
    "timestamp-micros": "long",
    "date": "int",
    "uuid": "string",
}
"""Each with the plain type that Avro writes; ``decimal`` is bytes or fixed."""
NESTED: Final = ("record", "array", "map")
RESERVED: Final = ("event_time",)
"""Columns that anabranch adds: a record may not have its own of that name."""

INT_MIN: Final = -(2**31)
INT_MAX: Final = 2**31 - 1
LONG_MIN: Final = -(2**63)
LONG_MAX: Final = 2**63 - 1
FLOAT_MAX: Final = 3.4028235677973362e38
"""Largest double that still rounds to a finite 32-bit float."""

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,126}\Z")
_FIELD_KEYS = {"name", "type", "doc", "default", "order", "aliases"}
_TYPES_WITHIN: Final = ("type", "items", "values")
"""Attributes that hold a type, which may hold a record."""
_HINT: Final = (
    f"use one of {', '.join(KINDS)}, {', '.join(LOGICAL)}, decimal, a record, array or map of"
    " these, or a union of null and one"
)


@dataclass(frozen=True, slots=True)
class Field:
    """One column, or a part of one. ``default`` counts only if ``has_default``; it is a value as
    ``codec.columns`` takes it.
    """

    name: str
    kind: str
    nullable: bool = False
    default: object = None
    has_default: bool = False
    null_first: bool = False
    """Null is the first branch of the union."""
    precision: int = 0
    scale: int = 0
    size: int = 0
    """Bytes of a decimal that Avro writes as ``fixed``; 0: as ``bytes``."""
    inner: tuple[Field, ...] = ()
    """The fields of a record, the items of an array, the values of a map."""

    @property
    def arrow(self) -> pa.Field:
        """The column in Arrow. What stands inside of a value may be null, as in most of what
        Spark computes.
        """
        import pyarrow as pa  # the client and the reading commands do without it

        return pa.field(self.name, self.arrow_type(), nullable=self.nullable)

    def arrow_type(self) -> pa.DataType:
        """The type in Arrow."""
        import pyarrow as pa

        if self.kind in TIMESTAMPS:
            return pa.timestamp("us", "UTC")
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
    def is_nested(self) -> bool:
        """Whether it has parts."""
        return self.kind in NESTED

    @property
    def has_items(self) -> bool:
        """Whether the number of its values is up to who writes it."""
        return self.kind in ("array", "map") or any(field.has_items for field in self.inner)

    def shown(self) -> str:
        """The type in words."""
        return f"decimal({self.precision}, {self.scale})" if self.kind == "decimal" else self.kind


class FieldParser:
    """Makes fields of Avro's notation; ``mistakes`` gets a line for each that cannot be carried."""

    def __init__(self, mistakes: list[str]) -> None:
        self._mistakes = mistakes
        self._named: dict[str, Field] = {}
        self._count = 0

    def fields(self, raw: list[object], space: str, path: str = "", depth: int = 0) -> list[Field]:
        """The fields of a record in the namespace ``space``."""
        found: list[Field] = []
        for each in raw:
            self._count += 1
            if self._count > limits.RECORD_FIELDS_MAX:
                break
            field = self._field(each, space, path, depth)
            if field is None:
                continue
            if any(field.name == other.name for other in found):
                self._mistakes.append(f"field {path}{field.name} is there twice")
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
                " another name"
            )
        unknown = sorted(set(raw) - _FIELD_KEYS)
        if unknown:
            self._mistakes.append(f"field {name}: unknown key {unknown[0]!r}")
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
                if field.is_nested:
                    wanted += " that is empty"
                self._mistakes.append(
                    f"field {name}: default {repr(raw['default'])[:80]} is not a value of type"
                    f" {wanted}"
                )
                return None
            field = replace(field, default=default, has_default=True)
        return None if len(self._mistakes) > before else replace(field, name=raw["name"])

    def _type(
        self, avro: object, space: str, path: str, depth: int, *, in_union: bool = False
    ) -> Field | None:
        """The field without its name; None: not supported, which is reported unless it is plain."""
        if isinstance(avro, str):
            if avro in KINDS:
                return Field("", avro)
            return self._named.get(avro if "." in avro or not space else f"{space}.{avro}")
        if isinstance(avro, list):
            return None if in_union else self._union(avro, space, path, depth)
        if not isinstance(avro, dict) or not isinstance(avro.get("type"), str):
            return None
        if avro["type"] in NESTED:
            return self._nested(avro, space, path, depth)
        logical = avro.get("logicalType")
        if logical == "decimal":
            return self._decimal(avro, path)
        if isinstance(logical, str) and LOGICAL.get(logical) == avro["type"]:
            return Field("", logical)
        return self._type(avro["type"], space, path, depth, in_union=in_union)

    def _union(self, avro: list[object], space: str, path: str, depth: int) -> Field | None:
        if len(avro) != 2 or "null" not in avro:
            return None
        null_first = avro[0] == "null"
        field = self._type(avro[1 if null_first else 0], space, path, depth, in_union=True)
        return None if field is None else replace(field, nullable=True, null_first=null_first)

    def _decimal(self, avro: dict[str, Any], path: str) -> Field | None:
        precision: Any = avro.get("precision")
        scale, size = avro.get("scale", 0), avro.get("size", 0)
        if avro["type"] not in ("bytes", "fixed"):
            return None
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
        if depth >= SCHEMA_DEPTH_MAX:
            self._mistakes.append(
                f"field {path}: nested deeper than {SCHEMA_DEPTH_MAX} records, arrays and maps"
            )
            return None
        kind = avro["type"]
        if kind == "record":
            name, raw = avro.get("name"), avro.get("fields")
            if not isinstance(name, str) or not isinstance(raw, list) or not raw:
                self._mistakes.append(f"field {path}: a record in it has no name, or no fields")
                return None
            full = full_name(avro, space)
            known = len(self._mistakes)
            inner = self.fields(raw, full.rpartition(".")[0], f"{path}.", depth + 1)
            if len(self._mistakes) > known or self._count > limits.RECORD_FIELDS_MAX:
                return None
            self._named[full] = Field("", kind, inner=tuple(inner))
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
        """Fields so far; beyond RECORD_FIELDS_MAX the rest is not looked at."""
        return self._count


def without_extras(avro: object) -> object:
    """The type, or record, without what its fields have beside Avro's own attributes."""
    if isinstance(avro, list):
        return [without_extras(each) for each in avro]
    if not isinstance(avro, dict):
        return avro
    plain = {
        key: without_extras(value) if key in _TYPES_WITHIN else value for key, value in avro.items()
    }
    if isinstance(avro.get("fields"), list):
        plain["fields"] = [
            without_extras({key: value for key, value in field.items() if key in _FIELD_KEYS})
            if isinstance(field, dict)
            else field
            for field in avro["fields"]
        ]
    return plain


def full_name(avro: dict[str, Any], space: str) -> str:
    """The name of a record with its namespace."""
    name = str(avro["name"])
    if "." in name:
        return name
    own = avro.get("namespace", space)
    return f"{own}.{name}" if own else name


def _default_of(field: Field, value: object) -> object:
    """Raises ValueError or TypeError: it is none of the field."""
    if field.nullable and field.null_first:
        if value is not None:  # Avro: the default of a union is one of its first branch
            raise ValueError
        return None
    if field.kind == "record" or (field.kind in ("array", "map") and value not in ([], {})):
        raise ValueError
    if field.kind == "boolean":
        wanted: type = bool
    elif field.kind in ("string", "bytes", "uuid", "decimal"):
        wanted = str
    elif field.is_nested:
        wanted = list if field.kind == "array" else dict
    else:
        wanted = int if field.kind not in ("float", "double") or type(value) is int else float
    if type(value) is not wanted:
        raise TypeError
    return _default_value(field, cast("Any", value))


def _default_value(field: Field, value: Any) -> object:
    kind = field.kind
    if kind in TIMESTAMPS:
        return logical_types.check_micros(value * 1_000 if kind == TIMESTAMPS[0] else value)
    if kind == "date":
        return logical_types.check_days(value)
    if kind == "decimal":
        data = value.encode("latin-1")
        if field.size and len(data) != field.size:
            raise ValueError
        return logical_types.unscaled_of(data, field.precision, field.scale)
    if kind == "uuid":
        return logical_types.uuid_of(value)
    if kind == "bytes":
        return value.encode("latin-1")
    low, high = {"int": (INT_MIN, INT_MAX), "long": (LONG_MIN, LONG_MAX)}.get(kind, (0, 0))
    if kind in ("int", "long") and not low <= value <= high:
        raise ValueError
    if kind in ("float", "double"):
        value = float(value)
        if not math.isfinite(value) or (kind == "float" and abs(value) > FLOAT_MAX):
            raise ValueError
    return value
