"""Records of output topics as values of Python."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Generic, TypeVar, cast

import fastavro
from pydantic import TypeAdapter, ValidationError

from anabranch.protocol.errors import ConfigurationError, RemoteProtocolError

T = TypeVar("T")

_CONFLUENT_BYTES: Final = 5


@dataclass(frozen=True, slots=True)
class Row(Generic[T]):
    """One result."""

    id: str
    """Names it among the results of its ``origin``: ``bucket.position``; of a tentative one with
    what follows ``/`` it names no other.
    """
    event_time: datetime
    key: Any
    """The columns of the key as a dict; None: the output has no key."""
    value: T
    stable: bool = True
    """False: tentative, it may be taken back."""
    missing: tuple[str, ...] = ()
    """Sources without which it was made."""
    origin: str = ""
    """Producer that wrote it: ``pipeline.output.life``. It changes when the pipeline begins anew on
    the same topic: ids of different origins have nothing to do with each other.
    """


class Values(Generic[T]):
    """Decodes the values of one topic."""

    def __init__(self, of: type[T], schema: Mapping[str, Any] | Path | str | None) -> None:
        """``of``: what becomes of the columns; ``schema``: of Avro, as a value or a file.

        Raises:
            ConfigurationError: the schema cannot be read, or there are no values of that type.
        """
        try:
            self._adapter: TypeAdapter[T] = TypeAdapter(of)
        except Exception as error:  # pydantic has many
            raise ConfigurationError(f"{of!r} is no type that a value can have: {error}") from error
        self._avro: Any = None
        if schema is not None:
            try:
                text = (
                    schema
                    if isinstance(schema, Mapping)
                    else json.loads(Path(schema).read_text(encoding="utf-8"))
                )
                self._avro = fastavro.parse_schema(cast("Any", text))
            except (OSError, ValueError, fastavro.schema.SchemaParseException) as error:
                raise ConfigurationError(
                    f"schema {'' if isinstance(schema, Mapping) else schema}: {error}"
                ) from error

    def decode(self, value: bytes) -> T:
        """The value of a record.

        Raises:
            RemoteProtocolError: it is none of the type.
        """
        try:
            if self._avro is None:
                return self._adapter.validate_json(value)
            body = io.BytesIO(value[_CONFLUENT_BYTES:])
            return self._adapter.validate_python(fastavro.schemaless_reader(body, self._avro, None))
        except ValidationError as error:
            where = "; ".join(
                f"{'.'.join(map(str, each['loc']))}: {each['msg']}"
                for each in error.errors(include_input=False)[:3]
            )
            raise RemoteProtocolError(f"a value is not of the requested type: {where}") from error
        except (EOFError, ValueError, IndexError, KeyError, TypeError) as error:
            raise RemoteProtocolError(f"a value does not fit the Avro schema: {error!r}") from error


def key_of(key: bytes | None) -> Any:
    """The key's columns; bytes where they are no JSON."""
    if key is None:
        return None
    try:
        return json.loads(key)
    except ValueError:
        return key


def time_of(milliseconds: int) -> datetime:
    """Return the time in UTC.

    Raises:
        RemoteProtocolError: no calendar has it.
    """
    try:
        return datetime.fromtimestamp(milliseconds / 1_000, UTC)
    except (OverflowError, ValueError, OSError) as error:
        raise RemoteProtocolError(f"{milliseconds} ms is not a time: {error}") from error
