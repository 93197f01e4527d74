"""A stage goes on on another machine from what is in the store of checkpoints, with real Spark."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from anabranch.adapters.disk.spark_checkpoint_files import last_bucket_now, numbered
from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.codec import boundary_records
from anabranch.ports import TopicPartition
from anabranch.protocol.log.records import BoundaryRecord
from harness.sources import everything
from harness.stage_processes import StageProcess
from harness.stages import Feed, Output, create_topics, readings, write_pipeline
from harness.waiting import wait_until

pytestmark = pytest.mark.integration

W = 100
FUNCTIONS = '''
from pyspark.sql import functions as F

def sums(a):
    """The sum of two buckets, when the second one closes."""
    windows = a.groupBy(F.window("event_time", "200 milliseconds")).agg(F.sum("value").alias("n"))
    return windows.select("n", F.col("window.end").alias("event_time"))
'''


def expected(first: int, last: int) -> Counter[Any]:
    """Return the results of windows that end in ``first..last``, both even; bucket ``b`` has one
    record of value ``b``.
    """
    return Counter({(end * W, 2 * end - 1): 1 for end in range(first, last + 1, 2)})


# By day: from the store on another node, test_scaling.py; without old input, test_recovery.py.
@pytest.mark.nightly
def test_a_stage_goes_on_on_another_machine(
    kafka: str, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The beginning of its input is deleted by then: without the store it would wait for ever."""
    store = tmp_path / "store"
    store.mkdir()
    monkeypatch.setenv("ANABRANCH_CHECKPOINT_STORE", f"file://{store}")
    stages = "s:\n  reads: [a]\n  participant: north\n  transform: MODULE:sums\n"
    pipeline = write_pipeline(tmp_path, topic_prefix, FUNCTIONS, stages=stages)
    create_topics(kafka, pipeline)
    feed, output = Feed(kafka, pipeline, "a"), Output(kafka, pipeline, "s")
    log = KafkaEventLog(kafka)

    def give(first: int, last: int, process: StageProcess) -> None:
        for bucket in range(first, last + 1):
            feed.append(readings([(bucket * W - 50, 0, bucket)]), bucket)

        output.wait_replica("0", last, process)

    def is_stored(batch: int) -> bool:
        for path in store.glob("*/s.0/life-*/*.json"):
            with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
                # it is being written, or has been replaced
                if f"commits/{batch}" in json.loads(path.read_text())["files"]:
                    return True
        return False

    with StageProcess(pipeline, "s.0", kafka, tmp_path / "first") as first:
        give(11, 21, first)
        (checkpoint,) = (tmp_path / "first" / "processing" / "s.0").glob("life-*/checkpoints/*")
        wait_until(lambda: last_bucket_now(checkpoint) >= 21, 300, "Spark commits the batch")
        batch = numbered(checkpoint / "commits")[-1]
        wait_until(lambda: is_stored(batch), 300, "a checkpoint in the store that holds that")
    blocks = pipeline.topic_names.blocks("a", "0")
    admin, reader = log.admin(), log.reader()
    parts = [TopicPartition(blocks, partition) for partition in (0, 1)]
    admin.delete_before({part: reader.offsets(part)[1] // 2 for part in parts})
    admin.close()
    reader.close()
    shutil.rmtree(tmp_path / "first")

    with StageProcess(pipeline, "s.0", kafka, tmp_path / "second") as second:
        give(22, 40, second)
    found = output.buckets(12, 40)
    assert Counter(
        (row["event_time"], row["n"]) for rows in found.values() for row in rows
    ) == expected(12, 40)
    epochs_with_a_base = {
        entry.epoch
        for chunk in everything(log, pipeline.topic_names.boundaries("s"))
        for value, headers in zip(chunk.values, chunk.headers, strict=True)
        if isinstance(entry := boundary_records.decode(value, headers), BoundaryRecord)
        and entry.base is not None
    }
    assert not epochs_with_a_base, "it is its own checkpoint, which its records continue"
    feed.close()
    output.close()
