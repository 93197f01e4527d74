"""``anabranch produce``: send records to a topic of a source, checked against its schema.

After a crash the records that were sent are in the topic, in the order of the lines, and the others
are not. Sending the same lines again repeats their records.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

import pyarrow as pa

from anabranch.codec.change_events import ChangeDecoder
from anabranch.codec.edge import Decoded, Decoder
from anabranch.codec.field_types import Field
from anabranch.codec.formats import FORMATS
from anabranch.codec.framing import Register
from anabranch.codec.iso_times import milliseconds
from anabranch.codec.logical_types import (
    TIMESTAMPS,
    UnfitError,
    text_of_timestamp,
    timestamp_of,
    zone_of,
)
from anabranch.codec.partitions import partition_of
from anabranch.pipeline.model import Pipeline, Source
from anabranch.ports import EventLog, LogWriter, SchemaRegistry, TopicPartition
from anabranch.protocol.edge.delivery import BEGINNING
from anabranch.protocol.errors import ConfigurationError, Unavailable

_LINES_AT_ONCE: Final = 4_096
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS_PER_S: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


class Input(Protocol):
    """Stream of bytes, such as the buffer of standard input."""

    def read1(self, size: int, /) -> bytes:
        """Wait for bytes, and return at most ``size`` of them; none: the stream has ended."""


class Lines:
    """Conversion of JSON lines to the records, key and value, of one source."""

    def __init__(
        self, source: Source, key: str | None = None, register: Register | None = None
    ) -> None:
        """Prepare the conversion, and register the schema if the format needs that.

        Args:
            source: The source whose records are made.
            key: Field whose text becomes the record's key; None: records have no key.
            register: Function that registers a schema; None: the pipeline has no registry.

        Raises:
            ConfigurationError: the record has no field ``key``, or ``register`` failed.
        """
        if key is not None and source.record.field(key) is None:
            known = ", ".join(field.name for field in source.record.fields)
            raise ConfigurationError(
                f"--key {key}: record {source.record.name} has no such field; it has {known}"
            )
        self._source, self._rule = source, source.event_time
        key_field = None if key is None else source.record.field(key)
        self._key = None if key_field is None else key_field.json_name
        self._path = _json_path(source.values.fields, source.event_time.field)
        self._decode: Callable[[Sequence[bytes]], Decoded] = (
            Decoder(source.record, "json", source.extra_fields).decode
            if source.cdc is None
            else ChangeDecoder(source.record, "json").decode
        )
        self._values = FORMATS[source.format].from_json(source.record, register)

    def mistake(self, lines: list[bytes]) -> tuple[int, str] | None:
        """Return the index of the first line that is no record, and why; None: all are records."""
        rejected = self._decode(lines).rejected
        return (
            (rejected[0][0], f"not a record {self._source.record.name}: {rejected[0][1]}")
            if rejected
            else None
        )

    def newest(self, lines: list[bytes]) -> int | float | None:
        """Return the latest event time of checked lines, in the unit of its field; None: records of
        this source have no event time.
        """
        times = [self._time(json.loads(line)) for line in lines] if self._path else []
        return max((time for time in times if time is not None), default=None)

    def _time(self, row: dict[str, Any]) -> Any:
        """Return the event time of a row, in the unit of its field; of a text, in us; None: it has
        none.
        """
        value: Any = row
        for name in self._path:
            value = value.get(name) if isinstance(value, dict) else None
        if not self._rule.is_text or value is None:
            return value
        try:
            return timestamp_of(value, TIMESTAMPS[-1])
        except UnfitError:  # no zone, or more digits than that type has
            zone = None if self._rule.zone is None else zone_of(self._rule.zone)
            time_ms = milliseconds(pa.array([value], pa.string()), zone)[0].as_py()
            return None if time_ms is None else time_ms * 1_000

    def _shown(self, time: Any) -> Any:
        """Return an event time in the form of a row's field: a number, or a text."""
        if not self._rule.is_text:
            return time
        if self._rule.zone is None:
            return text_of_timestamp(time)
        found = (_EPOCH + timedelta(microseconds=time)).astimezone(zone_of(self._rule.zone))
        return found.replace(tzinfo=None).isoformat(timespec="milliseconds")

    def now(self, now_ms: int) -> int:
        """Return ``now_ms`` in the unit of the event-time field; of a text, in us."""
        return now_ms * _UNITS_PER_S[self._rule.unit] // 1_000

    def timed(self, row: dict[str, Any], time: float) -> dict[str, Any]:
        """Return ``row`` with this event time, in the unit of its field; unchanged if the field is
        in a record that the row does not have.
        """
        return _with(row, self._path, self._shown(time)) if self._path else row

    def records(self, lines: list[bytes], shift: float = 0) -> Iterator[tuple[bytes | None, bytes]]:
        """Yield key and value of checked lines, with ``shift`` added to their event times."""
        keys: list[bytes | None] = [None] * len(lines)
        if shift or self._key is not None:
            rows = [json.loads(line) for line in lines]
            if shift and self._path:
                times = [self._time(row) for row in rows]
                rows = [
                    row if time is None else self.timed(row, time + shift)
                    for row, time in zip(rows, times, strict=True)
                ]
                lines = [_compact(row) for row in rows]
            if self._key is not None:
                keys = [_key_of(row.get(self._key)) for row in rows]
        yield from zip(keys, self._values(lines), strict=True)


def _json_path(fields: Sequence[Field], path: str | None) -> list[str]:
    """Return the names in JSON of a column, or part of one; none: it is not in the value."""
    found = list[str]()
    for name in path.split(".") if path is not None else []:
        field = next((each for each in fields if each.name == name), None)
        if field is None:
            return []
        found.append(field.json_name)
        fields = field.inner
    return found


def _with(row: Any, path: Sequence[str], value: object) -> Any:
    """Return ``row`` with ``value`` at ``path``; unchanged if there is no record to hold it."""
    if not isinstance(row, dict):
        return row
    name, *rest = path
    return row | {name: _with(row.get(name), rest, value) if rest else value}


def _key_of(value: object) -> bytes | None:
    """Return the key of a record whose key field is ``value``: a text as it is, anything else as
    JSON; null gives no key.
    """
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else _compact(value)


def _compact(value: object) -> bytes:
    """Return ``value`` as JSON without spaces."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def registering(registry: SchemaRegistry, source: Source, topic: str | None) -> Register:
    """Return a function that registers the schema of a topic's records, unless it is registered.

    ``topic`` is one of the source's; None: its first. The function raises ``ConfigurationError`` if
    the registry rejects the schema or does not answer.
    """

    def register(schema: str) -> int:
        try:
            return registry.register(f"{topic or source.topics[0]}-value", schema)
        except Unavailable as error:
            raise ConfigurationError(
                f"{error}. Nothing was sent: start the registry, or correct `schema_registry` in"
                " the pipeline file"
            ) from error

    return register


class Target:
    """Producer for one topic of a source. The caller closes it."""

    def __init__(self, log: EventLog, pipeline: Pipeline, source: str, topic: str | None) -> None:
        """Open a producer for ``topic`` of ``source``; None: for the source's first topic.

        Raises:
            ConfigurationError: the pipeline has no such source, or the source no such topic, or the
                topic does not exist.
            Unavailable: the broker does not answer.
        """
        self.source = source_of(pipeline, source)
        self.topic = topic or self.source.topics[0]
        if self.topic not in self.source.topics:
            raise ConfigurationError(
                f"--topic {topic}: source {source} reads {', '.join(self.source.topics)}"
            )
        admin = log.admin()
        try:
            found = admin.partitions([self.topic]).get(self.topic)
        finally:
            admin.close()
        if found is None:
            raise ConfigurationError(
                f"topic {self.topic} does not exist on this broker: `anabranch up` makes it on a"
                " broker of its own, `anabranch topics --create` on another"
            )
        self._partitions, self._next = found, 0
        self._writer: LogWriter = log.writer()

    def send(self, records: Iterable[tuple[bytes | None, bytes]]) -> int:
        """Send the records, wait until they are in the topic, and return their number.

        Records without a key go to the partitions in turn.

        Raises:
            AdapterError: some records may not be in the topic.
        """
        for key, value in records:
            partition = (
                self._next % self._partitions
                if key is None
                else partition_of(key, BEGINNING, self._partitions)
            )
            self._next += 1
            self._writer.send(TopicPartition(self.topic, partition), value, key)
        return len(self._writer.flush())

    def close(self) -> None:
        """Close the producer. Idempotent."""
        self._writer.close()


def source_of(pipeline: Pipeline, name: str) -> Source:
    """Return the source ``name`` of ``pipeline``.

    Raises:
        ConfigurationError: the pipeline has no such source.
    """
    if name not in pipeline.sources:
        raise ConfigurationError(
            f"{pipeline.path}: no source {name!r}; there are: {', '.join(pipeline.sources)}"
        )
    return pipeline.sources[name]


def read_lines(file: Input) -> Iterator[tuple[int, list[bytes]]]:
    """Yield (number of the first line, lines) as soon as whole lines arrive, until the file ends.

    Empty lines are left out, but counted, so that numbers in messages are those of the file.
    """
    number, rest = 1, b""
    while True:
        piece = file.read1(1 << 20)  # `read1`: a pipe's lines are sent without waiting for more
        *whole, rest = (rest + piece).split(b"\n") if piece else [rest, b""]
        for start in range(0, len(whole), _LINES_AT_ONCE):
            yield from _runs(number + start, whole[start : start + _LINES_AT_ONCE])
        number += len(whole)
        if not piece:
            return


def _runs(number: int, lines: list[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """Yield (number of the first line, lines) for each run of lines that are not empty."""
    run: list[bytes] = []
    for line in lines:
        number += 1
        if stripped := line.strip():
            run.append(stripped)
        elif run:
            yield number - 1 - len(run), run
            run = []
    if run:
        yield number - len(run), run
