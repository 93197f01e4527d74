"""Implementation of ``ports.Engine`` by Spark: one Java, one plan server, a session for each
prepared stage, and a streaming query for each that is started.

Sessions share everything that costs time and memory. They do not share what the stages' functions
define in them: views, functions, settings.

After a crash at any point a query's checkpoint has the plan of the batch that ran, so a query that
is started in the same place runs that plan again. It needs nothing else of the crashed process.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import shutil
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from py4j.protocol import Py4JError

from anabranch.adapters.spark import cluster
from anabranch.adapters.spark.failures import cause_of
from anabranch.adapters.spark.own_watermark import watermark_of
from anabranch.adapters.spark.plan_socket import PlanServer
from anabranch.adapters.spark.query import StageQuery, build_query
from anabranch.adapters.spark.rows_read import rows_read
from anabranch.adapters.spark.session import session_beside
from anabranch.adapters.spark.sink import OutputStream, ResultsExpected, SinkQuery, StageSink
from anabranch.process.crash_points import crash_point
from anabranch.process.logging_setup import short
from anabranch.protocol.errors import AnabranchError, EngineEnded, LocalProtocolError
from anabranch.protocol.stage.key_shares import rows_of_all
from anabranch.streams.block_writer import BlockWriter, UnwrittenBlocks

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from anabranch.adapters.spark.settings import SparkSettings
    from anabranch.adapters.spark.starting import StartingSpark
    from anabranch.ports import BatchDone, Clock, QueryDriver, QueryOutput
    from anabranch.process.frame import ServiceContext
    from anabranch.protocol.log.stateful_plan import StatefulPlan
    from anabranch.protocol.stage.planner import PlanTraits

_logger = logging.getLogger("anabranch.spark")
_STOP_MS: Final = 4_000
"""Time for a running batch to end before its query is stopped, in ms."""
_LOOK_MS: Final = 20
"""Interval at which a stop checks whether the batch has ended, in ms."""
_BETWEEN: Final = " "
"""Separator of a replica's label and a query in the name that Spark knows the query by. Neither
contains it.
"""


class _Served(NamedTuple):
    """Objects of this process that a query in Spark calls."""

    driver: QueryDriver
    session: SparkSession
    sink: StageSink
    sources: dict[object, int]
    """Number of each of the query's sources, by the connection that it uses, in the order of their
    first requests. Spark asks in the same order in every round, so the numbers of two runs agree.
    """


SESSIONS_MAX: Final = 300
"""Number of sessions beside the first one with which an engine ends. Spark cannot close one session
alone, and keeps some MB for each: a replica that fails at each begin, or a warm-up, would otherwise
take all of the machine's memory within days.
"""


class SparkEngine:
    """Engine of one node. Thread-safe."""

    def __init__(
        self, context: ServiceContext, settings: SparkSettings, spark: StartingSpark
    ) -> None:
        """Wait until ``spark`` has started. ``context``: the node's. ``settings``: those with which
        Spark starts.

        Raises:
            ConfigurationError: there is no Java that can run Spark.
            Unavailable: the cluster's master does not answer.
        """
        self.rows_max, self.pace_ms = settings.batch_rows_max, settings.pace_ms
        self.waiting_for: str | None = None
        self._context = context
        self._settings = settings
        self._first = spark.session()
        self.cores = self._first.sparkContext.defaultParallelism
        self._executor_monitor = (
            cluster.ExecutorMonitor(
                settings.master, settings.memory, context.clock, self._executors
            )
            if cluster.is_cluster(settings.master)
            else None
        )
        self.check_state: Callable[[Path], None] = (
            cluster.check_shared if self._executor_monitor is not None else lambda _: None
        )
        self._scratch, self._planners = spark.scratch, spark.planners
        self._sessions = 0
        """Number of sessions that were opened beside the first one."""
        self._served: dict[str, _Served] = {}
        """Served queries, by the name that Spark knows each by."""
        self._building = threading.Lock()
        self._plans = PlanServer(
            self._plan_for, self._watermark_of, self._scratch.socket_path("plans")
        )

    def prepare(self, label: str, stage: str, schemas: Mapping[str, pa.Schema]) -> SparkStage:
        """See the port. Builds one stage at a time: ``anabranch.stateful`` counts its uses in the
        whole process.
        """
        with self._building:
            self._sessions += 1
            session = session_beside(self._first)
            query = build_query(
                session,
                self._context.pipeline,
                stage,
                schemas,
                kafka=self._context.settings.kafka,
                socket=self._plans.path,
                splits_max=self._settings.splits_max,
            )
        return SparkStage(self, session, self._context, label, query)

    def check(self) -> None:
        """See the port."""
        process = getattr(self._first.sparkContext._gateway, "proc", None)  # noqa: SLF001 - PySpark offers no other way
        if process is not None and process.poll() is not None:
            during = {
                query.partition(_BETWEEN)[0]
                for query, served in list(self._served.items())
                if served.sink.is_busy
            }
            raise EngineEnded(
                f"Spark's Java ended with code {process.poll()}: out of memory, or killed",
                tuple(sorted(during)),
            )
        if self._sessions > SESSIONS_MAX:
            raise EngineEnded(
                f"{self._sessions} queries were built in this Spark, which keeps memory of each:"
                " the node ends and starts anew. See which replica begins again and again",
                (),
            )
        if self._executor_monitor is not None:
            with contextlib.suppress(Py4JError):  # Java has just ended: the next check raises
                self.waiting_for = self._executor_monitor.poll()

    def close(self) -> None:
        """See the port."""
        self._plans.close()
        if self._executor_monitor is not None:
            self._executor_monitor.close()
        self._first.stop()
        if self._planners is not None:
            self._planners.close()

    def serve(
        self, query: str, driver: QueryDriver, session: SparkSession, sink: StageSink
    ) -> None:
        """Let ``driver`` plan the query that Spark knows as ``query``, and ``sink`` write its
        results, from now on.
        """
        self._plans.errors.pop(
            query, None
        )  # an error of an earlier run explains nothing of this one
        self._served[query] = _Served(driver, session, sink, {})

    def forget(self, query: str) -> None:
        """Stop to plan ``query``: its requests get no plan."""
        self._served.pop(query, None)

    def failure(self, query: str) -> Exception | None:
        """Return the error of the last request of ``query`` that failed; None if none did. The
        reader in Spark sees only a closed connection.
        """
        return self._plans.errors.get(query)

    def _executors(self) -> int:
        """Return the number of executors."""
        known = self._first.sparkContext._jsc.sc().getExecutorMemoryStatus().size()  # noqa: SLF001 - PySpark offers no other way
        return int(known) - 1  # the driver is one of them

    def temporary_place(self) -> Path:
        """Return a path for a checkpoint that is needed once; the caller removes it."""
        return self._scratch.path / f"query-{secrets.token_hex(4)}"

    def _plan_for(
        self, query: str, name: str, start: dict[str, Any], connection: object
    ) -> dict[str, Any] | None:
        """Return the next offset of input ``name`` of ``query``; None if there is none.
        ``connection`` tells the sources of a query apart.
        """
        served = self._served.get(query)
        if served is None:
            return None
        source = served.sources.setdefault(connection, len(served.sources))
        return served.driver.advance(query.partition(_BETWEEN)[2], name, start, source)

    def _watermark_of(self, query: str) -> Callable[[int], None]:
        """Return the function that sets the watermark of ``query``."""
        served = self._served.get(query)
        if served is None:
            raise LocalProtocolError(f"query {query} asks for a watermark but is not served here")
        return watermark_of(served.session, query, self._context.pipeline.bucket_ms)


class SparkStage:
    """Implementation of ``ports.PreparedStage``: a session that has the stage's query."""

    def __init__(
        self,
        engine: SparkEngine,
        session: SparkSession,
        context: ServiceContext,
        label: str,
        query: StageQuery,
    ) -> None:
        """Wrap ``query``, which was built in ``session``."""
        self._engine = engine
        self._session = session
        self._context = context
        self._label = label
        self._query = query
        self._stage = context.pipeline.stages[label.rpartition(".")[0]]
        self._expected = ResultsExpected()

    @property
    def traits(self) -> PlanTraits:
        """See the port."""
        return self._query.traits

    @property
    def schema(self) -> pa.Schema:
        """See the port."""
        return self._query.schema

    @property
    def fingerprint(self) -> str:
        """See the port."""
        return self._query.fingerprint

    @property
    def stateful_plan(self) -> StatefulPlan:
        """See the port."""
        return self._query.stateful_plan

    def start(
        self,
        query: str,
        driver: QueryDriver,
        output: QueryOutput,
        place: str | None,
        done: Callable[[BatchDone], None],
    ) -> SparkQuery:
        """See the port."""
        context = self._context
        pipeline = self._context.pipeline
        known_as = f"{self._label}{_BETWEEN}{query}"
        folder = self._engine.temporary_place() if place is None else Path(place)
        stream = OutputStream(
            kafka=context.settings.kafka,
            topic=pipeline.topic_names.blocks(self._stage.name, output.replica),
            replica=output.replica,
            epoch=output.epoch,
            partitions=pipeline.partitions,
            width_ms=pipeline.bucket_ms,
            function=self._query.function,
            only=output.only,
            is_written=output.is_written,
        )
        blocks = (
            BlockWriter(context.log, stream.topic, output.replica, output.epoch, context.entropy)
            if output.is_written
            else UnwrittenBlocks()
        )
        expected = self._expected if output.only is None else ResultsExpected()
        sink = StageSink(
            stream,
            SinkQuery(
                query,
                driver,
                folder,
                done,
                rows_read=partial(self._rows_read, known_as),
                check_state=self._engine.check_state,
            ),
            blocks,
            context.clock,
            expected=expected,
            crash_point=crash_point,
        )

        def begin() -> StreamingQuery:
            """Start the query in its place."""
            # Served anew, so that the sources of a restarted query are numbered from 0 again.
            self._engine.serve(known_as, driver, self._session, sink)
            return writer.option("checkpointLocation", str(folder)).start()

        def cause(error: Exception) -> Exception:
            """Return the true cause of Spark's ``error``."""
            known = (
                sink.failure
                if isinstance(sink.failure, AnabranchError)
                else self._engine.failure(known_as)
            )
            return cause_of(error, self._stage.name, self._stage.functions, sink.running, known)

        def release() -> None:
            """Release what the stopped query used."""
            self._engine.forget(known_as)
            blocks.close()
            if place is None:
                shutil.rmtree(folder, ignore_errors=True)

        try:
            writer = (
                self._query.frame(known_as)
                .writeStream.foreachBatch(sink)
                .outputMode("append")
                .queryName(known_as)
            )
            return SparkQuery(
                begin, known_as, context.clock, cause, release, runs_again=sink.runs_again
            )
        except BaseException:
            release()
            raise

    def _rows_read(self, known_as: str) -> int | None:
        """Return how many rows the running batch of a query has read, for a stage that keeps whole
        keys; else None. A shard counts for all.
        """
        if self._stage.shed.kind != "keys":
            return None
        found = rows_read(self._session, known_as, len(self._stage.reads))
        share = self._stage.share
        if found is None or share is None:
            return found
        return rows_of_all(found, len(share.interval.bits))

    def close(self) -> None:
        """See the port. The session lasts as long as the application: Spark cannot close one
        session alone.
        """


class SparkQuery:
    """Implementation of ``ports.RunningQuery``."""

    def __init__(
        self,
        begin: Callable[[], StreamingQuery],
        name: str,
        clock: Clock,
        cause: Callable[[Exception], Exception],
        release: Callable[[], None],
        *,
        runs_again: Callable[[], bool] = lambda: False,
    ) -> None:
        """Start the query.

        Args:
            begin: Starts the query in its place, where it continues with the unfinished batch.
            name: The name that Spark knows it by.
            clock: The clock that bounds how long a stop waits.
            cause: Finds the true cause of what Spark raises.
            release: Called once, when the query has stopped.
            runs_again: Returns whether the failed query must be started again.
        """
        self._begin, self._runs_again = begin, runs_again
        self._stream = begin()
        self._name = name
        self._clock = clock
        self._cause = cause
        self._release: Callable[[], None] | None = release

    def ended(self, wait_ms: int) -> bool:
        """See the port."""
        try:
            return bool(self._stream.awaitTermination(wait_ms / 1_000))
        except Exception as error:  # Spark raises the query's error as text
            if self._runs_again():
                self._stream = self._begin()
                return False
            cause = self._cause(error)
            if cause is error:
                raise
            raise cause from error

    def stop(self) -> None:
        """See the port."""
        release, self._release = self._release, None
        if release is None:
            return
        deadline_ms = self._clock.monotonic_ms() + _STOP_MS
        try:
            # A batch that is cut off runs again at the next start: let it end, within _STOP_MS.
            while self._runs_a_batch() and self._clock.monotonic_ms() < deadline_ms:
                self._clock.sleep_ms(_LOOK_MS)
            self._stream.stop()
        except Exception as error:  # noqa: BLE001
            # Neither Spark's timeout nor a Java that has ended has an exception class in Python.
            _logger.warning("%s: stopped within a batch: %s", self._name, short(str(error)))
        release()

    def _runs_a_batch(self) -> bool:
        """Return whether the query does more than wait for a plan."""
        if not self._stream.isActive:
            return False
        status = self._stream.status
        return bool(status["isTriggerActive"]) and not status["message"].startswith(
            ("Waiting", "Getting offsets")
        )
