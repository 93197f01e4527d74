"""Parser of any Avro schema into a graph of types, as a writer may have used it.

Unlike a reader's record (``field_types``), a writer's schema is not of this pipeline's choosing:
every type of Avro is accepted, and attributes that do not bear on the bytes (defaults, aliases,
documentation, order, vendors' own) are ignored.

``wire`` describes the same bytes to fastavro in its plainest terms: names are replaced by numbers,
since fastavro checks them more strictly than some writers do; logical types are removed, since
their values are converted here, exactly; an enum is its index; and each branch of a union of
several types is wrapped in a record of one field, which has no bytes of its own and tells which
branch was written.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

from anabranch.codec.field_types import (
    DURATION_BYTES,
    LOGICAL,
    NUMBERS,
    UUID_BYTES,
    full_name,
)
from anabranch.codec.writer_schema import WriterSchema
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.limits import MIB

WRITER_SCHEMA_BYTES_MAX: Final = 1 * MIB
"""Text of a writer's schema, documentation included. Only the types count after parsing."""
WRITER_TYPES_MAX: Final = 5_000
"""Types in a writer's schema: bounds the cost of compiling it."""
WRITER_DEPTH_MAX: Final = 32
"""Nesting of types in a writer's schema. With RECORD_DEPTH_MAX passes through a recursive type it
bounds the stack that fastavro needs, which it does not check itself.
"""

PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


@dataclass(slots=True, eq=False)
class Type:
    """A node of a schema. Nodes of recursive types contain themselves.

    Attributes:
        kind: Name of a primitive type, or record, enum, fixed, array, map, union.
        number: Position among the schema's types, in order of appearance.
        name: Full name of a record, an enum or a fixed.
        logical: Logical type, if it is one that is known and fits ``kind``; else empty.
        precision: Digits of a decimal.
        scale: Digits of a decimal behind the point.
        size: Length of a fixed, in bytes.
        symbols: Symbols of an enum.
        fields: Names of a record's fields; their types are ``inner``.
        inner: Types of the fields, of an array's items, a map's values, or a union's branches.
    """

    kind: str
    number: int = 0
    name: str = ""
    logical: str = ""
    precision: int = 0
    scale: int = 0
    size: int = 0
    symbols: tuple[str, ...] = ()
    fields: list[str] = field(default_factory=list)
    inner: list[Type] = field(default_factory=list)

    @property
    def short_name(self) -> str:
        """The name without its namespace, by which Avro compares types."""
        return self.name.rpartition(".")[2]

    def shown(self) -> str:
        """Return the type in words."""
        if self.logical == "decimal":
            return f"decimal({self.precision}, {self.scale})"
        if self.name:
            return f"{self.kind} {self.name}"
        if self.kind == "union":
            return f"[{', '.join(each.shown() for each in self.inner)}]"
        return self.logical or self.kind


def of_parts(schema: WriterSchema) -> Type:
    """Return the type of a registry's schema. Named types of the schemas that it refers to are
    known in it.

    Raises:
        ConfigurationError: A text is no schema, or exceeds a limit.
    """
    if schema.size_bytes > WRITER_SCHEMA_BYTES_MAX:
        raise ConfigurationError(f"it is larger than {WRITER_SCHEMA_BYTES_MAX} bytes")
    parser = _Parser()
    for part in schema.parts[:-1]:
        try:
            parser.type(_notation(part.content), "", 0)
        except ConfigurationError as error:
            raise ConfigurationError(f"{part.name}, which it refers to: {error}") from error
    return parser.type(_notation(schema.parts[-1].content), "", 0)


def _notation(text: bytes) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"it is not JSON: {error}") from error


def of_notation(avro: object) -> Type:
    """Return the type of a schema that is parsed JSON.

    Raises:
        ConfigurationError: the JSON is no schema, or exceeds a limit.
    """
    return _Parser().type(avro, "", 0)


class _Parser:
    """Parser of one schema. Remembers the named types found so far."""

    def __init__(self) -> None:
        self._named: dict[str, Type] = {}
        self._count = 0

    def type(self, avro: object, space: str, depth: int) -> Type:
        """Parse the type ``avro`` in the namespace ``space``."""
        if depth > WRITER_DEPTH_MAX:
            raise ConfigurationError(f"it is nested deeper than {WRITER_DEPTH_MAX} types")
        if isinstance(avro, str):
            return self._reference(avro, space)
        if isinstance(avro, list):
            made = self._new("union")
            made.inner = [self.type(each, space, depth + 1) for each in avro]
            if not avro or any(each.kind == "union" for each in made.inner):
                raise ConfigurationError("a union in it is empty, or has a union as a branch")
            return made
        if not isinstance(avro, dict):
            raise ConfigurationError(f"{json.dumps(avro)[:80]} is not a type")
        kind = avro.get("type")
        if kind in ("record", "error", "enum", "fixed"):
            return self._new_named(avro, space, depth)
        if kind in ("array", "map"):
            made = self._new(kind)
            of = avro.get("items" if kind == "array" else "values")
            made.inner = [self.type(of, space, depth + 1)]
            return made
        found = self.type(kind, space, depth + 1)
        if found.kind in PRIMITIVES:
            _set_logical(found, avro)
        return found

    def _new(self, kind: str) -> Type:
        self._count += 1
        if self._count > WRITER_TYPES_MAX:
            raise ConfigurationError(f"it has more than {WRITER_TYPES_MAX} types")
        return Type(kind, self._count)

    def _reference(self, name: str, space: str) -> Type:
        if name in PRIMITIVES:
            return self._new(name)
        found = self._named.get(name if "." in name or not space else f"{space}.{name}")
        found = found or self._named.get(name)
        if found is None:
            raise ConfigurationError(
                f"{name[:80]!r} is not a type, and no type of this name is in it"
            )
        return found

    def _new_named(self, avro: dict[str, Any], space: str, depth: int) -> Type:
        kind = avro["type"]
        if not isinstance(avro.get("name"), str):
            raise ConfigurationError(f"a type {kind} in it has no name")
        made = self._new("record" if kind == "error" else kind)
        made.name = full_name(avro, space)
        if made.name in self._named:
            raise ConfigurationError(f"two types in it are named {made.name}")
        self._named[made.name] = made
        if kind == "enum":
            symbols = avro.get("symbols")
            if not isinstance(symbols, list) or not all(isinstance(each, str) for each in symbols):
                raise ConfigurationError(f"enum {made.name} has no list of symbols")
            made.symbols = tuple(symbols)
        elif kind == "fixed":
            size = avro.get("size")
            if type(size) is not int or size < 0:
                raise ConfigurationError(f"fixed {made.name} has no size")
            made.size = size
            _set_logical(made, avro)
        else:
            self._set_fields(made, avro.get("fields"), depth)
        return made

    def _set_fields(self, made: Type, raw: object, depth: int) -> None:
        space = made.name.rpartition(".")[0]
        if not isinstance(raw, list):
            raise ConfigurationError(f"record {made.name} has no list of fields")
        for each in raw:
            if not isinstance(each, dict) or not isinstance(each.get("name"), str):
                raise ConfigurationError(
                    f"record {made.name}: {json.dumps(each)[:80]} is not a field"
                )
            made.inner.append(self.type(each.get("type"), space, depth + 1))
            made.fields.append(each["name"])


def _set_logical(made: Type, avro: dict[str, Any]) -> None:
    """Set the logical type of a parsed type. An unknown or wrong one is ignored, as Avro
    demands.
    """
    logical = avro.get("logicalType")
    if logical == "decimal" and made.kind in ("bytes", "fixed"):
        precision, scale = avro.get("precision"), avro.get("scale", 0)
        if type(precision) is int and type(scale) is int and 0 <= scale <= precision:
            made.logical = logical
            made.precision = precision
            made.scale = scale
    elif made.kind == "fixed":
        if (logical, made.size) in (("duration", DURATION_BYTES), ("uuid", UUID_BYTES)):
            made.logical = str(logical)
    elif isinstance(logical, str) and {**LOGICAL, **NUMBERS}.get(logical) == made.kind:
        made.logical = logical


def is_tagged(union: Type) -> bool:
    """Return whether ``wire`` wraps the branches of ``union``. A union of null and one type needs
    no tags: None is null.
    """
    return len(union.inner) != 2 or "null" not in (each.kind for each in union.inner)


def wire_name(each: Type) -> str:
    """Return the name under which ``wire`` defines a named type."""
    return f"t{each.number}"


def tag(union: Type, branch: int, kind: object) -> dict[str, Any]:
    """Return the record that wraps a branch of a tagged union."""
    name = f"b{union.number}_{branch}"
    return {"type": "record", "name": name, "fields": [{"name": f"b{branch}", "type": kind}]}


def wire(of: Type, defined: set[int] | None = None) -> Any:
    """Return the schema by which fastavro reads what ``of`` describes.

    Values are those of the plain types: an enum is its index, a branch of a tagged union a mapping
    from ``bN`` to its value, a record a mapping from ``fN``, N the position in ``inner``.

    Args:
        of: Type of the bytes.
        defined: Numbers of the named types that the schema defines before this place.
    """
    defined = set() if defined is None else defined
    if of.kind in ("record", "fixed"):
        if of.number in defined:
            return wire_name(of)
        defined.add(of.number)
        if of.kind == "fixed":
            return {"type": "fixed", "name": wire_name(of), "size": of.size}
        fields = [
            {"name": f"f{index}", "type": wire(each, defined)}
            for index, each in enumerate(of.inner)
        ]
        return {"type": "record", "name": wire_name(of), "fields": fields}
    if of.kind == "array":
        return {"type": "array", "items": wire(of.inner[0], defined)}
    if of.kind == "map":
        return {"type": "map", "values": wire(of.inner[0], defined)}
    if of.kind == "union":
        return [
            wire(each, defined)
            if each.kind == "null" or not is_tagged(of)
            else tag(of, index, wire(each, defined))
            for index, each in enumerate(of.inner)
        ]
    return "int" if of.kind == "enum" else of.kind
