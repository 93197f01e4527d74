"""Showing an output, or the records that were rejected, as the topic grows."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from anabranch.pipeline.model import Pipeline, Sink
from anabranch.ports import Chunk, EventLog, TopicPartition
from anabranch.protocol.errors import ConfigurationError

_RECORDS_AT_ONCE: Final = 1_000
_WAIT_MS: Final = 200


@dataclass(frozen=True, slots=True)
class Shown:
    """One record of an output, or a dead letter, as text. What stands in headers is empty where
    it has none.
    """

    partition: int
    offset: int
    id: str
    event_time_ms: str
    key: str
    value: str
    kind: str = ""
    missing: str = ""
    reason: str = ""
    """Why it was rejected."""
    error: str = ""
    origin: str = ""
    """Where the record that was rejected stands."""
    truncated: str = ""
    """Size of the original in bytes, of a dead letter that was cut."""
    producer: str = ""
    """Output and life that wrote it, of a result."""

    @property
    def repeated(self) -> bool:
        """Whether another partition has the same record, too, or it only says that time goes on:
        nothing for people.
        """
        return self.kind == "boundary" or (
            self.kind in ("undo", "rec_done") and self.value.startswith("{") and self.partition > 0
        )

    def line(self, *, with_id: bool, live: bool) -> str:
        """As it is printed, with tabs between its parts."""
        words = [self.kind] if live else []
        words += [self.id, self.event_time_ms, self.key] if with_id else []
        words.append(self.value or (f"deleted: {self.key}" if live else ""))
        if live and self.missing:
            words.append(f"missing: {self.missing}")
        return "\t".join(words)

    def rejected_line(self, *, with_id: bool) -> str:
        """As a dead letter is printed, with tabs between its parts."""
        words = [self.reason, self.origin]
        words += [self.id, self.event_time_ms, self.key] if with_id else []
        words.append(self.value)
        if self.truncated:
            words.append(f"cut from {self.truncated} bytes")
        if self.error:
            words.append(self.error)
        return "\t".join(words)


def rejected_topic_of(pipeline: Pipeline, name: str) -> str:
    """Where the rejected records of a source, or the rejected results of an output, are.

    Raises:
        ConfigurationError: no such source or output.
    """
    if (source := pipeline.sources.get(name)) is not None:
        return source.dead_letter
    if (output := pipeline.outputs.get(name)) is not None:
        return output.rejected
    raise ConfigurationError(
        f"{pipeline.path}: no source or output {name!r}; there are:"
        f" {', '.join([*pipeline.sources, *pipeline.outputs])}"
    )


def sink_of(pipeline: Pipeline, output: str, *, live: bool) -> Sink:
    """The topic of ``output`` to look at.

    Raises:
        ConfigurationError: no such output, or it has no live topic.
    """
    found = pipeline.outputs.get(output)
    if found is None:
        raise ConfigurationError(
            f"{pipeline.path}: no output {output!r}; there are: {', '.join(pipeline.outputs)}"
        )
    if not live:
        return found.corrected
    if found.live is None:
        raise ConfigurationError(
            f"{pipeline.path}: output {output} has no live topic; add `live: {{topic:"
            f" {found.corrected.topic}.live}}`"
        )
    return found.live


def follow(
    log: EventLog, topic: str, stopping: threading.Event, *, from_beginning: bool
) -> Iterator[Shown]:
    """Committed records of ``topic`` as they come, until ``stopping`` is set.

    Raises:
        ConfigurationError: the topic does not exist.
        AdapterError: the broker does not answer, or the log was cut below where it is read.
    """
    admin, reader = log.admin(), log.reader(committed=True, headers=True, follows=True)
    try:
        partitions = admin.partitions([topic]).get(topic)
        if partitions is None:
            raise ConfigurationError(
                f"topic {topic} does not exist on this broker; has `anabranch up` made it?"
            )
        places = [TopicPartition(topic, number) for number in range(partitions)]
        reader.assign(
            {place: reader.offsets(place)[0 if from_beginning else 1] for place in places}
        )
        while not stopping.is_set():
            for chunk in reader.fetch(_RECORDS_AT_ONCE, _WAIT_MS):
                yield from _records(chunk)
    finally:
        admin.close()
        reader.close()


def _records(chunk: Chunk) -> Iterator[Shown]:
    for offset, key, value, headers in zip(
        chunk.offsets, chunk.keys, chunk.values, chunk.headers, strict=True
    ):
        named = dict(headers)
        yield Shown(
            chunk.at.partition,
            offset,
            _text(named.get("anabranch-id")),
            _text(named.get("anabranch-event-time")),
            _text(key),
            _text(value),
            _text(named.get("anabranch-kind")),
            _text(named.get("anabranch-missing")),
            _text(named.get("anabranch-reason")),
            _text(named.get("anabranch-error")),
            _origin(named),
            _text(named.get("anabranch-truncated")),
            _text(named.get("anabranch-origin")),
        )


def _origin(headers: dict[str, bytes | None]) -> str:
    """Results have no place: they never were in the topic that rejected them."""
    topic = _text(headers.get("anabranch-topic"))
    partition = _text(headers.get("anabranch-partition"))
    return (
        f"{topic}[{partition}] offset {_text(headers.get('anabranch-offset'))}"
        if partition
        else topic
    )


def _text(content: bytes | None) -> str:
    """UTF-8 as it is, anything else (Avro) as base64; no control characters, which could take
    over a terminal.
    """
    if content is None:
        return ""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return base64.b64encode(content).decode("ascii")
    return text if text.isprintable() else base64.b64encode(content).decode("ascii")
