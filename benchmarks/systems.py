"""The systems that are compared, each started and stopped as a user would."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, Literal, get_args

from anabranch.adapters.system.java import find_java
from anabranch.protocol.errors import Unavailable
from benchmarks.flink.environment import flink
from benchmarks.plain_pyspark.environment import plain_pyspark
from benchmarks.processes import tree
from benchmarks.workload import INPUT, OUT_OF_ORDERNESS_MS, OUTPUT, Job

System = Literal["pyspark", "pyspark-real-time", "flink", "anabranch-1", "anabranch-2"]
SYSTEMS: Final[tuple[System, ...]] = get_args(System)
JOBS_OF: Final[dict[System, tuple[Job, ...]]] = {"pyspark-real-time": ("stateless",)}
"""Systems that do not do every job: real-time mode has no aggregation in PySpark."""

_HERE: Final = Path(__file__).parent
_JOBS_PATH: Final = {"PYTHONPATH": str(_HERE.parent)}
"""Environment in which the other systems' Pythons find the modules of their jobs."""
_READY_TIMEOUT_S: Final = 180.0
_STOP_TIMEOUT_S: Final = 20.0
_TOPICS: Final = (
    *("--input", INPUT, "--output", OUTPUT),
    *("--out-of-orderness-ms", str(OUT_OF_ORDERNESS_MS)),
)


class Running:
    """A started system."""

    def __init__(
        self, system: str, command: list[str], environment: dict[str, str], folder: Path
    ) -> None:
        """Start ``system`` by ``command``; ``folder`` gets its log."""
        self.system = system
        self.log = folder / "system.log"
        self.command = command
        self.started_s = time.time()
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=folder,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Root of its process tree."""
        return self._process.pid

    def check_alive(self) -> None:
        """Raise what it said when it has ended.

        Raises:
            Unavailable: it has ended.
        """
        if self._process.poll() is not None:
            message = (
                f"{self.system} ended with {self._process.returncode}:"
                f" {self.log.read_text()[-3_000:]}"
            )
            raise Unavailable(message)

    def await_ready(self) -> float:
        """Seconds from the start until it said that it is ready.

        Raises:
            Unavailable: it ended or did not say so in time.
        """
        while time.time() - self.started_s < _READY_TIMEOUT_S:
            self.check_alive()
            if any(
                line.split(" ")[0].strip(":") == "ready"
                for line in self.log.read_text(errors="replace").splitlines()
                if line
            ):
                return time.time() - self.started_s
            time.sleep(0.05)
        self.stop()
        message = (
            f"{self.system} was not ready within {_READY_TIMEOUT_S:g} s:"
            f" {self.log.read_text()[-3_000:]}"
        )
        raise Unavailable(message)

    def stop(self) -> None:
        """End it and whatever it leaves behind. Idempotent."""
        members = list(tree(self.pid))
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        for pid in members:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def start(system: System, job: Job, kafka: str, folder: Path) -> Running:
    """Start ``system``; ``folder`` gets its state and its log."""
    match system:
        case "pyspark" | "pyspark-real-time":
            command, environment = _pyspark(system, job, kafka, folder)
        case "flink":
            command, environment = _flink(job, kafka, folder)
        case _:
            command, environment = _anabranch(system, job, kafka, folder)
    return Running(system, command, environment, folder)


def pyspark_environment() -> dict[str, str]:
    """Return this process's environment for plain PySpark: its workers and jars are those of its
    own environment, whatever the caller's shell says, and the jobs are modules here.
    """
    hidden = ("SPARK_HOME", "PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_SUBMIT_ARGS", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    return kept | _JOBS_PATH


def flink_environment() -> dict[str, str]:
    """Return this process's environment for Flink, with the Java of this project; the jobs are
    modules here.
    """
    hidden = ("FLINK_HOME", "PYTHONPATH", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    return environment | {
        **_JOBS_PATH,
        "JAVA_HOME": str(find_java().executable.resolve().parent.parent),
        "JVM_ARGS": "-Xmx2g",
        # There is no function in Python, so nothing that runs one is to be started.
        "_python_worker_execution_mode": "process",
    }


def _pyspark(
    system: System, job: Job, kafka: str, folder: Path
) -> tuple[list[str], dict[str, str]]:
    where = plain_pyspark()
    command = [
        *(str(where.python), "-m", "benchmarks.plain_pyspark.job"),
        *("--job", job, "--kafka", kafka, "--jars", ",".join(map(str, where.jars))),
        *("--checkpoint", str(folder / "checkpoint"), *_TOPICS),
        *(["--real-time"] if system == "pyspark-real-time" else []),
        *os.environ.get("BENCH_PYSPARK_OPTIONS", "").split(),
    ]
    return command, pyspark_environment()


def _flink(job: Job, kafka: str, folder: Path) -> tuple[list[str], dict[str, str]]:
    where = flink()
    command = [
        *(str(where.python), "-m", "benchmarks.flink.job"),
        *("--job", job, "--kafka", kafka, "--connector", str(where.connector)),
        *("--checkpoint", str(folder / "checkpoint"), *_TOPICS),
    ]
    return command, flink_environment()


def _anabranch(
    system: System, job: Job, kafka: str, folder: Path
) -> tuple[list[str], dict[str, str]]:
    jobs = folder / "jobs"
    shutil.copytree(_HERE / "jobs", jobs, ignore=shutil.ignore_patterns("__pycache__"))
    pipeline = jobs / f"{job}.yaml"
    pipeline.write_text(pipeline.read_text().replace("replicas: 1", f"replicas: {system[-1]}"))
    executable = Path(sys.executable).parent / "anabranch"
    command = [
        str(executable),
        "up",
        "-f",
        str(pipeline),
        "--kafka",
        kafka,
        "--state-dir",
        str(folder / "state"),
    ]
    return command, dict(os.environ)
