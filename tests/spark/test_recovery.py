"""A stage whose disk is lost or damaged, with real Spark: it goes on from a peer's
checkpoint, or from an older batch.
"""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from anabranch.adapters.disk import state_format
from anabranch.adapters.disk.spark_checkpoint_files import (
    WholeFiles,
    committed_batches,
    first_whole,
    last_bucket,
)
from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.codec import boundary_records
from anabranch.ports import TopicPartition
from anabranch.protocol.log.records import BoundaryRecord
from harness.rows_and_windows import FUNCTIONS, expected, rows_of
from harness.sources import everything
from harness.stage_processes import StageProcess
from harness.stages import (
    Checked,
    Feed,
    Output,
    RunningStage,
    create_topics,
    readings,
    write_pipeline,
)
from harness.waiting import wait_until

pytestmark = pytest.mark.integration


def test_a_lost_disk_and_a_damaged_one(kafka: str, topic_prefix: str, tmp_path: Path) -> None:
    """Replica 1 starts where the beginning of the input is deleted: from replica 0's
    checkpoint. Then its newest files are cut short, and a process reads them that has none of them
    in memory.
    """
    stages = "s:\n  reads: [a]\n  participant: north\n  replicas: 2\n  transform: MODULE:both\n"
    pipeline = write_pipeline(tmp_path, topic_prefix, FUNCTIONS, stages=stages, replicas=2)
    create_topics(kafka, pipeline)
    feed, output = Feed(kafka, pipeline, "a"), Output(kafka, pipeline, "s")
    state = tmp_path / "state"
    state_format.claim(state)  # as a process does, before there is any state
    log = KafkaEventLog(kafka)

    def give(first: int, last: int) -> None:
        for bucket in range(first, last + 1):
            mine = rows_of(bucket)
            feed.append(readings(mine) if mine else None, bucket)

    def closed(replica: str, bucket: int, stage: Checked) -> None:
        def reached() -> bool:
            stage.check()
            output.reader.poll(50)
            return output.reader.log_state.closed(replica) >= bucket

        wait_until(reached, 180, f"bucket {bucket} of replica {replica}")

    def committed(bucket: int) -> bool:
        """Whether replica 1 has no more to write of the bucket."""
        checkpoint = max((state / "processing" / "s.1").glob("life-*/checkpoints/*"))
        return last_bucket(checkpoint, next(iter(committed_batches(checkpoint)), -1)) >= bucket

    def made(replica: str, first: int, last: int) -> Counter[Any]:
        found = output.replica_rows(replica, first, last)
        return Counter((row["event_time"], row["n"]) for rows in found.values() for row in rows)

    with RunningStage(pipeline, "s.0", kafka, state) as zero:
        give(11, 20)
        closed("0", 20, zero)
        give(21, 24)
        closed("0", 24, zero)
    blocks = TopicPartition(pipeline.topic_names.blocks("a", "0"), 0)
    admin, reader = log.admin(), log.reader()
    admin.delete_before(
        {
            TopicPartition(blocks.topic, p): reader.offsets(TopicPartition(blocks.topic, p))[1] // 2
            for p in (0, 1)
        }
    )
    admin.close()
    reader.close()

    with RunningStage(pipeline, "s.1", kafka, state) as one:
        for first, last in (
            (25, 28),
            (29, 33),
        ):  # batches of its own, of which two are damaged below
            give(first, last)
            closed("1", last, one)
            wait_until(lambda: committed(last), 60, f"bucket {last} is committed")  # noqa: B023 - asked before the next
    entries = [
        boundary_records.decode(value, headers)
        for chunk in everything(log, pipeline.topic_names.boundaries("s"))
        for value, headers in zip(chunk.values, chunk.headers, strict=True)
    ]
    bases = [
        e.base
        for e in entries
        if isinstance(e, BoundaryRecord) and e.replica == "1" and e.base is not None
    ]
    assert len(bases) == 1
    assert bases[0] is not None
    assert 20 <= bases[0] <= 24
    assert made("1", bases[0] + 1, 33) == expected(bases[0] + 1, 33)

    (checkpoint,) = (state / "processing" / "s.1").glob("life-*/checkpoints/*")
    newest = committed_batches(checkpoint)[0]
    assert first_whole(checkpoint, [newest], WholeFiles()) == newest, "what Spark makes is whole"
    for path in checkpoint.glob(f"state/0/*/{newest + 1}_*.changelog"):
        path.write_bytes(path.read_bytes()[:20])
    (checkpoint / "commits" / str(newest - 1)).write_bytes(b"")
    shutil.rmtree(state / "processing" / "s.0")
    with StageProcess(pipeline, "s.1", kafka, state) as again:
        give(34, 41)
        closed("1", 41, again)
    assert made("1", 34, 41) == expected(34, 41)
    found = output.buckets(11, 41)
    assert Counter(
        (row["event_time"], row["n"]) for rows in found.values() for row in rows
    ) == expected(11, 41)
    feed.close()
    output.close()
