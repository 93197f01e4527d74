"""A batch's own watermark on real Spark, with sources whose offsets hold their rows: no broker."""

from __future__ import annotations

import json
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the customary name
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming import StreamingQuery

from anabranch.adapters.disk.spark_offsets import LoggedBatch
from anabranch.adapters.spark.own_watermark import watermark_of
from anabranch.adapters.spark.plan_socket import PlanClient, PlanServer
from anabranch.adapters.spark.session import start_session
from anabranch.adapters.system.scratch import Scratch
from harness.waiting import wait_until

pytestmark = pytest.mark.integration

cloudpickle.register_pickle_by_value(
    sys.modules[__name__]
)  # Spark's machine may have been started for other tests, with another path
WIDTH_MS = 100
TRACKER = "org.apache.spark.sql.execution.streaming.runtime.WatermarkTracker"


class RowsInOffsets(DataSource):  # type: ignore[misc]
    """Runs the plans of a ``PlanServer``. An offset is {"bucket": ..., "rows": [[event time,
    key], ...]}.
    """

    @classmethod
    def name(cls) -> str:
        return "rows_in_offsets"

    def schema(self) -> str:
        return "event_time TIMESTAMP, key BIGINT"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 - Spark's names
        return RowsReader(self.options["socket"], self.options["query"])


class RowsReader(DataSourceStreamReader):  # type: ignore[misc]
    def __init__(self, socket: str, query: str) -> None:
        self._socket, self._query = socket, query
        self._client: PlanClient | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return {"bucket": 0, "rows": []}

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802 - Spark's names
        self._client = self._client or PlanClient(self._socket)
        return self._client.ask(self._query, "a", {"bucket": start["bucket"]}) or start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [InputPartition(end["rows"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        from datetime import UTC, datetime

        for event_time, key in partition.value:
            yield datetime.fromtimestamp(event_time / 1_000, UTC), key

    def commit(self, end: dict[str, Any]) -> None:
        pass


def counted(rows: DataFrame) -> DataFrame:
    """Rows in each window of a bucket."""
    return (
        rows.withWatermark("event_time", "0 seconds")
        .groupBy(F.window("event_time", "100 milliseconds"))
        .count()
    )


class Queries:
    """Counting queries in one session, given their plans by hand."""

    def __init__(self, session: SparkSession, scratch: Scratch, folder: Path) -> None:
        self.session, self._folder = session, folder
        self.plans: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
        self.found: dict[str, dict[int, dict[int, int]]] = defaultdict(dict)
        self.dies_in: tuple[str, int] | None = None
        self.server = PlanServer(
            self.answer,
            partial(watermark_of, session, width_ms=WIDTH_MS),
            scratch.socket_path("plans"),
        )
        self._lock = threading.Lock()

    def answer(
        self, query: str, _: str, start: dict[str, Any], __: object
    ) -> dict[str, Any] | None:
        with self._lock:
            return self.plans[query].get(start["bucket"])

    def plan(self, query: str, after: int, bucket: int, *event_times: int) -> None:
        """After bucket ``after`` the query runs up to ``bucket``."""
        with self._lock:
            self.plans[query][after] = {
                "bucket": bucket,
                "rows": [[event_time, 0] for event_time in event_times],
            }

    def write(self, query: str, frame: DataFrame, batch: int) -> None:
        if self.dies_in == (query, batch):
            raise OSError("a crash")
        self.found[query][batch] = {
            int(row.window.end.timestamp() * 1_000): row["count"] for row in frame.collect()
        }

    def start(self, query: str) -> StreamingQuery:
        rows = (
            self.session.readStream.format("rows_in_offsets")
            .option("socket", self.server.path)
            .option("query", query)
            .load()
        )
        writer = (
            counted(rows)
            .writeStream.foreachBatch(partial(self.write, query))
            .outputMode("append")
            .queryName(query)
        )
        return writer.option("checkpointLocation", str(self.checkpoint(query))).start()

    def checkpoint(self, query: str) -> Path:
        return self._folder / query

    def wait(self, query: str, batch: int) -> dict[int, int]:
        """Return the results of batch ``batch`` of the query: window end -> rows."""
        wait_until(
            lambda: batch in self.found[query] or query in self.server.errors,
            120,
            f"batch {batch} of {query}",
        )
        if query in self.server.errors:
            raise self.server.errors[query]
        return self.found[query][batch]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SparkSession, Scratch]]:
    scratch = Scratch(tmp_path_factory.mktemp("scratch"))
    session = start_session(
        "own",
        master="local[2]",
        memory="512m",
        state_partitions=1,
        import_roots=[],
        scratch=scratch,
    )
    session.dataSource.register(RowsInOffsets)
    yield session, scratch
    session.stop()


@pytest.fixture
def queries(session: tuple[SparkSession, Scratch], tmp_path: Path) -> Iterator[Queries]:
    made = Queries(*session, tmp_path)
    yield made
    made.server.close()
    for query in session[0].streams.active:
        query.stop()


def test_this_spark_lets_a_batch_have_its_own_watermark(
    session: tuple[SparkSession, Scratch],
) -> None:
    """If this fails, a new Spark has changed what ``adapters.spark.own_watermark`` stands on:
    see there what it needs.
    """
    jvm: Any = session[0]._jvm
    types = jvm.java.lang.Class.forName(TRACKER).getMethods()
    (setter,) = [method for method in types if method.getName() == "setWatermark"]
    assert [parameter.getName() for parameter in setter.getParameterTypes()] == ["long"]
    execution = jvm.java.lang.Class.forName(
        "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution"
    )
    (getter,) = [
        method for method in execution.getMethods() if method.getName() == "watermarkTracker"
    ]
    assert getter.getReturnType().getName() == TRACKER


def test_windows_come_with_the_batch_that_completes_them_by_its_own_watermark(
    queries: Queries,
) -> None:
    queries.plan("q", 0, 12, 1_050, 1_150, 1_199)
    queries.plan("q", 12, 13)
    queries.plan("q", 13, 16, 1_399, 1_300)
    queries.start("q")
    assert queries.wait("q", 2) == {1_400: 2}
    assert queries.found["q"] == {0: {1_100: 1, 1_200: 2}, 1: {}, 2: {1_400: 2}}
    assert [LoggedBatch(queries.checkpoint("q"), batch).watermark_ms for batch in range(3)] == [
        1_200,
        1_300,
        1_600,
    ]


def test_two_queries_of_one_session_have_each_its_own_watermark(queries: Queries) -> None:
    for bucket in range(5):
        queries.plan("slow", bucket, bucket + 1, 100 * bucket + 1)
        queries.plan("fast", 100 * bucket, 100 * bucket + 100, 10_000 * bucket + 1)
    for name in ("slow", "fast"):
        queries.start(name)
    for name, step in (("slow", 1), ("fast", 100)):
        queries.wait(name, 4)
        assert queries.found[name] == {
            batch: {10_000 // 100 * step * batch + 100: 1} for batch in range(5)
        }
        watermarks = [
            LoggedBatch(queries.checkpoint(name), batch).watermark_ms for batch in range(5)
        ]
        assert watermarks == [100 * step * (batch + 1) for batch in range(5)]


def test_a_batch_that_is_run_again_has_its_own_watermark_and_no_later_one(queries: Queries) -> None:
    """Rows of bucket 14 must not be late in the batch that is run again, nor windows come
    before their time.
    """
    queries.plan("q", 0, 12, 1_150)
    queries.plan("q", 12, 14, 1_250, 1_350)
    queries.dies_in = ("q", 1)
    first = queries.start("q")
    with pytest.raises(Exception, match="a crash"):
        first.awaitTermination(300)
    logged = (queries.checkpoint("q") / "offsets" / "1").read_text()
    queries.dies_in = None
    queries.plan("q", 12, 99)  # what the planner would say now: Spark's log says otherwise
    queries.plan("q", 14, 15, 1_450)
    queries.start("q")
    queries.wait("q", 2)
    assert (queries.checkpoint("q") / "offsets" / "1").read_text() == logged
    assert queries.found["q"] == {0: {1_200: 1}, 1: {1_300: 1, 1_400: 1}, 2: {1_500: 1}}
    commits = [
        json.loads((queries.checkpoint("q") / "commits" / str(b)).read_text().splitlines()[1])
        for b in (0, 1)
    ]
    assert [commit["nextBatchWatermarkMs"] for commit in commits] == [1_200, 1_400]
