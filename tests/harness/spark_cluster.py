"""Spark's standalone master and workers on this machine, of the wheel: a cluster with a secret."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyspark

from anabranch.local.probe import get
from anabranch.local.tcp_ports import LOOPBACK, free_port
from harness.waiting import wait_until

SECRET: Final = "of this cluster"
_HOME: Final = Path(pyspark.__file__).parent
_DEPLOY: Final = "org.apache.spark.deploy"
_START_S: Final = 240
"""Timeout for starting one Java while others use the cores, in seconds."""
_EVERYWHERE: Final = ("--host", LOOPBACK, "--webui-port", "0")


class SparkCluster:
    """A master, and workers that can be killed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self.master = f"spark://{LOOPBACK}:{self._port}"
        self.secret_file = folder / "secret"
        self.secret_file.write_text(SECRET)
        self.secret_file.chmod(0o600)
        self.workers: list[subprocess.Popen[bytes]] = []
        self._master: subprocess.Popen[bytes] | None = None

    def start(self, workers: int) -> None:
        """Start workers and wait until the master knows all of them."""
        self.start_master()
        for _ in range(workers):
            self._begin_worker()
        for number in range(workers):
            self._says(f"worker-{number}", "Successfully registered with master")

    def start_master(self) -> None:
        """Again at the same address: it knows nothing of the one before."""
        port = ["--port", str(self._port)]
        self._master = self._start("master", "master.Master", *_EVERYWHERE, *port)
        self._says("master", "New state: ALIVE")

    def kill_master(self) -> None:
        """SIGKILL to the master alone."""
        if self._master is not None:
            _kill(self._master)

    def add_worker(self) -> None:
        """One more."""
        self._begin_worker()
        self._says(f"worker-{len(self.workers) - 1}", "Successfully registered with master")

    def work_of(self, worker: int) -> Path:
        """Return the folder in which a worker's executors have theirs, two below it."""
        return self._folder / f"work-{worker}"

    def kill(self, worker: int) -> None:
        """SIGKILL to a worker and to its executors."""
        _kill(self.workers[worker])

    def applications(self) -> str:
        """Return what the master logged of the applications that came and went."""
        return "\n".join(line for line in self._log("master").splitlines() if " app " in line)

    def close(self) -> None:
        """Idempotent."""
        self.kill_master()
        for process in self.workers:
            _kill(process)

    def pages(self) -> bytes:
        """Return the pages that the master shows without authentication."""
        (port,) = re.findall(r"MasterWebUI.* http://\S+:([0-9]+)", self._log("master"))
        answers = (get(int(port), path, 10) for path in ("/", "/json/"))
        return b"".join((answer or (0, b""))[1] for answer in answers)

    def _begin_worker(self) -> None:
        number = len(self.workers)
        place = ["--work-dir", str(self.work_of(number)), "--cores", "1"]
        size = ["--memory", "700m", self.master]
        name = f"worker-{number}"
        self.workers.append(self._start(name, "worker.Worker", *_EVERYWHERE, *place, *size))

    def _start(self, name: str, kind: str, *arguments: str) -> subprocess.Popen[bytes]:
        options = "-Dspark.authenticate=true -Dspark.network.crypto.enabled=true"
        environment = {
            # a worker's machine knows nothing of the nodes
            **{name: value for name, value in os.environ.items() if name[:9] != "ANABRANCH"},
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
            lambda: words in self._log(name),
            _START_S,
            lambda: f"{name}: {words}\n{self._log(name)[-2_000:]}",
        )


def _kill(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to it and to what it started. Idempotent."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextmanager
def spark_cluster(folder: Path, workers: int = 2) -> Iterator[SparkCluster]:
    """Start a cluster that is removed in the end."""
    folder.mkdir(parents=True, exist_ok=True)
    cluster = SparkCluster(folder)
    try:
        cluster.start(workers)
        yield cluster
    finally:
        cluster.close()
