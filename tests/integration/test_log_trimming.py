"""Boundary logs are trimmed below snapshots on a real broker: a replica continues over them, and a
large snapshot is read back. The services themselves: ``test_crash_points.py``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.adapters.disk.checkpoints import ReplicaFolder
from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.system.clock import SystemClock
from anabranch.adapters.system.entropy import SystemEntropy
from anabranch.codec import boundary_records
from anabranch.codec.catalog import topic_settings
from anabranch.pipeline.topic_names import TopicNames
from anabranch.ports import TopicPartition
from anabranch.protocol.log.records import BoundaryRecord, EpochStarted, Part
from anabranch.streams.boundary_reader import BoundaryReader
from harness import file_replica
from harness.boundary_logs import record
from harness.file_replica import FileReplica, stage_log_state
from harness.replica_world import stable_rows
from harness.trimmed_log import trim_below_snapshot

pytestmark = pytest.mark.integration


def test_a_replica_goes_on_from_its_checkpoint_and_from_a_peers(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    log = KafkaEventLog(kafka)
    names = TopicNames(topic_prefix)
    clock = SystemClock()
    entropy = SystemEntropy()
    file_replica.create_topics(log, names)
    source = file_replica.Source(log, names, clock, entropy)

    def run(replica: str, folder: Path = tmp_path) -> None:
        made = FileReplica(log, names, replica, folder, clock, entropy)
        made.start()
        made.settle()
        made.close()

    def trim() -> None:
        source.poll()
        for topic, writers in (
            (names.boundaries(file_replica.INPUT), ["0"]),
            (names.boundaries(file_replica.STAGE), file_replica.REPLICAS),
        ):
            trim_below_snapshot(log, topic, writers)

    for number in range(1, 8):
        upto = 10 * number
        source.close(upto, *range(upto - 9, upto - 2))
        run("0")
        if number == 4:
            source.trim(30)  # 1 cannot begin at the beginning
        if number in (2, 4, 5, 6):
            trim()
        if number >= 4:
            run("1")
        assert stable_rows(stage_log_state(log, names)) == source.expected(upto), f"bucket {upto}"
    assert ReplicaFolder(tmp_path / "s.1", {}).newest() is not None


@pytest.mark.parametrize("parts", [2_000, 60_000])
def test_a_large_snapshot_goes_through_a_broker(kafka: str, topic_prefix: str, parts: int) -> None:
    """The snapshots have about 0.1 and 4 MiB, and the topic its usual settings."""
    log, topic = KafkaEventLog(kafka), TopicNames(topic_prefix).boundaries("s")
    admin = log.admin()
    admin.create([topic_settings("boundaries", topic)])
    admin.close()
    writer, at = log.writer(), TopicPartition(topic, 0)
    entries: list[EpochStarted | BoundaryRecord] = [EpochStarted("0", "f", "t")]
    for number in range(parts // 500):
        named = tuple(
            Part(1 + number * 500 + i, 0, "0123456789abcdef", 1, i, i + 1, 1, 2**63 + i)
            for i in range(500)
        )
        entries.append(record(0, number, 500 * (number + 1), named))
    for entry in entries:
        value, headers = boundary_records.encode(entry)
        writer.send(at, value, headers=headers)
    writer.flush()
    writer.close()
    whole = BoundaryReader(log, topic, ["0"])
    whole.read_to_end()
    trim_below_snapshot(log, topic, ["0"])
    begun = BoundaryReader(log, topic, ["0"])
    begun.read_to_end()
    assert begun.log_state.snapshot(0) == whole.log_state.snapshot(0)
    assert len(begun.log_state.stable(1, parts)) == parts
    for reader in (whole, begun):
        reader.close()
