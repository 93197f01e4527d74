"""The supervisor with real processes that only pretend to be services: no broker, no Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from anabranch.adapters.system.clock import SystemClock
from anabranch.local import state_file
from anabranch.local.processes import MARK, ProcessSpec, marked
from anabranch.local.state_file import Deployment, Lock, ProcessRow
from anabranch.local.status import rows_of
from anabranch.local.supervisor import Supervisor
from anabranch.protocol.errors import ConfigurationError
from harness.waiting import given_s, wait_until

DEADLINE_S = 60
_FAKE = Path(__file__).parents[1] / "harness" / "fake_service.py"


class _Running:
    """A supervisor on a thread, its lines, and its end."""

    def __init__(self, state_dir: Path, *behaviours: tuple[str, str, str]) -> None:
        specs = [
            ProcessSpec(
                service, name, [sys.executable, str(_FAKE), str(state_dir), service, name, what]
            )
            for service, name, what in behaviours
        ]
        self.lines: list[str] = []
        self.state_dir = state_dir
        self.error: Exception | None = None
        self._lock = Lock(state_dir)
        self._lock.acquire()
        self._stopping = threading.Event()
        self._supervisor = Supervisor(
            state_dir,
            Deployment(os.getpid(), "p.yaml", "b:1", None),
            specs,
            SystemClock(),
            self.lines.append,
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._supervisor.run(self._stopping)
        except ConfigurationError as error:
            self.error = error

    def row(self, name: str) -> ProcessRow | None:
        deployment = state_file.read(self.state_dir)
        return (
            next((row for row in deployment.processes if row.name == name), None)
            if deployment is not None
            else None
        )

    def await_row(
        self, name: str, condition: Callable[[ProcessRow], bool], what: str
    ) -> ProcessRow:
        def matching() -> ProcessRow | None:
            row = self.row(name)
            return row if row is not None and condition(row) else None

        found = wait_until(matching, DEADLINE_S, f"{name}: {what}")
        assert found is not None
        return found

    def await_end(self) -> None:
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()

    def stop(self) -> float:
        """How many seconds that took."""
        begun_s = given_s()
        self._stopping.set()
        self.await_end()
        self._supervisor.stop()
        self._lock.release()
        return given_s() - begun_s


def _left(state_dir: Path) -> list[int]:
    return marked(MARK, str(state_dir.resolve()))


def test_a_killed_process_is_restarted_with_its_children_gone_and_stop_leaves_nothing(
    tmp_path: Path,
) -> None:
    running = _Running(
        tmp_path,
        ("ingestion", "a", "well"),
        ("processing", "s.0", "children"),
        ("delivery", "o", "well"),
    )
    try:
        wait_until(
            lambda: any(line.startswith("ready") for line in running.lines),
            DEADLINE_S,
            "the ready line",
        )
        before = running.await_row("s.0", lambda row: row.state == "running", "running")
        deployment = state_file.read(tmp_path)
        assert deployment is not None
        assert deployment.ready
        assert len(_left(tmp_path)) == 4
        os.kill(before.pid or 0, signal.SIGKILL)
        after = running.await_row(
            "s.0", lambda row: row.state == "running" and row.restarts == 1, "restarted"
        )
        assert after.pid != before.pid
        assert len(_left(tmp_path)) == 4, "the killed one's child is gone, the new one has its own"

        def shown() -> bool:
            """Return whether status shows it; asks again if a slow machine does not answer
            in time.
            """
            rows = {row["name"]: row for row in rows_of(tmp_path) or []}
            stage, source = rows["s.0"], rows["a"]
            return (stage["state"], stage["restarts"], source["waiting_for"]) == (
                "running",
                1,
                "partition 1",
            )

        wait_until(shown, DEADLINE_S, "what they say")
    finally:
        took_s = running.stop()
    assert _left(tmp_path) == []
    assert took_s < 9, "nobody's patience is waited out"
    deployment = state_file.read(tmp_path)
    assert deployment is not None
    assert [row.state for row in deployment.processes] == ["stopped"] * 3
    assert rows_of(tmp_path) is None


def test_services_stop_in_order_and_a_deaf_one_is_killed_in_time(tmp_path: Path) -> None:
    running = _Running(
        tmp_path,
        ("delivery", "o", "deaf"),
        ("ingestion", "a", "well"),
        ("processing", "s.0", "well"),
    )
    wait_until(
        lambda: any(line.startswith("ready") for line in running.lines),
        DEADLINE_S,
        "the ready line",
    )
    took_s = running.stop()
    assert took_s < 15
    assert _left(tmp_path) == []
    ended = (tmp_path / "ended").read_text().split()
    assert ended == ["a", "s.0"]
    assert "delivery/o did not stop in time: killed" in running.lines


def test_wrong_settings_end_the_supervisor_with_the_text(tmp_path: Path) -> None:
    running = _Running(tmp_path, ("ingestion", "a", "well"), ("delivery", "o", "exit 2"))
    running.await_end()
    running.stop()
    assert str(running.error) == "delivery/o: told by exit 2"
    assert _left(tmp_path) == []


def test_a_failed_stage_is_shown_and_tried_again_while_the_others_go_on(tmp_path: Path) -> None:
    running = _Running(tmp_path, ("ingestion", "a", "well"), ("processing", "s.0", "exit 4"))
    try:
        failed = running.await_row("s.0", lambda row: row.state == "failed", "failed")
        assert failed.error == "told by exit 4"
        first = running.await_row("a", lambda row: row.state == "running", "running")
        running.await_row("s.0", lambda row: row.restarts >= 2, "tried again twice")
        assert running.row("a") == first
        assert not any(line.startswith("ready") for line in running.lines)
    finally:
        running.stop()
    assert _left(tmp_path) == []


def test_a_paused_process_is_shown_as_paused_and_left_alone(tmp_path: Path) -> None:
    running = _Running(tmp_path, ("ingestion", "a", "well"))
    try:
        row = running.await_row("a", lambda row: row.state == "running", "running")
        os.kill(row.pid or 0, signal.SIGSTOP)
        wait_until(
            lambda: (rows_of(tmp_path) or [{}])[0]["state"] == "paused",
            DEADLINE_S,
            "it is shown: a signal need not be there at once",
        )
        os.kill(row.pid or 0, signal.SIGCONT)
        wait_until(
            lambda: (rows_of(tmp_path) or [{}])[0]["state"] == "waiting",
            DEADLINE_S,
            "it answers again",
        )
    finally:
        running.stop()


def test_children_die_with_a_killed_supervisor_and_the_next_one_sweeps_the_rest(
    tmp_path: Path,
) -> None:
    program = f"""
import os, sys, threading
from pathlib import Path
from anabranch.adapters.system.clock import SystemClock
from anabranch.local.processes import ProcessSpec
from anabranch.local.state_file import Deployment
from anabranch.local.supervisor import Supervisor
state_dir = Path(sys.argv[1])
command = [sys.executable, {str(_FAKE)!r}, str(state_dir), "processing", "s.0", "children"]
spec = ProcessSpec("processing", "s.0", command)
deployment = Deployment(os.getpid(), "p", "b:1", None)
supervisor = Supervisor(
    state_dir, deployment, [spec], SystemClock(), lambda text: print(text, flush=True)
)
supervisor.run(threading.Event())
"""
    supervisor = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.DEVNULL
    )
    wait_until(
        lambda: (d := state_file.read(tmp_path)) is not None and d.ready, DEADLINE_S, "ready"
    )
    deployment = state_file.read(tmp_path)
    assert deployment is not None
    child = deployment.processes[0].pid or 0
    supervisor.kill()
    supervisor.wait()
    wait_until(
        lambda: child not in _left(tmp_path), DEADLINE_S, "the service died with its supervisor"
    )
    running = _Running(tmp_path)
    running.stop()
    wait_until(lambda: not _left(tmp_path), DEADLINE_S, "its orphan was swept")


def test_the_log_is_that_of_the_process(tmp_path: Path) -> None:
    running = _Running(tmp_path, ("ingestion", "a", "well"))
    running.await_row("a", lambda row: row.state == "running", "running")
    running.stop()
    assert (
        json.loads((tmp_path / "logs" / "ingestion-a.log").read_text().splitlines()[0])["event"]
        == "starting"
    )
