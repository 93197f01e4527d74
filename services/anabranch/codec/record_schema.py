"""The schema of a user's record: an Avro record of primitive fields, each of which may be nullable.

Avro is the notation whatever the format of the topic. Logical types are read as the plain type
below them (a ``timestamp-millis`` is a ``long``): inside, a column is a number or a text, and what
it means is the user's business.

Attributes of the record that Avro itself ignores: ``schema_id`` (integer) is the id in the
Confluent framing of this version. Without it the id is the version, which is right where no
registry gives ids.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from anabranch.protocol import limits
from anabranch.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    import pyarrow as pa

KINDS: Final = ("int", "long", "float", "double", "boolean", "string", "bytes")
RESERVED: Final = ("event_time",)
"""Columns that anabranch adds: a record may not have its own of that name."""

INT_MIN: Final = -(2**31)
INT_MAX: Final = 2**31 - 1
LONG_MIN: Final = -(2**63)
LONG_MAX: Final = 2**63 - 1
DOUBLE_MAX: Final = 1.7976931348623157e308
FLOAT_MAX: Final = 3.4028235677973362e38
"""Largest double that still rounds to a finite 32-bit float."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,126}\Z")
_FILE = re.compile(r"v([1-9][0-9]{0,5})\.avsc\Z")
_RECORD_KEYS = {"type", "name", "namespace", "doc", "fields", "aliases", "schema_id"}
_FIELD_KEYS = {"name", "type", "doc", "default", "order", "aliases"}


@cache
def _arrow_types() -> dict[str, pa.DataType]:
    import pyarrow as pa

    return {
        "int": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "boolean": pa.bool_(),
        "string": pa.string(),
        "bytes": pa.binary(),
    }


@dataclass(frozen=True, slots=True)
class Field:
    """One column. ``default`` counts only if ``has_default``."""

    name: str
    kind: str
    nullable: bool = False
    default: object = None
    has_default: bool = False

    @property
    def arrow(self) -> pa.Field:
        """The column in Arrow."""
        import pyarrow as pa  # the client and the reading commands do without it

        return pa.field(self.name, _arrow_types()[self.kind], nullable=self.nullable)


@dataclass(frozen=True, slots=True)
class RecordSchema:
    """One version of one record; ``avro`` is the parsed text. ``older`` are its earlier
    versions, which Avro topics may still hold.
    """

    name: str
    version: int
    avro: dict[str, Any]
    fields: tuple[Field, ...]
    schema_id: int
    older: tuple[RecordSchema, ...] = ()

    def arrow_schema(self) -> pa.Schema:
        """The columns, in order; without event time."""
        import pyarrow as pa

        return pa.schema([field.arrow for field in self.fields])

    def field(self, name: str) -> Field | None:
        """The field of that name."""
        return next((field for field in self.fields if field.name == name), None)


def parse(text: str | bytes, name: str, version: int = 1) -> RecordSchema:
    """The schema in ``text``, rejected unless every field is one that anabranch can carry.

    Raises:
        ConfigurationError: with one line per mistake.
    """
    if len(text) > limits.SCHEMA_BYTES_MAX:
        raise ConfigurationError(
            f"record {name}: the schema is larger than {limits.SCHEMA_BYTES_MAX} bytes"
        )
    try:
        avro = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"record {name}: the schema is not JSON: {error}") from error
    return from_avro(avro, name, version)


def from_avro(avro: object, name: str, version: int = 1) -> RecordSchema:
    """As ``parse``, from the JSON value."""
    if (
        not isinstance(avro, dict)
        or avro.get("type") != "record"
        or not isinstance(avro.get("fields"), list)
    ):
        raise ConfigurationError(
            f'record {name}: the schema must be {{"type": "record", "name": ..., "fields": [...]}}'
        )
    mistakes: list[str] = []
    if not isinstance(avro.get("name"), str) or not _NAME.match(avro["name"]):
        mistakes.append(f"its name {avro.get('name')!r} is not a name that Avro allows")
    unknown = sorted(set(avro) - _RECORD_KEYS)
    if unknown:
        mistakes.append(f"unknown key {unknown[0]!r}")
    schema_id = avro.get("schema_id", version)
    if isinstance(schema_id, bool) or not isinstance(schema_id, int) or not 0 <= schema_id < 2**32:
        mistakes.append(f"schema_id {schema_id!r} is not an integer from 0 to 4294967295")
        schema_id = version
    if not avro["fields"]:
        mistakes.append("it has no fields")
    if len(avro["fields"]) > limits.RECORD_FIELDS_MAX:
        mistakes.append(
            f"it has {len(avro['fields'])} fields; at most {limits.RECORD_FIELDS_MAX} are allowed"
        )
    fields: list[Field] = []
    for raw in avro["fields"][: limits.RECORD_FIELDS_MAX]:
        field = _field(raw, mistakes)
        if field is None:
            continue
        if any(field.name == other.name for other in fields):
            mistakes.append(f"field {field.name} is there twice")
        fields.append(field)
    if mistakes:
        raise ConfigurationError("\n".join(f"record {name}: {mistake}" for mistake in mistakes))
    return RecordSchema(name, version, cast("dict[str, Any]", avro), tuple(fields), schema_id)


def _field(raw: object, mistakes: list[str]) -> Field | None:
    if (
        not isinstance(raw, dict)
        or not isinstance(raw.get("name"), str)
        or not _NAME.match(raw["name"])
    ):
        shown = raw.get("name") if isinstance(raw, dict) else raw
        mistakes.append(f"{str(shown)[:80]!r} is not a field with a name that Avro allows")
        return None
    name = raw["name"]
    before = len(mistakes)
    if name.lower() in RESERVED:
        mistakes.append(
            f"field {name}: 'event_time' is a column that anabranch adds; give the field another"
            " name"
        )
    unknown = sorted(set(raw) - _FIELD_KEYS)
    if unknown:
        mistakes.append(f"field {name}: unknown key {unknown[0]!r}")
    kind, nullable, null_first = _kind(raw.get("type"))
    if kind is None:
        mistakes.append(
            f"field {name}: type {json.dumps(raw.get('type'))[:80]} is not supported; use one of"
            f" {', '.join(KINDS)}, or a union of null and one"
        )
        return None
    has_default = "default" in raw
    if has_default and not _default_fits(raw["default"], kind, nullable, null_first):
        wanted = "null" if null_first else kind
        mistakes.append(f"field {name}: default {raw['default']!r} is not a value of type {wanted}")
    if len(mistakes) > before:
        return None
    default = raw.get("default")
    if has_default and default is not None:
        default = _default_value(default, kind)
    return Field(name, kind, nullable, default, has_default)


def _kind(avro: object, depth: int = 0) -> tuple[str | None, bool, bool]:
    """(kind or None if it is not supported, nullable, null is the first branch of the union)."""
    if isinstance(avro, str):
        return (avro if avro in KINDS else None), False, False
    if isinstance(avro, dict) and depth < 2:
        return (
            _kind(avro.get("type"), depth + 1)
            if isinstance(avro.get("type"), str)
            else (None, False, False)
        )
    if isinstance(avro, list) and len(avro) == 2 and "null" in avro and depth == 0:
        other = avro[1] if avro[0] == "null" else avro[0]
        kind, _, _ = _kind(other, depth + 1)
        return (None if isinstance(other, list) else kind), True, avro[0] == "null"
    return None, False, False


def _default_fits(value: object, kind: str, nullable: bool, null_first: bool) -> bool:
    if nullable and null_first:
        return value is None  # Avro: the default of a union is one of its first branch
    if kind == "boolean":
        return isinstance(value, bool)
    if kind in ("string", "bytes"):
        return isinstance(value, str) and (
            kind == "string" or all(ord(letter) < 256 for letter in value)
        )
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if kind in ("int", "long"):
        low, high = (INT_MIN, INT_MAX) if kind == "int" else (LONG_MIN, LONG_MAX)
        return isinstance(value, int) and low <= value <= high
    return math.isfinite(value) and (kind == "double" or abs(value) <= FLOAT_MAX)


def _default_value(value: object, kind: str) -> object:
    if kind == "bytes":
        return cast("str", value).encode("latin-1")
    return float(cast("float", value)) if kind in ("float", "double") else value


def load_file(path: Path, name: str | None = None, version: int = 1) -> RecordSchema:
    """The schema in one file.

    Raises:
        ConfigurationError: unreadable or not as it must be; the text names the file.
    """
    try:
        with path.open("rb") as file:
            text = file.read(limits.SCHEMA_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        return parse(text, name or path.stem, version)
    except ConfigurationError as error:
        raise ConfigurationError(
            "\n".join(f"{path}: {line}" for line in str(error).splitlines())
        ) from error


def versions_in(folder: Path) -> list[Path]:
    """The files v1.avsc, v2.avsc ... of a record, in order.

    Raises:
        ConfigurationError: a version is missing between them, or another file lies there.
    """
    found: dict[int, Path] = {}
    for path in sorted(folder.iterdir()):
        match = _FILE.match(path.name)
        if match is None:
            raise ConfigurationError(f"{path}: only v1.avsc, v2.avsc ... belong here")
        found[int(match.group(1))] = path
    if sorted(found) != list(range(1, len(found) + 1)) or not found:
        raise ConfigurationError(
            f"{folder}: versions must be v1, v2 ... without a gap; found {sorted(found)}"
        )
    return [found[number] for number in sorted(found)]


def load_folder(folder: Path, version: int | None = None) -> RecordSchema:
    """Version ``version`` (default: the newest) of the record in ``folder``, with the older ones.

    Raises:
        ConfigurationError: no such version, or any of them is not as it must be.
    """
    paths = versions_in(folder)
    wanted = len(paths) if version is None else version
    if not 1 <= wanted <= len(paths):
        raise ConfigurationError(
            f"{folder}: there is no version {wanted}; there are v1 to v{len(paths)}"
        )
    schemas = [
        load_file(path, folder.name, number) for number, path in enumerate(paths[:wanted], 1)
    ]
    ids = [schema.schema_id for schema in schemas]
    if len(set(ids)) != len(ids):
        raise ConfigurationError(f"{folder}: two versions have the same schema_id")
    newest = schemas[-1]
    return RecordSchema(
        newest.name,
        newest.version,
        newest.avro,
        newest.fields,
        newest.schema_id,
        tuple(schemas[:-1]),
    )
