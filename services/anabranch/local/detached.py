"""Implementation of ``anabranch up --detach``: starts the supervisor as a process of its own and
waits until it is ready.

The supervisor does not depend on this process, which may be killed at any time.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from anabranch.adapters.system.progress import Progress, unwatched
from anabranch.local import state_file
from anabranch.local.processes import bound_log, log_path
from anabranch.local.supervisor import READY, SERVER_STOP_ORDER

_PAUSE_S: Final = 0.1
_STOP_WAIT_S: Final = 20.0
"""Timeout for the supervisor's orderly stop, in s; one takes at most 15 s."""


def start(
    arguments: Sequence[str],
    state_dir: Path,
    say: Callable[[str], None],
    stopping: threading.Event,
    *,
    program: Sequence[str] = (),
    progress: Progress = unwatched,
) -> int:
    """Run ``anabranch up`` with ``arguments`` in the background until it is ready or has ended.
    Return 0 if it is ready, else its exit code.

    Its output goes to ``say`` and to ``<state_dir>/logs/up.log``. When ``stopping`` is set before
    it is ready, it is stopped. ``program`` replaces the command; ``progress`` counts the running
    services.
    """
    log = log_path(state_dir.resolve(), "up", "")
    log.parent.mkdir(parents=True, exist_ok=True)
    bound_log(log)
    command = [*(program or (sys.executable, "-m", "anabranch.cli", "up")), *arguments]
    with log.open("ab") as output:
        place = output.tell()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    with log.open(encoding="utf-8", errors="replace") as stated:
        stated.seek(place)
        while True:
            ended = process.poll()
            known = state_file.read(state_dir)
            own = known if known is not None and known.pid == process.pid else None
            ready = False
            for line in stated:
                say(line.rstrip("\n"))
                ready |= line.startswith(READY)
            if own is not None and not own.ready:
                services = [row for row in own.processes if row.service not in SERVER_STOP_ORDER]
                running = sum(row.state == "running" for row in services)
                progress("processes ready", running, len(services))
            if ended is not None:
                return ended
            if ready:
                return 0
            if stopping.wait(_PAUSE_S):
                process.terminate()
                return process.wait(_STOP_WAIT_S) or 1
