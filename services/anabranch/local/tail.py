"""Showing an output's topic as it grows."""

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
    """One record of an output, as text. ``id`` and ``stime_ms`` are its headers; empty where it has none."""

    partition: int
    offset: int
    id: str
    stime_ms: str
    key: str
    value: str


def sink_of(pipeline: Pipeline, output: str, *, live: bool) -> Sink:
    """The topic of ``output`` to look at.

    Raises:
        ConfigurationError: no such output, or it has no live topic.
    """
    found = pipeline.outputs.get(output)
    if found is None:
        raise ConfigurationError(f"{pipeline.path}: no output {output!r}; there are: {', '.join(pipeline.outputs)}")
    if not live:
        return found.corrected
    if found.live is None:
        raise ConfigurationError(f"{pipeline.path}: output {output} has no live topic; add `live: {{topic: {found.corrected.topic}.live}}`")
    return found.live


def follow(log: EventLog, topic: str, stopping: threading.Event, *, from_beginning: bool, count: int | None) -> Iterator[Shown]:
    """Committed records of ``topic`` as they come, until ``stopping`` is set or ``count`` were shown.

    Raises:
        ConfigurationError: the topic does not exist.
        AdapterError: the broker does not answer, or the log was cut below where it is read.
    """
    admin, reader = log.admin(), log.reader(committed=True, headers=True)
    try:
        partitions = admin.partitions([topic]).get(topic)
        if partitions is None:
            raise ConfigurationError(f"topic {topic} does not exist on this broker; has `anabranch up` made it?")
        places = [TopicPartition(topic, number) for number in range(partitions)]
        reader.assign({place: reader.offsets(place)[0 if from_beginning else 1] for place in places})
        shown = 0
        while not stopping.is_set() and (count is None or shown < count):
            for chunk in reader.fetch(_RECORDS_AT_ONCE, _WAIT_MS):
                for record in _records(chunk):
                    if count is not None and shown >= count:
                        return
                    yield record
                    shown += 1
    finally:
        admin.close()
        reader.close()


def _records(chunk: Chunk) -> Iterator[Shown]:
    for offset, key, value, headers in zip(chunk.offsets, chunk.keys, chunk.values, chunk.headers, strict=True):
        named = dict(headers)
        yield Shown(
            chunk.at.partition,
            offset,
            _text(named.get("anabranch-id")),
            _text(named.get("anabranch-stime")),
            _text(key),
            _text(value),
        )


def _text(content: bytes | None) -> str:
    """UTF-8 as it is, anything else (Avro) as base64; no control characters, which could take over a terminal."""
    if content is None:
        return ""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return base64.b64encode(content).decode("ascii")
    return text if text.isprintable() else base64.b64encode(content).decode("ascii")
