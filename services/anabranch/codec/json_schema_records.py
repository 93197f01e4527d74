"""Users' records as JSON with a JSON Schema of a registry (``json_records``, ``framed_records``).

Values are read by the rules of JSON, exactly as the pipeline's record says; what else a writer's
schema demands was checked by its serializer. The schema tells how times, dates and decimals were
written, which JSON has no types for: Kafka Connect writes them as numbers or base64 and says so in
``title``. Where it says nothing they are texts, or numbers in the unit of the column.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from referencing import Registry, Resource
from referencing.exceptions import NoSuchResource, Unresolvable
from referencing.jsonschema import DRAFT7

from anabranch.codec.field_types import Field
from anabranch.codec.framed_records import FramedDecoder, ReadBodies
from anabranch.codec.framing import SchemaOf
from anabranch.codec.json_records import ExtraFields, JsonDecoder, logical_of
from anabranch.codec.logical_types import (
    INSTANTS,
    UnfitError,
    check_days,
    check_micros,
    decimal_of,
    unscaled_of,
)
from anabranch.codec.record_schema import RecordSchema
from anabranch.codec.writer_schema import SchemaKey, WriterSchema
from anabranch.protocol.errors import ConfigurationError, RejectionReason
from anabranch.protocol.limits import MIB

JSON_SCHEMA_BYTES_MAX: Final = 1 * MIB
"""Maximum size of a writer's JSON schema, in bytes, with the schemas that it refers to."""
_REFERENCES_MAX: Final = 32
"""Maximum length of a chain of references in a schema: a longer chain is a circle."""
_NUMBER_DIGITS_MAX: Final = 15
"""Maximum number of digits of a decimal that is written as a JSON number: readers of JSON hold
numbers in 64 bits, which keep no more digits.
"""
_CONNECT: Final = "org.apache.kafka.connect.data."

Convert = Callable[[object], Any]


class JsonSchemaDecoder(FramedDecoder):
    """Decoder of the records of one source."""

    def __init__(
        self, record: RecordSchema, extra_fields: ExtraFields, schema_of: SchemaOf
    ) -> None:
        self._record, self._extra_fields = record, extra_fields
        super().__init__(record, schema_of, self._use)

    def _use(self, _: SchemaKey, schema: WriterSchema, /) -> ReadBodies:
        converts = _conversions(schema, self._record)

        def logical(field: Field, value: object) -> Any:
            convert = converts.get(id(field))
            return logical_of(field, value) if convert is None else convert(value)

        return JsonDecoder(self._record, self._extra_fields, logical).decode


def _conversions(schema: WriterSchema, record: RecordSchema) -> dict[int, Convert]:
    """Return the converters of those fields of ``record`` that were not written as texts, by the
    identity of the field.

    Raises:
        ConfigurationError: ``schema`` is none, refers to what is not there, or has a field written
            as the record cannot read it.
    """
    if schema.size_bytes > JSON_SCHEMA_BYTES_MAX:
        raise ConfigurationError(f"it is larger than {JSON_SCHEMA_BYTES_MAX} bytes")
    contents: dict[str, Any] = {}
    for part in schema.parts:
        try:
            contents[part.name] = json.loads(part.content)
        except (ValueError, RecursionError) as error:
            named = f"{part.name}, which it refers to," if part.name else "it"
            raise ConfigurationError(f"{named} is not JSON: {error}") from error
    finder = _Finder()
    try:
        top = _top(contents, schema.parts[-1].name)
        finder.look(top, Field(record.name, "record", inner=record.fields), "")
    except (Unresolvable, NoSuchResource) as error:
        raise ConfigurationError(f"it refers to {str(error)[:200]}, which is not there") from error
    except (TypeError, AttributeError, ValueError, KeyError) as error:
        # The library takes for granted that a schema is one: an `$id` is a text, and so on.
        raise ConfigurationError(f"it is not a JSON schema: {str(error)[:200]}") from error
    return finder.found


def _top(contents: dict[str, Any], name: str) -> _Node:
    """Return the root of the schema ``name``. ``contents``: schemas by name."""
    resources = {
        name: Resource.from_contents(each, default_specification=DRAFT7)
        for name, each in contents.items()
    }

    def retrieve(uri: str) -> Any:
        # A reference's name is what stands in `$ref`, which may be relative to the schema's `$id`.
        for known, resource in resources.items():
            if known and (uri == known or uri.endswith(f"/{known}")):
                return resource
        raise NoSuchResource(ref=uri)

    registry: Any = Registry(retrieve=retrieve)
    return _Node(contents[name], registry.resolver_with_root(resources[name]))


class _Node:
    """Place in a JSON schema, with the resolver of references from there."""

    def __init__(self, content: Any, resolver: Any) -> None:
        self.content = content if isinstance(content, dict) else {}
        self.resolver = resolver

    def inner(self, content: Any) -> _Node:
        return _Node(content, self.resolver)

    def followed(self) -> _Node:
        """Return the place to which the references from this place lead."""
        node = self
        for _ in range(_REFERENCES_MAX):
            if not isinstance(node.content.get("$ref"), str):
                return node
            found = node.resolver.lookup(node.content["$ref"])
            node = _Node(found.contents, found.resolver)
        raise ConfigurationError("its references lead in a circle")

    def alternatives(self) -> Iterator[_Node]:
        """Yield the schemas that describe a value at this place: its own, and those of which it is
        composed.
        """
        node = self.followed()
        yield node
        for key in ("oneOf", "anyOf", "allOf"):
            several = node.content.get(key)
            for each in several if isinstance(several, list) else ():
                yield node.inner(each).followed()


class _Finder:
    """Finder of the fields that were not written as texts, and of their converters."""

    def __init__(self) -> None:
        self.found: dict[int, Convert] = {}

    def look(self, node: _Node, field: Field, path: str) -> None:
        """Find the converters for ``field``, which ``node`` describes."""
        several = list(node.alternatives())
        if field.kind in ("record", "map", "array") and not field.size:
            for each in several:
                self._inside(each, field, path)
            return
        for each in several:
            convert = _conversion(each.content, field, path)
            if convert is not None:
                self.found[id(field)] = convert

    def _inside(self, node: _Node, field: Field, path: str) -> None:
        if field.kind == "record":
            known = node.content.get("properties")
            for inner in field.inner:
                if isinstance(known, dict) and inner.json_name in known:
                    self.look(node.inner(known[inner.json_name]), inner, f"{path}{inner.name}.")
            return
        key = "items" if field.kind == "array" else "additionalProperties"
        if isinstance(node.content.get(key), dict):
            self.look(node.inner(node.content[key]), field.inner[0], f"{path}[].")


def _conversion(content: dict[str, Any], field: Field, path: str) -> Convert | None:
    """Return the converter of ``field`` from the form that the schema ``content`` describes; None
    if it was written as a text, or JSON has its type.
    """
    kinds = content.get("type")
    kinds = set(kinds) if isinstance(kinds, list) else {kinds}
    title, numbers = content.get("title"), {"integer", "number"}
    if field.kind in INSTANTS and kinds & numbers:
        is_millis = title == f"{_CONNECT}Timestamp" or field.kind.endswith("millis")
        return partial(_instant, 1_000 if is_millis else 1)
    if field.kind == "date" and kinds & numbers:
        return _date
    if field.kind != "decimal":
        return None
    if kinds & numbers:
        if field.precision > _NUMBER_DIGITS_MAX:
            raise ConfigurationError(
                f"field {path.rstrip('.')} was written as a number, which holds"
                f" {_NUMBER_DIGITS_MAX} digits; the record has {field.precision}"
            )
        return partial(_number, field)
    if title == f"{_CONNECT}Decimal" and "string" in kinds:
        parameters = content.get("connect.parameters")
        scale = parameters.get("scale") if isinstance(parameters, dict) else None
        if str(scale) != str(field.scale):
            raise ConfigurationError(
                f"field {path.rstrip('.')} is a decimal of {scale} digits after the point, not"
                f" {field.scale}"
            )
        return partial(_base64, field)
    return None


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise UnfitError(RejectionReason.WRONG_TYPE, "expected a whole number")
    return value


def _instant(factor: int, value: object) -> int:
    return check_micros(_whole(value) * factor)


def _date(value: object) -> int:
    return check_days(_whole(value))


def _number(field: Field, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UnfitError(RejectionReason.WRONG_TYPE, "expected a number")
    return decimal_of(repr(value), field.precision, field.scale)


def _base64(field: Field, value: object) -> int:
    try:
        data = base64.b64decode(str(value), validate=True)
    except ValueError:
        raise UnfitError(RejectionReason.WRONG_TYPE, "expected a decimal in base64") from None
    return unscaled_of(data, field.precision, field.scale)
