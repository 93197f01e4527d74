"""The delivery service: wiring of ``protocol.edge.delivery`` to topics, and beside it, where the
output has one, of the live topic.

A round follows the boundary log, plans the next run of stable buckets, reads, sorts and encodes
their rows, and writes records and a progress record in one transaction. Every uncertainty (a start,
an unknown outcome, a broker that does not answer) ends in ``_fail_over``: a new transactional
writer, which fences all older ones, then reading back what is in the topics. A process that is
fenced ends: a newer one delivers.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from itertools import takewhile
from typing import Final

from anabranch.codec import control_records
from anabranch.codec.catalog import BROKERS_OWN, topic_settings
from anabranch.codec.topic_rules import wrong_for_rejected
from anabranch.delivery import other_shards, output_topics, read_back, rejected
from anabranch.delivery.bucket_reader import BucketReader, Stable
from anabranch.delivery.counters import CorrectedCounters
from anabranch.delivery.live import LiveTopic
from anabranch.delivery.notices import is_counted, rejected_bytes
from anabranch.delivery.origins import own_origin, refuse_shared
from anabranch.delivery.output_handover import EarlierOutputShards, transactional_id
from anabranch.delivery.rendering import Ordered, Records, Renderer, only_rows, rejection_of
from anabranch.pipeline.model import Output
from anabranch.ports import LogAdmin, SchemaRegistry, TopicPartition, TransactionalWriter
from anabranch.process.crash_points import crash_point
from anabranch.process.cycle_collector import without_collection
from anabranch.process.frame import ServiceContext, ServiceStatus
from anabranch.process.settings import ServiceSettings
from anabranch.protocol.control.records import DeliveryProgress, Heartbeat
from anabranch.protocol.edge.delivery import (
    BEGINNING,
    REJECTED,
    CorrectedDelivery,
    Form,
    Lack,
    Run,
    Slice,
    has_run,
    live_asks,
    output_begins_after,
    rows_bound,
    shard_begins_after,
)
from anabranch.protocol.edge.delivery_failures import PAUSES_MS, DeliveryFailure, UnknownOutcomes
from anabranch.protocol.edge.origins import other_outputs
from anabranch.protocol.errors import (
    ConfigurationError,
    DataMissing,
    Fenced,
    OutcomeUnknown,
    RecordTooLarge,
    Unavailable,
)
from anabranch.protocol.identifiers import RecordId
from anabranch.protocol.limits import DELIVERY_BUCKETS_MAX
from anabranch.protocol.log.buckets import bound_ms
from anabranch.protocol.log.records import Part
from anabranch.streams.block_heads import BlockHeads
from anabranch.streams.boundary_reader import BoundaryReader
from anabranch.streams.gone_blocks import gone_range
from anabranch.streams.heartbeats import HeartbeatSender
from anabranch.streams.recompute_client import RecomputeClient
from anabranch.streams.stream_logs import open_stream

BESIDE_LIVE_ROWS_MAX: Final = 3_000
"""Maximum number of rows in one transaction of the corrected topic while the process also serves a
live topic. A live result may have to wait for one such transaction, about 20 ms.
"""

_POLL_MS: Final = 100
"""Time that a round waits for boundary records when it has nothing to deliver, in ms."""
_REQUEST_MS: Final = 1_000
"""Interval between requests for missing blocks, in ms."""


def build(
    settings: ServiceSettings,
    context: ServiceContext,
    open_registry: Callable[[str], SchemaRegistry] | None = None,
) -> DeliveryService:
    """Build the service for the output, or shard of one, that ``settings.name`` names.
    ``open_registry`` connects to the schema registry, for pipelines that name one.

    Raises:
        ConfigurationError: the pipeline has no such output.
    """
    deliveries = context.pipeline.deliveries()
    output = deliveries.get(settings.name)
    if output is None:
        known = ", ".join(deliveries)
        raise ConfigurationError(
            f"--name {settings.name}: the pipeline {context.pipeline.name} has no such output; it"
            f" has {known}"
        )
    url, registry = context.pipeline.schema_registry, None
    if url is not None and open_registry is not None:
        registry = open_registry(url)
    return DeliveryService(context, output, settings.name, registry)


class _StoppingError(Exception):
    """Raised when a shutdown signal arrives while a failover waits."""


class DeliveryService:
    """Writer of one output's topics, or of one shard's part of them. Writes the corrected topic
    itself and the live one through ``delivery.live``. See ``process.frame.Service``.
    """

    def __init__(
        self,
        context: ServiceContext,
        output: Output,
        process: str,
        registry: SchemaRegistry | None = None,
    ) -> None:
        """Keep the arguments; contact nothing. ``process`` is the name of the output or shard."""
        self._registry = registry
        self._name, self._shard = process, output.shard(process)
        self.status = ServiceStatus()
        self._context = context
        self._output = output
        self._pipeline = context.pipeline
        names = self._pipeline.topic_names
        self._topic, self._rejected_topic = output.corrected.topic, output.rejected
        self._progress_topic = names.progress(process)
        self._transactional_id = transactional_id(self._pipeline.name, process)
        self._earlier: EarlierOutputShards | None = None
        self._boundaries: BoundaryReader | None = None
        self._buckets: BucketReader | None = None
        self._live: LiveTopic | None = None
        self._writer: TransactionalWriter | None = None
        self._delivery: CorrectedDelivery | None = None
        self._partitions = self._rejected_partitions = 0
        self._unknown = UnknownOutcomes()
        self._retry_at_ms = 0
        self._one_by_one = False
        """Whether the next run has one bucket, since one of the last run's is damaged."""
        self._request_at_ms = 0
        self._rejected_count = 0
        self._split: tuple[int, list[Ordered]] | None = None
        self._passed_before = 0
        """Last bucket passed before the present failover began."""
        self._lost = ""
        """Reason for which the corrected half can never continue; empty: it can."""
        self._life = ""
        self._heartbeats = HeartbeatSender(
            context.log, names.control("delivery", process), context.clock
        )
        self._recompute_client = RecomputeClient(context, f"delivery.{process}", (output.stage,))
        self._counters = CorrectedCounters(context.registry, self._pipeline.name, process)

    def start(self) -> None:
        """Check the topics, open the stage's boundary log, and fence the older writer.

        Raises:
            ConfigurationError: a topic has wrong settings.
            Unavailable: the stage has no topic yet, or the broker does not answer.
        """
        context, stage = self._context, self._output.stage
        origin = own_origin(context.log, self._pipeline, self._output)
        admin = context.log.admin()
        try:
            earlier = self._earlier = EarlierOutputShards(
                context, self._output, self._name, self._wait_for, origin
            )
            self._partitions = self._check_topics(admin, earlier)
        finally:
            admin.close()
        self._life = origin.life
        following = open_stream(context.log, self._pipeline, stage)
        self._boundaries = following
        self._buckets = BucketReader(
            context.log, context.clock, self._pipeline, self._output, following, context.logger
        )
        if self._output.live is not None and self._shard.index == 0:
            self._live = LiveTopic(
                context,
                self._output,
                following,
                self.status,
                earlier,
                schemas=self._registry,
            )
            self._live.start()
        self._renderer = Renderer(
            self._output.name,
            self._output.corrected,
            self._partitions,
            origin,
            registry=self._registry,
            shard=self._shard,
        )
        self._renderer.may_reject = rejection_of(self._pipeline, stage, following.log_state)
        self._try_to_fail_over()

    def step(self) -> None:
        """Run one round: at most one transaction of each half. Takes about 100 ms if there is
        nothing to deliver.

        Raises:
            Fenced: another process delivers this output.
            OutcomeUnknown: UNKNOWN_MAX transactions in a row had an unknown outcome.
        """
        busy = False
        self._send_heartbeat()
        if self._live is not None:
            # Poll first: records that arrived during the corrected half's transaction reach the
            # live topic now, not a round later.
            self._following().poll(0)
            busy = self._live.step()
            self._request_live_blocks(self._live)
        if self._delivery is None:
            if self._context.clock.monotonic_ms() >= self._retry_at_ms:
                # Keep reading, however long failovers fail: the log may be trimmed.
                self._following().poll(0)
                self._try_to_fail_over()
            else:
                self._following().poll(0 if busy else self._wait_ms())
            return
        if self._delivery.cursor.bucket <= self._following().log_state.forgotten:
            self._report_trimmed(self._delivery)
            return
        run, stable = self._next_run(self._delivery)
        if run is None:
            self._report(self._delivery)
            self._following().poll(0 if busy else self._wait_ms())
            return
        try:
            with without_collection():
                self._deliver(self._delivery, run, stable)
        except DataMissing as error:
            self._request_blocks(self._delivery, error, len(run.slices))
            return
        except Unavailable as error:
            self._delay(error, DeliveryFailure.REJECTED)
            return
        except OutcomeUnknown as error:
            self._counters.unknown.inc()
            self._context.logger.warning(
                "outcome_unknown",
                output=self._name,
                first=str(run.first),
                next=str(run.next),
                error=str(error),
            )
            self._close_writer()
            self._unknown.another()
            if self._unknown.are_too_many:
                raise
            return
        self._unknown.settled()
        self._one_by_one = False
        if self._live is None or not self._live.waits_for_blocks:
            self._recompute_client.stop_requesting()
        self.status.state, self.status.waiting_for = "running", None
        self._report(self._delivery)
        self._following().poll(0)

    def stop(self) -> None:
        """Close everything that is open; an open transaction is aborted. Idempotent."""
        self._close_writer()
        self._heartbeats.close()
        self._recompute_client.close()
        for opened in (self._live, self._buckets, self._boundaries):
            if isinstance(opened, LiveTopic):
                opened.stop()
            elif opened is not None:
                opened.close()

    def _request_blocks(
        self, delivery: CorrectedDelivery, error: DataMissing, buckets: int
    ) -> None:
        """Request the recomputation of blocks that the next run, of so many ``buckets``, needs and
        no replica has (DE9). If nothing was delivered yet, fail over instead, to begin after them.
        Blocks that exist and differ from the boundary log are read again after a while: no process
        could deliver them, and the live half continues.

        Raises:
            Fenced: another process has replaced this one and delivered those buckets.
        """
        try:
            progress = self._last_progress()
        except (Unavailable, _StoppingError):
            return  # the next round tries again
        stage, gone = self._output.stage, self._gone_after(delivery.cursor.bucket - 1)
        lack = delivery.without_blocks(
            progress, gone, self._reader().gone_upto, live_has_any=self._live_has_any()
        )
        if lack is Lack.REPLACED:
            message = f"output {self._name}: another process delivers it, beyond {delivery.cursor}"
            raise Fenced(message)
        if lack is Lack.LEFT_OUT:
            self._close_writer()  # the next failover begins after the missing blocks
            return
        if lack is Lack.DAMAGED or gone is None:
            if buckets > 1:
                self._one_by_one = True  # the buckets before the damaged one are delivered
                return
            self._context.logger.error("blocks_damaged", output=self._name, error=str(error))
            self._delay(error, DeliveryFailure.REJECTED)
            return
        if self._live is not None and self._live.waits_for_blocks:  # one request for both halves
            gone = self._gone_after(min(delivery.cursor.bucket - 1, self._live.passed)) or gone
        reported = self._recompute_client.ask({stage: gone})
        self.status.state, self.status.waiting_for = (
            "waiting",
            f"blocks of {stage} from bucket {gone[0]} on, which are deleted: {reported}",
        )
        self._following().poll(_REQUEST_MS)

    def _request_live_blocks(self, live: LiveTopic) -> None:
        """Request missing blocks that the live half needs, unless the corrected half requests them
        itself.
        """
        now_ms, delivery = self._context.clock.monotonic_ms(), self._delivery
        if not live.waits_for_blocks or now_ms < self._request_at_ms:
            return
        self._request_at_ms = now_ms + _REQUEST_MS
        delivered = None if delivery is None else delivery.cursor.bucket - 1
        if not live_asks(delivered, live.passed, has_any=bool(live.has_delivered)):
            return
        gone = self._gone_after(live.passed)
        if gone is not None:
            self._recompute_client.ask({self._output.stage: gone})

    def _gone_after(self, bucket: int) -> tuple[int, int] | None:
        """Return the first and last bucket after ``bucket`` of which blocks are gone; None if there
        is none. Blocks of as many buckets as a run may have are proven to be there: the run that
        could not be read is among them.
        """
        stage, names, log = self._output.stage, self._pipeline.topic_names, self._context.log
        reader, heads = (
            log.reader(committed=False, headers=False),
            BlockHeads(log, self._context.clock),
        )
        with closing(reader), closing(heads):
            return gone_range(
                reader,
                lambda replica: names.blocks(stage, replica),
                self._following().log_state,
                bucket,
                heads=heads,
                proven_max=DELIVERY_BUCKETS_MAX,
            )

    def _live_has_any(self) -> bool:
        """Return whether anything was delivered to the live topic.

        Raises:
            Unavailable: that is not known before the live half has failed over.
        """
        if self._live is None:
            return False
        if self._live.has_delivered is None:
            message = f"the live topic of output {self._output.name} has not been read back yet"
            raise Unavailable(message)
        return self._live.has_delivered

    def _report_trimmed(self, delivery: CorrectedDelivery) -> None:
        """Report and wait: the next buckets were trimmed, and the boundary log no longer describes
        them. They cannot be requested, and delivery never skips rows. Nothing that comes now is
        ever read here, so neither this process nor the stream's topics keep it.
        """
        if not self._lost:
            self._lost = (
                f"buckets {delivery.cursor.bucket}..{self._following().log_state.forgotten} of"
                f" {self._output.stage}, which are trimmed since all other readers have passed"
                " them: this output was not running for longer than a day. It holds nothing back"
                " any more, and cannot continue. Take it out of the pipeline file: an output under"
                " another name, to new topics, begins with what is retained; a pipeline under"
                " another name reads the input from the beginning"
            )
            self._context.logger.error("buckets_trimmed", output=self._name, waiting_for=self._lost)
        self.status.state, self.status.waiting_for = "waiting", self._lost
        self._following().log_state.forget(self._passed)
        self._following().poll(_REQUEST_MS)

    def _send_heartbeat(self) -> None:
        """Report state and progress. Buckets that no failover reads again may then be trimmed."""
        delivered = 0 if self._delivery is None else self._delivery.cursor.bucket - 1
        heartbeat = Heartbeat(
            "delivery",
            self._name,
            "0",
            -1,
            self.status.state,
            delivered,
            written_ms=0,
            checkpoint_bucket=self._passed,
            rejected=self._rejected_count + (0 if self._live is None else self._live.left_out),
            life=self._life,
        )
        self._heartbeats.send(heartbeat)

    def _check_topics(self, admin: LogAdmin, shards: EarlierOutputShards) -> int:
        """Create missing topics and check all; return the output topic's number of partitions."""
        sink, processes = self._output.corrected, self._output.processes()
        wanted = self._output.partitions_wanted(self._pipeline.partitions)
        topic = topic_settings("output", self._topic, wanted, BROKERS_OWN, sink.topic_config)
        earlier = self._output.earlier_processes() if self._name == processes[0] else []
        progress = map(
            self._pipeline.topic_names.progress,
            dict.fromkeys((self._name, processes[0], *earlier)),
        )
        ours = [
            *(topic_settings("progress", each, 1, BROKERS_OWN) for each in progress),
            topic_settings("rejected", self._rejected_topic, len(processes), BROKERS_OWN),
        ]
        count, settings = output_topics.prepare(admin, self._output.name, sink, topic, ours)
        policy = settings.get("cleanup.policy", "delete")
        if "compact" in policy:
            raise ConfigurationError(
                f"output {self._output.name}: topic {self._topic} has cleanup.policy={policy}; the"
                " corrected topic must not be compacted, since recovery compares the ids in it:"
                " set cleanup.policy=delete"
            )
        if wrong := wrong_for_rejected(self._rejected_topic, admin.settings(self._rejected_topic)):
            raise ConfigurationError(f"output {self._output.name}: {wrong}")
        shards.check_runs()
        other_shards.check_unknown_progress(self._context.log, admin, self._pipeline, self._output)
        self._rejected_partitions = other_shards.check_partitions(admin, self._output, count)
        return count

    @property
    def _passed(self) -> int:
        """Last bucket that neither half, nor a process that replaces this one, reads again."""
        passed = self._passed_before if self._delivery is None else self._delivery.passed
        if self._lost:
            passed = self._following().log_state.upto
        return passed if self._live is None else min(passed, self._live.passed)

    def _following(self) -> BoundaryReader:
        assert self._boundaries is not None, "started"  # noqa: S101 - step is called after start
        return self._boundaries

    def _shards(self) -> EarlierOutputShards:
        assert self._earlier is not None, "started"  # noqa: S101 - step is called after start
        return self._earlier

    def _reader(self) -> BucketReader:
        assert self._buckets is not None, "started"  # noqa: S101 - step is called after start
        return self._buckets

    def _wait_ms(self) -> int:
        """Return how long to wait for boundary records when there is nothing to deliver, in ms."""
        live_wait_ms = None if self._live is None else self._live.wait_ms
        return _POLL_MS if live_wait_ms is None else min(_POLL_MS, live_wait_ms)

    def _try_to_fail_over(self) -> None:
        """Fail over, or report why not and leave it to the next round.

        Raises:
            Fenced: a process that began after this one fenced it.
        """
        try:
            self._delivery = self._fail_over()
        except (OutcomeUnknown, Unavailable) as error:
            # No sleep here: the live half goes on meanwhile.
            self._delay(error, DeliveryFailure.NO_FAILOVER)
        except _StoppingError:
            self._close_writer()

    def _delay(
        self, error: OutcomeUnknown | Unavailable | DataMissing, failure: DeliveryFailure
    ) -> None:
        """Close the writer, report ``error``, and schedule the failover after ``failure``."""
        self._retry_at_ms = self._context.clock.monotonic_ms() + PAUSES_MS[failure]
        self.status.state, self.status.waiting_for = "waiting", str(error)
        self._context.logger.warning("failover_delayed", output=self._name, error=str(error))
        self._close_writer()

    def _fail_over(self) -> CorrectedDelivery:
        """Fence older writers, those of earlier shards too. Then read the last progress, the
        boundary log to its end (every id that is read back belongs to a bucket in it), and the ids
        in the topics after that progress.

        Raises:
            OutcomeUnknown, Unavailable: the broker did not answer, or earlier shards have not
                ended; try again.
            _StoppingError: the process is stopping.
        """
        log, name = self._context.log, self._name
        self._writer = log.transactional_writer(self._transactional_id)
        crash_point("delivery.fenced")
        progress = self._last_progress()
        inherited = self._shards().inherited(progress, self._partitions)
        self._following().read_to_end()
        left_out = 0 if inherited is not None else self._begins_after(progress)
        index = self._shard.index
        (starts, stops), (rejected_starts, rejected_stops) = (
            read_back.ends(log, topic, count)
            for topic, count in (
                (self._topic, self._partitions),
                (self._rejected_topic, self._rejected_partitions if inherited else index + 1),
            )
        )
        delivery = CorrectedDelivery(
            name,
            progress,
            [*starts, rejected_starts[index]],
            [*stops, rejected_stops[index]],
            after=left_out,
            shard=self._shard,
        )
        if inherited is not None:
            delivery.inherit(inherited, [*starts, rejected_starts[index]])
        is_new = not has_run(progress) and inherited is None
        found = self._read_back(
            delivery,
            stops,
            delivery.rejected_from(rejected_starts, rejected_stops),
            rejected_stops,
            is_new=is_new,
        )
        self._record_beginning(delivery)
        if is_new and self._live is not None and not self._live.is_begun:
            raise Unavailable(
                f"the live topic of output {name} has not recorded yet where it begins"
            )
        crash_point("delivery.read_back")
        self._counters.found.inc(found)
        self._split = None
        self.status.waiting_for = None
        self.status.state = "running"
        self.status.detail["partitions"] = self._partitions
        self._context.logger.info(
            "failed_over",
            output=name,
            cursor=str(delivery.cursor),
            ids_read_back=found,
            foreign=self.status.detail["foreign_records"],
        )
        return delivery

    def _read_back(
        self,
        delivery: CorrectedDelivery,
        stops: list[int],
        rejected_from: list[int],
        rejected_stops: list[int],
        *,
        is_new: bool,
    ) -> int:
        """Pass ``delivery`` the ids found in the output topic up to ``stops`` and in the topic of
        rejected results up to ``rejected_stops``. Return how many are after its progress.

        Raises:
            ConfigurationError: the output ``is_new``, and another one delivers to its topic.
        """
        log, origin = self._context.log, self._shards().origin
        foreign = read_back.ForeignRecords()
        found = 0

        def take(ident: RecordId) -> None:
            nonlocal found
            found += delivery.found(ident)

        for topic, starts, ends in (
            (self._topic, delivery.read_from[:REJECTED], stops),
            (self._rejected_topic, rejected_from, rejected_stops),
        ):
            read_back.ids(
                log, topic, starts, ends, take, self._wait_for, origin=origin, foreign=foreign
            )
        foreign.records += delivery.recovered(self._following().log_state.upto)
        if is_new:
            refuse_shared(log, origin, self._topic, foreign.origins)
        others = [str(other) for other in other_outputs(origin, foreign.origins)]
        self.status.detail.update(foreign_records=foreign.records, other_producers=others)
        if others:
            self._context.logger.warning(
                "other_producers", output=self._name, topic=self._topic, producers=others
            )
        return found

    def _last_progress(self) -> DeliveryProgress | None:
        """Return this process's newest progress.

        Raises:
            ConfigurationError: the process has been ended for another number of shards.
        """
        shards = self._shards()
        progress = read_back.last_progress(
            self._context.log, self._progress_topic, self._name, shards.origin.life, self._wait_for
        )
        shards.check_own(progress)
        return progress

    def _begins_after(self, progress: DeliveryProgress | None) -> int:
        """Return the bucket after which this process begins if it has delivered nothing; 0: no
        bucket is left out.

        Raises:
            Unavailable: where the output begins is not known yet.
            ConfigurationError: the output had another number of shards.
        """
        output = self._output
        if self._shard.count > 1 and not has_run(progress):
            of_all = other_shards.beginning(
                self._context.log,
                self._pipeline,
                output,
                self._shards().origin.life,
                self._wait_for,
            )
            after = shard_begins_after(output.name, of_all, self._partitions, self._shard)
            if after is not None:
                return after
        has_delivered = has_run(progress) or self._live_has_any()
        left_out = output_begins_after(self._reader().gone_upto, has_delivered=has_delivered)
        if left_out:
            self.status.detail["left_out_ms"] = bound_ms(left_out, self._pipeline.bucket_ms)
            self._context.logger.warning(
                "begins_late",
                output=self._name,
                stage=output.stage,
                upto=left_out,
                upto_ms=self.status.detail["left_out_ms"],
            )
        return left_out

    def _record_beginning(self, delivery: CorrectedDelivery) -> None:
        """Record where the output begins, before its corrected topic gets a record (DE12). The live
        half fails over again if that is late: it begins there, too (DE9).
        """
        run = delivery.beginning()
        if run is None:
            return
        writer, at = self._writing(), TopicPartition(self._progress_topic, 0)
        own = delivery.progress(run, self._context.clock.now_ms(), self._shards().origin.life)
        writer.begin()
        for name in dict.fromkeys((self._name, self._output.name)):
            writer.send(at, control_records.encode(replace(own, output=name)), name.encode())
        writer.commit()
        if self._live is not None and run.first > BEGINNING:
            self._live.restart()

    def _wait_for(self, text: str | None) -> None:
        """Report what reading back waits for (``read_back.Waiting``).

        Raises:
            _StoppingError: the process is stopping.
        """
        if self._context.stopping.is_set():
            raise _StoppingError
        if text is not None:
            self.status.state, self.status.waiting_for = "waiting", text

    def _close_writer(self) -> None:
        """Close the writer, aborting an open transaction; the next round fails over. Idempotent."""
        if self._delivery is not None:
            self._passed_before, self._delivery = self._delivery.passed, None
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()

    def _next_run(self, delivery: CorrectedDelivery) -> tuple[Run | None, Stable]:
        """Return the next run, or None, and the stable buckets of which it was planned."""
        log_state = self._following().log_state
        if log_state.upto < delivery.cursor.bucket:
            return None, []
        upto = delivery.cursor.bucket if self._one_by_one else log_state.upto
        # Two more than a run may have: one for a bucket whose records are all written already, one
        # so that the plan can see that there are more.
        stable = log_state.stable(delivery.cursor.bucket, upto, DELIVERY_BUCKETS_MAX + 2)
        sizes = ((bucket, sum(part.rows for part in parts)) for bucket, _, parts in stable)
        rows_max = rows_bound([part for _, _, parts in stable for part in parts])
        if self._live is not None:
            rows_max = min(rows_max, BESIDE_LIVE_ROWS_MAX)
        return delivery.plan(upto, sizes, rows_max), stable

    def _deliver(self, delivery: CorrectedDelivery, run: Run, stable: Stable) -> None:
        """Write those records of ``run`` that are not in the topics yet, and advance
        ``delivery``.
        """
        if not run.slices:
            delivery.advance(run, None)
            return
        some, missing_of = self._rows(run, stable), self._following().log_state.given_up.names
        records = Records.joined(
            [self._renderer.render(each.slices, each.table, missing_of) for each in some]
        )
        self._context.metrics.count_in(run.rows, sum(each.table.nbytes for each in some))
        wanted = self._unwritten(delivery, records) if delivery.comparing else None
        if wanted is not None:
            if not wanted:  # no transaction needed: the last progress record still holds
                delivery.advance(run, None)
                return
            records = records.only(wanted)
        try:
            ends = self._transact(delivery, run, records)
        except RecordTooLarge:
            # Nothing of the run was written. The next round sends it in another form: smaller
            # runs, to the topic of rejected results, or truncated.
            self._writing().abort()
            places = {ident: place for place, ident in enumerate(_ids(run))}
            sizes = dict(zip(map(places.__getitem__, records.ids), records.sizes(), strict=True))
            notices = {
                places[ident]
                for ident, headers in zip(records.ids, records.headers, strict=True)
                if rejected_bytes(headers) is not None
            }
            if not delivery.rejected(run, sizes, notices):
                raise
            return
        if delivery.form is not Form.RECORDS:
            self._report_rejected(
                [
                    ident
                    for ident, headers in zip(records.ids, records.headers, strict=True)
                    if not is_counted(headers)
                ]
            )
        delivery.advance(run, ends)
        self._counters.transactions.inc()
        self._context.metrics.count_out(len(records.values), records.size_bytes)
        self._following().log_state.forget(self._passed)

    def _rows(self, run: Run, stable: Stable) -> list[Ordered]:
        """Return the rows of ``run``, in order."""
        wanted = {
            entry[0]: entry
            for entry in takewhile(lambda entry: entry[0] <= run.next.bucket, stable)
        }
        first, rest = run.slices[0], run.slices[1:]
        found: list[Ordered] = []
        if first.start or first.stop < sum(part.rows for part in wanted[first.bucket][2]):
            found += self._part_of_bucket(first, wanted[first.bucket])
        else:
            rest = run.slices
        if rest:
            self._split = None
            found += self._reader().stable([wanted[s.bucket] for s in rest])
        return found

    def _part_of_bucket(
        self, part: Slice, bucket: tuple[int, str, tuple[Part, ...]]
    ) -> list[Ordered]:
        """Return the rows of slice ``part``. Keeps the bucket for the runs that deliver its rest,
        so that a large bucket is read and sorted once.
        """
        if self._split is None or self._split[0] != part.bucket:
            self._split = (part.bucket, self._reader().stable([bucket]))
        return only_rows(self._split[1], part.start, part.stop)

    @staticmethod
    def _unwritten(delivery: CorrectedDelivery, records: Records) -> list[int]:
        """Return the indexes of the records that are not in the topic."""
        return [
            i
            for i, (ident, p) in enumerate(zip(records.ids, records.partitions, strict=True))
            if not delivery.there(ident, p)
        ]

    def _transact(self, delivery: CorrectedDelivery, run: Run, records: Records) -> dict[int, int]:
        """Write ``records`` of ``run`` and the progress in one transaction. Return the offset after
        the last record of each partition written (REJECTED for the topic of rejected results).

        Raises:
            OutcomeUnknown: the transaction may or may not be committed; fail over.
            Fenced: another process delivers this output.
            RecordTooLarge: the caller must abort, and do what ``delivery.rejected`` says.
            Unavailable: the log rejects a record for good.
        """
        writer, output = self._writing(), self._name
        rejected_at = TopicPartition(self._rejected_topic, self._shard.index)
        now_ms, life = self._context.clock.now_ms(), self._shards().origin.life
        progress = control_records.encode(delivery.progress(run, now_ms, life))
        try:
            writer.begin()
            if delivery.form is Form.RECORDS:
                rejected.check_no_notices(records)
                writer.send_many(
                    self._topic, records.partitions, records.values, records.keys, records.headers
                )
            else:
                rejected.send(
                    writer,
                    rejected_at,
                    self._topic,
                    records,
                    is_cut=delivery.form is Form.CUT,
                )
            crash_point("delivery.records_sent")
            writer.send(TopicPartition(self._progress_topic, 0), progress, output.encode())
            crash_point("delivery.progress_sent")
            delivered = writer.commit()
            crash_point("delivery.committed")
        except Fenced as error:
            raise Fenced(f"output {output}: another process delivers it: {error}") from error
        # Sorted, so that each partition's highest offset comes last and stays in the dictionary.
        ends = {at: offset + 1 for at, offset in sorted(delivered)}
        places = {TopicPartition(self._topic, p): p for p in range(self._partitions)} | {
            rejected_at: REJECTED
        }
        return {place: ends[at] for at, place in places.items() if at in ends}

    def _report_rejected(self, idents: list[RecordId]) -> None:
        """Count and log results that went to the topic of rejected results. The manager raises an
        alarm when the next heartbeat reports them.
        """
        if not idents:
            return
        self._rejected_count += len(idents)
        self._counters.rejected.inc(len(idents))
        self.status.detail["rejected"] = self._rejected_count
        self._context.logger.warning(
            "result_rejected",
            output=self._name,
            id=str(idents[0]),
            results=len(idents),
            topic=self._rejected_topic,
        )

    def _writing(self) -> TransactionalWriter:
        assert self._writer is not None, "connected"  # noqa: S101 - there is no delivery state without a writer
        return self._writer

    def _report(self, delivery: CorrectedDelivery) -> None:
        """Update status and metrics by what is delivered."""
        following, width_ms = self._following(), self._pipeline.bucket_ms
        done = delivery.cursor.bucket - 1
        if done > 0:
            self.status.last_bucket_ms = bound_ms(done, width_ms)
            now_ms = self._context.clock.now_ms()
            self.status.lag_ms = now_ms - self.status.last_bucket_ms
            self.status.age_ms = self._context.metrics.closed(self.status.last_bucket_ms, now_ms)
        self._context.metrics.rejected(self._output.stage, following.counts)
        self.status.detail["stable_bucket_ms"] = bound_ms(following.log_state.upto, width_ms)


def _ids(run: Run) -> list[RecordId]:
    """Return the ids of all records of ``run``, in order."""
    return [RecordId(s.bucket, position) for s in run.slices for position in range(s.start, s.stop)]
