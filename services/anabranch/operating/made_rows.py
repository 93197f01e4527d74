"""Random rows that fit a record's schema, for ``anabranch produce --generate``."""

from __future__ import annotations

import base64
import random
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from anabranch.codec.field_types import Field
from anabranch.codec.logical_types import text_of_timestamp
from anabranch.pipeline.model import Source
from anabranch.protocol.errors import ConfigurationError

# Distinct texts of a field, and most items of an array. Few, so that several rows share a key.
_WORDS: Final = 5
# Beginning of 2026. Constant, so that the same seed gives the same times.
_SOME_TIME_S: Final = 1_767_225_600
# Share of nulls in a nullable field.
_NULL_SHARE: Final = 0.1


def rows(source: Source, seed: int) -> Iterator[dict[str, object]]:
    """Yield rows of JSON values without end. The same seed gives the same rows.

    The rows lack the field of the event time, which the caller adds.

    Raises:
        ConfigurationError: the source's records are change events.
    """
    if source.cdc is not None:
        raise ConfigurationError(
            f"source {source.name}: change events of {source.cdc} cannot be generated: send some"
            " of a file"
        )
    chance = random.Random(seed)  # noqa: S311 - sample values need not be unpredictable
    fields = [field for field in source.record.fields if field.name != source.event_time.field]
    while True:
        yield {field.json_name: _value(field, chance) for field in fields}


def _value(field: Field, chance: random.Random) -> object:
    """Return a random JSON value of any kind that ``field`` may have."""
    if field.nullable and chance.random() < _NULL_SHARE:
        return None
    if field.kind == "array":
        return [_value(field.inner[0], chance) for _ in range(chance.randrange(_WORDS))]
    if field.kind == "map":
        names = (f"key-{number}" for number in range(chance.randrange(_WORDS)))
        return {name: _value(field.inner[0], chance) for name in names}
    if field.is_union:
        chosen = chance.choice(field.inner)
        return {chosen.name: _value(replace(chosen, nullable=False), chance)}
    if field.kind == "record":
        return {inner.json_name: _value(inner, chance) for inner in field.inner}
    return _plain(field, chance)


def _plain(field: Field, chance: random.Random) -> object:
    """Return a random value of a field that holds no other fields."""
    match field.kind:
        case "int" | "long":
            return chance.randrange(100)
        case "float" | "double":
            return round(chance.uniform(0, 100), 1)
        case "boolean":
            return chance.random() < 0.5
        case "bytes":
            return base64.b64encode(chance.randbytes(field.size or 4)).decode("ascii")
    return _logical(field, chance)


def _logical(field: Field, chance: random.Random) -> str:
    """Return a random value that JSON has as a string: a time, a decimal, a UUID, a text."""
    match field.kind:
        case "timestamp-millis" | "timestamp-micros":
            return text_of_timestamp(_SOME_TIME_S * 1_000_000 + chance.randrange(10**9) * 1_000)
        case "local-timestamp-millis" | "local-timestamp-micros":
            micros = _SOME_TIME_S * 1_000_000 + chance.randrange(10**9) * 1_000
            return text_of_timestamp(micros).removesuffix("Z")
        case "date":
            return text_of_timestamp((_SOME_TIME_S + chance.randrange(10**7)) * 1_000_000)[:10]
        case "decimal":
            unscaled = chance.randrange(10 ** min(field.precision, _WORDS))
            return f"{unscaled}e-{field.scale}"
        case "uuid":
            return str(uuid.UUID(int=chance.getrandbits(128), version=4))
    if field.symbols:
        return chance.choice(field.symbols)
    return f"{field.name}-{chance.randrange(_WORDS)}"
