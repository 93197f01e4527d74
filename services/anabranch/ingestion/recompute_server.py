"""Recomputation of a source's deleted blocks on request: ingestion's side of ASK
(``protocol.stage.recomputation``).

A thread reads the input of the batches that made the requested buckets again, from the input topic,
and writes their rows as fresh blocks (``protocol.edge.source_recomputation``). Ingestion continues
meanwhile; its own thread appends the record that names the blocks, since it alone writes the
boundary log. A crash at any point leaves blocks that no record names, and the reader repeats its
request.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from anabranch.codec.batch_slices import slices
from anabranch.codec.blocks import EVENT_TIME
from anabranch.ingestion.batches import Batch, judge, slice_chunk
from anabranch.pipeline.control_topics import reader_control_topics
from anabranch.ports import TopicPartition
from anabranch.protocol.control.records import Ask, AskOutcome, AskReply
from anabranch.protocol.edge.ingestion import SourceMachine, SourceRules
from anabranch.protocol.edge.missing_input import InputState
from anabranch.protocol.edge.source_recomputation import Reread, SourceBatches, differing
from anabranch.protocol.errors import Unavailable
from anabranch.protocol.limits import ASK_BUCKETS_MAX, RECOMPUTE_MS_MAX
from anabranch.protocol.log.records import BoundaryRecord, LogSnapshot, Part, Recomputed
from anabranch.protocol.stage.recomputation import RecomputeReplies, recomputed_records
from anabranch.streams.block_heads import BlockHeads
from anabranch.streams.block_writer import BlockWriter
from anabranch.streams.gone_blocks import GoneBlocks
from anabranch.streams.heartbeats import ControlReader, ControlWriter
from anabranch.streams.stream_logs import open_stream

if TYPE_CHECKING:
    from anabranch.codec.edge import Decoded
    from anabranch.pipeline.model import Source
    from anabranch.ports import LogReader, Thread
    from anabranch.process.frame import ServiceContext
    from anabranch.protocol.log.boundary_log import Outcome
    from anabranch.protocol.log.records import LogEntry
    from anabranch.protocol.stage.planner import TakenBucket

_WRITER: Final = "0"
_POLL_EVERY_MS: Final = 1_000
"""Interval between polls of the readers' control topics, in ms: a reader that lacks blocks waits
for longer than that anyway.
"""
_RETRY_EVERY_MS: Final = 15_000
"""Interval between attempts to read requests while the broker does not answer or denies access, in
ms: a reader repeats its request as often.
"""
_END_S: Final = 5.0
"""Time, in s, that the end of the process waits for the thread, which stops between two fetches. If
it still runs then, it writes blocks that no record names.
"""
_FETCH_RECORDS: Final = 16_384
_FETCH_WAIT_MS: Final = 100


class _UnableError(Exception):
    """Raised when the range cannot be read again. The text is the reply's reason."""


class SourceRecomputeServer:
    """Server of requests for blocks of one source's stream, one at a time. Not thread-safe."""

    def __init__(
        self,
        context: ServiceContext,
        source: Source,
        stream: str,
        rules: SourceRules,
        decode: Callable[[Batch], Decoded],
    ) -> None:
        """Prepare the server; no broker is contacted before the first ``step``. ``decode`` is
        called by the server's thread alone.
        """
        self._context, self._source, self._stream = context, source, stream
        self._rules, self._decode = rules, decode
        self._names = context.pipeline.topic_names
        self._replies = RecomputeReplies(stream, _WRITER, [_WRITER])
        self._control: tuple[ControlReader, ControlWriter] | None = None
        self._poll_next_ms = 0
        self._thread: Thread | None = None
        self._stopping = context.threads.event()
        self._done: tuple[int, AskReply, tuple[Part, ...]] | None = None
        """Epoch and reply of the finished thread, and the parts to name before it is sent."""

    def step(self, epoch: int, partitions: int, append: Callable[[Recomputed], None]) -> None:
        """Read requests, begin the one that is due, and append what a finished one has made.

        Args:
            epoch: Epoch of the ingestion.
            partitions: Number of partitions of the block topic.
            append: Function that appends a record to the stream's boundary log.
        """
        now_ms = self._context.clock.monotonic_ms()
        if now_ms < self._poll_next_ms:
            return
        self._poll_next_ms = now_ms + _POLL_EVERY_MS
        try:
            reader, writer = self._open()
            entries = reader.poll()
        except Unavailable as error:
            # Readers repeat their requests, so none is lost by that. Without the right to read them
            # the source must not try, and wait for the broker, every second.
            self._poll_next_ms = now_ms + _RETRY_EVERY_MS
            self._context.logger.warning(
                "no contact to requests", stream=self._stream, reason=str(error)
            )
            return
        for entry in entries:
            if isinstance(entry, Ask):
                self._replies.receive(entry, now_ms)
        if self._thread is not None:
            self._finish(epoch, writer, append, now_ms)
        ask = self._replies.due(now_ms) if self._thread is None else None
        if ask is not None:
            writer.write([self._reply(ask, AskOutcome.TAKEN)])
            name = f"recompute {self._stream} {ask.bucket_first}..{ask.bucket_last}"
            work = partial(self._work, ask, epoch, partitions)
            self._thread = self._context.threads.begin(name, work)

    def close(self) -> None:
        """End a running recomputation and close the topics. Idempotent."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(_END_S)
            self._thread = None
        if self._control is not None:
            control, self._control = self._control, None
            for end in control:
                end.close()

    def _open(self) -> tuple[ControlReader, ControlWriter]:
        """Return the reader of requests and the writer of replies, opened at the first call.

        Raises:
            Unavailable: the broker does not answer.
        """
        if self._control is None:
            log, pipeline = self._context.log, self._context.pipeline
            topic = self._names.control("ingestion", self._stream)
            self._control = (
                ControlReader(log, reader_control_topics(pipeline, self._stream)),
                ControlWriter(log, topic, self._context.clock),
            )
        return self._control

    def _finish(
        self,
        epoch: int,
        writer: ControlWriter,
        append: Callable[[Recomputed], None],
        now_ms: int,
    ) -> None:
        """Append and report the result of the thread, or repeat that it works."""
        assert self._thread is not None, "the caller looks"  # noqa: S101
        if self._thread.is_alive():
            ask = self._replies.to_say_again(now_ms)
            if ask is not None:
                writer.write([self._reply(ask, AskOutcome.TAKEN)])
            return
        # Blocks of an earlier epoch are not named: the reader repeats its request.
        if self._done is not None and self._done[0] == epoch:
            _, reply, parts = self._done
            # Before the reply: a reader that hears of it finds the blocks in the log.
            for record in recomputed_records(_WRITER, epoch, parts):
                append(record)
            self._done = epoch, reply, ()
            if not writer.write([reply]):
                return  # The next step sends it again.
        self._thread, self._done = None, None
        self._replies.done()

    def _reply(self, ask: Ask, outcome: AskOutcome, reason: str = "") -> AskReply:
        return AskReply(
            self._stream,
            _WRITER,
            ask.reader,
            ask.number,
            outcome,
            reason,
            self._context.clock.now_ms(),
        )

    # ---------------------------------------------------------------- the thread

    def _work(self, ask: Ask, epoch: int, partitions: int) -> None:
        """Serve ``ask``, as the body of the thread."""
        log, parts = self._context.logger, tuple[Part, ...]()
        what = {"first": ask.bucket_first, "last": ask.bucket_last, "reader": ask.reader}
        log.info("recomputing", stream=self._stream, **what)
        try:
            parts = self._recompute(ask, epoch, partitions)
            outcome, reason = AskOutcome.RECOMPUTED, ""
        except _UnableError as error:
            outcome, reason = AskOutcome.UNABLE, str(error)
        except Exception as error:  # noqa: BLE001 - an error here must not end the source
            outcome, reason = AskOutcome.UNABLE, f"{type(error).__name__}: {error}"
        log.info("recomputed", stream=self._stream, outcome=outcome.value, reason=reason, **what)
        self._done = epoch, self._reply(ask, outcome, reason), parts

    def _recompute(self, ask: Ask, epoch: int, partitions: int) -> tuple[Part, ...]:
        """Return parts with the rows of all requested buckets whose blocks are gone.

        Raises:
            _UnableError: the rows cannot be read again, or differ from the parts.
        """
        log = self._context.log
        probe = log.reader(committed=False, headers=False)
        writer = BlockWriter(
            log,
            self._names.blocks(self._stream, _WRITER),
            _WRITER,
            epoch,
            self._context.entropy,
        )
        with contextlib.closing(probe), contextlib.closing(writer):
            wanted, rereads = self._wanted(ask, probe)
            buckets = {bucket for bucket, _, _ in wanted}
            made: list[Part] = []
            for reread in rereads:
                ids = self._check_input(probe, reread)
                table = self._rows(reread, buckets & reread.named)
                # After the fetch, too: a topic may have been created again before it.
                if self._topic_ids(reread) != ids:
                    raise _UnableError("an input topic was created again while it was read")
                made += writer.write(slices(table, self._rules.bucket_ms, partitions))
        different = differing(wanted, made)
        if different is not None:
            raise _UnableError(
                f"bucket {different} has other rows now, so nothing of the range is used"
            )
        return tuple(made)

    def _wanted(self, ask: Ask, probe: LogReader) -> tuple[list[TakenBucket], list[Reread]]:
        """Return the requested buckets whose blocks are gone, and the batches that made them."""
        # A stream of later shards begins where the earlier ones ended, which its log does not say.
        is_first = self._source.stream(self._stream).generation == 1
        begins_early = is_first and self._source.start == "earliest"
        batches = SourceBatches(ask.bucket_first, ask.bucket_last, begins_early=begins_early)

        def take(_offset: int, entry: LogEntry, outcome: Outcome) -> None:
            state = own.log_state
            if isinstance(entry, LogSnapshot) and outcome.accepted:
                batches.restored(state.last(_WRITER), state.closed(_WRITER))
            elif isinstance(entry, BoundaryRecord) and outcome.accepted:
                batches.seen(entry, state.closed(_WRITER))

        own = open_stream(self._context.log, self._context.pipeline, self._stream, listener=take)
        with contextlib.closing(own):
            own.read_to_end()
            log_state = own.log_state
            if ask.bucket_first <= log_state.forgotten:
                raise _UnableError(
                    f"the log of {self._stream} describes its buckets up to {log_state.forgotten}"
                    " no more"
                )
            last = min(ask.bucket_last, log_state.upto)
            stable = log_state.stable(ask.bucket_first, last) if last >= ask.bucket_first else []
        with contextlib.closing(BlockHeads(self._context.log, self._context.clock)) as heads:
            topic_of = partial(self._names.blocks, self._stream)
            # What it may not read is gone, as the request says.
            gone = GoneBlocks(probe, topic_of, heads, unread_are_gone=True)
            wanted = [each for each in stable if gone.is_gone(each[1], each[2])][:ASK_BUCKETS_MAX]
        rereads = batches.rereads({bucket for bucket, _, _ in wanted})
        if rereads is None:
            raise _UnableError(
                f"the log of {self._stream} does not say where the input of these buckets began"
            )
        return wanted, rereads

    def _check_input(self, probe: LogReader, reread: Reread) -> dict[str, str]:
        """Return the ids of the input topics of a batch. Fail unless these topics are those that
        were read, and still have all of the batch's records (SX4).
        """
        ids = self._topic_ids(reread)
        offsets = {at: probe.offsets(TopicPartition(*at)) for at in reread.ranges()}
        if lacks := reread.lacks(InputState(offsets, ids)):
            raise _UnableError(lacks)
        return ids

    def _topic_ids(self, reread: Reread) -> dict[str, str]:
        """Return the ids that the input topics of a batch have now."""
        with contextlib.closing(self._context.log.admin()) as admin:
            return admin.topic_ids(sorted({topic for topic, _ in reread.ranges()}))

    def _rows(self, reread: Reread, buckets: set[int] | frozenset[int]) -> pa.Table:
        """Return the rows of ``buckets`` that a batch of the input makes."""
        batch = self._fetch(reread)
        machine = SourceMachine(
            self._rules, {at: first for at, (first, _) in reread.ranges().items()}, reread.before, 0
        )
        limits = machine.limits(reread.written_ms)
        width_ms = self._rules.bucket_ms
        table = judge(batch, self._decode(batch), self._source, limits, width_ms).table
        of_row = -(-table.column(EVENT_TIME).to_numpy() // width_ms)
        return table.filter(pa.array(np.isin(of_row, sorted(buckets))))

    def _fetch(self, reread: Reread) -> Batch:
        """Read the records of a batch again."""
        ranges = {TopicPartition(*at): ends for at, ends in reread.ranges().items()}
        reader = self._context.log.reader(
            committed=True, headers=True, timestamps=self._source.needs_timestamps
        )
        clock, chunks = self._context.clock, []
        until_ms = clock.monotonic_ms() + RECOMPUTE_MS_MAX
        with contextlib.closing(reader):
            reader.assign({at: first for at, (first, _) in ranges.items()})
            while any(reader.position(at) < end for at, (_, end) in ranges.items()):
                if self._stopping.is_set() or clock.monotonic_ms() > until_ms:
                    raise _UnableError("reading the input again took too long, or was stopped")
                for chunk in reader.fetch(_FETCH_RECORDS, _FETCH_WAIT_MS):
                    upto = bisect_left(chunk.offsets, ranges[chunk.at][1])
                    if upto:
                        chunks.append(slice_chunk(chunk, slice(0, upto)))
        return Batch.of(chunks)
