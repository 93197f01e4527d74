"""The delivery service: wiring of ``protocol.delivery`` to topics.

A round: follow the boundary log; take the next run of stable buckets; read their blocks, sort, encode; write records and progress record in one
transaction. Whatever is not certain - a start, an unknown outcome, a broker that does not answer - ends in ``_take_over``: a new transactional
writer, which fences all older ones, then reading back. Being fenced ends the process: a newer one delivers.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from typing import Final

import pyarrow as pa
from prometheus_client import Counter

from anabranch.codec import control_records
from anabranch.codec.catalog import topic_settings
from anabranch.delivery import read_back
from anabranch.delivery.rendering import Records, Renderer, in_order
from anabranch.pipeline.model import Output
from anabranch.ports import LogAdmin, TopicPartition, TopicSettings, TransactionalWriter
from anabranch.protocol.buckets import bound_ms
from anabranch.protocol.delivery import CorrectedDelivery, Run, Slice, rows_bound
from anabranch.protocol.errors import ConfigurationError, DataMissing, Fenced, OutcomeUnknown, Unavailable
from anabranch.protocol.identifiers import TupleId
from anabranch.protocol.records import Part
from anabranch.runtime.block_reader import BlockReader
from anabranch.runtime.boundary_reader import BoundaryReader
from anabranch.runtime.service import ServiceContext, ServiceStatus
from anabranch.runtime.settings import ServiceSettings

_POLL_MS: Final = 100
_RETRY_MS: Final = 200
_UNKNOWN_MAX: Final = 10
"""Unknown outcomes one after the other: more are not a broker in trouble but something that a person must see."""
_LABELS: Final = ("pipeline", "output")

Stable = list[tuple[int, str, tuple[Part, ...]]]
"""Non-empty stable buckets: (bucket, writer to read it from, its parts)."""


def build(settings: ServiceSettings, context: ServiceContext) -> DeliveryService:
    """The service for the output that ``settings.name`` names.

    Raises:
        ConfigurationError: the pipeline has no such output.
    """
    output = context.pipeline.outputs.get(settings.name)
    if output is None:
        known = ", ".join(context.pipeline.outputs)
        raise ConfigurationError(f"--name {settings.name}: the pipeline {context.pipeline.name} has no such output; it has {known}")
    return DeliveryService(context, output)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Without the cycle collector, which would go through hundreds of thousands of new headers again and again, and find no cycle."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class _StoppingError(Exception):
    """A signal came while a take-over waited."""


class DeliveryService:
    """Writes one output's corrected topic. See ``runtime.service.Service``."""

    def __init__(self, context: ServiceContext, output: Output) -> None:
        self.status = ServiceStatus()
        self._context, self._output, self._pipeline = context, output, context.pipeline
        names = self._pipeline.topic_names
        self._topic = output.corrected.topic
        self._progress_topic = names.progress(output.name)
        self._transactional_id = f"{self._pipeline.name}.{output.name}.corrected"
        self._boundaries: BoundaryReader | None = None
        self._blocks: BlockReader | None = None
        self._writer: TransactionalWriter | None = None
        self._delivery: CorrectedDelivery | None = None
        self._partitions = 0
        self._bytes_per_row = 0.0
        self._unknown_in_a_row = 0
        self._split: tuple[int, pa.Table] | None = None
        labels = (self._pipeline.name, output.name)
        self._transactions = Counter(
            "anabranch_delivery_transactions", "Transactions that delivery committed", _LABELS, registry=context.registry
        ).labels(*labels)
        self._unknown = Counter(
            "anabranch_delivery_unknown_outcomes", "Transactions whose outcome was unknown, each followed by reading back", _LABELS,
            registry=context.registry,
        ).labels(*labels)  # fmt: skip
        self._found = Counter(
            "anabranch_delivery_ids_read_back", "Ids found in the output topic by taking over", _LABELS, registry=context.registry
        ).labels(*labels)

    def start(self) -> None:
        """Check the topics, follow the stage, take over.

        Raises:
            ConfigurationError: a topic is not as it must be.
        """
        context, names, stage = self._context, self._pipeline.topic_names, self._output.stage
        admin = context.log.admin()
        try:
            self._partitions = self._check_topics(admin)
        finally:
            admin.close()
        self._boundaries = BoundaryReader(context.log, names.boundaries(stage), self._pipeline.stream_writers(stage))
        self._blocks = BlockReader(context.log, lambda replica: names.blocks(stage, replica), context.clock)
        self._renderer = Renderer(self._output.name, self._output.corrected, self._partitions)
        self._try_to_take_over()

    def step(self) -> None:
        """One round: at most one transaction; about 100 ms when there is nothing to deliver."""
        if self._delivery is None:
            self._try_to_take_over()
            return
        run, stable = self._next_run(self._delivery)
        if run is None:
            self._report(self._delivery)
            self._following().poll(_POLL_MS)
            return
        try:
            with _no_collection():
                self._deliver(self._delivery, run, stable)
        except OutcomeUnknown as error:
            self._unknown.inc()
            self._context.logger.warning(
                "outcome_unknown", output=self._output.name, first=str(run.first), next=str(run.next), error=str(error)
            )
            self._give_up_writer()
            self._unknown_in_a_row += 1
            if self._unknown_in_a_row >= _UNKNOWN_MAX:
                raise
            return
        self._unknown_in_a_row = 0
        self._report(self._delivery)
        self._following().poll(0)

    def stop(self) -> None:
        """Close what was opened; an open transaction is aborted. Idempotent."""
        self._give_up_writer()
        if self._boundaries is not None:
            self._boundaries.close()
        if self._blocks is not None:
            self._blocks.close()

    def _check_topics(self, admin: LogAdmin) -> int:
        """Make what is missing; the number of partitions of the output topic."""
        sink = self._output.corrected
        existing = admin.partitions([self._topic])
        missing = [topic_settings("progress", self._progress_topic)]
        if self._topic not in existing:
            missing.append(topic_settings("output", self._topic, sink.partitions or self._pipeline.partitions))
        admin.create([TopicSettings(t.name, t.partitions, t.replication, t.config) for t in missing])
        count = admin.partitions([self._topic])[self._topic]
        if sink.partitions is not None and sink.partitions != count:
            raise ConfigurationError(
                f"output {self._output.name}: topic {self._topic} has {count} partitions, the file says {sink.partitions}"
            )
        policy = admin.settings(self._topic).get("cleanup.policy", "delete")
        if "compact" in policy:
            raise ConfigurationError(
                f"output {self._output.name}: topic {self._topic} has cleanup.policy={policy}; the corrected topic must not be compacted, since "
                "recovery compares the ids in it: set cleanup.policy=delete"
            )
        return count

    def _following(self) -> BoundaryReader:
        assert self._boundaries is not None, "started"  # noqa: S101 - step is called after start
        return self._boundaries

    def _try_to_take_over(self) -> None:
        """Take over, or say why not and leave it to the next round.

        Raises:
            Fenced: by a process that began after this one.
        """
        try:
            self._delivery = self._take_over()
        except (OutcomeUnknown, Unavailable) as error:
            self.status.state, self.status.waiting_for = "waiting", str(error)
            self._context.logger.warning("take_over_delayed", output=self._output.name, error=str(error))
            self._give_up_writer()
            self._context.clock.sleep_ms(_RETRY_MS)
        except _StoppingError:
            self._give_up_writer()

    def _take_over(self) -> CorrectedDelivery:
        """Fence, then read: the log to its end (so that every id found can be judged), the last progress, the ids after it."""
        log, name = self._context.log, self._output.name
        self._writer = log.transactional_writer(self._transactional_id)
        self._following().read_to_end()
        progress = read_back.last_progress(log, self._progress_topic, name, self._wait_for)
        starts, stops = read_back.ends(log, self._topic, self._partitions)
        delivery = CorrectedDelivery(name, progress, starts, stops)
        found = 0

        def take(ident: TupleId) -> None:
            nonlocal found
            found += delivery.found(ident)

        foreign = read_back.ids(log, self._topic, delivery.read_from, stops, take, self._wait_for)
        foreign += delivery.recovered(self._following().fold.upto)
        self._found.inc(found)
        self._split = None
        self.status.waiting_for = None
        self.status.state = "running"
        self.status.detail.update(partitions=self._partitions, foreign_records=foreign)
        self._context.logger.info("taken_over", output=name, cursor=str(delivery.cursor), ids_read_back=found, foreign=foreign)
        return delivery

    def _wait_for(self, text: str) -> None:
        if self._context.stopping.is_set():
            raise _StoppingError
        self.status.state, self.status.waiting_for = "waiting", text

    def _give_up_writer(self) -> None:
        self._delivery = None
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()

    def _next_run(self, delivery: CorrectedDelivery) -> tuple[Run | None, Stable]:
        fold = self._following().fold
        if fold.upto < delivery.cursor.bucket:
            return None, []
        stable = fold.stable(delivery.cursor.bucket, fold.upto)
        sizes = ((bucket, sum(part.rows for part in parts)) for bucket, _, parts in stable)
        return delivery.plan(fold.upto, sizes, rows_bound(self._bytes_per_row)), stable

    def _deliver(self, delivery: CorrectedDelivery, run: Run, stable: Stable) -> None:
        """Write what is not there of ``run``."""
        if not run.slices:
            delivery.advance(run, {})
            return
        table = self._rows(run, stable)
        records = self._renderer.render(run.slices, table)
        size_bytes = records.size_bytes
        self._bytes_per_row = size_bytes / table.num_rows
        self._context.metrics.count_in(table.num_rows, table.nbytes)
        wanted = self._unwritten(delivery, run, records) if delivery.comparing else None
        if wanted is not None and not wanted:
            delivery.advance(run, {})  # all of it is there: the last progress record still says where to begin
            return
        ends = self._transact(delivery, run, records, wanted)
        delivery.advance(run, ends)
        self._transactions.inc()
        written = table.num_rows if wanted is None else len(wanted)
        self._context.metrics.count_out(written, size_bytes * written // table.num_rows)
        # Whoever takes over begins at this run's first bucket; nothing before it is asked for again.
        self._following().fold.forget(run.first.bucket - 1)

    def _rows(self, run: Run, stable: Stable) -> pa.Table:
        """The rows of ``run``, in order."""
        wanted = {entry[0]: entry for entry in takewhile(lambda entry: entry[0] <= run.next.bucket, stable)}
        first, rest, tables = run.slices[0], run.slices[1:], []
        if first.start or first.stop < sum(part.rows for part in wanted[first.bucket][2]):
            tables.append(self._part_of_bucket(first, wanted[first.bucket]))
        else:
            rest = run.slices
        if rest:
            self._split = None
            tables.append(in_order(self._read([wanted[s.bucket] for s in rest]), self._pipeline.bucket_ms))
        return pa.concat_tables(tables)

    def _part_of_bucket(self, part: Slice, bucket: tuple[int, str, tuple[Part, ...]]) -> pa.Table:
        """A large bucket goes out in several runs, but is read and sorted once."""
        if self._split is None or self._split[0] != part.bucket:
            self._split = (part.bucket, in_order(self._read([bucket]), self._pipeline.bucket_ms))
        return self._split[1].slice(part.start, part.stop - part.start)

    def _read(self, wanted: Stable) -> list[tuple[int, pa.Table]]:
        """Whole buckets; where blocks of one writer are gone, from another that has closed the bucket too: it holds the same tuples.

        Raises:
            DataMissing: nobody has them.
        """
        assert self._blocks is not None, "started"  # noqa: S101 - step is called after start
        try:
            return self._blocks.read_buckets(wanted)
        except DataMissing as error:
            self._context.logger.warning("blocks_missing", output=self._output.name, error=str(error))
        fold, found = self._following().fold, []
        for bucket, replica, parts in wanted:
            others = [r for r in self._pipeline.stream_writers(self._output.stage) if r != replica]
            sources = [(replica, parts), *((r, p) for r in others if (p := fold.replica_bucket(r, bucket)))]
            found += self._read_from_any(bucket, sources)
        return found

    def _read_from_any(self, bucket: int, sources: list[tuple[str, tuple[Part, ...]]]) -> list[tuple[int, pa.Table]]:
        assert self._blocks is not None, "started"  # noqa: S101 - step is called after start
        for replica, parts in sources[:-1]:
            try:
                return self._blocks.read_buckets([(bucket, replica, parts)])
            except DataMissing:
                continue  # the last source's error is raised
        replica, parts = sources[-1]
        return self._blocks.read_buckets([(bucket, replica, parts)])

    @staticmethod
    def _unwritten(delivery: CorrectedDelivery, run: Run, records: Records) -> list[int]:
        """Indexes of the records that are not in the topic."""
        ids = (TupleId(s.bucket, position) for s in run.slices for position in range(s.start, s.stop))
        return [i for i, (ident, p) in enumerate(zip(ids, records.partitions, strict=True)) if not delivery.there(ident, p)]

    def _transact(self, delivery: CorrectedDelivery, run: Run, records: Records, wanted: list[int] | None) -> dict[int, int]:
        """One transaction. Returns the offset after the last record written, by partition.

        Raises:
            OutcomeUnknown, Fenced: see there.
            Unavailable: the log refuses a record for good, such as one that is too large for the topic.
        """
        writer = self._writer
        assert writer is not None, "taken over"  # noqa: S101 - there is no delivery state without a writer
        output = self._output.name
        progress = control_records.encode(delivery.progress(run, self._context.clock.now_ms()))
        try:
            writer.begin()
            chosen = records if wanted is None else records.only(wanted)
            writer.send_many(self._topic, chosen.partitions, chosen.values, chosen.keys, chosen.headers)
            writer.send(TopicPartition(self._progress_topic, 0), progress, output.encode())
            delivered = writer.commit()
        except Fenced as error:
            raise Fenced(f"output {output}: another process delivers it: {error}") from error
        # In any order of the same partition the last place is the highest.
        return {at.partition: offset + 1 for at, offset in sorted(delivered) if at.topic == self._topic}

    def _report(self, delivery: CorrectedDelivery) -> None:
        following, width_ms = self._following(), self._pipeline.bucket_ms
        done = delivery.cursor.bucket - 1
        if done > 0:
            self.status.last_bucket_ms = bound_ms(done, width_ms)
            self.status.lag_ms = self._context.clock.now_ms() - self.status.last_bucket_ms
        self._context.metrics.refused(self._output.stage, following.counts)
        self.status.detail["stable_bucket_ms"] = bound_ms(following.fold.upto, width_ms)
