"""A node on a real broker: two chained stages in one Spark, and one that fails beside them."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from anabranch.pipeline.model import Pipeline
from anabranch.process.frame import ExitCode
from harness.moved_stages import STAGES
from harness.service_processes import detail_of
from harness.stage_processes import StageProcess
from harness.stages import WIDTH_MS, Feed, Output, create_topics, readings, write_pipeline
from harness.waiting import wait_until

pytestmark = pytest.mark.integration

NODE = "north.0"
END = 20
FUNCTIONS = """
from pyspark.sql import functions as F


def positive(a):
    a.createOrReplaceTempView("rows")  # a view of one stage is none of another's
    return a.sparkSession.sql("SELECT key, value, event_time FROM rows WHERE value > 0")


def counts(clean):
    clean.createOrReplaceTempView("rows")
    windows = clean.groupBy(F.window("event_time", "200 milliseconds")).agg(F.count("*").alias("n"))
    return windows.select("n", F.col("window.end").alias("event_time"))


def odd(a):
    raised = F.raise_error(F.lit("planted: thirteen")).cast("long")
    return a.select(
        F.when(F.col("value") == 13, raised).otherwise(F.col("value")).alias("value"), "event_time"
    )


def unplanned(a):
    raise KeyError("planted: never planned")


def hog(a):
    return a.select(F.expr("size(sequence(1L, 200000000L + value))").alias("n"), "event_time")
"""
FAILING = """
odd:
  participant: north
  reads: [a]
  transform: MODULE:odd
unplanned:
  participant: north
  reads: [a]
  transform: MODULE:unplanned
"""
GREEDY = """
hog:
  participant: north
  reads: [a]
  transform: MODULE:hog
"""
ROWS = [
    (event_time, event_time % 3, event_time % 17 - 3)
    for event_time in range(1_001, END * WIDTH_MS, 7)
]


def stages_of(node: StageProcess, state: Path) -> dict[str, dict[str, Any]]:
    """Return what the node reports of each stage."""
    detail = detail_of(state, "processing", NODE, node.process.pid)
    return {each["stage"]: each for each in detail["stages"]} if detail else {}


def javas_of(node: StageProcess) -> Iterator[Path]:
    """Yield the Java processes that the node has started."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            text = path.read_text()
            if f" {node.process.pid} " in text and "(java)" in text:
                yield path


def pipeline_of(folder: Path, name: str, stages: str) -> Pipeline:
    return write_pipeline(folder, name, FUNCTIONS, stages=stages, apart=False)


def give(feed: Feed, first: int, last: int) -> None:
    for bucket in range(first, last + 1):
        mine = [row for row in ROWS if (bucket - 1) * WIDTH_MS < row[0] <= bucket * WIDTH_MS]
        feed.append(readings(mine) if mine else None, bucket)


def expected(end: int) -> Counter[tuple[int, int]]:
    """Rows above 0 of each window that ends by bucket ``end``."""
    kept = Counter(event_time // 200 * 200 + 200 for event_time, _, value in ROWS if value > 0)
    return Counter({(stop, n): 1 for stop, n in kept.items() if stop <= end * WIDTH_MS})


def test_stages_of_a_node_share_a_spark_and_fail_alone(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    pipeline = pipeline_of(tmp_path, topic_prefix, STAGES + FAILING)
    assert list(pipeline.nodes()) == [NODE]
    create_topics(kafka, pipeline)
    state = tmp_path / "state"
    with (
        closing(Feed(kafka, pipeline, "a")) as feed,
        closing(Output(kafka, pipeline, "windows")) as output,
    ):
        with StageProcess(pipeline, NODE, kafka, state) as node:
            give(feed, 11, END)
            output.wait_closed(END, node)

            def failed() -> dict[str, dict[str, Any]]:
                node.check()
                found = stages_of(node, state)
                there = all(
                    "planted" in str(found.get(stage, {}).get("error"))
                    for stage in ("odd", "unplanned")
                )
                return found if there else {}

            found = wait_until(failed, 300, "both failures are told", every_s=0.2)
            assert "thirteen" in found["odd"]["error"]
            assert "never planned" in found["unplanned"]["error"]
            assert [found[stage]["error"] for stage in ("clean", "windows")] == [None, None]
            assert len(list(javas_of(node))) == 1
        rows = [row for rows in output.buckets(11, END).values() for row in rows]
        assert Counter((row["event_time"], row["n"]) for row in rows) == expected(END)
    entries = [
        json.loads(line)
        for line in node.log().splitlines()
        if line.startswith("{") and "replica_ended" in line
    ]
    assert {entry["replica"].split(".")[0] for entry in entries} <= {"odd", "unplanned"}


def test_the_older_of_two_nodes_of_one_name_ends(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    """The older one was started before there were topics: it waits for them."""
    pipeline = pipeline_of(tmp_path, topic_prefix, STAGES)
    with StageProcess(pipeline, NODE, kafka, tmp_path / "older") as older:
        wait_until(lambda: "node_waits" in older.all_of_its_log(), 300, "it waits for topics")
        create_topics(kafka, pipeline)
        with (
            closing(Feed(kafka, pipeline, "a")) as feed,
            closing(Output(kafka, pipeline, "windows")) as output,
        ):
            give(feed, 11, 14)
            output.wait_closed(14, older)
            with StageProcess(pipeline, NODE, kafka, tmp_path / "newer") as newer:
                assert older.wait(300) == ExitCode.FENCED, older.log()
                give(feed, 15, END)
                output.wait_closed(END, newer)
            rows = [row for rows in output.buckets(11, END).values() for row in rows]
            assert Counter((row["event_time"], row["n"]) for row in rows) == expected(END)


@pytest.mark.nightly
def test_spark_starts_before_there_are_topics(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    """Runs by night: if Spark takes as long as a node waits for topics, the node ends first."""
    pipeline = pipeline_of(tmp_path, topic_prefix, STAGES)
    with StageProcess(pipeline, NODE, kafka, tmp_path / "state") as node:

        def started() -> bool:
            node.check()
            return "spark_started" in node.all_of_its_log()

        wait_until(started, 60, "Spark has started")
        assert "placed" not in node.all_of_its_log()


def test_a_node_that_is_not_there(kafka: str, topic_prefix: str, tmp_path: Path) -> None:
    pipeline = pipeline_of(tmp_path, topic_prefix, STAGES)
    with StageProcess(pipeline, "south.0", kafka, tmp_path / "state") as node:
        assert node.wait(300) == ExitCode.CONFIGURATION
        assert "has no such processing; there are north.0" in node.log()


def error_of(node: StageProcess) -> str:
    """Return the error by which the node says that it ended."""
    (error,) = [
        json.loads(line)["error"]
        for line in node.all_of_its_log().splitlines()
        if '"event": "stopped"' in line
    ]
    return str(error)


@pytest.mark.nightly
def test_a_stage_that_takes_all_memory_is_named_the_second_time(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    """It ends the node's Java, and with it the node, which whoever started it starts again."""
    pipeline = pipeline_of(tmp_path, topic_prefix, STAGES + GREEDY)
    create_topics(kafka, pipeline)
    errors = []
    with closing(Feed(kafka, pipeline, "a")) as feed:
        give(feed, 11, END)
        for _ in range(2):
            with StageProcess(pipeline, NODE, kafka, tmp_path / "state") as node:
                assert node.wait(150) == ExitCode.ERROR, node.log()
                errors.append(error_of(node))
    assert all("Java ended" in text for text in errors), errors
    assert ["hog.0" in text for text in errors] == [False, True], errors
