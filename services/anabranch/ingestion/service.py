"""The ingestion service: wiring of ``protocol.edge.ingestion`` to topics.

A round fetches records, judges each one, and sends, in the order of ``protocol.edge.append_order``,
their blocks, dead letters, and one boundary record. That record names the parts, the input
positions read to, and the newest closed bucket. The round ends when the record is seen accepted;
nothing that was read stays in memory. After a crash at any point the next process continues from
the positions of the last accepted boundary record (rule 17): blocks that no record names do not
exist.

In a backlog rounds overlap: the client sends the blocks of one round while the next one fetches and
decodes. At most one attempt to write blocks and one boundary record are in flight. A record is sent
only after its blocks are in the log and the record before it was accepted.

Every other error raises and ends the process, and a restart recovers. Missing input is not an error
of this process: a topic that was deleted, a partition without a leader, records that were deleted
before they were read (``protocol.edge.missing_input``). The process then begins no epoch, reports
what it waits for, and tries again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from prometheus_client import Counter, Gauge

from anabranch.codec.batch_slices import slices
from anabranch.codec.blocks import schema_text
from anabranch.codec.change_events import ChangeDecoder
from anabranch.codec.edge import Decoded, Decoder
from anabranch.codec.formats import FORMATS
from anabranch.codec.time_units import wrong_unit
from anabranch.codec.writer_schema import shown_key
from anabranch.ingestion.awaited_input import AwaitedInput
from anabranch.ingestion.batches import EVENT_TIME_FIELD, Batch, Judged, joined, judge
from anabranch.ingestion.dead_letters import DeadLetters
from anabranch.ingestion.kafka_columns import KafkaColumns
from anabranch.ingestion.peer_shards import (
    OtherLogs,
    check_own_partitions,
    check_unknown_logs,
    missing_number,
)
from anabranch.ingestion.recompute_server import SourceRecomputeServer
from anabranch.ingestion.source_handover import EarlierSourceShards
from anabranch.ports import TopicPartition
from anabranch.process.crash_points import crash_point
from anabranch.process.cycle_collector import without_collection
from anabranch.process.frame import ServiceStatus
from anabranch.protocol.control.records import INPUT_MISSING, Heartbeat
from anabranch.protocol.edge.append_order import APPEND_ORDER, AppendStep
from anabranch.protocol.edge.handover import first_offset, goes_on, read_to, rest_upto
from anabranch.protocol.edge.ingestion import (
    LOOK_EVERY_MS,
    SourceMachine,
    SourceRules,
    blocks_left,
)
from anabranch.protocol.edge.missing_input import InputWait
from anabranch.protocol.edge.schema_lookups import SchemaLookups
from anabranch.protocol.edge.shards import whole_of
from anabranch.protocol.edge.source_batches import SourceBatches
from anabranch.protocol.errors import (
    AnabranchError,
    ConfigurationError,
    InputAwaited,
    RejectionReason,
    TooManyParts,
    Unavailable,
    UnknownSchema,
)
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.buckets import bound_ms
from anabranch.protocol.log.records import BoundaryRecord, EpochStarted, Part, Recomputed
from anabranch.streams.block_writer import BlockWriter
from anabranch.streams.boundary_writer import BoundaryWriter
from anabranch.streams.heartbeats import HeartbeatSender
from anabranch.streams.stream_life import check_life, life_of
from anabranch.streams.stream_logs import open_stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from anabranch.codec.framing import SchemaOf
    from anabranch.codec.writer_schema import SchemaKey, SchemaKind, WriterSchema
    from anabranch.pipeline.model import Pipeline, Source
    from anabranch.ports import LogAdmin, LogReader, SchemaRegistry
    from anabranch.process.frame import ServiceContext
    from anabranch.process.settings import ServiceSettings
    from anabranch.protocol.edge.handover import EndedStream
    from anabranch.protocol.edge.ingestion import SourceProgress
    from anabranch.protocol.edge.missing_input import InputState
    from anabranch.protocol.log.boundary_log import LogState
    from anabranch.streams.boundary_reader import BoundaryReader

LOOK_WAIT_MS: Final = 500
"""Timeout for probing the idle partitions of a source, in ms. A partition without a leader must not
delay the others. Below LOOK_FRESH_MS.
"""

FIND_PARTITIONS_EVERY_MS: Final = 2_000
"""Interval between checks for added partitions, in ms. Short, since records of a partition that is
not known yet may be reassigned to a later event time. Each check is one small request.
"""

COMPARE_IDENTITIES_EVERY_MS: Final = 2_000
"""Interval between comparisons of the input topics' ids with the recorded ones, in ms. Records that
are fetched later after the last comparison are not processed before the next. Each comparison is
one small request.
"""

COUNT_KEPT_EVERY_MS: Final = 30_000
"""Interval between counts of a source's undeleted blocks, in ms. A count takes two requests per
partition, and a source takes days to reach BLOCKS_KEPT_MAX.
"""

REPLICA: Final = "0"
"""Replica name in a source's records: a source has one writer, which a standby replaces by
beginning a newer epoch.
"""
_FETCH_WAIT_MS: Final = 50
"""Time that the first fetch of a round waits for records, in ms."""
_NAMES_MAX: Final = 3
"""Maximum number of partitions that a message lists."""
_AWAITING_PAUSE_MS: Final = 100
"""Length of a step while the input is missing, in ms."""
_LABELS: Final = ("pipeline", "source")


def build(
    settings: ServiceSettings,
    context: ServiceContext,
    open_registry: Callable[[str], SchemaRegistry] | None = None,
) -> IngestionService:
    """Build the service for the source, or shard of one, that ``settings.name`` names.
    ``open_registry`` connects to the schema registry, for pipelines that name one.

    Raises:
        ConfigurationError: the pipeline has no such source.
    """
    streams = context.pipeline.source_processes()
    if settings.name not in streams:
        known = ", ".join(streams)
        raise ConfigurationError(
            f"--name {settings.name}: the pipeline {context.pipeline.name} has no such source; it"
            f" has {known}"
        )
    source = context.pipeline.sources[whole_of(settings.name)]
    url, registry = context.pipeline.schema_registry, None
    if url is not None and open_registry is not None:
        registry = open_registry(url)
    return IngestionService(context, source, settings.name, registry)


def fingerprint(source: Source, bucket_ms: int) -> str:
    """Return the fingerprint of every setting that decides which rows a record becomes. Digests are
    compared only between epochs with equal fingerprints.
    """
    facts = [
        source.topics,
        source.record.avro,
        source.format,
        *([[repr(column) for column in source.columns]] if source.columns else []),
        *([source.cdc] if source.cdc else []),
        source.max_record_bytes,
        source.event_time.model_dump(mode="json"),
        source.late,
        source.extra_fields,
        bucket_ms,
    ]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


class IngestionService:
    """Writer of the stream of one source, or of one shard. See ``process.frame.Service``."""

    def __init__(
        self,
        context: ServiceContext,
        source: Source,
        stream: str,
        registry: SchemaRegistry | None = None,
    ) -> None:
        self.status = ServiceStatus()
        self._context, self._source = context, source
        self._stream, self._shard = stream, source.shard(stream)
        self._pipeline: Pipeline = context.pipeline
        self._others = OtherLogs(context.log, self._pipeline, source, stream)
        self._awaited_input = AwaitedInput(context.log, self._pipeline, source, stream)
        self._lookups = SchemaLookups()
        schema_of = partial(self._lookup, registry)
        asks, largest = schema_of(source.format), source.max_record_bytes

        def new_decoder() -> Decoder | ChangeDecoder:
            return (
                Decoder(source.record, source.format, source.extra_fields, asks, largest)
                if source.cdc is None
                else ChangeDecoder(source.record, source.format, asks, largest)
            )

        self._decoder = new_decoder()
        self._columns = KafkaColumns(source, schema_of)
        self._recompute_server = SourceRecomputeServer(
            context,
            source,
            stream,
            _rules(self._pipeline, source),
            # Decoders of its own: it decodes in a thread of its own.
            partial(_decoded, new_decoder(), KafkaColumns(source, schema_of)),
        )
        self._batches = SourceBatches()
        self._append_next_ms = 0
        self._find_next_ms = self._count_next_ms = 0
        self._identities_next_ms = 0
        self._skip_next_ms = 0
        self._batch = 0
        self._counts = {
            "records": 0,
            "rejected": 0,
            "late": 0,
            "reassigned": 0,
            "heartbeats": 0,
            "boundary_records": 0,
        }
        self._rejected = Counter(
            "anabranch_ingestion_rejected",
            "Records that became dead letters, by reason",
            (*_LABELS, "reason"),
            registry=context.registry,
        )
        self._late = Counter(
            "anabranch_ingestion_late",
            "Records that were not newer than the boundary",
            _LABELS,
            registry=context.registry,
        )
        self._kept = Gauge(
            "anabranch_ingestion_blocks_kept",
            "Blocks of closed buckets that are not deleted, since a reader still needs them",
            _LABELS,
            registry=context.registry,
        )
        self._blocks_kept = 0
        self._closed = 0
        self._epoch = 0
        self._wrong_unit = ""
        """Finding about the unit of the event times; empty if there is none."""
        self._wait = InputWait()
        self._life = ""
        self._heartbeats = HeartbeatSender(
            context.log, self._pipeline.topic_names.control("ingestion", stream), context.clock
        )
        self._closers: list[
            BlockWriter
            | BoundaryReader
            | BoundaryWriter
            | DeadLetters
            | HeartbeatSender
            | LogAdmin
            | LogReader
            | OtherLogs
        ] = []

    def start(self) -> None:
        """Check the topics, begin an epoch and continue from the last accepted boundary record. If
        the input is missing, begin to wait for it instead.

        Raises:
            ConfigurationError: a topic is missing or has wrong settings, or the file has another
                number of shards than the logs.
            Fenced: another process of this source began after this one.
        """
        try:
            self._begin()
        except InputAwaited as why:
            self._await_input(why)

    def _begin(self) -> None:
        """Check the topics, begin an epoch and continue from the last accepted boundary record.

        Raises:
            InputAwaited: the input cannot be asked for. No epoch was begun, unless the input
                disappeared after the first check.
            InputMissing: the input of a source that has run before is gone. No epoch was begun,
                with the same exception.
            ConfigurationError: a topic is missing or has wrong settings, or the file has another
                number of shards than the logs.
            Fenced: another process of this source began after this one.
        """
        context, source = self._context, self._source
        own = self._open()
        # First: if the stream has ended, its log tells the user what to write into the file.
        own.read_to_end()
        check_unknown_logs(self._probe_reader, self._pipeline, source, self._topics.unknown_streams)
        self._dead_letters = DeadLetters(context.log, source.dead_letter, self._topics.dead_letter)
        started = EpochStarted(
            REPLICA,
            fingerprint(source, self._pipeline.bucket_ms),
            context.entropy.token(),
            schema=schema_text(source.rows.arrow_schema().append(EVENT_TIME_FIELD)),
            bucket_ms=self._pipeline.bucket_ms,
        )
        before = EarlierSourceShards(context, source, self._stream, started).ended()
        check_own_partitions(source, self._stream, read_to(own.log_state.last(REPLICA)))
        # Before the epoch: a process that waits for its input writes nothing and fences no other.
        self._input(own.log_state, before)
        self._others.start()
        self._begin_epoch(own, replace(started, rest_upto=rest_upto(before)))
        # The decoder loads libraries at first use: before this service reports that it runs.
        self._decoder.decode([b"{}"])
        last = self._boundaries.log_state.last(REPLICA)
        check_own_partitions(source, self._stream, read_to(last))
        is_new = not read_to(last)
        # Again: the previous process may have read further until this epoch fenced it.
        progress, there = self._input(self._boundaries.log_state, before)
        now_ms = context.clock.monotonic_ms()
        self._find_next_ms = now_ms + FIND_PARTITIONS_EVERY_MS
        self._identities_next_ms = now_ms
        self._machine = SourceMachine(
            _rules(self._pipeline, source),
            {
                at: first_offset(
                    at[1],
                    bounds,
                    source.start,
                    before,
                    partial(self._probe_reader.offset_from, TopicPartition(*at)),
                    is_new=is_new,
                )
                for at, bounds in there.offsets.items()
            },
            progress,
            now_ms,
            there.topic_ids,
        )
        self._topic_ids = dict(there.topic_ids)
        self._closed = self._machine.closed
        self._draft: BoundaryRecord | None = None
        """Boundary record of what was read last, without parts; sent once its blocks are in the
        log. None: everything read is named.
        """
        if is_new and before:
            # At once, without input: readers wait until they know where the new stream begins.
            self._draft = self._draft_record()
            self._finish()
        self._reading: frozenset[tuple[str, int]] = frozenset()
        self._wait.over()
        self.status.error = None
        self._choose_partitions()
        self._report()
        context.logger.info(
            "reading",
            source=self._stream,
            epoch=self._epoch,
            closed=self._closed,
            positions=len(self._machine.offsets()),
        )

    def _open(self) -> BoundaryReader:
        """Check the topics, open the readers of the input, and return a reader of the own log.

        Raises:
            ConfigurationError, InputMissing: as ``AwaitedInput.check_topics``.
        """
        log = self._context.log
        self._admin = log.admin()
        self._closers += [self._admin, self._others]
        self._topics = self._awaited_input.check_topics(self._admin)
        self._reader = log.reader(
            committed=True,
            headers=True,
            timestamps=self._source.needs_timestamps,
            follows=True,
        )
        # Probes count records of open transactions too: a partition with records that may still
        # become visible is not idle.
        self._probe_reader = log.reader(committed=False, headers=False, timestamps=False)
        own = open_stream(log, self._pipeline, self._stream)
        self._closers += [self._reader, self._probe_reader, own]
        return own

    def _input(
        self, log_state: LogState, before: Sequence[EndedStream]
    ) -> tuple[SourceProgress, InputState]:
        """Return the progress to continue from, and the input as the broker reports it.

        Raises:
            InputAwaited, InputMissing: as ``AwaitedInput.state``.
        """
        now_ms = self._context.clock.now_ms()
        last, closed = log_state.last(REPLICA), log_state.closed(REPLICA)
        progress = goes_on(self._shard, last, closed, before, now_ms)
        return progress, self._awaited_input.state(self._admin, self._probe_reader, progress)

    def _await_input(self, error: InputAwaited) -> None:
        """Close everything that is open and begin to wait. ``error`` says why."""
        self._close()
        if self._wait.failed(error, self._context.clock.monotonic_ms()):
            self._context.logger.warning("the source waits for its input", why=str(error))
        self._report_awaited()

    def _report_awaited(self) -> None:
        """Report in status and heartbeat that the source waits for its input."""
        wait = self._wait
        self.status.state, self.status.waiting_for = "waiting", "its input"
        self.status.error = wait.why
        if wait.is_missing:
            self.status.detail = {**self._counts, "input_missing": wait.why}
        self._send_heartbeat(INPUT_MISSING if wait.is_missing else self.status.state)

    def _begin_epoch(self, own: BoundaryReader, started: EpochStarted) -> None:
        """Open the writers of the stream and begin an epoch. ``own`` is a reader of its log."""
        context, names = self._context, self._pipeline.topic_names
        boundaries = names.boundaries(self._stream)
        self._life = life_of(context.log, boundaries)
        self._boundaries = BoundaryWriter(context.log, boundaries, own, started, context.clock)
        self._closers += [self._dead_letters, self._boundaries]
        self._epoch = self._boundaries.start(self._check_begins)
        check_life(context.log, boundaries, self._life)
        self._blocks = BlockWriter(
            context.log, names.blocks(self._stream, REPLICA), REPLICA, self._epoch, context.entropy
        )
        self._closers.append(self._blocks)
        self._timeline = context.entropy.token()

    def _check_begins(self, log_state: LogState) -> None:
        """Check that the log or the file says where the stream begins.

        Raises:
            ConfigurationError: neither does.
        """
        if log_state.rest_is_unread and not read_to(log_state.last(REPLICA)):
            raise missing_number(self._source)

    def step(self) -> None:
        """Run one round, or one wait for missing input. Takes at most about 100 ms if nothing can
        be read.
        """
        clock = self._context.clock
        if self._wait.why:
            clock.sleep_ms(_AWAITING_PAUSE_MS)
            if self._wait.is_due(clock.monotonic_ms()):
                self.start()
            else:
                self._report_awaited()
            return
        try:
            self._round()
        except InputAwaited as why:
            self._await_input(why)

    def _round(self) -> None:
        """Read once, advance the boundary by idle time, and do what is due periodically."""
        clock = self._context.clock
        wait_ms = self._append_next_ms - clock.monotonic_ms()
        if wait_ms > 0 and not self._batches.has_backlog():
            clock.sleep_ms(wait_ms)
        with without_collection():
            self._read()
        self._probe_idle()
        self._skip_hidden()
        for positions in self._others.new_positions():
            self._machine.receive(positions, clock.monotonic_ms())
        if self._machine.moves_unread(clock.monotonic_ms()):
            self._draft = self._draft_record()
            self._finish()
        self._check_periodically()
        self._recompute_server.step(self._epoch, self._topics.blocks, self._append_recomputed)
        self._choose_partitions()
        self._report()

    def _append_recomputed(self, record: Recomputed) -> None:
        """Name recomputed blocks in the boundary log, behind what is on its way there."""
        self._finish()
        self._boundaries.append_other(record)

    def _read(self) -> None:
        """Fetch and decode one batch and process it. If there is no backlog, wait until everything
        that was read is named by an accepted boundary record.
        """
        pieces: list[tuple[Batch, Decoded]] = []
        batches = self._batches
        batches.begin()
        while records_max := batches.fetch_max():
            try:
                chunks = self._reader.fetch(records_max, 0 if pieces else _FETCH_WAIT_MS)
            except AnabranchError:
                batches.failed()
                if not pieces and self._draft is None:
                    raise
                # What was read before the error is named first; the next round fails again.
                break
            piece = Batch.of([chunk for chunk in chunks if chunk.offsets])
            size_bytes = 0
            if piece.records:
                pieces.append((piece, self._decode(piece)))
                size_bytes = pieces[-1][1].size_bytes
            batches.fetched(piece.records, size_bytes)
        if pieces:
            crash_point("ingestion.fetched")
            # After the fetch: in a topic that was created again while this process was paused, the
            # position would name other records.
            self._check_identities()
            self._process(*joined(pieces))
        if not batches.has_backlog():
            self._finish()

    def _decode(self, batch: Batch) -> Decoded:
        """Return the rows of ``batch``, without event time, and the records that are none."""
        return _decoded(self._decoder, self._columns, batch)

    def _lookup(self, registry: SchemaRegistry | None, format_: str) -> SchemaOf | None:
        """Return what asks ``registry`` for schemas of a format; None: nothing does."""
        kind = FORMATS[format_].schema_kind
        if registry is None or kind is None:
            return None
        return partial(self._schema_of, registry, kind)

    def _schema_of(
        self, registry: SchemaRegistry, kind: SchemaKind, key: SchemaKey, /
    ) -> WriterSchema:
        """Return the schema of ``kind`` that ``registry`` holds under ``key``.

        Raises:
            UnknownSchema: the registry has no such schema, or had none a moment ago
                (``protocol.edge.schema_lookups``).
            Unavailable: the registry does not answer. The process ends, and the next one reads the
                same records again.
        """
        now_ms, logger = self._context.clock.monotonic_ms(), self._context.logger
        if why := self._lookups.answered_lately(key, now_ms):
            raise UnknownSchema(why)
        try:
            schema = registry.schema(key, kind)
        except UnknownSchema as error:
            pause_ms = self._lookups.unknown(key, str(error), now_ms)
            logger.warning(
                "the registry does not have a schema: its records become dead letters",
                schema=shown_key(key),
                asked_again_after_ms=pause_ms,
            )
            raise
        logger.info("schema_looked_up", schema=shown_key(key), was_unknown=self._lookups.found(key))
        return schema

    def stop(self) -> None:
        """Close everything that is open. Idempotent."""
        self._recompute_server.close()
        self._close()
        self._heartbeats.close()

    def _close(self) -> None:
        while self._closers:
            self._closers.pop().close()

    def _process(self, batch: Batch, decoded: Decoded) -> None:
        """Judge ``batch``, whose values are ``decoded``, and begin to write it: blocks are being
        sent, dead letters are queued, and the boundary record is drafted.
        """
        self._send_record()
        context, bucket_ms = self._context, self._pipeline.bucket_ms
        judged = judge(
            batch,
            decoded,
            self._source,
            self._machine.limits(context.clock.now_ms()),
            bucket_ms,
        )
        if self._batches.must_halve(batch.records, judged.table.num_rows, judged.buckets):
            for half in batch.halves():
                self._process(half, self._decode(half))
            return
        crash_point("ingestion.decoded")
        for number, why in judged.rejected:
            chunk, index = batch.locate(number)
            self._dead_letters.add(batch.chunks[chunk], index, why)
        self._note_unit(judged)
        now_ms = context.clock.monotonic_ms()
        self._machine.read(judged.facts, now_ms)
        self._machine.advance(now_ms)
        # Drafted now, sent later: the record must not claim what is read while its blocks are sent.
        self._draft = self._draft_record()
        self._blocks.begin(slices(judged.table, bucket_ms, self._topics.blocks))
        crash_point("ingestion.blocks_begun")
        self._count(batch, judged)

    def _draft_record(self) -> BoundaryRecord:
        """Return the boundary record of everything read so far, without its parts."""
        self._batch += 1
        return BoundaryRecord(
            replica=REPLICA,
            epoch=self._epoch,
            id=BatchId(self._timeline, self._batch),
            prev=None,
            closed=self._machine.closed,
            positions=self._machine.positions(),
            written_ms=self._context.clock.now_ms(),
            past=self._machine.past,
        )

    def _send_record(self) -> None:
        """Send the drafted boundary record, if there is one, once its blocks and dead letters are
        in the log. Does not wait until it is accepted.
        """
        draft = self._draft
        if draft is None:
            return
        parts: tuple[Part, ...] = ()
        for step in APPEND_ORDER:
            match step:
                case AppendStep.AWAIT_BLOCKS:
                    parts = self._blocks.finish()
                case AppendStep.AWAIT_RECORD:
                    self._await_accepted()
                case AppendStep.WRITE_DEAD_LETTERS:
                    self._dead_letters.flush()
                case AppendStep.SEND_RECORD:
                    crash_point("ingestion.blocks_written")
                    self._boundaries.send(replace(draft, prev=self._boundaries.tip(), parts=parts))
        self._draft = None
        self._machine.named()
        now_ms = self._context.clock.monotonic_ms()
        self._append_next_ms = now_ms + self._machine.append_pause_ms(now_ms)

    def _finish(self) -> None:
        """Send the drafted boundary record and wait until it is accepted."""
        self._send_record()
        self._await_accepted()

    def _await_accepted(self) -> None:
        """Wait until the boundary record in flight, if there is one, is seen accepted in the log.

        Raises:
            TooManyParts: it was rejected, since too many parts are open.
        """
        try:
            record = self._boundaries.await_accepted()
        except TooManyParts as error:
            holding = _names(self._machine.holding())
            raise TooManyParts(
                f"{error}: the boundary of source {self._stream} is held back by {holding}"
            ) from error
        if record is None:
            return
        crash_point("ingestion.boundary_appended")
        self._closed = record.closed
        self._boundaries.log_state.forget(self._closed)
        self._counts["boundary_records"] += 1

    def _probe_idle(self) -> None:
        """Probe the ends of idle partitions: whether they are really empty. Everything that was
        fetched must have been read.
        """
        clock = self._context.clock
        begun_ms = clock.monotonic_ms()
        due = [TopicPartition(*at) for at in self._machine.looks_due(begun_ms)]
        if not due:
            return
        ends = self._probe_reader.ends(due, LOOK_WAIT_MS)
        done_ms = clock.monotonic_ms()
        offsets = self._machine.offsets()
        for at in due:
            position = self._reader.position(at) if at in self._reading else offsets[at]
            # Without an answer the machine counts the partition as not probed.
            empty = position >= ends[at] if at in ends else None
            self._machine.looked(at, empty=empty, begun_ms=begun_ms, done_ms=done_ms)

    def _skip_hidden(self) -> None:
        """Move the positions past offsets that readers never see, as transaction markers (IN15)."""
        now_ms = self._context.clock.monotonic_ms()
        if self._draft is not None or now_ms < self._skip_next_ms:
            return
        self._skip_next_ms = now_ms + LOOK_EVERY_MS
        for at in self._reading:
            self._machine.skip_hidden(at, self._reader.position(TopicPartition(*at)))

    def _check_periodically(self) -> None:
        """Check, when due, whether a newer epoch has begun, whether the input topics have new
        partitions, and how far the readers are behind.

        Raises:
            Fenced: another process has begun a newer epoch.
            InputMissing: a topic was deleted, whether it was created again or not.
        """
        clock = self._context.clock
        self._check_identities()
        if clock.monotonic_ms() >= self._find_next_ms:
            self._boundaries.poll()
            self._boundaries.check_epoch()
            self._find_partitions()
            self._find_next_ms = clock.monotonic_ms() + FIND_PARTITIONS_EVERY_MS
        if clock.monotonic_ms() >= self._count_next_ms:
            self._count_kept()
            self._count_next_ms = clock.monotonic_ms() + COUNT_KEPT_EVERY_MS

    def _count_kept(self) -> None:
        """Count the blocks of closed buckets that are not deleted yet. Keeps the last count if the
        broker does not answer.
        """
        topic = self._pipeline.topic_names.blocks(self._stream, REPLICA)
        with contextlib.suppress(Unavailable):
            offsets = {
                i: self._probe_reader.offsets(TopicPartition(topic, i), LOOK_WAIT_MS)
                for i in range(self._topics.blocks)
            }
            open_parts = self._boundaries.log_state.pending(REPLICA)
            self._blocks_kept = blocks_left(
                offsets, ((part.partition, part.offset_first) for part in open_parts)
            )
            self._kept.labels(self._pipeline.name, self._stream).set(self._blocks_kept)

    def _check_identities(self) -> None:
        """Check, when due, that each input topic still has the id with which its positions are
        recorded. Does nothing if the broker does not answer.

        Raises:
            InputMissing: a topic was deleted, whether it was created again or not.
        """
        now_ms = self._context.clock.monotonic_ms()
        if now_ms >= self._identities_next_ms:
            self._awaited_input.check_identities(self._admin, self._topic_ids)
            self._identities_next_ms = now_ms + COMPARE_IDENTITIES_EVERY_MS

    def _find_partitions(self) -> None:
        """Add partitions that a topic has got since the last check, from their beginning. If the
        broker does not answer, the next check finds them.
        """
        clock, known = self._context.clock, self._machine.offsets()
        counts = {
            topic: self._probe_reader.partitions(topic, LOOK_WAIT_MS) or 0
            for topic in self._source.topics
        }
        for at in [
            TopicPartition(topic, i)
            for topic, count in counts.items()
            for i in range(count)
            if self._shard.has(i) and (topic, i) not in known
        ]:
            try:
                first, end = self._probe_reader.offsets(at, LOOK_WAIT_MS)
            except Unavailable:
                break
            self._machine.add(at, first, clock.monotonic_ms())
            self._context.logger.info(
                "found a partition", topic=at.topic, partition=at.partition, records=end - first
            )

    def _choose_partitions(self) -> None:
        """Assign the reader the partitions that the machine wants read now; log what changed."""
        machine, logger = self._machine, self._context.logger
        open_parts, was_full = self._boundaries.log_state.pending_count(REPLICA), machine.is_full
        was_pushed_back, was_stopped = machine.is_pushed_back, machine.is_stopped
        chosen = machine.to_read(open_parts, self._blocks_kept)
        if machine.is_pushed_back != was_pushed_back:
            reported = (
                "nothing is read: readers are too far behind"
                if machine.is_pushed_back
                else "the source reads again"
            )
            logger.warning(reported, blocks_kept=self._blocks_kept)
        if machine.is_stopped and not was_stopped:
            logger.error(
                "nothing is read: too much is open",
                open_parts=open_parts,
                remedy=_too_much_open(self._source, self._pipeline.bucket_ms),
            )
        if machine.is_full and not was_full:
            logger.warning(
                "too much is open: only what holds the boundary back is read",
                open_parts=open_parts,
                partitions=_names(chosen),
            )
        elif was_full and not machine.is_full:
            logger.info("all partitions are read again", open_parts=open_parts)
        if chosen != self._reading:
            offsets = machine.offsets()
            self._reading = chosen
            self._reader.assign(
                {TopicPartition(*at): offsets[at] for at in offsets if at in chosen}
            )

    def _count(self, batch: Batch, judged: Judged) -> None:
        """Add the batch to metrics and status counts."""
        metrics, labels = self._context.metrics, (self._pipeline.name, self._stream)
        metrics.count_in(batch.records, judged.size_bytes)
        metrics.count_out(judged.table.num_rows, judged.table.nbytes)
        if judged.late:
            self._late.labels(*labels).inc(judged.late)
        if judged.rejected:
            metrics.count_rejected(len(judged.rejected))
            reasons = [why.reason for _, why in judged.rejected]
            for reason in RejectionReason:
                if reason in reasons:
                    self._rejected.labels(*labels, reason.value).inc(reasons.count(reason))
        self._counts["records"] += batch.records
        self._counts["rejected"] += len(judged.rejected)
        self._counts["late"] += judged.late
        self._counts["reassigned"] += judged.reassigned
        self._counts["heartbeats"] += len(batch.heartbeats)

    def _note_unit(self, judged: Judged) -> None:
        """Note, once, that the event times of a source are as if of another unit."""
        newest_ms = max((fact.event_time_max_ms or 0 for fact in judged.facts), default=0)
        if self._wrong_unit or not newest_ms or self._source.event_time.field is None:
            return
        self._wrong_unit = wrong_unit(newest_ms, self._source.event_time.number_unit)
        if self._wrong_unit:
            self._context.logger.warning(
                "the unit of the event time may be wrong", why=self._wrong_unit
            )

    def _report(self) -> None:
        """Update the status and send a heartbeat."""
        clock, status = self._context.clock, self.status
        waiting = self._machine.waiting_for(clock.monotonic_ms())
        name = None if waiting is None else f"{waiting[0]}[{waiting[1]}]"
        status.state = "running" if name is None else "waiting"
        status.waiting_for = name
        if self._closed:
            status.last_bucket_ms = bound_ms(self._closed, self._pipeline.bucket_ms)
            status.lag_ms = clock.now_ms() - status.last_bucket_ms
            status.age_ms = self._context.metrics.closed(status.last_bucket_ms, clock.now_ms())
        unread = len(self._machine.offsets()) - len(self._reading)
        status.detail = {
            **self._counts,
            "epoch": self._epoch,
            "waiting_for": name,
            "held_back": unread,
            "rejected_kept_ms": self._topics.rejected_kept_ms,
            "event_time_ends_ms": self._machine.event_time_ends_ms(clock.monotonic_ms()),
            "pushed_back": self._machine.is_pushed_back,
            "too_much_open": self._machine.is_stopped,
            "wrong_unit": self._wrong_unit,
        }
        self._send_heartbeat(status.state)

    def _send_heartbeat(self, state: str) -> None:
        self._heartbeats.send(
            Heartbeat(
                "ingestion",
                self._stream,
                REPLICA,
                self._epoch,
                state,
                self._closed,
                written_ms=0,
                life=self._life,
            )
        )


def _decoded(decoder: Decoder | ChangeDecoder, columns: KafkaColumns, batch: Batch) -> Decoded:
    """Return the rows of ``batch``, without event time, and the records that are none."""
    return columns.add(batch, decoder.decode(batch.values(), batch.schema_ids()))


def _too_much_open(source: Source, bucket_ms: int) -> str:
    """Return how an operator can mend a source that has stopped because too much is open (IN16)."""
    return (
        f"out_of_orderness ({source.out_of_orderness_ms} ms) keeps too many buckets of"
        f" {bucket_ms} ms open: make it shorter and restart; a pipeline of another name can have"
        " wider buckets"
    )


def _names(partitions: Iterable[tuple[str, int]]) -> str:
    """Return the first few ``partitions``, and the number of the others, for a message."""
    names = [f"{topic}[{partition}]" for topic, partition in sorted(partitions)]
    return ", ".join(names[:_NAMES_MAX]) + (
        f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
    )


def _rules(pipeline: Pipeline, source: Source) -> SourceRules:
    return SourceRules(
        bucket_ms=pipeline.bucket_ms,
        out_of_orderness_ms=source.out_of_orderness_ms,
        partition_idle_ms=source.idle_timeout.partition_ms,
        source_idle_ms=source.idle_timeout.source_ms,
        bounded=source.bounded,
        max_ahead_ms=source.max_ahead_ms,
        shards=source.shards,
    )
