"""``adapters.spark.worker_daemon``: what was imported is out of the collector's sight; what
comes later is not.
"""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import sys
import tempfile
import types
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from pyspark.serializers import (
    CloudPickleSerializer,
    SpecialLengths,
    UTF8Deserializer,
    read_int,
    write_int,
    write_with_length,
)
from pyspark.sql.types import StructType

import anabranch
from anabranch.adapters.spark.session import PLANNER_PATH
from anabranch.adapters.spark.source import AnabranchSource
from anabranch.adapters.spark.worker_daemon import FreezesImports, quiet_at_its_end
from harness.waiting import wait_until

SERVICES = Path(anabranch.__path__[0]).parent


@pytest.fixture
def frozen() -> Iterator[list[int]]:
    """How often what is alive was frozen, one entry per time."""
    gc.unfreeze()  # the tests themselves, frozen since they were collected
    times: list[int] = []
    hook = FreezesImports()

    def watched(phase: str, info: dict[str, int]) -> None:
        before = gc.get_freeze_count()
        hook(phase, info)
        if gc.get_freeze_count() != before:
            times.append(gc.get_freeze_count() - before)

    gc.callbacks.append(watched)
    yield times
    gc.callbacks.remove(watched)
    gc.unfreeze()


def test_once_after_imports_and_not_after_every_task(
    frozen: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    gc.collect(1)
    assert frozen == []
    gc.collect()
    assert len(frozen) == 1
    assert frozen[0] > 1_000
    gc.collect()
    assert len(frozen) == 1
    monkeypatch.setitem(sys.modules, "imported_since", types.ModuleType("imported_since"))
    gc.collect()
    assert len(frozen) == 2


def test_garbage_of_tasks_is_still_found(frozen: list[int]) -> None:
    gc.collect()
    ring: list[object] = []
    ring.append(ring)
    del ring
    assert gc.collect() >= 1
    assert len(frozen) == 1


def test_a_worker_whose_connection_java_has_closed_ends_without_a_word() -> None:
    def closed(*_: object) -> int:
        raise BrokenPipeError

    assert quiet_at_its_end(closed)(None, True) == 1
    assert quiet_at_its_end(lambda sock, authenticated: 0 if authenticated else 2)(None, True) == 0


@pytest.fixture
def folder() -> Iterator[Path]:
    """With a short name: a Unix socket's path has at most 107 letters."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


class Daemon:
    """One of the daemons, with a worker, as Spark starts and asks them."""

    def __init__(
        self,
        worker_module: str,
        folder: Path,
        python_path: Iterable[Path | str],
        daemon_module: str = "pyspark.daemon",
    ) -> None:
        self._daemon = subprocess.Popen(
            [sys.executable, "-m", daemon_module, worker_module],
            env=os.environ
            | {
                "PYTHON_UNIX_DOMAIN_ENABLED": "true",
                "PYTHON_WORKER_FACTORY_SOCK_DIR": str(folder),
                "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
                "SPARK_REUSE_WORKER": "1",
                "PYTHONPATH": os.pathsep.join(map(str, python_path)),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self._daemon.stdout is not None
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._connection.settimeout(60)
        self._connection.connect(UTF8Deserializer().loads(self._daemon.stdout))
        self._file = self._connection.makefile("rwb")
        self.worker = read_int(self._file)
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        for text in (version, str(folder)):
            write_with_length(text.encode(), self._file)
        write_int(0, self._file)  # no files to include
        self._file.write(b"\0")  # no broadcasts to decrypt
        for _ in ("broadcasts", "settings"):
            write_int(0, self._file)

    def look_up(self) -> None:
        """Ask which data sources there are: none."""
        self._end_of_task()
        assert read_int(self._file) == 0
        self._end_of_answer()

    def create(self) -> None:
        """Ask for the data source of this project."""
        write_with_length(CloudPickleSerializer().dumps(AnabranchSource), self._file)
        write_with_length(b"anabranch", self._file)
        self._file.write(b"\1")
        write_with_length(StructType([]).json().encode(), self._file)
        write_int(0, self._file)  # no options
        self._end_of_task()
        self._file.read(read_int(self._file))
        assert read_int(self._file) == 0
        self._file.read(read_int(self._file))
        self._end_of_answer()

    def _end_of_task(self) -> None:
        write_int(SpecialLengths.END_OF_STREAM, self._file)
        self._file.flush()

    def _end_of_answer(self) -> None:
        """Then the worker waits for the next task."""
        for _ in range(read_int(self._file)):  # what the task counted
            self._file.read(read_int(self._file))
        assert read_int(self._file) == SpecialLengths.END_OF_STREAM

    def last_words(self) -> str:
        """Close the connection as Java does, then everything. Return what was printed."""
        self._file.close()
        self._connection.close()
        wait_until(lambda: not Path(f"/proc/{self.worker}").exists(), 60, "it ends")
        return self._daemon.communicate(timeout=60)[1].decode()


def test_a_task_worker_has_what_reads_blocks_before_its_first_task(folder: Path) -> None:
    """It need not import it, and shares its memory."""
    module = "anabranch.adapters.spark.worker_daemon"
    daemon = Daemon("pyspark.worker", folder, [SERVICES], module)
    libraries = Path(f"/proc/{daemon.worker}/maps").read_text(encoding="utf-8")
    assert "libarrow" in libraries
    assert "cimpl" in libraries, "Kafka's client"
    assert daemon.last_words() == ""


def test_a_worker_that_looks_for_data_sources_ends_without_a_word(folder: Path) -> None:
    daemon = Daemon("pyspark.sql.worker.lookup_data_sources", folder, [SERVICES, PLANNER_PATH])
    daemon.look_up()
    assert daemon.last_words() == ""


def test_a_worker_that_makes_the_data_source_ends_without_a_word(folder: Path) -> None:
    daemon = Daemon("pyspark.sql.worker.create_data_source", folder, [SERVICES])
    daemon.create()
    assert daemon.last_words() == ""


def test_another_one_tells_of_it_as_pyspark_does(folder: Path) -> None:
    daemon = Daemon("pyspark.sql.worker.lookup_data_sources", folder, [])
    daemon.look_up()
    assert "BrokenPipeError" in daemon.last_words(), "else none of this is needed any more"
