"""Spark's standalone master and workers on this machine, of the wheel: a cluster with a secret."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyspark

from anabranch.up.tcp_ports import LOOPBACK, free_port
from harness.waiting import wait_until

SECRET: Final = "of this cluster"
_HOME: Final = Path(pyspark.__file__).parent
_DEPLOY: Final = "org.apache.spark.deploy"


class SparkCluster:
    """A master, and workers that can be killed."""

    def __init__(self, folder: Path, workers: int) -> None:
        self._folder = folder
        self._port = free_port()
        self.master = f"spark://{LOOPBACK}:{self._port}"
        self.secret_file = folder / "secret"
        self.secret_file.write_text(SECRET)
        self.secret_file.chmod(0o600)
        at_all = ["--host", LOOPBACK, "--webui-port", "0"]
        self._master = self._start("master", "master.Master", *at_all, "--port", str(self._port))
        self._says("master", "New state: ALIVE")
        self.workers: list[subprocess.Popen[bytes]] = []
        for number in range(workers):
            place = ["--work-dir", str(folder / f"work-{number}"), "--cores", "1"]
            size = ["--memory", "700m", self.master]
            name = f"worker-{number}"
            self.workers.append(self._start(name, "worker.Worker", *at_all, *place, *size))
        for number in range(workers):
            self._says(f"worker-{number}", "Successfully registered with master")

    def kill(self, worker: int) -> None:
        """SIGKILL to a worker and to its executors."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.workers[worker].pid, signal.SIGKILL)
        self.workers[worker].wait()

    def applications(self) -> str:
        """What the master said of the applications that came and went."""
        return "\n".join(line for line in self._log("master").splitlines() if " app " in line)

    def close(self) -> None:
        """Idempotent."""
        for process in [*self.workers, self._master]:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _start(self, name: str, kind: str, *arguments: str) -> subprocess.Popen[bytes]:
        options = "-Dspark.authenticate=true -Dspark.network.crypto.enabled=true"
        environment = {
            **os.environ,
            "SPARK_HOME": str(_HOME),
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": f"{options} -XX:+UseSerialGC -XX:TieredStopAtLevel=1",
            "_SPARK_AUTH_SECRET": SECRET,
        }
        command = [str(_HOME / "bin" / "spark-class"), f"{_DEPLOY}.{kind}", *arguments]
        with (self._folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                command, stdout=log, stderr=log, env=environment, start_new_session=True
            )

    def _log(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text(errors="replace")

    def _says(self, name: str, words: str) -> None:
        wait_until(
            lambda: words in self._log(name), 60, f"{name}: {words}\n{self._log(name)[-2_000:]}"
        )


@contextmanager
def spark_cluster(folder: Path, workers: int = 2) -> Iterator[SparkCluster]:
    """A cluster that is gone in the end."""
    folder.mkdir(parents=True, exist_ok=True)
    cluster = SparkCluster(folder, workers)
    try:
        yield cluster
    finally:
        cluster.close()
