"""``up --detach``: the process in the background, until it is ready or has ended."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from anabranch.adapters.system.progress import Progress, ProgressCall, unwatched
from anabranch.local import detached, state_file

_BEGIN = (
    "import os, sys, time; from pathlib import Path; from anabranch.local import state_file as s\n"
    "state = Path(sys.argv[1]); print('starting Kafka', flush=True)\n"
)
_READY = (
    "s.write(state, s.Deployment(os.getpid(), 'p.yaml', 'k:1', None, True, ())); time.sleep(0.5);"
    " print('ready  kafka k:1', flush=True); time.sleep(600)"
)
"""Code that acts as the supervisor, which prints its ready line after it has written the file."""


def start(
    state: Path,
    program: str,
    stopping: threading.Event | None = None,
    progress: Progress = unwatched,
) -> tuple[int, list[str]]:
    lines: list[str] = []
    code = detached.start(
        [str(state)],
        state,
        lines.append,
        stopping or threading.Event(),
        program=[sys.executable, "-c", _BEGIN + program],
        progress=progress,
    )
    return code, lines


def test_it_comes_back_when_all_is_ready_and_the_other_goes_on(tmp_path: Path) -> None:
    state_file.write(tmp_path, state_file.Deployment(1, "p.yaml", "old:1", None, True, ()))
    code, lines = start(tmp_path, "time.sleep(0.5); " + _READY)
    assert (code, lines) == (0, ["starting Kafka", "ready  kafka k:1"])
    known = state_file.read(tmp_path)
    assert known is not None
    assert known.pid != 1, "that of the run before does not count"
    assert os.getsid(known.pid) == known.pid, "a closed terminal does not end it"
    os.kill(known.pid, signal.SIGKILL)
    assert (tmp_path / "logs" / "up.log").read_text() == "starting Kafka\nready  kafka k:1\n"


def test_how_many_of_its_services_run_is_counted(tmp_path: Path) -> None:
    """The file of the previous run says nothing of this one."""
    rows = (
        state_file.ProcessRow("kafka", "kafka", state="running"),
        state_file.ProcessRow("ingestion", "a", state="running"),
        state_file.ProcessRow("delivery", "b"),
    )
    before = state_file.Deployment(1, "p.yaml", "old:1", None, processes=(rows[2],))
    state_file.write(tmp_path, before)
    started = (
        f"rows = tuple(s.ProcessRow(*row) for row in {[[r.service, r.name] for r in rows]});"
        " rows = tuple(s.ProcessRow(r.service, r.name, state='running') for r in rows[:2])"
        " + rows[2:]; s.write(state, s.Deployment(os.getpid(), 'p.yaml', 'k:1', None,"
        " False, rows))\nend_s = time.monotonic() + 60\n"
        "while not (state / 'seen').exists() and time.monotonic() < end_s: time.sleep(0.01)\n"
    )
    steps: list[ProgressCall] = []

    def count(what: str, done: int, total: int) -> None:
        steps.append(ProgressCall(what, done, total))
        (tmp_path / "seen").touch()  # before that it is not ready

    code, _ = start(tmp_path, started + _READY, progress=count)
    assert code == 0
    assert set(steps) == {ProgressCall("processes ready", 1, 2)}
    known = state_file.read(tmp_path)
    assert known is not None
    os.kill(known.pid, signal.SIGKILL)


def test_what_it_ends_with_is_reported(tmp_path: Path) -> None:
    code, lines = start(tmp_path, "print('topics differ'); sys.exit(2)")
    assert (code, lines) == (2, ["starting Kafka", "topics differ"])


def test_a_stop_while_it_starts_stops_it(tmp_path: Path) -> None:
    stopping = threading.Event()
    stopping.set()
    assert start(tmp_path, "time.sleep(600)", stopping)[0] == -signal.SIGTERM
