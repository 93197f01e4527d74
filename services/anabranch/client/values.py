"""Decoding of output records into Python values."""

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

# Header of an Avro value in Confluent's framing: a zero byte and the schema's id.
_CONFLUENT_BYTES: Final = 5


@dataclass(frozen=True, slots=True)
class Row(Generic[T]):
    """One result of a pipeline."""

    id: str
    """Id of the result, unique among those of its ``origin``: ``bucket.position``. The id of a
    tentative result is followed by ``/`` and the numbers of its failure and branch.
    """
    event_time: datetime
    key: Any
    """Columns of the key as a dict; None: the output has no key."""
    value: T
    stable: bool = True
    """Whether the result is final. If not, it is tentative, and may be undone."""
    missing: tuple[str, ...] = ()
    """Sources that were missing when the result was computed."""
    origin: str = ""
    """Producer of the result: ``pipeline.output.life``. It changes when the pipeline begins anew on
    the same topic; ids of different origins are unrelated.
    """
    shed: int = 0
    """Per mille of the rows of its input that a tentative result was computed without, because a
    stage was overloaded and left them out: 0 to 1000.
    """


class Values(Generic[T]):
    """Decoder of the values of one topic."""

    def __init__(self, of: type[T], schema: Mapping[str, Any] | Path | str | None) -> None:
        """Decode into ``of``, a type that pydantic knows.

        ``schema`` is the Avro schema, as a value or the path of a file; None: values are JSON.

        Raises:
            ConfigurationError: the schema cannot be read, or ``of`` is not such a type.
        """
        try:
            self._adapter: TypeAdapter[T] = TypeAdapter(of)
        except Exception as error:  # pydantic raises many kinds, which have no common base
            raise ConfigurationError(
                f"of={of!r} is not a type for values: {error}. Give a dict, a dataclass or a"
                " pydantic model"
            ) from error
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
        """Return the value of a record.

        Raises:
            RemoteProtocolError: the value does not fit the type or the schema.
        """
        try:
            if self._avro is None:
                return self._adapter.validate_json(value)
            return self._adapter.validate_python(_avro_in(value, self._avro))
        except ValidationError as error:
            where = "; ".join(
                f"{'.'.join(map(str, each['loc']))}: {each['msg']}"
                for each in error.errors(include_input=False)[:3]
            )
            raise RemoteProtocolError(f"a value is not of the requested type: {where}") from error
        # ArithmeticError: a time that Python's calendar does not have, or a decimal.
        except (EOFError, ValueError, IndexError, KeyError, TypeError, ArithmeticError) as error:
            raise RemoteProtocolError(
                f"a value does not fit the Avro schema, which must be the one that it was written"
                f" with: {error!r}"
            ) from error


def _avro_in(value: bytes, schema: Any) -> Any:
    """Return the content of an Avro value in Confluent's framing.

    Raises:
        ValueError: the value is not framed so, or longer than ``schema`` says: another schema wrote
            it.
        EOFError, IndexError, KeyError, TypeError, ArithmeticError: the value does not fit.
    """
    if value[:1] != b"\0":
        raise ValueError("no schema id in front of it")
    body = io.BytesIO(value[_CONFLUENT_BYTES:])
    content = fastavro.schemaless_reader(body, schema, None)
    if rest := len(body.read()):
        raise ValueError(f"{rest} bytes are left over")
    return content


def key_of(key: bytes | None) -> Any:
    """Return the columns of a record's key; the bytes themselves where they are not JSON."""
    if key is None:
        return None
    try:
        return json.loads(key)
    except (ValueError, RecursionError):
        return key


def time_of(milliseconds: int) -> datetime:
    """Return the time in UTC that is ``milliseconds`` after 1970 began.

    Raises:
        RemoteProtocolError: the time is outside of the calendar.
    """
    try:
        return datetime.fromtimestamp(milliseconds / 1_000, UTC)
    except (OverflowError, ValueError, OSError) as error:
        raise RemoteProtocolError(f"{milliseconds} ms is not a time: {error}") from error
