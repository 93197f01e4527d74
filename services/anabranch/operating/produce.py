"""``anabranch produce``: send records to a topic of a source, checked against its schema.

After a crash the records that were sent are in the topic, in the order of the lines, and the others
are not. Sending the same lines again repeats their records.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final, Protocol

from anabranch.codec.edge import Decoder
from anabranch.codec.formats import FORMATS, Register
from anabranch.codec.logical_types import TIMESTAMPS, text_of_timestamp, timestamp_of
from anabranch.codec.partitions import partition_of
from anabranch.pipeline.model import Pipeline, Source
from anabranch.ports import EventLog, LogWriter, SchemaRegistry, TopicPartition
from anabranch.protocol.edge.delivery import BEGINNING
from anabranch.protocol.errors import ConfigurationError, Unavailable

_LINES_AT_ONCE: Final = 4_096
_UNITS_PER_S: Final = {"s": 1, "ms": 1_000, "us": 1_000_000}


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
        self._source, self._key = source, key
        self._decode = Decoder(source.record, "json", source.extra_fields).decode
        self._values = FORMATS[source.format].from_json(source.record, register)

    def mistake(self, lines: list[bytes]) -> tuple[int, str] | None:
        """Return the index of the first line that is no record, and why; None: all are records."""
        rejected = self._decode(lines).rejected
        return (
            (rejected[0][0], f"not a record {self._source.record.name}: {rejected[0][1]}")
            if rejected
            else None
        )

    def newest(self, lines: list[bytes]) -> int | None:
        """Return the latest event time of checked lines, in the unit of its field; None: records of
        this source have no event time.
        """
        field = self._source.event_time.field
        return None if field is None else max(self._time(json.loads(line)) for line in lines)

    def _time(self, row: dict[str, Any]) -> int:
        """Return the event time of a row, in the unit of its field; of a timestamp, in us."""
        time = row[self._source.event_time.field or ""]
        return timestamp_of(time, TIMESTAMPS[-1]) if self._source.event_time.is_timestamp else time

    def shown(self, time: int) -> int | str:
        """Return an event time in the form of a row's field: a number, or a timestamp's text."""
        return text_of_timestamp(time) if self._source.event_time.is_timestamp else time

    def now(self, now_ms: int) -> int:
        """Return ``now_ms`` in the unit of the event-time field; of a timestamp, in us."""
        return now_ms * _UNITS_PER_S[self._source.event_time.unit] // 1_000

    def records(self, lines: list[bytes], shift: int = 0) -> Iterator[tuple[bytes | None, bytes]]:
        """Yield key and value of checked lines, with ``shift`` added to their event times."""
        field = self._source.event_time.field
        keys: list[bytes | None] = [None] * len(lines)
        if shift or self._key is not None:
            rows = [json.loads(line) for line in lines]
            if shift and field is not None:
                rows = [row | {field: self.shown(self._time(row) + shift)} for row in rows]
                lines = [_compact(row) for row in rows]
            if self._key is not None:
                keys = [str(row.get(self._key)).encode() for row in rows]
        yield from zip(keys, self._values(lines), strict=True)


def _compact(row: dict[str, Any]) -> bytes:
    """Return a row as JSON without spaces."""
    return json.dumps(row, separators=(",", ":"), ensure_ascii=False).encode()


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
        ConfigurationError: there is none.
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
