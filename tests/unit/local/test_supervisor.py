"""Small parts of the supervisor; the whole is in tests/integration/test_supervisor.py."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, cast

import pytest

from anabranch.adapters.memory.clock import VirtualClock
from anabranch.adapters.system.clock import SystemClock
from anabranch.adapters.system.progress import ProgressCall
from anabranch.local import probe, processes, state_file
from anabranch.local import supervisor as module
from anabranch.local.processes import ManagedProcess, ProcessSpec, SpareProcess
from anabranch.local.state_file import Deployment
from anabranch.local.supervisor import Supervisor, stop_servers
from anabranch.protocol.control.placement import (
    HEALTHY_AFTER_MS,
    SPARE_AGAIN_MS,
    SPARE_AT_ONCE,
    START_MS_MAX,
)
from anabranch.protocol.errors import ConfigurationError, Unavailable
from harness.waiting import wait_until


class _Server:
    """An embedded server that can be made to die, and to reject its next starts."""

    pid: int | None = 7
    address = "127.0.0.1:9"
    log_path = Path("no such log")

    def __init__(self) -> None:
        self.up = True
        self.rejections = 0
        self.rejection: Exception = Unavailable("not yet")
        self.starts = 0

    def alive(self) -> bool:
        return self.up

    def start(self) -> str:
        self.starts += 1
        if self.rejections:
            self.rejections -= 1
            raise self.rejection
        self.up = True
        return self.address

    def stop(self, timeout_s: float) -> None:
        self.up = False


def _of_a_server(folder: Path, server: _Server, lines: list[str]) -> Supervisor:
    deployment = Deployment(os.getpid(), "p", server.address, None)
    return Supervisor(folder, deployment, [], SystemClock(), lines.append, {"kafka": server})


def test_a_dead_server_is_started_again_at_its_address_with_growing_delay(tmp_path: Path) -> None:
    server, lines = _Server(), list[str]()
    supervisor = _of_a_server(tmp_path, server, lines)
    supervisor.step()
    server.up, server.rejections = False, 1

    def restarted() -> bool:
        supervisor.step()
        return server.up

    supervisor.step()
    deployment = state_file.read(tmp_path)
    assert deployment is not None
    assert (
        deployment.processes[0].state,
        deployment.processes[0].pid,
        deployment.processes[0].address,
    ) == (
        "restarting",
        None,
        "127.0.0.1:9",
    )
    wait_until(restarted, 10, "the server is up again")
    assert server.starts == 2
    assert [line.partition(";")[0] for line in lines if "ended" in line] == [
        "kafka ended",
        "kafka ended",
    ]
    assert "kafka does not start: not yet" in lines
    supervisor.stop()
    assert not server.up


def test_a_process_that_cannot_be_started_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, failures = (
        ManagedProcess,
        [OSError("Cannot allocate memory"), OSError("Too many open files")],
    )

    def start(
        spec: ProcessSpec, state_dir: Path, restarts: int, spare: SpareProcess | None
    ) -> ManagedProcess:
        if failures:
            raise failures.pop(0)
        return real(spec, state_dir, restarts, spare)

    monkeypatch.setattr(module, "ManagedProcess", start)
    clock, lines = VirtualClock(), list[str]()
    spec = ProcessSpec("delivery", "o", [sys.executable, "-c", "import signal; signal.pause()"])
    supervisor = Supervisor(
        tmp_path, Deployment(os.getpid(), "p", "k:1", None), [spec], clock, lines.append
    )
    try:
        stopping = threading.Event()
        stopping.set()
        supervisor.run(stopping)
        supervisor.step()
        (row,) = (state_file.read(tmp_path) or pytest.fail("nothing written")).processes
        assert (row.state, row.pid, row.error) == ("restarting", None, "Cannot allocate memory")
        for _ in range(2):
            clock.advance(1_000)
            supervisor.step()
        (row,) = (state_file.read(tmp_path) or pytest.fail("nothing written")).processes
        assert (row.state, row.restarts, row.pid is not None) == ("starting", 2, True)
        assert lines == [
            "delivery/o cannot be started: Cannot allocate memory; again in 500 ms",
            "delivery/o cannot be started: Too many open files; again in 1.0 s",
        ]
    finally:
        stop_now = threading.Event()
        stop_now.set()
        supervisor.stop(stop_now)


def test_a_state_file_that_cannot_be_written_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, lines = _Server(), list[str]()
    supervisor = _of_a_server(tmp_path, server, lines)
    real, is_full = state_file.write, True

    def write(directory: Path, deployment: state_file.Deployment) -> None:
        if is_full:
            raise OSError("No space left on device")
        real(directory, deployment)

    monkeypatch.setattr(state_file, "write", write)
    for _ in range(3):
        supervisor.step()
    assert sum("No space left on device" in line for line in lines) == 1
    assert state_file.read(tmp_path) is None
    is_full = False
    supervisor.step()
    assert state_file.read(tmp_path) is not None
    is_full = True
    supervisor.stop()
    assert not server.up
    assert sum("No space left on device" in line for line in lines) == 2


def test_a_server_that_the_disk_stops_from_starting_is_tried_again(tmp_path: Path) -> None:
    server, lines = _Server(), list[str]()
    supervisor = _of_a_server(tmp_path, server, lines)
    server.up = False
    server.rejections = 1
    server.rejection = OSError("No space left on device")

    def restarted() -> bool:
        supervisor.step()
        return server.up

    wait_until(restarted, 10, "the server is up again")
    assert "kafka does not start: No space left on device" in lines
    supervisor.stop()


def test_all_servers_are_stopped() -> None:
    servers = {"kafka": _Server(), "redis": _Server()}
    stop_servers(servers, 1.0)
    assert not any(server.up for server in servers.values())
    stop_servers({}, 1.0)


class _Failing:
    """A process that ends with exit code 4 when it is told to, and is never ready before."""

    pid = 7
    log_path = Path("log")

    def __init__(self) -> None:
        self.code: int | None = None
        self.times_yielded = 0

    def yield_cores(self) -> None:
        self.times_yielded += 1

    def exit_code(self) -> int | None:
        return self.code

    def kill(self) -> None:
        pass

    def terminate(self) -> None:
        self.code = 0

    def last_error(self) -> str:
        return "it raised"


def test_a_long_start_is_no_sign_of_health(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a function that fails at once would be tried again without any rest where Spark
    takes a minute to start.
    """
    started: list[_Failing] = []

    def start(*_: object) -> _Failing:
        started.append(_Failing())
        return started[-1]

    monkeypatch.setattr(module, "ManagedProcess", start)
    lines, clock = list[str](), VirtualClock()
    supervisor = Supervisor(
        tmp_path,
        Deployment(os.getpid(), "p", "k", None),
        [ProcessSpec("processing", "s.0", ["x"])],
        clock,
        lines.append,
    )
    supervisor._start(supervisor._services[0])
    for number in range(3):
        clock.advance(2 * HEALTHY_AFTER_MS)
        started[number].code = 4
        supervisor.step()
        clock.advance(10_000)
        supervisor.step()
    assert [line.split("; ")[1] for line in lines if "ended" in line] == [
        "again in 500 ms",
        "again in 1.0 s",
        "again in 2.0 s",
    ]
    supervisor.stop()


def test_what_starts_first_yields_the_cores_when_it_is_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ManagedProcess", lambda *_: _Failing())
    monkeypatch.setattr(probe, "metrics_port", lambda *_: 1)
    monkeypatch.setattr(probe, "ready", lambda _: False)
    monkeypatch.setattr(probe, "status", lambda _: {})
    specs = [
        ProcessSpec("processing", "first", ["x"], starts_first=True),
        ProcessSpec("ingestion", "beside", ["x"]),
    ]
    supervisor = Supervisor(
        tmp_path, Deployment(os.getpid(), "p", "k", None), specs, SystemClock(), lambda _: None
    )
    for service in supervisor._services:
        supervisor._start(service)

    def times_yielded() -> list[int]:
        supervisor.step()
        return [cast("_Failing", each.process).times_yielded for each in supervisor._services]

    assert times_yielded() == [0, 0]
    monkeypatch.setattr(probe, "ready", lambda _: True)
    assert times_yielded() == times_yielded() == [1, 0]
    supervisor.stop()


def test_logs_of_processes_that_run_for_long_stay_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "LOG_BYTES_MAX", 10)
    clock, server = VirtualClock(), _Server()
    logs = [tmp_path / "logs" / "delivery-o.log", tmp_path / "kafka" / "kafka.log"]
    server.log_path = logs[1]
    for log in logs:
        log.parent.mkdir()
    deployment = Deployment(os.getpid(), "p", "k", None)
    supervisor = Supervisor(
        tmp_path, deployment, [], clock, lambda _: None, servers={"kafka": server}
    )
    sizes = []
    for _ in range(4):
        supervisor.step()
        sizes.append([log.stat().st_size if log.exists() else 0 for log in logs])
        for log in logs:
            log.write_text("01234567890")
        clock.advance(40_000)
    assert sizes == [[0, 0], [11, 11], [0, 0], [11, 11]]
    supervisor.stop()


def test_how_many_processes_are_ready_and_have_stopped_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ManagedProcess", lambda *_: _Failing())
    ready, stopping = set[int](), threading.Event()
    monkeypatch.setattr(probe, "metrics_port", lambda _state, _service, name, _pid: int(name))
    monkeypatch.setattr(probe, "ready", lambda port: port in ready)
    monkeypatch.setattr(probe, "status", lambda _port: {})
    supervisor = Supervisor(
        tmp_path,
        Deployment(os.getpid(), "p", "k", None),
        [ProcessSpec("processing", str(number), ["x"]) for number in range(2)],
        SystemClock(),
        lambda _: None,
        {"kafka": _Server()},
    )
    steps: list[ProgressCall] = []

    def progress(what: str, done: int, total: int) -> None:
        steps.append(ProgressCall(what, done, total))
        ready.add(done)  # one after the other
        if done == total:
            stopping.set()

    supervisor.run(stopping, progress=progress)
    assert list(dict.fromkeys(steps)) == [
        ProgressCall("processes ready", done, 2) for done in (0, 1, 2)
    ]
    steps.clear()
    supervisor.stop(progress=progress)
    assert list(dict.fromkeys(steps)) == [
        ProgressCall("processes stopped", done, 3) for done in (0, 2)
    ], "the broker is the third"


class _Starting:
    """Two supervised processes under a virtual clock, and what the supervisor prints."""

    def __init__(
        self,
        state_dir: Path,
        monkeypatch: pytest.MonkeyPatch,
        kind: str = "processing",
        spares: int = 0,
    ) -> None:
        self.started: list[_Failing] = []
        self.spares: list[object] = []
        """Spare process with which each was started."""
        self.answers: list[dict[str, object]] = [{}, {}]
        self.ready: set[int] = set()
        self.clock = VirtualClock()
        self.lines: list[str] = []
        monkeypatch.setattr(module, "ManagedProcess", self._start)
        monkeypatch.setattr(probe, "metrics_port", lambda _state, _service, name, _pid: int(name))
        monkeypatch.setattr(probe, "ready", lambda port: port in self.ready)
        monkeypatch.setattr(probe, "status", lambda port: self.answers[port])
        self.supervisor = Supervisor(
            state_dir,
            Deployment(os.getpid(), "p", "k", None),
            [
                ProcessSpec(kind, str(number), ["x"], takes_spare=number < spares)
                for number in range(2)
            ],
            self.clock,
            self.lines.append,
        )
        for service in self.supervisor._services:
            self.supervisor._start(service)

    def _start(self, *given: object) -> _Failing:
        self.started.append(_Failing())
        self.spares.append(given[3] if len(given) > 3 else None)
        return self.started[-1]


@pytest.fixture
def starting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Starting:
    return _Starting(tmp_path, monkeypatch)


def by_its_exit(starting: _Starting) -> None:
    starting.started[0].code = 2


def by_its_status(starting: _Starting) -> None:
    starting.answers[0] = {
        "error": "s.0: a line of it",
        "detail": {"stages": [{"mistake": None}, {"mistake": "it raised"}]},
    }


@pytest.mark.parametrize("reports", [by_its_exit, by_its_status])
@pytest.mark.parametrize("other_is_ready", [False, True])
def test_a_mistake_ends_a_deployment_that_starts(
    starting: _Starting, reports: Callable[[_Starting], None], *, other_is_ready: bool
) -> None:
    starting.ready = {1} if other_is_ready else set()
    starting.supervisor.step()
    reports(starting)
    with pytest.raises(ConfigurationError, match=r"^processing/0: it raised$"):
        starting.supervisor.step()
    assert starting.supervisor._services[0].row().error == "it raised"
    assert len(starting.started) == 2, "what cannot be right is not started again"


@pytest.mark.parametrize("reports", [by_its_exit, by_its_status])
@pytest.mark.parametrize("after", ["ready", "long"])
def test_a_mistake_that_is_found_later_leaves_the_others_alone(
    starting: _Starting, reports: Callable[[_Starting], None], after: str
) -> None:
    starting.ready = {0, 1} if after == "ready" else {1}
    starting.supervisor.step()
    starting.clock.advance(0 if after == "ready" else START_MS_MAX)
    starting.ready = {1}
    reports(starting)
    starting.supervisor.step()
    assert starting.started[1].code is None
    if reports is by_its_exit:
        assert starting.supervisor._services[0].row().state == "failed"
        starting.clock.advance(1_000)
        starting.supervisor.step()
        assert len(starting.started) == 3, "it is tried again, alone"


def test_a_line_of_an_error_says_something(starting: _Starting) -> None:
    starting.answers[0] = {"error": "f: raised ParseException: \n[NEAR] 'FORM'\n\n== SQL =="}
    starting.supervisor.step()
    assert starting.lines[-1] == "processing/0: f: raised ParseException: [NEAR] 'FORM'"


class _Spare:
    """Stand-in for a spare process."""

    begun: ClassVar[list[_Spare]] = []

    def __init__(self, _state_dir: Path) -> None:
        self.up = True
        self.begun.append(self)

    def alive(self) -> bool:
        return self.up

    def kill(self) -> None:
        self.up = False


@pytest.fixture
def with_spare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Starting:
    monkeypatch.setattr(_Spare, "begun", [])
    monkeypatch.setattr(module, "SpareProcess", _Spare)
    return _Starting(tmp_path, monkeypatch, "delivery", 2)


def ready(starting: _Starting) -> None:
    starting.ready = {0, 1}
    for _ in range(2):
        starting.supervisor.step()


def test_a_spare_process_waits_once_all_are_ready(with_spare: _Starting) -> None:
    with_spare.supervisor.step()
    assert _Spare.begun == [], "the start needs the processors"
    ready(with_spare)
    assert len(_Spare.begun) == 1
    assert with_spare.spares == [None, None]


def test_it_takes_the_place_of_a_light_service_in_the_same_round(with_spare: _Starting) -> None:
    ready(with_spare)
    (spare,) = _Spare.begun
    with_spare.started[0].code = -9
    with_spare.supervisor.step()
    assert with_spare.spares == [None, None, spare]
    assert with_spare.supervisor._services[0].restarts == 1
    with_spare.clock.advance(SPARE_AGAIN_MS - 1)
    with_spare.supervisor.step()
    assert len(_Spare.begun) == 1, "the other one needs the processors first"
    with_spare.clock.advance(1)
    with_spare.supervisor.step()
    assert len(_Spare.begun) == 2


def test_a_second_end_before_there_is_another_one_waits_as_usual(with_spare: _Starting) -> None:
    ready(with_spare)
    for process in with_spare.started[:2]:
        process.code = -9
    with_spare.supervisor.step()
    assert len(with_spare.started) == 3
    with_spare.clock.advance(500)
    with_spare.supervisor.step()
    assert with_spare.spares[3] is None


def test_a_process_that_ends_again_and_again_is_given_growing_pauses(
    with_spare: _Starting,
) -> None:
    """A service that ends each time when it has run for ten seconds."""
    ready(with_spare)
    pauses_ms: list[int] = []
    for _ in range(SPARE_AT_ONCE + 2):
        with_spare.clock.advance(10_000)
        with_spare.supervisor.step()  # another spare process waits
        ended = with_spare.started[-1] if pauses_ms else with_spare.started[0]
        ended.code = 1
        begun, at_ms = len(with_spare.started), with_spare.clock.monotonic_ms()
        with_spare.supervisor.step()
        while len(with_spare.started) == begun:
            with_spare.clock.advance(100)
            with_spare.supervisor.step()
        pauses_ms.append(with_spare.clock.monotonic_ms() - at_ms)
        with_spare.supervisor.step()
    assert pauses_ms == [0] * SPARE_AT_ONCE + [500, 1_000]


def test_a_node_takes_no_spare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Spare, "begun", [])
    monkeypatch.setattr(module, "SpareProcess", _Spare)
    nodes = _Starting(tmp_path, monkeypatch, spares=1)
    ready(nodes)
    assert len(_Spare.begun) == 1, "the other one takes it"
    nodes.started[1].code = -9
    nodes.supervisor.step()
    assert len(nodes.started) == 2
    nodes.clock.advance(500)
    nodes.supervisor.step()
    assert nodes.spares == [None, None, None]


def test_a_spare_process_that_ends_is_started_again_after_a_pause(with_spare: _Starting) -> None:
    ready(with_spare)
    _Spare.begun[0].up = False
    with_spare.supervisor.step()
    assert len(_Spare.begun) == 1
    with_spare.clock.advance(500)
    with_spare.supervisor.step()
    assert len(_Spare.begun) == 2


def test_without_memory_for_one_the_services_go_on(
    with_spare: _Starting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_state_dir: Path) -> _Spare:
        raise OSError("Cannot allocate memory")

    monkeypatch.setattr(module, "SpareProcess", fail)
    ready(with_spare)
    monkeypatch.setattr(module, "SpareProcess", _Spare)
    with_spare.supervisor.step()
    assert _Spare.begun == []
    with_spare.clock.advance(500)
    with_spare.supervisor.step()
    assert len(_Spare.begun) == 1


def test_a_stop_ends_the_spare_process(with_spare: _Starting) -> None:
    ready(with_spare)
    for process in with_spare.started:
        process.code = 0
    with_spare.supervisor.stop()
    assert not _Spare.begun[0].up
