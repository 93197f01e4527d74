"""The service of one replica of one stage."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anabranch.adapters.local.checkpoints import ReplicaDisk
from anabranch.adapters.spark.offsets import last_commit
from anabranch.adapters.spark.plan_socket import PlanServer
from anabranch.adapters.spark.session import start_session
from anabranch.adapters.spark.settings import SparkSettings
from anabranch.adapters.spark.sink import BatchDone, OutputStream, StageSink, crash_point_from_environment
from anabranch.codec import control_records
from anabranch.codec.blocks import schema_from_text, schema_text
from anabranch.pipeline.transforms import import_root
from anabranch.ports import TopicPartition
from anabranch.processing.planner import InputFollower, Planner
from anabranch.processing.query import StageQuery, build_query, source_schema
from anabranch.protocol.control import Heartbeat
from anabranch.protocol.errors import AnabranchError, ConfigurationError, DataMissing, OutcomeUnknown, StageFunctionError, Unavailable
from anabranch.protocol.lineage import Lineage
from anabranch.runtime.block_writer import BlockWriter
from anabranch.runtime.boundary_writer import BoundaryWriter
from anabranch.runtime.service import ServiceStatus

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from anabranch.ports import LogWriter
    from anabranch.runtime.service import ServiceContext
    from anabranch.runtime.settings import ServiceSettings

_STEP_S: Final = 0.1
_HEARTBEAT_MS: Final = 1_000
_STOP_MS: Final = 4_000
_STATUS_TEXT_MAX: Final = 2_000
_TOLD: Final = re.compile(r"anabranch\.protocol\.errors\.(\w+): (.*)")
"""An error of this project in the traceback of a task."""
_FUNCTION_SIGNS: Final = ("PythonException", "UDF", "SparkArithmeticException", "SparkRuntimeException", "MapInBatchEvaluator")
"""What stands in Spark's text when a function fails in a task; the last: its batches have too few columns."""


class ProcessingService:
    """Runs one replica's query. A crash at any point loses nothing: the next process goes on from the newest lineage (rule 8)."""

    def __init__(self, settings: ServiceSettings, context: ServiceContext) -> None:
        stage, dot, replica = settings.name.rpartition(".")
        pipeline = context.pipeline
        if not dot or stage not in pipeline.stages or replica not in pipeline.stream_writers(stage):
            known = ", ".join(f"{s}.{r}" for s in pipeline.stages for r in pipeline.stream_writers(s))
            message = f"--name {settings.name}: give STAGE.REPLICA, one of {known}"
            raise ConfigurationError(message)
        self._context, self._settings, self._pipeline = context, settings, pipeline
        self._stage_name, self._replica, self._stage = stage, replica, pipeline.stages[stage]
        self._names = pipeline.topic_names
        self._spark = SparkSettings()
        self._disk = ReplicaDisk(Path(settings.state_dir) / "processing" / settings.name)
        self._changed = threading.Condition()
        self._followers: dict[str, InputFollower] = {}
        self._plans: PlanServer | None = None
        self._planner: Planner | None = None
        self._session: SparkSession | None = None
        self._query: StreamingQuery | None = None
        self._boundary: BoundaryWriter | None = None
        self._blocks: BlockWriter | None = None
        self._sink: StageSink | None = None
        self._control: LogWriter | None = None
        self._heartbeat_at_ms = 0
        self._ended = False
        self.status = ServiceStatus(detail={"stage": stage, "replica": replica, "batches": 0})

    def start(self) -> None:
        """Start Spark, take the epoch, go on from the newest checkpoint; ready when a first batch has run."""
        log = self._context.log
        for stream in self._stage.reads:
            follower = InputFollower(log, self._names.boundaries(stream), self._pipeline.stream_writers(stream), self._changed)
            self._followers[stream] = follower
            follower.start()
        self._plans = PlanServer(self._answer)
        roots = [import_root(reference, self._pipeline.path) for reference in self._stage.transform]
        self._session = start_session(
            f"{self._pipeline.name}.{self._settings.name}", master=self._spark.master, memory=self._spark.memory,
            state_partitions=self._spark.state_partitions, import_roots=sorted({str(r) for r in roots if r}),
            scratch=Path(self._settings.state_dir) / "scratch" / self._settings.name,
        )  # fmt: skip
        schemas: dict[str, pa.Schema] = {}
        for name in self._stage.reads:
            schema = self._input_schema(name)
            if schema is None or self._context.stopping.is_set():
                return
            schemas[name] = schema
        query = build_query(
            self._session,
            self._pipeline,
            self._stage_name,
            schemas,
            kafka=self._settings.kafka,
            socket=self._plans.path,
            splits_max=self._spark.splits_max,
        )
        self.status.detail |= {
            "batch_safe": query.traits.is_batch_safe,
            "stateful": query.traits.is_stateful,
            "why": list(query.traits.reasons),
        }
        self._take_over(query)

    def _take_over(self, query: StageQuery) -> None:
        """Rules 1 and 8: epoch, copy of the newest lineage's directory, own lineage file; then the query."""
        context = self._context
        self._boundary = BoundaryWriter(
            context.log, self._names.boundaries(self._stage_name), self._pipeline.stream_writers(self._stage_name), self._replica,
            query.fingerprint, context.clock, context.entropy, schema=schema_text(query.schema),
        )  # fmt: skip
        epoch = self._boundary.start()
        lineage = self._own_lineage(epoch)
        self._boundary.poll()
        self._boundary.check_epoch()
        self._disk.clean(epoch)
        checkpoint = self._disk.directory(lineage.name)
        output = OutputStream(
            kafka=self._settings.kafka, topic=self._names.blocks(self._stage_name, self._replica), replica=self._replica, epoch=epoch,
            partitions=self._pipeline.partitions, width_ms=self._pipeline.bucket_ms, function=query.function,
        )  # fmt: skip
        self._blocks = BlockWriter(context.log, output.topic, self._replica, epoch, context.entropy)
        self._sink = StageSink(
            output, self._boundary, self._blocks, checkpoint, lineage, lineage.start_tip, query.traits, self._stage.reads, context.clock,
            done=self._batch_done, crash_point=crash_point_from_environment(),
        )  # fmt: skip
        self._planner = Planner(
            self._followers, query.traits, self._changed, rows_max=self._spark.batch_rows_max, stopping=context.stopping.is_set
        )
        self.status.detail |= {"epoch": epoch, "lineage": lineage.name}
        self._query = (
            query.frame.writeStream.foreachBatch(self._sink).outputMode("append").queryName(self._settings.name)
            .option("checkpointLocation", str(checkpoint)).start()
        )  # fmt: skip

    def _own_lineage(self, epoch: int) -> Lineage:
        while True:
            found = self._disk.newest()
            if found is None:
                lineage = Lineage.fresh(epoch)
                self._disk.create(lineage.name)
            else:
                lineage = found.copied(epoch, last_commit(self._disk.directory(found.name)))
                self._disk.copy(found.name, lineage.name)
                lineage = found.copied(
                    epoch, last_commit(self._disk.directory(lineage.name))
                )  # what the copy has, its old process may be alive
            if self._disk.newest() == found:
                self._disk.write(lineage)
                return lineage

    def _input_schema(self, stream: str) -> pa.Schema | None:
        """Columns of an input; of another stage's stream they are in its log: wait for its first process. None: told to stop."""
        if stream in self._pipeline.sources:
            return source_schema(self._pipeline, stream)
        follower = self._followers[stream]
        with self._changed:
            while not follower.reader.fold.schema() and not self._context.stopping.is_set():
                follower.raise_error()
                self.status.state, self.status.waiting_for = "starting", f"{stream} to start"
                self._changed.wait(_STEP_S)
            text = follower.reader.fold.schema()
        self.status.waiting_for = None
        return schema_from_text(text) if text else None

    def _answer(self, name: str, start: dict[str, object]) -> dict[str, object] | None:
        return None if self._planner is None else self._planner.answer(name, start)

    def _batch_done(self, done: BatchDone) -> None:
        now, width = self._context.clock.now_ms(), self._pipeline.bucket_ms
        self.status.detail["batches"] = done.batch + 1
        self.status.detail["last_batch"] = {"rows_in": done.rows_in, "rows_out": done.rows_out, "seconds": done.seconds}
        if done.position.closed:
            self.status.last_bucket_ms = done.position.closed * width
            self.status.lag_ms = now - self.status.last_bucket_ms
        self.status.state = "running"
        self._context.metrics.count_in(done.rows_in, 0)
        self._context.metrics.count_out(done.rows_out, 0)

    def step(self) -> None:
        """Look after the query; raises what ended it."""
        for follower in self._followers.values():
            follower.raise_error()
        if self._query is None:
            return
        try:
            ended = self._query.awaitTermination(_STEP_S)
        except Exception as error:  # noqa: BLE001 - Spark raises what the query died of
            self._raise_failure(error)
        else:
            if ended and not self._context.stopping.is_set():
                message = "the query ended by itself"
                raise AnabranchError(message)
        self._report()

    def _report(self) -> None:
        now = self._context.clock.now_ms()
        if self._planner is not None and self._sink is not None and self.status.state in ("running", "waiting"):
            position = (self.status.last_bucket_ms or 0) // self._pipeline.bucket_ms
            idle = self._planner.available() <= position
            self.status.state = "waiting" if idle else "running"
            self.status.waiting_for = self._planner.waiting_for() if idle else None
            if self.status.last_bucket_ms is not None:
                self.status.lag_ms = now - self.status.last_bucket_ms
        for name, follower in self._followers.items():
            self._context.metrics.refused(name, follower.reader.counts)
        if now - self._heartbeat_at_ms >= _HEARTBEAT_MS and self._boundary is not None:
            self._heartbeat_at_ms = now
            self._send_heartbeat(now)
            self._check_epoch(self._boundary)

    def _check_epoch(self, boundary: BoundaryWriter) -> None:
        """A process that has nothing to write must learn, too, that a newer one took over. While a batch is being closed, that one does."""
        if self._sink is not None and self._sink.log_lock.acquire(blocking=False):
            try:
                boundary.poll()
                boundary.check_epoch()
            finally:
                self._sink.log_lock.release()

    def _send_heartbeat(self, now: int) -> None:
        """At most once a second, and only news: a lost one is followed by the next."""
        beat = Heartbeat(
            service="processing", name=self._settings.name, replica=self._replica, epoch=self._boundary.epoch if self._boundary else 0,
            state=self.status.state, bucket=(self.status.last_bucket_ms or 0) // self._pipeline.bucket_ms, written_ms=now,
        )  # fmt: skip
        value = control_records.encode(beat)
        try:
            if self._control is None:
                self._control = self._context.log.writer()
            self._control.send(TopicPartition(self._names.control(), 0), value, key=self._settings.name.encode())
            self._control.flush()
        except (OutcomeUnknown, Unavailable):
            if self._control is not None:
                self._control.close()
            self._control = None

    def _raise_failure(self, error: Exception) -> None:
        """Raise the true cause of a dead query, with the function's name and the bucket."""
        cause = self._sink.failure if self._sink is not None else None
        where = "" if self._sink is None or self._sink.running is None else f", buckets {self._sink.running[0]}..{self._sink.running[1]}"
        text = str(error)
        if isinstance(cause, StageFunctionError):
            message = f"stage {self._stage_name}{where}: {cause}"
            raise StageFunctionError(message) from error
        if isinstance(cause, AnabranchError):
            raise cause
        if self._plans is not None and self._plans.error is not None:
            raise self._plans.error from error
        told = _TOLD.search(text)
        if told is not None and told[1] == "StageFunctionError":
            message = f"stage {self._stage_name}{where}: {told[2]}"
            raise StageFunctionError(message) from error
        if told is not None:  # of the reader or writer in a task: not the function's fault
            raise {"DataMissing": DataMissing, "Unavailable": Unavailable}.get(told[1], AnabranchError)(told[2]) from error
        if any(sign in text for sign in _FUNCTION_SIGNS):
            message = f"stage {self._stage_name}{where}, function {', '.join(self._stage.transform)}: {_short(text)}"
            raise StageFunctionError(message) from error
        raise error

    def stop(self) -> None:
        """Let the batch that runs end, then stop. Idempotent."""
        if self._ended:
            return
        self._ended = True
        self._context.stopping.set()
        if self._query is not None:
            self._stop_query(self._query)
        for follower in self._followers.values():
            follower.close()
        if self._plans is not None:
            self._plans.close()
        for closable in (self._boundary, self._blocks, self._control):
            if closable is not None:
                closable.close()
        if self._session is not None:
            self._session.stop()

    def _stop_query(self, query: StreamingQuery) -> None:
        """Wait a while for the end of the batch that runs; then stop at whatever point it is, which is safe."""
        clock = self._context.clock
        deadline = clock.monotonic_ms() + _STOP_MS
        while query.isActive and query.status["isTriggerActive"] and clock.monotonic_ms() < deadline:
            clock.sleep_ms(20)
            if query.status["message"].startswith(("Waiting", "Getting offsets")):
                break
        try:
            query.stop()
        except Exception as error:  # noqa: BLE001 - Spark's time-out has no class of its own in Python
            self._context.logger.warning("stopped_within_a_batch", stage=self._settings.name, error=_short(str(error)))


def _short(text: str) -> str:
    """The last lines of a Python traceback in Spark's message, or its first line."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith(("at ", "File ", "..."))]
    told = [line for line in lines if "Error" in line or "Exception" in line]
    return " | ".join(dict.fromkeys(told[-3:] or lines[:2]))[:_STATUS_TEXT_MAX]
