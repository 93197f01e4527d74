"""The command ``anabranch down``."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Final

import typer
from rich.console import Console

from anabranch.cli.options import File, StateDir
from anabranch.cli.work_display import WorkDisplay

_WAIT_MS: Final = 25_000
"""Timeout for the deployment to stop, in ms. An orderly stop takes at most 15 s; beyond this the
supervisor hangs.
"""


def down(file: File = None, state_dir: StateDir = None) -> None:
    """Stop the deployment that `up` started, and wait until it has stopped. The next `up` continues
    where it stopped.

        anabranch down

    Exit codes: 0 stopped, or nothing runs, 1 not within 25 s.
    """
    from anabranch.adapters.system.clock import SystemClock
    from anabranch.local.state_file import Lock, directory_of, nothing_runs, read

    directory = directory_of(state_dir, file)
    lock = Lock(directory)
    holder = lock.holder()
    if holder is None:
        typer.echo(nothing_runs(directory, file))
        return
    deployment = read(directory)
    running = [row.pid for row in deployment.processes if row.pid is not None] if deployment else []
    with contextlib.suppress(ProcessLookupError):  # another command has stopped it since
        os.kill(holder, signal.SIGTERM)
    clock = SystemClock()
    deadline_ms = clock.monotonic_ms() + _WAIT_MS
    with WorkDisplay(Console(), "stopping") as display:
        while lock.holder() == holder and clock.monotonic_ms() < deadline_ms:
            display.count("processes stopped", sum(map(has_ended, running)), len(running))
            clock.sleep_ms(50)
    if lock.holder() == holder:
        typer.echo(
            f"process {holder} has not stopped within {_WAIT_MS // 1_000} s; end it with: kill"
            f" -9 {holder}",
            err=True,
        )
        raise typer.Exit(1)
    typer.echo("stopped")


def has_ended(pid: int) -> bool:
    """Return whether the process ``pid`` has ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # the number now belongs to a process of another user
        return True
    return False
