"""A source with two shards, on a real broker and real Spark: one is killed under load. The stage
goes on without its partitions, tentatively, and says which shard is missing; once it runs again all
is as if nothing had happened. And the source gets another number of shards: the stage goes on from
its checkpoint.
"""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.codec.catalog import TopicSettings
from anabranch.ingestion.batches import HEARTBEAT
from anabranch.pipeline.file import load
from anabranch.pipeline.model import Pipeline
from anabranch.ports import TopicPartition
from anabranch.protocol.log.boundary_log import Outcome
from anabranch.protocol.log.records import BoundaryKind, BoundaryRecord, LogEntry
from harness.rows_and_windows import FUNCTIONS
from harness.service_processes import ModuleProcess, service
from harness.stages import STARTS_WITHIN_S, Output, RunningStage, create_topics, write_pipeline
from harness.waiting import wait_until

pytestmark = pytest.mark.integration

PARTITIONS = 3
Row = tuple[int, int]
"""(event time in ms, value)"""


def rows_of(first_ms: int, last_ms: int) -> list[list[Row]]:
    """Return the rows up to ``last_ms``, by partition."""
    found: list[list[Row]] = [[] for _ in range(PARTITIONS)]
    for number, time_ms in enumerate(range(first_ms + 7, last_ms, 7)):
        found[number % PARTITIONS].append((time_ms, 1_000 + number))
    return found


def expected(rows: list[Row], upto_ms: int) -> Counter[Row]:
    made = Counter(rows)
    made += Counter((end, n) for end, n in Counter(t // 200 * 200 + 200 for t, _ in rows).items())
    return Counter({row: count for row, count in made.items() if row[0] <= upto_ms})


class World:
    """The pipeline, what was produced, and what its stage has made."""

    def __init__(self, kafka: str, name: str, folder: Path) -> None:
        self.kafka, self.folder = kafka, folder
        self.pipeline = self._pipeline(name)
        create_topics(kafka, self.pipeline)
        self.topic = self.pipeline.sources["a"].topics[0]
        log = KafkaEventLog(kafka)
        admin = log.admin()
        admin.create([TopicSettings(self.topic, PARTITIONS)])
        admin.close()
        self._writer, self.rows = log.writer(), list[Row]()
        self.tentative: list[BoundaryRecord] = []
        self.stable: list[BoundaryRecord] = []
        self.output = Output(kafka, self.pipeline, "s")
        self.output.reader.listen(self._seen)

    def _pipeline(self, name: str) -> Pipeline:
        stages = "s:\n  reads: [a]\n  transform: MODULE:both\n"
        path = write_pipeline(
            self.folder, name, FUNCTIONS, stages=stages, live=True, max_delay_ms=2_000
        ).path
        source = "    shards: 2\n    max_ahead: unlimited\n    idle_timeout: {partition: never}\n"
        path.write_text(path.read_text().replace("    format: json\n", source, 1))
        return load(path)

    def has_shards(self, before: int, now: int) -> None:
        """Change the number of shards in the file, and create the topics."""
        path = self.pipeline.path
        line = f"    shards: {before}\n"
        path.write_text(path.read_text().replace(line, f"    shards: [{before}, {now}]\n", 1))
        self.pipeline = load(path)
        create_topics(self.kafka, self.pipeline)

    def _seen(self, _: int, entry: LogEntry, outcome: Outcome) -> None:
        if outcome.accepted and isinstance(entry, BoundaryRecord):
            is_tentative = entry.kind is BoundaryKind.TENTATIVE
            (self.tentative if is_tentative else self.stable).append(entry)

    def produce(self, first_ms: int, last_ms: int) -> None:
        """Each partition says at its end that there is no more up to ``last_ms``, which closes all
        until then, and leaves nothing for which anybody would wait.
        """
        for partition, rows in enumerate(rows_of(first_ms, last_ms)):
            self.rows += rows
            at = TopicPartition(self.topic, partition)
            for time_ms, value in rows:
                record = {"key": 0, "value": value, "note": None, "level": 0.5, "time": time_ms}
                self._writer.send(at, json.dumps(record).encode())
            self._writer.send(at, None, headers=[(HEARTBEAT, str(last_ms + 1).encode())])
        self._writer.flush()

    def shard(self, name: str) -> ModuleProcess:
        return service("ingestion", name, self.pipeline.path, self.kafka, self.folder / name)

    def stage(self) -> RunningStage:
        return RunningStage(self.pipeline, "s.0", self.kafka, self.folder / "state")

    def closed(self, bucket: int, stage: RunningStage, *shards: ModuleProcess) -> bool:
        """Whether it is stable; all of these still run."""
        stage.check()
        for shard in shards:
            shard.alive()
        self.output.reader.poll(50)
        return self.output.reader.log_state.upto >= bucket

    def closes(self, bucket: int, stage: RunningStage, *shards: ModuleProcess) -> None:
        """Wait for that."""
        wait_until(
            lambda: self.closed(bucket, stage, *shards),
            STARTS_WITHIN_S,
            f"bucket {bucket} is closed",
        )

    def made(self, upto: int) -> Counter[Row]:
        found = self.output.buckets(1, upto)
        return Counter((row["event_time"], row["n"]) for rows in found.values() for row in rows)

    def shards_close(self, bucket: int, *shards: ModuleProcess) -> None:
        """Wait until each of them has closed it."""
        for stream in self.pipeline.source_streams():
            with closing(Output(self.kafka, self.pipeline, stream)) as given:

                def closed(given: Output = given) -> bool:
                    for shard in shards:
                        shard.alive()
                    given.reader.poll(50)
                    return given.reader.log_state.upto >= bucket

                wait_until(closed, STARTS_WITHIN_S, f"bucket {bucket} of {stream} is closed")

    def close(self) -> None:
        self._writer.close()
        self.output.close()


def test_a_shard_is_killed_and_nothing_is_lost_or_twice(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    world = World(kafka, topic_prefix, tmp_path)
    with world.shard("a.0") as zero, ExitStack() as later:
        with world.shard("a.1") as one:
            world.produce(1_000, 3_000)
            world.shards_close(30, zero, one)
            stage = later.enter_context(world.stage())
            world.closes(30, stage, zero, one)
            assert not world.tentative
            world.produce(3_000, 4_000)
            os.kill(one.process.pid, signal.SIGKILL)
            one.process.wait()
        world.produce(4_000, 6_000)
        wait_until(
            lambda: (
                world.closed(0, stage, zero)
                and any("a.1" in each.missing for each in world.tentative)
            ),
            STARTS_WITHIN_S,
            "results without the shard that is missing",
        )
        with world.shard("a.1"):
            world.closes(59, stage, zero)
        assert world.made(59) == expected(world.rows, 5_900)
    world.close()


@pytest.mark.nightly
def test_another_number_of_shards_and_the_stage_goes_on_from_its_checkpoint(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    world = World(kafka, topic_prefix, tmp_path)
    with ExitStack() as processes:
        for name in world.pipeline.source_processes():
            processes.enter_context(world.shard(name))
        with world.stage() as stage:
            world.produce(1_000, 2_000)
            world.closes(19, stage)
            world.produce(2_000, 3_000)
            world.closes(29, stage)  # so what closed 19 is in a checkpoint
        world.has_shards(2, 3)
        added = world.pipeline.source_processes()
        assert len(added) == 3
        world.produce(3_000, 4_000)
        with world.stage() as stage:
            shards = [processes.enter_context(world.shard(name)) for name in added]
            world.produce(4_000, 6_000)
            world.closes(59, stage, *shards)
    assert world.made(59) == expected(world.rows, 5_900)
    first, *others = world.stable
    assert first.prev is None
    assert {each.prev for each in others} <= {each.id for each in world.stable}, "it goes on"
    world.close()
