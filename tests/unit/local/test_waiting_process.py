"""A process that waits for the service that it is to become."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.local import waiting_process
from anabranch.local.child_process import ChildProcess
from anabranch.local.processes import (
    MARK,
    MARK_OF_ONE,
    ManagedProcess,
    ProcessSpec,
    SpareProcess,
    mark_of,
    marked,
    spare_log,
)
from anabranch.local.waiting_process import SERVICES, Role, role_in
from harness.waiting import wait_until

DEADLINE_S = 60


def spec(*arguments: str, service: str = "delivery") -> ProcessSpec:
    command = [sys.executable, "-m", f"anabranch.{service}", *arguments]
    return ProcessSpec(service, "out", command, {"ANABRANCH_LOG_LEVEL": "debug"})


def test_a_role_survives_the_way() -> None:
    role = Role("delivery", ("--name", "out put"), {"A": "b\n"}, "/tmp/a log")
    assert role.line().count(b"\n") == 1
    assert role_in(role.line()) == role


@pytest.mark.parametrize("line", [b"", b'{"service": "deliv'])
def test_an_input_that_was_closed_gives_no_role(line: bytes) -> None:
    assert role_in(line) is None


def test_it_has_imported_what_arrow_needs_for_its_first_column() -> None:
    code = f"import sys; from {waiting_process.__name__} import main; main()"
    code += "; assert 'pandas' in sys.modules"
    subprocess.run([sys.executable, "-c", code], stdin=subprocess.DEVNULL, check=True)


@pytest.mark.parametrize("service", SERVICES)
def test_it_becomes_the_service_with_its_log_and_arguments(tmp_path: Path, service: str) -> None:
    spare = SpareProcess(tmp_path)
    pid = spare.child.pid
    process = ManagedProcess(spec("--help", service=service), tmp_path, 1, spare)
    wait_until(lambda: process.exit_code() is not None, DEADLINE_S, "the end of --help")
    assert (process.pid, process.exit_code()) == (pid, 0)
    assert f"Runs the {service} service of one pipeline." in process.log_path.read_text()
    assert spare_log(tmp_path.resolve()).read_text() == ""


def test_why_it_ended_is_read_from_the_log_of_the_service(tmp_path: Path) -> None:
    process = ManagedProcess(spec("--name", "out"), tmp_path, 1, SpareProcess(tmp_path))
    wait_until(lambda: process.exit_code() is not None, DEADLINE_S, "wrong settings")
    assert process.exit_code() == 2
    assert "pipeline" in process.last_error()


def test_one_that_has_ended_is_passed_over(tmp_path: Path) -> None:
    spare = SpareProcess(tmp_path)
    spare.kill()
    process = ManagedProcess(spec("--help"), tmp_path, 1, spare)
    assert process.pid != spare.child.pid
    wait_until(lambda: process.exit_code() is not None, DEADLINE_S, "the end of --help")
    assert process.exit_code() == 0


def test_it_ends_with_its_input_and_carries_the_marks(tmp_path: Path) -> None:
    spare = SpareProcess(tmp_path)
    assert spare.child.pid in marked(MARK, mark_of(tmp_path))
    assert marked(MARK_OF_ONE, str(spare_log(tmp_path.resolve()))) == [spare.child.pid]
    stdin = spare.child._process.stdin
    assert stdin is not None
    stdin.close()
    wait_until(lambda: not spare.alive(), DEADLINE_S, "its end")
    assert spare.child.exit_code == 0


def test_a_child_without_input_takes_no_role(tmp_path: Path) -> None:
    child = ChildProcess([sys.executable, "-c", "import signal; signal.pause()"], tmp_path / "log")
    with pytest.raises(BrokenPipeError, match=str(child.pid)):
        child.hand_over(b"x\n", tmp_path / "other")
    child.kill()
    assert not (tmp_path / "other").exists()
