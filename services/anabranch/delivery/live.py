"""The live half of delivery: wiring of ``protocol.edge.live_delivery`` to topics (rules 19, 20).

It shares process and thread with the corrected half, but has a transactional id, a progress topic
and block readers of its own. Each step reads what the boundary log holds now, writes at most one
bounded transaction, and returns. Every uncertainty ends in a failover: a new transactional writer,
which fences all older ones, then the newest committed progress. An error here never stops the
corrected half, except that a newer process fences both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from typing import Final

from anabranch.codec import live_records
from anabranch.codec.catalog import BROKERS_OWN, topic_settings
from anabranch.delivery import live_read_back, output_topics, read_back
from anabranch.delivery.bucket_reader import BucketReader, Stable
from anabranch.delivery.counters import LiveCounters
from anabranch.delivery.live_writing import CompactedView, KindSequence, LiveForm, Piece
from anabranch.delivery.origins import refuse_shared
from anabranch.delivery.output_handover import EarlierOutputShards
from anabranch.delivery.rendering import Renderer, rejection_of
from anabranch.pipeline import waits
from anabranch.pipeline.control_topics import stage_control_topics
from anabranch.pipeline.model import Output
from anabranch.ports import LogAdmin, SchemaRegistry, TopicPartition, TransactionalWriter
from anabranch.process.crash_points import crash_point
from anabranch.process.cycle_collector import without_collection
from anabranch.process.frame import ServiceContext, ServiceStatus
from anabranch.protocol.control.failure_detector import FailureDetector
from anabranch.protocol.control.records import Heartbeat
from anabranch.protocol.edge.delivery import end_of, has_run
from anabranch.protocol.edge.delivery_failures import (
    PAUSES_MS,
    DeliveryFailure,
    UnknownOutcomes,
    failed_failover,
    rejected_size,
)
from anabranch.protocol.edge.live_choice import LiveChoice
from anabranch.protocol.edge.live_delivery import (
    Available,
    Failure,
    Kind,
    LiveDelivery,
    LiveProgress,
    LiveRun,
    fitting_bytes,
    live_begins_after,
    resumed,
)
from anabranch.protocol.edge.views import KeyState, UpsertView, ViewRecord
from anabranch.protocol.errors import (
    ConfigurationError,
    DataMissing,
    Fenced,
    LocalProtocolError,
    OutcomeUnknown,
    RecordTooLarge,
    Unavailable,
)
from anabranch.protocol.limits import MESSAGE_BYTES_DEFAULT
from anabranch.protocol.log.boundary_log import TentativeBucket
from anabranch.protocol.log.buckets import bound_ms
from anabranch.protocol.log.records import Part
from anabranch.protocol.stage.utility import FULL
from anabranch.streams.boundary_reader import BoundaryReader
from anabranch.streams.heartbeats import ControlReader

LIVE_CHUNK_ROWS: Final = 20_000
"""Maximum number of rows read and rendered at once for a live transaction. Bounds memory, not the
size of the transaction.
"""

_READ_BACK_MS: Final = 5_000
"""Timeout for reading back without a new record, in ms. Short, since it stops the corrected half.
"""


class _UnreadableError(Exception):
    """Raised when a tentative bucket cannot be read; it is left out from now on."""


class _ViewTooLargeError(Exception):
    """Raised when an upsert view does not fit into memory. The live topic waits; the corrected one
    continues.
    """


class LiveTopic:
    """Writer of one output's live topic, up to where ``following`` has read the boundary log. Not
    thread-safe.
    """

    def __init__(
        self,
        context: ServiceContext,
        output: Output,
        following: BoundaryReader,
        status: ServiceStatus,
        earlier: EarlierOutputShards,
        *,
        schemas: SchemaRegistry | None = None,
    ) -> None:
        """Keep the arguments; contact nothing. ``earlier`` knows the origin of the output's records
        and whether this process may write; ``schemas`` registers Avro schemas.
        """
        assert output.live is not None, f"{output.name} has no live topic"  # noqa: S101
        self._schemas = schemas
        self._context = context
        self._output = output
        self._sink = output.live
        self._following = following
        self._status = status
        self._earlier, self._origin = earlier, earlier.origin
        self._pipeline = context.pipeline
        self._progress_topic = self._pipeline.topic_names.live_progress(output.name)
        self._transactional_id = f"{self._pipeline.name}.{output.name}.live"
        self._replicas = self._pipeline.stream_writers(output.stage)
        self._detector = FailureDetector.of_replicas({output.stage: self._replicas})
        self._buckets = BucketReader(
            context.log, context.clock, self._pipeline, output, following, context.logger
        )
        self._control: ControlReader | None = None
        self._writer: TransactionalWriter | None = None
        self._machine: LiveDelivery | None = None
        self._form: LiveForm | None = None
        self._passed: int | None = None
        self._partitions = 0
        self._accepted_bytes = 0
        """Maximum size of a record by the topic's setting, in bytes."""
        self.left_out = 0
        """Number of records left out because the topic rejects their size."""
        self.has_delivered: bool | None = None
        """Whether any process has delivered anything; None if not known yet."""
        self.waits_for_blocks = False
        """Whether it waits for stable buckets of which no replica has all blocks."""
        self._fitting_bytes: int | None = None
        """Size above which records are left out, in bytes. None until the topic has rejected one:
        compression may make a large record small enough.
        """
        self._choice = LiveChoice(
            waits.waits(self._pipeline, output.stage),
            waits.policy(self._pipeline, output.stage),
            waits.output_wait_ms(self._pipeline, output.name),
        )
        self._is_lost = False
        """Whether the topic can never continue: the log does not describe its next bucket."""
        self._retry_at_ms = 0
        self._unknown = UnknownOutcomes()
        self._read_back_until_ms = 0
        self._counters = LiveCounters(context.registry, self._pipeline.name, output.name)
        self._qos = waits.qos_of(self._pipeline, output.name)
        self._shed = 0
        """Per mille of the rows that the newest tentative bucket in the topic lacks."""

    # -- interface to the service
    # ----------------------------------------------------------------------------------------------

    @property
    def is_begun(self) -> bool:
        """Whether a committed record says where the live topic begins."""
        return self._passed is not None

    @property
    def passed(self) -> int:
        """Last stable bucket that the live topic no longer needs: all, if it cannot continue."""
        return self._following.log_state.upto if self._is_lost else self._passed or 0

    @property
    def wait_ms(self) -> int | None:
        """Time until a delayed bucket is due, in ms; None if none is delayed."""
        return self._choice.hold_ms or None

    def start(self) -> None:
        """Check the topics and fence the older writer.

        Raises:
            ConfigurationError: a topic has wrong settings.
            Fenced: a process that began after this one fenced it.
        """
        admin = self._context.log.admin()
        try:
            self._partitions = self._check_topics(admin)
        finally:
            admin.close()
        self._control = ControlReader(
            self._context.log, stage_control_topics(self._pipeline, self._output.stage)
        )
        self._try_to_fail_over()

    def restart(self) -> None:
        """Fail over again at once: where the output begins was recorded only now, and nothing is
        written here yet.
        """
        self._close_writer()
        self._passed = None
        self._retry_at_ms = 0

    def step(self) -> bool:
        """Write at most one transaction, or try to fail over. Return whether the next step is worth
        taking at once, without waiting for boundary records.

        Raises:
            Fenced: a process that began after this one fenced it.
        """
        if self._machine is None:
            if self._context.clock.monotonic_ms() >= self._retry_at_ms:
                self._try_to_fail_over()
            return False
        self._report_utility(self._machine.progress)
        run = self._next_run(self._machine)
        if run is None:
            return False
        try:
            with without_collection():
                self._transact(self._machine, run)
        except _UnreadableError:
            return True
        except OutcomeUnknown as error:
            self._counters.unknown.inc()
            self._delay(error, self._unknown.another())
            return False
        except RecordTooLarge as error:
            self._fitting_bytes = fitting_bytes(self._fitting_bytes, self._accepted_bytes)
            self._delay(error, rejected_size(self._fitting_bytes))
            return False
        except (Unavailable, DataMissing) as error:
            self.waits_for_blocks = isinstance(error, DataMissing)
            self._delay(error, DeliveryFailure.REJECTED)
            return False
        except ConfigurationError as error:
            self._delay(error, DeliveryFailure.TOO_LARGE)
            return False
        self._unknown.settled()
        return True

    def stop(self) -> None:
        """Close everything that is open; an open transaction is aborted. Idempotent."""
        self._close_writer()
        self._buckets.close()
        if self._control is not None:
            self._control.close()

    # -- failover
    # ----------------------------------------------------------------------------------------------

    def _check_topics(self, admin: LogAdmin) -> int:
        """Create missing topics, check their settings; return the live topic's partitions."""
        topic, sink = self._sink.topic, self._sink
        made = topic_settings(
            "live_upsert" if sink.upsert else "live",
            topic,
            sink.partitions or self._pipeline.partitions,
            BROKERS_OWN,
            sink.topic_config,
        )
        ours = [topic_settings("live_progress", self._progress_topic, 1, BROKERS_OWN)]
        count, settings = output_topics.prepare(admin, self._output.name, sink, made, ours)
        policy = settings.get("cleanup.policy", "delete")
        self._accepted_bytes = int(settings.get("max.message.bytes", MESSAGE_BYTES_DEFAULT))
        if sink.upsert and policy != "compact":
            raise ConfigurationError(
                f"output {self._output.name}: topic {topic} has cleanup.policy={policy}; an upsert"
                " view keeps its state in its topic: set cleanup.policy=compact"
            )
        if not sink.upsert and "compact" in policy:
            raise ConfigurationError(
                f"output {self._output.name}: topic {topic} has cleanup.policy={policy}, which"
                " would remove parts of the sequence: set cleanup.policy=delete, or ask for a"
                " compacted view with `upsert: true`"
            )
        return count

    def _try_to_fail_over(self) -> None:
        """Fail over, or schedule another attempt if the broker or the view does not allow it."""
        try:
            self._fail_over()
        except (OutcomeUnknown, Unavailable) as error:
            self._delay(error, failed_failover(is_lost=self._is_lost))
        except _ViewTooLargeError as error:
            self._delay(error, DeliveryFailure.TOO_LARGE)

    def _delay(self, error: Exception, failure: DeliveryFailure) -> None:
        """Close the writer, report ``error``, and schedule the failover after ``failure``."""
        self._status.detail["live"] = f"waiting: {error}"
        self._counters.waiting.set(1)
        self._context.logger.warning("live_delayed", output=self._output.name, error=str(error))
        self._close_writer()
        self._retry_at_ms = self._context.clock.monotonic_ms() + PAUSES_MS[failure]

    def _fail_over(self) -> None:
        """Fence older writers, then read the boundary log to its end, the newest committed
        progress, and the state of an upsert view.

        Raises:
            OutcomeUnknown, Unavailable: the broker did not answer, or the live topic cannot begin
                yet; try again.
            _ViewTooLargeError: the upsert view does not fit into memory.
        """
        log, name = self._context.log, self._output.name
        self._earlier.check_live()
        self._writer = log.transactional_writer(self._transactional_id)
        crash_point("live.fenced")
        # Again: a new shard may have ended this process between the check and the fence.
        self._earlier.check_live()
        self._read_back_until_ms = self._context.clock.monotonic_ms() + _READ_BACK_MS
        self._following.read_to_end()
        progress = live_read_back.last_live_progress(
            log, self._progress_topic, name, self._origin.life, self._wait_for
        )
        self.has_delivered = progress is not None and progress.sequence > 0
        if progress is None or not self.has_delivered:  # more may be deleted since it began
            if progress is None:
                topic, count = self._sink.topic, self._partitions
                found = live_read_back.newest_origins(log, topic, count, self._wait_for)
                refuse_shared(log, self._origin, topic, found)
            progress = self._begin(self._writer, progress)
        if progress.stable < (forgotten := self._following.log_state.forgotten):
            self._is_lost, self.waits_for_blocks = True, False
            raise Unavailable(
                f"buckets {progress.stable + 1}..{forgotten} of {self._output.stage} are trimmed,"
                " and its boundary log no longer describes them: the live topic cannot continue."
                " Deliver to new topics, under a new output name: it begins with what is retained"
            )
        machine, self._passed = LiveDelivery(resumed(progress, self._partitions)), progress.stable
        missing_of = self._following.log_state.given_up.names
        renderer = Renderer(
            name, self._sink, self._partitions, self._origin, registry=self._schemas
        )
        renderer.may_reject = rejection_of(
            self._pipeline, self._output.stage, self._following.log_state
        )
        if self._sink.upsert:
            view = self._restored_view(self._writer, renderer, is_new=progress.sequence == 0)
            self._form = CompactedView(renderer, view, self._fitting_bytes, missing_of)
        else:
            width_ms = self._pipeline.bucket_ms
            self._form = KindSequence(renderer, width_ms, self._fitting_bytes, missing_of)
        self._machine = machine
        self._status.detail["live"] = "running"
        self._counters.waiting.set(0)
        self._context.logger.info(
            "live_failed_over",
            output=name,
            sequence=progress.sequence,
            stable=progress.stable,
            shown=progress.shown,
            undone=progress.undone,
        )

    def _restored_view(
        self, writer: TransactionalWriter, renderer: Renderer, *, is_new: bool
    ) -> UpsertView:
        """Return the view that the topic holds. If the output ``is_new``, first deletes the keys of
        earlier lives from the topic: nothing in this life would ever correct them. After a crash
        the next failover deletes the rest.
        """
        view = UpsertView(self._output.name)
        try:
            restored = live_read_back.restore(
                self._context.log, renderer, view, self._origin, self._wait_for
            )
        except ConfigurationError as error:
            raise _ViewTooLargeError(str(error)) from error
        left = sorted(restored.left_over) if is_new else []
        for at in range(0, len(left), LIVE_CHUNK_ROWS):
            writer.begin()
            for partition, key in left[at : at + LIVE_CHUNK_ROWS]:
                value, headers = live_records.upsert(
                    ViewRecord(key, Kind.UNDO, KeyState()), self._origin
                )
                writer.send(TopicPartition(self._sink.topic, partition), value, key, headers)
            writer.commit()
        self._status.detail.update(
            live_keys=len(view), live_foreign_records=restored.foreign.records
        )
        return view

    def _begin(self, writer: TransactionalWriter, begun: LiveProgress | None) -> LiveProgress:
        """Record where the live topic begins, and return that progress.

        A new live topic begins where the corrected one is: at the stream's beginning, unless it was
        added to an older output, or the output begins late. ``begun`` is its progress if that was
        recorded before and nothing has been written since.

        Raises:
            Unavailable: the output begins late, and its corrected half has not recorded where.
        """
        log, names = self._context.log, self._pipeline.topic_names
        first = self._output.processes()[0]  # the shard whose process this is
        corrected = read_back.last_progress(
            log, names.progress(first), first, self._origin.life, self._wait_for
        )
        if corrected is None and self._buckets.gone_upto():
            message = f"output {self._output.name} has not recorded yet where it begins"
            raise Unavailable(message)
        stable = live_begins_after(
            0 if corrected is None else end_of(corrected).bucket - 1,
            self._following.log_state.forgotten,
            None if begun is None else begun.stable,
            has_delivered=has_run(corrected),
        )
        if begun is not None and stable == begun.stable:
            return begun
        progress = LiveProgress(
            self._output.name,
            self._partitions,
            sequence=0,
            stable=stable,
            written_ms=self._context.clock.now_ms(),
            life=self._origin.life,
        )
        writer.begin()
        self._send_progress(writer, progress)
        writer.commit()
        return progress

    def _wait_for(self, text: str | None) -> None:
        """Bound the time of reading back (``read_back.Waiting``).

        Raises:
            Unavailable: no record arrived for _READ_BACK_MS, or the process is stopping.
        """
        now_ms = self._context.clock.monotonic_ms()
        if self._context.stopping.is_set():
            raise Unavailable(text or "this process is stopping")
        if text is None:
            self._read_back_until_ms = now_ms + _READ_BACK_MS
        elif now_ms >= self._read_back_until_ms:
            raise Unavailable(text)

    def _close_writer(self) -> None:
        """Close the writer, aborting an open transaction; the next step fails over. Idempotent."""
        self._machine, self._form = None, None
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()

    # -- available buckets
    # ----------------------------------------------------------------------------------------------

    def _next_run(self, machine: LiveDelivery) -> LiveRun | None:
        """Return the next transaction; None if there is none yet."""
        run = machine.plan(self._available(machine.progress))
        if run is None or not run.begins_failure:
            return run
        # The clock alone may have ended a wait, while this process was paused: what has arrived
        # since decides whether there is a failure to show (LD8).
        try:
            self._following.read_to_end()
        except Unavailable:
            return None  # the next round tries again
        return machine.plan(self._available(machine.progress))

    def _available(self, now: LiveProgress) -> Available:
        """Return the buckets after ``now`` that the boundary log holds, as far as it is read."""
        self._poll_heartbeats()
        stage, now_ms = self._output.stage, self._context.clock.monotonic_ms()
        return self._choice.available(
            now,
            self._following.log_state,
            self._detector.states(stage, now_ms),
            self._detector.silent(stage, now_ms),
            now_ms,
        )

    def _poll_heartbeats(self) -> None:
        """Pass the replicas' new heartbeats to the failure detector."""
        if self._control is None:
            return
        entries, now_ms = self._control.poll(0), self._context.clock.monotonic_ms()
        for entry in entries:
            if isinstance(entry, Heartbeat):
                self._detector.receive(entry, now_ms)
        self._detector.look(now_ms)

    # -- a transaction
    # ----------------------------------------------------------------------------------------------

    def _transact(self, machine: LiveDelivery, run: LiveRun) -> None:
        """Write ``run`` and its progress in one transaction, and advance ``machine``.

        Raises:
            _UnreadableError: a tentative bucket cannot be read; the transaction was aborted.
            Fenced: another process writes the live topic.
            OutcomeUnknown, RecordTooLarge, Unavailable, DataMissing: fail over before the next.
        """
        writer, form = self._writer, self._form
        if writer is None or form is None:
            raise LocalProtocolError("a live transaction before the failover")
        try:
            writer.begin()
            form.write(writer, run, self._pieces(run))
            crash_point("live.records_sent")
            self._send_progress(writer, replace(run.after, written_ms=self._context.clock.now_ms()))
            crash_point("live.progress_sent")
            writer.commit()
            crash_point("live.committed")
        except _UnreadableError:
            writer.abort()
            raise
        except Fenced as error:
            raise Fenced(
                f"output {self._output.name}: another process delivers its live topic: {error}"
            ) from error
        form.committed()
        machine.advance(run)
        self._passed = run.after.stable
        self.has_delivered = True
        self.waits_for_blocks = False
        self._counters.transactions.inc()
        self._counters.undos.inc(run.undo)
        self._counters.left_out.inc(form.left_out)
        self.left_out += form.left_out
        self._counters.failures.inc(run.before.shown == 0 and run.after.shown > 0)
        if run.rec_done:
            self._buckets.close_tentative()
        self._report(run.after)

    def _pieces(self, run: LiveRun) -> Iterator[Piece]:
        """Yield the rows of the buckets of ``run``, read in portions of bounded size."""
        log_state = self._following.log_state
        if run.stable:
            wanted = log_state.stable(run.before.stable + 1, run.stable[-1])
            for some in _portions(wanted):
                for each in self._buckets.stable(some):
                    self._counters.stable_rows.inc(each.table.num_rows)
                    yield Piece(each.slices, each.table)
        shown = [self._choice.again(log_state, number) for number in run.again]
        shown += [self._choice.new(log_state, number) for number in run.tentative]
        found = [bucket for bucket in shown if bucket is not None]
        if found:
            self._shed = found[-1].shed
        for _, group in groupby(
            found, key=lambda each: (each.replica, each.branch, each.missing, each.shed)
        ):
            alike = list(group)
            for portion in _portions(
                [(bucket.bucket, bucket.replica, bucket.parts) for bucket in alike]
            ):
                yield from self._tentative_pieces(alike[0], portion)

    def _tentative_pieces(self, like: TentativeBucket, portion: Stable) -> Iterator[Piece]:
        """Yield the rows of ``portion``, buckets of one branch. If they cannot be read together,
        reads them one by one to find the unreadable one.

        Raises:
            _UnreadableError: a bucket cannot be read; it is excluded from now on.
        """
        try:
            found = self._buckets.tentative(
                like.replica, [(bucket, parts) for bucket, _, parts in portion]
            )
        except DataMissing as error:
            if len(portion) > 1:
                for one in portion:
                    yield from self._tentative_pieces(like, [one])
                return
            bucket = portion[0][0]
            self._context.logger.warning(
                "tentative_unreadable",
                output=self._output.name,
                replica=like.replica,
                bucket=bucket,
                error=str(error),
            )
            self._choice.cannot_be_read(like.replica, bucket, like.branch)
            raise _UnreadableError from error
        for each in found:
            self._counters.tentative_rows.inc(each.table.num_rows)
            yield Piece(each.slices, each.table, like.branch, like.missing, like.shed)

    def _send_progress(self, writer: TransactionalWriter, progress: LiveProgress) -> None:
        """Send ``progress`` to its topic in the open transaction."""
        value = live_records.encode_progress(progress)
        writer.send(TopicPartition(self._progress_topic, 0), value, self._output.name.encode())

    def _report_utility(self, now: LiveProgress) -> None:
        """Update the utility of what the topic shows. Without new buckets it falls as time passes:
        the next bucket has at least the delay from its end until now.
        """
        next_ms = bound_ms(max(now.shown, now.stable) + 1, self._pipeline.bucket_ms)
        shed = self._shed if now.shown > now.stable else 0
        utility = self._qos.utility(self._context.clock.now_ms() - next_ms, shed)
        self._counters.utility.set(utility / FULL)
        self._status.detail["live_utility"] = utility

    def _report(self, now: LiveProgress) -> None:
        """Update the live half's entries of the status."""
        width_ms = self._pipeline.bucket_ms
        self._status.detail.update(
            live_stable_ms=bound_ms(now.stable, width_ms),
            live_shown_ms=bound_ms(max(now.shown, now.stable), width_ms),
            live_failure=now.failure is not Failure.NONE,
            live_left_out=self.left_out,
        )


def _rows(parts: tuple[Part, ...]) -> int:
    return sum(part.rows for part in parts)


def _portions(wanted: Stable) -> Iterator[Stable]:
    """Yield ``wanted`` in portions of about LIVE_CHUNK_ROWS rows; buckets stay whole."""
    some: Stable = []
    rows = 0
    for bucket in wanted:
        if some and rows + _rows(bucket[2]) > LIVE_CHUNK_ROWS:
            yield some
            some, rows = [], 0
        some.append(bucket)
        rows += _rows(bucket[2])
    if some:
        yield some
