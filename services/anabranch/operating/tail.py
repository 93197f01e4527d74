"""``anabranch tail``: the records of an output, or rejected records, as their topic grows."""

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
"""Timeout of a fetch, in ms. Short, so that a stop signal is seen soon."""


@dataclass(frozen=True, slots=True)
class Shown:
    """One record of an output, or one dead letter, as text. A field is empty where the record lacks
    its header.
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
    """Code of the reason for which a record was rejected."""
    error: str = ""
    """Text of the error for which a record was rejected."""
    origin: str = ""
    """Topic, partition and offset of the rejected record."""
    truncated: str = ""
    """Size of the rejected record in bytes, where the dead letter holds only its beginning."""
    producer: str = ""
    """Output, and life of the output, that wrote a result."""
    shed: str = ""
    """Per mille of its input's rows that a tentative result was made without."""

    @property
    def repeated(self) -> bool:
        """Whether the record tells a reader nothing: a boundary, or a control record that partition
        0 has too.
        """
        return self.kind == "boundary" or (
            self.kind in ("undo", "rec_done") and self.value.startswith("{") and self.partition > 0
        )

    def line(self, *, with_id: bool, live: bool) -> str:
        """Return the line that shows a result, with tabs between its parts."""
        words = [self.kind] if live else []
        words += [self.id, self.event_time_ms, self.key] if with_id else []
        words.append(self.value or (f"deleted: {self.key}" if live else ""))
        if live and self.missing:
            words.append(f"missing: {self.missing}")
        if live and self.shed:
            words.append(f"shed: {self.shed} per mille")
        return "\t".join(words)

    def rejected_line(self, *, with_id: bool) -> str:
        """Return the line that shows a dead letter, with tabs between its parts."""
        words = [self.reason, self.origin]
        words += [self.id, self.event_time_ms, self.key] if with_id else []
        words.append(self.value)
        if self.truncated:
            words.append(f"cut from {self.truncated} bytes")
        if self.error:
            words.append(self.error)
        return "\t".join(words)


def rejected_topic_of(pipeline: Pipeline, name: str) -> str:
    """Return the topic of the rejected records of source ``name``, or of the rejected results of
    output ``name``.

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
    """Return the corrected sink of ``output``, or its live one.

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
    """Yield the committed records of ``topic`` as they arrive, until ``stopping`` is set.

    Raises:
        ConfigurationError: the topic does not exist.
        DataMissing: the records to be read next were deleted.
        AdapterError: the broker does not answer, or rejects the request.
    """
    admin, reader = log.admin(), log.reader(committed=True, headers=True, follows=True)
    try:
        partitions = admin.partitions([topic]).get(topic)
        if partitions is None:
            raise ConfigurationError(
                f"topic {topic} does not exist on this broker: `anabranch up` creates it; name"
                " another broker with --kafka"
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
            _text(named.get("anabranch-shed")),
        )


def _origin(headers: dict[str, bytes | None]) -> str:
    """Return the place of a rejected record, as text; of a rejected result, its topic alone.

    A rejected result has no partition or offset: it was never written to its output topic.
    """
    topic = _text(headers.get("anabranch-topic"))
    partition = _text(headers.get("anabranch-partition"))
    return (
        f"{topic}[{partition}] offset {_text(headers.get('anabranch-offset'))}"
        if partition
        else topic
    )


def _text(content: bytes | None) -> str:
    """Return printable UTF-8 as it is, and anything else, such as Avro, as base64.

    Control characters are never printed: they could take over a terminal.
    """
    if content is None:
        return ""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return base64.b64encode(content).decode("ascii")
    return text if text.isprintable() else base64.b64encode(content).decode("ascii")
