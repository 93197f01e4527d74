"""The state directory: one supervisor at a time, and a file that is always whole."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from anabranch.local import state_file
from anabranch.local.state_file import Deployment, Lock, ProcessRow
from anabranch.protocol.errors import ConfigurationError


def test_written_is_read_and_for_the_owner_only(tmp_path: Path) -> None:
    rows = (
        ProcessRow("kafka", "kafka", 5, None, 0, "running", None, "127.0.0.1:9"),
        ProcessRow("ingestion", "reports", restarts=2, error="why"),
    )
    deployment = Deployment(1, "/p.yaml", "127.0.0.1:9", None, True, rows)
    state_file.write(tmp_path, deployment)
    assert state_file.read(tmp_path) == deployment
    assert stat.S_IMODE((tmp_path / "supervisor.json").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "null", '{"pid": 1}', '{"processes": [{"unknown": 1}]}', '{"processes": 3}'],
)
def test_what_cannot_be_read_is_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / "supervisor.json").write_text(content)
    assert state_file.read(tmp_path) is None
    assert state_file.read(tmp_path / "missing") is None


def test_a_second_supervisor_is_rejected_and_told_who_has_it(tmp_path: Path) -> None:
    first = Lock(tmp_path)
    first.acquire()
    with pytest.raises(
        ConfigurationError,
        match=rf"already in use.*process {os.getpid()}.*anabranch down --state-dir",
    ):
        Lock(tmp_path).acquire()
    assert Lock(tmp_path).holder() == os.getpid()
    first.release()
    first.release()
    assert Lock(tmp_path).holder() is None
    second = Lock(tmp_path)
    second.acquire()
    second.release()


def test_who_only_looks_keeps_no_supervisor_from_starting(tmp_path: Path) -> None:
    """`anabranch status`, asked by a script without a pause, holds the lock for moments."""
    (tmp_path / "supervisor.lock").touch()
    with (tmp_path / "supervisor.lock").open("r+") as looks:
        fcntl.flock(looks, fcntl.LOCK_SH)
        ends = threading.Timer(0.2, lambda: fcntl.flock(looks, fcntl.LOCK_UN))
        ends.start()
        lock = Lock(tmp_path)
        lock.acquire()
        ends.join()
    assert Lock(tmp_path).holder() == os.getpid()
    lock.release()


def test_the_lock_goes_with_its_process_even_when_a_child_lives_on(tmp_path: Path) -> None:
    program = (
        "import os, subprocess, sys; from pathlib import Path\n"
        "from anabranch.local.state_file import Lock\n"
        "Lock(Path(sys.argv[1])).acquire()\nchild = subprocess.Popen(['sleep', '600'],"
        " stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\nprint(child.pid, flush=True);"
        " os._exit(9)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    try:
        lock = Lock(tmp_path)
        lock.acquire()
        lock.release()
    finally:
        os.kill(int(done.stdout), 9)


def test_no_lock_file_is_no_holder(tmp_path: Path) -> None:
    assert Lock(tmp_path / "nothing").holder() is None


def test_the_state_is_next_to_the_pipeline_file(tmp_path: Path) -> None:
    assert (
        state_file.default_directory(tmp_path / "pipeline.yaml")
        == tmp_path.resolve() / ".anabranch"
    )
