"""Drills reach a process and all below it, wherever that hid, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.local import drill_links, drills, state_file
from anabranch.local.drill_links import Cut, Direction, Link
from anabranch.local.drills import Drill
from anabranch.local.processes import (
    MARK_OF_ONE,
    STOPPED,
    ManagedProcess,
    ProcessSpec,
    has_state,
    marked,
)
from anabranch.local.state_file import Deployment, Lock, ProcessRow
from anabranch.local.status import rows_of
from anabranch.protocol.errors import ConfigurationError, Unavailable
from harness.waiting import wait_until

# Like a stage: a child in its own session (the JVM), and one whose parent is gone (a worker of
# PySpark's daemon).
_WITH_FAMILY = """
import subprocess, sys, threading
subprocess.Popen(["sleep", "600"], start_new_session=True)
orphan = "import subprocess; subprocess.Popen(['sleep', '601'], start_new_session=True)"
subprocess.run([sys.executable, "-c", orphan])
print("there", flush=True)
threading.Event().wait(600)
"""


def _start(state_dir: Path, name: str) -> ManagedProcess:
    process = ManagedProcess(
        ProcessSpec("processing", name, [sys.executable, "-c", _WITH_FAMILY]), state_dir
    )
    wait_until(lambda: "there" in process.log_path.read_text(), 60, "up")
    return process


@pytest.fixture
def family(tmp_path: Path) -> Iterator[tuple[ManagedProcess, ManagedProcess]]:
    """Two stages as a supervisor runs them, its lock held."""
    lock = Lock(tmp_path)
    lock.acquire()
    victim, beside = _start(tmp_path, "s.0"), _start(tmp_path, "s.1")
    rows = (
        ProcessRow("kafka", "kafka", victim.pid, state="running"),
        ProcessRow("processing", "s.0", victim.pid, state="running"),
        ProcessRow("processing", "s.1", beside.pid, state="running"),
        ProcessRow("delivery", "o", None, state="restarting"),
    )
    state_file.write(tmp_path, Deployment(os.getpid(), "p.yaml", "b:1", None, True, rows))
    yield victim, beside
    victim.kill()
    beside.kill()
    lock.release()


def test_pause_and_resume_reach_all_below_and_nothing_beside(
    tmp_path: Path, family: tuple[ManagedProcess, ManagedProcess]
) -> None:
    victim, beside = family
    drill = Drill(tmp_path)
    paused = drill.pause("processing/s.0")
    assert sorted(paused) == sorted(marked(MARK_OF_ONE, str(victim.log_path)))
    assert len(paused) == 3
    assert all(has_state(pid, STOPPED) for pid in paused)
    assert not any(has_state(pid, STOPPED) for pid in marked(MARK_OF_ONE, str(beside.log_path)))
    shown = {row["name"]: row["state"] for row in rows_of(tmp_path) or []}
    assert (shown["s.0"], shown["s.1"]) == ("paused", "running")
    assert sorted(drill.resume("processing/s.0")) == sorted(paused)
    wait_until(lambda: not any(has_state(pid, STOPPED) for pid in paused), 60, "all go on")


def test_kill_ends_all_below_and_nothing_beside_also_when_paused(
    tmp_path: Path, family: tuple[ManagedProcess, ManagedProcess]
) -> None:
    victim, beside = family
    drill = Drill(tmp_path)
    drill.pause("processing/s.0")
    killed = drill.kill("processing/s.0")
    assert len(killed) == 3
    assert victim.exit_code() == -signal.SIGKILL
    assert not marked(MARK_OF_ONE, str(victim.log_path))
    assert len(marked(MARK_OF_ONE, str(beside.log_path))) == 3
    with pytest.raises(Unavailable, match=r"processing/s\.0 does not run now"):
        drill.kill("processing/s.0")


def test_an_orderly_stop_wakes_all_that_is_paused(
    tmp_path: Path, family: tuple[ManagedProcess, ManagedProcess]
) -> None:
    paused = Drill(tmp_path).pause("processing/s.0")
    family[0].terminate()
    wait_until(lambda: not any(has_state(pid, STOPPED) for pid in paused), 60, "all are awake")


def test_a_server_is_reached_by_its_process_id(
    tmp_path: Path, family: tuple[ManagedProcess, ManagedProcess]
) -> None:
    assert Drill(tmp_path).pause("kafka/kafka") == [family[0].pid]
    assert Drill(tmp_path).resume("kafka/kafka") == [family[0].pid]


def test_a_server_that_has_come_back_is_reached_at_its_new_id(
    tmp_path: Path, family: tuple[ManagedProcess, ManagedProcess]
) -> None:
    drill, (victim, beside) = Drill(tmp_path), family
    assert drill.kill("kafka/kafka") == [victim.pid]
    with pytest.raises(Unavailable, match="kafka/kafka does not run now"):
        drill.kill("kafka/kafka")  # the supervisor has not seen it yet
    before = state_file.read(tmp_path)
    assert before is not None
    state_file.write(
        tmp_path,
        replace(
            before, processes=(replace(before.processes[0], pid=beside.pid), *before.processes[1:])
        ),
    )
    assert drill.kill("kafka/kafka") == [beside.pid]


def test_an_id_that_another_process_has_now_is_left_alone(
    tmp_path: Path, family: tuple[ManagedProcess, ManagedProcess]
) -> None:
    other = subprocess.Popen(["sleep", "600"])
    before = state_file.read(tmp_path)
    assert before is not None
    state_file.write(
        tmp_path,
        replace(
            before, processes=(replace(before.processes[0], pid=other.pid), *before.processes[1:])
        ),
    )
    with pytest.raises(Unavailable, match="kafka/kafka does not run now"):
        Drill(tmp_path).kill("kafka/kafka")
    assert other.poll() is None
    other.kill()
    other.wait()


def test_mistakes_are_explained(
    tmp_path: Path, family: tuple[ManagedProcess, ManagedProcess]
) -> None:
    drill = Drill(tmp_path)
    drill.check(["processing/s.0", "delivery/o"])
    with pytest.raises(
        ConfigurationError, match=r"no process processing/s; there are .*processing/s\.1"
    ):
        drill.check(["processing/s.0", "processing/s"])
    with pytest.raises(Unavailable, match=r"delivery/o does not run now \(restarting\)"):
        drill.pause("delivery/o")
    with pytest.raises(ConfigurationError, match="anabranch up --drills"):
        drill.cut("processing/s.0", Cut())
    assert drill.cuts() == {}


def test_where_nothing_runs(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="nothing runs in /"):
        Drill(tmp_path)
    state_file.write(tmp_path, Deployment(1, "p.yaml", "b:1", None))  # of a supervisor that is gone
    with pytest.raises(ConfigurationError, match="nothing runs in /"):
        Drill(tmp_path)


def test_a_cut_is_done_when_the_proxy_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = Lock(tmp_path)
    lock.acquire()
    rows = (ProcessRow("ingestion", "a", 1), ProcessRow("redis", "redis", 2))
    state_file.write(
        tmp_path, Deployment(os.getpid(), "p.yaml", "b:1", None, True, rows, drills=True)
    )
    folder = drill_links.directory_of(tmp_path)
    drill_links.lay(folder, [Link("ingestion/a", 1, 2)])
    drill = Drill(tmp_path)
    with pytest.raises(
        ConfigurationError,
        match="redis/redis has no link to Kafka that could be cut; these have: ingestion/a",
    ):
        drill.cut("redis/redis", Cut())
    monkeypatch.setattr(drills, "_DONE_MS", 100)
    with pytest.raises(
        Unavailable,
        match=r"the proxy did not apply the change .*proxy\.log\) after 100 ms",
    ):
        drill.cut("ingestion/a", Cut())
    monkeypatch.setattr(drills, "_DONE_MS", 120_000)
    wanted = Cut(Direction.TO)
    cutting = threading.Thread(target=drill.cut, args=("ingestion/a", wanted))
    cutting.start()
    wait_until(lambda: drill_links.wanted(folder) == {"ingestion/a": wanted}, 60, "it is asked for")
    drill_links.write_applied(folder, drill_links.wanted(folder))
    cutting.join(60)
    assert not cutting.is_alive()
    assert drill.cuts() == {"ingestion/a": wanted}
    assert [row["cut"] for row in rows_of(tmp_path) or []] == [
        "its requests do not reach Kafka",
        None,
    ]
    drill_links.write_applied(folder, {})
    drill.heal("ingestion/a")
    assert drill.cuts() == {}
    lock.release()
