"""Schema of a user's record: an Avro record of ``field_types``, whatever the format of the topic.

Two attributes mean something here that Avro itself ignores. ``schema_id`` (integer) of the record
is the id of this version in Confluent framing. Without it the id is the version number, which is
right if no registry assigns ids. ``alias`` (text) of a field, at any depth, is the field's name in
JSON. Attributes of other programs, such as ``connect.name``, are ignored.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from anabranch.codec.field_types import NAME, Field, FieldParser, full_name, unknown_keys
from anabranch.protocol import limits
from anabranch.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    import pyarrow as pa

_FILE = re.compile(r"v([1-9][0-9]{0,5})\.avsc\Z")
_RECORD_KEYS = {"type", "name", "namespace", "doc", "fields", "aliases", "schema_id"}


@dataclass(frozen=True, slots=True)
class RecordSchema:
    """Version of a record's schema. ``avro`` is the parsed text; ``older`` holds the earlier
    versions, which Avro topics may still contain.
    """

    name: str
    version: int
    avro: dict[str, Any]
    fields: tuple[Field, ...]
    schema_id: int
    older: tuple[RecordSchema, ...] = ()

    def arrow_schema(self) -> pa.Schema:
        """Return the columns, in order; without event time."""
        import pyarrow as pa

        return pa.schema([field.arrow for field in self.fields])

    def field(self, name: str) -> Field | None:
        """Return the field of that name."""
        return next((field for field in self.fields if field.name == name), None)


def parse(text: str | bytes, name: str, version: int = 1) -> RecordSchema:
    """Parse the schema in ``text``, and reject it unless anabranch can carry every field.

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
    """Return the schema that ``parse`` returns, from the JSON value."""
    if (
        not isinstance(avro, dict)
        or avro.get("type") != "record"
        or not isinstance(avro.get("fields"), list)
    ):
        raise ConfigurationError(
            f'record {name}: the schema must be {{"type": "record", "name": ..., "fields": [...]}}'
        )
    mistakes: list[str] = []
    if not isinstance(avro.get("name"), str) or not NAME.match(avro["name"]):
        mistakes.append(f"its name {avro.get('name')!r} is not a name that Avro allows")
    if unknown := unknown_keys(avro, _RECORD_KEYS):
        mistakes.append(f"unknown key {unknown[0]!r}")
    schema_id = avro.get("schema_id", version)
    if isinstance(schema_id, bool) or not isinstance(schema_id, int) or not 0 <= schema_id < 2**32:
        mistakes.append(f"schema_id {schema_id!r} is not an integer from 0 to 4294967295")
        schema_id = version
    if not avro["fields"]:
        mistakes.append("it has no fields")
    full = full_name(avro, "") if isinstance(avro.get("name"), str) else ""
    parser = FieldParser(mistakes, full)
    fields = parser.fields(avro["fields"], full.rpartition(".")[0])
    if parser.count > limits.RECORD_FIELDS_MAX:
        mistakes.append(
            f"it has more than {limits.RECORD_FIELDS_MAX} fields, those of records in it and the"
            " items of arrays and maps included"
        )
    if mistakes:
        raise ConfigurationError("\n".join(f"record {name}: {mistake}" for mistake in mistakes))
    return RecordSchema(name, version, cast("dict[str, Any]", avro), tuple(fields), schema_id)


def load_file(path: Path, name: str | None = None, version: int = 1) -> RecordSchema:
    """Load the schema in one file.

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
    """Return the files v1.avsc, v2.avsc ... of a record, in order.

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
    """Load version ``version`` (None: the newest) of the record in ``folder``, with the older
    versions.

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
        raise ConfigurationError(
            f"{folder}: two versions have the same schema_id; give each its own"
        )
    newest = schemas[-1]
    return RecordSchema(
        newest.name,
        newest.version,
        newest.avro,
        newest.fields,
        newest.schema_id,
        tuple(schemas[:-1]),
    )
