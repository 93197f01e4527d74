"""What an output reaches with one process and with several: delivery drains a backlog of stable
results of one stage, which this writes in place of a stage; nothing else runs but the broker.

``python -m benchmarks.output_shards [--records N] [--shards 1,2] [--key COLUMN] [--work-dir DIR]``.
As in ``benchmarks.shards`` each shard is pinned to a core of its own, so look at results per second
of a shard's processor time.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.system.clock import SystemClock
from anabranch.adapters.system.entropy import SystemEntropy
from anabranch.codec import control_records
from anabranch.pipeline.file import load
from anabranch.pipeline.model import Pipeline
from anabranch.ports import EventLog, TopicPartition
from anabranch.protocol.control.records import DeliveryProgress
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.records import BoundaryRecord, EpochStarted
from anabranch.runtime.block_writer import BlockWriter
from anabranch.runtime.boundary_writer import BoundaryWriter
from anabranch.up.embedded_kafka import EmbeddedKafka
from anabranch.up.topics import prepare, topics_of
from benchmarks.machine import machine
from benchmarks.processes import exit_on_signals, machine_cpu_s, tree

_JOBS: Final = Path(__file__).with_name("jobs")
_STAGE: Final = "stateless"
_OUTPUT: Final = "results"
_BUCKETS: Final = 500
_BUCKETS_AT_ONCE: Final = 50
_DRAINED_WITHIN_S: Final = 280.0


def main() -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(prog="output_shards")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--shards", default="1,2")
    parser.add_argument("--key", default="")
    parser.add_argument(
        "--work-dir", type=Path, default=Path(tempfile.gettempdir()) / "anabranch-output-shards"
    )
    arguments = parser.parse_args()
    exit_on_signals()
    print(machine())
    for shards in map(int, arguments.shards.split(",")):
        shutil.rmtree(arguments.work_dir, ignore_errors=True)
        arguments.work_dir.mkdir(parents=True)
        print(_drain(arguments.work_dir, shards, arguments.records, arguments.key), flush=True)
    shutil.rmtree(arguments.work_dir, ignore_errors=True)
    return 0


def _drain(folder: Path, shards: int, records: int, key: str) -> str:
    kafka = EmbeddedKafka(folder / "kafka")
    kafka.start()
    running: list[subprocess.Popen[bytes]] = []
    try:
        pipeline = _pipeline(folder, shards, key)
        log = KafkaEventLog(kafka.address)
        prepare(log, topics_of(pipeline, embedded=True), create_inputs=True, say=print)
        stage = _Stage(log, pipeline)
        stage.close_buckets(1, {1: _rows(1, 1, pipeline.bucket_ms)})
        cores = sorted(os.sched_getaffinity(0))
        running = [
            _shard(folder, process, kafka.address, cores[index % len(cores)])
            for index, process in enumerate(pipeline.deliveries())
        ]
        _wait(lambda: _delivered(log, pipeline) >= 1, running)
        cpu_s = [sum(tree(each.pid).values()) for each in running]
        for each in running:
            each.send_signal(signal.SIGSTOP)  # the backlog comes first
        stage.fill(records)
        broker_s, machine_s = sum(tree(kafka.pid or 0).values()), machine_cpu_s()
        begun_s = time.time()
        for each in running:
            each.send_signal(signal.SIGCONT)
        _wait(lambda: _delivered(log, pipeline) >= 1 + _BUCKETS, running)
        seconds = time.time() - begun_s
        used_s = [
            sum(tree(each.pid).values()) - before
            for each, before in zip(running, cpu_s, strict=True)
        ]
        broker_s = sum(tree(kafka.pid or 0).values()) - broker_s
        machine_s = machine_cpu_s() - machine_s - sum(used_s) - broker_s
        per_core = [f"{records / shards / each / 1_000:.0f}" for each in used_s]
        return (
            f"{shards} shards: {records} results in {seconds:.1f} s,"
            f" {records / seconds / 1_000:.0f} k/s; processor time of the shards"
            f" {', '.join(f'{each:.2f}' for each in used_s)} s, so {', '.join(per_core)} k results"
            f" per second of a core; of the broker {broker_s:.1f} s, of all else {machine_s:.1f} s"
        )
    finally:
        for each in running:
            each.send_signal(signal.SIGCONT)
            each.terminate()
        for each in running:
            each.wait()
        kafka.stop()


def _pipeline(folder: Path, shards: int, key: str) -> Pipeline:
    for path in _JOBS.glob("*"):
        if path.is_file():
            shutil.copy(path, folder)
    path = folder / "stateless.yaml"
    text = path.read_text().replace("key: []", f"key: [{key}]")
    path.write_text(
        text.replace(f"    stage: {_STAGE}\n", f"    stage: {_STAGE}\n    shards: {shards}\n", 1)
    )
    return load(path)


def _rows(bucket: int, count: int, bucket_ms: int) -> pa.Table:
    """Results as the job ``stateless`` makes them, of one bucket."""
    random = np.random.default_rng(bucket)
    times = (bucket - 1) * bucket_ms + 1 + random.integers(0, bucket_ms, count)
    return pa.table(
        {
            "time": times,
            "seq": bucket * 10_000_000 + np.arange(count),
            "region": random.integers(0, 20, count),
            "scaled": random.integers(0, 1_000_000, count),
            "event_time": times,
        }
    )


class _Stage:
    """Writes in place of the stage's one replica."""

    def __init__(self, log: EventLog, pipeline: Pipeline) -> None:
        names, entropy = pipeline.topic_names, SystemEntropy()
        self._partitions, self._bucket_ms = pipeline.partitions, pipeline.bucket_ms
        self._boundaries = BoundaryWriter(
            log,
            names.boundaries(_STAGE),
            pipeline.stream_writers(_STAGE),
            EpochStarted("0", f"bucket_ms={pipeline.bucket_ms}", entropy.token(), schema=""),
            SystemClock(),
        )
        self._epoch = self._boundaries.start()
        self._blocks = BlockWriter(log, names.blocks(_STAGE, "0"), "0", self._epoch, entropy)
        self._timeline, self._batch = entropy.token(), 0

    def close_buckets(self, upto: int, tables: dict[int, pa.Table]) -> None:
        """One batch."""
        self._batch += 1
        parts = self._blocks.write(
            [(bucket % self._partitions, bucket, table) for bucket, table in tables.items()]
        )
        self._boundaries.append(
            BoundaryRecord(
                replica="0",
                epoch=self._epoch,
                id=BatchId(self._timeline, self._batch),
                prev=self._boundaries.tip(),
                closed=upto,
                parts=parts,
            )
        )

    def fill(self, records: int) -> None:
        """The backlog: ``records`` results in the buckets after the first."""
        for first in range(2, 2 + _BUCKETS, _BUCKETS_AT_ONCE):
            some = range(first, first + _BUCKETS_AT_ONCE)
            tables = {each: _rows(each, records // _BUCKETS, self._bucket_ms) for each in some}
            self.close_buckets(some[-1], tables)


def _delivered(log: EventLog, pipeline: Pipeline) -> int:
    """The bucket up to which all shards have recorded that they delivered."""
    return min(_progress(log, pipeline, process) for process in pipeline.deliveries())


def _progress(log: EventLog, pipeline: Pipeline, process: str) -> int:
    at, newest = TopicPartition(pipeline.topic_names.progress(process), 0), 0
    reader = log.reader(committed=True, headers=False)
    try:
        first, end = reader.offsets(at)
        reader.assign({at: first})
        while reader.position(at) < end:
            for chunk in reader.fetch(1_000, 100):
                for entry in map(control_records.decode, chunk.values):
                    if isinstance(entry, DeliveryProgress) and entry.output == process:
                        newest = entry.last_bucket
    finally:
        reader.close()
    return newest


def _shard(folder: Path, process: str, kafka: str, core: int) -> subprocess.Popen[bytes]:
    state = folder / process
    state.mkdir()
    command = ["taskset", "--cpu-list", str(core), sys.executable, "-m", "anabranch.delivery"]
    command += ["--pipeline", str(folder / "stateless.yaml"), "--name", process, "--kafka", kafka]
    with (state / "log").open("wb") as output:
        return subprocess.Popen([*command, "--state-dir", str(state)], stdout=output, stderr=output)


def _wait(done: Callable[[], bool], running: list[subprocess.Popen[bytes]]) -> None:
    deadline_s = time.monotonic() + _DRAINED_WITHIN_S
    while not done():
        time.sleep(0.2)
        if any(each.poll() is not None for each in running):
            raise SystemExit("a shard has ended: see its log in the work directory")
        if time.monotonic() > deadline_s:
            raise SystemExit("not drained in time")


if __name__ == "__main__":
    sys.exit(main())
