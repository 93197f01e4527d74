"""A stage killed at the worst moments: its stream is what it would have been, pending parts
included.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Self

import pytest

from anabranch.adapters.disk.checkpoint_folder import last_commit
from anabranch.pipeline.model import Pipeline
from anabranch.process.frame import ExitCode
from harness.rows_and_windows import FIRST, FUNCTIONS, expected, rows_of
from harness.stage_processes import StageProcess
from harness.stages import Feed, Output, create_topics, readings, write_pipeline
from harness.waiting import wait_until

pytestmark = pytest.mark.integration

END = 30
LONG = 200


class Bench:
    """One stage with one input, and what it wrote."""

    def __init__(self, kafka: str, name: str, folder: Path) -> None:
        self._kafka, self._state = kafka, folder / "state"
        stages = "s:\n  reads: [a]\n  participant: north\n  transform: MODULE:both\n"
        self.pipeline: Pipeline = write_pipeline(folder, name, FUNCTIONS, stages=stages)
        create_topics(kafka, self.pipeline)
        self.feed, self.output = Feed(kafka, self.pipeline, "a"), Output(kafka, self.pipeline, "s")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.feed.close()
        self.output.close()

    def stage(self, crash_point: str = "") -> StageProcess:
        return StageProcess(self.pipeline, "s.0", self._kafka, self._state, crash_point=crash_point)

    def give(self, buckets: Iterable[int]) -> None:
        for bucket in buckets:
            mine = rows_of(bucket)
            self.feed.append(readings(mine) if mine else None, bucket)

    def wait_closed(self, bucket: int, process: StageProcess) -> None:
        def closed() -> bool:
            process.check()
            self.output.reader.poll(50)
            return self.output.reader.log_state.upto >= bucket

        wait_until(closed, 180, f"bucket {bucket}")

    def commits(self) -> int:
        """Last batch that Spark committed in the newest checkpoint."""
        folders = sorted((self._state / "processing" / "s.0").glob("life-*/checkpoints/*"))
        return last_commit(folders[-1]) if folders else -1

    def check(self, upto: int = END) -> None:
        found = self.output.buckets(1, upto)
        made = Counter((row["event_time"], row["n"]) for rows in found.values() for row in rows)
        assert made == expected(1, upto)


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("processing.batch_logged", marks=pytest.mark.nightly),
        "processing.blocks_written",
        pytest.param("processing.boundary_appended", marks=pytest.mark.nightly),
    ],
)
def test_killed_twice_at_a_point_of_a_batch(
    point: str, kafka: str, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second kill is in the batch that is run again. A batch per bucket and no pause:
    parts of the batch before are pending.
    """
    monkeypatch.setenv("ANABRANCH_SPARK_BATCH_ROWS_MAX", "1")
    with Bench(kafka, topic_prefix, tmp_path) as bench:
        bench.give(range(FIRST, END))
        with bench.stage(f"{point}:4") as stage:
            assert stage.wait(120) == -9
        with bench.stage(f"{point}:1") as stage:
            assert stage.wait(120) == -9
        bench.give([END])
        with bench.stage() as stage:
            bench.wait_closed(END, stage)
        bench.check()


@pytest.mark.nightly
def test_killed_after_spark_has_committed(kafka: str, topic_prefix: str, tmp_path: Path) -> None:
    with Bench(kafka, topic_prefix, tmp_path) as bench:
        with bench.stage() as stage:
            bench.give(range(FIRST, 16))
            wait_until(lambda: bench.commits() >= 1, 120, "the first commits")
            before = bench.commits()
            bench.give(range(16, 21))
            wait_until(lambda: bench.commits() > before, 120, "one more commit")
            stage.kill()
        bench.give(range(21, END + 1))
        with bench.stage() as stage:
            bench.wait_closed(END, stage)
        bench.check()


@pytest.mark.nightly
def test_of_two_processes_of_one_replica_with_work_to_do_one_goes_on(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    """The newer one replaces the older between two batches of the older one, or in the middle of
    one.
    """
    with Bench(kafka, topic_prefix, tmp_path) as bench, bench.stage() as older:
        bench.give([FIRST])
        bench.wait_closed(FIRST, older)
        with bench.stage() as newer:
            bucket = FIRST

            def ended() -> bool:
                nonlocal bucket
                bucket = min(bucket + 1, LONG - 1)
                bench.give([bucket])
                return older.process.poll() is not None

            wait_until(ended, 120, "the end of the older process", every_s=0.3)
            assert older.process.returncode == ExitCode.FENCED, older.log()
            bench.give(range(bucket + 1, LONG + 1))
            bench.wait_closed(LONG, newer)
        bench.check(LONG)


@pytest.mark.nightly
def test_of_two_idle_processes_of_one_replica_the_older_ends(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    with Bench(kafka, topic_prefix, tmp_path) as bench, bench.stage() as older:
        bench.give(range(FIRST, 16))
        bench.wait_closed(15, older)
        with bench.stage() as newer:
            wait_until(
                lambda: older.process.poll() is not None,
                120,
                "the end of the older process, which has nothing to do",
            )
            assert older.process.returncode == ExitCode.FENCED, older.log()
            bench.give(range(16, END + 1))
            bench.wait_closed(END, newer)
        bench.check()
