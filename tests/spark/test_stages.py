"""Traps of running a stage on Spark, each on real Spark: bounds, several inputs, chains, and
functions that misbehave.
"""

from __future__ import annotations

import logging
import random
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from anabranch.adapters.spark import sink as spark_sink
from anabranch.adapters.spark.query import build_query
from anabranch.pipeline.model import Pipeline
from anabranch.pipeline.source_columns import source_schema
from anabranch.protocol.errors import StageFunctionError
from harness.spark_sessions import small_session
from harness.stage_processes import StageProcess
from harness.stages import Feed, Output, RunningStage, create_topics, readings, write_pipeline
from harness.waiting import wait_until

pytestmark = pytest.mark.integration

W = 100
Row = tuple[int, int, int]

FUNCTIONS = '''
import random
from datetime import datetime, timedelta
from pyspark.sql import Row, functions as F
from anabranch.stateful import BatchSafeProcessor, transform

def tagged(frame, kind, **columns):
    return frame.select(
        F.lit(kind).alias("kind"), "key", *[c.alias(n) for n, c in columns.items()], "event_time"
    )

class Gaps(BatchSafeProcessor):
    state_schema = "events BIGINT"

    def row(self, key, row, state, timers):
        timers.set(row.event_time + timedelta(milliseconds=100))
        return ((state or (0,))[0] + 1,), []

    def timer(self, key, at, state, timers):
        return None, [Row(kind="gap", key=key[0], n=state[0], event_time=at)]

def bounds(a):
    """Every stateful operator at once, all behind a condition that no row of some batches meets."""
    kept = a.where("value > 0 AND note IS NULL")
    windows = kept.groupBy(F.window("event_time", "200 milliseconds"), "key").count()
    distinct = kept.select("key", "value", "event_time").dropDuplicates()
    gaps = transform(
        kept, ["key"], Gaps(), "kind STRING, key BIGINT, n BIGINT, event_time TIMESTAMP"
    )
    return (
        tagged(windows.withColumn("event_time", F.col("window.end")), "window", n=F.col("count"))
        .unionByName(tagged(distinct, "distinct", n=F.col("value")))
        .unionByName(tagged(kept, "row", n=F.col("value")))
        .unionByName(gaps)
    )

def three(a, b, c):
    every = (
        tagged(a, "a", n=F.col("value"))
        .unionByName(tagged(b, "b", n=F.col("value")))
        .unionByName(tagged(c, "c", n=F.col("value")))
    )
    windows = every.groupBy(F.window("event_time", "300 milliseconds"), "kind").agg(
        F.count(F.lit(1)).alias("n"), F.sum("n").alias("total")
    )
    return windows.select("kind", "n", "total", F.col("window.end").alias("event_time"))

def counts(a):
    return (
        a.groupBy(F.window("event_time", "200 milliseconds"), "key")
        .count()
        .select("key", "count", F.col("window.end").alias("event_time"))
    )

def sums(first):
    g = first.groupBy(F.window("event_time", "400 milliseconds"), "key").agg(
        F.sum("count").alias("n"), F.count(F.lit(1)).alias("windows")
    )
    return g.select("key", "n", "windows", F.col("window.end").alias("event_time"))

def first_value(a):
    g = a.groupBy(F.window("event_time", "300 milliseconds"), "key").agg(
        F.first("value").alias("first")
    )
    return g.select("key", "first", F.col("window.end").alias("event_time"))

def mixed(a):
    """Rows at once, with a column that cannot be null where a window's can."""
    windows = (
        a.groupBy(F.window("event_time", "200 milliseconds"))
        .count()
        .select(F.col("count").alias("n"), F.col("window.end").alias("event_time"))
    )
    return windows.unionByName(a.select(F.lit(1).cast("bigint").alias("n"), "event_time"))

def raises(a):
    raise KeyError("speed")

def nothing(a):
    return None

def no_event_time(a):
    return a.select("key")

def number_event_time(a):
    return a.select("key", a.value.alias("event_time"))

def twice(a):
    return a.select("key", a.value.alias("key"), "event_time")

def case_alone(a):
    return a.select("key", a.value.alias("Key"), "event_time")

def random_numbers(a):
    return a.select("key", F.rand().alias("r"), "event_time")

def clock(a):
    return a.select("key", F.lit(datetime.now()).alias("seen"), "event_time")

def chance(a):
    limit = random.randrange(10**15)
    return a.where(f"key IN (SELECT id FROM range(3) WHERE xxhash64(id) < {limit})")

def with_lambda(a):
    items = F.transform(F.array("key"), lambda item: item + 1)
    return a.select(items.alias("items"), "event_time")

def unused(a, b):
    return a.select("key", "event_time")

def not_streaming(a):
    return a.sparkSession.createDataFrame([(1, None)], "key BIGINT, event_time TIMESTAMP")

def ok(a):
    return a.select("key", "event_time")

def everything(a):
    return a.select("*")

def without_value(a):
    return a.drop("value")

def looks_at_columns(a):
    return a.select(F.lit(len(a.columns)).alias("columns"), "key", "event_time")

def wants_a_column(a):
    assert "note" in a.columns
    return a.select("key", "event_time")

def udf_raises(a):
    def broken(v):
        if v == 13:
            raise ValueError("thirteen")
        return v
    return a.select(F.udf(broken, "bigint")("value").alias("v"), "event_time")

def too_old(a):
    return a.select(
        "value",
        (F.col("event_time") - F.expr("INTERVAL 1 MILLISECOND") * F.col("value")).alias(
            "event_time"
        ),
    )

def without_event_time(a):
    return a.select("value", F.when(F.col("value") != 13, F.col("event_time")).alias("event_time"))

def wrong_batches(a):
    def change(batches):
        for batch in batches:
            yield batch if 13 not in batch.column(0).to_pylist() else batch.select(["value"])
    return a.select("value", "event_time").mapInArrow(change, "value BIGINT, event_time TIMESTAMP")
'''


def one_stage(folder: Path, name: str, function: str, sources: Iterable[str] = ("a",)) -> Pipeline:
    reads = list(sources)
    stages = (
        f"s:\n  reads: [{', '.join(reads)}]\n  participant: north\n  transform: MODULE:{function}\n"
    )
    return write_pipeline(folder, name, FUNCTIONS, sources=reads, stages=stages)


@contextmanager
def fed(kafka: str, pipeline: Pipeline) -> Iterator[tuple[dict[str, Feed], Output]]:
    create_topics(kafka, pipeline)
    feeds = {name: Feed(kafka, pipeline, name) for name in pipeline.sources}
    output = Output(kafka, pipeline, pipeline.order()[-1])
    try:
        yield feeds, output
    finally:
        output.close()
        for feed in feeds.values():
            feed.close()


def feed_bucket(feed: Feed, rows: Iterable[Row], bucket: int) -> None:
    mine = [r for r in rows if (bucket - 1) * W < r[0] <= bucket * W]
    feed.append(readings(mine) if mine else None, bucket)


def made(output: Output, last: int, *columns: str) -> Counter[Any]:
    """Return the written rows as (event time, columns...), each in its bucket."""
    found = output.buckets(1, last)
    for bucket, rows in found.items():
        assert all((bucket - 1) * W < row["event_time"] <= bucket * W for row in rows)
    return Counter(
        (row["event_time"], *(row[c] for c in columns)) for rows in found.values() for row in rows
    )


def windows(rows: Iterable[Row], size: int, end: int) -> Counter[tuple[int, int]]:
    """(window end, key) -> rows, of windows that end by ``end``; a window includes its start
    and not its end.
    """
    return Counter(
        (s // size * size + size, k) for s, k, _ in rows if s // size * size + size <= end
    )


def gaps(rows: Iterable[Row], end: int) -> Counter[tuple[int, str, int, int]]:
    """Compute the results of ``Gaps`` row by row in order of time; a row at the time of a timer
    comes before it.
    """
    found: Counter[tuple[int, str, int, int]] = Counter()
    by_key: dict[int, list[int]] = defaultdict(list)
    for event_time, key, _ in rows:
        by_key[key].append(event_time)
    for key, times in by_key.items():
        times.sort()
        count = 0
        for event_time, after in zip(times, [*times[1:], None], strict=True):
            count += 1
            if (after is None or after > event_time + 100) and event_time + 100 <= end:
                found[event_time + 100, "gap", key, count] += 1
                count = 0
    return found


def test_rows_on_bounds_and_a_condition_that_no_row_of_a_batch_meets(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    """Also: empty batches, a condition that no row of a batch meets, and what is not closed
    stays away.
    """
    pipeline = one_stage(tmp_path, topic_prefix, "bounds")
    rows: list[Row] = [
        (1100, 1, 1),
        (1100, 1, 1),
        (1101, 1, 2),
        (1200, 1, 3),
        (1200, 2, 4),
        (1001, 2, 5),
    ]
    rows += [(1300, 1, -1), (1250, 2, -1)]  # a bucket that is dropped whole
    rows += [
        (1600, 1, 6),
        (1600, 1, 6),
        (1501, 2, 7),
        (1700, 1, 8),
        (1701, 1, 9),
        (1800, 2, 10),
        (1800, 2, 10),
    ]
    kept = [r for r in rows if r[2] > 0]
    end = 20
    with (
        fed(kafka, pipeline) as (feeds, output),
        RunningStage(pipeline, "s.0", kafka, tmp_path / "state") as stage,
    ):
        for bucket in range(11, end + 1):
            feed_bucket(feeds["a"], rows, bucket)
            output.wait_closed(bucket, stage)
        assert stage.service.status.detail["batch_safe"], stage.service.status.detail["why"]
        expected = Counter((s, "row", k, v) for s, k, v in kept) + Counter(
            (s, "distinct", k, v) for s, k, v in set(kept)
        )
        expected += Counter(
            (e, "window", k, n) for (e, k), n in windows(kept, 200, end * W).items()
        )
        assert made(output, end, "kind", "key", "n") == expected + gaps(kept, end * W)


@pytest.mark.nightly
def test_three_inputs_advance_together_for_hundreds_of_batches(
    kafka: str, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANABRANCH_SPARK_BATCH_ROWS_MAX", "1")  # a batch per bucket
    seed = random.randrange(10**6)
    print("seed", seed)
    g = random.Random(seed)
    pipeline = one_stage(tmp_path, topic_prefix, "three", "abc")
    end = 170
    rows = {
        name: [(g.randint(1, end * W), 0, g.randint(0, 9)) for _ in range(3 * end)]
        for name in "abc"
    }
    rows["a"] += [(bucket * W, 0, 1) for bucket in range(1, end + 1)]  # so that no bucket is empty
    fed_upto = dict.fromkeys("abc", 0)
    with (
        fed(kafka, pipeline) as (feeds, output),
        RunningStage(pipeline, "s.0", kafka, tmp_path / "state") as stage,
    ):
        while min(fed_upto.values()) < end:
            name = g.choice([n for n in "abc" if fed_upto[n] < end])
            for _ in range(g.randint(1, 6)):
                if fed_upto[name] < end:
                    fed_upto[name] += 1
                    feed_bucket(feeds[name], rows[name], fed_upto[name])
            if g.random() < 0.1:
                output.wait_closed(min(fed_upto.values()), stage, 300)
        output.wait_closed(end, stage, 400)
        assert stage.batches_upto(end) >= 150
    expected: Counter[Any] = Counter()
    for name, mine in rows.items():
        for window in {s // 300 * 300 + 300 for s, _, _ in mine}:
            inside = [v for s, _, v in mine if window - 300 <= s < window]
            expected[window, name, len(inside), sum(inside)] += window <= end * W
    assert made(output, end, "kind", "n", "total") == +expected


def test_a_stage_that_reads_a_stage(kafka: str, topic_prefix: str, tmp_path: Path) -> None:
    """Stateful after stateful, in processes of their own; the second is started first and
    waits for the first's columns.
    """
    stages = """
    first:
      reads: [a]
      participant: north
      transform: MODULE:counts
    second:
      reads: [first]
      participant: south
      transform: MODULE:sums
    """
    pipeline = write_pipeline(tmp_path, topic_prefix, FUNCTIONS, stages=stages)
    g = random.Random(5)
    end = 30
    rows = [
        (g.choice((bucket * W, bucket * W - 99, bucket * W - g.randint(1, 98))), g.randint(0, 1), 0)
        for bucket in range(1, end + 1)
        for _ in "1234"
    ]
    with (
        fed(kafka, pipeline) as (feeds, output),
        StageProcess(pipeline, "second.0", kafka, tmp_path / "state") as second,
    ):
        with StageProcess(pipeline, "first.0", kafka, tmp_path / "state") as first:
            for bucket in range(1, end + 1):
                feed_bucket(feeds["a"], rows, bucket)
                if bucket == end // 2:
                    wait_closed(output, bucket, first, second)
            wait_closed(output, end, first, second)
        firsts = windows(rows, 200, end * W)
        expected: Counter[tuple[int, int]] = Counter()
        made_of: Counter[tuple[int, int]] = Counter()
        for (event_time, key), n in firsts.items():
            window = event_time // 400 * 400 + 400
            if window <= end * W:
                expected[window, key] += n
                made_of[window, key] += 1
        assert made(output, end, "key", "n", "windows") == Counter(
            (w, k, n, made_of[w, k]) for (w, k), n in expected.items()
        )


def wait_closed(
    output: Output, bucket: int, *processes: StageProcess, deadline_s: float = 180
) -> None:
    def closed() -> bool:
        for process in processes:
            process.check()
        output.reader.poll(50)
        return output.reader.log_state.upto >= bucket

    wait_until(closed, deadline_s, f"bucket {bucket}")


def test_what_is_not_batch_safe_runs_one_bucket_per_batch_in_canonical_order(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    pipeline = one_stage(tmp_path, topic_prefix, "first_value")
    rows: list[Row] = [
        (bucket * W - late, 1, (bucket * 7 + late) % 10)
        for bucket in range(11, 17)
        for late in (0, 40, 99, 3)
    ]
    rows += [(1599, 1, 4), (1501, 1, 9), (1501, 1, 2)]
    end = 18
    with (
        fed(kafka, pipeline) as (feeds, output),
        RunningStage(pipeline, "s.0", kafka, tmp_path / "state") as stage,
    ):
        feeds["a"].append(readings(rows), end)
        output.wait_closed(end, stage)
        assert stage.batches_upto(end) >= 6, "six buckets with rows"
        detail = stage.service.status.detail
        assert not detail["batch_safe"]
        assert "First" in str(detail["why"])
        firsts: dict[int, Row] = {}
        for row in sorted(rows, key=lambda r: (-(-r[0] // W), r[0], r[1], r[2])):
            firsts.setdefault(row[0] // 300 * 300 + 300, row)
        assert made(output, end, "key", "first") == Counter(
            (w, r[1], r[2]) for w, r in firsts.items() if w <= end * W
        )


def test_rows_written_by_the_driver_and_by_tasks_make_one_bucket(
    kafka: str, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bucket's rows of two batches, of which the tasks wrote one: the two ways give tables
    of one schema.
    """
    monkeypatch.setattr(spark_sink, "DRIVER_ROWS_MAX", 40)
    pipeline = one_stage(tmp_path, topic_prefix, "mixed")
    small: list[Row] = [(1050, 0, 0), (1100, 0, 0)]
    large: list[Row] = [(1150 + i % 50, 0, 0) for i in range(60)]
    end = 16
    with (
        fed(kafka, pipeline) as (feeds, output),
        RunningStage(pipeline, "s.0", kafka, tmp_path / "state") as stage,
    ):
        for rows, upto in ((small, 11), (large, 12), ([(1201, 0, 0)], 13), ([], 14), ([], end)):
            feeds["a"].append(readings(rows) if rows else None, upto)
            output.wait_closed(upto, stage)
        every = [*small, *large, (1201, 0, 0)]
        expected = Counter((s, 1) for s, _, _ in every) + Counter(
            (e, n) for (e, _), n in windows(every, 200, end * W).items()
        )
        assert made(output, end, "n") == expected


def test_functions_that_cannot_run_are_rejected_before_they_do(
    topic_prefix: str, tmp_path: Path
) -> None:
    cases = {
        "raises": ["KeyError", "speed"],
        "nothing": ["NoneType", "DataFrame"],
        "no_event_time": ["no column event_time"],
        "number_event_time": ["bigint", "timestamp"],
        "twice": ["more than one column key"],
        "case_alone": ["Key, key", "differ by case alone"],
        "random_numbers": ["Rand"],
        "clock": ["TIMESTAMP", "called again"],
        "chance": [" was ", "called again"],
        "not_streaming": ["not made from"],
    }
    with small_session(tmp_path / "scratch", [str(tmp_path)]) as session:
        for function, words in cases.items():
            pipeline = one_stage(
                tmp_path / function, f"{topic_prefix}{function}".replace("_", ""), function
            )
            with pytest.raises(StageFunctionError) as raised:
                build_query(
                    session, pipeline, "s", {"a": source_schema(pipeline, "a")}, kafka="", socket=""
                )
            text = str(raised.value)
            assert all(word in text for word in [f":{function}", *words]), text
        pipeline = one_stage(tmp_path / "unused", f"{topic_prefix}unused", "unused", "ab")
        with pytest.raises(StageFunctionError, match="b"):
            build_query(
                session,
                pipeline,
                "s",
                {n: source_schema(pipeline, n) for n in "ab"},
                kafka="",
                socket="",
            )
        pipeline = one_stage(tmp_path / "ok", f"{topic_prefix}ok", "ok")
        query = build_query(
            session, pipeline, "s", {"a": source_schema(pipeline, "a")}, kafka="", socket=""
        )
        assert query.schema == pa.schema([("key", pa.int64()), ("event_time", pa.int64())])
        assert (query.traits.is_batch_safe, query.traits.is_stateful) == (True, False)


def test_inputs_have_only_the_columns_that_the_query_reads(
    topic_prefix: str, tmp_path: Path
) -> None:
    """... unless the function would then make another query, or none, as ``three``, which
    names a column of which nothing comes. The reader needs the key of a shard besides.
    """
    every = ["key", "value", "note", "level", "time"]
    cases = {
        "ok": ["key"],
        "with_lambda": ["key"],
        "counts": ["key"],
        "first_value": ["key", "value"],
        "bounds": every,
        "everything": every,
        "without_value": ["key", "note", "level", "time"],
        "looks_at_columns": every,
        "wants_a_column": every,
        "three": every,
    }
    shard = write_pipeline(
        tmp_path / "shard",
        f"{topic_prefix}shard",
        FUNCTIONS,
        stages="s:\n  reads: [a]\n  transform: MODULE:ok\n  shards: 2\n  shard_by: value\n",
        apart=False,
    )
    stages = [("shard", shard, "s.1", ["key", "value"])]
    for function, columns in cases.items():
        name = f"{topic_prefix}{function}".replace("_", "")
        sources = "abc" if function == "three" else "a"
        pipeline = one_stage(tmp_path / function, name, function, sources)
        stages.append((function, pipeline, "s", columns))
    with small_session(tmp_path / "scratch", [str(tmp_path)]) as session:
        for function, pipeline, stage, columns in stages:
            schemas = {name: source_schema(pipeline, name) for name in pipeline.sources}
            query = build_query(session, pipeline, stage, schemas, kafka="", socket="")
            leaves = query.frame("timeline")._jdf.queryExecution().analyzed().collectLeaves()
            outputs = [leaves.apply(i).output() for i in range(leaves.size())]
            found = [[output.apply(j).name() for j in range(output.size())] for output in outputs]
            # transformWithState has one more leaf, without any column, for the initial state that
            # it has not got
            assert [names for names in found if names] == [[*columns, "event_time"]] * found.count(
                [*columns, "event_time"]
            ), function
            assert [*columns, "event_time"] in found, function


def test_a_query_that_is_stopped_within_a_batch_is_no_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Spark cancels the batch's job, and gets back words in which it finds that it did so
    itself: neither Java nor Python logs an error.
    """

    def slow(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            threading.Event().wait(3)  # for what does not come
            yield batch

    class SlowSink(spark_sink.StageSink):
        def __init__(self) -> None:
            self.failure: BaseException | None = None

        def _write(self, frame: DataFrame, batch: int) -> None:
            assert batch == 0
            frame.sparkSession.range(1).mapInArrow(slow, "id long").toArrow()

    with small_session(tmp_path / "scratch", [str(tmp_path)]) as session:
        sink, jobs = SlowSink(), session.sparkContext.statusTracker()
        query = session.readStream.format("rate").load().writeStream.foreachBatch(sink).start()
        wait_until(jobs.getActiveJobsIds, 60, "its job runs")
        query.stop()
        assert any(word in str(sink.failure) for word in spark_sink._STOPPED), (
            "which one depends on where the batch was"
        )
        assert query.exception() is None
    errors = capfd.readouterr().err
    assert "Exception" not in errors, errors[:3000]
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize(
    ("function", "driver_rows", "words"),
    [
        ("udf_raises", 100, ["ValueError", "thirteen"]),
        pytest.param(
            "too_old", 100, ["bucket 10", "closed", "event_time"], marks=pytest.mark.nightly
        ),
        ("too_old", 0, ["bucket 10", "closed", "event_time"]),
        pytest.param("without_event_time", 0, ["no event_time"], marks=pytest.mark.nightly),
        pytest.param("wrong_batches", 100, ["IndexOutOfBounds"], marks=pytest.mark.nightly),
    ],
)
def test_a_function_that_fails_while_it_runs(
    function: str,
    driver_rows: int,
    words: list[str],
    kafka: str,
    topic_prefix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error names function, bucket and cause; nothing of the batch is closed.
    ``driver_rows`` 0: its tasks write.
    """
    monkeypatch.setattr(spark_sink, "DRIVER_ROWS_MAX", driver_rows)
    pipeline = one_stage(tmp_path, topic_prefix, function)
    with (
        fed(kafka, pipeline) as (feeds, output),
        RunningStage(pipeline, "s.0", kafka, tmp_path / "state") as stage,
    ):
        feeds["a"].append(readings([(1050, 1, 0)]), 11)
        output.wait_closed(11, stage)
        feeds["a"].append(readings([(1150, 1, 150 if function == "too_old" else 13)]), 12)
        error = wait_until(lambda: stage.error, 90, "the stage to end")
        assert isinstance(error, StageFunctionError), str(error)
        text = str(error)
        assert all(word in text for word in [*words, f":{function}", "stage s", "12"]), text
        output.reader.read_to_end()
        assert output.reader.log_state.upto == 11
