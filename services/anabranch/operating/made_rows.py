"""Rows made up from a record's schema, for trying a pipeline out."""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator
from typing import Final

from anabranch.codec.record_schema import Field
from anabranch.pipeline.model import Source

_WORDS: Final = 5
"""Different texts of a field: few, so that keys come together."""
_NULL_SHARE: Final = 0.1


def rows(source: Source, seed: int) -> Iterator[dict[str, object]]:
    """Rows without end, as JSON has them; the field of the event time is left for the caller
    to fill. The same seed gives the same rows.
    """
    chance = random.Random(seed)  # noqa: S311 - nothing is kept secret by them
    fields = [field for field in source.record.fields if field.name != source.event_time.field]
    while True:
        yield {field.name: _value(field, chance) for field in fields}


def _value(field: Field, chance: random.Random) -> object:
    if field.nullable and chance.random() < _NULL_SHARE:
        return None
    match field.kind:
        case "int" | "long":
            return chance.randrange(100)
        case "float" | "double":
            return round(chance.uniform(0, 100), 1)
        case "boolean":
            return chance.random() < 0.5
        case "bytes":
            return base64.b64encode(chance.randbytes(4)).decode("ascii")
    return f"{field.name}-{chance.randrange(_WORDS)}"
