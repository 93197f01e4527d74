"""A chain of stages as a user would run it: pipeline file, functions, topics, one process per
replica.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from anabranch.local.deployment import spark_settings
from anabranch.local.topic_creation import prepare, topics_of
from anabranch.pipeline.file import load
from anabranch.ports import EventLog
from anabranch.protocol.errors import AnabranchError

if TYPE_CHECKING:
    from pathlib import Path

    from anabranch.pipeline.model import Pipeline
    from experiments.dpc.plan import Session

SOURCES: Final = ("a", "b", "c")
WITHHELD: Final = "c"
_LOG_END: Final = 3_000

_RECORD: Final = """
{"type": "record", "name": "reading", "fields": [
  {"name": "key", "type": "long"},
  {"name": "value", "type": "long"},
  {"name": "time", "type": "long"}]}
"""
_FUNCTIONS: Final = '''
"""The stages: the first brings the sources together, the others hand on what they read, as the
published chains do.
"""
from pyspark.sql import functions as F

COLUMNS = ["key", "value", "time", "event_time"]

def merged(a, b, c):
    return a.select(*COLUMNS).unionByName(b.select(*COLUMNS)).unionByName(c.select(*COLUMNS))

def windowed(a, b, c):
    groups = merged(a, b, c).groupBy(F.window("event_time", "200 milliseconds"), "key")
    counts = groups.agg(F.sum("value").alias("value"), F.count("value").alias("time"))
    return counts.select("key", "value", "time", F.col("window.end").alias("event_time"))
'''
_PASSED: Final = """
def passed_{number}(node_{before}):
    return node_{before}.select(*COLUMNS)
"""


def stage_names(nodes: int) -> list[str]:
    """In their order."""
    return [f"node_{number}" for number in range(1, nodes + 1)]


def write_pipeline(folder: Path, name: str, session: Session) -> Pipeline:
    """Write the pipeline file with its functions and its record beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    module = f"functions_{name.replace('-', '_')}"
    (folder / "reading.avsc").write_text(_RECORD)
    passed = [
        _PASSED.format(number=number, before=number - 1) for number in range(2, session.nodes + 1)
    ]
    (folder / f"{module}.py").write_text("".join([_FUNCTIONS, *passed]))
    lines = [
        f"pipeline: {name}",
        f"bucket: {session.width_ms}ms",
        f"max_delay: {session.max_delay_ms}ms",
        "partitions: 2",
        "sources:",
    ]
    for source in SOURCES:
        lines += [
            f"  {source}:",
            f"    topics: [{name}.in.{source}]",
            "    record: reading.avsc",
            "    event_time: {field: time, unit: ms}",
        ]
    lines.append("stages:")
    before = ", ".join(SOURCES)
    for number, stage in enumerate(stage_names(session.nodes), 1):
        function = session.function if number == 1 else f"passed_{number}"
        lines += [
            f"  {stage}:",
            f"    participant: {stage}",
            f"    reads: [{before}]",
            f"    transform: {module}:{function}",
            f"    replicas: {session.replicas}",
            f"    on_missing_input: {session.policy}",
        ]
        before = stage
    lines += [
        "outputs:",
        "  out:",
        f"    stage: {before}",
        f"    corrected: {{topic: {name}.out, format: json, key: []}}",
        f"    live: {{topic: {name}.live, format: json}}",
    ]
    path = folder / f"{name}.yaml"
    path.write_text("\n".join(lines) + "\n")
    return load(path)


def create_topics(log: EventLog, pipeline: Pipeline) -> None:
    """All that ``anabranch topics --create`` makes, so that no process misses one."""
    prepare(log, topics_of(pipeline, embedded=True), create_inputs=True, say=print)


class ReplicaProcess:
    """``python -m anabranch.processing`` of one replica."""

    def __init__(
        self,
        pipeline: Pipeline,
        name: str,
        kafka: str,
        state_dir: Path,
        memory: str,
        replicas: int,
    ) -> None:
        """``replicas`` of stages share the machine: batches are as far apart as under ``anabranch
        up``.
        """
        state_dir.mkdir(parents=True, exist_ok=True)
        self.name = name
        restarts = len(list(state_dir.glob(f"{name}.*.log")))
        self._output = state_dir / f"{name}.{restarts}.log"
        command = [
            sys.executable,
            "-m",
            "anabranch.processing",
            "--pipeline",
            str(pipeline.path),
            "--name",
            name,
            "--kafka",
            kafka,
        ]
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [*command, "--state-dir", str(state_dir)],
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={
                    **os.environ,
                    **spark_settings(replicas),
                    "ANABRANCH_SPARK_MEMORY": memory,
                    "ANABRANCH_RESTARTS": str(restarts),
                },
            )

    @property
    def pid(self) -> int:
        """Id of the process and of its group."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended, by itself or killed."""
        return self._process.poll() is not None

    def check(self) -> None:
        """Raise AnabranchError if the process has ended."""
        if self.has_ended:
            code = self._process.returncode
            raise AnabranchError(f"{self.name} ended with {code}:\n{self.last_words()}")

    def last_words(self) -> str:
        """Return the end of the process's log."""
        text = self._output.read_text(encoding="utf-8", errors="replace")
        return f"{self.name}: {text[-_LOG_END:]}"

    def kill(self) -> None:
        """SIGKILL to it and to what it started. Idempotent."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
