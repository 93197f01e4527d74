"""The parts of a measurement: one sender, one receiver, the project's own reader and writer of
blocks and boundary logs between them.

Only what is done for recovery differs:

====  ============================================  ===========================================
      the sender, after writing a batch's blocks    a receiver that starts again
====  ============================================  ===========================================
none  goes on                                       goes on with what comes from then on
ack   appends the boundary record, waits until the  waits for what comes: the sender repeats,
      receiver says that it has the batch, and has  after RESEND_MS, the batch that was not
      noted it                                      acknowledged
ask   appends the boundary record, goes on          goes on from the position that it has noted
====  ============================================  ===========================================
"""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import pyarrow as pa

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.system.clock import SystemClock
from anabranch.adapters.system.entropy import SystemEntropy
from anabranch.codec import boundary_records
from anabranch.codec.blocks import EVENT_TIME, decode_block
from anabranch.codec.catalog import TopicSettings
from anabranch.pipeline.topic_names import TopicNames
from anabranch.ports import LogReader, TopicPartition
from anabranch.protocol.edge.source_batches import SOURCE_BATCH_RECORDS
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.records import BoundaryRecord, EpochStarted, Part, Recomputed
from anabranch.streams.block_reader import BlockReader
from anabranch.streams.block_writer import BlockWriter
from anabranch.streams.boundary_reader import BoundaryReader
from anabranch.streams.boundary_writer import BoundaryWriter

STREAM: Final = "s"
RESEND_MS: Final = 1_000
"""Timeout of the sender that waits for acknowledgements, in ms: longer than a garbage
collection.
"""
_ENTRY: Final = struct.Struct("<qqq")


class Discipline(StrEnum):
    """Method of recovery."""

    NONE = "none"
    ACK = "ack"
    ASK = "ask"


@dataclass(frozen=True, slots=True)
class Received:
    """A batch, as the receiver noted it."""

    at_us: int
    """Wall clock."""
    first: int
    """Number of its first tuple."""
    rows: int


def read_received(path: Path) -> list[Received]:
    """Return what a receiver noted, complete entries only: it may have been killed."""
    content = path.read_bytes()
    return [
        Received(*fields)
        for fields in _ENTRY.iter_unpack(content[: len(content) // _ENTRY.size * _ENTRY.size])
    ]


def _acks(name: str) -> TopicPartition:
    return TopicPartition(f"{name}.acks", 0)


def create_topics(kafka: str, name: str) -> None:
    """Create the topics of one measurement."""
    names, admin = TopicNames(name), KafkaEventLog(kafka).admin()
    topics = (names.boundaries(STREAM), names.blocks(STREAM, "0"), _acks(name).topic)
    admin.create([TopicSettings(topic, 1) for topic in topics])
    admin.close()


class Sender:
    """Makes tuples at a rate; tuple number n is due at ``begin_s + n / rate``. Takes what is
    due, as ingestion does.
    """

    def __init__(self, kafka: str, name: str, discipline: Discipline) -> None:
        log = KafkaEventLog(kafka)
        names = TopicNames(name)
        clock = SystemClock()
        self._discipline = discipline
        self.sent = 0
        self.repeated = 0
        self._boundary = BoundaryWriter(
            log,
            names.boundaries(STREAM),
            ["0"],
            EpochStarted("0", "sender", SystemEntropy().token()),
            clock,
        )
        self._epoch = self._boundary.start()
        self._blocks = BlockWriter(
            log, names.blocks(STREAM, "0"), "0", self._epoch, SystemEntropy()
        )
        self._acks: LogReader = log.reader(committed=False, headers=False)
        self._acks.assign({_acks(name): 0})
        self._acked = self._batch = 0

    def run(self, begin_s: float, rate: int, seconds: float, pace_ms: float) -> None:
        """Send until ``seconds`` after ``begin_s`` (wall clock); ``pace_ms``: least time from
        the beginning of a batch to that of the next.
        """
        while (now := time.time()) < begin_s + seconds:
            due = int((now - begin_s) * rate) - self.sent
            if due > 0:
                self._send(min(due, SOURCE_BATCH_RECORDS))
            time.sleep(max(0.0 if due > 0 else 1 / rate, now + pace_ms / 1000 - time.time()))

    def _send(self, rows: int) -> None:
        self._batch += 1
        numbers = pa.array(range(self.sent, self.sent + rows), pa.int64())
        table = pa.table(
            {
                "number": numbers,
                "value": numbers,
                EVENT_TIME: pa.repeat(pa.scalar(self._batch), rows),
            }
        )
        parts = self._blocks.write([(0, self._batch, table)])
        self.sent += rows
        if self._discipline is Discipline.NONE:
            return
        ident = BatchId(f"{self._epoch:012d}-000000", self._batch)
        self._boundary.append(
            BoundaryRecord("0", self._epoch, ident, self._boundary.tip(), self._batch, parts)
        )
        self._boundary.log_state.forget(self._batch)
        if self._discipline is Discipline.ACK:
            self._wait(parts)

    def _wait(self, parts: tuple[Part, ...]) -> None:
        repeat_s = time.monotonic() + RESEND_MS / 1000
        while self._acked < self._batch:
            for chunk in self._acks.fetch(100, 50):
                self._acked = max(self._acked, *(int(value or b"0") for value in chunk.values))
            if self._acked < self._batch and time.monotonic() > repeat_s:
                self._boundary.append_other(Recomputed("0", self._epoch, parts))
                self.repeated += 1
                repeat_s = time.monotonic() + RESEND_MS / 1000

    def close(self) -> None:
        """Idempotent."""
        self._acks.close()
        self._blocks.close()
        self._boundary.close()


class Receiver:
    """Reads batches until it is killed. Its position is a small file, replaced after every
    batch.
    """

    def __init__(self, kafka: str, name: str, folder: Path) -> None:
        self._log = KafkaEventLog(kafka)
        self._name = name
        self._names = TopicNames(name)
        self._blocks = BlockReader(
            self._log, lambda replica: self._names.blocks(STREAM, replica), SystemClock()
        )
        self._position_file = folder / "position"
        self._received = (folder / "received").open("ab", buffering=0)
        self._position = int(self._position_file.read_text()) if self._position_file.exists() else 0

    def run(self, discipline: Discipline) -> None:
        """Never returns."""
        {Discipline.NONE: self._none, Discipline.ACK: self._ack, Discipline.ASK: self._ask}[
            discipline
        ]()

    def _take(self, table: pa.Table) -> None:
        first = table.column("number")[0].as_py()
        self._received.write(_ENTRY.pack(time.time_ns() // 1000, first, table.num_rows))

    def _note(self, position: int) -> None:
        self._position = position
        partial = self._position_file.with_suffix(".partial")
        partial.write_text(str(position))
        partial.rename(self._position_file)

    def _from_end(self, topic: str) -> LogReader:
        reader, at = self._log.reader(committed=False), TopicPartition(topic, 0)
        reader.assign({at: reader.offsets(at)[1]})
        return reader

    def _none(self) -> None:
        reader = self._from_end(self._names.blocks(STREAM, "0"))
        while True:
            for chunk in reader.fetch(1_000, 100):
                for value in chunk.values:
                    self._take(decode_block(value))

    def _ack(self) -> None:
        reader, writer = self._from_end(self._names.boundaries(STREAM)), self._log.writer()
        while True:
            for chunk in reader.fetch(1_000, 100):
                for value, headers in zip(chunk.values, chunk.headers, strict=True):
                    entry = boundary_records.decode(value, headers)
                    if not isinstance(entry, (BoundaryRecord, Recomputed)) or not entry.parts:
                        continue
                    batch = entry.parts[0].bucket
                    if batch > self._position:
                        table = self._blocks.read("0", entry.parts)
                        assert table is not None  # noqa: S101 - a batch has rows
                        self._take(table)
                        self._note(batch)
                    writer.send(_acks(self._name), b"%d" % batch)
                    writer.flush()

    def _ask(self) -> None:
        following = BoundaryReader(self._log, self._names.boundaries(STREAM), ["0"])
        log_state = following.log_state
        while True:
            following.poll(100)
            while log_state.upto > self._position:
                stable = log_state.stable(self._position + 1, log_state.upto, 100)
                for _, table in self._blocks.read_buckets(stable):
                    self._take(table)
                self._note(stable[-1][0] if stable else log_state.upto)
                log_state.forget(self._position)
