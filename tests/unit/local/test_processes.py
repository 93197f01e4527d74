"""Processes are ended with everything below them."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.local import processes
from anabranch.local.processes import (
    MARK,
    MARK_OF_ONE,
    ManagedProcess,
    ProcessSpec,
    bound_log,
    log_path,
    marked,
    reason_in,
    sweep,
)
from harness.waiting import wait_until

# A child in a session of its own, whose parent then ends: only its environment still tells whose it
# is.
_WITH_ORPHAN = """
import os, subprocess, sys, threading
middle = "import subprocess; subprocess.Popen(['sleep', '600'], start_new_session=True)"
subprocess.run([sys.executable, "-c", middle], start_new_session=True)
print("there", flush=True)
threading.Event().wait(600)
"""


def _spec(program: str, name: str = "one") -> ProcessSpec:
    return ProcessSpec("processing", name, [sys.executable, "-c", program])


def test_kill_catches_orphans_in_other_sessions_and_nothing_beside(tmp_path: Path) -> None:
    victim = ManagedProcess(_spec(_WITH_ORPHAN, "victim"), tmp_path)
    beside = ManagedProcess(_spec(_WITH_ORPHAN, "beside"), tmp_path)
    try:
        for process in (victim, beside):
            wait_until(lambda path=process.log_path: "there" in path.read_text(), 60, "both are up")  # type: ignore[misc]
        assert len(marked(MARK, str(tmp_path))) == 4
        victim.kill()
        assert victim.exit_code() == -signal.SIGKILL
        assert not marked(MARK_OF_ONE, str(victim.log_path))
        assert len(marked(MARK, str(tmp_path))) == 2
    finally:
        beside.kill()
    assert marked(MARK, str(tmp_path)) == []


def test_sweep_finds_what_another_supervisor_left(tmp_path: Path) -> None:
    process = ManagedProcess(_spec(_WITH_ORPHAN), tmp_path)
    wait_until(lambda: "there" in process.log_path.read_text(), 60, "up")
    assert len(sweep(tmp_path)) == 2
    assert marked(MARK, str(tmp_path)) == []
    wait_until(lambda: process.exit_code() is not None, 60, "ended")
    assert sweep(tmp_path) == []


@pytest.mark.parametrize(
    ("starts_first", "restarts", "yields"),
    [(False, 0, True), (False, 1, True), (True, 0, False), (True, 1, True)],
)
def test_what_starts_first_yields_the_cores_when_it_is_told(
    tmp_path: Path, *, starts_first: bool, restarts: int, yields: bool
) -> None:
    spec = replace(_spec("input()"), niceness=3, starts_first=starts_first)
    process = ManagedProcess(spec, tmp_path, restarts)
    try:
        own = os.getpriority(os.PRIO_PROCESS, 0)
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == own + (3 if yields else 0)
        process.yield_cores()
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == own + 3
    finally:
        process.kill()


def test_terminate_wakes_a_paused_process(tmp_path: Path) -> None:
    process = ManagedProcess(
        _spec("import threading; print('there', flush=True); threading.Event().wait(600)"), tmp_path
    )
    wait_until(lambda: "there" in process.log_path.read_text(), 60, "up")
    os.kill(process.pid, signal.SIGSTOP)
    process.terminate()
    wait_until(lambda: process.exit_code() is not None, 60, "ended")
    assert process.exit_code() == -signal.SIGTERM


def test_settings_of_the_supervisors_own_environment_are_not_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANABRANCH_METRICS_PORT", "8080")
    monkeypatch.setenv("ANABRANCH_LOG_LEVEL", "debug")
    program = (
        "import os; print(sorted(n for n in os.environ if n.startswith('ANABRANCH_')),"
        " os.environ['ANABRANCH_RESTARTS'])"
    )
    process = ManagedProcess(_spec(program), tmp_path, restarts=7)
    wait_until(lambda: process.exit_code() is not None, 60, "ended")
    logged = process.log_path.read_text()
    assert "METRICS_PORT" not in logged
    assert "ANABRANCH_LOG_LEVEL" in logged
    assert logged.endswith("7\n")


def test_the_reason_is_that_of_this_run_only(tmp_path: Path) -> None:
    first = ManagedProcess(_spec('print(\'{"event": "stopped", "error": "old"}\')'), tmp_path)
    wait_until(lambda: first.exit_code() is not None, 60, "ended")
    assert first.last_error() == "old"
    second = ManagedProcess(_spec("pass"), tmp_path)
    wait_until(lambda: second.exit_code() is not None, 60, "ended")
    assert second.last_error() == ""


def test_a_reason_with_a_long_traceback_is_found(tmp_path: Path) -> None:
    program = (
        "import json; print(json.dumps({'event': 'stopped', 'error': 'told', 'exception': 'at"
        " org.apache.spark ' * 2_000}))"
    )
    process = ManagedProcess(_spec(program), tmp_path)
    wait_until(lambda: process.exit_code() is not None, 60, "ended")
    assert process.last_error() == "told"


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([], ""),
        (
            [
                '{"event": "a", "error": "first"}',
                '{"event": "b", "error": "last"}',
                '{"event": "c"}',
            ],
            "last",
        ),
        (['{"event": "a", "error": "told"}', "WARN of a JVM at its end"], "told"),
        (["Traceback ...", "ImportError: no module"], "ImportError: no module"),
        (["3", "[1]", "null"], ""),
    ],
)
def test_reason_in_a_log(lines: list[str], reason: str) -> None:
    assert reason_in(lines) == reason


def test_a_large_log_is_moved_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "LOG_BYTES_MAX", 10)
    path = log_path(tmp_path, "ingestion", "reports.x")
    path.parent.mkdir()
    for content, kept in (
        ("0123456789", "0123456789"),
        ("01234567890", None),
        ("new and large", None),
    ):
        path.write_text(content)
        bound_log(path)
        assert (path.read_text() if path.exists() else None) == kept
    assert (path.parent / "ingestion-reports.x.log.1").read_text() == "new and large"


def test_a_log_that_grows_large_is_moved_aside_under_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "LOG_BYTES_MAX", 1_000)
    program = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
for number in range(2):
    print('x' * 2_000 + str(number), flush=True)
    signal.sigwait([signal.SIGUSR1])
print('{"error": "told"}')
"""
    process = ManagedProcess(_spec(program), tmp_path)
    path, old = process.log_path, process.log_path.with_suffix(".log.1")
    for number in range(2):
        wait_until(lambda: path.read_text().endswith(f"x{number}\n"), 60, "a long line")  # noqa: B023
        processes.bound_logs(processes.logs_in(tmp_path))
        assert (path.read_text(), old.read_text()) == ("", "x" * 2_000 + f"{number}\n")
        os.kill(process.pid, signal.SIGUSR1)
    wait_until(lambda: process.exit_code() is not None, 60, "ended")
    processes.bound_logs(processes.logs_in(tmp_path))
    assert (path.read_text(), process.last_error()) == ('{"error": "told"}\n', "told")
    again = ManagedProcess(_spec("pass"), tmp_path)
    wait_until(lambda: again.exit_code() is not None, 60, "ended")
    path.write_text("")
    assert again.last_error() == "", "what it begins after is gone"
