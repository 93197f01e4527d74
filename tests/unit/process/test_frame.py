"""How a service process runs and ends: seen from outside, since signals and exit codes belong
to a process.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.adapters.system.clock import SystemClock
from anabranch.local import probe
from anabranch.process.frame import ExitCode, Loop, ServiceStatus, exit_code_of
from anabranch.protocol.errors import (
    ConfigurationError,
    DataMissing,
    Fenced,
    LocalProtocolError,
    StageFunctionError,
    Unavailable,
)
from harness.waiting import wait_until

_PROGRAM = """
import ctypes, sys, threading
from pathlib import Path
from types import SimpleNamespace
from anabranch.protocol.errors import ConfigurationError, Fenced, StageFunctionError
from anabranch.process import frame
from anabranch.adapters.system.clock import SystemClock
from anabranch.adapters.system.entropy import SystemEntropy

own = [("ingestion", "reports"), ("ingestion", "more"), ("delivery", "out")]
frame.load = lambda path, _: SimpleNamespace(
    name="p", path=path, own_processes=lambda: own, partner_processes=list, clusters={}
)
what = sys.argv.pop(1)
if what in ("hang_in_start", "hang_in_stop", "deaf"):
    frame.STOP_SECONDS_MAX = 1.0
else:
    frame.STOP_SECONDS_MAX = 60.0  # however slow the machine is, nothing cuts an orderly end short
frame.STEP_SECONDS_MAX = 1.0 if what == "hang_in_step" else 300.0
if what == "unannounced":
    frame._WATCH_AGAIN_MS = 100

def hang_in_a_library():
    ctypes.PyDLL(None).sleep(600)  # keeps the interpreter's lock, as a library's deadlock may

def wait_for_ever_in_a_library():
    mutex = ctypes.create_string_buffer(64)  # all zeros: not locked
    for _ in range(2):
        ctypes.CDLL(None).pthread_mutex_lock(mutex)  # no signal interrupts it

def break_down_in_a_library():
    ctypes.CDLL(None).abort()  # as the C library does when it finds memory spoilt

def die():
    raise RuntimeError("thread's own")

class Fake:
    def __init__(self, settings, context):
        self.status = frame.ServiceStatus()
        self.context = context
        self.steps = 0
        if what == "bad_name":
            raise ConfigurationError("no source of that name")
    def start(self):
        if what == "hang_in_start":
            threading.Event().wait(600)
    def step(self):
        if what == "hang_in_step": hang_in_a_library()  # the first: its time runs already
        self.steps += 1
        self.status.last_bucket_ms, self.status.lag_ms = 1250, 30
        self.context.stopping.wait(0.02)
        if self.steps == 3:
            if what == "fenced": raise Fenced("newer one")
            if what == "stage": raise StageFunctionError("f raised: boom")
            if what == "surprise": raise KeyError("surprise")
            if what == "break_down": break_down_in_a_library()
            if what == "deaf":
                self.status.last_bucket_ms = 9
                wait_for_ever_in_a_library()
            if what == "thread": threading.Thread(target=die, name="worker").start()
    def stop(self):
        print("STOP CALLED", file=sys.stderr)
        if what == "hang_in_stop":
            threading.Event().wait(600)

frame.main("ingestion", Fake, lambda kafka, redis: (None, None, SystemClock(), SystemEntropy()))
"""


def _start(tmp_path: Path, what: str, *more: str) -> subprocess.Popen[str]:
    arguments = [
        "--pipeline",
        "p.yaml",
        "--name",
        "reports",
        "--kafka",
        "nowhere:1",
        "--state-dir",
        str(tmp_path),
        *more,
    ]
    return subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, what, *arguments], stderr=subprocess.PIPE, text=True
    )


def _ended(process: subprocess.Popen[str]) -> tuple[int, list[dict[str, object]], str]:
    try:
        _, errors = process.communicate(timeout=300)
    finally:
        process.kill()  # one that did not end would be left for good
    return (
        process.returncode,
        [json.loads(line) for line in errors.splitlines() if line.startswith("{")],
        errors,
    )


def _port(tmp_path: Path, process: subprocess.Popen[str]) -> int:
    return (
        wait_until(
            lambda: probe.metrics_port(tmp_path, "ingestion", "reports", process.pid),
            300,
            "the service names its port",
        )
        or 0
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serves_its_status_and_stops_cleanly_on_a_signal(
    tmp_path: Path, number: signal.Signals
) -> None:
    process = _start(tmp_path, "well", "--restarts", "2")
    port = _port(tmp_path, process)
    wait_until(lambda: probe.ready(port), 60, "ready")
    status = wait_until(lambda: probe.status(port), 60, "status") or {}
    assert (status["service"], status["name"], status["state"], status["restarts"]) == (
        "ingestion",
        "reports",
        "running",
        2,
    )
    wait_until(
        lambda: (probe.status(port) or {}).get("last_bucket_ms") == 1250,
        60,
        "status follows the service",
    )
    metrics = probe.get(port, "/metrics", 60)
    assert metrics is not None
    assert (
        b'anabranch_lag_seconds{name="reports",pipeline="p",service="ingestion"} 0.03' in metrics[1]
    )
    made = [path for path in tmp_path.rglob("*") if "run" in path.parts]
    assert made
    assert {path.stat().st_mode & 0o077 for path in made} == {0}, (
        "what it makes is its owner's alone"
    )
    process.send_signal(number)
    code, _, errors = _ended(process)
    assert code == 0
    assert errors.count("STOP CALLED") == 1


def test_a_disk_that_takes_nothing_keeps_no_service_from_running(tmp_path: Path) -> None:
    """Of a full disk of checkpoints, ingestion and delivery need only this file."""
    (tmp_path / "run").touch()  # no folder can be made there
    process = _start(tmp_path, "unannounced")
    assert process.stderr is not None
    while "run_file_not_written" not in (line := process.stderr.readline()):
        assert line, "the process has ended"
    (tmp_path / "run").unlink()
    port = _port(tmp_path, process)
    wait_until(lambda: probe.ready(port), 60, "ready")
    assert [path.suffix for path in (tmp_path / "run").iterdir()] == [".json"]
    process.send_signal(signal.SIGTERM)
    assert _ended(process)[0] == 0


@pytest.mark.parametrize(
    ("what", "code", "text"),
    [
        ("fenced", 3, "newer one"),
        ("stage", 4, "f raised: boom"),
        ("surprise", 1, "KeyError: 'surprise'"),
        ("thread", 1, "thread worker died: RuntimeError: thread's own"),
        ("bad_name", 2, "no source of that name"),
    ],
)
def test_each_error_has_its_exit_code_and_is_logged_once(
    tmp_path: Path, what: str, code: int, text: str
) -> None:
    actual, lines, errors = _ended(_start(tmp_path, what))
    assert actual == code
    entries = [line for line in lines if "error" in line]
    assert [line["error"] for line in entries] == [text]
    assert ("exception" in entries[0]) == (code in (1, 4))
    if what in ("fenced", "stage", "surprise"):
        assert errors.count("STOP CALLED") == 1


def test_missing_settings_are_a_configuration_error() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, "well"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 2
    assert "ANABRANCH_PIPELINE" in json.loads(done.stderr)["error"]


@pytest.mark.parametrize("what", ["hang_in_start", "hang_in_stop"])
def test_an_end_that_takes_too_long_is_cut_short(tmp_path: Path, what: str) -> None:
    process = _start(tmp_path, what)
    _port(tmp_path, process)
    process.terminate()
    code, lines, _ = _ended(process)
    assert code == 0
    assert any(line["event"] == "stop_cut_short" for line in lines)


def test_a_signal_ends_a_process_in_a_call_that_does_not_return(tmp_path: Path) -> None:
    process = _start(tmp_path, "deaf")
    port = _port(tmp_path, process)
    wait_until(
        lambda: (probe.status(port) or {}).get("last_bucket_ms") == 9, 60, "it is in the call"
    )
    process.terminate()
    code, lines, _ = _ended(process)
    assert code == 0
    assert lines[-1]["event"] == "stop_cut_short"


def test_a_step_that_never_ends_ends_the_process_which_says_where_it_was(tmp_path: Path) -> None:
    code, _, text = _ended(_start(tmp_path, "hang_in_step"))
    assert code == ExitCode.ERROR
    assert "hang_in_a_library" in text


def test_a_library_that_breaks_down_leaves_word_of_where_it_was_called(tmp_path: Path) -> None:
    code, _, text = _ended(_start(tmp_path, "break_down"))
    assert code == -signal.SIGABRT
    assert "Fatal Python error" in text
    assert "break_down_in_a_library" in text


def test_check_config_only_checks(tmp_path: Path) -> None:
    code, lines, _ = _ended(_start(tmp_path, "hang_in_start", "--check-config"))
    assert code == 0
    assert [line["event"] for line in lines] == ["checked"]


@pytest.mark.parametrize("more", [["--check-config"], []])
def test_a_name_that_the_pipeline_does_not_have_is_rejected_with_those_that_it_has(
    tmp_path: Path, more: list[str]
) -> None:
    code, lines, _ = _ended(_start(tmp_path, "well", "--name", "nope", *more))
    assert code == 2
    assert [line["error"] for line in lines] == [
        "--name nope: pipeline p has no such ingestion; there are reports, more"
    ]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigurationError("x"), ExitCode.CONFIGURATION),
        (Fenced("x"), ExitCode.FENCED),
        (StageFunctionError("x"), ExitCode.STAGE_FAILED),
        (LocalProtocolError("x"), ExitCode.ERROR),
        (DataMissing("x"), ExitCode.ERROR),
        (Unavailable("x"), ExitCode.ERROR),
        (ValueError("x"), ExitCode.ERROR),
    ],
)
def test_exit_codes(error: Exception, code: ExitCode) -> None:
    assert exit_code_of(error) is code


class Meddling:
    """Somebody adds to the status while this is looked at."""

    def __init__(self, status: ServiceStatus) -> None:
        self.status = status

    def __deepcopy__(self, memo: object) -> str:
        return str(self)

    def __str__(self) -> str:
        self.status.detail[f"batch {len(self.status.detail)}"] = 1
        return "changed"


def test_a_status_that_changes_while_it_is_shown() -> None:
    """The service's thread writes, the health server's threads read."""
    status = ServiceStatus()
    status.detail |= {"first": Meddling(status), "second": 2}
    settings = SimpleNamespace(name="x", restarts=0)
    context: Any = SimpleNamespace(
        clock=SystemClock(),
        settings=settings,
        metrics=SimpleNamespace(follow=lambda *_: None),
        stopping=threading.Event(),
    )
    service: Any = SimpleNamespace(status=status)
    report = Loop("fake", service, context).report()
    assert json.loads(json.dumps(report, default=str))["detail"]["second"] == 2
    assert set(report) >= {
        "state",
        "last_bucket_ms",
        "lag_ms",
        "waiting_for",
        "error",
        "detail",
        "pid",
        "alive",
    }
