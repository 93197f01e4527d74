"""A chain of stages that hand on what they read, with the project's own readers and writers and
without Spark, so that what is left of a stage's delay is what its log costs.

Today a reader takes blocks that a boundary record names: they are in the log, and the batch that
made them counts. A *speculative* reader takes blocks when they come, before the record. Its results
are final when every stage before it has its own record in its log, which is written meanwhile.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.system.clock import SystemClock
from anabranch.adapters.system.entropy import SystemEntropy
from anabranch.codec.blocks import EVENT_TIME, BlockHeaders, decode_block
from anabranch.codec.catalog import TopicSettings
from anabranch.pipeline.topic_names import TopicNames
from anabranch.ports import TopicPartition
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.records import BoundaryRecord, EpochStarted
from anabranch.streams.block_reader import BlockReader
from anabranch.streams.block_writer import BlockWriter
from anabranch.streams.boundary_reader import BoundaryReader
from anabranch.streams.boundary_writer import BoundaryWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BUCKET_S: Final = 0.1
ROWS: Final = 52
"""Rows of a bucket: three published sources with 175 tuples/s each."""
_REPLICA: Final = "0"
_WAIT_MS: Final = 100


class Reading(StrEnum):
    """Blocks that a stage takes as its input."""

    NAMED = "named blocks"
    """Blocks that a boundary record names, as stages do."""
    EARLY = "blocks before their record"


@dataclass(slots=True)
class Times:
    """When each bucket came to a point, by ``time.monotonic``."""

    read: dict[int, float] = field(default_factory=dict)
    """The stage has the rows of its input."""
    sent: dict[int, float] = field(default_factory=dict)
    """Its own blocks are handed to the client."""
    blocks: dict[int, float] = field(default_factory=dict)
    """The broker has them."""
    named: dict[int, float] = field(default_factory=dict)
    """Its boundary record was seen in the log."""


def stream(number: int) -> str:
    """Return the name of the stream of stage ``number``; 0: of the source."""
    return f"s{number}"


def create_topics(kafka: str, name: str, stages: int) -> None:
    """Create the topics of one chain."""
    names, admin = TopicNames(name), KafkaEventLog(kafka).admin()
    for number in range(stages + 1):
        topics = (names.boundaries(stream(number)), names.blocks(stream(number), _REPLICA))
        admin.create([TopicSettings(topic, 1) for topic in topics])
    admin.close()


class Writing:
    """Blocks and boundary records of one stream."""

    def __init__(self, kafka: str, name: str, number: int) -> None:
        """Begin the stream's epoch."""
        log, names, stream_name = KafkaEventLog(kafka), TopicNames(name), stream(number)
        started = EpochStarted(_REPLICA, "chain", SystemEntropy().token())
        self._boundary = BoundaryWriter(
            log, names.boundaries(stream_name), [_REPLICA], started, SystemClock()
        )
        epoch = self._boundary.start()
        self._chain = f"{epoch:012d}-000000"
        topic = names.blocks(stream_name, _REPLICA)
        self._blocks = BlockWriter(log, topic, _REPLICA, epoch, SystemEntropy())
        self._batch = 0
        self.times = Times()

    def write(self, bucket: int, table: pa.Table) -> None:
        """Write a batch as a stage does: its blocks, and when these are in the log, its record."""
        self._batch += 1
        self._blocks.begin([(0, bucket, table)])
        self.times.sent[bucket] = time.monotonic()
        parts = self._blocks.finish()
        self.times.blocks[bucket] = time.monotonic()
        boundary, ident = self._boundary, BatchId(self._chain, self._batch)
        boundary.append(
            BoundaryRecord(_REPLICA, boundary.epoch, ident, boundary.tip(), bucket, parts)
        )
        self.times.named[bucket] = time.monotonic()
        boundary.log_state.forget(bucket)

    def close(self) -> None:
        """Close both writers. Idempotent."""
        self._blocks.close()
        self._boundary.close()


def named_blocks(
    kafka: str, name: str, number: int, is_ended: Callable[[], bool]
) -> Iterator[tuple[int, pa.Table | None]]:
    """Follow the boundary log of stream ``number``, and yield the buckets that it names. Yields
    once without rows when it is ready.
    """
    log, names, stream_name = KafkaEventLog(kafka), TopicNames(name), stream(number)
    blocks = BlockReader(log, lambda replica: names.blocks(stream_name, replica), SystemClock())
    following = BoundaryReader(log, names.boundaries(stream_name), [_REPLICA])
    following.read_to_end()
    yield 0, None
    log_state, position = following.log_state, 0
    while not is_ended():
        following.poll(_WAIT_MS)
        if log_state.upto > position:
            stable = log_state.stable(position + 1, log_state.upto, 100)
            yield from blocks.read_buckets(stable)
            position = log_state.upto
            log_state.forget(position)
    following.close()
    blocks.close()


def early_blocks(
    kafka: str, name: str, number: int, is_ended: Callable[[], bool]
) -> Iterator[tuple[int, pa.Table | None]]:
    """Follow the blocks of stream ``number``, and yield each when it comes, as ``named_blocks``."""
    at = TopicPartition(TopicNames(name).blocks(stream(number), _REPLICA), 0)
    reader = KafkaEventLog(kafka).reader(committed=False, follows=True)
    reader.assign({at: 0})
    reader.fetch(1, _WAIT_MS)
    yield 0, None
    while not is_ended():
        for chunk in reader.fetch(1_000, _WAIT_MS):
            for value, headers in zip(chunk.values, chunk.headers, strict=True):
                yield BlockHeaders.decode(headers).bucket, decode_block(value)
    reader.close()


_READINGS: Final = {Reading.NAMED: named_blocks, Reading.EARLY: early_blocks}


class Reader(threading.Thread):
    """Thread that reads one stream, notes when it has each bucket, and hands it to a writer, if it
    has one.
    """

    def __init__(
        self, kafka: str, name: str, number: int, reading: Reading, writing: Writing | None
    ) -> None:
        """Prepare the thread; ``number`` is that of the stream that it reads."""
        super().__init__(daemon=True)
        self._kafka, self._name, self._number = kafka, name, number
        self._reading, self._writing = reading, writing
        self._is_ended = threading.Event()
        self.times = Times() if writing is None else writing.times
        self.is_ready = threading.Event()

    def run(self) -> None:
        """Read until ``end``."""
        found = _READINGS[self._reading](
            self._kafka, self._name, self._number, self._is_ended.is_set
        )
        for bucket, table in found:
            if table is None:
                self.is_ready.set()
                continue
            self.times.read[bucket] = time.monotonic()
            if self._writing is not None:
                self._writing.write(bucket, table)

    def end(self) -> None:
        """Let the thread end, and wait for its end."""
        self._is_ended.set()
        self.join()


@dataclass(frozen=True, slots=True)
class Passed:
    """Times of one chain, whose buckets passed through it."""

    due: dict[int, float]
    """When the source began to write each bucket."""
    source: Times
    stages: list[Times]
    seen: dict[int, float]
    """When the client has the rows: tentatively, with ``Reading.EARLY``."""
    final: dict[int, float]
    """When the client knows that every log has the bucket."""


def pass_through(kafka: str, name: str, stages: int, reading: Reading, buckets: int) -> Passed:
    """Let ``buckets`` pass through a chain of ``stages``, one every BUCKET_S.

    Raises:
        RuntimeError: some did not arrive.
    """
    create_topics(kafka, name, stages)
    source = Writing(kafka, name, 0)
    writings = [Writing(kafka, name, number) for number in range(1, stages + 1)]
    readers = [
        Reader(kafka, name, number, reading, writing) for number, writing in enumerate(writings)
    ]
    client = Reader(kafka, name, stages, reading, None)
    witnesses = [
        Reader(kafka, name, number, Reading.NAMED, None)
        for number in (range(stages + 1) if reading is Reading.EARLY else [])
    ]
    everyone = [*readers, client, *witnesses]
    due: dict[int, float] = {}
    try:
        for reader in everyone:
            reader.start()
        for reader in everyone:
            reader.is_ready.wait(30)
        begin = time.monotonic() + 0.5
        for bucket in range(1, buckets + 1):
            time.sleep(max(0.0, begin + BUCKET_S * bucket - time.monotonic()))
            due[bucket] = time.monotonic()
            source.write(bucket, _rows(bucket))
        ended = time.monotonic() + 10
        while time.monotonic() < ended and any(buckets not in r.times.read for r in everyone):
            time.sleep(0.02)
    finally:
        for reader in everyone:
            reader.end()
        for writing in (source, *writings):
            writing.close()
    if any(len(reader.times.read) < buckets for reader in everyone):
        message = f"{name}: not all buckets came through the chain"
        raise RuntimeError(message)
    seen = client.times.read
    final = {
        bucket: max([seen[bucket], *(witness.times.read[bucket] for witness in witnesses)])
        for bucket in due
    }
    return Passed(due, source.times, [writing.times for writing in writings], seen, final)


def _rows(bucket: int) -> pa.Table:
    numbers = pa.array(range(ROWS), pa.int64())
    times = pa.repeat(pa.scalar(round(1_000 * BUCKET_S) * bucket), ROWS)
    return pa.table({"number": numbers, "value": numbers, EVENT_TIME: times})
