"""Children that log to a file, end when asked, and die with their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Thread

from anabranch.local.child_process import ChildProcess
from harness.waiting import wait_until

SLEEPER = [sys.executable, "-c", "import signal; print('ready', flush=True); signal.pause()"]
STUBBORN = [
    sys.executable,
    "-c",
    (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready',"
        " flush=True)\nwhile True: signal.pause()"
    ),
]
PARENT = """
import signal, sys
from pathlib import Path
from anabranch.local.child_process import ChildProcess
child = ChildProcess([sys.executable, "-c", "import signal; signal.pause()"], Path(sys.argv[1]))
print(child.pid, flush=True)
signal.pause()
"""


def runs(pid: int) -> bool:
    """Whether the process exists and is no zombie (a container's first process may be slow to
    collect those).
    """
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_a_log_that_was_moved_away_says_nothing(tmp_path: Path) -> None:
    child = ChildProcess([sys.executable, "-c", "print('bye')"], tmp_path / "log")
    wait_until(lambda: child.exit_code == 0, 60, "its end")
    assert child.log_tail() == "bye\n"
    (tmp_path / "log").rename(tmp_path / "log.1")
    assert child.log_tail() == ""


def test_what_yields_the_cores_does_so_as_a_process_and_as_a_session(tmp_path: Path) -> None:
    child = ChildProcess(SLEEPER, tmp_path / "log")
    before = os.getpriority(os.PRIO_PROCESS, 0)
    child.yield_cores(3)
    assert os.getpriority(os.PRIO_PROCESS, child.pid) == before + 3
    group = Path(f"/proc/{child.pid}/autogroup")
    if group.exists():
        assert group.read_text().split()[-1] == "3"
    child.kill()
    child.yield_cores(4)  # it has ended: nothing happens


def test_so_does_what_it_has_started_in_a_group_of_its_own(tmp_path: Path) -> None:
    program = """
import os, subprocess, threading
print(subprocess.Popen(["sleep", "600"], process_group=0).pid, flush=True)
threading.Event().wait(600)
"""
    child = ChildProcess([sys.executable, "-c", program], tmp_path / "log")
    try:
        wait_until(lambda: child.log_tail().endswith("\n"), 60, "it has started another")
        child.yield_cores(3)
        there = os.getpriority(os.PRIO_PROCESS, int(child.log_tail()))
        assert there == os.getpriority(os.PRIO_PROCESS, 0) + 3
    finally:
        os.kill(int(child.log_tail()), signal.SIGKILL)
        child.kill()


def test_stops_when_asked_and_twice(tmp_path: Path) -> None:
    child = ChildProcess(SLEEPER, tmp_path / "log")
    wait_until(lambda: "ready" in child.log_tail(), 60, "the child's first word")
    assert child.alive()
    child.stop(60)
    assert not child.alive()
    assert child.exit_code == -signal.SIGTERM
    child.stop(60)


def test_a_stubborn_child_is_killed(tmp_path: Path) -> None:
    child = ChildProcess(STUBBORN, tmp_path / "log")
    wait_until(lambda: "ready" in child.log_tail(), 60, "the child's first word")
    child.stop(0.1)
    assert child.exit_code == -signal.SIGKILL


def test_a_paused_child_is_alive_and_ends_all_the_same(tmp_path: Path) -> None:
    child = ChildProcess(SLEEPER, tmp_path / "log")
    os.kill(child.pid, signal.SIGSTOP)
    assert child.alive()
    child.stop(0.1)
    assert not child.alive()


def test_said_is_of_this_run_only(tmp_path: Path) -> None:
    for word in ("first", "second"):
        child = ChildProcess([sys.executable, "-c", f"print('{word}')"], tmp_path / "log")
        wait_until(lambda child=child: not child.alive(), 60, "the end of the child")  # type: ignore[misc]
        assert child.log_tail().strip() == word
    assert (tmp_path / "log").read_text() == "first\nsecond\n"


def test_outlives_the_thread_that_asked_for_it(tmp_path: Path) -> None:
    children: list[ChildProcess] = []
    thread = Thread(target=lambda: children.append(ChildProcess(SLEEPER, tmp_path / "log")))
    thread.start()
    thread.join()
    (child,) = children
    wait_until(lambda: "ready" in child.log_tail(), 60, "the child's first word")
    assert child.alive()
    child.stop(60)


def test_dies_when_its_parent_is_killed(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "log")], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    with parent.stdout as out:
        pid = int(out.readline())
    assert runs(pid)
    parent.kill()
    parent.wait(60)
    wait_until(lambda: not runs(pid), 60, "the end of the orphan")
