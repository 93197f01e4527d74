"""What a source reaches with one process and with several: ingestion drains a backlog, nothing else
runs but the broker.

``python -m benchmarks.shards [--records N] [--shards 1,2] [--work-dir DIR]``. Each shard is pinned
to a core of its own (``taskset``). Where there are no more cores than shards the broker shares
them, so look at records per second of a shard's processor time: more cores give as many times more.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.pipeline.file import load
from anabranch.pipeline.internal_topics import internal_topics
from anabranch.pipeline.model import Pipeline
from anabranch.runtime.boundary_reader import BoundaryReader
from anabranch.runtime.stream_logs import open_stream
from anabranch.up.embedded_kafka import EmbeddedKafka
from benchmarks.broker import create_topics, produce_backlog
from benchmarks.machine import machine
from benchmarks.processes import exit_on_signals, machine_cpu_s, tree
from benchmarks.workload import ENDER_AFTER_MS, EVENT_TIME_MS, backlog, ender, payloads

_JOBS: Final = Path(__file__).with_name("jobs")
_START_MS: Final = 1_700_000_000_000
_DRAINED_WITHIN_S: Final = 280.0


def main() -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(prog="shards")
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--shards", default="1,2")
    parser.add_argument(
        "--work-dir", type=Path, default=Path(tempfile.gettempdir()) / "anabranch-shards"
    )
    arguments = parser.parse_args()
    exit_on_signals()
    print(machine())
    values = payloads(backlog(arguments.records, _START_MS))
    for shards in map(int, arguments.shards.split(",")):
        shutil.rmtree(arguments.work_dir, ignore_errors=True)
        arguments.work_dir.mkdir(parents=True)
        print(_drain(arguments.work_dir, shards, values), flush=True)
    shutil.rmtree(arguments.work_dir, ignore_errors=True)
    return 0


def _drain(folder: Path, shards: int, values: list[str]) -> str:
    kafka = EmbeddedKafka(folder / "kafka")
    kafka.start()
    running: list[subprocess.Popen[bytes]] = []
    try:
        pipeline = _pipeline(folder, shards)
        log = KafkaEventLog(kafka.address)
        create_topics(kafka.address)
        admin = log.admin()
        admin.create([settings for _, settings in internal_topics(pipeline, replication=1)])
        admin.close()
        cores = sorted(os.sched_getaffinity(0))
        running = [
            _shard(folder, stream, kafka.address, cores[index % len(cores)])
            for index, stream in enumerate(pipeline.sources["readings"].streams())
        ]
        readers = [open_stream(log, pipeline, s) for s in pipeline.source_streams()]
        _poll(readers, lambda reader: reader.log_state.epoch("0") is not None, running)
        cpu_s = [sum(tree(each.pid).values()) for each in running]
        broker_s = sum(tree(kafka.pid or 0).values())
        last = ender(_START_MS + EVENT_TIME_MS + ENDER_AFTER_MS)
        visible_s = produce_backlog(kafka.address, values, last)
        broker_s = sum(tree(kafka.pid or 0).values())
        machine_s = machine_cpu_s()
        bucket = (_START_MS + EVENT_TIME_MS) // pipeline.bucket_ms
        _poll(readers, lambda reader: reader.log_state.upto >= bucket, running)
        seconds = time.time() - visible_s
        used_s = [
            sum(tree(each.pid).values()) - before
            for each, before in zip(running, cpu_s, strict=True)
        ]
        broker_s = sum(tree(kafka.pid or 0).values()) - broker_s
        machine_s = machine_cpu_s() - machine_s - sum(used_s) - broker_s
        per_core = [f"{len(values) / shards / each / 1_000:.0f}" for each in used_s]
        return (
            f"{shards} shards: {len(values)} records in {seconds:.1f} s,"
            f" {len(values) / seconds / 1_000:.0f} k/s; processor time of the shards"
            f" {', '.join(f'{each:.2f}' for each in used_s)} s, so {', '.join(per_core)} k records"
            f" per second of a core; of the broker {broker_s:.1f} s, of all else {machine_s:.1f} s"
        )
    finally:
        for each in running:
            each.terminate()
        for each in running:
            each.wait()
        kafka.stop()


def _pipeline(folder: Path, shards: int) -> Pipeline:
    for path in _JOBS.glob("*"):
        if path.is_file():
            shutil.copy(path, folder)
    path = folder / "windowed.yaml"
    text = path.read_text()
    path.write_text(
        text.replace("    format: json\n", f"    format: json\n    shards: {shards}\n", 1)
    )
    return load(path)


def _shard(folder: Path, stream: str, kafka: str, core: int) -> subprocess.Popen[bytes]:
    state = folder / stream
    state.mkdir()
    command = ["taskset", "--cpu-list", str(core), sys.executable, "-m", "anabranch.ingestion"]
    command += ["--pipeline", str(folder / "windowed.yaml"), "--name", stream, "--kafka", kafka]
    with (state / "log").open("wb") as output:
        return subprocess.Popen([*command, "--state-dir", str(state)], stdout=output, stderr=output)


def _poll(
    readers: list[BoundaryReader],
    done: Callable[[BoundaryReader], bool],
    running: list[subprocess.Popen[bytes]],
) -> None:
    """Read the logs until all are ``done``."""
    deadline_s = time.monotonic() + _DRAINED_WITHIN_S
    while not all(map(done, readers)):
        for reader in readers:
            reader.poll(50)
        if any(each.poll() is not None for each in running):
            raise SystemExit("a shard has ended: see its log in the work directory")
        if time.monotonic() > deadline_s:
            raise SystemExit("not drained in time")


if __name__ == "__main__":
    sys.exit(main())
