"""``adapters.spark.planner_fork``: what a query waits for is forked, and does as Spark's own."""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from pyspark.serializers import (
    CloudPickleSerializer,
    read_int,
    write_int,
    write_with_length,
)
from pyspark.sql.streaming.python_streaming_source_runner import INITIAL_OFFSET_FUNC_ID
from pyspark.sql.types import StructType

from anabranch.adapters.spark import planner_fork
from anabranch.adapters.spark.planner_fork import PLANNER, STATE_COLUMNS, PlannerFork
from anabranch.adapters.spark.source import AnabranchSource
from anabranch.adapters.spark.source_options import SourceOptions
from anabranch.adapters.system.scratch import Scratch
from harness.waiting import wait_until

OPTIONS = SourceOptions(
    blocks={},
    query="q",
    stream="a",
    kafka="k:1",
    cluster="",
    socket="none",
    schema="",
    columns=(),
    optional=(),
    width_ms=100,
    splits_max=1,
    is_own=True,
    ordered=False,
    kept_salt=0,
)


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Scratch]:
    made = Scratch(tmp_path)
    yield made
    made.close()


@pytest.fixture
def fork(scratch: Scratch) -> Iterator[PlannerFork]:
    made = PlannerFork(scratch)
    wait_until(lambda: _listens(scratch), 60, "it listens")
    yield made
    made.close()


def _listens(scratch: Scratch) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        return connection.connect_ex(scratch.socket_path("planners")) == 0


class Started:
    """A process that is started as Spark starts it."""

    def __init__(
        self, python: Path, scratch: Scratch, module: str = PLANNER, folder: str = ""
    ) -> None:
        self._address = scratch.socket_path("java")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(self._address)
            listener.listen()
            listener.settimeout(60)
            self.started = subprocess.Popen(
                [python, "-m", module],
                env=os.environ
                | {"PYTHON_WORKER_FACTORY_SOCK_PATH": self._address, "PYTHONPATH": folder},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            self._connection, _ = listener.accept()
        self._connection.settimeout(60)
        self._file = self._connection.makefile("rwb")
        self.pid = read_int(self._file)

    def close(self) -> str:
        """Close the connection as Java does, and return what was printed as an error."""
        self._file.close()
        self._connection.close()
        words = self.started.communicate(timeout=60)[1].decode()
        wait_until(lambda: not Path(f"/proc/{self.pid}").exists(), 60, "it ends")
        Path(self._address).unlink()
        return words

    def _write_version(self) -> None:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        write_with_length(version.encode(), self._file)


class Planner(Started):
    """A process that plans, with a reader of an input."""

    def begin(self) -> None:
        """Give it what it plans."""
        self._write_version()
        write_with_length(b"/tmp", self._file)
        write_int(0, self._file)  # no files to include
        source = AnabranchSource({"config": OPTIONS.to_json()})
        write_with_length(CloudPickleSerializer().dumps(source), self._file)
        write_with_length(StructType([]).json().encode(), self._file)
        write_int(100, self._file)  # rows of a batch
        self._file.flush()
        assert read_int(self._file) == 0

    def initial_offset(self) -> bytes:
        write_int(INITIAL_OFFSET_FUNC_ID, self._file)
        self._file.flush()
        return self._file.read(read_int(self._file))


class StateColumns(Started):
    """A process that tells the columns of a processor's state."""

    def begin(self, function: bytes) -> None:
        """Give it the processor's function, pickled."""
        self._write_version()
        write_with_length(function, self._file)
        self._file.flush()
        assert read_int(self._file) == 0, "it has imported what the function is made of"


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_planner_is_a_fork_that_speaks_as_sparks_own(fork: PlannerFork, scratch: Scratch) -> None:
    for _ in range(2):
        planner = Planner(fork.python, scratch)
        assert parent_of(planner.pid) == fork.pid
        planner.begin()
        assert b'"bucket"' in planner.initial_offset()
        assert planner.started.poll() is None, "Spark takes its end for the planner's"
        assert planner.close() == ""
        assert planner.started.returncode == 0


def test_what_tells_the_columns_of_a_state_is_a_fork_that_finds_the_users_modules(
    fork: PlannerFork, scratch: Scratch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python puts the folders of PYTHONPATH on the path as it starts, and a fork does not start."""
    folder = tmp_path / "users"
    folder.mkdir()
    (folder / "users_own.py").write_text("def each(*given): return given\n")
    monkeypatch.syspath_prepend(folder)
    function = pickle.dumps((import_module("users_own").each, "types of the results"))
    started = StateColumns(fork.python, scratch, STATE_COLUMNS, str(folder))
    assert parent_of(started.pid) == fork.pid
    started.begin(function)
    started.close()


def test_everything_else_is_pythons(fork: PlannerFork) -> None:
    text = "import os, sys; print(os.getpid(), sys.flags.no_site, sys.argv[1])"
    process = subprocess.Popen([fork.python, "-c", text, "a b"], stdout=subprocess.PIPE)
    found = process.communicate(timeout=60)[0].decode()
    assert found == f"{process.pid} 0 a b\n"


def test_where_nobody_forks_it_the_planner_is_started_as_spark_would(
    fork: PlannerFork, scratch: Scratch
) -> None:
    fork.close()
    planner = Planner(fork.python, scratch)
    assert planner.pid == planner.started.pid
    planner.begin()
    assert b'"bucket"' in planner.initial_offset()
    planner.close()


@pytest.mark.parametrize(
    "request_of", [b"", b"\x00\x00", b"\x00\x00\x00\x09{", b"\xff\xff\xff\xff"]
)
def test_a_request_that_is_none_harms_no_other(
    fork: PlannerFork, scratch: Scratch, request_of: bytes
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(scratch.socket_path("planners"))
        connection.sendall(request_of)
    planner = Planner(fork.python, scratch)
    assert parent_of(planner.pid) == fork.pid
    planner.close()


def test_it_ends_with_whoever_started_it(scratch: Scratch) -> None:
    text = (
        "import sys, os\nfrom pathlib import Path\n"
        "from anabranch.adapters.spark.planner_fork import PlannerFork\n"
        "from anabranch.adapters.system.scratch import Scratch\n"
        "print(PlannerFork(Scratch(Path(sys.argv[1]))).pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    started = subprocess.run(
        [sys.executable, "-c", text, str(scratch.path)], stdout=subprocess.PIPE, check=False
    )
    pid = int(started.stdout)
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), 60, "it ends")


def test_a_server_that_ends_before_it_forks_is_done_without(tmp_path: Path) -> None:
    """The query that waits would fail for a process that never ran."""
    path = str(tmp_path / "s")
    launch = Path(planner_fork.__file__).with_name("launch.py")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen()
        command = [sys.executable, "-SE", str(launch), path, "-m", "this"]
        started = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        listener.settimeout(60)
        connection, _ = listener.accept()
        with connection:
            left = int.from_bytes(connection.recv(4))
            while left:
                left -= len(connection.recv(left))
        printed, _ = started.communicate(timeout=60)
    assert "Beautiful is better than ugly." in printed
