"""Reading of Avro's binary encoding: by fastavro, behind ``avro_guard``, from what anyone wrote.

``tuple_reader`` is for the project's own records, whose schemas are known; ``avro_resolution`` for
those of users.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import fastavro

from anabranch.codec import avro_schema
from anabranch.codec.avro_guard import MalformedError, compile_guard
from anabranch.codec.avro_schema import Type, is_tagged, wire

WireRead = Callable[[bytes, int, int], Any]
"""Reader of the value from a position to the end. Rejects more than a given number of array and map
items, and raises MalformedError.
"""


def wire_reader(writer: Type, projected: object = None) -> WireRead:
    """Return a function that reads a value of ``writer`` as ``avro_schema.wire`` describes it.

    ``projected`` is the part of that description that is wanted; None: all of it, which fastavro
    reads twice as fast.
    """
    written = fastavro.parse_schema(wire(writer))
    wanted = None if projected is None else fastavro.parse_schema(projected)
    guard = compile_guard(writer)

    def read(data: bytes, position: int, items_max: int) -> Any:
        guard(data, position, items_max)
        source = io.BytesIO(data)
        source.seek(position)
        try:
            return fastavro.schemaless_reader(source, written, wanted)
        except UnicodeDecodeError as error:
            raise MalformedError(f"a text that is not UTF-8: {error.reason}") from None

    return read


def tuple_reader(avro: object) -> WireRead:
    """Return a function that reads a value of the schema ``avro``: records and arrays as tuples,
    enums as texts.

    Raises:
        ConfigurationError: ``avro`` is no schema.
        ValueError: the schema is recursive, or has maps, unions of several types, or arrays whose
            items take no bytes.
    """
    writer = avro_schema.of_notation(avro)
    read, convert = wire_reader(writer), _converter(writer, ())

    def read_tuples(data: bytes, position: int, items_max: int) -> Any:
        found = read(data, position, items_max)
        return found if convert is None else convert(found)

    return read_tuples


def _converter(of: Type, around: tuple[Type, ...]) -> Callable[[Any], Any] | None:
    """Return the function that converts what fastavro reads to tuples and texts; None if nothing
    has to be converted. ``around``: the records that contain the type.

    ``around`` are the records that contain the type.
    """
    if of in around:
        raise ValueError(f"record {of.name} is part of itself")
    if of.kind == "record":
        converts = [_converter(each, (*around, of)) for each in of.inner]
        if not any(converts):
            return lambda found: tuple(found.values())
        return lambda found: tuple(
            [
                value if convert is None else convert(value)
                for convert, value in zip(converts, found.values(), strict=True)
            ]
        )
    if of.kind == "array":
        if not _has_width(of.inner[0]):
            raise ValueError("an array of items that take no bytes")
        item = _converter(of.inner[0], around)
        return tuple if item is None else lambda found: tuple(map(item, found))
    if of.kind == "enum":
        return of.symbols.__getitem__
    if of.kind == "map" or (of.kind == "union" and is_tagged(of)):
        raise ValueError(f"{of.kind}s such as {of.shown()} are not supported")
    if of.kind == "union":
        convert = next(filter(None, (_converter(each, around) for each in of.inner)), None)
        return convert and (lambda found: None if found is None else convert(found))
    return None


def _has_width(of: Type) -> bool:
    if of.kind == "record":
        return any(map(_has_width, of.inner))
    return of.kind != "null" and (of.kind != "fixed" or of.size > 0)
