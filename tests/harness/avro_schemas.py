"""Schemas in Avro's notation, stated in few words."""

from __future__ import annotations

import json
from typing import Any

Avro = dict[str, Any]


def record_of(*fields: Avro, name: str = "r", **more: Any) -> Avro:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, kind: Any, **more: Any) -> Avro:
    return {"name": name, "type": kind, **more}


def array_of(items: Any) -> Avro:
    return {"type": "array", "items": items}


def map_of(values: Any) -> Avro:
    return {"type": "map", "values": values}


def enum_of(name: str, *symbols: str, **more: Any) -> Avro:
    return {"type": "enum", "name": name, "symbols": list(symbols), **more}


def fixed_of(name: str, size: int, **more: Any) -> Avro:
    return {"type": "fixed", "name": name, "size": size, **more}


def logical(kind: str, plain: str = "long", **more: Any) -> Avro:
    return {"type": plain, "logicalType": kind, **more}


def decimal_of(precision: int, scale: int, plain: str = "bytes", **more: Any) -> Avro:
    return logical("decimal", plain, precision=precision, scale=scale, **more)


def of(kind: object, **more: object) -> Avro:
    """Return a field ``a``, unless ``more`` names it, of a type."""
    return {"name": "a", "type": kind, **more}


def struct(*fields: Any, name: Any = "x") -> Avro:
    """Return a record to nest in another one."""
    return record_of(*fields, name=name)


def deep(levels: int, kind: object = "int") -> object:
    """Return arrays of arrays, ``levels`` deep, of a type."""
    return kind if levels == 0 else array_of(deep(levels - 1, kind))


def text(*fields: Any, **more: Any) -> str:
    """Return the text of a record's schema."""
    return json.dumps(record_of(*fields, **more))
