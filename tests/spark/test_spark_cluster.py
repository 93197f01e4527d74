"""A node whose tasks run on a Spark cluster: workers, the node or the master are killed, or do not
share what they must.

Results must be those that plain Python makes of the rows.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from anabranch.local.probe import get, metrics_port
from harness.spark_cluster import SECRET, spark_cluster
from harness.stage_on_a_cluster import (
    DEADLINE_S,
    FUNCTIONS,
    MANY,
    STAGES,
    Expected,
    made,
    use,
    wait_closed,
)
from harness.stage_processes import StageProcess
from harness.stages import Feed, Output, create_topics, readings, write_pipeline
from harness.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.nightly,
    pytest.mark.cluster,
]


def test_a_stage_on_a_cluster_that_loses_a_worker_and_then_its_node(
    kafka: str, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = write_pipeline(tmp_path, topic_prefix, FUNCTIONS, stages=STAGES)
    create_topics(kafka, pipeline)
    with spark_cluster(tmp_path / "cluster") as cluster:
        use(cluster, monkeypatch)
        feed, output = Feed(kafka, pipeline, "a"), Output(kafka, pipeline, "both")
        expected = Expected(7)
        try:
            with StageProcess(pipeline, "both.0", kafka, tmp_path / "state") as node:
                feed.append(readings(expected.more(1, 10, MANY)), 10)
                wait_closed(output, 10, node)
                assert made(output, 10) == expected.results(10)
                assert not _arguments_with(SECRET)
                cluster.kill(1)
                for bucket in range(11, 21):
                    feed.append(readings(expected.more(bucket, bucket, 200)), bucket)
                wait_closed(output, 20, node)
                feed.append(readings(expected.more(21, 30, MANY)), 30)
            with StageProcess(pipeline, "both.0", kafka, tmp_path / "state") as node:
                wait_closed(output, 30, node)
            assert made(output, 30) == expected.results(30)
            assert cluster.applications().count("Registered app") >= 2
        finally:
            feed.close()
            output.close()


def test_a_cluster_without_workers_and_one_whose_master_starts_anew(
    kafka: str, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = write_pipeline(tmp_path, topic_prefix, FUNCTIONS, stages=STAGES)
    create_topics(kafka, pipeline)
    state = tmp_path / "state"
    with spark_cluster(tmp_path / "cluster", workers=1) as cluster:
        use(cluster, monkeypatch)
        feed, output = Feed(kafka, pipeline, "a"), Output(kafka, pipeline, "both")
        expected = Expected(9)

        def more(count: int = 200) -> int:
            """Rows of the next ten buckets, and their end."""
            end = expected.end + 10
            feed.append(readings(expected.more(end - 9, end, count)), end)
            return end

        try:
            with StageProcess(pipeline, "both.0", kafka, state) as node:
                wait_closed(output, more(), node)
                cluster.kill(0)
                more()
                wait_until(
                    lambda: "start a worker that has a core" in _waiting_for(state, node),
                    DEADLINE_S,
                    "the node says that it has no executor",
                )
                cluster.add_worker()
                wait_closed(output, expected.end, node)
                wait_until(lambda: not _waiting_for(state, node), DEADLINE_S, "it goes on")
                cluster.kill_master()
                wait_closed(output, more(), node)  # whoever has executors needs no master
                cluster.start_master()
                more()
                assert node.wait(DEADLINE_S) == 1
                error = json.loads(node.all_of_its_log().splitlines()[-1])["error"]
                assert error.startswith(f"EngineEnded: Spark's master {cluster.master} has gone")
            with StageProcess(pipeline, "both.0", kafka, state) as node:
                wait_closed(output, more(), node)
            assert made(output, expected.end) == expected.results(expected.end)
        finally:
            feed.close()
            output.close()


def test_state_that_workers_keep_to_themselves(
    kafka: str, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that is another one in each process, as where machines share none."""
    pipeline = write_pipeline(tmp_path, topic_prefix, FUNCTIONS, stages=STAGES)
    create_topics(kafka, pipeline)
    (tmp_path / "node").mkdir()
    monkeypatch.chdir(tmp_path / "node")
    with spark_cluster(tmp_path / "cluster", workers=1) as cluster:
        use(cluster, monkeypatch)
        feed, output = Feed(kafka, pipeline, "a"), Output(kafka, pipeline, "both")
        expected = Expected(11)
        try:
            with StageProcess(pipeline, "both.0", kafka, Path("/proc/self/cwd/state")) as node:
                feed.append(readings(expected.more(1, 10, 200)), 10)
                wait_until(
                    lambda: (
                        "put --state-dir on a file system that the node and all workers"
                        in node.all_of_its_log()
                    ),
                    DEADLINE_S,
                    "the replica ends",
                )
                output.reader.poll(50)
                assert output.reader.log_state.upto == 0, "nothing counts that could be lost"
        finally:
            feed.close()
            output.close()


def _waiting_for(state: Path, node: StageProcess) -> str:
    """Return what the node waits for by its status, besides inputs."""
    node.check()
    port = metrics_port(state, "processing", "both.0", node.process.pid)
    answer = None if port is None else get(port, "/statusz", 10)
    found = "" if answer is None else json.loads(answer[1])["waiting_for"] or ""
    return str(found) if "executor" in found else ""


def test_a_master_that_nobody_answers_for(
    kafka: str, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And where the topics are missing, too, both are said at once."""
    pipeline = write_pipeline(tmp_path, topic_prefix, FUNCTIONS, stages=STAGES)
    monkeypatch.setenv("ANABRANCH_SPARK_MASTER", "spark://127.0.0.1:1")
    with StageProcess(pipeline, "both.0", kafka, tmp_path / "state") as node:
        assert node.wait(60) == 1
        error = json.loads(node.all_of_its_log().splitlines()[-1])["error"]
        assert error.startswith("Unavailable: Spark's master spark://127.0.0.1:1 cannot be reached")
        assert f"besides, there are no topics {topic_prefix}." in error
        assert "\n" not in error


def _arguments_with(secret: str) -> list[str]:
    """Return the command lines on this machine that contain ``secret``."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has just ended
            line = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if secret in line:
                found.append(line)
    return found
